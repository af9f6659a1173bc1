//! Members who log in by an OpenID Connect provider.

use rackwright_store::{MemberOrigin, MemberRow, Store};

use super::support::{Lab, at, member};

fn person(subject: &str) -> MemberOrigin {
    MemberOrigin {
        issuer: "https://login.example".into(),
        subject: subject.into(),
    }
}

async fn add(store: &Store, origin: &MemberOrigin, name: &str) -> bool {
    let mut tx = store.write().await.unwrap();
    let is_added = tx
        .add_member_of(origin, name, &member("viewer"), 7, at(1))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    is_added
}

async fn name_of(store: &Store, origin: &MemberOrigin) -> Option<String> {
    let mut tx = store.write().await.unwrap();
    let found = tx.member_of(origin).await.unwrap();
    found.map(|found| found.name)
}

#[tokio::test]
async fn a_person_has_one_member_and_takes_over_no_other() {
    let lab = Lab::new().await;
    let store = &lab.store;
    let mut tx = store.write().await.unwrap();
    tx.put_member("ann", &member("operator"), 5, at(1)).await.unwrap();
    tx.commit().await.unwrap();

    assert!(!add(store, &person("1"), "ann").await, "the name of an invited member");
    let ann = store.member("ann").await.unwrap().unwrap();
    assert_eq!((ann.epoch, ann.origin, ann.given.role.as_str()), (5, None, "operator"));
    assert!(add(store, &person("1"), "ben").await);
    assert!(!add(store, &person("2"), "ben").await, "another person's name");
    assert!(!add(store, &person("1"), "bob").await, "one member for each person");
    let ben = store.member("ben").await.unwrap().unwrap();
    assert_eq!((ben.epoch, ben.origin), (7, Some(person("1"))));
    assert_eq!(name_of(store, &person("1")).await.as_deref(), Some("ben"));
    assert_eq!(name_of(store, &person("2")).await, None);
    let elsewhere = MemberOrigin {
        issuer: "https://other.example".into(),
        ..person("1")
    };
    assert_eq!(name_of(store, &elsewhere).await, None, "another provider");
    let invited = MemberOrigin {
        issuer: String::new(),
        subject: String::new(),
    };
    assert_eq!(name_of(store, &invited).await, None, "an invited member is no person");

    // An invitation does not take over the member of a person.
    let mut tx = store.write().await.unwrap();
    assert_eq!(tx.put_member("ben", &member("operator"), 9, at(2)).await.unwrap(), None);
    tx.commit().await.unwrap();
    let ben = store.member("ben").await.unwrap().unwrap();
    assert_eq!((ben.epoch, ben.given), (7, member("viewer")));
}

#[tokio::test]
async fn rights_of_a_person_change_and_a_deleted_member_leaves_its_name() {
    let lab = Lab::new().await;
    let store = &lab.store;
    assert!(add(store, &person("1"), "ben").await);
    let of_acme = MemberRow {
        role: "customer-user".into(),
        customer: "acme".into(),
    };
    let mut tx = store.write().await.unwrap();
    tx.set_member_rights("ben", &of_acme).await.unwrap();
    assert!(tx.changes_members());
    tx.commit().await.unwrap();
    assert_eq!(store.member("ben").await.unwrap().unwrap().given, of_acme);

    let mut tx = store.write().await.unwrap();
    tx.delete_member("ben").await.unwrap();
    tx.commit().await.unwrap();
    assert!(add(store, &person("2"), "ben").await);
    assert_eq!(name_of(store, &person("1")).await, None);
}

#[tokio::test]
async fn a_secret_that_was_never_stored_is_used_once() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    assert!(tx.use_once("hash", "oidc", at(100), at(1)).await.unwrap());
    assert!(!tx.use_once("hash", "oidc", at(100), at(2)).await.unwrap());
    assert!(tx.use_once("other", "oidc", at(100), at(2)).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(lab.store.forget_tokens(at(101)).await.unwrap(), 2);
}
