//! Power and cooling of the site as measured: readings, alarms, and what the alarms hold back.
//!
//! | module | what |
//! |---|---|
//! | `settings` | intervals, and access to equipment |
//! | `read` | one reading of one node, PDU or cooling unit |
//! | `poll` | when each is read, spread evenly over time and replicas |
//! | `alarms` | readings compared with the site, once for all replicas: alarms, events, holds |
//!
//! This module switches no machine: a machine that is on stays on. An alarm keeps machines from being switched on
//! (`runner/admission.rs`) and from joining new clusters (`hall.rs`), and states what to do.

mod alarms;
mod poll;
mod read;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rackwright_site::model::Site;
use rackwright_site::power::StartRooms;

use crate::core::Core;
use crate::hall::HallError;
use crate::parts::Parts;

pub use alarms::{load, reserved};
pub use poll::coverage;
pub use settings::Settings;

/// State of power and cooling in this process.
#[derive(Debug, Default)]
pub struct Facility {
    /// Number of machines that may start in parallel, with the version of the site.
    rooms: Mutex<Option<(i64, Arc<StartRooms>)>>,
    /// The site or an alarm may make machines wait, so their permits have to be read.
    has_lines: AtomicBool,
    polled: AtomicUsize,
}

impl Facility {
    /// Whether machines may have to wait for reasons other than the limits in the settings.
    #[must_use]
    pub fn has_lines(&self) -> bool {
        self.has_lines.load(Ordering::Relaxed)
    }

    /// Notes that machines may have to wait.
    pub fn note_lines(&self) {
        self.has_lines.store(true, Ordering::Relaxed);
    }

    /// Number of nodes, PDUs and cooling units that this process reads.
    #[must_use]
    pub fn polled(&self) -> usize {
        self.polled.load(Ordering::Relaxed)
    }

    /// The site, and the number of machines that may start in parallel in it. `None`: no site was applied.
    ///
    /// # Errors
    /// The database failed, or the stored site is unreadable.
    pub async fn rooms(&self, core: &Core) -> Result<Option<(Arc<Site>, Arc<StartRooms>)>, HallError> {
        let Some((version, site)) = core.sites.current(&core.store).await? else {
            return Ok(None);
        };
        let kept = self.rooms.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, rooms)) = kept.filter(|(known, _)| *known == version) {
            return Ok(Some((site, rooms)));
        }
        let of = site.clone();
        let rooms = tokio::task::spawn_blocking(move || StartRooms::new(&of)).await;
        let rooms = Arc::new(rooms.map_err(|e| HallError::Broken(format!("starts were not counted: {e}")))?);
        if !rooms.is_empty() {
            self.note_lines();
        }
        *self.rooms.lock().unwrap_or_else(PoisonError::into_inner) = Some((version, rooms.clone()));
        Ok(Some((site, rooms)))
    }
}

/// Starts the tasks that watch power and cooling.
pub fn begin(core: &Arc<Core>, parts: &mut Parts) {
    parts.begin("power and cooling alarms", alarms::run(core.clone()));
    if let Some(settings) = core.config.facility.clone() {
        parts.begin("power and cooling readings", poll::run(core.clone(), settings));
    }
}
