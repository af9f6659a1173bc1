use rackwright_ground::testing::{self, TestCore};
use rackwright_lifecycle::EventKind;
use rackwright_lifecycle::Timestamp;
use rackwright_store::MemberRow;

use super::*;

/// Members of a customer and of the site, and a key registered by `owner`.
async fn lab(owner: &str) -> TestCore {
    let core = testing::core().await;
    let mut tx = core.store.write().await.unwrap();
    for (name, customer) in [("mallory", "acme"), ("ann", ""), ("bob", "")] {
        let member = MemberRow {
            role: "operator".into(),
            customer: customer.into(),
        };
        assert!(tx.put_member(name, &member, 0, Timestamp(1)).await.unwrap().is_some());
    }
    assert!(tx.add_ssh_key(&row(owner)).await.unwrap());
    tx.commit().await.unwrap();
    core
}

fn row(member: &str) -> SshKeyRow {
    SshKeyRow {
        fingerprint: "SHA256:a".into(),
        member: member.into(),
        public_key: "ssh-ed25519 AAAA".into(),
        created_at: Timestamp(5),
        epoch: 0,
    }
}

/// Whether the caller gets the key, and its owner afterwards.
async fn taken(core: &Arc<Core>, name: &str, scope: Scope) -> (bool, Option<String>) {
    let caller = Caller {
        name: name.into(),
        role: v1::Role::Operator,
        scope,
        epoch: 0,
    };
    let request = v1::AddSshKeyRequest {
        mutation: Some(v1::Mutation {
            idempotency_key: name.into(),
            ..v1::Mutation::default()
        }),
        ..v1::AddSshKeyRequest::default()
    };
    let call = MutatingCall::new(core, &caller, "AddSshKey", request.mutation.as_ref(), &request).unwrap();
    let mut tx = core.store.write().await.unwrap();
    let is_taken = take_key(core, &mut tx, &call, &caller, &row(name)).await.unwrap();
    tx.commit().await.unwrap();
    let owner = core.store.ssh_key("SHA256:a").await.unwrap().map(|row| row.member);
    (is_taken, owner)
}

#[tokio::test]
async fn a_customer_cannot_keep_the_sites_people_out_by_registering_their_key() {
    let core = lab("mallory").await;
    assert_eq!(taken(&core, "ann", Scope::Site).await, (true, Some("ann".into())));
    let events = core.store.events(&Scope::Site, 0, "", 10).await.unwrap();
    let events: Vec<_> = events
        .iter()
        .map(|event| (event.kind.clone(), event.target.as_str()))
        .collect();
    assert!(
        events.contains(&(EventKind::SecuritySshKeyTaken, "members/mallory")),
        "{events:?}"
    );
    // Another member of the site does not get the key.
    assert_eq!(taken(&core, "bob", Scope::Site).await, (false, Some("ann".into())));
}

#[tokio::test]
async fn no_customer_takes_a_key_from_anybody() {
    for owner in ["mallory", "ann"] {
        let core = lab(owner).await;
        let customer = Scope::Customer("umbrella".into());
        assert_eq!(taken(&core, "eve", customer).await, (false, Some(owner.into())));
    }
}

#[tokio::test]
async fn an_unregistered_key_is_not_taken_over() {
    let core = lab("mallory").await;
    let mut tx = core.store.write().await.unwrap();
    assert!(tx.remove_ssh_key("SHA256:a", None).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(taken(&core, "ann", Scope::Site).await, (false, None));
}
