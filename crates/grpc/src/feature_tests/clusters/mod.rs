//! Clusters, from the request to the release.

mod breach;
mod change;
mod network;
mod reconcile;
mod several_fabrics;
mod site_ports;
mod watch;

use std::collections::BTreeSet;
use std::sync::Arc;

use rackwright_api::v1;
use rackwright_control::clusters::partitions::Fabric;
use rackwright_control::clusters::reserve::ReserveError;
use rackwright_control::clusters::{pack, reserve};
use rackwright_control::testing::{cluster_until_rest, steps_of_cluster};
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::testing::{self, TestCore};
use rackwright_lifecycle::cluster::{Obstacle, State, Wait as ClusterWait};
use rackwright_lifecycle::{ClusterId, NodeId, OperationId, State as NodeState, Timestamp, Wait};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::Redundancy;
use rackwright_store::{ClusterRecord, FirmwareUpdateRow, ImageVersionBody, ImageVersionRow, NodeRecord, Scope};
use tonic::Code;

use crate::test_calls::{apply_site, create_cluster, deploy_with, release_cluster};

/// Enough settings of OpenSM for a configuration. These tests never contact it.
pub(crate) const FABRIC: &str = "fabric: {opensm: {partitions: /nowhere/p, log: /nowhere/l, pid_file: /nowhere/pid}, \
                      first_key: \"0x0001\", last_key: \"0x0002\"}\n";
pub(crate) const DIGEST: &str = "b3-0000000000000000000000000000000000000000000000000000000000000000";
/// The digest of another image.
pub(crate) const OTHER: &str = "b3-1111111111111111111111111111111111111111111111111111111111111111";

pub(crate) fn site(nodes: usize) -> String {
    let mut request = Request::new(ReferenceSku::DgxH100, nodes);
    request.customers = vec![
        ("acme".into(), Redundancy::FeedLoss, true),
        ("bolt".into(), Redundancy::None, false),
    ];
    site_file(&request).unwrap()
}

/// The same site, where this HCA of every node has another port GUID.
pub(crate) fn site_with_other_ports(nodes: usize, hca: &str) -> String {
    let changed = |line: &str| match line
        .trim()
        .strip_prefix(hca)
        .is_some_and(|rest| rest.starts_with(": 0x"))
    {
        true => line.replace("0+0x100", "5+0x100"),
        false => line.to_owned(),
    };
    let lines: Vec<String> = site(nodes).lines().map(changed).collect();
    lines.join("\n") + "\n"
}

/// A hall of available nodes, with an image.
pub(crate) async fn hall(nodes: usize, further: &str) -> TestCore {
    let core = testing::core_with(further).await;
    apply_site(&core, "site", &site(nodes)).await.unwrap();
    let (_, site) = core.sites.current(&core.store).await.unwrap().unwrap();
    let mut tx = core.store.write().await.unwrap();
    for node in &site.nodes {
        let mut record = testing::node(&node.name, NodeState::Available, None);
        record.node.evidence.clean_at = Some(clock::now());
        tx.insert_node(&record).await.unwrap();
    }
    for (id, digest) in [("noble", DIGEST), ("other", OTHER)] {
        let image = ImageVersionRow {
            image_id: id.into(),
            digest: digest.into(),
            created_at: clock::now(),
            body: ImageVersionBody::default(),
        };
        tx.add_image_version(&image, &format!("uid-{id}")).await.unwrap();
    }
    tx.commit().await.unwrap();
    core
}

pub(crate) fn spec(customer: &str, nodes: u32) -> v1::ClusterSpec {
    v1::ClusterSpec {
        customer: customer.into(),
        sku: "dgx-h100".into(),
        nodes,
        deployment: Some(v1::Deployment {
            image: "images/noble".into(),
            ..v1::Deployment::default()
        }),
        ..v1::ClusterSpec::default()
    }
}

pub(crate) async fn cluster(core: &Core, id: &str) -> ClusterRecord {
    core.store.cluster(&Scope::Site, &ClusterId::stored(id)).await.unwrap()
}

pub(crate) async fn names(core: &Core, id: &str) -> BTreeSet<String> {
    let nodes = core
        .store
        .nodes_of_cluster(&Scope::Site, &ClusterId::stored(id))
        .await
        .unwrap();
    nodes.into_iter().map(|node| node.id.to_string()).collect()
}

/// Puts a node into a state that its own life would lead to.
pub(crate) async fn put(core: &Core, node: &str, change: impl FnOnce(&mut NodeRecord)) {
    let mut tx = core.store.write().await.unwrap();
    let mut record = tx.node(&NodeId::stored(node)).await.unwrap();
    change(&mut record);
    tx.save_node(&mut record, clock::now()).await.unwrap();
    tx.commit().await.unwrap();
}

/// Puts a node into the checked state, in which it waits for its cluster.
pub(crate) async fn check(core: &Core, node: &str) {
    put(core, node, |record| record.node.state = NodeState::Validating).await;
    testing::rest(core, node, &Wait::Cluster).await;
}

/// Hands a node over to its customer.
pub(crate) async fn hand_over(core: &Core, node: &str) {
    put(core, node, |record| {
        record.node.state = NodeState::Active;
        let claim = record.node.claim.as_mut().unwrap();
        claim.handed_over = Some(claim.deployment);
    })
    .await;
}

pub(crate) async fn step(core: &Arc<Core>, id: &str) -> State {
    cluster_until_rest(core, &ClusterId::stored(id)).await.unwrap();
    cluster(core, id).await.cluster.state
}

/// All keys with their ports.
pub(crate) async fn fabric(core: &Core) -> Fabric {
    Fabric::load(&core.store).await.unwrap().unwrap()
}

/// Writes what differs from the stored rows.
pub(crate) async fn store_fabric(core: &Core, fabric: &Fabric) {
    let mut tx = core.store.write().await.unwrap();
    tx.hall().await.unwrap();
    fabric.changes().store(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// The wanted version of the partitions is in place, and every port confirms it.
pub(crate) async fn prove(core: &Core) {
    let mut fabric = fabric(core).await;
    let mut tables = rackwright_infiniband::Tables::default();
    for (port, keys) in fabric.partitions().by_port() {
        let entries = keys.iter().map(|(key, membership)| key.entry(*membership));
        tables.read.insert(port, entries.collect());
    }
    let (_, site) = core.sites.current(&core.store).await.unwrap().unwrap();
    let ports = site.nodes.iter().flat_map(|node| node.port_guids.iter().flatten());
    for port in ports.filter_map(|guid| rackwright_infiniband::Guid::new(*guid)) {
        tables.read.entry(port).or_insert_with(|| vec![0x7fff]);
    }
    fabric.record_proof(fabric.state.wanted, BTreeSet::new(), Some(&tables), clock::now());
    store_fabric(core, &fabric).await;
}

pub(crate) async fn ended(core: &Core, operation: &v1::Operation) -> Option<i32> {
    let id = operation.name.strip_prefix("operations/").unwrap();
    let row = core
        .store
        .operation(&Scope::Site, &OperationId::stored(id))
        .await
        .unwrap();
    row.ended_at.map(|_| row.code)
}

/// Brings a cluster up to the hand-over.
pub(crate) async fn build(core: &Arc<Core>, id: &str, customer: &str, nodes: u32) -> v1::Operation {
    let operation = create_cluster(core, id, id, spec(customer, nodes)).await.unwrap();
    step(core, id).await;
    for node in names(core, id).await {
        check(core, &node).await;
    }
    if core.config.fabric.is_some() {
        prove(core).await;
    }
    step(core, id).await;
    for node in names(core, id).await {
        hand_over(core, &node).await;
    }
    assert_eq!(step(core, id).await, State::Ready);
    operation
}

#[tokio::test]
async fn a_cluster_is_reserved_whole_and_handed_over_whole() {
    let core = hall(32, FABRIC).await;
    let operation = create_cluster(&core, "1", "alpha", spec("acme", 4)).await.unwrap();
    let nodes = names(&core, "alpha").await;
    assert_eq!(nodes.len(), 4);
    let record = cluster(&core, "alpha").await;
    assert_eq!((record.partition, record.reserved_watts), (Some(1), 4.0 * 10_200.0));
    for node in &nodes {
        let claim = core
            .store
            .node(&Scope::Site, &NodeId::stored(node.as_str()))
            .await
            .unwrap()
            .node
            .claim
            .unwrap();
        assert_eq!(
            (claim.image_digest.as_str(), claim.hostname.as_str()),
            (DIGEST, node.as_str())
        );
        assert_eq!(claim.cluster.unwrap().cluster, "alpha");
    }
    // A repeated request returns the same cluster.
    let again = create_cluster(&core, "1", "alpha", spec("acme", 4)).await.unwrap();
    assert_eq!(again.name, operation.name);
    assert_eq!(step(&core, "alpha").await, State::Building);

    for node in &nodes {
        check(&core, node).await;
    }
    assert_eq!(
        step(&core, "alpha").await,
        State::Building,
        "its partition is not proven"
    );
    assert_eq!(cluster(&core, "alpha").await.wait, ClusterWait::Partition);
    prove(&core).await;
    assert_eq!(step(&core, "alpha").await, State::Validating);
    for node in &nodes {
        let claim = core
            .store
            .node(&Scope::Site, &NodeId::stored(node.as_str()))
            .await
            .unwrap()
            .node
            .claim
            .unwrap();
        assert!(claim.cluster.unwrap().let_go.is_some(), "{node} is not let go");
        assert_eq!(ended(&core, &operation).await, None);
        hand_over(&core, node).await;
    }
    assert_eq!(step(&core, "alpha").await, State::Ready);
    assert_eq!(cluster(&core, "alpha").await.wait, ClusterWait::Rest);
    assert_eq!(ended(&core, &operation).await, Some(Code::Ok as i32));
}

#[tokio::test]
async fn the_pack_of_a_cluster_names_its_nodes_and_its_partition_and_no_others() {
    let core = hall(32, FABRIC).await;
    build(&core, "alpha", "acme", 4).await;
    build(&core, "beta", "bolt", 3).await;
    let record = cluster(&core, "alpha").await;
    let nodes = core
        .store
        .nodes_of_cluster(&Scope::Site, &"alpha".into())
        .await
        .unwrap();
    let files = pack::make(&core, &record, &nodes).await.unwrap();
    let text: String = files
        .iter()
        .map(|file| format!("{}\n{}", file.name, file.text))
        .collect();
    for node in names(&core, "alpha").await {
        assert!(text.contains(&node), "{node} is not in the pack");
    }
    for other in names(&core, "beta").await {
        assert!(!text.contains(&other), "{other} is another customer's");
    }
    for name in [
        "slurm/topology.conf",
        "ansible/inventory.yaml",
        "fabric/partition.md",
        "power.md",
        "README.md",
    ] {
        assert!(files.iter().any(|file| file.name == name), "{name} is missing");
    }
    let partition = files.iter().find(|file| file.name == "fabric/partition.md").unwrap();
    assert!(partition.text.contains("0x0001"), "{}", partition.text);
    assert!(partition.text.contains("c-alpha-0001"), "{}", partition.text);

    // Damaged data are not left out.
    let refusal = async |record: &ClusterRecord, nodes: &[NodeRecord]| {
        let made = pack::make(&core, record, nodes).await;
        made.unwrap_err().to_string()
    };
    let mut damaged = nodes.clone();
    damaged[0].address = "10.0.0".into();
    let why = format!("address of node \"{}\" cannot be read back", damaged[0].id);
    assert_eq!(refusal(&record, &damaged).await, why);
    damaged[0] = testing::node("n-none", NodeState::Available, None);
    testing::add(&core, &damaged[0]).await;
    let why = "the site does not name n-none, a node of the cluster, so a hand-over pack would lack the node";
    assert_eq!(refusal(&record, &damaged).await, why);
    let mut damaged = record.clone();
    damaged.partition = Some(0x8000);
    let why = "partition key of cluster \"alpha\" cannot be read back";
    assert_eq!(refusal(&damaged, &nodes).await, why);
    damaged.uid = "none".into();
    let why = refusal(&damaged, &nodes).await;
    let expected = "cluster alpha no longer holds the key of its partition, so a hand-over pack would lack";
    assert!(why.starts_with(expected), "{why}");
    // A release gives the key back before the nodes have left.
    damaged.cluster.state = State::Releasing;
    let files = pack::make(&core, &damaged, &nodes).await.unwrap();
    assert!(files.iter().all(|file| file.name != "fabric/partition.md"));
}

#[tokio::test]
async fn a_failed_node_is_replaced_put_out_of_service_and_out_of_the_partition() {
    let core = hall(32, FABRIC).await;
    build(&core, "alpha", "acme", 4).await;
    let before = names(&core, "alpha").await;
    let bad = before.first().unwrap().clone();
    put(&core, &bad, |record| {
        record.node.state = NodeState::Failed;
        record.reason = "no disk".into();
    })
    .await;
    assert_eq!(step(&core, "alpha").await, State::Degraded);
    let after = names(&core, "alpha").await;
    assert_eq!(
        (after.len(), after.intersection(&before).count()),
        (4, 3),
        "the others stay"
    );
    assert!(!after.contains(&bad));
    let record = core
        .store
        .node(&Scope::Site, &NodeId::stored(bad.as_str()))
        .await
        .unwrap();
    assert!(
        record
            .node
            .wanted
            .condemn
            .unwrap()
            .contains("replaced in cluster alpha: failed: no disk")
    );
    assert_eq!(record.node.claim.unwrap().cluster, None);
    let fabric = fabric(&core).await;
    let (_, site) = core.sites.current(&core.store).await.unwrap().unwrap();
    let ports = |name: &str| -> Vec<u64> {
        let node = site.node(site.node_named(name).unwrap());
        node.port_guids.iter().flatten().copied().collect()
    };
    let members: BTreeSet<u64> = fabric.partitions().by_port().keys().map(|guid| guid.get()).collect();
    assert!(ports(&bad).iter().all(|port| !members.contains(port)));
    let new = after.difference(&before).next().unwrap();
    assert!(ports(new).iter().all(|port| members.contains(port)));

    // The new node is imaged, checked, proven to be in the partition, and handed over.
    check(&core, new).await;
    assert_eq!(step(&core, "alpha").await, State::Degraded);
    prove(&core).await;
    assert_eq!(step(&core, "alpha").await, State::Degraded);
    hand_over(&core, new).await;
    assert_eq!(step(&core, "alpha").await, State::Ready);
    let history = core.store.cluster_history(&"alpha".into(), 2).await.unwrap();
    assert_eq!(history[0].edge, "restored");
    assert!(history[1].reason.contains("no disk"), "{history:?}");
}

#[tokio::test]
async fn where_no_node_can_take_a_place_the_cluster_says_so_and_waits() {
    let core = hall(32, "").await;
    build(&core, "alpha", "bolt", 32).await;
    let bad = names(&core, "alpha").await.first().unwrap().clone();
    put(&core, &bad, |record| record.node.state = NodeState::Failed).await;
    assert_eq!(step(&core, "alpha").await, State::Degraded);
    let record = cluster(&core, "alpha").await;
    let is_for_it = matches!(&record.wait, ClusterWait::Replacement { lost, .. } if *lost == bad);
    assert!(is_for_it, "{:?}", record.wait);
    assert!(names(&core, "alpha").await.contains(&bad), "nothing was changed");
    let events = core.store.events(&Scope::Site, 0, "clusters/alpha", 100).await.unwrap();
    assert!(
        events.iter().any(|event| event.kind == "cluster.no-replacement"),
        "{events:?}"
    );
}

#[tokio::test]
async fn only_checked_nodes_are_let_go_while_a_lost_one_has_no_replacement() {
    let core = hall(32, "").await;
    build(&core, "alpha", "bolt", 32).await;
    let mut all = names(&core, "alpha").await.into_iter();
    let (bad, new) = (all.next().unwrap(), all.next().unwrap());
    let seat = |record: &mut NodeRecord| record.node.claim.as_mut().unwrap().cluster.as_mut().unwrap().let_go = None;
    put(&core, &bad, |record| {
        seat(record);
        record.node.state = NodeState::Failed;
    })
    .await;
    put(&core, &new, seat).await;
    check(&core, &new).await;
    assert_eq!(step(&core, "alpha").await, State::Degraded);
    let let_go = async |node: &str| {
        let record = core.store.node(&Scope::Site, &NodeId::stored(node)).await.unwrap();
        record.node.claim.unwrap().cluster.unwrap().let_go
    };
    assert!(let_go(&new).await.is_some(), "{new} was checked");
    assert_eq!(let_go(&bad).await, None, "{bad} is lost");
}

#[tokio::test]
async fn a_step_that_meets_a_conflict_every_time_gives_up() {
    let core = hall(32, "").await;
    build(&core, "alpha", "bolt", 4).await;
    // An operator takes every free node: each is free in a plan, and refuses its seat.
    for node in core.store.free_nodes().await.unwrap() {
        put(&core, node.as_str(), |record| {
            record.node.wanted.hold = Some("an inspection".into())
        })
        .await;
    }
    let bad = names(&core, "alpha").await.first().unwrap().clone();
    put(&core, &bad, |record| record.node.state = NodeState::Failed).await;
    let steps = steps_of_cluster(Arc::clone(&core), "alpha".into());
    let ended = tokio::time::timeout(std::time::Duration::from_secs(120), steps).await;
    assert!(ended.is_ok(), "the step goes on for ever");
    assert_eq!(cluster(&core, "alpha").await.cluster.state, State::Degraded);
    assert!(names(&core, "alpha").await.contains(&bad), "nothing was changed");
}

/// Events about failed searches for a replacement node.
async fn refusals(core: &Core) -> usize {
    let events = core.store.events(&Scope::Site, 0, "clusters/alpha", 100).await.unwrap();
    let refusals = events.iter().filter(|event| event.kind == "cluster.no-replacement");
    refusals.count()
}

#[tokio::test]
async fn an_obstacle_is_reported_once_whatever_its_words_and_again_for_another_node() {
    let core = hall(32, "").await;
    build(&core, "alpha", "bolt", 32).await;
    let mut nodes = names(&core, "alpha").await.into_iter();
    let (first, second) = (nodes.next().unwrap(), nodes.next().unwrap());
    put(&core, &second, |record| record.node.state = NodeState::Failed).await;
    step(&core, "alpha").await;
    assert_eq!(refusals(&core).await, 1);
    // The next search, some time later, meets the same obstacle and has other numbers in its words.
    let search_again = async |words: &str| {
        let mut tx = core.store.write().await.unwrap();
        let mut record = tx.cluster(&"alpha".into()).await.unwrap();
        let swap = record.swap.as_mut().unwrap();
        assert_eq!(
            (swap.lost.as_str(), swap.obstacle),
            (second.as_str(), Obstacle::Placement)
        );
        (swap.at, swap.refused) = (Timestamp(1), words.to_owned());
        tx.save_cluster(&mut record, clock::now()).await.unwrap();
        tx.commit().await.unwrap();
        step(&core, "alpha").await;
    };
    search_again("31 nodes are in use").await;
    assert_eq!(refusals(&core).await, 1, "the obstacle is the same");
    put(&core, &first, |record| record.node.state = NodeState::Failed).await;
    search_again("32 nodes are in use").await;
    assert_eq!(refusals(&core).await, 2, "another node has no replacement");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_with_what_would_and_nothing_is_taken() {
    let core = hall(32, "").await;
    create_cluster(&core, "1", "alpha", spec("bolt", 20)).await.unwrap();
    let refused = create_cluster(&core, "2", "beta", spec("bolt", 20))
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("what fits: 12 nodes"), "{refused}");
    assert!(core.store.cluster(&Scope::Site, &"beta".into()).await.is_err());
    let free = core.store.free_nodes().await.unwrap();
    assert_eq!(free.len(), 12);
    create_cluster(&core, "3", "beta", spec("bolt", 12)).await.unwrap();
    assert!(names(&core, "alpha").await.is_disjoint(&names(&core, "beta").await));

    for (field, spec) in [
        ("spec.customer", spec("nobody", 1)),
        (
            "spec.sku",
            v1::ClusterSpec {
                sku: "abacus".into(),
                ..spec("bolt", 1)
            },
        ),
        ("spec.nodes", spec("bolt", 0)),
        (
            "spec.bandwidth",
            v1::ClusterSpec {
                bandwidth: "wide".into(),
                ..spec("bolt", 1)
            },
        ),
    ] {
        match create_cluster(&core, field, "gamma", spec).await {
            Err(ApiError::Invalid(faults)) => assert_eq!(faults[0].0, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_node_with_a_begun_firmware_update_goes_to_no_customer_until_the_update_is_over() {
    let core = hall(32, "").await;
    let free = core.store.free_nodes().await.unwrap();
    let update = FirmwareUpdateRow {
        node: free[0].clone(),
        digest: "sha256:1".into(),
        changed_at: clock::now(),
        body: "{}".into(),
    };
    core.store.put_firmware_update(&update).await.unwrap();
    let refused = create_cluster(&core, "1", "alpha", spec("bolt", 32)).await.unwrap_err();
    let why = "1 node of dgx-h100 is not enrolled, not available or in use";
    assert!(refused.to_string().contains(why), "{refused}");
    let deployment = v1::Deployment {
        image: "images/noble".into(),
        ..v1::Deployment::default()
    };
    let refused = deploy_with(&core, "2", update.node.as_str(), deployment.clone())
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("a firmware update has begun"), "{refused}");
    let record = core.store.node(&Scope::Site, &update.node).await.unwrap();
    assert_eq!(record.node.claim, None, "nothing was changed");
    let mut tx = core.store.write().await.unwrap();
    let reserved = testing::cluster("beta");
    let is_seated = reserve::claim_node(&core, &mut tx, &update.node, &reserved, clock::now()).await;
    assert!(!is_seated.unwrap(), "a plan from before the update gets no such node");
    drop(tx);

    core.store.end_firmware_update(&update.node).await.unwrap();
    deploy_with(&core, "3", update.node.as_str(), deployment).await.unwrap();
}

#[tokio::test]
async fn concurrent_reservations_get_different_nodes() {
    let core = hall(64, FABRIC).await;
    let make = |n: u32| {
        let core: Arc<Core> = Arc::clone(&core);
        async move {
            let id = format!("c{n}");
            create_cluster(&core, &id, &id, spec("bolt", 16)).await
        }
    };
    let (a, b) = tokio::join!(make(1), make(2));
    a.unwrap();
    b.unwrap();
    assert!(names(&core, "c1").await.is_disjoint(&names(&core, "c2").await));
    let keys: BTreeSet<_> = [
        cluster(&core, "c1").await.partition,
        cluster(&core, "c2").await.partition,
    ]
    .into();
    assert_eq!(keys, [Some(1), Some(2)].into());
    // There is no third key.
    let refused = make(3).await.unwrap_err().to_string();
    assert!(refused.contains("all 2 keys are taken"), "{refused}");
    assert_eq!(core.store.free_nodes().await.unwrap().len(), 32);
}

#[tokio::test]
async fn a_released_cluster_gives_back_nodes_and_key_and_only_when_both_are_proven() {
    let core = hall(32, FABRIC).await;
    let created = build(&core, "alpha", "acme", 4).await;
    assert_eq!(ended(&core, &created).await, Some(Code::Ok as i32));
    let operation = release_cluster(&core, "r", "alpha").await.unwrap();
    assert_eq!(step(&core, "alpha").await, State::Releasing);
    let nodes = names(&core, "alpha").await;
    for node in &nodes {
        assert!(
            core.store
                .node(&Scope::Site, &NodeId::stored(node.as_str()))
                .await
                .unwrap()
                .node
                .claim
                .unwrap()
                .release_requested
        );
        put(&core, node, |record| {
            record.node.state = NodeState::Available;
            record.node.claim = None;
        })
        .await;
    }
    assert_eq!(
        step(&core, "alpha").await,
        State::Releasing,
        "ports may still have its key"
    );
    let wait = cluster(&core, "alpha").await.wait;
    assert!(matches!(wait, ClusterWait::PartitionRemoval { ports: 1.. }), "{wait:?}");
    let again = release_cluster(&core, "r2", "alpha").await;
    assert!(matches!(again, Err(ApiError::Precondition { .. })), "{again:?}");
    prove(&core).await;
    assert_eq!(step(&core, "alpha").await, State::Released);
    assert_eq!(ended(&core, &operation).await, Some(Code::Ok as i32));
    assert!(names(&core, "alpha").await.is_empty());
    // Everything is free again.
    create_cluster(&core, "b", "beta", spec("bolt", 32)).await.unwrap();
}

#[tokio::test]
async fn a_site_in_which_a_cluster_would_lose_something_is_refused() {
    let core = hall(32, "").await;
    create_cluster(&core, "1", "alpha", spec("acme", 4)).await.unwrap();
    let node = names(&core, "alpha").await.first().unwrap().clone();
    // The same hall with one node less.
    let smaller = site(32).replace(&format!("name: {node}\n"), "name: other-node\n");
    if smaller != site(32) {
        let refused = apply_site(&core, "2", &smaller).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    let other_customers = site(32).replace("acme", "acne");
    let refused = apply_site(&core, "3", &other_customers).await.unwrap_err().to_string();
    assert!(
        refused.contains("cluster alpha: customer acme is not in the site"),
        "{refused}"
    );
    assert_eq!(core.store.site_version().await.unwrap(), 1);
    // A site that only adds is accepted.
    let more = site(32).replace("customers:\n", "customers:\n- {name: third}\n");
    assert_ne!(more, site(32));
    let applied = apply_site(&core, "4", &more).await.unwrap();
    assert_eq!(applied.metadata.unwrap().resource_version, "2");
    create_cluster(&core, "5", "beta", spec("third", 1)).await.unwrap();
}

#[tokio::test]
async fn faults_of_a_site_name_their_places_and_nothing_is_applied() {
    let core = testing::core().await;
    let text = "site: {name: lab}\nracks:\n- name: r1\n  room: nowhere\n";
    match apply_site(&core, "1", text).await {
        Err(ApiError::Invalid(faults)) => {
            assert_eq!(faults[0].0, "site.yaml:4:9");
            assert!(faults[0].1.contains("racks[0].room"), "{faults:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(core.store.site().await.unwrap(), None);
    let asked = reserve::Asked {
        id: "alpha".into(),
        uid: "u".into(),
        customer: "acme".into(),
        spec: rackwright_store::ClusterSpec::default(),
    };
    let refused = reserve::create(&core, &asked, None, [].into(), clock::now()).await;
    let Err(ReserveError::Hall(error)) = refused.map(drop) else {
        panic!("a cluster without a site");
    };
    assert!(error.to_string().contains("no site"), "{error}");
}
