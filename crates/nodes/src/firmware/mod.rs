//! Firmware: its files, the versions that a node's SKU wants, and the times when a node may be disturbed. The effect in
//! `perform/firmware` makes the updates; `rackwright_site::firmware` computes which component is next.

pub mod link;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rackwright_ground::bmc;
use rackwright_ground::config::Config;
use rackwright_ground::core::Core;
use rackwright_ground::features::FeatureState;
use rackwright_ground::stored;
use rackwright_lifecycle::{FirmwareFacts, MaintenanceWindow, NodeId, State, Timestamp};
use rackwright_redfish::{FirmwareEntry, FirmwareState};
use rackwright_site::firmware::{Installed, Row, plan};
use rackwright_site::model::{Site, WantedFirmware};
use rackwright_store::{FirmwareFileRow, NodeRecord, StoreError};
use tokio::sync::Semaphore;

/// Longest age of the cached site that [`facts`] uses.
const CACHED_SITE_MAX_AGE: Duration = Duration::from_secs(5);

/// Most machines that one process updates in parallel: each update hashes and sends a whole file.
const UPDATES_AT_ONCE: usize = 8;

/// State of the firmware part in memory.
#[derive(Debug)]
pub struct Firmware {
    /// The site, and when it was read.
    cached_site: Mutex<Option<(Instant, Option<Arc<Site>>)>>,
    progress: Mutex<HashMap<NodeId, UpdateProgress>>,
    /// Nodes with an unfinished update that this process began.
    begun: Mutex<HashSet<NodeId>>,
    /// One permit for each update that may run now.
    pub turns: Semaphore,
}

/// Progress of a node's update.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdateProgress {
    /// The current step, for people.
    pub step: String,
    /// Percent of the current file: 0 to 100, and 0 without a report of the BMC.
    pub percent: u32,
}

impl FeatureState for Firmware {
    fn new(_: &Config) -> Self {
        Self {
            cached_site: Mutex::default(),
            progress: Mutex::default(),
            begun: Mutex::default(),
            turns: Semaphore::new(UPDATES_AT_ONCE),
        }
    }
}

impl Firmware {
    /// Notes that this process began an update of a node. The update continues even if the site does not want any firmware
    /// for the node any more.
    pub fn note_begun(&self, node: &NodeId) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.insert(node.to_owned());
    }

    /// Notes that a node's update ended.
    pub fn note_ended(&self, node: &NodeId) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.remove(node);
    }

    fn has_begun(&self, node: &NodeId) -> bool {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.contains(node)
    }

    /// Sets the progress of a node's update; `None` after the end of the update.
    pub fn set_progress(&self, node: &NodeId, progress: Option<UpdateProgress>) {
        let mut all = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        match progress {
            Some(progress) => all.insert(node.to_owned(), progress),
            None => all.remove(node),
        };
    }

    /// The progress of a node's update; `None` unless this process makes the update.
    #[must_use]
    pub fn reported(&self, node: &NodeId) -> Option<UpdateProgress> {
        self.progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(node)
            .cloned()
    }

    /// The cached site, read again if the cache is old.
    async fn cached_site(&self, core: &Core) -> Result<Option<Arc<Site>>, StoreError> {
        let cached = self.cached_site.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, site)) = cached.filter(|(read_at, _)| read_at.elapsed() < CACHED_SITE_MAX_AGE) {
            return Ok(site);
        }
        let site = site(core).await?;
        *self.cached_site.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), site.clone()));
        Ok(site)
    }
}

/// The site that was applied last.
///
/// # Errors
/// The database failed. `Corrupt`: the stored site does not parse any more.
pub async fn site(core: &Core) -> Result<Option<Arc<Site>>, StoreError> {
    Ok(core.sites.applied(&core.store).await?.map(|(_, site)| site))
}

/// The firmware that a site wants for a node: from the SKU in the node's own spec, else from the SKU that the site gives
/// the node.
#[must_use]
pub fn wanted_in<'a>(site: &'a Site, record: &NodeRecord) -> &'a [WantedFirmware] {
    let of_spec = site.skus.iter().find(|sku| *sku.name == *record.spec.sku);
    let of_site = || site.node_named(record.id.as_str()).map(|node| site.sku_of(node));
    of_spec.or_else(of_site).map_or(&[], |sku| &sku.firmware)
}

/// The firmware that the applied site wants for a node.
pub async fn wanted_of(core: &Core, record: &NodeRecord) -> Result<Vec<WantedFirmware>, StoreError> {
    Ok(site(core)
        .await?
        .map(|site| wanted_in(&site, record).to_vec())
        .unwrap_or_default())
}

/// The facts about updates for a node's next decision.
///
/// The database is asked for an unfinished update only where one is possible: the SKU wants firmware, an update was
/// requested, or this process began one.
///
/// # Errors
/// The database failed. `Corrupt`: the window of the node, or the site, cannot be read.
pub async fn facts(core: &Core, record: &NodeRecord, now: Timestamp) -> Result<FirmwareFacts, StoreError> {
    let mut facts = FirmwareFacts::default();
    let is_requested = record.node.wanted.firmware.is_some();
    // IPMI has no firmware updates.
    if !bmc::is_ipmi(&record.spec) {
        let may_want = matches!(record.node.state, State::Inspecting | State::Reclaiming);
        let is_wanted = match core.feature::<Firmware>().cached_site(core).await {
            Ok(site) => site.is_some_and(|site| !wanted_in(&site, record).is_empty()),
            // The other states do not depend on the wish, only on an update that is under way.
            Err(StoreError::Corrupt { .. }) if !may_want => true,
            Err(error) => return Err(error),
        };
        facts.wanted = is_wanted && may_want;
        let may_be_under_way = is_wanted || is_requested || core.feature::<Firmware>().has_begun(&record.id);
        facts.under_way = may_be_under_way && core.store.firmware_update(&record.id).await?.is_some();
    }
    if (is_requested || facts.under_way) && record.node.claim.is_some() {
        let window = window_of(core, record).await?;
        facts.open_until = window.open_until(now);
        facts.opens_at = window.opens_after(now);
    }
    Ok(facts)
}

/// The maintenance window of a node: the window set for the node under its present claim, else the window of its cluster.
/// Without a window the node may never be disturbed.
///
/// # Errors
/// The database failed. `Corrupt`: the stored window does not parse; `rackwright firmware window` sets it again.
pub async fn window_of(core: &Core, record: &NodeRecord) -> Result<MaintenanceWindow, StoreError> {
    let Some(claim) = &record.node.claim else {
        return Ok(MaintenanceWindow::default());
    };
    let own = core.store.maintenance_window(&format!("nodes/{}", record.id)).await?;
    let generation = i64::try_from(claim.generation).unwrap_or(i64::MAX);
    let mut row = own.filter(|row| row.generation == generation);
    if let (None, Some(cluster_claim)) = (&row, &claim.cluster) {
        row = core
            .store
            .maintenance_window(&format!("clusters/{}", cluster_claim.cluster))
            .await?;
    }
    match row {
        Some(row) => stored::present("maintenance window", &row.target, &row.body),
        // The default window is never open.
        None => Ok(MaintenanceWindow::default()),
    }
}

/// Compares the wanted firmware with the BMC's report: one row for each component, with its file from the catalogue.
#[must_use]
pub fn rows(wanted: &[WantedFirmware], seen: &FirmwareState, files: &[FirmwareFileRow]) -> Vec<Row> {
    let installed: Vec<Installed> = seen.entries.iter().map(installed_entry).collect();
    plan(wanted, &installed, |one| {
        let found = files.iter().find(|file| match &one.file {
            Some(digest) => **digest == *file.digest,
            None => *one.component == *file.component && rackwright_site::firmware::same(&one.version, &file.version),
        });
        found.map(|file| file.digest.as_str().into())
    })
}

fn installed_entry(entry: &FirmwareEntry) -> Installed {
    Installed {
        id: entry.id.clone(),
        name: entry.name.clone(),
        software_id: entry.software_id.clone(),
        version: entry.version.clone(),
        updateable: entry.updateable,
    }
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;
    use rackwright_lifecycle::{ClusterClaim, Span};
    use rackwright_store::WindowRow;

    use super::*;

    async fn put(core: &Core, target: &str, body: &str) {
        let row = WindowRow {
            target: target.into(),
            generation: 0,
            changed_at: Timestamp(1),
            body: body.into(),
        };
        let mut tx = core.store.write().await.unwrap();
        tx.put_maintenance_window(&row).await.unwrap();
        tx.commit().await.unwrap();
    }

    #[tokio::test]
    async fn an_unreadable_window_is_a_named_error_and_a_missing_one_is_never_open() {
        let core = testing::core().await;
        let mut record = testing::node("n1", State::Active, Some("b3-1"));
        record.node.claim.as_mut().unwrap().cluster = Some(ClusterClaim {
            cluster: "alpha".into(),
            let_go: None,
            build: 0,
        });
        record.node.wanted.firmware = Some(Timestamp(1));
        testing::add(&core, &record).await;
        let window = window_of(&core, &record).await.unwrap();
        assert_eq!(window, MaintenanceWindow::default());

        put(&core, "clusters/alpha", "no window").await;
        let error = window_of(&core, &record).await.unwrap_err();
        let words = "maintenance window \"clusters/alpha\" cannot be read back";
        assert_eq!(error.to_string(), words);
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
        assert!(!error.is_retryable(), "the same row would be read again");
        // A step does not decide without the window.
        assert!(facts(&core, &record, Timestamp(5)).await.is_err());

        // The own window of the node holds, and not the cluster's.
        let own = MaintenanceWindow {
            once: vec![Span {
                from: Timestamp(1),
                to: Timestamp(9),
            }],
            ..MaintenanceWindow::default()
        };
        put(&core, "nodes/n1", &serde_json::to_string(&own).unwrap()).await;
        assert_eq!(window_of(&core, &record).await.unwrap(), own);
        let open_until = facts(&core, &record, Timestamp(5)).await.unwrap().open_until;
        assert_eq!(open_until, Some(Timestamp(9)));
    }

    #[tokio::test]
    async fn an_unreadable_site_is_an_error_where_the_wish_decides_and_elsewhere_holds_no_node() {
        let core = testing::core().await;
        testing::put_site(&core, "site: {name: lab}\n").await;
        testing::damage_site(&core).await;
        let error = site(&core).await.unwrap_err();
        assert_eq!(error.to_string(), "document \"site\" cannot be read back");
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
        for (state, decides) in [
            (State::Inspecting, true),
            (State::Reclaiming, true),
            (State::Active, false),
            (State::Available, false),
        ] {
            let record = testing::node(&format!("n-{state:?}").to_lowercase(), state, Some("b3-1"));
            let facts = facts(&core, &record, Timestamp(5)).await;
            assert_eq!(facts.is_err(), decides, "{state:?}");
        }
    }
}
