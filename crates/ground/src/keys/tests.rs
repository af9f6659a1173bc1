use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use rackwright_identity::{KeyFiles, SystemRng, sealed_under};
use rackwright_lifecycle::{NodeId, State, Timestamp};
use rackwright_store::{
    ClusterSpec, DeploymentKeys, DiscoveryRow, FactoryCredential, FindingRow, FormerSpec, PendingPassword, Scope,
    SealedColumn, SealedSecret,
};
use secrecy::ExposeSecret as _;
use tokio::sync::Notify;

use super::authority::AuthorityError;
use super::reseal::ResealCounts;
use super::rotate::RotateError;
use super::*;
use crate::bmc::bmc_password_purpose;
use crate::core::{CrashPoint, CrashPoints};
use crate::deployment_keys::deployment_key_purpose;
use crate::keys::purposes::factory_password_purpose;
use crate::keys::purposes::login_purpose;
use crate::keys::purposes::secrets_purpose;
use crate::open::OpenError;
use crate::{testing, user_data};

/// All sealed secrets, from every place that has them: the purpose and the sealed bytes.
async fn sealed(core: &Core) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let store = &core.store;
    for record in store.nodes(&Scope::Site, &Vec::new(), "", 1000).await.unwrap() {
        let purpose = bmc_password_purpose(&record.id);
        if let Some(pending) = record.spec.account.pending {
            all.push((purpose.clone(), pending.password));
        }
        all.push((purpose, record.spec.bmc_password));
        let keys = store.deployment_keys(&record.id, 7, 2).await.unwrap();
        let purpose = |what| deployment_key_purpose(what, &record.id, 7, 2);
        all.push((purpose("host"), keys.host_private));
        all.push((purpose("provision"), keys.provision_private));
        all.push((user_data::node_purpose(&record.id, 7, 2), keys.user_data));
    }
    let record = store.cluster(&Scope::Site, &"alpha".into()).await.unwrap();
    for spec in [&record.spec, &record.former.as_ref().unwrap().spec] {
        let data = spec.user_data.clone().unwrap();
        let purpose = user_data::cluster_purpose(&"alpha".into(), &record.uid, data.build);
        all.push((purpose, data.sealed));
    }
    for one in store.factory_credentials().await.unwrap() {
        all.push((factory_password_purpose(&one.id), one.password));
    }
    all.push((
        secrets_purpose(&"d1".into()),
        store.discovery(&"d1".into()).await.unwrap().secrets,
    ));
    for one in store.findings(&"d1".into(), "*", "", 1000).await.unwrap() {
        all.push((login_purpose(&"d1".into(), &one.place), one.login));
    }
    all.push((
        "console-host-key".into(),
        store.sealed_key("console-host-key").await.unwrap().unwrap(),
    ));
    all
}

/// Number of secrets under another key than this one. All can be opened.
async fn count_under_others(core: &Core, key: &str) -> usize {
    let all = sealed(core).await;
    for (purpose, blob) in &all {
        let text = core.keys.sealer.open(blob, purpose).unwrap();
        assert_eq!(text.expose_secret(), format!("secret of {purpose}"));
    }
    all.iter()
        .filter(|(_, blob)| sealed_under(blob).unwrap() != key)
        .count()
}

async fn fill(core: &Core) {
    let seal = |purpose: String| {
        let text = format!("secret of {purpose}");
        core.keys.sealer.seal(&text.into(), &purpose).unwrap()
    };
    let mut tx = core.store.write().await.unwrap();
    for id in ["n1", "n2", "n3"] {
        let mut record = testing::node(id, State::Available, None);
        record.spec.bmc_password = seal(bmc_password_purpose(&NodeId::stored(id)));
        record.spec.account.pending = (id == "n2").then(|| PendingPassword {
            username: "admin".into(),
            password: seal(bmc_password_purpose(&NodeId::stored(id))),
            at: Timestamp(1),
            refused_new: 0,
            refused_old: 0,
        });
        tx.insert_node(&record).await.unwrap();
        let keys = DeploymentKeys {
            host_public: "h".into(),
            host_private: seal(deployment_key_purpose("host", &NodeId::stored(id), 7, 2)),
            provision_public: "p".into(),
            provision_private: seal(deployment_key_purpose("provision", &NodeId::stored(id), 7, 2)),
            user_data: seal(user_data::node_purpose(&NodeId::stored(id), 7, 2)),
        };
        tx.put_deployment_keys(&NodeId::stored(id), 7, 2, &keys).await.unwrap();
    }
    let mut record = testing::cluster("alpha");
    let spec = |build: u32| ClusterSpec {
        user_data: Some(rackwright_store::SealedUserData {
            build,
            sealed: seal(user_data::cluster_purpose(&"alpha".into(), &record.uid, build)),
        }),
        ..ClusterSpec::default()
    };
    let former = FormerSpec {
        build: 1,
        spec: spec(1),
    };
    (record.spec, record.former) = (spec(2), Some(former));
    tx.insert_cluster(&record).await.unwrap();
    for (place, id) in ["f1", "f2"].iter().enumerate() {
        let one = FactoryCredential {
            id: (*id).into(),
            pattern: "*".into(),
            username: "root".into(),
            password: seal(factory_password_purpose(id)),
            place: place as i64,
            created_by: "operator".into(),
            created_at: Timestamp(1),
        };
        tx.add_factory_credential(&one).await.unwrap();
    }
    let search = DiscoveryRow {
        id: "d1".into(),
        phase: "looking".into(),
        secrets: seal(secrets_purpose(&"d1".into())),
        ..DiscoveryRow::default()
    };
    tx.insert_discovery(&search, 10).await.unwrap();
    let finding = |place: &str| FindingRow {
        discovery: "d1".into(),
        place: place.into(),
        address: place.into(),
        state: "read".into(),
        body: "{}".into(),
        login: seal(login_purpose(&"d1".into(), place)),
        ..FindingRow::default()
    };
    tx.put_findings(&[finding("a"), finding("b")]).await.unwrap();
    let name = "console-host-key";
    tx.keep_sealed_key(name, &seal(name.to_owned())).await.unwrap();
    tx.commit().await.unwrap();
}

/// Ends a process after a number of commits: it stops there forever.
struct Kill {
    left: AtomicUsize,
    dead: Arc<Notify>,
}

impl CrashPoints for Kill {
    fn reach(&self, point: CrashPoint) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        if point == CrashPoint::AfterCommit && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.dead.notify_one();
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(()))
    }
}

/// A process over a folder, which ends after `commits` commits, and the notification of its end.
async fn process(dir: &Path, commits: usize) -> (Arc<Core>, Arc<Notify>) {
    let config = testing::config(dir, "");
    let opened = testing::open(config).await;
    let mut core = Arc::into_inner(opened.unwrap()).unwrap();
    let dead = Arc::new(Notify::new());
    core.crash_points = Some(Arc::new(Kill {
        left: AtomicUsize::new(commits),
        dead: dead.clone(),
    }));
    (Arc::new(core), dead)
}

const NEVER: usize = usize::MAX;

fn rotate(dir: &Path) -> String {
    let (_, key) = KeyFiles::rotate_sealing_key(&dir.join("data"), &SystemRng).unwrap();
    key
}

async fn left(core: &Core, key: &str) -> i64 {
    let header = rackwright_identity::seal_header(key).unwrap();
    let mut tx = core.store.write().await.unwrap();
    tx.count_to_reseal(&header).await.unwrap()
}

#[tokio::test]
async fn a_killed_reseal_is_finished_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (core, _) = process(dir.path(), NEVER).await;
    fill(&core).await;
    assert_eq!(count_under_others(&core, &core.keys.sealer.seals_with()).await, 0);
    drop(core);
    let key = rotate(dir.path());
    let (mut before, mut deaths) = (usize::MAX, 0);
    while before > 0 {
        let (core, dead) = process(dir.path(), 1).await;
        assert_eq!(core.keys.sealer.seals_with(), key);
        tokio::select! {
            done = reseal::all(&core, 1) => assert_eq!(done.unwrap().failed, 0),
            () = dead.notified() => deaths += 1,
        }
        let now = count_under_others(&core, &key).await;
        assert!(now < before, "{now} of {before} are left: nothing was done");
        before = now;
    }
    assert!(deaths > 15, "it died {deaths} times");
    let (core, _) = process(dir.path(), NEVER).await;
    assert_eq!(left(&core, &key).await, 0);
    assert_eq!(reseal::all(&core, 20).await.unwrap(), ResealCounts::default());
}

#[tokio::test]
async fn an_unreadable_secret_blocks_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (core, _) = process(dir.path(), NEVER).await;
    fill(&core).await;
    let other = core.keys.sealer.seal(&"x".into(), "for something else").unwrap();
    let secret = |key: &[&str]| SealedSecret {
        key: key.iter().map(|part| (*part).to_owned()).collect(),
        sealed: other.clone(),
    };
    let mut tx = core.store.write().await.unwrap();
    let (host, factory) = (SealedColumn::HostKey, SealedColumn::FactoryPassword);
    tx.put_sealed(host, &secret(&["n1", "7", "2"])).await.unwrap();
    tx.put_sealed(factory, &secret(&["f1"])).await.unwrap();
    let mut record = tx.node(&"n1".into()).await.unwrap();
    record.spec.bmc_password = other;
    tx.save_node(&mut record, clock::now()).await.unwrap();
    tx.commit().await.unwrap();
    let key = rotate(dir.path());
    core.keys.refresh(&core.config.data_dir).unwrap();
    assert!(core.keys.sealer.use_sealing_key(&key));
    let all = left(&core, &key).await;
    let done = reseal::all(&core, 2).await.unwrap();
    assert_eq!((done.failed, left(&core, &key).await), (3, 3), "{done:?} of {all}");
    assert_eq!(
        reseal::all(&core, 2).await.unwrap(),
        ResealCounts { resealed: 0, failed: 3 }
    );
}

#[tokio::test]
async fn a_running_process_adopts_a_new_key_and_reports_the_end_of_resealing() {
    let dir = tempfile::tempdir().unwrap();
    let (core, _) = process(dir.path(), NEVER).await;
    fill(&core).await;
    let (config, mut reported) = (core.config.clone(), ReportedState::default());
    let config = &config;
    round(&core, &mut reported).await.unwrap();
    let refused = rotate::finish_sealing(config).await.unwrap_err();
    assert!(matches!(refused, RotateError::NoOlder), "{refused}");

    let output = rotate::sealing(config).await.unwrap();
    let key = KeyFiles::load_or_create(
        &config.data_dir,
        "",
        clock::system_time(clock::now()),
        Arc::new(SystemRng),
    );
    let key = key.unwrap().sealer.seals_with();
    assert!(output.contains(&key) && output.contains("sealing-0002.key"), "{output}");
    // The process still uses the old key.
    let refused = rotate::finish_sealing(config).await.unwrap_err();
    assert!(matches!(refused, RotateError::Behind(_)), "{refused}");

    take_up(&core).await;
    round(&core, &mut reported).await.unwrap();
    assert_eq!(count_under_others(&core, &key).await, 0);
    assert_eq!(reported.done, key);
    let refused = rotate::finish_sealing(config).await.unwrap_err();
    assert!(
        matches!(refused, RotateError::Behind(_)),
        "it is sure only after another round: {refused}"
    );
    round(&core, &mut reported).await.unwrap();
    rotate::finish_sealing(config).await.unwrap();
    let names = std::fs::read_dir(config.data_dir.join("keys")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        names.contains(&"sealing-0002.key".into()) && !names.contains(&"sealing-0001.key".into()),
        "{names:?}"
    );

    let events = core.store.events(&Scope::Site, 0, "site", 100).await.unwrap();
    let kinds: Vec<String> = events.into_iter().map(|event| event.kind.to_string()).collect();
    assert_eq!(
        kinds,
        [
            "security.keys-rotated",
            "security.secrets-resealed",
            "security.keys-rotated"
        ]
    );
    drop(core);
    let (core, _) = process(dir.path(), NEVER).await;
    assert_eq!(core.keys.sealer.key_ids(), std::slice::from_ref(&key));
    assert_eq!(count_under_others(&core, &key).await, 0);
}

#[tokio::test]
async fn older_keys_stay_while_a_secret_is_sealed_under_them() {
    let dir = tempfile::tempdir().unwrap();
    let (core, _) = process(dir.path(), NEVER).await;
    fill(&core).await;
    let config = core.config.clone();
    core.store.end_replica(&core.replica).await.unwrap();
    drop(core);
    rotate::sealing(&config).await.unwrap();
    let refused = rotate::finish_sealing(&config).await.unwrap_err();
    assert!(matches!(refused, RotateError::InUse { left } if left > 15), "{refused}");
    assert!(config.data_dir.join("keys/sealing-0001.key").is_file());
}

#[tokio::test]
async fn a_key_seals_when_every_replica_that_lives_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let (core, _) = process(dir.path(), NEVER).await;
    let (store, sealer) = (&core.store, &core.keys.sealer);
    let first = sealer.seals_with();
    let other = |keys: &[&str]| ReplicaKeys {
        replica: "other:/data".into(),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..ReplicaKeys::default()
    };
    store.record_heartbeat("other:/data", clock::now()).await.unwrap();
    store.put_replica_keys(&other(&[&first])).await.unwrap();
    let key = rotate(dir.path());
    take_up(&core).await;
    let lacking = agree(store, &core.keys, &core.replica, String::new())
        .await
        .unwrap()
        .lack_key;
    assert_eq!(
        (lacking, sealer.seals_with()),
        (vec!["other:/data".to_owned()], first.clone())
    );
    store.put_replica_keys(&other(&[&key, &first])).await.unwrap();
    let lacking = agree(store, &core.keys, &core.replica, String::new())
        .await
        .unwrap()
        .lack_key;
    assert_eq!((lacking.len(), sealer.seals_with()), (0, key));
}

#[tokio::test]
async fn a_process_without_the_key_that_a_rotation_ended_with_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let (core, _) = process(dir.path(), NEVER).await;
    let config = core.config.clone();
    core.store.end_replica(&core.replica).await.unwrap();
    drop(core);
    let keys = config.data_dir.join("keys");
    let old = std::fs::read(keys.join("sealing-0001.key")).unwrap();
    rotate::sealing(&config).await.unwrap();
    rotate::finish_sealing(&config).await.unwrap();
    // An old copy of the folder.
    std::fs::rename(keys.join("sealing-0002.key"), keys.join("sealing-0001.key")).unwrap();
    std::fs::write(keys.join("sealing-0001.key"), old).unwrap();
    let opened = testing::open(config).await;
    let refused = opened.map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::OldKeys { .. }), "{refused}");
}

/// The present authority and the next one of a folder in which a rotation has begun.
async fn rotated(config: &crate::config::Config) -> (String, String) {
    rotate_ca::begin(config, "by rule").await.unwrap();
    let now = clock::system_time(clock::now());
    let keys = KeyFiles::load_or_create(&config.data_dir, "", now, Arc::new(SystemRng)).unwrap();
    (keys.authority.ca_sha256(), keys.authority.next().unwrap())
}

#[tokio::test]
async fn the_next_authority_is_used_when_every_replica_that_lives_trusts_it() {
    let dir = tempfile::tempdir().unwrap();
    let (core, _) = process(dir.path(), NEVER).await;
    let (store, authority) = (&core.store, &core.keys.authority);
    let other = |authorities: &[&str]| ReplicaKeys {
        replica: "other:/data".into(),
        authorities: authorities.iter().map(|one| (*one).to_owned()).collect(),
        ..ReplicaKeys::default()
    };
    let (first, next) = rotated(&core.config).await;
    store.record_heartbeat("other:/data", clock::now()).await.unwrap();
    store.put_replica_keys(&other(&[&first])).await.unwrap();
    take_up(&core).await;
    let agreed = agree(store, &core.keys, &core.replica, String::new()).await.unwrap();
    assert_eq!(
        (agreed.lack_authority, agreed.issues_anew),
        (vec!["other:/data".to_owned()], false)
    );
    assert_eq!(authority.issues_with(), first);
    let mut changes = core.authority_changes.watch();
    changes.mark_unchanged();
    store.put_replica_keys(&other(&[&first, &next])).await.unwrap();
    round(&core, &mut ReportedState::default()).await.unwrap();
    assert_eq!((authority.issues_with(), authority.ca_sha256()), (next.clone(), first));
    assert!(changes.has_changed().unwrap(), "agents are given new certificates");
    let own = store.replica_keys(Timestamp(0)).await.unwrap();
    let own = own.iter().find(|one| one.replica == core.replica).unwrap();
    assert_eq!(own.issues_with, next);
}

#[tokio::test]
async fn a_stored_end_of_a_rotation_is_followed_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let (core, _) = process(dir.path(), NEVER).await;
    let config = core.config.clone();
    let (first, next) = rotated(&config).await;
    take_up(&core).await;
    let kept = core
        .authority_changes
        .end_of(&core.keys.authority, b"not a certificate");
    assert!(kept.is_cancelled(), "no trusted authority has signed it");
    let mut tx = core.store.write().await.unwrap();
    tx.require_authority(&next).await.unwrap();
    tx.commit().await.unwrap();
    let file = config.data_dir.join("keys/authority.pem");
    assert!(file.is_file());
    // A running process follows within a round.
    authority::follow(&core).await;
    assert_eq!(core.keys.authority.trusted(), std::slice::from_ref(&next));
    assert!(!file.exists());
    assert_eq!(core.keys.authority.site_id(), first);
    // A starting process follows before it serves. The command can be repeated.
    core.store.end_replica(&core.replica).await.unwrap();
    drop(core);
    let (_, third) = rotated(&config).await;
    let store = Store::open(config.database.clone()).await.unwrap();
    let mut tx = store.write().await.unwrap();
    tx.require_authority(&third).await.unwrap();
    tx.commit().await.unwrap();
    assert!(rotate_ca::status(&config).await.unwrap().contains("has ended"));
    let (core, _) = process(dir.path(), NEVER).await;
    assert_eq!(core.keys.authority.trusted(), [third]);
    assert!(rotate_ca::status(&config).await.unwrap().contains("no rotation"));
    let refused = rotate_ca::finish(&config, "by rule", false).await.unwrap_err();
    assert!(matches!(refused, RotateError::NoRotation), "{refused}");
}

#[tokio::test]
async fn no_key_is_changed_for_a_database_of_no_site() {
    let dir = tempfile::tempdir().unwrap();
    let config = testing::config(dir.path(), "");
    let now = crate::clock::system_time(crate::clock::now());
    KeyFiles::load_or_create(&config.data_dir, "Rackwright test", now, Arc::new(SystemRng)).unwrap();
    let refused = rotate::sealing(&config).await.unwrap_err();
    assert!(matches!(refused, RotateError::NoSite(_)), "{refused}");
    assert!(!config.database.file().unwrap().exists(), "no database was made");
}

#[tokio::test]
async fn a_process_without_the_authority_that_a_rotation_ended_with_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let (core, _) = process(dir.path(), NEVER).await;
    let config = core.config.clone();
    core.store.end_replica(&core.replica).await.unwrap();
    drop(core);
    let keys = config.data_dir.join("keys");
    let old = std::fs::read(keys.join("authority.pem")).unwrap();
    rotated(&config).await;
    // No replica is alive, so no certificate of the former authority is issued.
    rotate_ca::finish(&config, "by rule", false).await.unwrap();
    // An old copy of the folder.
    std::fs::remove_file(keys.join("authority-0001.crt")).unwrap();
    std::fs::rename(keys.join("authority-0002.pem"), keys.join("authority.pem")).unwrap();
    std::fs::write(keys.join("authority.pem"), old).unwrap();
    let opened = testing::open(config).await;
    let refused = opened.map(drop).unwrap_err();
    assert!(
        matches!(refused, OpenError::Authority(AuthorityError::Old { .. })),
        "{refused}"
    );
}
