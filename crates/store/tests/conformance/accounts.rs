//! The account of a node's BMC, and factory credentials.

use rackwright_store::{BmcAccount, FactoryCredential, Lockout, PendingPassword, Scope, Store};

use super::support::{Lab, at, node};

fn credential(id: &str, place: i64) -> FactoryCredential {
    FactoryCredential {
        id: id.into(),
        pattern: "Acme*".into(),
        username: "root".into(),
        password: vec![0, 255, 7],
        place,
        created_by: "ann".into(),
        created_at: at(5),
    }
}

async fn ids(store: &Store) -> Vec<String> {
    let all = store.factory_credentials().await.unwrap();
    all.into_iter().map(|one| one.id).collect()
}

#[tokio::test]
async fn factory_credentials_are_read_in_their_order() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    for (id, place) in [("c", 10), ("b", 20), ("a", 10)] {
        tx.add_factory_credential(&credential(id, place)).await.unwrap();
    }
    assert_eq!(tx.count_factory_credentials().await.unwrap(), 3);
    tx.commit().await.unwrap();
    assert_eq!(ids(&lab.store).await, ["a", "c", "b"]);
    assert_eq!(lab.store.factory_credentials().await.unwrap()[2], credential("b", 20));
    let mut tx = lab.store.write().await.unwrap();
    assert!(tx.remove_factory_credential("c").await.unwrap());
    assert!(!tx.remove_factory_credential("c").await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(ids(&lab.store).await, ["a", "b"]);
}

#[tokio::test]
async fn knowledge_of_an_account_is_kept_with_its_node() {
    let lab = Lab::new().await;
    let mut record = node("n1");
    let mut tx = lab.store.write().await.unwrap();
    tx.insert_node(&record).await.unwrap();
    record.spec.account = BmcAccount {
        changed_at: Some(at(1)),
        pending: Some(PendingPassword {
            username: "ours".into(),
            password: vec![1, 2],
            at: at(2),
            refused_new: 1,
            refused_old: 0,
        }),
        lockout: Some(Lockout {
            threshold: 5,
            window_s: 30,
        }),
        tries: vec![at(3)],
        refused_factory: vec!["a".into()],
        ..BmcAccount::default()
    };
    tx.save_node(&mut record, at(200)).await.unwrap();
    tx.commit().await.unwrap();
    let kept = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert_eq!(kept.spec, record.spec);
}
