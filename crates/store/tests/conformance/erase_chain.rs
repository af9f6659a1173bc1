//! The chain of erase certificates.

use rackwright_store::{ChainEntry, ChainHead, Store};

use super::support::{Lab, node};

/// Adds `count` certificates, each after the head that the change reads.
async fn add(store: &Store, name: &str, count: u64) {
    for place in 0..count {
        let mut tx = store.write().await.unwrap();
        let head = tx.erase_head().await.unwrap();
        let entry = ChainEntry {
            number: head.number + 1,
            payload_hash: format!("after {}", head.hash),
            customer: "".into(),
            body: b"proof".to_vec(),
        };
        let id = format!("{name}-{place}");
        tx.add_to_erase_chain(&id, &"n1".into(), &entry, &id).await.unwrap();
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn certificates_of_two_replicas_form_one_chain() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let other = lab.other().await;
    assert_eq!(lab.store.erase_head().await.unwrap(), ChainHead::default());
    lab.store.site_authority("ca").await.unwrap();
    tokio::join!(add(&lab.store, "a", 8), add(&other, "b", 8));
    let chain = lab.store.erase_chain(0, 100).await.unwrap();
    let numbers: Vec<u64> = chain.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, (1..=16).collect::<Vec<_>>(), "no place is taken twice");
    let mut before: Vec<&str> = chain.iter().map(|entry| entry.payload_hash.as_str()).collect();
    before.sort_unstable();
    before.dedup();
    assert_eq!(before.len(), 16, "no two follow from one");
    assert_eq!(lab.store.erase_head().await.unwrap().number, 16);
    let page = lab.store.erase_chain(3, 2).await.unwrap();
    assert_eq!((page.len(), page[0].number), (2, 4));
}

#[tokio::test]
async fn a_change_that_is_dropped_leaves_the_chain_as_it_was() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    lab.store.site_authority("ca").await.unwrap();
    add(&lab.store, "a", 1).await;
    let head = lab.store.erase_head().await.unwrap();
    let mut tx = lab.store.write().await.unwrap();
    tx.erase_head().await.unwrap();
    let entry = ChainEntry {
        number: 2,
        ..lab.store.erase_chain(0, 1).await.unwrap().remove(0)
    };
    tx.add_to_erase_chain("b", &"n1".into(), &entry, "b").await.unwrap();
    drop(tx);
    assert_eq!(lab.store.erase_head().await.unwrap(), head);
    assert_eq!(lab.store.erase_chain(0, 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_last_quote_of_a_boot_is_kept() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    assert_eq!(lab.store.agent_quote(&"n1".into()).await.unwrap(), "");
    let mut tx = lab.store.write().await.unwrap();
    let row = rackwright_store::AgentBootRow {
        node_id: "n1".into(),
        ..rackwright_store::AgentBootRow::default()
    };
    tx.put_agent_boot(&row).await.unwrap();
    tx.put_agent_quote(&"n1".into(), "ab").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.agent_quote(&"n1".into()).await.unwrap(), "ab");
}
