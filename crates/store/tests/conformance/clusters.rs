//! Clusters and their nodes.

use rackwright_lifecycle::State as NodeState;
use rackwright_lifecycle::cluster::{Cluster, Edge, NewPort, Obstacle, Rollout, State, Swap, Wait, Wanted};
use rackwright_lifecycle::{ClusterId, NodeId};
use rackwright_store::{
    ClusterHistoryRow, ClusterRecord, ClusterSpec, Filter, FormerSpec, NetworkRow, NetworkTest, Replaced, Scope, Store,
    StoreError, Term,
};

use super::support::{BEFORE_FABRIC_ROWS, Lab, at, node_in};

pub fn cluster(id: &'static str, customer: &'static str) -> ClusterRecord {
    let spec = ClusterSpec {
        sku: "dgx-h100".into(),
        nodes: 2,
        spares: 1,
        bandwidth: "2:1".into(),
        ..ClusterSpec::default()
    };
    let mut record = ClusterRecord::new(id.into(), format!("uid-{id}"), customer.into(), spec, at(100));
    let port = NewPort {
        node: "n1".into(),
        hca: "mlx5_3".into(),
    };
    record.cluster = Cluster {
        state: State::Reserved,
        since: at(100),
        wanted: Wanted {
            release: false,
            retry: true,
            replace: [("n1".into(), "slow".to_owned())].into(),
            leave: ["n2".into()].into(),
            is_leave_cut: true,
            new_ports: [("0x9".to_owned(), port)].into(),
        },
        lease_end: Some(at(9000)),
        notices: 2,
        build: 3,
        rollout: Some(Rollout {
            max_unavailable: 2,
            by_leaf: true,
            max_failures: 1,
            failed: 1,
            again: ["n1".into()].into(),
            roll_back: true,
            is_back: false,
            stopped: Some("it does not boot".into()),
        }),
    };
    record.labels = [("team".to_owned(), "a".to_owned())].into();
    record.placement = "{}".into();
    record.reserved_watts = 30_600.5;
    (record.partition, record.partitions_version) = (Some(0x12), 7);
    record.reason = "because".into();
    record.swap = Some(Swap {
        at: at(5),
        refused: "none free".into(),
        lost: "n2".into(),
        obstacle: Obstacle::Budgets,
    });
    record.replaced = vec![Replaced {
        node: "n9".into(),
        by: "n1".into(),
        at: at(6),
        why: "no disk".into(),
    }];
    record.former = Some(FormerSpec {
        build: 2,
        spec: record.spec.clone(),
    });
    record.network = Some(NetworkTest {
        run: "run-1".into(),
        replica: "a".into(),
        begun_at: Some(at(7)),
        until: Some(at(8)),
        passed: [("n1".into(), "1.1".to_owned())].into(),
        faults: [("n2".into(), ("1.1".to_owned(), "cable c7".to_owned()))].into(),
        usual: [("address".to_owned(), 9.5)].into(),
        rows: vec![NetworkRow {
            subject: id.into(),
            check: "network-pairs".into(),
            verdict: "passed".into(),
            measured: "9.4 Gbit/s".into(),
            wanted: "4.7 Gbit/s".into(),
        }],
        ..NetworkTest::default()
    });
    record
}

pub async fn insert(lab: &Lab, record: &ClusterRecord, nodes: &[&str]) -> Result<(), StoreError> {
    let mut tx = lab.store.write().await?;
    tx.insert_cluster(record).await?;
    for node in nodes {
        tx.add_cluster_node(&record.id, &NodeId::stored(*node)).await?;
    }
    tx.commit().await
}

async fn lab() -> Lab {
    let nodes: Vec<_> = ["n1", "n2", "n3"]
        .iter()
        .map(|id| node_in(id, NodeState::Available))
        .collect();
    Lab::new().await.with(&nodes).await
}

#[tokio::test]
async fn a_cluster_is_read_back_as_it_was_written() {
    let lab = lab().await;
    let mut alpha = cluster("alpha", "acme");
    insert(&lab, &alpha, &["n1", "n2"]).await.unwrap();
    assert_eq!(lab.store.cluster(&Scope::Site, &"alpha".into()).await.unwrap(), alpha);
    let nodes = lab.store.nodes_of_cluster(&Scope::Site, &"alpha".into()).await.unwrap();
    assert_eq!(nodes.iter().map(|n| n.id.as_str()).collect::<Vec<_>>(), ["n1", "n2"]);

    let stale = alpha.clone();
    alpha.cluster.state = State::Building;
    alpha.cluster.since = at(200);
    alpha.swap = None;
    let mut tx = lab.store.write().await.unwrap();
    tx.save_cluster(&mut alpha, at(200)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.cluster(&Scope::Site, &"alpha".into()).await.unwrap(), alpha);
    assert_eq!((alpha.version, alpha.due_at), (2, at(200)));
    let mut tx = lab.store.write().await.unwrap();
    let refused = tx.save_cluster(&mut stale.clone(), at(300)).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_node_is_in_one_cluster_and_a_cluster_without_all_its_nodes_is_not_stored() {
    let lab = lab().await;
    insert(&lab, &cluster("alpha", "acme"), &["n1", "n2"]).await.unwrap();
    let refused = insert(&lab, &cluster("beta", "acme"), &["n3", "n2"]).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    assert!(lab.store.cluster(&Scope::Site, &"beta".into()).await.is_err());
    assert!(
        lab.store
            .nodes_of_cluster(&Scope::Site, &"beta".into())
            .await
            .unwrap()
            .is_empty()
    );
    let mut tx = lab.store.write().await.unwrap();
    tx.remove_cluster_node(&"n2".into()).await.unwrap();
    tx.commit().await.unwrap();
    insert(&lab, &cluster("beta", "acme"), &["n3", "n2"]).await.unwrap();
    let again = insert(&lab, &cluster("beta", "other"), &[]).await;
    assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
}

#[tokio::test]
async fn clusters_are_found_by_customer_and_state() {
    let lab = lab().await;
    for (id, customer) in [("a1", "acme"), ("b1", "bolt"), ("a2", "acme")] {
        insert(&lab, &cluster(id, customer), &[]).await.unwrap();
    }
    let ids = async |filter: Filter, after: &str| -> Vec<String> {
        let found = lab.store.clusters(&Scope::Site, &filter, after, 10).await.unwrap();
        found.into_iter().map(|c| c.id.to_string()).collect()
    };
    assert_eq!(ids(vec![], "").await, ["a1", "a2", "b1"]);
    assert_eq!(ids(vec![Term::is("customer", "acme")], "a1").await, ["a2"]);
    assert_eq!(ids(vec![Term::is_not("customer", "acme")], "").await, ["b1"]);
    let both = vec![Term::is("state", "reserved"), Term::is("name", "b1")];
    assert_eq!(ids(both, "").await, ["b1"]);
    assert!(ids(vec![Term::is("state", "ready")], "").await.is_empty());
}

#[tokio::test]
async fn due_clusters_are_taken_once_and_one_that_changed_meanwhile_stays_due() {
    let lab = lab().await;
    insert(&lab, &cluster("alpha", "acme"), &[]).await.unwrap();
    let take = async |now| lab.store.lease_due_clusters(at(now), at(now + 1000), 5).await.unwrap();
    assert!(take(99).await.is_empty());
    assert_eq!(take(150).await, ["alpha"]);
    assert!(take(151).await.is_empty(), "leased");
    assert_eq!(lab.store.next_cluster_due().await.unwrap(), Some(at(1150)));

    let seen = lab.store.cluster(&Scope::Site, &"alpha".into()).await.unwrap();
    let nodes = Wait::Nodes { coming: 1, of: 2 };
    lab.store.rest_cluster(&seen, &nodes, at(9_000_000)).await.unwrap();
    let rested = lab.store.cluster(&Scope::Site, &"alpha".into()).await.unwrap();
    assert_eq!((&rested.wait, rested.due_at), (&nodes, at(9_000_000)));
    // A change of state ends the wait; another change leaves it.
    for (state, since, waits) in [
        (rested.cluster.state, rested.cluster.since, nodes.clone()),
        (State::Failed, at(3000), Wait::Rest),
    ] {
        let mut tx = lab.store.write().await.unwrap();
        let mut record = tx.cluster(&"alpha".into()).await.unwrap();
        (record.cluster.state, record.cluster.since) = (state, since);
        tx.save_cluster(&mut record, at(3000)).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(record.wait, waits);
        let stored = lab.store.cluster(&Scope::Site, &"alpha".into()).await.unwrap();
        assert_eq!(stored.wait, waits);
    }
    let seen = lab.store.cluster(&Scope::Site, &"alpha".into()).await.unwrap();
    lab.store.rest_cluster(&seen, &nodes, at(9_000_000)).await.unwrap();
    let rested = lab.store.cluster(&Scope::Site, &"alpha".into()).await.unwrap();

    // A node's edge wakes the cluster a moment later; a decision on older data is refused.
    let mut tx = lab.store.write().await.unwrap();
    tx.wake_cluster(&"alpha".into(), at(2000)).await.unwrap();
    tx.commit().await.unwrap();
    let woken = lab.store.cluster(&Scope::Site, &"alpha".into()).await.unwrap();
    assert!(woken.due_at < at(1_000_000));
    let refused = lab.store.rest_cluster(&rested, &Wait::Rest, at(9_500_000)).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_wait_is_read_as_it_was_stored_and_an_unknown_one_is_named() {
    let lab = lab().await;
    insert(&lab, &cluster("alpha", "acme"), &[]).await.unwrap();
    let text = || "the network between its nodes: 'a' \"b\"".to_owned();
    let waits = [
        Wait::Replacement {
            lost: "n1".into(),
            refused: text(),
        },
        Wait::PartitionRemoval { ports: 8 },
        Wait::NetworkTest,
        Wait::Rest,
        Wait::ReimageStopped { reason: text() },
    ];
    for wait in waits {
        let seen = lab.store.cluster(&Scope::Site, &"alpha".into()).await.unwrap();
        lab.store.rest_cluster(&seen, &wait, at(9_000)).await.unwrap();
        let rested = lab.store.cluster(&Scope::Site, &"alpha".into()).await.unwrap();
        assert_eq!(rested.wait, wait);
    }
    for (columns, named) in [
        (r#"wait = '{"moon":{"phase":1}}', wait_kind = 'moon'"#, "`moon`"),
        (r#"wait = '"network-test"', wait_kind = 'moon'"#, r#""moon""#),
    ] {
        lab.database.sql(&format!("UPDATE clusters SET {columns}")).await;
        let refused = lab.store.cluster(&Scope::Site, &"alpha".into()).await;
        let is_named = matches!(&refused, Err(StoreError::Corrupt { what: "cluster", id, source })
            if id == "alpha" && source.to_string().contains(named));
        assert!(is_named, "{refused:?}");
    }
}

/// Waits were texts before schema 33.
#[tokio::test]
async fn a_wait_of_an_older_schema_is_decided_anew() {
    let lab = lab().await;
    insert(&lab, &cluster("alpha", "acme"), &[]).await.unwrap();
    insert(&lab, &cluster("beta", "acme"), &[]).await.unwrap();
    lab.store.close().await;
    let back = "ALTER TABLE clusters DROP COLUMN wait_kind; ALTER TABLE clusters RENAME COLUMN wait TO wait_why; \
                UPDATE clusters SET due_at = 9000, updated_at = 300; \
                UPDATE clusters SET wait_why = '1 of 2 nodes to be imaged and checked' WHERE id = 'alpha'; \
                DELETE FROM schema_version WHERE version >= 33;";
    lab.database.sql(&format!("{BEFORE_FABRIC_ROWS}{back}")).await;
    let store = Store::open(lab.database.database()).await.unwrap();
    for (id, due) in [("alpha", 300), ("beta", 9000)] {
        let record = store.cluster(&Scope::Site, &ClusterId::stored(id)).await.unwrap();
        assert_eq!((record.wait, record.due_at), (Wait::Rest, at(due)), "{id}");
    }
}

#[tokio::test]
async fn a_second_wake_of_a_due_cluster_prevents_its_rest() {
    let lab = lab().await;
    insert(&lab, &cluster("alpha", "acme"), &[]).await.unwrap();
    lab.store.wake_cluster(&"alpha".into(), at(50)).await.unwrap();
    let seen = lab.store.cluster(&Scope::Site, &"alpha".into()).await.unwrap();
    // A node's edge after the read.
    lab.store.wake_cluster(&"alpha".into(), at(60)).await.unwrap();
    let refused = lab.store.rest_cluster(&seen, &Wait::Rest, at(9_000)).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    let seen = lab.store.cluster(&Scope::Site, &"alpha".into()).await.unwrap();
    lab.store.wake_clusters(at(70)).await.unwrap();
    let refused = lab.store.rest_cluster(&seen, &Wait::Rest, at(9_000)).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_deleted_cluster_takes_its_history_and_nodes_along() {
    let lab = lab().await;
    let alpha = cluster("alpha", "acme");
    insert(&lab, &alpha, &["n1"]).await.unwrap();
    let row = ClusterHistoryRow {
        edge: "started".into(),
        from: State::Reserved,
        to: State::Building,
        at: at(120),
        spent_us: 20,
        reason: "why".into(),
    };
    let mut tx = lab.store.write().await.unwrap();
    tx.add_cluster_history(&"alpha".into(), Edge::Started, &row)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.cluster_history(&"alpha".into(), 10).await.unwrap(), [row]);

    let mut tx = lab.store.write().await.unwrap();
    assert!(tx.delete_cluster(&alpha).await.is_err(), "it has a node");
    drop(tx);
    let mut tx = lab.store.write().await.unwrap();
    tx.remove_cluster_node(&"n1".into()).await.unwrap();
    tx.delete_cluster(&alpha).await.unwrap();
    tx.commit().await.unwrap();
    assert!(lab.store.cluster(&Scope::Site, &"alpha".into()).await.is_err());
    assert!(lab.store.cluster_history(&"alpha".into(), 10).await.unwrap().is_empty());
}
