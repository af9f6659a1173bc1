//! Clusters: their reservations, and the work on them until they are at rest.
//!
//! | module | content |
//! |---|---|
//! | `reserve` | nodes, links, power and partition key for a cluster, in one change; another node in a lost one's place |
//! | `resize` | more nodes for a cluster in use, or fewer |
//! | `rollout` | another image on the nodes of a cluster in use, some at a time |
//! | `step` | leases due clusters, decides, and performs the decision |
//! | `partitions` | key and ports of each cluster, and the proven state of the fabric |
//! | `cluster_partitions` | the partition of one cluster as its steps and requests see it |
//! | `site_ports` | other ports of the site for a cluster's nodes, brought to its partition |
//! | `reconcile` | brings the partitions to the fabric manager |
//! | `breach` | breaches of isolation: what shows one, its start and its end |
//! | `breach_check` | looks for breaches between two changes |
//! | `watch` | compares the fabric with the site, at the pace of the configuration |
//! | `faults` | known faults of the fabric, their start, and the affected clusters |
//! | `pack` | the files that a customer's team gets with their nodes |
//! | `capacity` | the largest clusters that a customer could get now |
//! | `network` | tests of the network between a cluster's nodes, before the hand-over |
//! | `adapters` | replaced adapters that agent, BMC and fabric agree about |

mod adapters;
pub mod breach;
pub(crate) mod breach_check;
#[cfg(test)]
mod breach_tests;
pub mod capacity;
pub mod cluster_partitions;
pub mod faults;
pub mod network;
pub mod node_claims;
pub mod pack;
pub mod partitions;
pub mod reconcile;
pub mod reserve;
pub mod resize;
pub mod rollout;
mod site_ports;
pub(crate) mod step;
pub(crate) mod watch;

use rackwright_ground::config::Config;
use rackwright_ground::features::FeatureState;
use tokio::sync::{Mutex, Notify};

pub use step::{impaired, members, run};

/// The state of the parts of this process that work on clusters.
#[derive(Debug, Default)]
pub struct Clusters {
    /// Partitions may have changed.
    pub partitions: Notify,
    /// Limits the computation of capacities to one: any customer may request it, and as often as they like.
    pub capacity: Mutex<()>,
    /// Comparisons of clusters' ports with the site.
    compared: site_ports::Compared,
    /// The end ports that the last discovery of the fabric saw.
    discovered: breach_check::DiscoveredPorts,
    /// Adapters that BMCs listed lately.
    listings: adapters::Listings,
    /// Network tests that run in this process.
    pub tests: network::Running,
    /// Tests the networks of clusters.
    pub tester: network::Tester,
}

impl Clusters {
    /// The state with another tester of networks, for a test.
    #[must_use]
    pub fn with_tester(tester: network::Tester) -> Self {
        Self {
            tester,
            ..Self::default()
        }
    }
}

impl FeatureState for Clusters {
    fn new(_: &Config) -> Self {
        Self::default()
    }
}
