//! Steps inside features that a test takes one by one, and in its own order. The daemon takes them in the tasks of the
//! features.
//!
//! The core of a test, and its records, are in `rackwright_ground::testing`.

use std::sync::Arc;

use rackwright_ground::core::Core;
use rackwright_lifecycle::ClusterId;
use rackwright_store::StoreError;

use crate::clusters::reserve::ReserveError;
use crate::clusters::step::{Next, step};

pub use crate::clusters::breach_check::before_change;
pub use crate::clusters::network::outcome::store as store_network_outcome;
pub use crate::clusters::step::{lease_and_start as start_cluster_steps, steps_of as steps_of_cluster};
pub use crate::clusters::watch::{Schedule, run_round};

/// Steps of a cluster on its way to rest, at most.
const STEPS: usize = 100;

/// Steps until the cluster is at rest, as the part for clusters does.
///
/// # Errors
/// A step failed.
///
/// # Panics
/// The cluster does not come to rest.
pub async fn cluster_until_rest(core: &Arc<Core>, id: &ClusterId) -> Result<(), ReserveError> {
    for _ in 0..STEPS {
        match step(core, id).await {
            Ok(Next::Rest) => return Ok(()),
            Ok(Next::Again) => {}
            // A concurrent change won.
            Err(ReserveError::Store(StoreError::Conflict { .. } | StoreError::Contended(_))) => {}
            Err(other) => return Err(other),
        }
    }
    panic!("{id} does not come to rest");
}
