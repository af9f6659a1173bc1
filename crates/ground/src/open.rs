//! Opens the state of a site: keys, database and folders. Missing ones are created.
//!
//! The daemon opens its state once, at its start. Tests open states in folders of their own (`testing`).

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rackwright_identity::{KeyFiles, Rng, SystemRng};
use rackwright_image::ChunkStore;
use rackwright_lifecycle::seconds;
use rackwright_store::{Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::agents::Agents;
use crate::audit::Audit;
use crate::bmc::Bmcs;
use crate::config::Config;
use crate::core::{Core, Listeners, RunningSteps, State};
use crate::features::Features;
use crate::firmware_files::Files;
use crate::keys::authority::AuthorityError;
use crate::measured_boot::ServedFiles;
use crate::metrics::Metrics;
use crate::parts::Health;
use crate::share::replica_name;
use crate::site_uploads::SiteUploads;
use crate::space::Space;
use crate::start::pause::Pause;
use crate::telemetry::Traces;
use crate::uploads::Uploads;
use crate::watch_status::WatchStatus;
use crate::{clock, keys};

/// After this time without a sign of life from any replica, agents had no replica to connect to.
const OUTAGE_S: i64 = 30;

/// Why the state of a site cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A folder or file of the data folder failed.
    #[error("{what}: {source}")]
    Data {
        /// The folder or file.
        what: String,
        /// The reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database failed.
    #[error(transparent)]
    Database(#[from] StoreError),
    /// The database and the keys are of two sites.
    #[error(
        "the database belongs to the site with authority {site}, and the keys in {} belong to authority {ours}: copy the \
         key folder from another rackwrightd of that site, or name another database",
        keys.display()
    )]
    OtherSite {
        /// The authority of the database's site.
        site: String,
        /// The authority of the keys.
        ours: String,
        /// The folder of the keys.
        keys: PathBuf,
    },
    /// The site's sealing key was changed, and this replica has only older keys.
    #[error(
        "the secrets of this site are sealed with key {needed}, and {} does not contain this key: copy the folder from \
         another rackwrightd of the site, or from the backup made after the last rotation",
        keys.display()
    )]
    OldKeys {
        /// The id of the key.
        needed: String,
        /// The folder of the keys.
        keys: PathBuf,
    },
    /// The keys of this replica cannot follow the site's authority.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

fn data(what: impl Into<String>) -> impl FnOnce(Box<dyn std::error::Error + Send + Sync>) -> OpenError {
    let what = what.into();
    move |source| OpenError::Data { what, source }
}

/// Loads the keys of the site from the data folder, or creates them at the first start.
///
/// # Errors
/// The folder of the keys cannot be read or written.
pub fn load_keys(config: &Config) -> Result<KeyFiles, OpenError> {
    let (dir, now) = (&config.data_dir, clock::system_time(clock::now()));
    let subject = format!("Rackwright {}", config.site);
    let keys = KeyFiles::load_or_create(dir, &subject, now, Arc::new(SystemRng));
    keys.map_err(|e| data(format!("keys in {}", dir.display()))(e.into()))
}

/// Opens database and folders of the site that has these keys, and creates missing ones.
///
/// # Errors
/// A folder or the database cannot be opened, or the keys do not fit the database.
pub async fn open(
    config: Config,
    keys: KeyFiles,
    pause: Pause,
    traces: Traces,
    stop: CancellationToken,
) -> Result<Arc<Core>, OpenError> {
    let rng: Arc<dyn Rng> = Arc::new(SystemRng);
    let dir = config.data_dir.clone();
    let store = Store::open(config.database.clone()).await?;
    let ours = keys.authority.site_id();
    let site = store.site_authority(&ours).await?;
    if site != ours {
        let keys = dir.join("keys");
        return Err(OpenError::OtherSite { site, ours, keys });
    }
    let needed = store.required_sealing_key().await?;
    if !needed.is_empty() && !keys.sealer.key_ids().contains(&needed) {
        let keys = dir.join("keys");
        return Err(OpenError::OldKeys { needed, keys });
    }
    let shared = &config.shared_dir;
    let path = shared.join("images");
    let chunks = ChunkStore::open(&path).map_err(|e| data(format!("image store {}", path.display()))(e.into()))?;
    let path = shared.join("uploads");
    let uploads = Uploads::open(path.clone()).map_err(|e| data(format!("uploads {}", path.display()))(e.into()))?;
    let path = shared.join("firmware");
    let firmware_files = Files::open(path.clone());
    let firmware_files = firmware_files.map_err(|e| data(format!("firmware {}", path.display()))(e.into()))?;
    let replica = replica_name(&dir);
    // The time since which agents have always had a replica to connect to. A missing agent counts as lost after a grace from
    // that time, not from the start of each process: repeated crashes would extend the grace without end.
    let up_since = store.begin_replica(&replica, clock::now(), seconds(OUTAGE_S)).await?;
    keys::authority::begin(&store, &keys, &dir).await?;
    keys::agree(&store, &keys, &replica, String::new()).await?;
    let audit = Audit::open(&dir, &config.site, &replica, &keys);
    let audit = audit.map_err(|e| data("the newest head of the audit")(e.into()))?;
    let sites = crate::hall::Sites::new(crate::hall::managed::Managed::of(config.fabric.as_ref()));
    Ok(Arc::new(Core::new(State {
        agents: Agents::new(&replica, up_since),
        served_files: ServedFiles::default(),
        audit,
        store,
        replica,
        password_changes: tokio::sync::Semaphore::new(config.bmc_accounts.clone().unwrap_or_default().at_once),
        bmcs: Bmcs::new(config.bmc_quirks.clone()),
        listeners: Listeners::new(&config.connections),
        space: Space::new(&config.storage),
        bmc_work: Notify::new(),
        ipmi: Arc::default(),
        config,
        keys,
        authority_changes: keys::authority::AuthorityChanges::default(),
        rng,
        logins: rackwright_validate::Logins::default(),
        chunks,
        uploads,
        waits: crate::waits::Waits::default(),
        rights: Arc::default(),
        firmware_files,
        site_uploads: SiteUploads::default(),
        sites,
        clusters_due: Notify::new(),
        running_steps: RunningSteps::default(),
        watch: WatchStatus::default(),
        metrics: Metrics::new(&traces.counts),
        traces,
        boot_counts: Mutex::default(),
        commits: watch::Sender::new(0),
        health: Health::default(),
        pause,
        stop,
        crash_points: None,
        features: Features::default(),
        tasks: None,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn keys_of_another_site_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let further = format!("database: {}\n", dir.path().join("site.db").display());
        let start = async |name: &str| {
            let own = dir.path().join(name);
            std::fs::create_dir_all(&own).unwrap();
            testing::open(testing::config(&own, &further)).await
        };
        start("one").await.unwrap();
        let refused = start("two").await.map(drop).unwrap_err();
        assert!(matches!(refused, OpenError::OtherSite { .. }), "{refused}");
        assert!(refused.to_string().contains("two/data/keys"), "{refused}");
        start("one").await.unwrap();
    }
}
