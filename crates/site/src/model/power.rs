//! The power tree: utility, panel, feed, circuit, rack PDU or power shelf, and the outlets of the last two.

use serde::Serialize;

use super::ids::{DomainId, FeedId, LayoutId, RackId};

/// The kind of a vertex of the power tree, top down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DomainKind {
    /// A source of power: a utility entrance, a transformer, a UPS or a generator.
    Utility,
    /// A switchboard or distribution panel.
    Panel,
    /// A branch of a panel, such as a busway.
    Feed,
    /// A breaker and its wiring.
    Circuit,
    /// A strip of outlets in a rack.
    RackPdu,
    /// A shelf of rectifiers that feeds a rack's busbar. Its outlets are the taps of the nodes.
    PowerShelf,
}

impl DomainKind {
    /// All kinds, top down.
    pub const ALL: [Self; 6] = [
        Self::Utility,
        Self::Panel,
        Self::Feed,
        Self::Circuit,
        Self::RackPdu,
        Self::PowerShelf,
    ];

    /// The name in the site file.
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

    /// Whether nodes can be plugged into this kind.
    #[must_use]
    pub fn has_outlets(self) -> bool {
        matches!(self, Self::RackPdu | Self::PowerShelf)
    }

    /// Whether this kind can be dedicated to a customer with dedicated circuits: circuits and everything below.
    #[must_use]
    pub fn is_dedicable(self) -> bool {
        matches!(self, Self::Circuit | Self::RackPdu | Self::PowerShelf)
    }
}

/// The wires of a load on a three-phase domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Phase {
    /// All three, balanced. Also used for every load on a single-phase domain.
    #[serde(rename = "all")]
    All,
    /// L1 to neutral.
    L1,
    /// L2 to neutral.
    L2,
    /// L3 to neutral.
    L3,
    /// Between L1 and L2.
    #[serde(rename = "L1-L2")]
    L1L2,
    /// Between L2 and L3.
    #[serde(rename = "L2-L3")]
    L2L3,
    /// Between L3 and L1.
    #[serde(rename = "L3-L1")]
    L3L1,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 7] = [
        Self::All,
        Self::L1,
        Self::L2,
        Self::L3,
        Self::L1L2,
        Self::L2L3,
        Self::L3L1,
    ];

    /// The name in the site file.
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

    /// Whether the load is between a phase and the neutral.
    #[must_use]
    pub fn is_to_neutral(self) -> bool {
        matches!(self, Self::L1 | Self::L2 | Self::L3)
    }
}

/// The number of phases of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Phases {
    /// One phase.
    Single,
    /// Three phases. Volts are measured between phases.
    Three,
}

/// The capacity of a domain before derating.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rating {
    /// By the wires: volts (for three phases, between phases) and amps of each wire.
    Electrical {
        volts: f64,
        amps: f64,
        /// The number of phases.
        phases: Phases,
    },
    /// In watts, as for a utility contract or a power shelf.
    Watts(f64),
}

/// A vertex of the power tree.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PowerDomain {
    /// Unique among power domains.
    pub name: Box<str>,
    pub kind: DomainKind,
    /// The domain that feeds this one. `None` at a root.
    pub parent: Option<DomainId>,
    /// The feed letter: everything with the same letter is lost together. `None` above the point where letters begin.
    pub feed: Option<FeedId>,
    /// The capacity before derating.
    pub rating: Rating,
    /// Share of the rating for continuous load, above 0 and at most 1 (NEC: 0.8).
    pub derate: f64,
    /// The wires of the parent that feed this domain.
    pub phase: Phase,
    /// The rack of a rack PDU or power shelf.
    pub rack: Option<RackId>,
    /// The outlets of a rack PDU or power shelf.
    pub layout: Option<LayoutId>,
    /// Load of equipment other than nodes, in watts: switches, pumps, lights.
    pub other_watts: f64,
    /// Measured load, in watts, if there is a meter.
    pub measured_watts: Option<f64>,
    /// The address of the service that reads a rack PDU.
    pub bmc: Option<Box<str>>,
}

/// The outlets of a kind of rack PDU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutletLayout {
    /// The name. Empty for a layout written at the PDU itself.
    pub name: Box<str>,
    /// The outlets, in order.
    pub outlets: Vec<Outlet>,
}

/// One outlet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlet {
    /// Unique in its layout.
    pub name: Box<str>,
    /// The wires of the PDU that feed the outlet.
    pub phase: Phase,
    /// Maximum current, in amps. `None`: only the domains above limit the outlet.
    pub amps: Option<f64>,
}

/// An outlet of a rack PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Plug {
    /// The rack PDU or power shelf.
    pub pdu: DomainId,
    /// Index in the layout.
    pub outlet: u16,
}
