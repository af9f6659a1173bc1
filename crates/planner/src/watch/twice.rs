//! Faults of port GUIDs that answer in two fabrics.

use std::collections::BTreeSet;

use rackwright_infiniband::Guid;
use rackwright_infiniband::twice::{GuidPlace, SwitchPort, TwiceGuid};
use rackwright_site::model::{Cable, NodeId, Port, Site};

use super::{Fault, Faults, Kind, ends, host};

/// Most GUIDs with a fault of their own. The managers of two fabrics that see one subnet share all GUIDs.
const FAULTS_MAX: usize = 64;

/// The port that the site has for a GUID.
struct Owner {
    node: NodeId,
    hca: u8,
    /// The cable at the port.
    cable: Option<usize>,
}

/// The fault of each GUID, by id. The copied port gets no key, so the fault impairs no node.
#[must_use]
pub fn twice(site: &Site, found: &[TwiceGuid]) -> Faults {
    let mut faults: Faults = found.iter().take(FAULTS_MAX).map(|one| fault(site, one)).collect();
    let more = found.len().saturating_sub(FAULTS_MAX);
    if more > 0 {
        let text = format!(
            "{more} more port GUIDs answer in several fabrics: if two managers of `fabric.managers` in the settings manage \
             one fabric, remove one of them"
        );
        let rest = Fault {
            kind: Kind::GuidTwice,
            what: "several-fabrics".to_owned(),
            ..super::plain(text)
        };
        faults.insert(Kind::GuidTwice.as_str().to_owned(), rest);
    }
    faults
}

fn fault(site: &Site, found: &TwiceGuid) -> (String, Fault) {
    let owner = owner(site, found.port);
    let fabric = owner.as_ref().and_then(|owner| fabric_of(site, owner));
    let places: Vec<String> = found.places.iter().map(|place| place_text(site, place)).collect();
    let todo = match (&owner, fabric) {
        (Some(owner), Some(fabric)) => {
            let port = port_name(site, owner);
            let copies = found.places.iter().filter(|place| *place.fabric != *fabric);
            let copies: Vec<String> = copies.map(short).collect();
            format!(
                "the site has this port for {port} in fabric {fabric}, so the adapter {} has a copied GUID and gets no key \
                 there: find the origin of the copy, and give the adapter its own GUID again or replace it",
                copies.join(" and ")
            )
        }
        (Some(owner), None) => format!(
            "the site has this port for {}, and does not say in which fabric: the switch of its cable needs `fabric` in the \
             site file",
            port_name(site, owner)
        ),
        (None, _) => {
            "the site has this port for no adapter: find out which of the adapters has a copied GUID, and give that \
                      adapter its own GUID again or replace it"
                .to_owned()
        }
    };
    let text = format!(
        "port {} answers in {} fabrics: {}; {todo}",
        found.port,
        found.places.len(),
        places.join("; ")
    );
    let mut nodes: BTreeSet<NodeId> = owner.iter().map(|owner| owner.node).collect();
    let cables = found.places.iter().filter_map(|place| cable_at(site, place));
    let cables: Vec<&Cable> = cables.collect();
    nodes.extend(cables.iter().filter_map(|cable| host(cable)));
    let fault = Fault {
        kind: Kind::GuidTwice,
        what: "several-fabrics".to_owned(),
        cables: cables.iter().map(|cable| cable.label.to_string()).collect(),
        ends: ends(site, &cables),
        nodes: nodes.into_iter().map(|node| site.node(node).name.to_string()).collect(),
        impairs: false,
        broken: Vec::new(),
        text,
        replaced: Vec::new(),
    };
    (format!("{}/{}", Kind::GuidTwice.as_str(), found.port), fault)
}

fn owner(site: &Site, port: Guid) -> Option<Owner> {
    site.node_ids().find_map(|node| {
        let mut ports = site.node(node).port_guids.iter().zip(0..=u8::MAX);
        let (_, hca) = ports.find(|(guid, _)| **guid == Some(port.get()))?;
        let is_its_end = |end: Port| matches!(end, Port::Hca { node: of, hca: at } if (of, at) == (node, hca));
        let cable = site
            .cables
            .iter()
            .position(|cable| is_its_end(cable.a) || is_its_end(cable.b));
        Some(Owner { node, hca, cable })
    })
}

fn port_name(site: &Site, owner: &Owner) -> String {
    site.port_name(Port::Hca {
        node: owner.node,
        hca: owner.hca,
    })
}

/// The name of the fabric that a port is cabled to.
fn fabric_of<'a>(site: &'a Site, owner: &Owner) -> Option<&'a str> {
    let cable = &site.cables[owner.cable?];
    [cable.a, cable.b].into_iter().find_map(|end| match end {
        Port::Switch { switch, .. } => Some(&*site.fabric(site.switch(switch).fabric?).name),
        Port::Hca { .. } => None,
    })
}

/// The cable that the site has at the switch port of a place.
fn cable_at<'a>(site: &'a Site, place: &GuidPlace) -> Option<&'a Cable> {
    let SwitchPort { guid, name, port } = place.switch.as_ref()?;
    let switch = site.switch_ids().find(|id| {
        let known = site.switch(*id);
        let is_guid = guid.is_some_and(|guid| known.guid == Some(guid.get()));
        is_guid || (known.guid.is_none() && *known.name == **name)
    })?;
    let is_it =
        |end: Port| matches!(end, Port::Switch { switch: of, port: at } if of == switch && at == u16::from(*port));
    site.cables.iter().find(|cable| is_it(cable.a) || is_it(cable.b))
}

/// `in fabric west at leaf-w-02/3 as "gpu-044 mlx5_1" (the site has node gpu-044 there)`
fn place_text(site: &Site, place: &GuidPlace) -> String {
    let node = cable_at(site, place).and_then(host);
    let node = node.map(|node| format!(" (the site has node {} there)", site.node(node).name));
    let (fabric, adapter) = (&place.fabric, &place.adapter);
    let at = place.switch.as_ref().map(|at| format!(" at {}/{}", at.name, at.port));
    format!(
        "in fabric {fabric}{} as {adapter:?}{}",
        at.unwrap_or_default(),
        node.unwrap_or_default()
    )
}

/// `at leaf-w-02/3 in fabric west`
fn short(place: &GuidPlace) -> String {
    match &place.switch {
        Some(at) => format!("at {}/{} in fabric {}", at.name, at.port, place.fabric),
        None => format!("in fabric {}", place.fabric),
    }
}

#[cfg(test)]
mod tests {
    use rackwright_site::file::{Source, check};

    use super::*;

    const SITE: &str = "site: {name: s}
rooms: [{name: h}]
racks: [{name: r, room: h}]
skus: [{name: k, power: {max_watts: 1 kW}, psus: {count: 1, watts: 1 kW, needed: 1}, height_units: 1, hcas: [c0]}]
nodes:
- {name: n1, sku: k, rack: r, unit: 1, guids: {c0: 0xa1}}
- {name: n2, sku: k, rack: r, unit: 2, guids: {c0: 0xa2}}
fabrics: [{name: east}, {name: west}]
switches:
- {name: leaf-e, role: leaf, ports: 8, fabric: east}
- {name: leaf-w, role: leaf, ports: 8, fabric: west}
cables: [{label: e1, a: n1/c0, b: leaf-e/1}, {label: w1, a: n2/c0, b: leaf-w/3}]
";

    fn found(port: u64) -> TwiceGuid {
        let place = |fabric: &str, switch: &str, port| GuidPlace {
            fabric: fabric.into(),
            adapter: format!("{fabric} host").into(),
            switch: Some(SwitchPort {
                guid: None,
                name: switch.into(),
                port,
            }),
        };
        TwiceGuid {
            port: Guid::new(port).unwrap(),
            places: vec![place("east", "leaf-e", 1), place("west", "leaf-w", 3)],
        }
    }

    #[test]
    fn a_copied_guid_is_reported_with_both_places_and_the_adapter_at_fault() {
        let checked = check(&[Source {
            name: "s.yaml",
            text: SITE,
        }]);
        let site = checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings.list));
        let faults = twice(&site, &[found(0xa1)]);
        let (id, fault) = faults.first_key_value().unwrap();
        assert_eq!(id, "guid-twice/0x00000000000000a1");
        assert_eq!(
            fault.text,
            "port 0x00000000000000a1 answers in 2 fabrics: in fabric east at leaf-e/1 as \"east host\" (the site has node \
             n1 there); in fabric west at leaf-w/3 as \"west host\" (the site has node n2 there); the site has this port for \
             n1/c0 in fabric east, so the adapter at leaf-w/3 in fabric west has a copied GUID and gets no key there: find \
             the origin of the copy, and give the adapter its own GUID again or replace it"
        );
        assert_eq!(
            (fault.cables.join(" "), fault.nodes.join(" ")),
            ("e1 w1".into(), "n1 n2".into())
        );
        assert!(!fault.impairs && fault.broken.is_empty());
        let unknown = twice(&site, &[found(0xff)]);
        let text = &unknown["guid-twice/0x00000000000000ff"].text;
        assert!(text.contains("the site has this port for no adapter"), "{text}");
    }

    #[test]
    fn two_managers_of_one_fabric_are_one_fault_beside_the_first_guids() {
        let site = check(&[Source {
            name: "s.yaml",
            text: SITE,
        }]);
        let site = site.site.unwrap_or_else(|| panic!("{:?}", site.findings.list));
        let all: Vec<TwiceGuid> = (1..=70).map(found).collect();
        assert_eq!(twice(&site, &all[..64]).len(), 64);
        let faults = twice(&site, &all);
        assert_eq!(faults.len(), 65);
        let text = &faults["guid-twice"].text;
        assert!(
            text.starts_with("6 more port GUIDs answer in several fabrics: "),
            "{text}"
        );
    }
}
