//! Clusters in use that grow, shrink, or get another image.

use std::collections::BTreeSet;
use std::sync::Arc;

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_lifecycle::NodeId;
use rackwright_lifecycle::State as NodeState;
use rackwright_lifecycle::cluster::{State, Wait};
use rackwright_store::{NodeRecord, Scope};
use tonic::Code;

use super::{
    DIGEST, FABRIC, OTHER, build, check, cluster, ended, fabric, hall, hand_over, names, prove, put, spec, step,
};
use crate::test_calls::{
    NodeRequest, create_cluster, reimage_cluster, resize_cluster, resume_cluster_reimage, retry_cluster,
    roll_back_cluster, wish,
};
use crate::{convert, customer_view};

fn size(nodes: Option<u32>, spares: Option<u32>, leave: &[&str]) -> v1::ResizeClusterRequest {
    v1::ResizeClusterRequest {
        name: "clusters/alpha".into(),
        size: Some(v1::ClusterSize {
            nodes,
            spares,
            leave: leave.iter().map(|node| format!("nodes/{node}")).collect(),
        }),
        mutation: None,
    }
}

fn reimage(image: &str, rollout: v1::Rollout) -> v1::ReimageClusterRequest {
    v1::ReimageClusterRequest {
        name: "clusters/alpha".into(),
        deployment: Some(v1::Deployment {
            image: image.into(),
            ..v1::Deployment::default()
        }),
        rollout: Some(rollout),
        mutation: None,
    }
}

async fn node(core: &Core, id: &str) -> NodeRecord {
    core.store.node(&Scope::Site, &NodeId::stored(id)).await.unwrap()
}

/// Nodes with this image in their claim.
async fn wanting(core: &Core, digest: &str) -> BTreeSet<String> {
    let nodes = core
        .store
        .nodes_of_cluster(&Scope::Site, &"alpha".into())
        .await
        .unwrap();
    let of = |record: &NodeRecord| {
        record
            .node
            .claim
            .as_ref()
            .is_some_and(|claim| claim.image_digest == digest)
    };
    nodes
        .iter()
        .filter(|record| of(record))
        .map(|record| record.id.to_string())
        .collect()
}

/// Nodes with an image still to be written.
async fn in_rollout(core: &Core) -> BTreeSet<String> {
    let nodes = core
        .store
        .nodes_of_cluster(&Scope::Site, &"alpha".into())
        .await
        .unwrap();
    let is_one = |record: &&NodeRecord| {
        let claim = record.node.claim.as_ref().unwrap();
        claim.handed_over != Some(claim.deployment)
    };
    nodes
        .iter()
        .filter(is_one)
        .map(|record| record.id.to_string())
        .collect()
}

async fn fail(core: &Core, id: &str) {
    put(core, id, |record| {
        record.node.state = NodeState::Failed;
        record.node.wanted.retry = false;
        record.reason = "it does not boot".into();
    })
    .await;
}

#[tokio::test]
async fn a_cluster_grows_by_nodes_that_are_handed_over_when_they_are_proven() {
    let core = hall(64, FABRIC).await;
    build(&core, "alpha", "acme", 4).await;
    let before = names(&core, "alpha").await;
    let operation = resize_cluster(&core, "g", size(Some(6), Some(1), &[])).await.unwrap();
    let after = names(&core, "alpha").await;
    assert_eq!((after.len(), before.is_subset(&after)), (7, true));
    assert!((cluster(&core, "alpha").await.reserved_watts - 7.0 * 10_200.0).abs() < 1.0);
    // A repeated request returns the same operation.
    let again = resize_cluster(&core, "g", size(Some(6), Some(1), &[])).await.unwrap();
    assert_eq!(again.name, operation.name);
    assert_eq!(step(&core, "alpha").await, State::Resizing);
    for new in after.difference(&before) {
        check(&core, new).await;
    }
    assert_eq!(
        step(&core, "alpha").await,
        State::Resizing,
        "their ports are not proven"
    );
    prove(&core).await;
    assert_eq!(step(&core, "alpha").await, State::Resizing);
    assert_eq!(ended(&core, &operation).await, None);
    for new in after.difference(&before) {
        let claim = node(&core, new).await.node.claim.unwrap();
        assert!(claim.cluster.unwrap().let_go.is_some());
        hand_over(&core, new).await;
    }
    assert_eq!(step(&core, "alpha").await, State::Ready);
    assert_eq!(ended(&core, &operation).await, Some(Code::Ok as i32));
    // A size that does not fit reserves nothing.
    let refused = resize_cluster(&core, "h", size(Some(64), None, &[])).await.unwrap_err();
    assert!(matches!(refused, ApiError::Precondition { .. }), "{refused:?}");
    assert_eq!(
        (names(&core, "alpha").await, cluster(&core, "alpha").await.spec.nodes),
        (after, 6)
    );
}

#[tokio::test]
async fn leaving_nodes_belong_to_the_cluster_until_they_are_erased() {
    let core = hall(64, FABRIC).await;
    build(&core, "alpha", "bolt", 6).await;
    let before = names(&core, "alpha").await;
    let named = before.first().unwrap().clone();
    let operation = resize_cluster(&core, "s", size(Some(4), None, &[&named]))
        .await
        .unwrap();
    let leave = cluster(&core, "alpha").await.cluster.wanted.leave;
    let leave: BTreeSet<String> = leave.iter().map(ToString::to_string).collect();
    assert_eq!((leave.len(), leave.contains(&named)), (2, true));
    assert_eq!(step(&core, "alpha").await, State::Resizing);
    for gone in &leave {
        assert!(
            node(&core, gone.as_str()).await.node.claim.unwrap().release_requested,
            "{gone}"
        );
    }
    for stays in before.difference(&leave) {
        assert!(
            !node(&core, stays).await.node.claim.unwrap().release_requested,
            "{stays}"
        );
    }
    assert_eq!(names(&core, "alpha").await, before, "what is not erased is reserved");
    // A node that leaves twice is an error, and so is a size without any node.
    let twice = resize_cluster(&core, "t", size(None, None, &[&named])).await;
    assert!(
        matches!(&twice, Err(ApiError::Invalid(faults)) if faults[0].0 == "size.leave"),
        "{twice:?}"
    );
    let none = resize_cluster(&core, "n", size(Some(0), None, &[])).await;
    assert!(
        matches!(&none, Err(ApiError::Invalid(faults)) if faults[0].0 == "size.nodes"),
        "{none:?}"
    );
    for gone in &leave {
        put(&core, gone.as_str(), |record| {
            record.node.state = NodeState::Available;
            record.node.claim = None;
        })
        .await;
    }
    assert_eq!(
        step(&core, "alpha").await,
        State::Resizing,
        "ports may still have its key"
    );
    assert_eq!(names(&core, "alpha").await, before);
    let early = wish(&core, "d", &named, NodeRequest::Deploy, "images/noble").await;
    assert!(
        early.unwrap_err().to_string().contains("about to leave"),
        "its ports may still have the key"
    );
    let fabric = fabric(&core).await;
    let (_, site) = core.sites.current(&core.store).await.unwrap().unwrap();
    let ports = &site.node(site.node_named(&named).unwrap()).port_guids;
    let members: BTreeSet<u64> = fabric.partitions().by_port().keys().map(|guid| guid.get()).collect();
    assert!(ports.iter().flatten().all(|port| !members.contains(port)));
    prove(&core).await;
    step(&core, "alpha").await;
    assert_eq!(names(&core, "alpha").await, &before - &leave);
    prove(&core).await;
    assert_eq!(step(&core, "alpha").await, State::Ready);
    assert_eq!(ended(&core, &operation).await, Some(Code::Ok as i32));
    assert!((cluster(&core, "alpha").await.reserved_watts - 4.0 * 10_200.0).abs() < 1.0);
    create_cluster(&core, "b", "beta", spec("bolt", 60)).await.unwrap();
}

#[tokio::test]
async fn another_image_is_rolled_out_to_a_few_nodes_at_a_time() {
    let core = hall(32, "").await;
    build(&core, "alpha", "acme", 5).await;
    let rollout = v1::Rollout {
        max_unavailable: 2,
        ..v1::Rollout::default()
    };
    let operation = reimage_cluster(&core, "r", reimage("images/other", rollout))
        .await
        .unwrap();
    let mut turns = 0;
    while step(&core, "alpha").await == State::Reimaging {
        let batch = in_rollout(&core).await;
        assert!((1..=2).contains(&batch.len()), "{batch:?}");
        for id in batch {
            assert_eq!(node(&core, &id).await.node.claim.unwrap().hostname, id);
            hand_over(&core, &id).await;
        }
        turns += 1;
    }
    assert_eq!((turns, wanting(&core, OTHER).await.len()), (3, 5));
    assert_eq!(ended(&core, &operation).await, Some(Code::Ok as i32));
    let record = cluster(&core, "alpha").await;
    assert_eq!((record.cluster.state, record.cluster.rollout), (State::Ready, None));
    assert_eq!(record.spec.image_digest, OTHER);
    // Back to the former image.
    roll_back_cluster(&core, "b", "alpha").await.unwrap();
    while step(&core, "alpha").await == State::Reimaging {
        for id in in_rollout(&core).await {
            hand_over(&core, &id).await;
        }
    }
    assert_eq!(wanting(&core, DIGEST).await.len(), 5);
}

#[tokio::test]
async fn a_failed_rollout_stops_until_a_call_continues_it_or_rolls_it_back() {
    let core = hall(32, "").await;
    build(&core, "alpha", "acme", 4).await;
    let operation = reimage_cluster(&core, "r", reimage("images/other", v1::Rollout::default()))
        .await
        .unwrap();
    step(&core, "alpha").await;
    let first = in_rollout(&core).await.first().unwrap().clone();
    let early = resume_cluster_reimage(&core, "e", "alpha").await;
    assert!(matches!(early, Err(ApiError::Precondition { .. })), "{early:?}");
    fail(&core, &first).await;
    assert_eq!(step(&core, "alpha").await, State::Reimaging);
    assert_eq!(ended(&core, &operation).await, Some(Code::Aborted as i32));
    let record = cluster(&core, "alpha").await;
    let Wait::ReimageStopped { reason } = &record.wait else {
        panic!("{:?}", record.wait);
    };
    let failed = format!("1 node failed with the new image, 0 allowed: {first}");
    assert!(
        reason.contains(&failed) && reason.contains("it does not boot"),
        "{reason}"
    );
    assert_eq!(
        wanting(&core, OTHER).await,
        [first.clone()].into(),
        "no other node is written to"
    );
    // The node is tried again, and fails again.
    resume_cluster_reimage(&core, "a", "alpha").await.unwrap();
    step(&core, "alpha").await;
    assert!(node(&core, &first).await.node.wanted.retry);
    fail(&core, &first).await;
    step(&core, "alpha").await;
    assert!(cluster(&core, "alpha").await.cluster.rollout.unwrap().stopped.is_some());
    // Back: only the node with the new image is written to.
    let back = roll_back_cluster(&core, "b", "alpha").await.unwrap();
    step(&core, "alpha").await;
    assert_eq!(in_rollout(&core).await, [first.clone()].into());
    assert_eq!(wanting(&core, DIGEST).await.len(), 4);
    hand_over(&core, &first).await;
    assert_eq!(step(&core, "alpha").await, State::Ready);
    assert_eq!(ended(&core, &back).await, Some(Code::Ok as i32));
}

#[tokio::test]
async fn a_failed_image_is_rolled_back_automatically_if_requested() {
    let core = hall(32, "").await;
    build(&core, "alpha", "acme", 4).await;
    let rollout = v1::Rollout {
        max_unavailable: 2,
        roll_back: true,
        ..v1::Rollout::default()
    };
    let operation = reimage_cluster(&core, "r", reimage("images/other", rollout))
        .await
        .unwrap();
    step(&core, "alpha").await;
    let batch = in_rollout(&core).await;
    for id in &batch {
        fail(&core, id).await;
    }
    step(&core, "alpha").await;
    assert_eq!(ended(&core, &operation).await, Some(Code::Aborted as i32));
    assert_eq!(
        (in_rollout(&core).await, wanting(&core, OTHER).await),
        (batch.clone(), [].into())
    );
    for id in &batch {
        hand_over(&core, id).await;
    }
    assert_eq!(step(&core, "alpha").await, State::Ready);
    let never = roll_back_cluster(&core, "b", "alpha").await.unwrap();
    assert_eq!(
        step(&core, "alpha").await,
        State::Reimaging,
        "{never:?}: and forth again on request"
    );
}

#[tokio::test]
async fn an_image_that_cannot_be_written_is_refused_before_the_rollout_begins() {
    let core = hall(32, "").await;
    create_cluster(&core, "1", "alpha", spec("acme", 4)).await.unwrap();
    let early = reimage_cluster(&core, "e", reimage("images/other", v1::Rollout::default())).await;
    assert!(matches!(early, Err(ApiError::Precondition { .. })), "{early:?}");
    let no_retry = retry_cluster(&core, "y", "alpha").await;
    assert!(matches!(no_retry, Err(ApiError::Precondition { .. })), "{no_retry:?}");
    let unknown = reimage_cluster(&core, "u", reimage("images/nothing", v1::Rollout::default())).await;
    assert!(unknown.is_err());
    let mut named = reimage("images/other", v1::Rollout::default());
    named.deployment.as_mut().unwrap().hostname = "one-for-all".into();
    let named = reimage_cluster(&core, "n", named).await;
    assert!(
        matches!(&named, Err(ApiError::Invalid(faults)) if faults[0].0 == "deployment.hostname"),
        "{named:?}"
    );
}

#[tokio::test]
async fn a_cluster_that_failed_is_built_once_more() {
    let core = hall(32, "").await;
    create_cluster(&core, "1", "alpha", spec("acme", 2)).await.unwrap();
    step(&core, "alpha").await;
    let mut tx = core.store.write().await.unwrap();
    let mut record = tx.cluster(&"alpha".into()).await.unwrap();
    record.cluster.state = State::Failed;
    tx.save_cluster(&mut record, rackwright_ground::clock::now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(step(&core, "alpha").await, State::Failed);
    let operation = retry_cluster(&core, "r", "alpha").await.unwrap();
    assert_eq!(step(&core, "alpha").await, State::Building);
    for id in names(&core, "alpha").await {
        check(&core, &id).await;
    }
    step(&core, "alpha").await;
    for id in names(&core, "alpha").await {
        hand_over(&core, &id).await;
    }
    assert_eq!(step(&core, "alpha").await, State::Ready);
    assert_eq!(ended(&core, &operation).await, Some(Code::Ok as i32));
}

#[tokio::test]
async fn a_spare_that_leaves_replaces_no_node() {
    let core = hall(32, "").await;
    create_cluster(
        &core,
        "1",
        "alpha",
        v1::ClusterSpec {
            spares: 1,
            ..spec("bolt", 2)
        },
    )
    .await
    .unwrap();
    step(&core, "alpha").await;
    for id in names(&core, "alpha").await {
        check(&core, &id).await;
    }
    step(&core, "alpha").await;
    for id in names(&core, "alpha").await {
        hand_over(&core, &id).await;
    }
    assert_eq!(step(&core, "alpha").await, State::Ready);
    resize_cluster(&core, "s", size(None, Some(0), &[])).await.unwrap();
    let record = cluster(&core, "alpha").await;
    let spare = record.cluster.wanted.leave.first().unwrap().clone();
    let lost = names(&core, "alpha").await.into_iter().find(|id| *id != spare).unwrap();
    fail(&core, &lost).await;
    step(&core, "alpha").await;
    let by = cluster(&core, "alpha").await.replaced[0].by.clone();
    assert_ne!(by, spare);
}

/// A cluster in use with spares, and the name of one of them.
async fn with_spares(core: &Arc<Core>, nodes: u32, spares: u32) -> String {
    let spec = v1::ClusterSpec {
        spares,
        ..spec("bolt", nodes)
    };
    create_cluster(core, "1", "alpha", spec).await.unwrap();
    step(core, "alpha").await;
    for id in names(core, "alpha").await {
        check(core, &id).await;
    }
    step(core, "alpha").await;
    for id in names(core, "alpha").await {
        hand_over(core, &id).await;
    }
    assert_eq!(step(core, "alpha").await, State::Ready);
    spares_of(core).await.pop().unwrap()
}

async fn spares_of(core: &Core) -> Vec<String> {
    let record = cluster(core, "alpha").await;
    rackwright_ground::hall::placement_of(&record).unwrap().spares
}

/// The messages of the events of this kind that the customer may see.
async fn customers_messages(core: &Core, kind: &str) -> Vec<String> {
    let events = core
        .store
        .events(&Scope::Site, 0, "clusters/alpha", 1000)
        .await
        .unwrap();
    let events = events.into_iter().filter(|event| event.kind == kind);
    events
        .inspect(|event| assert!(event.kind.is_for_customers()))
        .map(|event| event.message)
        .collect()
}

#[tokio::test]
async fn a_spare_that_is_in_use_now_is_an_event_for_operators_and_customers() {
    let core = hall(32, "").await;
    let spare = with_spares(&core, 2, 1).await;
    let lost = names(&core, "alpha").await.into_iter().find(|id| *id != spare).unwrap();
    fail(&core, &lost).await;
    step(&core, "alpha").await;
    assert_eq!(spares_of(&core).await, [""; 0]);
    let messages = customers_messages(&core, "cluster.fewer-spares").await;
    let [message] = &messages[..] else {
        panic!("{messages:?}")
    };
    assert!(
        message.starts_with("alpha has 0 spares left and was requested with 1"),
        "{message}"
    );
    assert!(
        message.contains(&spare) && message.contains("cluster resize alpha --spares 1"),
        "{message}"
    );
    let events = core.store.events(&Scope::Site, 0, "clusters/alpha", 1000).await;
    let mut events = events.unwrap().into_iter();
    let stored = events.find(|event| event.kind == "cluster.fewer-spares").unwrap();
    let shown = customer_view::event(&Scope::Customer("bolt".into()), convert::event(stored));
    assert_eq!(
        shown.unwrap().message,
        "clusters/alpha has 0 of 1 requested spares left"
    );
}

#[tokio::test]
async fn a_spare_that_is_lost_is_named_as_a_spare_and_replaces_no_node() {
    let core = hall(32, "").await;
    let spare = with_spares(&core, 3, 1).await;
    let lost = names(&core, "alpha").await.into_iter().find(|id| *id != spare).unwrap();
    fail(&core, &lost).await;
    fail(&core, &spare).await;
    step(&core, "alpha").await;
    let replaced = cluster(&core, "alpha").await.replaced;
    assert_eq!(replaced.len(), 2, "{replaced:?}");
    assert!(replaced.iter().all(|one| one.by != spare), "{replaced:?}");
    let messages = customers_messages(&core, "cluster.replaced").await;
    let words = format!("takes the place of the spare {spare}");
    assert!(messages.iter().any(|message| message.contains(&words)), "{messages:?}");
}

#[tokio::test]
async fn a_failed_image_is_no_target_of_a_rollback() {
    let core = hall(32, "").await;
    build(&core, "alpha", "acme", 2).await;
    reimage_cluster(&core, "r", reimage("images/other", v1::Rollout::default()))
        .await
        .unwrap();
    step(&core, "alpha").await;
    let first = in_rollout(&core).await.first().unwrap().clone();
    fail(&core, &first).await;
    step(&core, "alpha").await;
    roll_back_cluster(&core, "b", "alpha").await.unwrap();
    step(&core, "alpha").await;
    // During the rollback, another image is requested.
    reimage_cluster(&core, "c", reimage("images/noble", v1::Rollout::default()))
        .await
        .unwrap();
    let record = cluster(&core, "alpha").await;
    assert_eq!(record.former.unwrap().spec.image_digest, DIGEST);
    assert!(record.cluster.build > 2);
}
