//! The stored results of the network tests between a cluster's nodes.

use std::collections::BTreeMap;

use rackwright_lifecycle::{NodeId, Timestamp};
use serde::{Deserialize, Serialize};

/// The last test, and the nodes that have passed one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkTest {
    /// Why no test is made; empty: a test is made.
    pub skipped: String,
    /// Id of the last run. Results of other runs are ignored.
    pub run: String,
    /// The replica that runs it.
    pub replica: String,
    /// When it began.
    pub begun_at: Option<Timestamp>,
    /// Without a result until this time the run is lost; none: it has ended.
    pub until: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Nodes of the last run, each with its deployment.
    pub members: BTreeMap<NodeId, String>,
    /// Nodes that have passed, each with the tested deployment.
    pub passed: BTreeMap<NodeId, String>,
    /// Faulty nodes: the tested deployment, and the fault.
    pub faults: BTreeMap<NodeId, (String, String)>,
    /// Any other fault, for people.
    pub blocked: String,
    /// When the test is made again.
    pub again_at: Option<Timestamp>,
    /// Usual rates in Gbit/s, by the keys of the judging code.
    pub usual: BTreeMap<String, f64>,
    /// Rows for the validation report.
    pub rows: Vec<NetworkRow>,
}

/// A line of the validation report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRow {
    /// The tested object.
    pub subject: String,
    /// Name of the check.
    pub check: String,
    /// "passed", "failed", "skipped"
    pub verdict: String,
    /// The measured value, with its unit.
    pub measured: String,
    /// The wanted value, with its unit.
    pub wanted: String,
}
