//! Reserved terms.

use rackwright_lifecycle::CustomerId;
use rackwright_store::{Scope, Store, StoreError, TermRow};

use super::support::{Lab, at, is_conflict};

fn term(id: &str, customer: &'static str) -> TermRow {
    TermRow {
        id: id.into(),
        uid: format!("uid-{id}"),
        version: 1,
        customer: customer.into(),
        sku: "dgx-h100".into(),
        nodes: u32::MAX,
        from_s: 100,
        to_s: 200,
        created_at: at(5),
        updated_at: at(5),
    }
}

async fn put(store: &Store, row: &TermRow) -> Result<(), StoreError> {
    let mut tx = store.write().await?;
    tx.put_term(row).await?;
    tx.commit().await
}

#[tokio::test]
async fn a_term_is_read_back_and_changed_only_at_the_version_that_was_read() {
    let lab = Lab::new().await;
    let first = term("t1", "acme");
    put(&lab.store, &first).await.unwrap();
    let kept = lab.store.terms(&Scope::Site, None, "", 10).await.unwrap();
    assert_eq!(kept, std::slice::from_ref(&first));
    assert!(is_conflict(&put(&lab.store, &first).await), "it is there by now");
    let second = TermRow {
        version: 2,
        nodes: 8,
        to_s: 300,
        updated_at: at(9),
        ..first.clone()
    };
    put(&lab.store, &second).await.unwrap();
    assert!(is_conflict(&put(&lab.store, &second).await), "made of version 1");
    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.term("t1").await.unwrap(), Some(second.clone()));
    assert_eq!(tx.term("t2").await.unwrap(), None);
    assert!(is_conflict(&tx.delete_term(&first).await));
    tx.delete_term(&second).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.terms(&Scope::Site, None, "", 10).await.unwrap(), []);
}

#[tokio::test]
async fn terms_are_listed_in_pages_by_customer() {
    let lab = Lab::new().await;
    for (id, customer) in [("b", "acme"), ("a", "bolt"), ("c", "acme")] {
        put(&lab.store, &term(id, customer)).await.unwrap();
    }
    let ids = async |customer: &str, after: &str, limit| -> Vec<String> {
        let customer = Some(CustomerId::stored(customer)).filter(|customer| !customer.is_empty());
        let rows = lab
            .store
            .terms(&Scope::Site, customer.as_ref(), after, limit)
            .await
            .unwrap();
        rows.into_iter().map(|row| row.id).collect()
    };
    assert_eq!(ids("", "", 2).await, ["a", "b"]);
    assert_eq!(ids("", "b", 2).await, ["c"]);
    assert_eq!(ids("acme", "", 10).await, ["b", "c"]);
    assert_eq!(ids("other", "", 10).await, [""; 0]);
    let scope = Scope::Customer("bolt".into());
    let own = lab.store.terms(&scope, None, "", 10).await.unwrap();
    assert_eq!(own.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(lab.store.terms(&scope, Some(&"acme".into()), "", 10).await.unwrap(), []);
}
