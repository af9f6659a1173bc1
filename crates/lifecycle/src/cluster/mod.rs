//! The life of a cluster as values and pure functions.
//!
//! A cluster does little itself: its nodes are imaged, checked and erased by their own charts, and the fabric manager sets
//! up its partition. This module decides when the cluster is complete, and how to replace what is missing.

mod chart;
mod decide;
mod facts;
mod rollout;
#[cfg(test)]
mod rollout_tests;
#[cfg(test)]
mod tests;
mod wait;

pub use chart::{CHART, Edge, Row, State, mermaid};
pub use decide::{BUILD_DEADLINE_MIN, Decision, Effect, LINK_GRACE_S, NOTICES_S, SWAP_PAUSE_S, decide};
pub use facts::{
    Cluster, Facts, Impaired, Loss, Member, Network, NewPort, Obstacle, Partition, Rollout, Standing, Swap, Wanted,
    has_failed, member, standing,
};
pub use wait::{Wait, WaitKind};
