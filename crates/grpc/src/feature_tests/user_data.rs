//! User data of customers, from the request to the end of its use.

use rackwright_api::v1;
use rackwright_control::clusters::rollout;
use rackwright_ground::core::Core;
use rackwright_ground::deployment_keys::deployment_key_purpose;
use rackwright_ground::testing;
use rackwright_ground::user_data::{BATCH, node_purpose, of_spec, seal_for_node, seal_plain_rows};
use rackwright_lifecycle::cluster::{Rollout, State as ClusterState};
use rackwright_lifecycle::{NodeId, State};
use rackwright_nodes::perform::seed_files;
use rackwright_store::{ClusterSpec, Database, DeploymentKeys, Scope};
use secrecy::ExposeSecret as _;

use super::clusters::{check, cluster, hall, hand_over, names, put, spec, step};
use crate::test_calls::{create_cluster, deploy_with, reimage_cluster, reimage_with, release_cluster};

/// Text that must not be found in the database.
const PLANTED: &str = "#cloud-config\nchpasswd: {list: 'root:planted-in-user-data'}\n";
const OTHER: &str = "#cloud-config\nchpasswd: {list: 'root:planted-in-other-data'}\n";

/// The whole content of the database's files.
fn stored(core: &Core) -> String {
    let Database::File(path) = &core.config.database else {
        panic!("tests have a file");
    };
    let mut log = path.clone().into_os_string();
    log.push("-wal");
    let bytes = [std::fs::read(path).unwrap(), std::fs::read(log).unwrap_or_default()].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[track_caller]
fn is_stored_nowhere(core: &Core) {
    let stored = stored(core);
    assert!(
        stored.contains("cluster_nodes"),
        "the database is not what is read here"
    );
    assert!(!stored.contains("planted-in"), "user data is stored in the clear");
}

fn with_user_data(text: &str) -> v1::ClusterSpec {
    let mut spec = spec("acme", 2);
    spec.deployment.get_or_insert_default().user_data = text.to_owned();
    spec
}

/// The user data for the present deployment of a node.
async fn of_node(core: &Core, id: &str) -> String {
    let claim = core
        .store
        .node(&Scope::Site, &NodeId::stored(id))
        .await
        .unwrap()
        .node
        .claim
        .unwrap();
    let (generation, deployment) = (claim.generation, claim.deployment);
    let keys = core
        .store
        .deployment_keys(&NodeId::stored(id), generation, deployment)
        .await
        .unwrap();
    assert_eq!(claim.has_user_data, !keys.user_data.is_empty());
    assert_eq!(claim.plain_user_data, "");
    if keys.user_data.is_empty() {
        return String::new();
    }
    let purpose = node_purpose(&NodeId::stored(id), generation, deployment);
    let text = core.keys.sealer.open(&keys.user_data, &purpose).unwrap();
    text.expose_secret().to_owned()
}

async fn of_build(core: &Core, id: &str) -> (String, Option<String>) {
    let record = cluster(core, id).await;
    let sealer = &core.keys.sealer;
    let former = record.former.as_ref();
    (
        of_spec(sealer, &record, &record.spec).unwrap(),
        former.map(|former| of_spec(sealer, &record, &former.spec).unwrap()),
    )
}

fn reimage(user_data: &str) -> v1::ReimageClusterRequest {
    v1::ReimageClusterRequest {
        name: "clusters/alpha".into(),
        deployment: Some(v1::Deployment {
            image: "images/other".into(),
            user_data: user_data.into(),
            ..v1::Deployment::default()
        }),
        rollout: Some(v1::Rollout {
            max_unavailable: 2,
            any_leaf: true,
            ..v1::Rollout::default()
        }),
        mutation: None,
    }
}

#[tokio::test]
async fn a_clusters_user_data_is_sealed_for_each_build_until_the_release() {
    let core = hall(32, "").await;
    create_cluster(&core, "c", "alpha", with_user_data(PLANTED))
        .await
        .unwrap();
    step(&core, "alpha").await;
    for node in names(&core, "alpha").await {
        assert_eq!(of_node(&core, &node).await, PLANTED);
        check(&core, &node).await;
    }
    step(&core, "alpha").await;
    for node in names(&core, "alpha").await {
        hand_over(&core, &node).await;
    }
    step(&core, "alpha").await;
    is_stored_nowhere(&core);

    // Another image without user data keeps them.
    reimage_cluster(&core, "r1", reimage("")).await.unwrap();
    assert_eq!(of_build(&core, "alpha").await, (PLANTED.into(), Some(PLANTED.into())));
    step(&core, "alpha").await;
    for node in names(&core, "alpha").await {
        assert_eq!(of_node(&core, &node).await, PLANTED);
        hand_over(&core, &node).await;
    }
    step(&core, "alpha").await;
    reimage_cluster(&core, "r2", reimage(OTHER)).await.unwrap();
    assert_eq!(of_build(&core, "alpha").await, (OTHER.into(), Some(PLANTED.into())));
    step(&core, "alpha").await;
    for node in names(&core, "alpha").await {
        assert_eq!(of_node(&core, &node).await, OTHER);
    }
    // And back.
    let mut record = cluster(&core, "alpha").await;
    let rollout: Rollout = record.cluster.rollout.clone().unwrap();
    assert!(rollout::swap_builds(&mut record, rollout));
    assert_eq!(of_spec(&core.keys.sealer, &record, &record.spec).unwrap(), PLANTED);
    is_stored_nowhere(&core);

    release_cluster(&core, "x", "alpha").await.unwrap();
    step(&core, "alpha").await;
    let record = cluster(&core, "alpha").await;
    assert_eq!(record.cluster.state, ClusterState::Releasing);
    assert_eq!(
        (&record.spec.user_data, record.former.map(|f| f.spec.user_data)),
        (&None, Some(None))
    );
}

#[tokio::test]
async fn sealed_user_data_opens_for_no_other_cluster_build_or_node() {
    let core = hall(32, "").await;
    create_cluster(&core, "a", "alpha", with_user_data(PLANTED))
        .await
        .unwrap();
    create_cluster(&core, "b", "beta", with_user_data(OTHER)).await.unwrap();
    let sealer = &core.keys.sealer;
    let (alpha, beta) = (cluster(&core, "alpha").await, cluster(&core, "beta").await);
    // A row of one cluster was copied over another's.
    assert!(of_spec(sealer, &beta, &alpha.spec).is_err());
    let mut other = alpha.clone();
    other.spec.user_data.as_mut().unwrap().build += 1;
    assert!(of_spec(sealer, &other, &other.spec).is_err());
    let sealed = seal_for_node(sealer, PLANTED, (&"n1".into(), 3, 1)).unwrap();
    for (node, generation, deployment) in [("n2", 3, 1), ("n1", 4, 1), ("n1", 3, 2)] {
        assert!(
            sealer
                .open(&sealed, &node_purpose(&NodeId::stored(node), generation, deployment))
                .is_err()
        );
    }
}

#[tokio::test]
async fn user_data_that_is_too_long_is_refused_with_the_field() {
    let core = hall(32, "").await;
    let long = format!("#cloud-config\n{}", "x".repeat(256 * 1024));
    let refused = create_cluster(&core, "c", "alpha", with_user_data(&long))
        .await
        .unwrap_err();
    assert!(
        refused.to_string().starts_with("spec.deployment.user_data"),
        "{refused}"
    );
}

/// Sealed keys of a deployment without user data.
fn keys() -> DeploymentKeys {
    DeploymentKeys {
        host_public: "h".into(),
        host_private: vec![1],
        provision_public: "p".into(),
        provision_private: vec![1],
        user_data: Vec::new(),
    }
}

async fn add_plain_node(core: &Core, id: &str, state: State, handed_over: Option<u32>) {
    let mut record = testing::node(id, state, Some("b3-1"));
    let claim = record.node.claim.as_mut().unwrap();
    claim.plain_user_data = PLANTED.into();
    claim.handed_over = handed_over;
    let mut tx = core.store.write().await.unwrap();
    tx.insert_node(&record).await.unwrap();
    tx.put_deployment_keys(&NodeId::stored(id), 0, 1, &keys())
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

async fn add_plain_cluster(core: &Core, id: &str, state: ClusterState) {
    let mut record = testing::cluster(id);
    record.cluster.state = state;
    record.spec.plain_user_data = OTHER.into();
    record.cluster.build = 2;
    record.former = Some(rackwright_store::FormerSpec {
        build: 1,
        spec: ClusterSpec {
            plain_user_data: PLANTED.into(),
            ..ClusterSpec::default()
        },
    });
    let mut tx = core.store.write().await.unwrap();
    tx.insert_cluster(&record).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn plain_user_data_of_an_older_version_is_sealed_or_dropped_once() {
    let core = testing::core().await;
    let many: Vec<String> = (0..BATCH * 2 + 3).map(|n| format!("many-{n:03}")).collect();
    for id in &many {
        add_plain_node(&core, id, State::Imaging, None).await;
    }
    add_plain_node(&core, "active", State::Active, Some(1)).await;
    add_plain_node(&core, "leaving", State::Reclaiming, None).await;
    testing::add(&core, &testing::node("without", State::Active, Some("b3-1"))).await;
    add_plain_cluster(&core, "alpha", ClusterState::Ready).await;
    add_plain_cluster(&core, "gone", ClusterState::Released).await;
    assert!(stored(&core).contains("planted-in-user-data"), "it would be found");

    // A deployment is not disturbed: user data in the clear are used until they are sealed.
    let record = core.store.node(&Scope::Site, &"many-000".into()).await.unwrap();
    assert_eq!(record.node.claim.unwrap().plain_user_data, PLANTED);

    seal_plain_rows(&core).await.unwrap();
    is_stored_nowhere(&core);
    for id in &many {
        assert_eq!(of_node(&core, id).await, PLANTED);
    }
    for id in ["active", "leaving"] {
        let record = core.store.node(&Scope::Site, &NodeId::stored(id)).await.unwrap();
        assert!(record.node.claim.unwrap().has_user_data);
        assert_eq!(
            core.store.deployment_keys(&NodeId::stored(id), 0, 1).await.unwrap(),
            keys()
        );
    }
    assert_eq!(of_build(&core, "alpha").await, (OTHER.into(), Some(PLANTED.into())));
    assert_eq!(of_build(&core, "gone").await, (String::new(), Some(String::new())));
    let without = core.store.node(&Scope::Site, &"without".into()).await.unwrap();
    assert_eq!((without.version, without.node.claim.unwrap().has_user_data), (1, false));

    let version = core.store.node(&Scope::Site, &"active".into()).await.unwrap().version;
    seal_plain_rows(&core).await.unwrap();
    let again = core.store.node(&Scope::Site, &"active".into()).await.unwrap();
    assert_eq!(again.version, version, "the second start finds nothing");
}

#[tokio::test]
async fn a_seed_is_made_of_user_data_that_is_sealed_and_of_that_in_the_clear() {
    let core = testing::core().await;
    let (public, private) = {
        let pair = rackwright_identity::SshKeyPair::generate(core.rng.as_ref(), "host-n1").unwrap();
        let purpose = deployment_key_purpose("host", &"n1".into(), 0, 1);
        let sealed = core.keys.sealer.seal(pair.private_key(), &purpose).unwrap();
        (pair.public_line().to_owned(), sealed)
    };
    let seed = |claim: &rackwright_lifecycle::Claim, user_data: Vec<u8>| {
        let keys = DeploymentKeys {
            host_public: public.clone(),
            host_private: private.clone(),
            provision_public: public.clone(),
            user_data,
            ..keys()
        };
        let record = testing::node("n1", State::Imaging, None);
        let files = seed_files(&core, &record, claim, &keys).unwrap();
        String::from_utf8(files["user-data"].clone()).unwrap()
    };
    let digest = format!("b3-{}", "1".repeat(64));
    let mut claim = testing::node("n1", State::Imaging, Some(&digest)).node.claim.unwrap();
    assert!(!seed(&claim, Vec::new()).contains("customer"));
    let sealed = seal_for_node(&core.keys.sealer, PLANTED, (&"n1".into(), 0, 1)).unwrap();
    let made = seed(&claim, sealed);
    assert!(made.contains("filename=\"customer\""), "{made}");
    claim.plain_user_data = PLANTED.into();
    assert_eq!(seed(&claim, Vec::new()), made);
}

#[tokio::test]
async fn a_nodes_user_data_is_not_taken_over_by_a_reimage() {
    let core = hall(32, "").await;
    let node = core.store.nodes(&Scope::Site, &Vec::new(), "", 1).await.unwrap()[0]
        .id
        .clone();
    let deploy = |user_data: &str| v1::Deployment {
        image: "images/noble".into(),
        user_data: user_data.into(),
        ..v1::Deployment::default()
    };
    deploy_with(&core, "d", node.as_str(), deploy(PLANTED)).await.unwrap();
    assert_eq!(of_node(&core, node.as_str()).await, PLANTED);
    put(&core, node.as_str(), |record| record.node.state = State::Active).await;
    reimage_with(&core, "r", node.as_str(), deploy("")).await.unwrap();
    assert_eq!(of_node(&core, node.as_str()).await, "");
    let first = core.store.deployment_keys(&node, 1, 1).await.unwrap();
    assert!(first.user_data.is_empty() && first.host_private.is_empty(), "{first:?}");
    put(&core, node.as_str(), |record| record.node.state = State::Active).await;
    reimage_with(&core, "r2", node.as_str(), deploy(OTHER)).await.unwrap();
    assert_eq!(of_node(&core, node.as_str()).await, OTHER);
    is_stored_nowhere(&core);
}
