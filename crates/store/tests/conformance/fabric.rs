//! The state of the fabric: keys, ports and faults.

use rackwright_lifecycle::State as NodeState;
use rackwright_store::{
    ComparisonRow, FabricKeyRow, FabricRow, ImpairedNodeRow, PartitionRow, PartitionRows, Scope, Store, StoreError,
    TakenKeyRow,
};

use super::clusters::{cluster, insert};
use super::support::{BEFORE_FABRIC_ROWS, Lab, at, is_conflict, node_in};

fn state() -> FabricRow {
    FabricRow {
        first_key: 1,
        last_key: 0x7ffe,
        given_key: Some(2),
        wanted: 3,
        applied: 2,
        reading: 7,
        proven_at: Some(at(50)),
        fault: "OpenSM's file".into(),
        absent_changes: 1,
    }
}

fn names(ports: &[&str]) -> Vec<String> {
    ports.iter().map(|port| (*port).to_owned()).collect()
}

/// A key that a cluster holds, with two ports. One of them is absent.
fn held(key: u16, owner: &str) -> FabricKeyRow {
    FabricKeyRow {
        key,
        owner: owner.into(),
        name: format!("c-{owner}"),
        released_at: None,
        ports: names(&["0x1", "0x2", "0x3"]),
        members: names(&["0x1", "0x2"]),
        absent: names(&["0x2"]),
        cut_off: Vec::new(),
    }
}

/// A returned key that may be in two ports. One of them is cut off.
fn returned(key: u16, owner: &str) -> FabricKeyRow {
    FabricKeyRow {
        name: String::new(),
        released_at: Some(6),
        ports: names(&["0x5", "0x6"]),
        members: Vec::new(),
        absent: Vec::new(),
        cut_off: names(&["0x6"]),
        ..held(key, owner)
    }
}

async fn put(store: &Store, keys: &[FabricKeyRow]) -> Result<(), StoreError> {
    let mut tx = store.write().await?;
    tx.hall().await?;
    tx.put_fabric(&state()).await?;
    for key in keys {
        tx.put_fabric_key(key).await?;
    }
    tx.commit().await
}

#[tokio::test]
async fn keys_are_read_back_as_they_were_written() {
    let lab = Lab::new().await;
    assert_eq!(lab.store.fabric().await.unwrap(), None);
    assert_eq!(lab.store.partitions_of("a").await.unwrap(), None);
    let keys = [held(1, "a"), returned(2, "b")];
    put(&lab.store, &keys).await.unwrap();
    assert_eq!(lab.store.fabric().await.unwrap(), Some(state()));
    assert_eq!(lab.store.fabric_keys().await.unwrap(), keys);
    assert_eq!(lab.store.absent_ports().await.unwrap(), ["0x2"]);
    let members = lab.store.partition_members("a").await.unwrap();
    assert_eq!(members, Some((1, names(&["0x1", "0x2"]))));
    for without in ["b", "c"] {
        assert_eq!(lab.store.partition_members(without).await.unwrap(), None, "{without}");
    }

    let mut tx = lab.store.write().await.unwrap();
    tx.hall().await.unwrap();
    assert_eq!(tx.fabric().await.unwrap(), Some(state()));
    assert_eq!(tx.fabric_keys_of("a").await.unwrap(), keys[..1]);
    assert_eq!(tx.fabric_keys_of("nobody").await.unwrap(), []);
    let taken = |key, draining_ports| TakenKeyRow { key, draining_ports };
    let others = [taken(1, None), taken(2, Some(2))];
    assert_eq!(tx.taken_keys_of_others("c").await.unwrap(), others);
    assert_eq!(tx.taken_keys_of_others("a").await.unwrap(), others[1..]);
    // The whole row is replaced, and optional values may go.
    let changed = FabricRow {
        given_key: None,
        proven_at: None,
        ..FabricRow::default()
    };
    tx.put_fabric(&changed).await.unwrap();
    tx.put_fabric_key(&returned(1, "a")).await.unwrap();
    tx.delete_fabric_key(2).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.fabric().await.unwrap(), Some(changed));
    assert_eq!(lab.store.fabric_keys().await.unwrap(), [returned(1, "a")]);
}

#[tokio::test]
async fn a_key_of_another_cluster_is_not_overwritten() {
    let lab = Lab::new().await;
    put(&lab.store, &[held(1, "a")]).await.unwrap();
    let refused = put(&lab.store, &[held(2, "b"), held(1, "b")]).await;
    assert!(is_conflict(&refused), "{refused:?}");
    assert_eq!(
        lab.store.fabric_keys().await.unwrap(),
        [held(1, "a")],
        "nothing is written"
    );
}

#[tokio::test]
async fn a_key_drains_until_its_other_ports_are_cut_off() {
    let lab = Lab::new().await;
    put(&lab.store, &[held(1, "a")]).await.unwrap();
    assert!(!lab.store.has_draining_keys().await.unwrap());
    put(&lab.store, &[returned(2, "b")]).await.unwrap();
    assert!(lab.store.has_draining_keys().await.unwrap());
    let cut_off = FabricKeyRow {
        cut_off: names(&["0x5", "0x6"]),
        ..returned(2, "b")
    };
    put(&lab.store, &[cut_off]).await.unwrap();
    assert!(!lab.store.has_draining_keys().await.unwrap());
}

/// The rows of all other keys are unreadable, and so are the long lists of the cluster's own.
#[tokio::test]
async fn the_partition_of_a_cluster_is_read_without_the_rows_of_others_and_without_its_ports() {
    let lab = Lab::new().await;
    let keys = [held(1, "a"), held(2, "b"), returned(3, "a"), returned(4, "b")];
    put(&lab.store, &keys).await.unwrap();
    let spoil = "UPDATE fabric_keys SET members = '{', ports = '{'; \
                 UPDATE fabric_keys SET absent = '{', pkey = -pkey, port_count = -1 WHERE owner = 'b';";
    lab.database.sql(spoil).await;
    let found = lab.store.partitions_of("a").await.unwrap().unwrap();
    let own = PartitionRow {
        key: 1,
        owner: "a".into(),
        name: "c-a".into(),
        released_at: None,
        ports: 3,
        members: 2,
        absent: names(&["0x2"]),
        cut_off: 0,
    };
    let former = PartitionRow {
        key: 3,
        name: String::new(),
        released_at: Some(6),
        ports: 2,
        members: 0,
        absent: Vec::new(),
        cut_off: 1,
        ..own.clone()
    };
    assert_eq!(
        found,
        PartitionRows {
            fabric: state(),
            keys: vec![own, former],
        }
    );
    let foreign = lab.store.partitions_of("c").await.unwrap().unwrap();
    assert_eq!((foreign.fabric, foreign.keys), (state(), Vec::new()));
    // A failed read names the rows.
    let named = |error: StoreError| match error {
        StoreError::Corrupt { what, id, source } => format!("{what} {id}: {source}"),
        other => panic!("{other:?}"),
    };
    let error = named(lab.store.partitions_of("b").await.unwrap_err());
    assert!(error.starts_with("fabric pkey: "), "{error}");
    let error = named(lab.store.fabric_keys().await.unwrap_err());
    assert!(error.starts_with("fabric pkey: "), "{error}");
    let mut tx = lab.store.write().await.unwrap();
    let error = named(tx.fabric_keys_of("a").await.unwrap_err());
    assert!(error.starts_with("fabric key 0x0001: ports: "), "{error}");
}

#[tokio::test]
async fn partitions_are_found_by_the_ids_of_their_clusters_within_the_scope() {
    let lab = Lab::new().await;
    for (id, customer) in [("alpha", "acme"), ("beta", "bolt"), ("gamma", "acme")] {
        insert(&lab, &cluster(id, customer), &[]).await.unwrap();
    }
    let keys = [held(1, "uid-gamma"), held(2, "uid-alpha"), held(3, "uid-beta")];
    put(&lab.store, &keys).await.unwrap();
    let owners = async |scope: Scope, first: &'static str, last: &'static str| -> Vec<String> {
        let found = lab
            .store
            .partitions_of_clusters(&scope, &first.into(), &last.into())
            .await
            .unwrap();
        found.unwrap().keys.into_iter().map(|key| key.owner).collect()
    };
    let acme = || Scope::Customer("acme".into());
    assert_eq!(owners(Scope::Site, "alpha", "beta").await, ["uid-alpha", "uid-beta"]);
    assert_eq!(owners(acme(), "alpha", "gamma").await, ["uid-gamma", "uid-alpha"]);
    assert!(owners(acme(), "beta", "beta").await.is_empty());
}

#[tokio::test]
async fn faults_links_and_nodes_are_written_one_by_one() {
    let nodes: Vec<_> = ["n1", "n2", "n3"]
        .iter()
        .map(|id| node_in(id, NodeState::Active))
        .collect();
    let lab = Lab::new().await.with(&nodes).await;
    insert(&lab, &cluster("alpha", "acme"), &["n1", "n3"]).await.unwrap();
    let store = &lab.store;
    assert_eq!(store.fabric_comparison().await.unwrap(), None);
    assert!(!store.has_impaired_nodes().await.unwrap());
    let comparison = ComparisonRow {
        checked_at: Some(at(9)),
        problem: "it's another fabric".into(),
        more_faults: 4,
        compared_changes: 5,
        compared_reading: Some(at(8)),
    };
    let impaired = |node: &'static str, seen| ImpairedNodeRow {
        node: node.into(),
        since: at(1),
        seen: at(seen),
        why: "a cable".into(),
    };
    let mut tx = store.write().await.unwrap();
    tx.hall().await.unwrap();
    tx.put_fabric_comparison(&ComparisonRow::default()).await.unwrap();
    tx.put_fabric_comparison(&comparison).await.unwrap();
    for (id, body) in [("f2", "{}"), ("f1", "{}"), ("f3", "{}"), ("f1", "[1]")] {
        tx.put_fabric_fault(id, body).await.unwrap();
    }
    tx.delete_fabric_fault("f3").await.unwrap();
    for (cable, is_broken) in [("c2", true), ("c1", true), ("c2", true), ("c3", true), ("c3", false)] {
        tx.set_link_broken(cable, is_broken).await.unwrap();
    }
    for (node, seen) in [("n3", 2), ("n2", 2), ("n1", 2), ("n1", 3), ("n4", 1)] {
        tx.put_impaired_node(&impaired(node, seen)).await.unwrap();
    }
    tx.delete_impaired_node(&"n4".into()).await.unwrap();
    let faults = [("f1".to_owned(), "[1]".to_owned()), ("f2".to_owned(), "{}".to_owned())];
    let all = [impaired("n1", 3), impaired("n2", 2), impaired("n3", 2)];
    assert_eq!(tx.fabric_comparison().await.unwrap(), Some(comparison.clone()));
    assert_eq!(tx.fabric_faults().await.unwrap(), faults);
    assert_eq!(tx.broken_links().await.unwrap(), ["c1", "c2"]);
    assert_eq!(tx.impaired_nodes().await.unwrap(), all);
    tx.commit().await.unwrap();
    assert_eq!(store.fabric_comparison().await.unwrap(), Some(comparison));
    assert_eq!(store.fabric_faults().await.unwrap(), faults);
    assert_eq!(store.broken_links().await.unwrap(), ["c1", "c2"]);
    assert!(store.has_impaired_nodes().await.unwrap());
    // n2 is in no cluster.
    let own = [impaired("n1", 3), impaired("n3", 2)];
    assert_eq!(store.impaired_nodes_of(&"alpha".into()).await.unwrap(), own);
    assert_eq!(store.impaired_nodes_of(&"beta".into()).await.unwrap(), []);
}

/// A lab with this document of the fabric, as it was before schema 35, and its store after the migration.
async fn migrated(document: &str) -> (Lab, Store) {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    let mut row = tx.hall().await.unwrap();
    tx.save_hall(&mut row).await.unwrap();
    tx.commit().await.unwrap();
    lab.store.close().await;
    let back = format!(
        "{BEFORE_FABRIC_ROWS} UPDATE hall SET fabric = '{document}'; DELETE FROM schema_version WHERE version >= 34;"
    );
    lab.database.sql(&back).await;
    let store = Store::open(lab.database.database()).await.unwrap();
    (lab, store)
}

/// The state of the fabric was one document before schema 35.
#[tokio::test]
async fn the_document_of_an_older_schema_becomes_rows() {
    let document = concat!(
        r#"{"pool":{"first":1,"last":32766,"given":2,"keys":{"1":{"held":{"owner":"uid-alpha","#,
        r#""ports":["0x0000000000000001","0x0000000000000002","0x0000000000000003"]}},"2":{"draining":{"#,
        r#""owner":"uid-beta","ports":["0x0000000000000005","0x0000000000000006"],"released_at":4}}}},"#,
        r#""members":{"uid-alpha":{"name":"c-alpha-0001","key":1,"ports":["0x0000000000000001","0x0000000000000002"]}},"#,
        r#""wanted":7,"applied":6,"proven_at":12345,"fault":"","#,
        r#""absent":["0x0000000000000002","0x0000000000000003","0x0000000000000006"],"#,
        r#""cut_off":["0x0000000000000001","0x0000000000000006"],"reading":5,"#,
        r#""watch":{"checked_at":99,"problem":"no answer","open":{"port-absent/n1":{"since":5}},"more":2,"#,
        r#""broken":["up1","up2"],"impaired":{"n1":{"since":5,"seen":9,"why":"a cable"}},"#,
        r#""absent":["0x0000000000000002"],"read_at":12000}}"#,
    );
    let (_lab, store) = migrated(document).await;
    assert_eq!(store.hall().await.unwrap().version, 1);
    let fabric = FabricRow {
        first_key: 1,
        last_key: 32766,
        given_key: Some(2),
        wanted: 7,
        applied: 6,
        reading: 5,
        proven_at: Some(at(12345)),
        fault: String::new(),
        absent_changes: 1,
    };
    assert_eq!(store.fabric().await.unwrap(), Some(fabric));
    let port = |n: u32| format!("0x{n:016x}");
    let alpha = FabricKeyRow {
        key: 1,
        owner: "uid-alpha".into(),
        name: "c-alpha-0001".into(),
        released_at: None,
        ports: vec![port(1), port(2), port(3)],
        members: vec![port(1), port(2)],
        absent: vec![port(2)],
        cut_off: Vec::new(),
    };
    let beta = FabricKeyRow {
        key: 2,
        owner: "uid-beta".into(),
        name: String::new(),
        released_at: Some(4),
        ports: vec![port(5), port(6)],
        members: Vec::new(),
        absent: vec![port(6)],
        cut_off: vec![port(6)],
    };
    assert_eq!(store.fabric_keys().await.unwrap(), [alpha, beta]);
    let own = store.partitions_of("uid-alpha").await.unwrap().unwrap().keys;
    assert_eq!((own[0].ports, own[0].members, own[0].cut_off), (3, 2, 0));
    let own = store.partitions_of("uid-beta").await.unwrap().unwrap().keys;
    assert_eq!((own[0].ports, own[0].members, own[0].cut_off), (2, 0, 1));
    let comparison = ComparisonRow {
        checked_at: Some(at(99)),
        problem: "no answer".into(),
        more_faults: 2,
        compared_changes: 0,
        compared_reading: Some(at(12000)),
    };
    assert_eq!(store.fabric_comparison().await.unwrap(), Some(comparison));
    let faults = store.fabric_faults().await.unwrap();
    let faults: Vec<_> = faults
        .iter()
        .map(|(id, body)| (id.as_str(), body.replace(' ', "")))
        .collect();
    assert_eq!(faults, [("port-absent/n1", r#"{"since":5}"#.to_owned())]);
    assert_eq!(store.broken_links().await.unwrap(), ["up1", "up2"]);
    let mut tx = store.write().await.unwrap();
    let impaired = ImpairedNodeRow {
        node: "n1".into(),
        since: at(5),
        seen: at(9),
        why: "a cable".into(),
    };
    assert_eq!(tx.impaired_nodes().await.unwrap(), [impaired]);
}

#[tokio::test]
async fn a_fabric_of_an_older_schema_without_a_partition_has_no_keys() {
    // Written before faults were stored.
    let unused = concat!(
        r#"{"pool":{"first":1,"last":2,"given":null,"keys":{}},"members":{},"wanted":0,"applied":0,"#,
        r#""proven_at":null,"fault":"","absent":[],"reading":0}"#,
    );
    for (document, comparison) in [("", None), (unused, Some(ComparisonRow::default()))] {
        let (_lab, store) = migrated(document).await;
        assert_eq!(store.fabric().await.unwrap(), None);
        assert_eq!(store.fabric_keys().await.unwrap(), []);
        assert_eq!(store.fabric_comparison().await.unwrap(), comparison);
        assert!(store.fabric_faults().await.unwrap().is_empty());
    }
}
