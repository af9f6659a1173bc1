use std::time::Duration;

use rackwright_lifecycle::cluster::Wait;
use rackwright_lifecycle::{ClusterId, NodeId};
use rackwright_planner::handover::Verdict;
use rackwright_planner::network::{Lane, Rule, Test, Topology, Transport, Usual, judge};

use super::*;
use crate::clusters::tests::{build, check, cluster, hall, names, spec, step};
use crate::grpc::test_calls::create_cluster;

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
    core.parts().clusters.tester = Tester(Arc::new(Play { ends: true }));
    begun(&core).await;
    let ended = async {
        while cluster(&core, "alpha").await.network.unwrap().until.is_some() {
            core.clusters.due.notified().await;
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
    let tasks = crate::core::Tasks::default();
    core.parts().clusters.tester = Tester(Arc::new(Play { ends: false }));
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
    let told = "the network test was skipped: network_test.enabled is false";
    assert_eq!(words(&record), told);
    let files = crate::clusters::pack::make(&core, &record, &nodes(&core, "alpha").await)
        .await
        .unwrap();
    let report = files.iter().find(|file| file.name == "validation.md").unwrap();
    assert!(report.text.contains(told), "{}", report.text);
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
            core.clusters.due.notified().await;
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
    assert_eq!(pause, seconds(AGAIN_S));
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
    core.clusters.tests.begin("r");
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
    outcome::store(&core, &"alpha".into(), &old, &Found::default())
        .await
        .unwrap();
    assert_eq!(cluster(&core, "alpha").await, before);
}

#[tokio::test]
async fn a_process_that_stops_waits_until_its_runs_have_cleaned_the_nodes() {
    let core = hall(32, ON).await;
    core.clusters.tests.begin("r");
    core.stop.cancel();
    let mut stopping = tokio::spawn(crate::clusters::run(core.clone()));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut stopping).await;
    assert!(early.is_err(), "it did not wait for the run");
    core.clusters.tests.end("r");
    core.clusters.due.notify_one();
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
    assert!(!core.clusters.tests.is_any());
    let test = cluster(&core, "alpha").await.network.unwrap();
    assert!(test.until.is_some() && test.faults.is_empty() && test.blocked.is_empty());
}

const NAMES: [&str; 5] = ["n0", "n1", "n2", "n3", "n4"];

/// All pairs of five nodes; the pairs of `slow` have a fifth of the rate.
fn found(slow: Option<usize>) -> Found {
    let topology = Topology::bare(&NAMES.map(str::to_owned));
    let pairs = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b)));
    let test = |(a, b)| Test {
        a,
        b,
        lane: Lane::Address,
        transport: Transport::Tcp(None),
        gbit_per_s: if slow == Some(a) || slow == Some(b) { 2.0 } else { 10.0 },
        p99_us: 50.0,
        retransmits: 0,
        error: None,
    };
    let rule = Rule {
        floor_gbit_per_s: 0.0,
        share_of_usual: 0.5,
    };
    let tests: Vec<Test> = pairs.map(test).collect();
    Found {
        judgement: judge(&topology, &tests, &rule, &Usual::new()),
        fresh: (0..5).collect(),
        topology,
        ..Found::default()
    }
}

fn began() -> NetworkTest {
    let members = NAMES.map(|name| (NodeId::stored(name), "1.1".to_owned()));
    NetworkTest {
        run: "r".into(),
        until: Some(LATER),
        members: members.into(),
        ..NetworkTest::default()
    }
}

#[test]
fn the_others_have_passed_where_one_is_at_fault() {
    let test = outcome::conclude(&"alpha".into(), &began(), &found(Some(3)));
    assert_eq!(test.faults.keys().collect::<Vec<_>>(), ["n3"]);
    assert!(
        test.faults["n3"].1.contains("2.00 Gbit/s, but at least 5.00 Gbit/s"),
        "{:?}",
        test.faults
    );
    assert_eq!(test.passed.keys().collect::<Vec<_>>(), ["n0", "n1", "n2", "n4"]);
    assert_eq!(
        (test.until, test.blocked.as_str(), test.usual["address"]),
        (None, "", 10.0)
    );
    // The rows of the others remain without the one that leaves.
    let verdicts: Vec<(&str, &str)> = test
        .rows
        .iter()
        .map(|row| (row.check.as_str(), row.verdict.as_str()))
        .collect();
    assert_eq!(
        verdicts,
        [
            ("network-pairs", "passed"),
            ("network-slowest-pair", "passed"),
            ("network-fault", "failed")
        ]
    );
    let report = report(&"alpha".into(), Some(&test));
    assert_eq!(report.iter().filter(|row| row.verdict == Verdict::Failed).count(), 1);
}

#[test]
fn too_many_faulty_nodes_blame_the_network() {
    let mut found = found(None);
    found.excluded = [
        (0, "no login".to_owned()),
        (1, "no login".to_owned()),
        (2, "no login".to_owned()),
    ]
    .into();
    let test = outcome::conclude(&"alpha".into(), &began(), &found);
    assert!(test.faults.is_empty() && test.passed.is_empty());
    assert!(
        test.blocked.starts_with("3 of 5 nodes are at fault"),
        "{}",
        test.blocked
    );
    found.excluded = [(4, "no login".to_owned())].into();
    let test = outcome::conclude(&"alpha".into(), &began(), &found);
    assert_eq!((test.faults.len(), test.blocked.as_str()), (1, ""));
}

#[test]
fn a_node_that_could_not_be_cleaned_is_not_given_to_anybody() {
    let mut found = found(None);
    plan::note_unclean(&mut found, [(2, "it hangs".to_owned())].into());
    let test = outcome::conclude(&"alpha".into(), &began(), &found);
    assert_eq!(test.faults["n2"].1, "after the network test: it hangs");
    assert!(test.passed.len() == 4 && !test.passed.contains_key("n2"));
}

#[test]
fn a_node_without_peers_passes_with_a_note() {
    let topology = Topology::bare(&["n0".to_owned()]);
    let found = Found {
        fresh: [0].into(),
        topology,
        ..Found::default()
    };
    let mut began = began();
    began.members.retain(|node, _| node == "n0");
    let test = outcome::conclude(&"alpha".into(), &began, &found);
    assert_eq!(test.passed.len(), 1);
    let report = report(&"alpha".into(), Some(&test));
    assert_eq!((report.len(), report[0].verdict), (1, Verdict::Skipped));
    assert!(report[0].measured.starts_with("no peer is available"));
}

#[test]
fn a_run_of_thousands_of_nodes_has_a_time_by_which_it_is_over() {
    let settings = Settings::default();
    assert!(plan::longest_s(&settings, 2) < 3600);
    assert!(plan::longest_s(&settings, 4096) < 6 * 3600);
}
