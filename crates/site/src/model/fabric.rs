//! Switches and cables as they are planned.

use serde::Serialize;

use super::ids::{NodeId, RackId, SwitchId};

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
    /// All, slowest first.
    pub const ALL: [Self; 4] = [Self::Edr, Self::Hdr, Self::Ndr, Self::Xdr];

    /// As the site file writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Edr => "EDR",
            Self::Hdr => "HDR",
            Self::Ndr => "NDR",
            Self::Xdr => "XDR",
        }
    }

    /// Gb/s over four lanes.
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

/// Level of a switch in the fat-tree, from the bottom up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchRole {
    /// Nodes are cabled to it.
    Leaf,
    /// Joins leaves.
    Spine,
    /// Joins spines.
    Core,
}

impl SwitchRole {
    /// All, from the bottom up.
    pub const ALL: [Self; 3] = [Self::Leaf, Self::Spine, Self::Core];

    /// As the site file writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Leaf => "leaf",
            Self::Spine => "spine",
            Self::Core => "core",
        }
    }
}

/// An InfiniBand switch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Switch {
    /// Unique among nodes and switches.
    pub name: Box<str>,
    /// Its level.
    pub role: SwitchRole,
    /// Ports, which count from 1.
    pub ports: u16,
    /// Of its ports.
    pub speed: Speed,
    /// Where it stands.
    pub rack: Option<RackId>,
    /// The lowest rack unit it takes, from 1; 0: not said.
    pub unit: u16,
    /// Rack units that it takes.
    pub height_units: u16,
    /// Rail that a leaf of a rail-optimised fabric serves.
    pub rail: Option<u8>,
    /// Scalable unit that a leaf serves, from 1.
    pub scalable_unit: Option<u16>,
    /// Pod of a three-level fabric that a leaf or spine belongs to, from 1.
    pub pod: Option<u16>,
    /// Node GUID.
    pub guid: Option<u64>,
}

/// One end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Port {
    /// The port of an HCA.
    Hca {
        /// Of which node.
        node: NodeId,
        /// Index in the SKU's list.
        hca: u8,
    },
    /// A port of a switch.
    Switch {
        /// Which.
        switch: SwitchId,
        /// From 1.
        port: u16,
    },
}

/// A cable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cable {
    /// What is written on it; unique.
    pub label: Box<str>,
    /// One end.
    pub a: Port,
    /// The other.
    pub b: Port,
}
