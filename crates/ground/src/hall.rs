//! The present site, and plans in it.
//!
//! A plan is computed from a snapshot of the hall, outside any change of the database: it takes milliseconds, or seconds in
//! a large hall. The result is stored only if the hall is still as in the snapshot; else it is computed again.

pub mod confirmed;
pub mod managed;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rackwright_lifecycle::CustomerId;
use rackwright_placement::ClusterId;
use rackwright_planner::planner::{NamedPlacement, Planner};
use rackwright_site::file::{Checked, Source};
use rackwright_site::model::{NodeId, Site};
use rackwright_store::{ClusterRecord, Scope, SiteFile, Store, StoreError};

use crate::api_error::ApiError;
use managed::Managed;

/// The site and its units as last read.
#[derive(Debug, Default)]
pub struct Sites {
    cached: Cached<Site>,
    /// Why the version cannot be read, so that it is parsed once.
    broken: Cached<String>,
    /// Held while a version is parsed: one task parses it for all.
    parsing: tokio::sync::Mutex<()>,
    units: Cached<Units>,
    /// The fabrics with a manager.
    pub managed: Managed,
}

/// A value with the version of its site.
type Cached<T> = Mutex<Option<(i64, Arc<T>)>>;

/// By node name, the part of the fabric in which nodes share their leaves.
pub type Units = HashMap<String, u32>;

fn cached<T>(cached: &Cached<T>, version: i64) -> Option<Arc<T>> {
    let cached = cached.lock().unwrap_or_else(PoisonError::into_inner).clone();
    cached.filter(|(known, _)| *known == version).map(|(_, cached)| cached)
}

fn put_cached<T>(place: &Cached<T>, version: i64, cached: T) -> Arc<T> {
    let cached = Arc::new(cached);
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some((version, cached.clone()));
    cached
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum HallError {
    /// No site was applied.
    #[error("no site is applied yet: clusters are placed in an applied site")]
    NoSite,
    /// The stored data do not parse any more.
    #[error("{0}")]
    Broken(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<HallError> for ApiError {
    fn from(error: HallError) -> Self {
        match error {
            HallError::NoSite => {
                let hint =
                    "`rackwright site apply site/` applies a site; `rackwright site generate` writes a first site";
                Self::precondition("site", error.to_string(), hint)
            }
            HallError::Broken(message) => {
                let hint =
                    "`rackwright site plan` shows the faults of the site; `site export` writes the site as applied";
                Self::precondition("site", message, hint)
            }
            HallError::Store(error) => error.into(),
        }
    }
}

/// The hall at one moment.
#[derive(Debug, Clone)]
pub struct HallSnapshot {
    pub site_version: i64,
    pub hall_version: i64,
    /// The site at that version.
    pub site: Arc<Site>,
    /// The placements of clusters.
    pub live: Vec<NamedPlacement>,
    /// Nodes that no cluster can take now: not enrolled, not available, claimed, or cordoned by an alarm.
    pub out: BTreeSet<NodeId>,
    /// Broken cables between switches.
    pub broken: BTreeSet<String>,
    /// By compute fabric without a manager, its nodes. No cluster is placed there.
    pub without_manager: BTreeMap<String, BTreeSet<NodeId>>,
}

/// The number of a cluster for the planner.
#[must_use]
pub fn number(uid: &str) -> ClusterId {
    let hash = blake3::hash(uid.as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash.as_bytes()[..8]);
    ClusterId(u64::from_le_bytes(bytes))
}

/// Parses and checks the files of a site, and the fabric that they describe. Confirmed adapters have their new ports.
#[must_use]
pub fn read(files: &[SiteFile]) -> Checked {
    read_for(files, &Managed::Off)
}

/// As [`read`], with warnings about compute fabrics without a manager.
#[must_use]
pub fn read_for(files: &[SiteFile], managed: &Managed) -> Checked {
    let (files, confirmed) = confirmed::split(files);
    let source = |file: &&'_ SiteFile| -> (String, String) { (file.name.clone(), file.text.clone()) };
    let owned: Vec<(String, String)> = files.iter().map(source).collect();
    let sources: Vec<Source<'_>> = owned.iter().map(|(name, text)| Source { name, text }).collect();
    let mut checked = rackwright_planner::check_also(&sources, |site, places, sink| managed.warn(site, places, sink));
    if let Some(site) = &mut checked.site {
        confirmed::apply(site, &confirmed);
    }
    checked
}

/// "b3-" and the BLAKE3 digest of the files, in hex.
#[must_use]
pub fn digest(files: &[SiteFile]) -> String {
    let mut hasher = blake3::Hasher::new();
    for file in files {
        for part in [&file.name, &file.text] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
    }
    format!("b3-{}", hasher.finalize().to_hex())
}

/// The stored placement of a cluster.
///
/// # Errors
/// The stored data do not parse.
pub fn placement_of(record: &ClusterRecord) -> Result<NamedPlacement, HallError> {
    serde_json::from_str(&record.placement)
        .map_err(|e| HallError::Broken(format!("the placement of cluster {} cannot be read: {e}", record.id)))
}

/// The clusters that are not released, by id.
pub async fn live(store: &Store) -> Result<Vec<ClusterRecord>, StoreError> {
    let released = rackwright_lifecycle::cluster::State::Released.as_str();
    let filter = vec![rackwright_store::Term::is_not("state", released)];
    store.clusters(&Scope::Site, &filter, "", i64::MAX).await
}

impl Sites {
    /// With the fabrics that have a manager.
    #[must_use]
    pub fn new(managed: Managed) -> Self {
        Self {
            managed,
            ..Self::default()
        }
    }

    /// The last applied site, with its version. `None`: no site was applied.
    ///
    /// # Errors
    /// The database failed, or the stored site does not parse any more.
    pub async fn current(&self, store: &Store) -> Result<Option<(i64, Arc<Site>)>, HallError> {
        let version = store.site_version().await?;
        if let Some(cached) = cached(&self.cached, version) {
            return Ok(Some((version, cached)));
        }
        let _turn = self.parsing.lock().await;
        if let Some(cached) = cached(&self.cached, version) {
            return Ok(Some((version, cached)));
        }
        if let Some(why) = cached(&self.broken, version) {
            return Err(HallError::Broken((*why).clone()));
        }
        let Some(row) = store.site().await? else {
            return Ok(None);
        };
        let checked = work(move || read(&row.files)).await?;
        let site = checked.site.ok_or_else(|| {
            let first = checked
                .findings
                .list
                .first()
                .map(ToString::to_string)
                .unwrap_or_default();
            let why = format!("the applied site is not valid for this version: {first}");
            HallError::Broken((*put_cached(&self.broken, row.version, why)).clone())
        })?;
        Ok(Some((row.version, put_cached(&self.cached, row.version, site))))
    }

    /// The last applied site, for work that goes on where no site was applied.
    ///
    /// # Errors
    /// The database failed. `Corrupt`: the stored site does not parse any more.
    pub async fn applied(&self, store: &Store) -> Result<Option<(i64, Arc<Site>)>, StoreError> {
        match self.current(store).await {
            Ok(site) => Ok(site),
            Err(HallError::NoSite) => Ok(None),
            Err(HallError::Store(error)) => Err(error),
            Err(HallError::Broken(why)) => Err(StoreError::Corrupt {
                what: "document",
                id: "site".to_owned(),
                source: why.into(),
            }),
        }
    }

    /// Whether a request may name a customer; the inner error states why not. An applied site has to contain the customer.
    /// Without a site, any name is allowed. An empty name stands for no customer in particular.
    ///
    /// # Errors
    /// The database failed, or the stored site does not parse any more.
    pub async fn check_customer(&self, store: &Store, customer: &CustomerId) -> Result<Result<(), String>, HallError> {
        if customer.is_empty() {
            return Ok(Ok(()));
        }
        let Some((_, site)) = self.current(store).await? else {
            return Ok(Ok(()));
        };
        Ok(match site.customer_named(customer.as_str()) {
            Some(_) => Ok(()),
            None => Err(format!("the site has no customer {customer:?}")),
        })
    }

    /// The unit of each node. Empty without a site, or if the site has no units for clusters.
    ///
    /// # Errors
    /// The database failed, or the stored site does not parse any more.
    pub async fn units(&self, store: &Store) -> Result<Arc<Units>, HallError> {
        let Some((version, site)) = self.current(store).await? else {
            return Ok(Arc::default());
        };
        if let Some(cached) = cached(&self.units, version) {
            return Ok(cached);
        }
        let units = work(move || -> Units {
            let planner = Planner::new(&site);
            let units = planner.iter().flat_map(Planner::units);
            units.map(|(node, unit)| (node.to_owned(), unit)).collect()
        });
        Ok(put_cached(&self.units, version, units.await?))
    }

    /// The hall as it is now.
    ///
    /// # Errors
    /// There is no site, or the database failed.
    pub async fn picture(&self, store: &Store) -> Result<HallSnapshot, HallError> {
        // The version is read first: a reservation during the rest of the reads makes the snapshot stale.
        let hall_version = store.hall().await?.version;
        let broken = store.broken_links().await?.into_iter().collect();
        let (site_version, site) = self.current(store).await?.ok_or(HallError::NoSite)?;
        let live = live(store).await?;
        let live = live.iter().map(placement_of).collect::<Result<_, _>>()?;
        let free: HashSet<_> = store.free_nodes().await?.into_iter().collect();
        let cordoned: HashSet<_> = store.cordoned_nodes().await?.into_iter().collect();
        let is_out = |name: &str| !free.contains(name) || cordoned.contains(name);
        let out = site.node_ids().filter(|id| is_out(&site.node(*id).name));
        let out = out.collect();
        let (managed, of_site) = (self.managed.clone(), site.clone());
        let without_manager = match managed {
            Managed::Named(_) => work(move || managed.nodes_without(&of_site)).await?,
            Managed::Off | Managed::Unnamed => BTreeMap::new(),
        };
        Ok(HallSnapshot {
            site_version,
            hall_version,
            site,
            live,
            out,
            broken,
            without_manager,
        })
    }
}

impl HallSnapshot {
    /// Makes a plan in the hall of the snapshot.
    ///
    /// # Errors
    /// No cluster can be placed in the site, or the site does not fit the clusters in it.
    pub async fn plan<T: Send + 'static>(
        self,
        plan: impl FnOnce(&Site, &mut Planner<'_>) -> T + Send + 'static,
    ) -> Result<T, HallError> {
        work(move || {
            let mut planner =
                Planner::restore_named(&self.site, &self.live).map_err(|e| HallError::Broken(e.to_string()))?;
            let held: HashSet<&str> = self
                .live
                .iter()
                .flat_map(|one| one.nodes.iter().chain(&one.spares))
                .map(String::as_str)
                .collect();
            for node in self.out.iter().chain(self.without_manager.values().flatten()) {
                // A cluster keeps its own nodes.
                if !held.contains(&*self.site.node(*node).name) {
                    planner.exclude(*node);
                }
            }
            // A cluster keeps a broken link until its next change finds another.
            planner.break_links(&self.broken);
            Ok(plan(&self.site, &mut planner))
        })
        .await?
    }
}

/// Runs processor work on a blocking thread.
///
/// # Errors
/// The work panicked, or this process ends.
pub async fn work<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, HallError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| HallError::Broken(format!("a computation ended early: {e}")))
}
