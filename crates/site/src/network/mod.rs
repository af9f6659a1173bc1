//! Tests of the network between the nodes of a cluster: who is tested with whom, and what slow pairs have in common.
//!
//! [`schedule`] gives rounds in which a node is in one pair at most, [`follow_up`] further rounds for nodes of slow pairs
//! with nodes known to be good, and [`judge`] names what is at fault. Rates come in, names go out; who measures is not
//! known here.

mod judge;
mod report;
mod schedule;
mod topology;

use serde::{Deserialize, Serialize};

pub use judge::{Fault, Judgement, Part, Rule, Usual, judge};
pub use report::{Summary, rows};
pub use schedule::{ALL_PAIRS, Round, follow_up, schedule, shifts};
pub use topology::{End, Seat, Topology};

/// A way between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lane {
    /// By their addresses, as their systems route: mostly not the InfiniBand fabric.
    Address,
    /// From this adapter of the one to the same of the other, by its place in the SKU's list.
    Hca(u8),
}

/// What carried the bytes of a test.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Transport {
    /// Connections, because there was no RDMA: why, if it was tried.
    Tcp(Option<String>),
    /// Writes from the one adapter to the other.
    #[default]
    Rdma,
}

/// Tests that are compared with each other.
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Address, Self::Adapter, Self::Rdma];

    /// Its name, as it is stored.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Adapter => "adapter",
            Self::Rdma => "rdma",
        }
    }
}

/// What one test of a pair gave on one lane.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// A node, by its place in the topology.
    pub a: usize,
    /// The other.
    pub b: usize,
    /// The way between them.
    pub lane: Lane,
    /// How.
    pub transport: Transport,
    /// The slower direction, in Gbit/s; 0 where nothing came through.
    pub gbit_per_s: f64,
    /// A byte there and back, 99 of 100, in microseconds.
    pub p99_us: f64,
    /// TCP segments sent again, both directions.
    pub retransmits: u64,
    /// Why it could not be measured.
    pub error: Option<String>,
}

impl Test {
    /// What it is compared with.
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

    /// The node that is not this one, of a test that has it.
    fn peer(&self, node: usize) -> Option<usize> {
        match node {
            _ if node == self.a => Some(self.b),
            _ if node == self.b => Some(self.a),
            _ => None,
        }
    }
}
