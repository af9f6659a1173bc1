//! One-time tokens, members, and the keys of deployments.

use rackwright_store::{DeploymentKeys, TokenRow};

use super::support::{Lab, at, given, is_missing, member, node};

fn token(hash: &str, subject: &str, expires: i64) -> TokenRow {
    TokenRow {
        hash: hash.to_owned(),
        purpose: "boot".into(),
        subject: subject.to_owned(),
        body: "10.0.0.9".into(),
        expires_at: at(expires),
    }
}

async fn put(lab: &Lab, rows: &[TokenRow]) {
    let mut tx = lab.store.write().await.unwrap();
    for row in rows {
        tx.put_token(row).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// Uses the token at `now`, in a change of its own.
async fn use_up(lab: &Lab, hash: &str, purpose: &str, now: i64) -> Option<TokenRow> {
    let mut tx = lab.store.write().await.unwrap();
    let used = tx.use_token(hash, purpose, at(now)).await.unwrap();
    tx.commit().await.unwrap();
    used
}

#[tokio::test]
async fn a_token_is_used_once_for_its_purpose_in_its_time() {
    let lab = Lab::new().await;
    let row = token("h1", "mac-1", 200);
    put(&lab, std::slice::from_ref(&row)).await;
    assert_eq!(use_up(&lab, "h2", "boot", 100).await, None, "there is none");
    assert_eq!(use_up(&lab, "h1", "agent", 100).await, None, "for something else");
    assert_eq!(use_up(&lab, "h1", "boot", 200).await, None, "it ends at 200");
    assert_eq!(use_up(&lab, "h1", "boot", 199).await, Some(row.clone()));
    assert_eq!(use_up(&lab, "h1", "boot", 199).await, None, "used");

    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.token("h1", "boot").await.unwrap(), Some((row, true)));
    assert_eq!(tx.token("h1", "agent").await.unwrap(), None);
}

#[tokio::test]
async fn looking_at_a_token_and_an_undone_use_do_not_use_it_up() {
    let lab = Lab::new().await;
    let row = token("h1", "mac-1", 200);
    put(&lab, std::slice::from_ref(&row)).await;
    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.token("h1", "boot").await.unwrap(), Some((row, false)));
    assert!(tx.use_token("h1", "boot", at(100)).await.unwrap().is_some());
    drop(tx);
    assert!(use_up(&lab, "h1", "boot", 100).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_concurrent_uses_of_a_token_succeeds() {
    let lab = Lab::new().await;
    put(&lab, &[token("h1", "mac-1", 200)]).await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = lab.other().await;
        clients.spawn(async move {
            let mut tx = store.write().await.unwrap();
            let used = tx.use_token("h1", "boot", at(100)).await.unwrap();
            tx.commit().await.unwrap();
            used.is_some()
        });
    }
    let let_in = clients.join_all().await.into_iter().filter(|used| *used).count();
    assert_eq!(let_in, 1);
}

#[tokio::test]
async fn revoked_tokens_are_deleted_and_others_stay() {
    let lab = Lab::new().await;
    let mut agent = token("h3", "mac-1", 200);
    agent.purpose = "agent".into();
    put(&lab, &[token("h1", "mac-1", 200), token("h2", "mac-2", 200), agent]).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.revoke_tokens("boot", "mac-1").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(use_up(&lab, "h1", "boot", 100).await, None);
    assert!(use_up(&lab, "h2", "boot", 100).await.is_some());
    assert!(use_up(&lab, "h3", "agent", 100).await.is_some());
}

#[tokio::test]
async fn of_one_subject_the_newest_few_are_kept() {
    let lab = Lab::new().await;
    put(&lab, &[token("other", "mac-2", 200)]).await;
    for number in 0..20 {
        put(&lab, &[token(&format!("h{number}"), "mac-1", 200 + number)]).await;
    }
    for (hash, is_kept) in [("h0", false), ("h11", false), ("h12", true), ("h19", true)] {
        assert_eq!(use_up(&lab, hash, "boot", 100).await.is_some(), is_kept, "{hash}");
    }
    assert!(use_up(&lab, "other", "boot", 100).await.is_some());
}

#[tokio::test]
async fn a_new_token_is_kept_though_it_ends_before_older_ones() {
    let lab = Lab::new().await;
    for number in 0..8 {
        put(&lab, &[token(&format!("long{number}"), "mac-1", 9000)]).await;
    }
    put(&lab, &[token("short", "mac-1", 200)]).await;
    assert!(use_up(&lab, "short", "boot", 100).await.is_some());
    for number in 0..20 {
        put(&lab, &[token(&format!("same{number}"), "mac-1", 9000)]).await;
    }
    assert!(use_up(&lab, "same19", "boot", 100).await.is_some());
}

#[tokio::test]
async fn old_tokens_are_deleted() {
    let lab = Lab::new().await;
    put(&lab, &[token("h1", "mac-1", 200), token("h2", "mac-1", 300)]).await;
    assert_eq!(lab.store.forget_tokens(at(300)).await.unwrap(), 1);
    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.token("h1", "boot").await.unwrap(), None);
    assert!(tx.token("h2", "boot").await.unwrap().is_some());
}

#[tokio::test]
async fn a_member_has_the_role_given_last() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.member_count().await.unwrap(), 0);
    tx.put_member("ann", &member("viewer"), 1, at(1)).await.unwrap();
    tx.put_member("bob", &member("viewer"), 1, at(2)).await.unwrap();
    tx.put_member("ann", &member("operator"), 1, at(3)).await.unwrap();
    assert_eq!(tx.member_count().await.unwrap(), 2);
    tx.commit().await.unwrap();
    assert_eq!(given(&lab.store, "ann").await, Some(member("operator")));
    assert_eq!(given(&lab.store, "bob").await, Some(member("viewer")));
    assert_eq!(lab.store.member("eve").await.unwrap(), None);
}

#[tokio::test]
async fn secrets_of_a_deployment_are_kept_until_the_next_one_or_the_hand_over() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let keys = |n: u8| DeploymentKeys {
        host_public: format!("ssh-ed25519 host-{n}"),
        host_private: vec![0, 255, n],
        provision_public: format!("ssh-ed25519 provision-{n}"),
        provision_private: (0..=255).collect(),
        user_data: vec![7, n],
    };
    let mut tx = lab.store.write().await.unwrap();
    for (generation, deployment, n) in [(1, 1, 1), (1, 2, 2), (u64::MAX, 1, 3)] {
        tx.put_deployment_keys(&"n1".into(), generation, deployment, &keys(n))
            .await
            .unwrap();
    }
    let twice = tx.put_deployment_keys(&"n1".into(), 1, 2, &keys(9)).await;
    assert!(twice.is_err(), "keys of a deployment are never replaced");
    tx.commit().await.unwrap();
    let public_only = |n: u8| DeploymentKeys {
        host_private: Vec::new(),
        provision_private: Vec::new(),
        user_data: Vec::new(),
        ..keys(n)
    };
    let read = async |generation: u64, deployment: u32| {
        let found = lab.store.deployment_keys(&"n1".into(), generation, deployment).await;
        found.unwrap()
    };
    // A new deployment deletes the private keys and user data of the earlier ones.
    assert_eq!(read(1, 1).await, public_only(1));
    assert_eq!(read(1, 2).await, public_only(2));
    assert_eq!(read(u64::MAX, 1).await, keys(3));
    assert!(is_missing(&lab.store.deployment_keys(&"n1".into(), 2, 1).await));
    assert!(is_missing(&lab.store.deployment_keys(&"n2".into(), 1, 1).await));
    let mut tx = lab.store.write().await.unwrap();
    tx.put_user_data(&"n1".into(), u64::MAX, 1, &[9]).await.unwrap();
    assert!(is_missing(&tx.put_user_data(&"n1".into(), 2, 1, &[9]).await));
    tx.commit().await.unwrap();
    assert_eq!(read(u64::MAX, 1).await.user_data, [9]);
    let mut tx = lab.store.write().await.unwrap();
    tx.forget_private_keys(&"n1".into()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(read(u64::MAX, 1).await, public_only(3));
}

#[tokio::test]
async fn only_the_first_user_of_a_token_may_repeat_the_use() {
    let lab = Lab::new().await;
    put(&lab, &[token("h1", "mac-1", 200)]).await;
    let use_as = async |user: &str, now: i64| {
        let mut tx = lab.store.write().await.unwrap();
        let used = tx.use_token_as("h1", "boot", user, at(now)).await.unwrap();
        tx.commit().await.unwrap();
        used.is_some()
    };
    assert!(use_as("key-1", 100).await);
    assert!(use_as("key-1", 110).await, "the answer was lost");
    assert!(!use_as("key-2", 110).await, "another user");
    assert!(!use_as("", 110).await, "an unknown user");
    assert!(!use_as("key-1", 200).await, "it has ended");
}
