//! Planned switches and cables.

use serde::Serialize;
use smol_str::SmolStr;

use super::ids::{FabricId, NodeId, RackId, SwitchId};

/// Signalling of a link with four lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Speed {
    /// 100 Gb/s.
    Edr,
    /// 200 Gb/s.
    Hdr,
    /// 400 Gb/s.
    Ndr,
    /// 800 Gb/s.
    Xdr,
}

impl Speed {
    /// All speeds, slowest first.
    pub const ALL: [Self; 4] = [Self::Edr, Self::Hdr, Self::Ndr, Self::Xdr];

    /// The name in the site file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Edr => "EDR",
            Self::Hdr => "HDR",
            Self::Ndr => "NDR",
            Self::Xdr => "XDR",
        }
    }

    /// The rate over four lanes, in Gb/s.
    #[must_use]
    pub fn gbps(self) -> u32 {
        match self {
            Self::Edr => 100,
            Self::Hdr => 200,
            Self::Ndr => 400,
            Self::Xdr => 800,
        }
    }
}

/// The level of a switch in the fat-tree, bottom up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchRole {
    /// Nodes connect to this level.
    Leaf,
    /// Joins leaves.
    Spine,
    /// Joins spines.
    Core,
}

impl SwitchRole {
    /// All levels, bottom up.
    pub const ALL: [Self; 3] = [Self::Leaf, Self::Spine, Self::Core];

    /// The name in the site file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Leaf => "leaf",
            Self::Spine => "spine",
            Self::Core => "core",
        }
    }
}

/// What a fabric is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FabricPurpose {
    /// Traffic between the nodes of a cluster. Clusters are placed in such fabrics.
    Compute,
    /// Traffic with storage. Clusters get no links there.
    Storage,
}

impl FabricPurpose {
    /// All purposes.
    pub const ALL: [Self; 2] = [Self::Compute, Self::Storage];

    /// The name in the site file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Storage => "storage",
        }
    }
}

/// A fabric that the site file names: switches with one subnet manager. A cable never leads to a switch of another fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fabric {
    /// Unique among fabrics.
    pub name: Box<str>,
    /// The use of the fabric.
    pub purpose: FabricPurpose,
}

/// An InfiniBand switch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Switch {
    /// Unique among nodes and switches.
    pub name: Box<str>,
    /// The level.
    pub role: SwitchRole,
    /// Number of ports. Ports are numbered from 1.
    pub ports: u16,
    /// The speed of the ports.
    pub speed: Speed,
    /// The switch's rack.
    pub rack: Option<RackId>,
    /// The lowest occupied rack unit, from 1. 0: unknown.
    pub unit: u16,
    /// Number of occupied rack units.
    pub height_units: u16,
    /// Rail that a leaf of a rail-optimised fabric serves.
    pub rail: Option<u8>,
    /// Scalable unit that a leaf serves, from 1.
    pub scalable_unit: Option<u16>,
    /// Pod of a three-level fabric that a leaf or spine belongs to, from 1.
    pub pod: Option<u16>,
    /// Node GUID.
    pub guid: Option<u64>,
    /// The switch's fabric, written at this switch or at one that it is connected to. `None`: the site file does not say.
    pub fabric: Option<FabricId>,
}

/// One end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Port {
    /// The port of an HCA.
    Hca {
        node: NodeId,
        /// The HCA's index in the SKU's list.
        hca: u8,
    },
    /// A port of a switch.
    Switch {
        switch: SwitchId,
        /// The port number, from 1.
        port: u16,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cable {
    /// The text on the label. Unique. A site has millions of labels, and most are short: these need no memory of their own.
    pub label: SmolStr,
    /// One end.
    pub a: Port,
    /// The other end.
    pub b: Port,
}
