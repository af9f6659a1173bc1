//! Consoles of nodes: watchers, writers, recordings and their owners.
//!
//! A node's line ([`hub`]) is open while a client is attached or the node is recorded. Recording follows from the
//! node's state, which each step of the runner reports to [`Consoles::seen`]. The owner of the output follows from the
//! node's claim ([`access`]).

pub mod access;
pub mod dial;
pub mod hub;
mod lock;
pub mod log;
mod refused;
pub mod session;
pub mod ssh_server;
pub mod token;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rackwright_ground::clock;
use rackwright_ground::config::Config;
use rackwright_ground::config::console::{Record, Settings};
use rackwright_ground::core::Core;
use rackwright_ground::features::FeatureState;
use rackwright_lifecycle::{NodeId, Timestamp};
use rackwright_serial::Entry;
use rackwright_serial::record::{Holder, remove_held, remove_old};
use rackwright_store::NodeRecord;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use hub::{Attachment, Hub, Machine};
use refused::Refusals;

/// Folder of all recordings, in the folder that replicas share.
const FOLDER: &str = "consoles";

/// Interval of looks for recordings that are too old.
const SWEEP: Duration = Duration::from_secs(3600);

/// All consoles in demand.
pub struct Consoles {
    settings: Settings,
    folder: PathBuf,
    /// Whether recordings may exist: the settings record consoles, or the folder exists.
    is_kept: bool,
    inner: Mutex<Inner>,
    hub_added: Notify,
}

#[derive(Default)]
struct Inner {
    hubs: HashMap<NodeId, Arc<Hub>>,
    /// Lines without a running task yet.
    new_hubs: Vec<Arc<Hub>>,
    /// Nodes as they were last seen, by id.
    known: HashMap<NodeId, SeenNode>,
    refused: Refusals,
}

struct SeenNode {
    uid: String,
    version: i64,
    /// Owner of the recordings that were kept.
    claimant: Holder,
}

/// Why a client cannot attach to a console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachRefused {
    /// Another client types: its name.
    KeyboardTaken(String),
    /// The line still goes to the node's former BMC.
    BmcChanged,
}

impl FeatureState for Consoles {
    fn new(config: &Config) -> Self {
        let folder = config.shared_dir.join(FOLDER);
        // Nothing is recorded without the block `console`.
        let nothing = Settings {
            record: Record::Never,
            ..Settings::default()
        };
        let settings = config.console.clone().unwrap_or(nothing);
        Self {
            is_kept: settings.record != Record::Never || folder.is_dir(),
            settings,
            folder,
            inner: Mutex::default(),
            hub_added: Notify::new(),
        }
    }
}

impl Consoles {
    /// Settings: which consoles are recorded, and how much is kept.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Folder of an enrolled node's recordings.
    #[must_use]
    pub fn folder(&self, node_uid: &str) -> PathBuf {
        self.folder.join(node_uid)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hub_of(&self, inner: &mut Inner, node: &NodeId) -> Arc<Hub> {
        if let Some(hub) = inner.hubs.get(node) {
            return Arc::clone(hub);
        }
        let hub = Hub::new(node);
        inner.hubs.insert(node.to_owned(), Arc::clone(&hub));
        inner.new_hubs.push(Arc::clone(&hub));
        self.hub_added.notify_one();
        hub
    }

    /// Takes a node's current record: begins or ends its recording, and removes recordings of former holders. Each step
    /// of the runner calls this; if another replica does the steps, the line's task calls it.
    pub fn seen(&self, record: &NodeRecord) {
        if !self.is_kept {
            // Watchers still need to learn about another holder.
            if let Some(hub) = self.inner().hubs.get(&record.id) {
                hub.set(false, &access::holder(record));
            }
            return;
        }
        let (holder, claimant) = (access::holder(record), access::claimant(record));
        let is_wanted = self.settings.records(record.node.state);
        let has_changed = {
            let mut inner = self.inner();
            let former = inner.known.get(&record.id);
            // The record was read before a step changed the node and arrives late. A newer record was seen already.
            if former.is_some_and(|known| known.uid == record.uid && known.version > record.version) {
                return;
            }
            let recorded = || inner.hubs.values().filter(|hub| hub.is_recorded()).count();
            match inner.hubs.get(&record.id) {
                Some(hub) => hub.set(is_wanted, &holder),
                None if is_wanted && recorded() < self.settings.at_once => {
                    self.hub_of(&mut inner, &record.id).set(true, &holder);
                }
                None if is_wanted => {
                    tracing::warn!(node = %record.id, "too many consoles are recorded: this console is not recorded")
                }
                None => {}
            }
            let now = SeenNode {
                uid: record.uid.clone(),
                version: record.version,
                claimant: claimant.clone(),
            };
            let former = inner.known.insert(record.id.clone(), now);
            former.is_none_or(|former| (former.uid, former.claimant) != (record.uid.clone(), claimant.clone()))
        };
        if has_changed {
            let (folder, node) = (self.folder(&record.uid), record.id.clone());
            tokio::task::spawn_blocking(move || match remove_held(&folder, &claimant) {
                Ok(0) => {}
                Ok(count) => tracing::info!(
                    node = node.as_str(),
                    count,
                    "recordings of the node's former owner were removed"
                ),
                Err(error) => {
                    tracing::error!(node = node.as_str(), %error, "recordings of the node's former owner could not be removed")
                }
            });
        }
    }

    /// Notes that a node is about to be switched on.
    pub fn note_power_on(&self, node: &NodeId, now: Timestamp) {
        if let Some(hub) = self.inner().hubs.get(node) {
            hub.note_boot(now.0);
        }
    }

    /// Attaches a client to a console.
    ///
    /// # Errors
    /// Another client types and `entry` does not take over, or the line still goes to the node's former machine.
    pub fn attach(&self, record: &NodeRecord, entry: Entry, caller_name: &str) -> Result<Attachment, AttachRefused> {
        let mut inner = self.inner();
        let hub = self.hub_of(&mut inner, &record.id);
        // The line's task will notice the change and end the line. Until then no output of the former machine is shown.
        if !hub.may_serve(&Machine::of(record)) {
            return Err(AttachRefused::BmcChanged);
        }
        if !hub.is_wanted() {
            hub.set(false, &access::holder(record));
        }
        hub.attach(entry, caller_name).map_err(AttachRefused::KeyboardTaken)
    }

    /// Notes that the SSH server of a node's BMC refused the login.
    fn refused(&self, record: &NodeRecord, why: String) {
        self.inner().refused.keep(record, why);
    }

    /// Why the login of a node's BMC is held back; `None` if it may be sent.
    fn refusal(&self, record: &NodeRecord) -> Option<String> {
        self.inner().refused.find(record)
    }

    /// Removes a line that is not in demand. Returns false if the line goes on.
    fn retire(&self, hub: &Arc<Hub>) -> bool {
        let mut inner = self.inner();
        if hub.is_wanted() {
            return false;
        }
        if inner.hubs.get(&hub.node).is_some_and(|known| Arc::ptr_eq(known, hub)) {
            inner.hubs.remove(&hub.node);
        }
        true
    }

    /// Number of consoles in demand, and of those that are recorded.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        let inner = self.inner();
        let recorded = inner.hubs.values().filter(|hub| hub.is_recorded()).count();
        (inner.hubs.len(), recorded)
    }
}

/// Removes recordings that are too old, including those of deleted nodes.
#[expect(clippy::disallowed_methods, reason = "runs in spawn_blocking")]
fn sweep(folder: &Path, age_us: i64, now_us: i64) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if let Err(error) = remove_old(&entry.path(), age_us, now_us) {
            tracing::warn!(folder = %entry.path().display(), %error, "old recordings could not be removed");
        }
    }
}

/// Runs all lines until the core stops.
pub async fn run(core: Arc<Core>) {
    let mut lines = JoinSet::new();
    let mut sweeps = tokio::time::interval(SWEEP);
    loop {
        let new_hubs = std::mem::take(&mut core.feature::<Consoles>().inner().new_hubs);
        for hub in new_hubs {
            lines.spawn(hub::run(core.clone(), hub));
        }
        tokio::select! {
            () = core.stop.cancelled() => break,
            () = core.feature::<Consoles>().hub_added.notified() => {}
            _ = sweeps.tick(), if core.feature::<Consoles>().is_kept => {
                let (folder, age_us) = (core.feature::<Consoles>().folder.clone(), core.feature::<Consoles>().settings.bounds().age_us);
                tokio::task::spawn_blocking(move || sweep(&folder, age_us, clock::now().0));
            }
            Some(_) = lines.join_next() => {}
        }
    }
    lines.shutdown().await;
}

#[cfg(test)]
mod tests;
