//! Tests of the network between the nodes of a cluster: the choice of pairs, and the common parts of slow pairs.
//!
//! [`schedule`] returns rounds in which each node is in at most one pair. [`follow_up`] returns further rounds that
//! pair nodes of slow pairs with good nodes. [`judge`] names the faulty parts from the rates. The measurement itself is
//! outside this module.

mod groups;
mod judge;
mod report;
mod schedule;
mod topology;

use serde::{Deserialize, Serialize};

pub use groups::parts_of;
pub use judge::{Fault, Judgement, Part, Rule, Usual, judge};
pub use report::{Summary, rows};
pub use schedule::{ALL_PAIRS, Round, follow_up, schedule, shifts};
pub use topology::{End, TestNode, Topology};

/// A path between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lane {
    /// Between the addresses of the nodes, as their systems route: usually not over the InfiniBand fabric.
    Address,
    /// Between the same adapter of both nodes, by its index in the SKU's list.
    Hca(u8),
}

/// The transport of a test.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Transport {
    /// TCP, because RDMA was not available, with the reason if it was tried.
    Tcp(Option<String>),
    /// RDMA writes between the adapters.
    #[default]
    Rdma,
}

/// A class of tests with comparable rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// TCP between the nodes' addresses.
    Address,
    /// TCP between adapters.
    Adapter,
    /// RDMA between adapters.
    Rdma,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Address, Self::Adapter, Self::Rdma];

    /// The name in storage.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Adapter => "adapter",
            Self::Rdma => "rdma",
        }
    }
}

/// The result of one test of a pair on one lane.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// One node, by its index in the topology.
    pub a: usize,
    /// The other node.
    pub b: usize,
    /// The path between them.
    pub lane: Lane,
    pub transport: Transport,
    /// The rate of the slower direction, in Gbit/s. 0: no data arrived.
    pub gbit_per_s: f64,
    /// 99th percentile of the round trip of one byte, in microseconds.
    pub p99_us: f64,
    /// Number of retransmitted TCP segments, both directions.
    pub retransmits: u64,
    /// The reason why the test could not be measured.
    pub error: Option<String>,
}

impl Test {
    /// The class for comparisons.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match (self.lane, &self.transport) {
            (Lane::Address, _) => Kind::Address,
            (Lane::Hca(_), Transport::Tcp(_)) => Kind::Adapter,
            (Lane::Hca(_), Transport::Rdma) => Kind::Rdma,
        }
    }

    fn key(&self) -> (usize, usize, Lane) {
        (self.a.min(self.b), self.a.max(self.b), self.lane)
    }

    /// The other node of the test. `None`: the test does not involve `node`.
    fn peer(&self, node: usize) -> Option<usize> {
        match node {
            _ if node == self.a => Some(self.b),
            _ if node == self.b => Some(self.a),
            _ => None,
        }
    }
}
