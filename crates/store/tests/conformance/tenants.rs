//! A customer finds its own rows and no others.

use rackwright_lifecycle::{NodeId, State};
use rackwright_store::{Clause, MemberRow, NodeRecord, Proof, Scope, StoreError, Term};

use super::clusters::{cluster, insert};
use super::operations::operation;
use super::support::{Lab, at, claim, event, given, is_missing, node, node_in};

fn scope(customer: &'static str) -> Scope {
    Scope::Customer(customer.into())
}

fn of(id: &str, customer: &'static str) -> NodeRecord {
    let mut record = node_in(id, State::Active);
    record.node.claim = Some(claim("b3-1"));
    record.node.claim.as_mut().unwrap().customer = customer.into();
    record
}

/// Nodes of two customers and free nodes, with a cluster for each customer.
async fn lab() -> Lab {
    let nodes = [
        of("a1", "acme"),
        of("a2", "acme"),
        of("b1", "bolt"),
        of("c1", ""),
        node("f1"),
    ];
    let lab = Lab::new().await.with(&nodes).await;
    insert(&lab, &cluster("alpha", "acme"), &["a1"]).await.unwrap();
    insert(&lab, &cluster("beta", "bolt"), &["b1"]).await.unwrap();
    lab
}

async fn nodes(lab: &Lab, scope: &Scope, filter: &[Clause], after: &str) -> Vec<String> {
    let found = lab.store.nodes(scope, &filter.to_vec(), after, 10).await.unwrap();
    found.into_iter().map(|n| n.id.to_string()).collect()
}

/// Gives a node to a customer at a time; an empty name frees it.
async fn give(lab: &Lab, id: &str, customer: &'static str, us: i64) {
    let mut tx = lab.store.write().await.unwrap();
    let mut record = tx.node(&NodeId::stored(id)).await.unwrap();
    record.node.claim = (!customer.is_empty()).then(|| of(id, customer).node.claim.unwrap());
    tx.save_node(&mut record, at(us)).await.unwrap();
    tx.commit().await.unwrap();
}

#[track_caller]
fn same_refusal<A: std::fmt::Debug, B: std::fmt::Debug>(
    others: Result<A, StoreError>,
    missing: Result<B, StoreError>,
    (other, absent): (&str, &str),
) {
    let (others, missing) = (others.unwrap_err(), missing.unwrap_err());
    assert!(matches!(others, StoreError::NotFound { .. }), "{others:?}");
    assert_eq!(format!("{others:?}").replace(other, absent), format!("{missing:?}"));
}

#[tokio::test]
async fn a_customer_finds_only_its_own_nodes() {
    let lab = lab().await;
    let (acme, bolt) = (scope("acme"), scope("bolt"));
    assert_eq!(lab.store.node(&acme, &"a1".into()).await.unwrap().id, "a1");
    for id in ["b1", "c1", "f1"] {
        let (others, missing) = (
            lab.store.node(&acme, &NodeId::stored(id)).await,
            lab.store.node(&acme, &"zz".into()).await,
        );
        same_refusal(others, missing, (id, "zz"));
    }
    assert_eq!(nodes(&lab, &acme, &[], "").await, ["a1", "a2"]);
    assert_eq!(nodes(&lab, &acme, &[], "a1").await, ["a2"]);
    assert_eq!(nodes(&lab, &bolt, &[], "").await, ["b1"]);
    assert_eq!(nodes(&lab, &Scope::Site, &[], "").await.len(), 5);
    let named = Term::is("name", "b1");
    assert!(nodes(&lab, &acme, std::slice::from_ref(&named), "").await.is_empty());
    assert_eq!(nodes(&lab, &bolt, &[named], "").await, ["b1"]);
    // Free nodes do not belong to a customer with an empty name.
    assert!(nodes(&lab, &scope(""), &[], "").await.is_empty());
    assert!(is_missing(&lab.store.node(&scope(""), &"f1".into()).await));

    let mut tx = lab.store.write().await.unwrap();
    assert!(tx.node_of(&acme, &"a1".into()).await.is_ok());
    assert!(is_missing(&tx.node_of(&acme, &"b1".into()).await));
    assert!(is_missing(&tx.node_of(&scope(""), &"f1".into()).await));
}

#[tokio::test]
async fn a_customer_finds_only_its_own_clusters() {
    let lab = lab().await;
    let (acme, store) = (scope("acme"), &lab.store);
    assert_eq!(store.cluster(&acme, &"alpha".into()).await.unwrap().id, "alpha");
    same_refusal(
        store.cluster(&acme, &"beta".into()).await,
        store.cluster(&acme, &"zz".into()).await,
        ("beta", "zz"),
    );
    let foreign_term = Term::is("customer", "bolt");
    assert!(
        store
            .clusters(&acme, &vec![foreign_term], "", 10)
            .await
            .unwrap()
            .is_empty()
    );
    let found = store.clusters(&acme, &Vec::new(), "", 10).await.unwrap();
    assert_eq!(found.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["alpha"]);
    assert_eq!(store.nodes_of_cluster(&acme, &"alpha".into()).await.unwrap().len(), 1);
    assert!(store.nodes_of_cluster(&acme, &"beta".into()).await.unwrap().is_empty());
    let mut tx = store.write().await.unwrap();
    assert!(tx.cluster_of(&acme, &"alpha".into()).await.is_ok());
    assert!(is_missing(&tx.cluster_of(&acme, &"beta".into()).await));
}

#[tokio::test]
async fn history_stays_with_former_customer() {
    let lab = lab().await;
    let mut tx = lab.store.write().await.unwrap();
    let targets = [
        "nodes/a1",
        "nodes/b1",
        "clusters/alpha",
        "clusters/beta",
        "images/a1",
        "nodes/gone",
    ];
    for (n, target) in targets.iter().enumerate() {
        let mut row = operation(&format!("o{n}"), "reimage", target);
        row.created_at = at(100);
        tx.insert_operation(&row).await.unwrap();
        tx.add_event(&event("requested", target, 100)).await.unwrap();
    }
    tx.commit().await.unwrap();
    let operations = async |scope: &Scope| -> Vec<String> {
        let found = lab.store.operations(scope, &Vec::new(), "", 10).await.unwrap();
        found.into_iter().map(|o| o.target).collect()
    };
    let events = async |scope: &Scope| -> Vec<String> {
        let found = lab.store.events(scope, 0, "", 20).await.unwrap();
        found.into_iter().map(|e| e.target).collect()
    };
    let (acme, bolt) = (scope("acme"), scope("bolt"));
    assert_eq!(operations(&acme).await, ["clusters/alpha", "nodes/a1"]);
    assert_eq!(events(&acme).await, ["nodes/a1", "clusters/alpha"]);
    assert_eq!(events(&bolt).await, ["nodes/b1", "clusters/beta"]);
    assert_eq!(
        (operations(&Scope::Site).await.len(), events(&Scope::Site).await.len()),
        (6, 6)
    );
    assert!(events(&scope("")).await.is_empty() && operations(&scope("")).await.is_empty());
    assert!(lab.store.operation(&acme, &"o0".into()).await.is_ok());
    same_refusal(
        lab.store.operation(&acme, &"o1".into()).await,
        lab.store.operation(&acme, &"o9".into()).await,
        ("o1", "o9"),
    );
    assert!(lab.store.events(&acme, 0, "nodes/b1", 9).await.unwrap().is_empty());

    // The node moves from one customer to the other: earlier actions on it are then hidden from both.
    give(&lab, "a1", "", 200).await;
    assert_eq!(events(&acme).await, ["clusters/alpha"]);
    give(&lab, "a1", "bolt", 300).await;
    assert_eq!(events(&bolt).await, ["nodes/b1", "clusters/beta"]);
    assert!(is_missing(&lab.store.operation(&bolt, &"o0".into()).await));
    let mut tx = lab.store.write().await.unwrap();
    tx.add_event(&event("started", "nodes/a1", 300)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(events(&bolt).await, ["nodes/b1", "clusters/beta", "nodes/a1"]);
    // A later change by the same customer keeps the beginning.
    give(&lab, "a1", "bolt", 400).await;
    assert_eq!(events(&bolt).await.len(), 3);
    assert_eq!(events(&acme).await, ["clusters/alpha"]);
}

#[tokio::test]
async fn proofs_stay_with_former_customer() {
    let lab = lab().await;
    let add = async |id: &str, body: u8| {
        let mut tx = lab.store.write().await.unwrap();
        tx.add_proof(Proof::Report, id, &"a1".into(), &[body]).await.unwrap();
        tx.commit().await.unwrap();
    };
    let evidence = async |scope: &Scope| -> Vec<u8> {
        let found = lab
            .store
            .proofs(scope, Proof::Report, &"a1".into(), i64::MAX, 10)
            .await
            .unwrap();
        found.into_iter().map(|(_, body)| body[0]).collect()
    };
    add("r1", 1).await;
    give(&lab, "a1", "", 200).await;
    add("r2", 2).await;
    give(&lab, "a1", "bolt", 300).await;
    add("r3", 3).await;
    assert_eq!(evidence(&scope("acme")).await, [1]);
    assert_eq!(evidence(&scope("bolt")).await, [3]);
    assert_eq!(evidence(&Scope::Site).await, [3, 2, 1]);
    assert!(evidence(&scope("")).await.is_empty());
}

#[tokio::test]
async fn a_member_never_moves_from_one_customer_to_another() {
    let lab = Lab::new().await;
    let row = |role: &str, customer: &'static str| MemberRow {
        role: role.into(),
        customer: customer.into(),
    };
    let put = async |name: &str, given: &MemberRow| {
        let mut tx = lab.store.write().await.unwrap();
        let taken = tx.put_member(name, given, 1, at(1)).await.unwrap().is_some();
        assert!(tx.member(name).await.unwrap().is_some());
        tx.commit().await.unwrap();
        taken
    };
    let user = row("customer-user", "acme");
    assert!(put("ann", &user).await);
    assert!(!put("ann", &row("customer-admin", "bolt")).await);
    assert!(!put("ann", &row("operator", "")).await);
    assert_eq!(given(&lab.store, "ann").await, Some(user));
    assert!(put("ann", &row("customer-admin", "acme")).await);
    assert!(put("ops", &row("operator", "")).await);
    assert!(!put("ops", &row("customer-user", "acme")).await);
    assert_eq!(given(&lab.store, "ops").await, Some(row("operator", "")));
}
