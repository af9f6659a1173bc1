//! Clusters: what is reserved for them, and what is done about them until they are at rest.
//!
//! | module | what it does |
//! |---|---|
//! | `reserve` | nodes, links, power and partition key for a cluster, in one change; another node in a lost one's place |
//! | `step` | takes due clusters, decides, does |
//! | `partitions` | which cluster has which key and ports, and what the fabric was proven to have |
//! | `reconcile` | brings that to the fabric manager |
//! | `pack` | what a customer's team gets with their nodes |
//! | `capacity` | what a customer could get now |
//! | `manager` | the fabric manager that the configuration names |

pub mod capacity;
pub mod manager;
pub mod pack;
pub mod partitions;
pub mod reconcile;
pub mod reserve;
mod step;
#[cfg(test)]
pub(crate) mod tests;

use tokio::sync::{Mutex, Notify};

pub use step::{members, run};

/// Wakes who looks after clusters in this process.
#[derive(Debug, Default)]
pub struct Clusters {
    /// A cluster may have become due.
    pub due: Notify,
    /// Partitions may have changed.
    pub partitions: Notify,
    /// Held by whoever works out what a customer could get: anybody may ask for that, and as often as they like.
    pub capacity: Mutex<()>,
}
