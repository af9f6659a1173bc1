//! For unit tests: a core over a folder of its own, without sockets and without tasks.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use rackwright_lifecycle::{Claim, Evidence, Node, State, Timestamp, Wanted};
use rackwright_store::{ClusterRecord, ClusterSpec, Hold, Identity, NodeRecord, Readings, Scope, Spec};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::Config;
use crate::core::Core;
use crate::daemon;
use crate::telemetry::Traces;

/// A core and the folder it lives in.
pub struct TestCore {
    core: Arc<Core>,
    _dir: TempDir,
}

impl Deref for TestCore {
    type Target = Arc<Core>;

    fn deref(&self) -> &Arc<Core> {
        &self.core
    }
}

/// A core as of a first start.
pub async fn core() -> TestCore {
    core_with("").await
}

/// The same with further lines of settings.
pub async fn core_with(further: &str) -> TestCore {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), further);
    let core = daemon::open(config, Traces::default(), CancellationToken::new())
        .await
        .unwrap();
    TestCore { core, _dir: dir }
}

/// Settings with their data below `dir`, and further lines.
pub fn config(dir: &Path, further: &str) -> Config {
    let path = dir.join("rackwrightd.yaml");
    let text = format!(
        "data_dir: {}\napi: {{names: [localhost]}}\nstore: {{caches: [cache-1]}}\n{further}",
        data(dir)
    );
    std::fs::write(&path, text).unwrap();
    Config::load(&path).unwrap()
}

fn data(dir: &Path) -> String {
    dir.join("data").display().to_string()
}

/// A node in `state`, claimed with an image where a digest is given.
pub fn node(id: &str, state: State, image_digest: Option<&str>) -> NodeRecord {
    let claim = image_digest.map(|digest| Claim {
        generation: 0,
        deployment: 1,
        image_digest: digest.to_owned(),
        image_name: "images/some".into(),
        hostname: id.to_owned(),
        ssh_authorized_keys: Vec::new(),
        user_data: String::new(),
        root_drive: String::new(),
        verify_whole_disk: false,
        release_requested: false,
        handed_over: None,
        customer: String::new(),
        cluster: None,
    });
    let at = Timestamp(1);
    NodeRecord {
        id: id.to_owned(),
        uid: format!("uid-{id}"),
        version: 1,
        node: Node {
            state,
            since: at,
            generation: 0,
            claim,
            wanted: Wanted::default(),
            evidence: Evidence::default(),
        },
        spec: Spec::default(),
        labels: [].into(),
        identity: Identity::default(),
        reason: String::new(),
        readings: Readings::default(),
        hold: Hold::default(),
        address: String::new(),
        wait_why: String::new(),
        wait_until: at,
        due_at: at,
        created_at: at,
        updated_at: at,
    }
}

/// A cluster that is reserved.
pub fn cluster(id: &str) -> ClusterRecord {
    let (uid, customer) = (format!("uid-{id}"), "acme".to_owned());
    ClusterRecord::new(id.to_owned(), uid, customer, ClusterSpec::default(), Timestamp(1))
}

/// Puts a node to rest for an hour, as it is.
pub async fn rest(core: &Core, id: &str, why: &str) {
    let record = core.store.node(&Scope::Site, id).await.unwrap();
    let hour = clock::now().plus(rackwright_lifecycle::seconds(3600));
    core.store.rest(&record, why, hour).await.unwrap();
}

/// Puts a node in.
pub async fn add(core: &Core, record: &NodeRecord) {
    let mut tx = core.store.write().await.unwrap();
    tx.insert_node(record).await.unwrap();
    tx.commit().await.unwrap();
}
