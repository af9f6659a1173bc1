//! What is kept of the tests of the network between a cluster's nodes.

use std::collections::BTreeMap;

use rackwright_lifecycle::Timestamp;
use serde::{Deserialize, Serialize};

/// The last test, and which nodes have passed one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkTest {
    /// Why none is made; empty where one is.
    pub skipped: String,
    /// Names the last run. Another one's result does not count.
    pub run: String,
    /// The replica that makes it.
    pub replica: String,
    /// When it began.
    pub begun_at: Option<Timestamp>,
    /// Lost if it is not heard of until then; none: it has ended.
    pub until: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Nodes of the last run, each with its deployment.
    pub members: BTreeMap<String, String>,
    /// Nodes that have passed, each with the deployment that was tested.
    pub passed: BTreeMap<String, String>,
    /// Nodes at fault: the deployment that was tested, and what is wrong.
    pub faults: BTreeMap<String, (String, String)>,
    /// What else is in the way, for people.
    pub blocked: String,
    /// It is tried again then.
    pub again_at: Option<Timestamp>,
    /// Rates that were usual, in Gbit/s, as whoever judges keeps them.
    pub usual: BTreeMap<String, f64>,
    /// For the validation report.
    pub rows: Vec<NetworkRow>,
}

/// A line of the validation report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRow {
    /// What was tested.
    pub subject: String,
    /// The check.
    pub check: String,
    /// "passed", "failed", "skipped"
    pub verdict: String,
    /// What was measured, with its unit.
    pub measured: String,
    /// What is wanted, with its unit.
    pub wanted: String,
}
