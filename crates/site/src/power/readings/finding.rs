//! Findings about readings, in words.

use serde::{Deserialize, Serialize};

use crate::model::{CoolingUnitId, DomainId, NodeId, Site};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A leak detector reports a leak or moisture.
    Leak,
    /// A breaker tripped or was opened.
    Breaker,
    /// The input of a PDU has no voltage.
    FeedLost,
    /// A sensor is at its upper critical limit.
    Temperature,
    /// A cooling unit's supply temperature is above its maximum.
    Supply,
    /// A cooling unit's flow is below its minimum.
    Flow,
    /// The load exceeds a domain's capacity.
    OverCapacity,
    /// The load exceeds the reservation.
    OverReservation,
    /// A power supply of a node has failed.
    PowerSupply,
}

impl FindingKind {
    /// All kinds.
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

    /// The name in events (`facility.leak`), alarms and metrics.
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

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The unit of the measured value and the limit.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Temperature | Self::Supply => "°C",
            Self::Flow => "L/min",
            Self::FeedLost => "V",
            _ => "W",
        }
    }

    /// The recommended action.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::Leak => "inspect the leak; if water reaches equipment, close the valve and switch the equipment off",
            Self::Breaker => "find out which load tripped the breaker before it is closed again",
            Self::FeedLost => "the connected nodes have only their other feed: ask the operator of the power supply",
            Self::Temperature => {
                "check the air or the coolant; the firmware throttles a hot node and may switch it off"
            }
            Self::Supply => "check the unit and its own cooling; drain its nodes if this continues",
            Self::Flow => "check the pumps, valves and filters of the unit; drain its nodes if this continues",
            Self::OverCapacity => "reduce the load, by customer or by power cap, before the breaker trips",
            Self::OverReservation => "compare the power caps with the reservation, or correct the draw in the SKU",
            Self::PowerSupply => "replace the power supply: until then the node may not survive the loss of a feed",
        }
    }
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// To be checked during working hours.
    Warning,
    /// To be checked at once.
    Critical,
}

impl Severity {
    /// The name of the severity.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// The subject of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    Node(NodeId),
    /// A vertex of the power tree.
    Domain(DomainId),
    /// A cooling unit.
    Cooling(CoolingUnitId),
}

impl Subject {
    /// Such as `nodes/gpu-1`, `circuit/c-a-r01`, `cdu/cdu-1`.
    #[must_use]
    pub fn name(self, site: &Site) -> String {
        match self {
            Self::Node(id) => format!("nodes/{}", site.node(id).name),
            Self::Domain(id) => format!("{}/{}", site.domain(id).kind.name(), site.domain(id).name),
            Self::Cooling(id) => format!("{}/{}", site.cooling_unit(id).kind.name(), site.cooling_unit(id).name),
        }
    }
}

/// A fault shown by readings.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub kind: FindingKind,
    pub subject: Subject,
    /// The detectors, breakers or sensors that report the fault.
    pub detail: String,
    /// The measured value, in the unit of the kind.
    pub measured: Option<f64>,
    /// The limit: the reservation, the capacity, or the sensor's limit.
    pub limit: Option<f64>,
    pub severity: Severity,
    /// The affected nodes.
    pub nodes: Vec<NodeId>,
    /// Whether these nodes must not be switched on.
    pub blocks: bool,
    /// Whether these nodes are withheld from new clusters.
    pub cordons: bool,
}

impl Finding {
    /// A description, as a sentence without a full stop.
    #[must_use]
    pub fn message(&self, site: &Site) -> String {
        let subject = self.subject.name(site);
        let says = match self.kind {
            FindingKind::Leak => format!("a leak at {subject}: {}", self.detail),
            FindingKind::Breaker => format!("an open breaker at {subject}: {}", self.detail),
            FindingKind::FeedLost => format!("{subject} has lost its feed: {}", self.detail),
            FindingKind::Temperature => format!("{subject} is too hot: {}", self.detail),
            FindingKind::Supply => format!("the supply temperature of {subject} is too high"),
            FindingKind::Flow => format!("the coolant flow of {subject} is too low"),
            FindingKind::OverCapacity => format!("the load of {subject} exceeds its capacity"),
            FindingKind::OverReservation => format!("the load of {subject} exceeds its reservation"),
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
