//! Firmware: files, what the SKU of a node wants, and when a node may be disturbed. What is done about it is an effect
//! (`perform/firmware`); which of it comes next is worked out by `rackwright_site::firmware`.

pub mod files;
pub mod link;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rackwright_lifecycle::{FirmwareFacts, MaintenanceWindow, State, Timestamp};
use rackwright_redfish::{FirmwareEntry, FirmwareState};
use rackwright_site::firmware::{Installed, Row, plan};
use rackwright_site::model::{Site, WantedFirmware};
use rackwright_store::{FirmwareFileRow, NodeRecord, StoreError};
use tokio::sync::Semaphore;

use crate::bmc;
use crate::core::Core;
use crate::hall::HallError;

pub use files::Files;

/// What the site wants may be as old as that where it only says whether an update is begun.
const LATELY: Duration = Duration::from_secs(5);

/// Machines updated at once by one process: each has a whole file hashed and sent.
const AT_ONCE: usize = 8;

/// What the firmware part keeps in memory.
#[derive(Debug)]
pub struct Firmware {
    /// Firmware files.
    pub files: Files,
    lately: Mutex<Option<(Instant, Option<Arc<Site>>)>>,
    told: Mutex<HashMap<String, Told>>,
    /// Nodes on which this process has begun an update that is not over.
    begun: Mutex<HashSet<String>>,
    /// Turns to update a machine.
    pub turns: Semaphore,
}

/// How far the update of a node is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// In words.
    pub step: String,
    /// Percent of the present file, where the BMC tells.
    pub percent: u32,
}

impl Firmware {
    /// With these files.
    #[must_use]
    pub fn new(files: Files) -> Self {
        Self {
            files,
            lately: Mutex::default(),
            told: Mutex::default(),
            begun: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// Remembers that an update of a node was begun, or is over. It is asked for while nothing is wanted of the node any more,
    /// as after another site was applied.
    pub fn note_begun(&self, node: &str, is_begun: bool) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if is_begun {
            begun.insert(node.to_owned());
        } else {
            begun.remove(node);
        }
    }

    fn has_begun(&self, node: &str) -> bool {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.contains(node)
    }

    /// Tells how far a node's update is; None: it is over.
    pub fn tell(&self, node: &str, told: Option<Told>) {
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match told {
            Some(told) => all.insert(node.to_owned(), told),
            None => all.remove(node),
        };
    }

    /// How far a node's update is, where this replica makes it.
    #[must_use]
    pub fn told(&self, node: &str) -> Option<Told> {
        self.told
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(node)
            .cloned()
    }

    async fn site_of_lately(&self, core: &Core) -> Result<Option<Arc<Site>>, StoreError> {
        let kept = self.lately.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, site)) = kept.filter(|(at, _)| at.elapsed() < LATELY) {
            return Ok(site);
        }
        let site = site(core).await?;
        *self.lately.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), site.clone()));
        Ok(site)
    }
}

/// The site as it was applied last. One that does not read any more wants nothing.
///
/// # Errors
/// The database failed.
pub async fn site(core: &Core) -> Result<Option<Arc<Site>>, StoreError> {
    match core.sites.current(&core.store).await {
        Ok(site) => Ok(site.map(|(_, site)| site)),
        Err(HallError::Store(error)) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "what is wanted of firmware is not known");
            Ok(None)
        }
    }
}

/// What a site wants of a node's firmware: by the node's own SKU, else by the SKU that the site gives it.
#[must_use]
pub fn wanted_in<'a>(site: &'a Site, record: &NodeRecord) -> &'a [WantedFirmware] {
    let own = site.skus.iter().find(|sku| *sku.name == *record.spec.sku);
    let named = || site.node_named(&record.id).map(|node| site.sku_of(node));
    own.or_else(named).map_or(&[], |sku| &sku.firmware)
}

/// What is wanted of a node's firmware now.
///
/// # Errors
/// The database failed.
pub async fn wanted_of(core: &Core, record: &NodeRecord) -> Result<Vec<WantedFirmware>, StoreError> {
    Ok(site(core)
        .await?
        .map(|site| wanted_in(&site, record).to_vec())
        .unwrap_or_default())
}

/// What bears on updates of a node, for its next decision. A node of which nothing is wanted costs nothing.
///
/// An update was begun only where the SKU wanted one, or this process has begun it: the database is asked of no others.
///
/// # Errors
/// The database failed.
pub async fn facts(core: &Core, record: &NodeRecord, now: Timestamp) -> Result<FirmwareFacts, StoreError> {
    let mut facts = FirmwareFacts::default();
    // IPMI knows no updates.
    if !bmc::is_ipmi(&record.spec) {
        let site = core.firmware.site_of_lately(core).await?;
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

/// When the node may be disturbed: as was said of it under its present claim, else as was said of its cluster, else never.
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

/// Holds what is wanted against what a BMC said, with the files of the catalogue.
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
