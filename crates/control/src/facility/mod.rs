//! Power and cooling of the site as measured: readings, alarms, and what the alarms hold back.
//!
//! | module | what |
//! |---|---|
//! | `read` | one reading of one node, PDU or cooling unit |
//! | `poll` | when each is read, spread evenly over time and replicas |
//! | `alarms` | readings compared with the site, once for all replicas: alarms, events, holds |
//!
//! This module switches no machine: a machine that is on stays on. An alarm keeps machines from being switched on
//! (`runner/admission.rs`) and from joining new clusters (`hall.rs`), and states what to do.

mod alarms;
mod poll;
mod read;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rackwright_ground::config::Config;
use rackwright_ground::core::Core;
use rackwright_ground::features::FeatureState;
use rackwright_ground::parts::Parts;

pub use alarms::{load, reserved};
pub use poll::coverage;

/// State of power and cooling in this process.
#[derive(Debug, Default)]
pub struct Facility {
    polled: AtomicUsize,
}

impl FeatureState for Facility {
    fn new(_: &Config) -> Self {
        Self::default()
    }
}

impl Facility {
    /// Number of nodes, PDUs and cooling units that this process reads.
    #[must_use]
    pub fn polled(&self) -> usize {
        self.polled.load(Ordering::Relaxed)
    }
}

/// Starts the tasks that watch power and cooling.
pub fn begin(core: &Arc<Core>, parts: &mut Parts) {
    parts.begin("power and cooling alarms", alarms::run(core.clone()));
    if let Some(settings) = core.config.facility.clone() {
        parts.begin("power and cooling readings", poll::run(core.clone(), settings));
    }
}
