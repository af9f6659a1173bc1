//! What is wrong, in words.

use serde::{Deserialize, Serialize};

use crate::model::{CoolingUnitId, DomainId, NodeId, Site};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A leak detector is wet.
    Leak,
    /// A breaker tripped, or somebody opened it.
    Breaker,
    /// No voltage at what feeds a PDU.
    FeedLost,
    /// A sensor is at its upper critical limit.
    Temperature,
    /// A cooling unit supplies hotter than it may.
    Supply,
    /// A cooling unit moves less than it has to.
    Flow,
    /// More is drawn than a domain carries.
    OverCapacity,
    /// More is drawn than was reserved.
    OverReservation,
    /// A power supply of a node does not work.
    PowerSupply,
}

impl FindingKind {
    /// All.
    pub const ALL: [Self; 9] = [
        Self::Leak,
        Self::Breaker,
        Self::FeedLost,
        Self::Temperature,
        Self::Supply,
        Self::Flow,
        Self::OverCapacity,
        Self::OverReservation,
        Self::PowerSupply,
    ];

    /// The word in events (`facility.leak`), alarms and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Leak => "leak",
            Self::Breaker => "breaker",
            Self::FeedLost => "feed-lost",
            Self::Temperature => "temperature",
            Self::Supply => "supply-temperature",
            Self::Flow => "flow",
            Self::OverCapacity => "over-capacity",
            Self::OverReservation => "over-reservation",
            Self::PowerSupply => "power-supply",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The unit of its figures.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Temperature | Self::Supply => "°C",
            Self::Flow => "L/min",
            Self::FeedLost => "V",
            _ => "W",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::Leak => "look at it; close its valve and switch off what hangs on it by hand if water reaches it",
            Self::Breaker => "find out what was on it before it is closed again",
            Self::FeedLost => "what hangs on it lives on its other feed alone: ask whoever runs the power",
            Self::Temperature => "look at air or coolant; what runs is throttled by its firmware and may end by itself",
            Self::Supply => "look at the unit and at what cools it; drain its nodes if it goes on",
            Self::Flow => "look at pumps, valves and filters of the unit; drain its nodes if it goes on",
            Self::OverCapacity => "take load off it, by customer or by power cap, before its breaker does",
            Self::OverReservation => "compare power caps with the reservation, or write what it draws into the SKU",
            Self::PowerSupply => "replace it: until then the node may not survive the loss of a feed",
        }
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth a look by day.
    Warning,
    /// Somebody has to look now.
    Critical,
}

impl Severity {
    /// The word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// What it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A node.
    Node(NodeId),
    /// A vertex of the power tree.
    Domain(DomainId),
    /// A cooling unit.
    Cooling(CoolingUnitId),
}

impl Subject {
    /// `nodes/gpu-1`, `circuit/c-a-r01`, `cdu/cdu-1`.
    #[must_use]
    pub fn name(self, site: &Site) -> String {
        match self {
            Self::Node(id) => format!("nodes/{}", site.node(id).name),
            Self::Domain(id) => format!("{}/{}", site.domain(id).kind.name(), site.domain(id).name),
            Self::Cooling(id) => format!("{}/{}", site.cooling_unit(id).kind.name(), site.cooling_unit(id).name),
        }
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// Of what.
    pub subject: Subject,
    /// The detectors, breakers, sensors that say so.
    pub detail: String,
    /// What was measured, in the kind's unit.
    pub measured: Option<f64>,
    /// What it may be: what is reserved, what is carried, the limit.
    pub limit: Option<f64>,
    /// How bad it is.
    pub severity: Severity,
    /// What hangs on it.
    pub nodes: Vec<NodeId>,
    /// Those nodes must not be switched on.
    pub blocks: bool,
    /// Those nodes are not given to new clusters.
    pub cordons: bool,
}

impl Finding {
    /// What is wrong, in a sentence without an end.
    #[must_use]
    pub fn message(&self, site: &Site) -> String {
        let subject = self.subject.name(site);
        let says = match self.kind {
            FindingKind::Leak => format!("a leak at {subject}: {}", self.detail),
            FindingKind::Breaker => format!("an open breaker at {subject}: {}", self.detail),
            FindingKind::FeedLost => format!("{subject} has lost its feed: {}", self.detail),
            FindingKind::Temperature => format!("{subject} is too hot: {}", self.detail),
            FindingKind::Supply => format!("{subject} supplies too hot"),
            FindingKind::Flow => format!("{subject} moves too little coolant"),
            FindingKind::OverCapacity => format!("more is drawn from {subject} than it carries"),
            FindingKind::OverReservation => format!("more is drawn from {subject} than is reserved"),
            FindingKind::PowerSupply => format!("a power supply of {subject} does not work: {}", self.detail),
        };
        match (self.measured, self.limit) {
            (Some(measured), Some(limit)) => {
                let unit = self.kind.unit();
                let round = |figure: f64| (figure * 10.0).round() / 10.0;
                format!("{says} ({} {unit}, limit {} {unit})", round(measured), round(limit))
            }
            _ => says,
        }
    }
}
