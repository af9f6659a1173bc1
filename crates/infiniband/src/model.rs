//! Devices, ports and links, by index. 100,000 channel adapters and their switches take about 40 MB.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::guid::Guid;
use super::name::{self, Host};
use super::rate::Rate;

/// The highest port number of a device (InfiniBand Architecture, volume 1, 14.2.5.3: 255 is reserved).
pub const MAX_PORT: u8 = 254;

/// Index of a device in its fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceIx(pub u32);

impl DeviceIx {
    fn at(self) -> usize {
        self.0 as usize
    }
}

/// Index of a link in its fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkIx(pub u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    Switch,
    /// A channel adapter of a server or of storage.
    ChannelAdapter,
    /// The SHARP engine inside a switch. It appears as a channel adapter behind the last port.
    AggregationNode,
    /// A router between subnets.
    Router,
}

impl DeviceKind {
    /// The kind in words.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::ChannelAdapter => "channel adapter",
            Self::AggregationNode => "aggregation node",
            Self::Router => "router",
        }
    }
}

/// The role of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The role is unknown, or the device is not a switch.
    #[default]
    Unknown,
    /// Connects servers.
    Leaf,
    /// Connects leaves.
    Spine,
    /// Connects pods.
    Core,
}

/// One end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRef {
    pub device: DeviceIx,
    /// The port number, from 1.
    pub port: u8,
}

/// A port that is up, or a port known to exist. Other ports of the device are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// The port number, from 1.
    pub number: u8,
    /// The port's GUID. Only ports of channel adapters and routers have one.
    pub guid: Option<Guid>,
    /// Base LID. 0 if none is assigned, and for ports of switches.
    pub lid: u32,
    /// LID mask control.
    pub lmc: u8,
    /// Width and speed. `None` while down, or if a plan does not give them.
    pub rate: Option<Rate>,
    /// The link at this port.
    pub link: Option<LinkIx>,
    /// Whether the physical link is up.
    pub up: bool,
}

impl Port {
    /// A port that is down.
    pub fn down(number: u8) -> Self {
        Self {
            number,
            guid: None,
            lid: 0,
            lmc: 0,
            rate: None,
            link: None,
            up: false,
        }
    }
}

/// A switch, a channel adapter, an aggregation node or a router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub kind: DeviceKind,
    /// The role of a switch.
    pub role: Role,
    /// Node GUID. `None` if a plan does not know it.
    pub guid: Option<Guid>,
    /// Node description, or the name in a plan. May be empty or generic.
    pub name: Box<str>,
    /// Number of ports, including unknown ones.
    pub port_count: u8,
    /// Rail of a channel adapter or a leaf, from 0, if a plan gives it.
    pub rail: Option<u8>,
    /// Vendor id (IEEE OUI). 0: unknown.
    pub vendor: u32,
    /// The vendor's device id. 0: unknown.
    pub model: u32,
    /// System image GUID.
    pub system: Option<Guid>,
    /// GUID of a switch's port 0.
    pub port0_guid: Option<Guid>,
    /// LID of a switch's port 0. 0 if none is assigned.
    pub lid: u32,
    /// LID mask control of a switch's port 0.
    pub lmc: u8,
    /// Whether a switch's port 0 is enhanced.
    pub enhanced: bool,
}

impl Device {
    /// A device with only these properties known.
    pub fn new(kind: DeviceKind, name: &str, port_count: u8) -> Self {
        Self {
            kind,
            role: Role::Unknown,
            guid: None,
            name: name.into(),
            port_count,
            rail: None,
            vendor: 0,
            model: 0,
            system: None,
            port0_guid: None,
            lid: 0,
            lmc: 0,
            enhanced: true,
        }
    }

    /// Whether the device is a switch.
    pub fn is_switch(&self) -> bool {
        self.kind == DeviceKind::Switch
    }

    /// Whether the device is a channel adapter of a machine. An aggregation node is not.
    pub fn is_adapter(&self) -> bool {
        self.kind == DeviceKind::ChannelAdapter
    }

    /// The machine and the adapter, if the name shows them (`gpu0001 mlx5_3`, `gpu0001 ibp24s0`).
    pub fn host(&self) -> Option<Host<'_>> {
        let (machine, adapter) = self.is_adapter().then(|| name::machine(&self.name)).flatten()?;
        Some(Host { machine, adapter })
    }
}

/// A cable or a trace inside a chassis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The end at the device with the lower index.
    pub a: PortRef,
    /// The other end.
    pub b: PortRef,
}

impl Link {
    /// The end opposite to `near`.
    pub fn far(&self, near: PortRef) -> PortRef {
        if self.a == near { self.b } else { self.a }
    }
}

/// Devices, their ports and the links between them. Built by [`FabricBuilder`] and immutable.
#[derive(Debug, Clone, Default)]
pub struct Fabric {
    devices: Vec<Device>,
    /// Ports of all devices, grouped by device in order.
    ports: Vec<Port>,
    /// Index of each device's first port, and the total number of ports.
    starts: Vec<u32>,
    links: Vec<Link>,
    by_guid: BTreeMap<Guid, DeviceIx>,
}

/// The numbers of devices and links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Number of switches.
    pub switches: usize,
    /// Number of channel adapters of machines.
    pub adapters: usize,
    /// Number of SHARP aggregation nodes.
    pub aggregation_nodes: usize,
    /// Number of routers.
    pub routers: usize,
    /// Number of links.
    pub links: usize,
}

impl Fabric {
    /// All devices, in the order of their addition.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = (DeviceIx, &Device)> {
        self.devices
            .iter()
            .enumerate()
            .map(|(at, device)| (DeviceIx(at as u32), device))
    }

    /// The device at this index.
    pub fn device(&self, ix: DeviceIx) -> &Device {
        &self.devices[ix.at()]
    }

    /// The device with this node GUID, or with a port of this GUID.
    pub fn find(&self, guid: Guid) -> Option<DeviceIx> {
        self.by_guid.get(&guid).copied()
    }

    /// The known ports of a device, by number.
    pub fn ports(&self, ix: DeviceIx) -> &[Port] {
        let (from, to) = (self.starts[ix.at()], self.starts[ix.at() + 1]);
        &self.ports[from as usize..to as usize]
    }

    /// One port. `None`: the port is unknown.
    pub fn port(&self, end: PortRef) -> Option<&Port> {
        let ports = self.ports(end.device);
        let at = ports.binary_search_by_key(&end.port, |port| port.number).ok()?;
        ports.get(at)
    }

    /// The far end of the link at this port.
    pub fn far_end(&self, near: PortRef) -> Option<PortRef> {
        let link = self.port(near)?.link?;
        Some(self.link(link).far(near))
    }

    /// All links, in the order of their addition.
    pub fn links(&self) -> impl ExactSizeIterator<Item = (LinkIx, &Link)> {
        self.links
            .iter()
            .enumerate()
            .map(|(at, link)| (LinkIx(at as u32), link))
    }

    /// The link at this index.
    pub fn link(&self, ix: LinkIx) -> &Link {
        &self.links[ix.0 as usize]
    }

    /// The rate of a link: the slower of the rates of its two ends.
    pub fn link_rate(&self, ix: LinkIx) -> Option<Rate> {
        let link = self.link(ix);
        let rate = |end| self.port(end).and_then(|port| port.rate);
        match (rate(link.a), rate(link.b)) {
            (Some(a), Some(b)) => Some(a.slower(b)),
            (one, other) => one.or(other),
        }
    }

    /// The links of a device: its own port, the far end, and the link.
    pub fn neighbours(&self, ix: DeviceIx) -> impl Iterator<Item = (u8, PortRef, LinkIx)> {
        self.ports(ix).iter().filter_map(move |port| {
            let link = port.link?;
            let near = PortRef {
                device: ix,
                port: port.number,
            };
            Some((port.number, self.link(link).far(near), link))
        })
    }

    /// Several fabrics as one, each with its name. A device with the same node GUID in two of them, such as an adapter with
    /// a port in each, is one device. A port with the GUID of a port that `fabric_of` has in another fabric is left out.
    pub fn joined<'a>(
        parts: impl IntoIterator<Item = (&'a str, &'a Self)>,
        fabric_of: &BTreeMap<Guid, Box<str>>,
    ) -> Self {
        let mut builder = FabricBuilder::default();
        let mut known: BTreeMap<Guid, DeviceIx> = BTreeMap::new();
        for (name, part) in parts {
            let is_copy = |port: &Port| {
                let fabric = port.guid.and_then(|guid| fabric_of.get(&guid));
                fabric.is_some_and(|fabric| **fabric != *name)
            };
            let mut places = Vec::with_capacity(part.devices.len());
            for device in &part.devices {
                let former = device.guid.and_then(|guid| known.get(&guid)).copied();
                let place = former.unwrap_or_else(|| builder.device(device.clone()));
                known.extend(device.guid.map(|guid| (guid, place)));
                places.push(place);
            }
            for (ix, _) in part.devices() {
                for port in part.ports(ix).iter().filter(|port| !is_copy(port)) {
                    let end = PortRef {
                        device: places[ix.at()],
                        port: port.number,
                    };
                    if let Ok(joined) = builder.port(end)
                        && !joined.up
                    {
                        *joined = Port { link: None, ..*port };
                    }
                }
            }
            for link in &part.links {
                if [link.a, link.b].iter().any(|end| part.port(*end).is_some_and(is_copy)) {
                    continue;
                }
                let [a, b] = [link.a, link.b].map(|end| PortRef {
                    device: places[end.device.at()],
                    ..end
                });
                // A port that two fabrics connect keeps its first link.
                let _ = builder.connect(a, b, None);
            }
        }
        builder.finish()
    }

    /// Counts devices and links.
    pub fn counts(&self) -> Counts {
        let of = |kind| self.devices.iter().filter(|device| device.kind == kind).count();
        Counts {
            switches: of(DeviceKind::Switch),
            adapters: of(DeviceKind::ChannelAdapter),
            aggregation_nodes: of(DeviceKind::AggregationNode),
            routers: of(DeviceKind::Router),
            links: self.links.len(),
        }
    }
}

/// Why a link or a port cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The device has no port with this number.
    #[error("port {port} does not exist: the device has ports 1 to {ports}")]
    NoSuchPort {
        port: u8,
        /// Number of ports of the device.
        ports: u8,
    },
    /// The port has another link already.
    #[error("port {0} has another link already")]
    Taken(u8),
    /// Both ends are one port.
    #[error("both ends are the same port")]
    Loop,
}

/// Builds a fabric from devices, ports and links in any order.
#[derive(Debug, Default)]
pub struct FabricBuilder {
    devices: Vec<Device>,
    ports: Vec<Vec<Port>>,
    links: Vec<Link>,
}

impl FabricBuilder {
    /// Adds a device.
    pub fn device(&mut self, device: Device) -> DeviceIx {
        let ix = DeviceIx(self.devices.len() as u32);
        self.devices.push(device);
        self.ports.push(Vec::new());
        ix
    }

    /// The device at this index, for changes.
    pub fn device_mut(&mut self, ix: DeviceIx) -> &mut Device {
        &mut self.devices[ix.at()]
    }

    /// The device at this index.
    pub fn get(&self, ix: DeviceIx) -> &Device {
        &self.devices[ix.at()]
    }

    /// A known port. `None`: the port is unknown.
    pub fn known(&self, end: PortRef) -> Option<&Port> {
        let ports = &self.ports[end.device.at()];
        let at = ports.binary_search_by_key(&end.port, |port| port.number).ok()?;
        ports.get(at)
    }

    /// The port. An unknown port is added as down.
    ///
    /// # Errors
    /// The device has no port with this number.
    pub fn port(&mut self, end: PortRef) -> Result<&mut Port, BuildError> {
        let ports = self.devices[end.device.at()].port_count;
        if end.port == 0 || end.port > ports {
            return Err(BuildError::NoSuchPort { port: end.port, ports });
        }
        let known = &mut self.ports[end.device.at()];
        let at = match known.binary_search_by_key(&end.port, |port| port.number) {
            Ok(at) => at,
            Err(at) => {
                known.insert(at, Port::down(end.port));
                at
            }
        };
        Ok(&mut known[at])
    }

    /// Connects two ports and marks them as up. The rate applies to ends without one.
    ///
    /// # Errors
    /// A port does not exist or has a link already. Unknown ports may have been added; otherwise nothing has changed.
    pub fn connect(&mut self, a: PortRef, b: PortRef, rate: Option<Rate>) -> Result<LinkIx, BuildError> {
        if a == b {
            return Err(BuildError::Loop);
        }
        for end in [a, b] {
            if self.port(end)?.link.is_some() {
                return Err(BuildError::Taken(end.port));
            }
        }
        let link = LinkIx(self.links.len() as u32);
        self.links.push(Link {
            a: a.min(b),
            b: a.max(b),
        });
        for end in [a, b] {
            let port = self.port(end)?;
            port.link = Some(link);
            port.up = true;
            port.rate = port.rate.or(rate);
        }
        Ok(link)
    }

    /// Builds the fabric.
    pub fn finish(self) -> Fabric {
        let mut by_guid = BTreeMap::new();
        for (at, (device, ports)) in self.devices.iter().zip(&self.ports).enumerate() {
            let ix = DeviceIx(at as u32);
            for guid in ports.iter().filter_map(|port| port.guid).chain(device.port0_guid) {
                by_guid.entry(guid).or_insert(ix);
            }
        }
        // Node GUIDs take precedence over port GUIDs, which some adapters derive by adding the port number.
        for (at, device) in self.devices.iter().enumerate().rev() {
            if let Some(guid) = device.guid {
                by_guid.insert(guid, DeviceIx(at as u32));
            }
        }
        let mut starts = Vec::with_capacity(self.ports.len() + 1);
        let mut ports = Vec::with_capacity(self.ports.iter().map(Vec::len).sum());
        for of_device in self.ports {
            starts.push(ports.len() as u32);
            ports.extend(of_device);
        }
        starts.push(ports.len() as u32);
        Fabric {
            devices: self.devices,
            ports,
            starts,
            links: self.links,
            by_guid,
        }
    }
}
