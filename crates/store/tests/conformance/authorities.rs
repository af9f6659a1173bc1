//! The rotation of the site's authority.

use rackwright_lifecycle::NodeId;
use rackwright_store::AgentBootRow;

use super::support::{Lab, at, member, node, session_of};

#[tokio::test]
async fn members_and_agents_without_a_certificate_of_the_new_authority_are_named() {
    let lab = Lab::new().await.with(&[node("n1"), node("n2")]).await;
    let store = &lab.store;
    let mut tx = store.write().await.unwrap();
    for (name, ends, authority) in [("ann", 900, "old"), ("bob", 900, "new"), ("eve", 90, "old")] {
        tx.put_member(name, &member("operator"), 1, at(1)).await.unwrap();
        assert!(tx.record_member_cert(name, 1, at(ends), authority).await.unwrap());
    }
    tx.put_member("dan", &member("operator"), 1, at(1)).await.unwrap();
    tx.commit().await.unwrap();
    // Eve's certificate has expired, and Dan has none.
    assert_eq!(store.members_without("new", at(100)).await.unwrap(), ["ann"]);
    assert_eq!(store.members_without("old", at(100)).await.unwrap(), ["bob"]);

    assert!(
        store.agents_without("new").await.unwrap().is_empty(),
        "none is connected"
    );
    let mut tx = store.write().await.unwrap();
    for id in ["n1", "n2"] {
        let row = AgentBootRow {
            node_id: id.into(),
            boot: "b".into(),
            ..AgentBootRow::default()
        };
        tx.put_agent_boot(&row).await.unwrap();
        tx.connect_agent(&NodeId::stored(id), "r1", &session_of(0), "address only")
            .await
            .unwrap();
    }
    tx.record_agent_cert(&"n2".into(), "new").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.agents_without("new").await.unwrap(), ["n1"]);
    store.record_renewal(&"n1".into(), "new").await.unwrap();
    assert!(store.agents_without("new").await.unwrap().is_empty());
}

#[tokio::test]
async fn the_end_of_a_rotation_is_kept() {
    let lab = Lab::new().await;
    let store = &lab.store;
    assert_eq!(
        store.required_authority().await.unwrap(),
        "",
        "the site is not known yet"
    );
    store.site_authority("ca").await.unwrap();
    let mut tx = store.write().await.unwrap();
    tx.require_authority("ca2").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.required_authority().await.unwrap(), "ca2");
    assert_eq!(
        store.site_authority("ca").await.unwrap(),
        "ca",
        "the site keeps its name"
    );
    assert_eq!(store.open_member_tokens(at(1)).await.unwrap(), 0);
}
