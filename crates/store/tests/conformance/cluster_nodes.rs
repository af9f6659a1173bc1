//! The nodes of all clusters.

use rackwright_lifecycle::{NodeId, Power, Reading, State as NodeState};
use rackwright_store::{ClusterNodeCount, Proof, Scope};

use super::clusters::{cluster, insert};
use super::support::{Lab, at, claim, node_in};

#[tokio::test]
async fn nodes_of_clusters_are_listed_and_counted() {
    let mut running = node_in("n1", NodeState::Active);
    running.readings.power = Reading::Known {
        value: Power::Off,
        at: at(7),
    };
    running.node.claim = Some(claim("b3-1"));
    let mut checked = node_in("n2", NodeState::Validating);
    checked.node.claim = Some(claim("b3-1"));
    let nodes = [
        running,
        checked,
        node_in("n3", NodeState::Imaging),
        node_in("n4", NodeState::Active),
    ];
    let lab = Lab::new().await.with(&nodes).await;
    insert(&lab, &cluster("alpha", "acme"), &["n1", "n2"]).await.unwrap();
    let mut beta = cluster("beta", "bolt");
    beta.uid = "uid-beta".into();
    insert(&lab, &beta, &["n3"]).await.unwrap();

    let cluster_nodes = lab.store.list_cluster_nodes().await.unwrap();
    let rows: Vec<_> = cluster_nodes
        .iter()
        .map(|one| (one.node.as_str(), one.cluster.as_str(), one.state))
        .collect();
    assert_eq!(
        rows,
        [
            ("n1", "alpha", NodeState::Active),
            ("n2", "alpha", NodeState::Validating)
        ],
        "n3 does not run, n4 is in no cluster"
    );
    assert!(matches!(
        cluster_nodes[0].power,
        Reading::Known { value: Power::Off, .. }
    ));

    let count = |nodes, active| ClusterNodeCount { nodes, active };
    let all = lab
        .store
        .count_cluster_nodes(&Scope::Site, &"alpha".into(), &"beta".into())
        .await
        .unwrap();
    assert_eq!(
        all,
        [("alpha".into(), count(2, 1)), ("beta".into(), count(1, 0))].into()
    );
    let one = lab
        .store
        .count_cluster_nodes(&Scope::Site, &"b".into(), &"beta".into())
        .await
        .unwrap();
    assert_eq!(one.keys().collect::<Vec<_>>(), ["beta"]);
    let scope = Scope::Customer("acme".into());
    let own = lab
        .store
        .count_cluster_nodes(&scope, &"alpha".into(), &"beta".into())
        .await
        .unwrap();
    assert_eq!(own, [("alpha".into(), count(2, 1))].into(), "never another's");
}

#[tokio::test]
async fn the_newest_report_of_each_node_of_a_cluster_is_one_read() {
    let nodes = ["n1", "n2", "n3", "n4"].map(|id| node_in(id, NodeState::Active));
    let lab = Lab::new().await.with(&nodes).await;
    insert(&lab, &cluster("alpha", "acme"), &["n1", "n2", "n3"])
        .await
        .unwrap();
    let mut tx = lab.store.write().await.unwrap();
    for (id, node, body) in [
        ("r1", "n1", b"old"),
        ("r2", "n2", b"two"),
        ("r3", "n1", b"new"),
        ("r4", "n4", b"not"),
    ] {
        tx.add_proof(Proof::Report, id, &NodeId::stored(node), body)
            .await
            .unwrap();
    }
    tx.add_proof(Proof::EraseCertificate, "e1", &"n3".into(), b"erased")
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let found = lab.store.newest_reports(&"alpha".into()).await.unwrap();
    let found: Vec<(&str, &[u8])> = found.iter().map(|(node, body)| (node.as_str(), &**body)).collect();
    assert_eq!(found, [("n1", &b"new"[..]), ("n2", b"two")]);
    assert!(lab.store.newest_reports(&"beta".into()).await.unwrap().is_empty());
}
