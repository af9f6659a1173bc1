//! Members: epochs, lists, revocation, and tokens as members see them.

use rackwright_lifecycle::CustomerId;
use rackwright_store::{MemberOrigin, MemberRow, Scope, SshKeyRow, Store, StoreError, TokenRow};

use super::support::{Lab, at, given, member};

fn of_customer(role: &str, customer: &'static str) -> MemberRow {
    MemberRow {
        role: role.into(),
        customer: customer.into(),
    }
}

async fn put(store: &Store, name: &str, given: &MemberRow, epoch: u64) -> Option<u64> {
    let mut tx = store.write().await.unwrap();
    let epoch = tx.put_member(name, given, epoch, at(1)).await.unwrap();
    tx.commit().await.unwrap();
    epoch
}

async fn names(store: &Store, scope: &Scope, after: &str, limit: i64) -> Vec<String> {
    let rows = store.members(scope, after, limit).await.unwrap();
    rows.into_iter().map(|row| row.name).collect()
}

fn hash(digit: char) -> String {
    digit.to_string().repeat(64)
}

async fn invite(store: &Store, digit: char, name: &str, given: &MemberRow, made_by: &str) {
    let mut tx = store.write().await.unwrap();
    tx.put_member_token(&hash(digit), name, given, at(200), made_by)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

async fn tokens(store: &Store, scope: &Scope, now: i64) -> Vec<(String, String, String)> {
    let rows = store.member_tokens(scope, at(now), "", 99).await.unwrap();
    rows.into_iter().map(|row| (row.id, row.member, row.made_by)).collect()
}

#[tokio::test]
async fn a_damaged_member_is_an_error_that_names_the_member() {
    let lab = Lab::new().await;
    put(&lab.store, "ann", &member("viewer"), 7).await;
    lab.database.sql("UPDATE members SET epoch = -1").await;
    let refused = lab.store.member("ann").await;
    let is_named = matches!(&refused, Err(StoreError::Corrupt { what: "member", id, .. }) if id == "ann");
    assert!(is_named, "{refused:?}");
}

#[tokio::test]
async fn a_member_keeps_its_epoch_until_it_is_ended() {
    let lab = Lab::new().await;
    let store = &lab.store;
    assert_eq!(put(store, "ann", &member("viewer"), 7).await, Some(7));
    assert_eq!(put(store, "ann", &member("operator"), 8).await, Some(7));
    assert_eq!(given(store, "ann").await, Some(member("operator")));
    let mut tx = store.write().await.unwrap();
    assert!(tx.record_member_cert("ann", 7, at(900), "ca").await.unwrap());
    assert!(!tx.record_member_cert("ann", 8, at(901), "ca").await.unwrap());
    tx.commit().await.unwrap();
    let ann = store.member("ann").await.unwrap().unwrap();
    assert_eq!((ann.certificate_ends_at, ann.used_at), (Some(at(900)), None));

    let mut tx = store.write().await.unwrap();
    tx.revoke_member("ann", 9).await.unwrap();
    assert!(tx.changes_members());
    assert!(!tx.record_member_cert("ann", 7, at(900), "ca").await.unwrap());
    tx.commit().await.unwrap();
    let ann = store.member("ann").await.unwrap().unwrap();
    assert_eq!((ann.epoch, ann.certificate_ends_at), (9, None));

    let mut tx = store.write().await.unwrap();
    tx.delete_member("ann").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.member("ann").await.unwrap(), None);
    assert_eq!(
        put(store, "ann", &member("viewer"), i64::MAX as u64).await,
        Some(i64::MAX as u64)
    );
}

#[tokio::test]
async fn the_use_of_a_member_is_noted_once_in_a_while() {
    let lab = Lab::new().await;
    put(&lab.store, "ann", &member("viewer"), 7).await;
    let note = async |epoch: u64, now: i64| {
        lab.store
            .record_use("ann", epoch, at(now), at(now - 100))
            .await
            .unwrap()
    };
    assert!(!note(6, 1000).await, "of another epoch");
    assert!(note(7, 1000).await);
    assert!(!note(7, 1050).await);
    assert!(note(7, 1101).await);
    let ann = lab.store.member("ann").await.unwrap().unwrap();
    assert_eq!(ann.used_at, Some(at(1101)));
}

#[tokio::test]
async fn members_are_listed_by_name_and_a_customers_by_its_scope() {
    let lab = Lab::new().await;
    let store = &lab.store;
    put(store, "olga", &member("operator"), 1).await;
    put(store, "ann@acme", &of_customer("customer-user", "acme"), 1).await;
    put(store, "bea@bolt", &of_customer("customer-admin", "bolt"), 1).await;
    assert_eq!(names(store, &Scope::Site, "", 2).await, ["ann@acme", "bea@bolt"]);
    assert_eq!(names(store, &Scope::Site, "bea@bolt", 2).await, ["olga"]);
    let acme = Scope::Customer("acme".into());
    assert_eq!(names(store, &acme, "", 9).await, ["ann@acme"]);
    assert!(
        names(store, &Scope::Customer(CustomerId::stored(String::new())), "", 9)
            .await
            .is_empty()
    );

    let mut tx = store.write().await.unwrap();
    let (found, operators) = tx.member_and_operators(&Scope::Site, "bea@bolt").await.unwrap();
    assert_eq!(found.unwrap().name, "bea@bolt");
    assert_eq!(
        operators.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
        ["olga"]
    );
    for name in ["olga", "bea@bolt", "none"] {
        let (found, _) = tx.member_and_operators(&acme, name).await.unwrap();
        assert_eq!(found, None, "{name}");
    }
    let (found, _) = tx.member_and_operators(&acme, "ann@acme").await.unwrap();
    assert!(found.is_some());
}

#[tokio::test]
async fn a_certificate_is_warned_of_once() {
    let lab = Lab::new().await;
    put(&lab.store, "ann", &member("viewer"), 1).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.record_member_cert("ann", 1, at(500), "ca").await.unwrap();
    tx.commit().await.unwrap();
    let ending = async |now: i64, until: i64| lab.store.ending_members(at(now), at(until)).await.unwrap().len();
    assert_eq!(
        (ending(100, 499).await, ending(100, 500).await, ending(500, 600).await),
        (0, 1, 0)
    );
    let mut tx = lab.store.write().await.unwrap();
    assert!(!tx.mark_end_warned("ann", at(400)).await.unwrap(), "it was renewed");
    assert!(tx.mark_end_warned("ann", at(500)).await.unwrap());
    assert!(!tx.mark_end_warned("ann", at(500)).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(ending(100, 500).await, 0);
    // It counts while the member uses it.
    let in_use = async |now, until, since| {
        let count = lab.store.count_ending_in_use(at(now), at(until), at(since));
        count.await.unwrap()
    };
    assert_eq!(in_use(100, 500, 60).await, 0);
    assert!(lab.store.record_use("ann", 1, at(60), at(60)).await.unwrap());
    assert_eq!(
        (
            in_use(100, 500, 60).await,
            in_use(100, 500, 61).await,
            in_use(100, 499, 60).await,
            in_use(500, 600, 60).await
        ),
        (1, 0, 0, 0)
    );

    // The certificates of an identity provider's member end within hours, without a warning.
    let mut tx = lab.store.write().await.unwrap();
    let origin = MemberOrigin {
        issuer: "https://login.example".into(),
        subject: "17".into(),
    };
    tx.add_member_of(&origin, "carl", &member("viewer"), 3, at(1))
        .await
        .unwrap();
    tx.record_member_cert("carl", 3, at(700), "ca").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(ending(100, 700).await, 0);
}

#[tokio::test]
async fn unused_tokens_are_listed_without_their_hashes_and_ended_by_id() {
    let lab = Lab::new().await;
    let store = &lab.store;
    invite(
        store,
        'a',
        "ann@acme",
        &of_customer("customer-user", "acme"),
        "adam@acme",
    )
    .await;
    invite(store, 'b', "bob", &member("viewer"), "olga").await;
    let mut tx = store.write().await.unwrap();
    let boot = TokenRow {
        hash: hash('c'),
        purpose: "boot".into(),
        subject: "mac".into(),
        body: String::new(),
        expires_at: at(200),
    };
    tx.put_token(&boot).await.unwrap();
    tx.commit().await.unwrap();
    let row = |digit: char, name: &str, by: &str| (digit.to_string().repeat(16), name.to_owned(), by.to_owned());
    let (ann, bob) = (row('a', "ann@acme", "adam@acme"), row('b', "bob", "olga"));
    assert_eq!(tokens(store, &Scope::Site, 100).await, [ann.clone(), bob.clone()]);
    assert!(tokens(store, &Scope::Site, 200).await.is_empty(), "ended");
    let acme = Scope::Customer("acme".into());
    assert_eq!(tokens(store, &acme, 100).await, std::slice::from_ref(&ann));
    let page = store.member_tokens(&Scope::Site, at(100), &ann.0, 9).await.unwrap();
    assert_eq!(page.iter().map(|row| &row.id).collect::<Vec<_>>(), [&bob.0]);

    let mut tx = store.write().await.unwrap();
    for (scope, id) in [
        (&acme, &bob.0),
        (&Scope::Site, &"c".repeat(16)),
        (&Scope::Site, &String::new()),
    ] {
        assert_eq!(tx.delete_member_token(scope, id, at(100)).await.unwrap(), None, "{id}");
    }
    let ended = tx.delete_member_token(&acme, &ann.0, at(100)).await.unwrap().unwrap();
    assert_eq!(ended.given, of_customer("customer-user", "acme"));
    tx.commit().await.unwrap();
    assert_eq!(tokens(store, &Scope::Site, 100).await, std::slice::from_ref(&bob));
    let mut tx = store.write().await.unwrap();
    assert!(tx.use_token(&hash('b'), "member", at(100)).await.unwrap().is_some());
    assert_eq!(
        tx.delete_member_token(&Scope::Site, &bob.0, at(100)).await.unwrap(),
        None,
        "used"
    );
    tx.commit().await.unwrap();
    assert!(tokens(store, &Scope::Site, 100).await.is_empty());
}

#[tokio::test]
async fn the_end_of_a_member_ends_its_tokens_its_keys_and_its_invitations() {
    for is_deleted in [true, false] {
        let lab = Lab::new().await;
        let store = &lab.store;
        put(store, "ann", &member("operator"), 1).await;
        invite(store, 'a', "ann", &member("operator"), "olga").await;
        invite(store, 'b', "bob", &member("operator"), "ann").await;
        invite(store, 'c', "cleo", &member("viewer"), "olga").await;
        let mut tx = store.write().await.unwrap();
        for (digit, member) in [('d', "ann"), ('e', "olga")] {
            let row = TokenRow {
                hash: hash(digit),
                purpose: "console".into(),
                subject: member.into(),
                body: "uid/1".into(),
                expires_at: at(200),
            };
            tx.put_token(&row).await.unwrap();
            let key = SshKeyRow {
                fingerprint: format!("SHA256:{digit}"),
                member: member.into(),
                public_key: "ssh-ed25519 AAAA".into(),
                created_at: at(5),
                epoch: 1,
            };
            assert!(tx.add_ssh_key(&key).await.unwrap());
        }
        match is_deleted {
            true => tx.delete_member("ann").await.unwrap(),
            false => tx.revoke_member("ann", 2).await.unwrap(),
        }
        tx.commit().await.unwrap();
        let left = tokens(store, &Scope::Site, 100).await;
        assert_eq!(left.iter().map(|row| row.1.as_str()).collect::<Vec<_>>(), ["cleo"]);
        let mut tx = store.write().await.unwrap();
        assert!(tx.token(&hash('d'), "console").await.unwrap().is_none());
        assert!(tx.token(&hash('e'), "console").await.unwrap().is_some());
        drop(tx);
        assert!(store.ssh_keys("ann").await.unwrap().is_empty());
        assert_eq!(store.ssh_keys("olga").await.unwrap()[0].epoch, 1);
    }
}

/// Runs only the migration, over rows of the schema before it.
#[tokio::test]
async fn members_keys_and_tokens_of_an_older_schema_are_kept_in_epoch_0() {
    let lab = Lab::new().await;
    put(&lab.store, "ann", &member("operator"), 7).await;
    invite(
        &lab.store,
        'a',
        "abe@acme",
        &of_customer("customer-admin", "acme"),
        "ann",
    )
    .await;
    invite(
        &lab.store,
        'b',
        "bea@bolt",
        &of_customer("customer-user", "bolt"),
        "ann",
    )
    .await;
    invite(&lab.store, 'c', "cleo", &member("viewer"), "ann").await;
    let mut tx = lab.store.write().await.unwrap();
    let key = SshKeyRow {
        fingerprint: "SHA256:k".into(),
        member: "ann".into(),
        public_key: "ssh-ed25519 AAAA".into(),
        created_at: at(5),
        epoch: 7,
    };
    assert!(tx.add_ssh_key(&key).await.unwrap());
    tx.commit().await.unwrap();
    lab.store.close().await;
    lab.database
        .sql(
            "ALTER TABLE members DROP COLUMN epoch; ALTER TABLE members DROP COLUMN used_at; \
             ALTER TABLE members DROP COLUMN certificate_ends_at; ALTER TABLE members DROP COLUMN warned_of; \
             ALTER TABLE member_ssh_keys DROP COLUMN epoch; \
             ALTER TABLE tokens DROP COLUMN customer; ALTER TABLE tokens DROP COLUMN made_by",
        )
        .await;
    lab.database
        .sql(include_str!("../../migrations/0020_members.sql"))
        .await;
    let store = Store::open(lab.database.database()).await.unwrap();
    let ann = store.member("ann").await.unwrap().unwrap();
    assert_eq!(
        (ann.epoch, ann.certificate_ends_at, ann.given),
        (0, None, member("operator"))
    );
    assert_eq!(store.ssh_keys("ann").await.unwrap()[0].epoch, 0);
    assert_eq!(tokens(&store, &Scope::Site, 100).await.len(), 3);
    for (customer, name) in [("acme", "abe@acme"), ("bolt", "bea@bolt")] {
        let own_tokens = tokens(&store, &Scope::Customer(customer.into()), 100).await;
        assert_eq!(own_tokens.iter().map(|row| row.1.as_str()).collect::<Vec<_>>(), [name]);
    }
}
