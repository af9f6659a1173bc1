//! The number of machines that may start in parallel on the power of the site.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rackwright_ground::config::Config;
use rackwright_ground::core::Core;
use rackwright_ground::features::FeatureState;
use rackwright_ground::hall::HallError;
use rackwright_site::model::Site;
use rackwright_site::power::StartRooms;

/// The numbers for the present site, and whether machines may have to wait at all.
#[derive(Debug, Default)]
pub struct StartRoomsCache {
    /// Number of machines that may start in parallel, with the version of the site.
    rooms: Mutex<Option<(i64, Arc<StartRooms>)>>,
    /// The site or an alarm may make machines wait, so their permits have to be read.
    has_lines: AtomicBool,
}

impl FeatureState for StartRoomsCache {
    fn new(_: &Config) -> Self {
        Self::default()
    }
}

impl StartRoomsCache {
    /// Whether machines may have to wait for reasons other than the limits in the settings.
    #[must_use]
    pub fn has_lines(&self) -> bool {
        self.has_lines.load(Ordering::Relaxed)
    }

    /// Notes that machines may have to wait.
    pub fn note_lines(&self) {
        self.has_lines.store(true, Ordering::Relaxed);
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
