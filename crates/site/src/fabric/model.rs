//! Devices, ports and links, by index. 100,000 channel adapters and their switches take about 40 MB.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::guid::Guid;
use super::name::{self, Host};
use super::rate::Rate;

/// Highest port number of a device (InfiniBand Architecture, volume 1, 14.2.5.3: 255 is reserved).
pub const MAX_PORT: u8 = 254;

/// Position of a device in its fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceIx(pub u32);

impl DeviceIx {
    fn at(self) -> usize {
        self.0 as usize
    }
}

/// Position of a link in its fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkIx(pub u32);

/// What a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// A switch.
    Switch,
    /// A channel adapter of a server or of storage.
    ChannelAdapter,
    /// The SHARP engine inside a switch, which shows itself as a channel adapter behind the last port.
    AggregationNode,
    /// A router between subnets.
    Router,
}

impl DeviceKind {
    /// In words.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::ChannelAdapter => "channel adapter",
            Self::AggregationNode => "aggregation node",
            Self::Router => "router",
        }
    }
}

/// What a switch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Nobody has said, or it is no switch.
    #[default]
    Unknown,
    /// Servers hang on it.
    Leaf,
    /// Connects leaves.
    Spine,
    /// Connects pods.
    Core,
}

/// One end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRef {
    /// The device.
    pub device: DeviceIx,
    /// Its port, from 1.
    pub port: u8,
}

/// A port that is up, or that is known to exist without being up. A device has others, of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// From 1.
    pub number: u8,
    /// Only ports of channel adapters and routers have one of their own.
    pub guid: Option<Guid>,
    /// Base LID; 0 where none was assigned, and for ports of switches.
    pub lid: u32,
    /// LID mask control.
    pub lmc: u8,
    /// Width and speed; none while down, and where a plan does not say.
    pub rate: Option<Rate>,
    /// The link that ends here.
    pub link: Option<LinkIx>,
    /// Physically up.
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
    /// What it is.
    pub kind: DeviceKind,
    /// What a switch is for.
    pub role: Role,
    /// Node GUID; none where a plan does not know it.
    pub guid: Option<Guid>,
    /// Node description, or the name in a plan. May be empty or generic.
    pub name: Box<str>,
    /// How many ports it has, whether anything is known of them or not.
    pub port_count: u8,
    /// Rail of a channel adapter or a leaf, from 0, where a plan says so.
    pub rail: Option<u8>,
    /// Vendor id (IEEE OUI); 0 where unknown.
    pub vendor: u32,
    /// Device id of the vendor; 0 where unknown.
    pub model: u32,
    /// System image GUID.
    pub system: Option<Guid>,
    /// GUID of a switch's port 0.
    pub port0_guid: Option<Guid>,
    /// LID of a switch's port 0; 0 where none was assigned.
    pub lid: u32,
    /// LID mask control of a switch's port 0.
    pub lmc: u8,
    /// Whether a switch's port 0 is an enhanced one.
    pub enhanced: bool,
}

impl Device {
    /// A device of which nothing but this is known.
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

    /// Whether it is a switch.
    pub fn is_switch(&self) -> bool {
        self.kind == DeviceKind::Switch
    }

    /// Whether it is a channel adapter of a machine (no aggregation node).
    pub fn is_adapter(&self) -> bool {
        self.kind == DeviceKind::ChannelAdapter
    }

    /// The machine and the adapter in it, where the name tells (`gpu0001 mlx5_3`).
    pub fn host(&self) -> Option<Host<'_>> {
        (self.kind == DeviceKind::ChannelAdapter)
            .then(|| name::host(&self.name))
            .flatten()
    }
}

/// A cable, or a trace inside a chassis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The end at the device that comes first.
    pub a: PortRef,
    /// The other end.
    pub b: PortRef,
}

impl Link {
    /// The end that is not this one.
    pub fn far(&self, near: PortRef) -> PortRef {
        if self.a == near { self.b } else { self.a }
    }
}

/// Devices, their ports and the links between them. Made by [`FabricBuilder`], then never changed.
#[derive(Debug, Clone, Default)]
pub struct Fabric {
    devices: Vec<Device>,
    /// Ports of all devices, those of one device together and in order.
    ports: Vec<Port>,
    /// Where each device's ports begin, and the end of all.
    starts: Vec<u32>,
    links: Vec<Link>,
    by_guid: BTreeMap<Guid, DeviceIx>,
}

/// How many there are of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Switches.
    pub switches: usize,
    /// Channel adapters of machines.
    pub adapters: usize,
    /// SHARP aggregation nodes.
    pub aggregation_nodes: usize,
    /// Routers.
    pub routers: usize,
    /// Links.
    pub links: usize,
}

impl Fabric {
    /// All devices, in the order in which they were added.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = (DeviceIx, &Device)> {
        self.devices
            .iter()
            .enumerate()
            .map(|(at, device)| (DeviceIx(at as u32), device))
    }

    /// One device.
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

    /// One port, if anything is known of it.
    pub fn port(&self, end: PortRef) -> Option<&Port> {
        let ports = self.ports(end.device);
        let at = ports.binary_search_by_key(&end.port, |port| port.number).ok()?;
        ports.get(at)
    }

    /// The other end of the link at this port.
    pub fn far_end(&self, near: PortRef) -> Option<PortRef> {
        let link = self.port(near)?.link?;
        Some(self.link(link).far(near))
    }

    /// All links.
    pub fn links(&self) -> impl ExactSizeIterator<Item = (LinkIx, &Link)> {
        self.links
            .iter()
            .enumerate()
            .map(|(at, link)| (LinkIx(at as u32), link))
    }

    /// One link.
    pub fn link(&self, ix: LinkIx) -> &Link {
        &self.links[ix.0 as usize]
    }

    /// What a link carries: the slower of what its two ends say.
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

    /// How many there are of each.
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
    /// The device has no port of that number.
    #[error("port {port} does not exist: the device has ports 1 to {ports}")]
    NoSuchPort {
        /// The port.
        port: u8,
        /// How many the device has.
        ports: u8,
    },
    /// Another link ends there already.
    #[error("port {0} has another link already")]
    Taken(u8),
    /// Both ends are one port.
    #[error("both ends are the same port")]
    Loop,
}

/// Collects devices, ports and links in any order.
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

    /// What is known of a device so far.
    pub fn device_mut(&mut self, ix: DeviceIx) -> &mut Device {
        &mut self.devices[ix.at()]
    }

    /// A device as it is so far.
    pub fn get(&self, ix: DeviceIx) -> &Device {
        &self.devices[ix.at()]
    }

    /// What is known of a port so far, if anything.
    pub fn known(&self, end: PortRef) -> Option<&Port> {
        let ports = &self.ports[end.device.at()];
        let at = ports.binary_search_by_key(&end.port, |port| port.number).ok()?;
        ports.get(at)
    }

    /// The port, made known (as down) if it was not.
    ///
    /// # Errors
    /// The device has no port of that number.
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

    /// Connects two ports, which are up from then on. A rate that is given goes to ends that have none yet.
    ///
    /// # Errors
    /// A port does not exist or has a link already; nothing is changed then but that ports may have become known.
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

    /// The fabric.
    pub fn finish(self) -> Fabric {
        let mut by_guid = BTreeMap::new();
        for (at, (device, ports)) in self.devices.iter().zip(&self.ports).enumerate() {
            let ix = DeviceIx(at as u32);
            for guid in ports.iter().filter_map(|port| port.guid).chain(device.port0_guid) {
                by_guid.entry(guid).or_insert(ix);
            }
        }
        // Node GUIDs count for more than port GUIDs, which some adapters derive by adding the port's number.
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
