//! For tests of this crate and of the crates above: a core in a folder of its own, without sockets and without tasks, and
//! records to fill it with. The daemon uses nothing of this module.
//!
//! | module | content |
//! |---|---|
//! | `nodes` | a node in every state, and every request about a node |
//!
//! The other hooks of tests are ordinary parts of the product that the daemon leaves empty: `crash_points` and `tasks` of
//! the core, `clock::simulated`, and `State::replace_feature`.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // helpers of tests fail loudly, and block

pub mod nodes;

use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rackwright_identity::SystemRng;
use rackwright_image::index::CHUNK_SIZE;
use rackwright_image::{ChunkDigest, DataChunk, Format, ImageDigest, Index, Sha256};
use rackwright_lifecycle::{
    Attempt, Claim, ClusterId, Effect, Evidence, Node, NodeId, Outcome, State, Timestamp, Wait, Wanted,
};
use rackwright_store::{
    AgentBootRow, AgentConnection, AgentSession, ClusterRecord, ClusterSpec, EffectRow, Identity, NodeRecord, Readings,
    Scope, SiteFile, SiteRow, Spec,
};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::Config;
use crate::core::Core;
use crate::deployment_keys::new_keys;
use crate::hall;
use crate::open::{self, OpenError};
use crate::start::pause::Pause;
use crate::start::restored;
use crate::telemetry::Traces;

/// A core and its folder. The folder is removed with it.
pub struct TestCore {
    core: Arc<Core>,
    _folder: Folder,
}

impl Deref for TestCore {
    type Target = Arc<Core>;

    fn deref(&self) -> &Arc<Core> {
        &self.core
    }
}

impl TestCore {
    /// The core, to replace parts of it before its first use.
    ///
    /// # Panics
    /// The core is in use.
    pub fn parts(&mut self) -> &mut Core {
        Arc::get_mut(&mut self.core).expect("the core is not in use yet")
    }
}

/// A new folder for its owner alone, removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("rackwright-{}", clock::new_id(&SystemRng)));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Another process may still write a file of the database. What remains lies among the temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A core as after a first start.
pub async fn core() -> TestCore {
    core_with("").await
}

/// The same with more lines of settings.
pub async fn core_with(further: &str) -> TestCore {
    let folder = Folder::new();
    let core = open(config(&folder.0, further)).await.unwrap();
    TestCore { core, _folder: folder }
}

/// Opens the state of a site without a check for other daemons, and advances the age of its database.
///
/// # Errors
/// The state cannot be opened.
///
/// # Panics
/// The age of the database cannot be advanced.
pub async fn open(config: Config) -> Result<Arc<Core>, OpenError> {
    let keys = open::load_keys(&config)?;
    let stop = CancellationToken::new();
    let core = open::open(config, keys, Pause::new(false, None), Traces::default(), stop).await?;
    restored::advance(&core, false).await.unwrap();
    Ok(core)
}

/// Settings with their data below `dir`, and more lines. Machines of tests have no TPM, except where `further` has settings of
/// the identity.
pub fn config(dir: &Path, further: &str) -> Config {
    let path = dir.join("rackwrightd.yaml");
    let identity = match further.contains("identity:") {
        true => "",
        false => "identity: {address_only: allow}\n",
    };
    let text = format!(
        "data_dir: {}\nstorage: {{reserve_mib: 256}}\napi: {{names: [localhost]}}\nstore: {{caches: [cache-1]}}\n\
         {identity}{further}",
        data(dir)
    );
    std::fs::write(&path, text).unwrap();
    Config::load(&path).unwrap()
}

fn data(dir: &Path) -> String {
    dir.join("data").display().to_string()
}

/// Stores the next version of the site, which consists of one file without faults. The call `ApplySite` also compares the
/// site with what clusters hold, and lets the wanted firmware settings be read again at once.
pub async fn put_site(core: &Core, text: &str) {
    let files = vec![SiteFile {
        name: "site.yaml".into(),
        text: text.to_owned(),
    }];
    assert!(hall::read(&files).site.is_some(), "the site file has faults");
    put_files(core, files).await;
}

async fn put_files(core: &Core, files: Vec<SiteFile>) {
    let former = core.store.site().await.unwrap();
    let row = SiteRow {
        version: former.as_ref().map_or(1, |row| row.version + 1),
        uid: former.map_or_else(|| core.new_id(), |row| row.uid),
        digest: format!("b3-{}", blake3::hash(files[0].text.as_bytes()).to_hex()),
        files,
        applied_by: "operator".into(),
        applied_at: clock::now(),
    };
    let mut tx = core.store.write().await.unwrap();
    let mut hall = tx.hall().await.unwrap();
    tx.insert_site(&row).await.unwrap();
    tx.save_hall(&mut hall).await.unwrap();
    core.commit(tx).await.unwrap();
}

/// Stores a version of the site that cannot be read, as after damage of the database.
pub async fn damage_site(core: &Core) {
    let files = vec![SiteFile {
        name: "site.yaml".into(),
        text: "site: {nme: s}\n".into(),
    }];
    put_files(core, files).await;
}

/// Stores the index of an image with this number of chunks, without the chunks. Returns the image's digest.
pub fn put_index(core: &Core, chunks: u32) -> String {
    let data = (0..chunks).map(|number| DataChunk {
        number,
        digest: ChunkDigest::of(&number.to_le_bytes()),
    });
    let size = u64::from(chunks) * CHUNK_SIZE as u64;
    let index = Index::new(size, Format::Raw, Sha256([0; 32]), data.collect()).unwrap();
    let bytes = index.encode();
    let digest = ImageDigest::of(&bytes);
    let path = core.chunks.image_path(&digest);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
    digest.to_string()
}

/// Adds a node in a rack that writes an image: its agent is registered with the kernel's boot id "kernel", and the job is
/// open. Returns the agent's session, and the job's operation.
pub async fn writing(core: &Core, id: &str, rack: &str, image: &str) -> (AgentSession, String) {
    let mut record = node(id, State::Imaging, Some(image));
    record.labels = [("rack".to_owned(), rack.to_owned())].into();
    // An older state would be past its deadline.
    record.node.since = clock::now();
    add(core, &record).await;
    let session = booted(core, id, "kernel").await;
    let row = EffectRow {
        id: core.new_id(),
        node_id: record.id.clone(),
        state_since: record.node.since,
        number: 2,
        generation: session.generation,
        owner: core.replica.clone(),
        attempt: Attempt {
            effect: Effect::WriteImage,
            started_at: clock::now(),
            ended_at: None,
            deadline: clock::now().plus(rackwright_lifecycle::seconds(600)),
            outcome: Outcome::Open,
            boot_id: Some("kernel".into()),
        },
    };
    let keys = new_keys(core, &record.id, (session.generation, 1), "").unwrap();
    let mut tx = core.store.write().await.unwrap();
    tx.put_deployment_keys(&record.id, session.generation, 1, &keys)
        .await
        .unwrap();
    tx.begin_effect(&row).await.unwrap();
    tx.commit().await.unwrap();
    (session, row.id)
}

/// A node in `state`; claimed if there is an image digest.
pub fn node(id: &str, state: State, image_digest: Option<&str>) -> NodeRecord {
    let claim = image_digest.map(|digest| Claim {
        generation: 0,
        deployment: 1,
        image_digest: digest.to_owned(),
        image_name: "images/some".into(),
        hostname: id.to_owned(),
        ssh_authorized_keys: Vec::new(),
        has_user_data: false,
        plain_user_data: String::new(),
        root_drive: String::new(),
        verify_whole_disk: false,
        release_requested: false,
        handed_over: None,
        customer: "".into(),
        cluster: None,
    });
    let at = Timestamp(1);
    NodeRecord {
        id: NodeId::stored(id.to_owned()),
        uid: format!("uid-{id}"),
        version: 1,
        node: Node {
            state,
            since: at,
            generation: 0,
            claim,
            wanted: Wanted::default(),
            evidence: Evidence::default(),
            doubt: None,
        },
        spec: Spec::default(),
        labels: [].into(),
        identity: Identity::default(),
        reason: String::new(),
        readings: Readings::default(),
        hold: AgentConnection::default(),
        address: String::new(),
        address_witness: String::new(),
        wait: Wait::Rest,
        wait_until: at,
        due_at: at,
        created_at: at,
        updated_at: at,
    }
}

/// A reserved cluster.
pub fn cluster(id: &str) -> ClusterRecord {
    let (uid, customer) = (format!("uid-{id}"), "acme".into());
    ClusterRecord::new(
        ClusterId::stored(id.to_owned()),
        uid,
        customer,
        ClusterSpec::default(),
        Timestamp(1),
    )
}

/// Stores a wait of an hour for a node.
pub async fn rest(core: &Core, id: &str, wait: &Wait) {
    let record = core.store.node(&Scope::Site, &NodeId::stored(id)).await.unwrap();
    let hour = clock::now().plus(rackwright_lifecycle::seconds(3600));
    core.store.rest(&record, wait, hour).await.unwrap();
}

/// Inserts a node.
pub async fn add(core: &Core, record: &NodeRecord) {
    let mut tx = core.store.write().await.unwrap();
    tx.insert_node(record).await.unwrap();
    tx.commit().await.unwrap();
}

/// Stores that a node was switched on in its present state. Returns the id of that boot.
pub async fn switched_on(core: &Core, id: &str) -> String {
    let boot = core.new_id();
    let mut tx = core.store.write().await.unwrap();
    let record = tx.node(&NodeId::stored(id)).await.unwrap();
    let at = clock::now();
    let row = EffectRow {
        id: boot.clone(),
        node_id: NodeId::stored(id.to_owned()),
        state_since: record.node.since,
        number: 1,
        generation: record.node.generation,
        owner: core.replica.clone(),
        attempt: Attempt {
            effect: Effect::PowerOn,
            started_at: at,
            ended_at: None,
            deadline: at,
            outcome: Outcome::Open,
            boot_id: None,
        },
    };
    tx.begin_effect(&row).await.unwrap();
    tx.end_effect(&boot, &Outcome::Succeeded, at).await.unwrap();
    tx.commit().await.unwrap();
    boot
}

/// The same, with an agent registered from that boot. Returns the agent's session.
pub async fn booted(core: &Core, id: &str, kernel_boot_id: &str) -> AgentSession {
    let boot = switched_on(core, id).await;
    let mut tx = core.store.write().await.unwrap();
    let record = tx.node(&NodeId::stored(id)).await.unwrap();
    let row = AgentBootRow {
        node_id: NodeId::stored(id.to_owned()),
        boot: boot.clone(),
        state_since: record.node.since,
        powered_on_at: clock::now(),
        mac: "52:54:00:00:00:01".into(),
        address: "10.0.0.9".into(),
        kernel_boot_id: kernel_boot_id.to_owned(),
        registered_at: clock::now(),
        ..AgentBootRow::default()
    };
    tx.put_agent_boot(&row).await.unwrap();
    tx.commit().await.unwrap();
    let generation = record.node.generation;
    AgentSession { generation, boot }
}
