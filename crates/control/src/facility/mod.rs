//! Power and cooling of the site as it is measured: what is read, what is wrong, what that holds back.
//!
//! | module | what |
//! |---|---|
//! | `settings` | how often, and how to get in |
//! | `read` | one reading of one node, PDU or cooling unit |
//! | `poll` | when which is read, spread evenly over time and replicas |
//! | `alarms` | readings against the site, once for all replicas: alarms, events, holds |
//!
//! Nothing here switches anything: a machine that is on stays on. An alarm keeps machines from being switched on
//! (`runner/admission.rs`) and from being given to new clusters (`hall.rs`), and says what to do.

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

/// How power and cooling stand in this process.
#[derive(Debug, Default)]
pub struct Facility {
    /// How many may start at once, of which version of the site.
    rooms: Mutex<Option<(i64, Arc<StartRooms>)>>,
    /// Machines wait in lines because of the site or of alarms: their permits have to be read.
    has_lines: AtomicBool,
    polled: AtomicUsize,
}

impl Facility {
    /// Whether machines may wait in lines that no limit of the settings makes.
    #[must_use]
    pub fn has_lines(&self) -> bool {
        self.has_lines.load(Ordering::Relaxed)
    }

    /// From now on they may.
    pub fn note_lines(&self) {
        self.has_lines.store(true, Ordering::Relaxed);
    }

    /// Things that this process reads.
    #[must_use]
    pub fn polled(&self) -> usize {
        self.polled.load(Ordering::Relaxed)
    }

    /// The site and how many may start at once in it; none: no site was applied.
    ///
    /// # Errors
    /// The database failed, or the site that was stored does not read any more.
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

/// Begins what watches power and cooling.
pub fn begin(core: &Arc<Core>, parts: &mut Parts) {
    parts.begin("power and cooling alarms", alarms::run(core.clone()));
    if let Some(settings) = core.config.facility.clone() {
        parts.begin("power and cooling readings", poll::run(core.clone(), settings));
    }
}
