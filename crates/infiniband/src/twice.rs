//! Port GUIDs that answer in several fabrics. An adapter with a port in each of two fabrics has two port GUIDs: one GUID in
//! two fabrics means that one of them is a copy.

use std::collections::BTreeMap;

use crate::guid::Guid;
use crate::model::{Fabric, PortRef};

/// A port GUID that answers in several fabrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TwiceGuid {
    /// The GUID.
    pub port: Guid,
    /// The ports that answer with it, one for each fabric.
    pub places: Vec<GuidPlace>,
}

/// A port of one fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuidPlace {
    /// The name of the fabric.
    pub fabric: Box<str>,
    /// The description of the adapter.
    pub adapter: Box<str>,
    /// The switch port at the other end of its link. `None`: unknown.
    pub switch: Option<SwitchPort>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchPort {
    /// The node GUID of the switch.
    pub guid: Option<Guid>,
    /// The description of the switch.
    pub name: Box<str>,
    /// The number of the port.
    pub port: u8,
}

/// The adapter ports that are up in several of these fabrics, by GUID.
pub fn twice<'a>(fabrics: impl IntoIterator<Item = (&'a str, &'a Fabric)>) -> Vec<TwiceGuid> {
    let fabrics: Vec<(&str, &Fabric)> = fabrics.into_iter().collect();
    let mut places: BTreeMap<Guid, Vec<(usize, PortRef)>> = BTreeMap::new();
    for (at, (_, fabric)) in fabrics.iter().enumerate() {
        for (device, _) in fabric.devices().filter(|(_, device)| device.is_adapter()) {
            for port in fabric.ports(device).iter().filter(|port| port.up) {
                let Some(guid) = port.guid else { continue };
                let of_guid = places.entry(guid).or_default();
                // A GUID twice in one fabric is a finding of its dump.
                if of_guid.last().is_none_or(|(last, _)| *last != at) {
                    let port = port.number;
                    of_guid.push((at, PortRef { device, port }));
                }
            }
        }
    }
    places.retain(|_, places| places.len() > 1);
    let place = |(at, end): (usize, PortRef)| {
        let (name, fabric) = fabrics[at];
        let far = fabric.far_end(end);
        GuidPlace {
            fabric: name.into(),
            adapter: fabric.device(end.device).name.clone(),
            switch: far.map(|far| SwitchPort {
                guid: fabric.device(far.device).guid,
                name: fabric.device(far.device).name.clone(),
                port: far.port,
            }),
        }
    };
    let of = |(port, places): (Guid, Vec<(usize, PortRef)>)| TwiceGuid {
        port,
        places: places.into_iter().map(place).collect(),
    };
    places.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Device, DeviceKind, FabricBuilder};

    /// A switch with an adapter at each of its ports, from port 1. Each adapter has this port GUID.
    fn fabric(switch: &str, ports: &[u64]) -> Fabric {
        let mut builder = FabricBuilder::default();
        let leaf = builder.device(Device::new(DeviceKind::Switch, switch, 64));
        for (number, guid) in (1..).zip(ports) {
            let name = format!("{switch}-host-{number}");
            let adapter = builder.device(Device::new(DeviceKind::ChannelAdapter, &name, 1));
            let [near, far] = [(adapter, 1), (leaf, number)].map(|(device, port)| PortRef { device, port });
            builder.connect(near, far, None).unwrap();
            builder.port(near).unwrap().guid = Guid::new(*guid);
        }
        builder.finish()
    }

    #[test]
    fn a_guid_in_two_fabrics_is_found_with_its_places() {
        let (east, west) = (fabric("e", &[1, 2, 3]), fabric("w", &[4, 3, 5]));
        let found = twice([("east", &east), ("west", &west)]);
        let place = |fabric: &str, adapter: &str, switch: &str, port| GuidPlace {
            fabric: fabric.into(),
            adapter: adapter.into(),
            switch: Some(SwitchPort {
                guid: None,
                name: switch.into(),
                port,
            }),
        };
        let places = vec![place("east", "e-host-3", "e", 3), place("west", "w-host-2", "w", 2)];
        let port = Guid::new(3).unwrap();
        assert_eq!(found, [TwiceGuid { port, places }]);
        let other = fabric("w", &[4, 5]);
        assert!(twice([("east", &east), ("west", &other)]).is_empty());
        let same = fabric("w", &[4, 4]);
        assert!(
            twice([("east", &east), ("west", &same)]).is_empty(),
            "the dump of a fabric reports a GUID twice in it"
        );
    }

    #[test]
    fn a_copy_does_not_hide_the_port_of_the_site() {
        let (east, west) = (fabric("e", &[7, 3]), fabric("w", &[3, 5]));
        let port = Guid::new(3).unwrap();
        let at = |fabric_of: &BTreeMap<Guid, Box<str>>| {
            let parts = [("east", &east), ("west", &west)];
            let joined = Fabric::joined(parts, fabric_of);
            let device = joined.find(port).unwrap();
            let (_, far, _) = joined.neighbours(device).next().unwrap();
            (joined.device(far.device).name.to_string(), joined.counts().links)
        };
        assert_eq!(at(&BTreeMap::new()).1, 4);
        assert_eq!(at(&[(port, "east".into())].into()), ("e".to_owned(), 3));
        assert_eq!(at(&[(port, "west".into())].into()), ("w".to_owned(), 3));
    }
}
