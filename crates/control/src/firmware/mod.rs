//! Firmware: files, the versions that a node's SKU wants, and the times when a node may be disturbed. The effect
//! `perform/firmware` makes updates; `rackwright_site::firmware` computes the next one.

pub mod files;
pub mod link;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rackwright_lifecycle::{FirmwareFacts, MaintenanceWindow, NodeId, State, Timestamp};
use rackwright_redfish::{FirmwareEntry, FirmwareState};
use rackwright_site::firmware::{Installed, Row, plan};
use rackwright_site::model::{Site, WantedFirmware};
use rackwright_store::{FirmwareFileRow, NodeRecord, StoreError};
use tokio::sync::Semaphore;

use crate::bmc;
use crate::core::Core;
use crate::hall::HallError;

pub use files::Files;

/// Longest age of the cached site for the question whether an update begins.
const RECENT: Duration = Duration::from_secs(5);

/// Machines that one process updates in parallel, because each update hashes and sends a whole file.
const AT_ONCE: usize = 8;

/// State of the firmware part in memory.
#[derive(Debug)]
pub struct Firmware {
    /// The firmware files.
    pub files: Files,
    recent_site: Mutex<Option<(Instant, Option<Arc<Site>>)>>,
    reported: Mutex<HashMap<NodeId, UpdateProgress>>,
    /// Nodes with an unfinished update that this process began.
    begun: Mutex<HashSet<NodeId>>,
    /// Limits the parallel updates.
    pub turns: Semaphore,
}

/// Progress of a node's update.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdateProgress {
    /// The current step, for people.
    pub step: String,
    /// Percent of the current file, if the BMC reports it.
    pub percent: u32,
}

impl Firmware {
    /// Creates the state for these files.
    #[must_use]
    pub fn new(files: Files) -> Self {
        Self {
            files,
            recent_site: Mutex::default(),
            reported: Mutex::default(),
            begun: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// Notes that an update of a node began or ended. An unfinished update continues even if the site does not want any
    /// firmware for the node any more.
    pub fn note_begun(&self, node: &NodeId, is_begun: bool) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if is_begun {
            begun.insert(node.to_owned());
        } else {
            begun.remove(node);
        }
    }

    fn has_begun(&self, node: &NodeId) -> bool {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.contains(node)
    }

    /// Sets the progress of a node's update; `None` after the end.
    pub fn set_progress(&self, node: &NodeId, reported: Option<UpdateProgress>) {
        let mut all = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        match reported {
            Some(reported) => all.insert(node.to_owned(), reported),
            None => all.remove(node),
        };
    }

    /// The progress of a node's update, if this replica makes it.
    #[must_use]
    pub fn reported(&self, node: &NodeId) -> Option<UpdateProgress> {
        self.reported
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(node)
            .cloned()
    }

    async fn load_recent_site(&self, core: &Core) -> Result<Option<Arc<Site>>, StoreError> {
        let kept = self.recent_site.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, site)) = kept.filter(|(at, _)| at.elapsed() < RECENT) {
            return Ok(site);
        }
        let site = site(core).await?;
        *self.recent_site.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), site.clone()));
        Ok(site)
    }
}

/// The site that was applied last. An unreadable site counts as no site.
///
/// # Errors
/// The database failed.
pub async fn site(core: &Core) -> Result<Option<Arc<Site>>, StoreError> {
    match core.sites.current(&core.store).await {
        Ok(site) => Ok(site.map(|(_, site)| site)),
        Err(HallError::Store(error)) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "the site cannot be read, so the wanted firmware is unknown");
            Ok(None)
        }
    }
}

/// The firmware that a site wants for a node: from the node's own SKU, else from the SKU that the site gives the node.
#[must_use]
pub fn wanted_in<'a>(site: &'a Site, record: &NodeRecord) -> &'a [WantedFirmware] {
    let own = site.skus.iter().find(|sku| *sku.name == *record.spec.sku);
    let named = || site.node_named(record.id.as_str()).map(|node| site.sku_of(node));
    own.or_else(named).map_or(&[], |sku| &sku.firmware)
}

/// The firmware that is wanted for a node now.
///
/// # Errors
/// The database failed.
pub async fn wanted_of(core: &Core, record: &NodeRecord) -> Result<Vec<WantedFirmware>, StoreError> {
    Ok(site(core)
        .await?
        .map(|site| wanted_in(&site, record).to_vec())
        .unwrap_or_default())
}

/// The facts about updates for a node's next decision.
///
/// An update can only have begun if the SKU wants firmware, an update was requested, or this process has begun one. In
/// other cases the database is not read.
///
/// # Errors
/// The database failed.
pub async fn facts(core: &Core, record: &NodeRecord, now: Timestamp) -> Result<FirmwareFacts, StoreError> {
    let mut facts = FirmwareFacts::default();
    // IPMI has no firmware updates.
    if !bmc::is_ipmi(&record.spec) {
        let site = core.firmware.load_recent_site(core).await?;
        let is_wanted = site.is_some_and(|site| !wanted_in(&site, record).is_empty());
        facts.wanted = is_wanted && matches!(record.node.state, State::Inspecting | State::Reclaiming);
        let is_asked = record.node.wanted.firmware.is_some() || core.firmware.has_begun(&record.id);
        facts.under_way = (is_wanted || is_asked) && core.store.firmware_update(&record.id).await?.is_some();
    }
    let is_left = record.node.wanted.firmware.is_some() || facts.under_way;
    if is_left && record.node.claim.is_some() {
        let window = window_of(core, record).await?;
        facts.open_until = window.open_until(now);
        facts.opens_at = window.opens_after(now);
    }
    Ok(facts)
}

/// The maintenance window of a node: set for the node under its present claim, else set for its cluster, else never
/// open.
///
/// # Errors
/// The database failed.
pub async fn window_of(core: &Core, record: &NodeRecord) -> Result<MaintenanceWindow, StoreError> {
    let Some(claim) = &record.node.claim else {
        return Ok(MaintenanceWindow::default());
    };
    let own = core.store.maintenance_window(&format!("nodes/{}", record.id)).await?;
    let generation = i64::try_from(claim.generation).unwrap_or(i64::MAX);
    let mut row = own.filter(|row| row.generation == generation);
    if let (None, Some(seat)) = (&row, &claim.cluster) {
        row = core
            .store
            .maintenance_window(&format!("clusters/{}", seat.cluster))
            .await?;
    }
    let window = row.map(|row| serde_json::from_str(&row.body));
    Ok(window.transpose().unwrap_or_default().unwrap_or_default())
}

/// Compares the wanted firmware with the BMC's report, and adds the files of the catalogue.
#[must_use]
pub fn rows(wanted: &[WantedFirmware], seen: &FirmwareState, files: &[FirmwareFileRow]) -> Vec<Row> {
    let installed: Vec<Installed> = seen.entries.iter().map(installed).collect();
    plan(wanted, &installed, |one| {
        let found = files.iter().find(|file| match &one.file {
            Some(digest) => **digest == *file.digest,
            None => *one.component == *file.component && rackwright_site::firmware::same(&one.version, &file.version),
        });
        found.map(|file| file.digest.as_str().into())
    })
}

fn installed(entry: &FirmwareEntry) -> Installed {
    Installed {
        id: entry.id.clone(),
        name: entry.name.clone(),
        software_id: entry.software_id.clone(),
        version: entry.version.clone(),
        updateable: entry.updateable,
    }
}
