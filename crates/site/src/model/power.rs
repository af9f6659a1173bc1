//! The power tree: utility, panel, feed, circuit, rack PDU or power shelf, and the outlets of the last two.

use serde::Serialize;

use super::ids::{DomainId, FeedId, LayoutId, RackId};

/// What a vertex of the power tree is, from the top down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DomainKind {
    /// Where power comes from: a utility entrance, a transformer, a UPS or a generator.
    Utility,
    /// A switchboard or distribution panel.
    Panel,
    /// A branch of a panel, such as a busway.
    Feed,
    /// A breaker and its wire.
    Circuit,
    /// A strip of outlets in a rack.
    RackPdu,
    /// A shelf of rectifiers that feeds the busbar of a rack; its outlets are the taps of the nodes.
    PowerShelf,
}

impl DomainKind {
    /// All, from the top down.
    pub const ALL: [Self; 6] = [
        Self::Utility,
        Self::Panel,
        Self::Feed,
        Self::Circuit,
        Self::RackPdu,
        Self::PowerShelf,
    ];

    /// As the site file writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Utility => "utility",
            Self::Panel => "panel",
            Self::Feed => "feed",
            Self::Circuit => "circuit",
            Self::RackPdu => "rack-pdu",
            Self::PowerShelf => "power-shelf",
        }
    }

    /// True for what nodes are plugged into.
    #[must_use]
    pub fn has_outlets(self) -> bool {
        matches!(self, Self::RackPdu | Self::PowerShelf)
    }

    /// True where a customer who was promised circuits of their own must be alone: circuits and all below.
    #[must_use]
    pub fn is_dedicable(self) -> bool {
        matches!(self, Self::Circuit | Self::RackPdu | Self::PowerShelf)
    }
}

/// Which wires of a three-phase domain a load is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Phase {
    /// All three, balanced; also everything that hangs on a single-phase domain.
    #[serde(rename = "all")]
    All,
    /// L1 to neutral.
    L1,
    /// L2 to neutral.
    L2,
    /// L3 to neutral.
    L3,
    /// L1 to L2.
    #[serde(rename = "L1-L2")]
    L1L2,
    /// L2 to L3.
    #[serde(rename = "L2-L3")]
    L2L3,
    /// L3 to L1.
    #[serde(rename = "L3-L1")]
    L3L1,
}

impl Phase {
    /// All.
    pub const ALL: [Self; 7] = [
        Self::All,
        Self::L1,
        Self::L2,
        Self::L3,
        Self::L1L2,
        Self::L2L3,
        Self::L3L1,
    ];

    /// As the site file writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
            Self::L1L2 => "L1-L2",
            Self::L2L3 => "L2-L3",
            Self::L3L1 => "L3-L1",
        }
    }

    /// True for a phase against the neutral.
    #[must_use]
    pub fn is_to_neutral(self) -> bool {
        matches!(self, Self::L1 | Self::L2 | Self::L3)
    }
}

/// How many phases a domain has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Phases {
    /// One.
    Single,
    /// Three; volts are from phase to phase.
    Three,
}

/// What a domain may carry, before derating.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rating {
    /// By its wires: volts (three phases: from phase to phase) and amps of each wire.
    Electrical {
        /// Volts.
        volts: f64,
        /// Amps.
        amps: f64,
        /// Wires.
        phases: Phases,
    },
    /// Given in watts, as for a utility contract or a power shelf.
    Watts(f64),
}

/// A vertex of the power tree.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PowerDomain {
    /// Unique among power domains.
    pub name: Box<str>,
    /// What it is.
    pub kind: DomainKind,
    /// What feeds it; `None` at a root.
    pub parent: Option<DomainId>,
    /// The letter of what is lost together with it; `None` above the point where letters begin.
    pub feed: Option<FeedId>,
    /// What it may carry.
    pub rating: Rating,
    /// Share of the rating that may be used all the time, above 0 and at most 1 (NEC: 0.8).
    pub derate: f64,
    /// Which wires of its parent it is on.
    pub phase: Phase,
    /// Where it is: rack PDUs and power shelves.
    pub rack: Option<RackId>,
    /// Its outlets: rack PDUs and power shelves.
    pub layout: Option<LayoutId>,
    /// Watts of what hangs on it and is no node: switches, pumps, lights.
    pub other_watts: f64,
    /// Watts that were measured, where a meter is.
    pub measured_watts: Option<f64>,
    /// Address of the service that reads it: rack PDUs.
    pub bmc: Option<Box<str>>,
}

/// The outlets that a kind of rack PDU has.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutletLayout {
    /// Its name; empty when it was written at the PDU itself.
    pub name: Box<str>,
    /// In order.
    pub outlets: Vec<Outlet>,
}

/// One outlet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlet {
    /// Unique in its layout.
    pub name: Box<str>,
    /// Which wires of the PDU it is on.
    pub phase: Phase,
    /// Amps that it may carry; `None`: only what is above it limits it.
    pub amps: Option<f64>,
}

/// An outlet of a rack PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Plug {
    /// The rack PDU or power shelf.
    pub pdu: DomainId,
    /// Index in its layout.
    pub outlet: u16,
}
