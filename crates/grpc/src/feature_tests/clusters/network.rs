//! Network tests of clusters, from the request for the cluster to the hand-over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rackwright_control::clusters::Clusters;
use rackwright_control::clusters::network::{
    Found, NetworkTester, REPEAT_S, TestFuture, Tester, begin, deployment, ended, fact, words,
};
use rackwright_control::clusters::{self, pack};
use rackwright_control::testing::store_network_outcome;
use rackwright_ground::clock;
use rackwright_ground::core::{Core, Tasks};
use rackwright_lifecycle::cluster::{Network, State, Wait};
use rackwright_lifecycle::{ClusterId, NodeId, Timestamp, seconds};
use rackwright_planner::network::Topology;
use rackwright_store::{NetworkTest, NodeRecord, Scope};

use super::{build, check, cluster, hall, names, spec, step};
use crate::test_calls::create_cluster;

/// A program that exists but cannot be sent: there are no machines behind these rows.
const ON: &str = "network_test: {program: /bin/sh}\n";
const LATER: Timestamp = Timestamp(i64::MAX / 2);

/// Tests of a network without machines: each passes at once, or none ever ends.
struct Play {
    ends: bool,
}

impl NetworkTester for Play {
    fn test<'a>(
        &'a self,
        _: &'a Arc<Core>,
        _: &'a ClusterId,
        _: &'a NetworkTest,
        nodes: Vec<NodeRecord>,
    ) -> TestFuture<'a> {
        if !self.ends {
            return Box::pin(std::future::pending());
        }
        let names: Vec<String> = nodes.into_iter().map(|node| node.id.to_string()).collect();
        let found = Found {
            fresh: (0..names.len()).collect(),
            topology: Topology::bare(&names),
            ..Found::default()
        };
        Box::pin(std::future::ready(Some(found)))
    }
}

/// A cluster with checked nodes, and its network test begun.
async fn begun(core: &Arc<Core>) {
    create_cluster(core, "1", "alpha", spec("acme", 4)).await.unwrap();
    step(core, "alpha").await;
    for node in names(core, "alpha").await {
        check(core, &node).await;
    }
    assert_eq!(step(core, "alpha").await, State::Validating);
}

async fn let_go(core: &Core) -> usize {
    let nodes = nodes(core, "alpha").await.into_iter();
    let seats = nodes.filter_map(|node| node.node.claim?.cluster?.let_go);
    seats.count()
}

#[tokio::test]
async fn the_tester_makes_the_test_and_the_nodes_that_passed_are_let_go() {
    let mut core = hall(32, ON).await;
    let tester = Tester(Arc::new(Play { ends: true }));
    core.parts().replace_feature(Clusters::with_tester(tester));
    begun(&core).await;
    let ended = async {
        while cluster(&core, "alpha").await.network.unwrap().until.is_some() {
            core.clusters_due.notified().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
    step(&core, "alpha").await;
    assert_eq!(cluster(&core, "alpha").await.network.unwrap().passed.len(), 4);
    assert_eq!(let_go(&core).await, 4);
}

#[tokio::test]
async fn a_run_is_a_task_of_its_process_and_ends_with_it() {
    let mut core = hall(32, ON).await;
    let tasks = Tasks::default();
    let tester = Tester(Arc::new(Play { ends: false }));
    core.parts().replace_feature(Clusters::with_tester(tester));
    core.parts().tasks = Some(tasks.clone());
    begun(&core).await;
    let mut running = std::mem::take(&mut *tasks.lock().unwrap());
    assert_eq!(running.len(), 1);
    running.shutdown().await;
    let held: &Arc<Core> = &core;
    assert_eq!(Arc::strong_count(held), 1, "the task holds the core");
    assert_eq!(let_go(&core).await, 0);
}

async fn nodes(core: &Core, id: &str) -> Vec<NodeRecord> {
    core.store
        .nodes_of_cluster(&Scope::Site, &ClusterId::stored(id))
        .await
        .unwrap()
}

#[tokio::test]
async fn without_a_test_the_cluster_is_handed_over_and_its_report_says_so() {
    let core = hall(32, "network_test: {enabled: false}\n").await;
    build(&core, "alpha", "acme", 3).await;
    let record = cluster(&core, "alpha").await;
    let skipped = "the network test was skipped: network_test.enabled is false";
    assert_eq!(words(&record), skipped);
    let files = pack::make(&core, &record, &nodes(&core, "alpha").await).await.unwrap();
    let report = files.iter().find(|file| file.name == "validation.md").unwrap();
    assert!(report.text.contains(skipped), "{}", report.text);
}

#[tokio::test]
async fn a_test_that_reaches_no_node_blames_none_and_is_tried_again_after_its_pause() {
    let core = hall(32, ON).await;
    create_cluster(&core, "1", "alpha", spec("acme", 4)).await.unwrap();
    step(&core, "alpha").await;
    for node in names(&core, "alpha").await {
        check(&core, &node).await;
    }
    assert_eq!(step(&core, "alpha").await, State::Validating);
    let ended = async {
        while cluster(&core, "alpha").await.network.unwrap().until.is_some() {
            core.clusters_due.notified().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
    assert_eq!(step(&core, "alpha").await, State::Validating);
    let record = cluster(&core, "alpha").await;
    let why = "4 of 4 nodes are at fault, so many that a common cause is likely: ";
    let is_at_fault = matches!(&record.wait, Wait::NetworkFault { fault } if fault.starts_with(why));
    assert!(is_at_fault, "{:?}", record.wait);
    let test = record.network.unwrap();
    assert_eq!((test.faults.len(), test.passed.len()), (0, 0));
    let pause = test.again_at.unwrap().since(test.ended_at.unwrap());
    assert_eq!(pause, seconds(REPEAT_S));
    for node in nodes(&core, "alpha").await {
        assert!(
            node.node.claim.unwrap().cluster.unwrap().let_go.is_none(),
            "{} was let go",
            node.id
        );
    }
}

#[tokio::test]
async fn a_run_is_lost_when_its_process_or_its_time_is_over_and_holds_for_the_systems_that_it_tested() {
    let core = hall(32, ON).await;
    create_cluster(&core, "1", "alpha", spec("acme", 2)).await.unwrap();
    let nodes = nodes(&core, "alpha").await;
    let mut record = cluster(&core, "alpha").await;
    let now = clock::now();
    assert_eq!(fact(&core, &record, &nodes, now), Network::Untested);
    let of: BTreeMap<NodeId, String> = nodes.iter().map(|node| (node.id.clone(), deployment(node))).collect();
    let running = NetworkTest {
        run: "r".into(),
        replica: "another".into(),
        until: Some(LATER),
        members: of.clone(),
        ..NetworkTest::default()
    };
    record.network = Some(running.clone());
    assert_eq!(fact(&core, &record, &nodes, now), Network::Running(LATER));
    assert_eq!(
        fact(&core, &record, &nodes, LATER),
        Network::Untested,
        "its time is over"
    );
    record.network.as_mut().unwrap().replica.clone_from(&core.replica);
    assert_eq!(
        fact(&core, &record, &nodes, now),
        Network::Untested,
        "this process does not make it"
    );
    core.feature::<Clusters>().tests.begin("r");
    assert_eq!(fact(&core, &record, &nodes, now), Network::Running(LATER));

    let test = record.network.as_mut().unwrap();
    (test.until, test.passed) = (None, of);
    assert_eq!(fact(&core, &record, &nodes, now), Network::Passed);
    let mut reimaged = nodes.clone();
    reimaged[0].node.claim.as_mut().unwrap().deployment += 1;
    assert_eq!(
        fact(&core, &record, &reimaged, now),
        Network::Untested,
        "another system"
    );
    let test = record.network.as_mut().unwrap();
    let tested = deployment(&nodes[1]);
    test.faults.insert(nodes[1].id.clone(), (tested, "cable c7".into()));
    test.passed.remove(&nodes[1].id);
    let faulty = Network::Faulty {
        nodes: [(nodes[1].id.clone(), "cable c7".to_owned())].into(),
        passed: [nodes[0].id.clone()].into(),
    };
    assert_eq!(fact(&core, &record, &nodes, now), faulty);
    let test = record.network.as_mut().unwrap();
    test.faults.clear();
    (test.blocked, test.again_at) = ("switch leaf-1".into(), Some(LATER));
    assert!(matches!(fact(&core, &record, &nodes, now), Network::Blocked { .. }));
    assert_eq!(
        fact(&core, &record, &reimaged, now),
        Network::Untested,
        "with a new node it is tried at once"
    );
}

#[tokio::test]
async fn a_result_of_a_run_that_the_row_does_not_name_changes_nothing() {
    let core = hall(32, ON).await;
    create_cluster(&core, "1", "alpha", spec("acme", 2)).await.unwrap();
    let old = NetworkTest {
        run: "old".into(),
        until: Some(LATER),
        ..NetworkTest::default()
    };
    let mut tx = core.store.write().await.unwrap();
    let mut record = tx.cluster(&"alpha".into()).await.unwrap();
    record.network = Some(NetworkTest {
        run: "new".into(),
        ..old.clone()
    });
    tx.save_cluster(&mut record, clock::now()).await.unwrap();
    core.commit(tx).await.unwrap();
    let before = cluster(&core, "alpha").await;
    store_network_outcome(&core, &"alpha".into(), &old, &Found::default())
        .await
        .unwrap();
    assert_eq!(cluster(&core, "alpha").await, before);
}

#[tokio::test]
async fn a_process_that_stops_waits_until_its_runs_have_cleaned_the_nodes() {
    let core = hall(32, ON).await;
    core.feature::<Clusters>().tests.begin("r");
    core.stop.cancel();
    let mut stopping = tokio::spawn(clusters::run(core.clone()));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut stopping).await;
    assert!(early.is_err(), "it did not wait for the run");
    core.feature::<Clusters>().tests.end("r");
    core.clusters_due.notify_one();
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_run_that_ends_because_the_process_stops_stores_nothing() {
    let core = hall(32, ON).await;
    create_cluster(&core, "1", "alpha", spec("acme", 4)).await.unwrap();
    core.stop.cancel();
    let (record, nodes) = (cluster(&core, "alpha").await, nodes(&core, "alpha").await);
    begin(&core, record, nodes, clock::now()).await.unwrap();
    ended(&core).await;
    assert!(!core.feature::<Clusters>().tests.is_any());
    let test = cluster(&core, "alpha").await.network.unwrap();
    assert!(test.until.is_some() && test.faults.is_empty() && test.blocked.is_empty());
}
