//! The figures, one JSON object per line.

use serde::{Serialize, Serializer};

/// Rounds to thousandths: further digits are noise.
pub fn thousandths<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1e3).round() / 1e3)
}

/// One phase of a run.
#[derive(Debug, Serialize)]
pub struct PhaseReport {
    /// The phase: enrol, inspect, list, idle, deploy, validate, release, restart.
    pub phase: &'static str,
    /// Machines that took part.
    pub nodes: usize,
    /// Machines that have completed this phase and those before it.
    pub right: usize,
    #[serde(serialize_with = "thousandths")]
    pub seconds: f64,
    #[serde(serialize_with = "thousandths")]
    pub nodes_per_s: f64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Measured only in the phase `list`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub listing: Option<Listing>,
    /// Measured only in the phase `idle`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
}

/// The resources used during the phase.
#[derive(Debug, Serialize)]
pub struct Cost {
    /// CPU seconds, user and system, of the control plane; with SQLite this includes the database.
    #[serde(serialize_with = "thousandths")]
    pub control_cpu_s: f64,
    #[serde(serialize_with = "thousandths")]
    pub control_cpu_ms_per_node: f64,
    pub control_peak_resident_bytes: u64,
    /// Size of the database on disk, after the phase.
    pub database_bytes: u64,
    /// CPU seconds of the simulated machines, their agents included.
    #[serde(serialize_with = "thousandths")]
    pub simulator_cpu_s: f64,
    pub simulator_peak_resident_bytes: u64,
}

/// The time of listing nodes.
#[derive(Debug, Serialize)]
pub struct Listing {
    /// Median of ten calls for the first 100 nodes.
    #[serde(serialize_with = "thousandths")]
    pub first_page_ms: f64,
    /// Like `first_page_ms`, with a filter by state.
    #[serde(serialize_with = "thousandths")]
    pub filtered_page_ms: f64,
    /// All nodes, in the pages of the CLI (200 nodes each).
    #[serde(serialize_with = "thousandths")]
    pub all_pages_s: f64,
}

/// The cost of watching idle nodes.
#[derive(Debug, Serialize)]
pub struct Watch {
    /// Readings of nodes' power in this time, each node at its interval.
    #[serde(serialize_with = "thousandths")]
    pub readings: f64,
    /// CPU time of the control plane for everything, per reading.
    #[serde(serialize_with = "thousandths")]
    pub control_cpu_ms_per_reading: f64,
    /// CPU time divided by time: 1 is one core.
    #[serde(serialize_with = "thousandths")]
    pub control_cores: f64,
    /// CPU cores for 10,000 nodes that are read every 300 s, if each reading costs the same.
    #[serde(serialize_with = "thousandths")]
    pub control_cores_at_10000: f64,
}

impl Watch {
    /// The cost of `nodes` that are read every `interval_s`, for this many seconds.
    pub fn new(nodes: usize, interval_s: f64, seconds: f64, control_cpu_s: f64) -> Self {
        let readings = nodes as f64 * seconds / interval_s;
        Self {
            readings,
            control_cpu_ms_per_reading: control_cpu_s * 1e3 / readings,
            control_cores: control_cpu_s / seconds,
            control_cores_at_10000: control_cpu_s / readings * 10_000.0 / 300.0,
        }
    }
}

/// All phases together.
#[derive(Debug, Serialize)]
pub struct TotalReport {
    /// Always "total".
    pub phase: &'static str,
    pub nodes: usize,
    pub right: usize,
    pub profile: &'static str,
    pub store: &'static str,
    /// How machines proved their identity: "none" or "tpm".
    pub identity: &'static str,
    #[serde(serialize_with = "thousandths")]
    pub seconds: f64,
    #[serde(flatten)]
    pub cost: Cost,
    pub version: &'static str,
}
