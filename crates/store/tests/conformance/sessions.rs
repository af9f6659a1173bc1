//! Sessions in the web console, and API keys.

use rackwright_lifecycle::CustomerId;
use rackwright_store::{MemberRow, Scope, SessionFilter, SessionKind, SessionRow, Store, StoreError};

use super::support::{Lab, at};

fn session(id: &str, member: &str, kind: SessionKind) -> SessionRow {
    SessionRow {
        id: id.to_owned(),
        kind,
        member: member.to_owned(),
        epoch: 7,
        customer: CustomerId::stored(member.split_once('@').map_or("", |(_, customer)| customer)),
        role: String::new(),
        label: String::new(),
        created_at: at(100),
        used_at: at(100),
        ends_at: at(1000),
        address: "192.0.2.7".into(),
        client: "a browser".into(),
    }
}

async fn put(store: &Store, rows: &[SessionRow]) {
    let mut tx = store.write().await.unwrap();
    for row in rows {
        tx.put_session(&format!("hash-{}", row.id), row).await.unwrap();
    }
    tx.commit().await.unwrap();
}

fn ids(rows: &[SessionRow]) -> Vec<&str> {
    rows.iter().map(|row| row.id.as_str()).collect()
}

#[tokio::test]
async fn a_session_is_found_by_its_hash_until_it_ends() {
    let lab = Lab::new().await;
    let row = session("s1", "ann", SessionKind::Browser);
    put(&lab.store, std::slice::from_ref(&row)).await;
    assert_eq!(lab.store.session("hash-s1", at(999)).await.unwrap(), Some(row));
    assert_eq!(lab.store.session("hash-s1", at(1000)).await.unwrap(), None, "its end");
    assert_eq!(lab.store.session("s1", at(500)).await.unwrap(), None, "its id");
    assert!(lab.store.session_is_open("s1", at(999)).await.unwrap());
    assert!(!lab.store.session_is_open("s1", at(1000)).await.unwrap());
    assert!(!lab.store.session_is_open("s2", at(500)).await.unwrap());
}

#[tokio::test]
async fn a_damaged_session_is_an_error_that_names_the_session() {
    let lab = Lab::new().await;
    put(&lab.store, &[session("s1", "ann", SessionKind::Browser)]).await;
    for (column, named) in [
        ("kind = 'badge'", "\"badge\""),
        ("kind = 'browser', epoch = -1", "out of range"),
    ] {
        lab.database.sql(&format!("UPDATE sessions SET {column}")).await;
        let refused = lab.store.session("hash-s1", at(500)).await;
        let is_named = matches!(&refused, Err(StoreError::Corrupt { what: "session", id, source })
            if id == "s1" && source.to_string().contains(named));
        assert!(is_named, "{refused:?}");
    }
}

#[tokio::test]
async fn sessions_are_listed_and_ended_within_what_the_reader_sees() {
    let lab = Lab::new().await;
    let keys = ["k1", "k2"].map(|id| session(id, "ann@acme", SessionKind::ApiKey));
    let browsers = [
        session("s1", "olga", SessionKind::Browser),
        session("s2", "ann@acme", SessionKind::Browser),
        session("s3", "abe@acme", SessionKind::Browser),
        session("s4", "bea@bolt", SessionKind::Browser),
    ];
    put(&lab.store, &keys).await;
    put(&lab.store, &browsers).await;
    let acme = Scope::Customer("acme".into());
    let listed = async |scope: &Scope, member: &str, after: &str, limit: i64| {
        let filter = SessionFilter { scope, member };
        let rows = lab
            .store
            .sessions(filter, SessionKind::Browser, at(500), (after, limit));
        rows.await.unwrap()
    };
    assert_eq!(ids(&listed(&Scope::Site, "", "", 9).await), ["s1", "s2", "s3", "s4"]);
    assert_eq!(ids(&listed(&Scope::Site, "", "s1", 2).await), ["s2", "s3"]);
    assert_eq!(ids(&listed(&acme, "", "", 9).await), ["s2", "s3"]);
    assert_eq!(ids(&listed(&acme, "abe@acme", "", 9).await), ["s3"]);
    assert_eq!(
        ids(&listed(&Scope::Customer("".into()), "", "", 9).await),
        Vec::<&str>::new()
    );

    let mut tx = lab.store.write().await.unwrap();
    for (scope, member, kind, id) in [
        (&acme, "", SessionKind::Browser, "s4"),
        (&acme, "abe@acme", SessionKind::Browser, "s2"),
        (&acme, "", SessionKind::ApiKey, "s2"),
        (&Scope::Site, "", SessionKind::Browser, "s9"),
    ] {
        let filter = SessionFilter { scope, member };
        let ended = tx.end_session(filter, kind, id, at(500)).await.unwrap();
        assert_eq!(ended, None, "{id}");
    }
    assert!(!tx.changes_members());
    let filter = SessionFilter {
        scope: &acme,
        member: "ann@acme",
    };
    let ended = tx
        .end_session(filter, SessionKind::Browser, "s2", at(500))
        .await
        .unwrap();
    assert_eq!(ended, Some(browsers[1].clone()));
    assert!(tx.changes_members(), "open streams of the session are looked at");
    assert_eq!(tx.api_keys_of("ann@acme", at(500)).await.unwrap(), 2);
    assert_eq!(tx.api_keys_of("ann@acme", at(1000)).await.unwrap(), 0);
    tx.commit().await.unwrap();
    assert_eq!(lab.store.session("hash-s2", at(500)).await.unwrap(), None);
    assert_eq!(ids(&listed(&Scope::Site, "", "", 9).await), ["s1", "s3", "s4"]);
}

#[tokio::test]
async fn sessions_end_with_their_member_and_are_forgotten_after_their_end() {
    let lab = Lab::new().await;
    let mut key = session("k1", "ann", SessionKind::ApiKey);
    key.ends_at = at(9000);
    put(
        &lab.store,
        &[
            session("s1", "ann", SessionKind::Browser),
            session("s2", "bob", SessionKind::Browser),
            key,
        ],
    )
    .await;
    let note = async |now: i64| {
        let noted = lab.store.record_session_use("s1", at(now), at(now - 60));
        noted.await.unwrap()
    };
    assert!(!note(150).await, "100 is less than a minute before");
    assert!(note(161).await);
    assert_eq!(
        lab.store.session("hash-s1", at(500)).await.unwrap().unwrap().used_at,
        at(161)
    );
    assert_eq!(
        lab.store.forget_sessions(at(500), at(150)).await.unwrap(),
        1,
        "bob's is idle; keys never are"
    );
    assert!(!lab.store.session_is_open("s2", at(500)).await.unwrap());
    assert_eq!(lab.store.forget_sessions(at(1000), at(0)).await.unwrap(), 1);

    let mut tx = lab.store.write().await.unwrap();
    let operator = MemberRow {
        role: "operator".into(),
        customer: "".into(),
    };
    tx.put_member("ann", &operator, 7, at(1)).await.unwrap();
    tx.revoke_member("ann", 8).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.session("hash-k1", at(500)).await.unwrap(), None);
}

#[tokio::test]
async fn a_member_has_few_browser_sessions_and_the_unused_ones_make_room() {
    let lab = Lab::new().await;
    for number in 0..20 {
        let mut row = session(&format!("s{number:02}"), "ann", SessionKind::Browser);
        row.used_at = at(100 + number);
        put(
            &lab.store,
            &[row, session(&format!("k{number:02}"), "ann", SessionKind::ApiKey)],
        )
        .await;
    }
    let filter = SessionFilter {
        scope: &Scope::Site,
        member: "ann",
    };
    let list = async |kind| lab.store.sessions(filter, kind, at(500), ("", 99)).await.unwrap();
    // A new session stays even if all others were used later.
    let mut late = session("s99", "ann", SessionKind::Browser);
    late.used_at = at(1);
    put(&lab.store, &[late]).await;
    assert!(lab.store.session_is_open("s99", at(500)).await.unwrap());
    let browsers = list(SessionKind::Browser).await;
    assert_eq!((browsers.len(), browsers[0].id.as_str()), (16, "s05"));
    assert_eq!(list(SessionKind::ApiKey).await.len(), 20);
}

#[tokio::test]
async fn all_sessions_end_after_a_restore() {
    let lab = Lab::new().await;
    put(
        &lab.store,
        &[
            session("s1", "ann", SessionKind::Browser),
            session("k1", "ann", SessionKind::ApiKey),
        ],
    )
    .await;
    let mut tx = lab.store.write().await.unwrap();
    let token = rackwright_store::TokenRow {
        hash: "t1".into(),
        purpose: "login".into(),
        subject: "ann".into(),
        body: "7".into(),
        expires_at: at(900),
    };
    tx.put_token(&token).await.unwrap();
    tx.commit().await.unwrap();
    assert!(lab.store.has_token("t1", "login").await.unwrap());
    assert!(!lab.store.has_token("t1", "member").await.unwrap());
    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.end_all_sessions().await.unwrap(), 2);
    tx.commit().await.unwrap();
    assert!(!lab.store.has_token("t1", "login").await.unwrap());
    for id in ["s1", "k1"] {
        assert!(!lab.store.session_is_open(id, at(500)).await.unwrap(), "{id}");
    }
}
