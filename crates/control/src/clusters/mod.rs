//! Clusters: what is reserved for them, and what is done about them until they are at rest.
//!
//! | module | what it does |
//! |---|---|
//! | `reserve` | nodes, links, power and partition key for a cluster, in one change; another node in a lost one's place |
//! | `resize` | more nodes for a cluster in use, or fewer |
//! | `rollout` | another image on the nodes of a cluster in use, some at a time |
//! | `step` | takes due clusters, decides, does |
//! | `partitions` | which cluster has which key and ports, and what the fabric was proven to have |
//! | `reconcile` | brings that to the fabric manager |
//! | `watch` | compares the fabric with the site, at the pace of the configuration |
//! | `faults` | what is wrong with it, since when, and whom that touches |
//! | `pack` | what a customer's team gets with their nodes |
//! | `capacity` | what a customer could get now |
//! | `network` | tests of the network between a cluster's nodes, before anybody has them |
//! | `manager` | the fabric manager that the configuration names |

pub mod capacity;
#[cfg(test)]
mod change_tests;
pub mod faults;
pub mod manager;
pub mod network;
pub mod pack;
pub mod partitions;
pub mod reconcile;
pub mod reserve;
pub mod resize;
pub mod rollout;
pub mod seats;
mod step;
#[cfg(test)]
pub(crate) mod tests;
mod watch;
#[cfg(test)]
mod watch_tests;

use tokio::sync::{Mutex, Notify};

pub use step::{impaired, members, run};

/// Wakes who looks after clusters in this process.
#[derive(Debug, Default)]
pub struct Clusters {
    /// A cluster may have become due.
    pub due: Notify,
    /// Partitions may have changed.
    pub partitions: Notify,
    /// Held by whoever works out what a customer could get: anybody may ask for that, and as often as they like.
    pub capacity: Mutex<()>,
    /// Tests of networks that run in this process.
    pub tests: network::Running,
}
