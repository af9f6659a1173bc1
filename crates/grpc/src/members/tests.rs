//! Tests of rights to see, change and revoke members and tokens.

use std::fmt::Debug;

use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_ground::testing;
use rackwright_identity::ClientIdentity;
use rackwright_lifecycle::EventKind;
use rackwright_lifecycle::seconds;
use tonic::{Code, Response, Status};
use tonic_types::StatusExt as _;

use super::*;
use crate::tenancy::{as_member, call_empty_as, join, lab, methods, mutation};
use crate::test_calls::OPEN;

macro_rules! auth {
    ($core:expr, $name:expr) => {
        AuthServiceClient::new(as_member($core, $name))
    };
}

#[track_caller]
fn refused<T: Debug>(answer: Result<Response<T>, Status>, code: Code) -> Status {
    match answer {
        Err(status) if status.code() == code => status,
        other => panic!("not {code:?}: {other:?}"),
    }
}

fn set_role(name: &str, role: v1::Role, key: &str) -> v1::SetMemberRoleRequest {
    v1::SetMemberRoleRequest {
        name: format!("members/{name}"),
        role: role.into(),
        mutation: mutation(key),
    }
}

fn revoke(name: &str, key: &str) -> v1::RevokeMemberRequest {
    v1::RevokeMemberRequest {
        name: format!("members/{name}"),
        mutation: mutation(key),
    }
}

fn delete(name: &str, key: &str) -> v1::DeleteMemberRequest {
    v1::DeleteMemberRequest {
        name: format!("members/{name}"),
        mutation: mutation(key),
    }
}

fn delete_token(name: &str, key: &str) -> v1::DeleteTokenRequest {
    v1::DeleteTokenRequest {
        name: name.into(),
        mutation: mutation(key),
    }
}

fn invitation(member: &str, role: v1::Role, customer: &str, key: &str) -> v1::CreateTokenRequest {
    v1::CreateTokenRequest {
        member: member.into(),
        role: role.into(),
        customer: customer.into(),
        mutation: mutation(key),
        lifetime: None,
    }
}

async fn listed(core: &std::sync::Arc<Core>, caller: &str) -> Vec<String> {
    let request = v1::ListMembersRequest::default();
    let members = auth!(core, caller).list_members(request).await.unwrap().into_inner();
    members.members.into_iter().map(|member| member.name).collect()
}

async fn unused(core: &std::sync::Arc<Core>, caller: &str) -> Vec<v1::MemberToken> {
    let request = v1::ListTokensRequest::default();
    auth!(core, caller)
        .list_tokens(request)
        .await
        .unwrap()
        .into_inner()
        .tokens
}

#[tokio::test]
async fn every_call_refuses_a_certificate_of_another_epoch_and_one_of_an_agent() {
    let core = lab().await;
    for method in methods().iter().filter(|method| !OPEN.contains(&method.as_str())) {
        if method.starts_with("AgentService/") {
            continue;
        }
        let former = ClientIdentity::member("olga", 5).unwrap();
        let refused = call_empty_as(&core, former, method).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{method}: {refused:?}");
        let agent = ClientIdentity::agent("olga", 0).unwrap();
        let refused = call_empty_as(&core, agent, method).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{method}: {refused:?}");
    }
}

#[tokio::test]
async fn a_customers_admin_sees_and_ends_members_and_tokens_of_the_customer_alone() {
    use v1::Role::{CustomerAdmin, CustomerUser, Operator, Viewer};
    let core = lab().await;
    join(&core, "bea", "customer-user", "bolt").await;
    let mut olga = auth!(&core, "olga");
    olga.create_token(invitation("cleo", CustomerUser, "bolt", "i1"))
        .await
        .unwrap();
    olga.create_token(invitation("victor", Viewer, "", "i2")).await.unwrap();
    olga.create_token(invitation("abe", CustomerUser, "acme", "i3"))
        .await
        .unwrap();
    assert_eq!(listed(&core, "adam").await, ["members/adam", "members/ann"]);
    assert_eq!(listed(&core, "vera").await.len(), 5);
    let (all, customer_tokens) = (unused(&core, "olga").await, unused(&core, "adam").await);
    assert_eq!(all.len(), 3);
    let [token] = &customer_tokens[..] else {
        panic!("{customer_tokens:?}")
    };
    assert_eq!((token.member.as_str(), token.created_by.as_str()), ("abe", "olga"));

    let mut adam = auth!(&core, "adam");
    // Members of other customers, members of the site, and unknown names get the same answer.
    for (n, name) in ["bea", "olga", "vera", "nobody"].into_iter().enumerate() {
        let plain = |status: Status| status.message().replace(name, "NAME");
        let answers = [
            plain(refused(
                adam.set_member_role(set_role(name, CustomerUser, &format!("s{n}")))
                    .await,
                Code::NotFound,
            )),
            plain(refused(
                adam.revoke_member(revoke(name, &format!("r{n}"))).await,
                Code::NotFound,
            )),
            plain(refused(
                adam.delete_member(delete(name, &format!("d{n}"))).await,
                Code::NotFound,
            )),
        ];
        assert!(
            answers.iter().all(|answer| answer == "member \"NAME\" does not exist"),
            "{answers:?}"
        );
    }
    for (n, other) in all.iter().filter(|other| other.customer != "acme").enumerate() {
        refused(
            adam.delete_token(delete_token(&other.name, &format!("t{n}"))).await,
            Code::NotFound,
        );
    }
    for (n, role) in [Operator, Viewer].into_iter().enumerate() {
        refused(
            adam.set_member_role(set_role("ann", role, &format!("o{n}"))).await,
            Code::InvalidArgument,
        );
    }
    adam.set_member_role(set_role("ann", CustomerAdmin, "a1"))
        .await
        .unwrap();
    adam.revoke_member(revoke("ann", "a2")).await.unwrap();
    adam.delete_member(delete("ann", "a3")).await.unwrap();
    adam.delete_member(delete("ann", "a3"))
        .await
        .expect("the same request is answered again");
    adam.delete_token(delete_token(&token.name, "a4")).await.unwrap();
    assert_eq!(listed(&core, "adam").await, ["members/adam"]);
    assert_eq!(
        (unused(&core, "adam").await.len(), unused(&core, "olga").await.len()),
        (0, 2)
    );

    let events = core.store.events(&Scope::Site, 0, "", 500).await.unwrap();
    let reported: Vec<_> = events
        .iter()
        .filter(|event| event.attributes.get("by").is_some_and(|by| by == "adam"))
        .map(|event| (event.kind.clone(), event.target.as_str()))
        .collect();
    assert_eq!(
        reported,
        [
            (EventKind::SecurityMemberRoleSet, "members/ann"),
            (EventKind::SecurityMemberRevoked, "members/ann"),
            (EventKind::SecurityMemberDeleted, "members/ann"),
            (EventKind::SecurityTokenDeleted, "members/abe"),
        ]
    );
}

#[tokio::test]
async fn a_role_stays_of_its_kind() {
    use v1::Role::{CustomerAdmin, Operator, Unspecified, Viewer};
    let core = lab().await;
    let mut olga = auth!(&core, "olga");
    for (n, (name, role)) in [
        ("vera", CustomerAdmin),
        ("ann", Viewer),
        ("ann", Operator),
        ("vera", Unspecified),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = olga.set_member_role(set_role(name, role, &format!("k{n}"))).await;
        refused(answer, Code::InvalidArgument);
    }
    let vera = olga.set_member_role(set_role("vera", Operator, "k9")).await.unwrap();
    assert_eq!(vera.into_inner().role(), Operator);
}

/// A refusal names each role that the same call accepts for the same member, and no other.
#[tokio::test]
async fn a_refusal_names_the_roles_that_are_accepted() {
    use v1::Role::{Auditor, CustomerAdmin, CustomerUser, Operator, Unspecified, Viewer};
    let core = lab().await;
    let mut olga = auth!(&core, "olga");
    let roles = [Viewer, Operator, Auditor, CustomerAdmin, CustomerUser];
    for (member, other_kind) in [("vera", CustomerAdmin), ("ann", Viewer)] {
        let key = |n: usize| format!("{member}{n}");
        let answer = olga.set_member_role(set_role(member, other_kind, &key(8))).await;
        let message = refused(answer, Code::InvalidArgument).message().to_owned();
        let named = named_roles(&message);
        let mut accepted = Vec::new();
        for (n, role) in roles.into_iter().enumerate() {
            if olga.set_member_role(set_role(member, role, &key(n))).await.is_ok() {
                accepted.push(caller::word(role));
            }
        }
        assert_eq!(named, accepted, "{member}: {message}");
    }
    let answer = olga.set_member_role(set_role("vera", Unspecified, "any")).await;
    let message = refused(answer, Code::InvalidArgument).message().to_owned();
    assert_eq!(named_roles(&message), roles.map(caller::word), "{message}");
}

/// The roles that a message names, in its order.
fn named_roles(message: &str) -> Vec<&str> {
    let is_role = |word: &&str| word.starts_with("customer-") || ["viewer", "operator", "auditor"].contains(word);
    message
        .split(|c: char| !c.is_ascii_lowercase() && c != '-')
        .filter(is_role)
        .collect()
}

/// Checks that the last operator is kept, and that the hint names a solution.
#[track_caller]
fn is_last<T: Debug>(answer: Result<Response<T>, Status>) {
    let status = refused(answer, Code::FailedPrecondition);
    let hint = status.get_details_localized_message().map(|hint| hint.message);
    assert!(
        status.message().contains("last operator") && hint.unwrap_or_default().contains("invite-operator"),
        "{status:?}"
    );
}

#[tokio::test]
async fn the_last_operator_who_can_log_in_is_kept() {
    use v1::Role::{Operator, Viewer};
    let core = lab().await;
    let mut olga = auth!(&core, "olga");
    is_last(olga.delete_member(delete("olga", "k1")).await);
    is_last(olga.revoke_member(revoke("olga", "k2")).await);
    is_last(olga.set_member_role(set_role("olga", Viewer, "k3")).await);
    olga.set_member_role(set_role("olga", Operator, "k4")).await.unwrap();

    // Another operator with an expired certificate does not count.
    let operator = rackwright_ground::invite::operator();
    let mut tx = core.store.write().await.unwrap();
    tx.put_member("oscar", &operator, 9, clock::now()).await.unwrap();
    let past = clock::now().plus(-seconds(1));
    tx.record_member_cert("oscar", 9, past, "ca").await.unwrap();
    tx.commit().await.unwrap();
    is_last(olga.delete_member(delete("olga", "k5")).await);
    let mut tx = core.store.write().await.unwrap();
    tx.record_member_cert("oscar", 9, clock::now().plus(seconds(60)), "ca")
        .await
        .unwrap();
    tx.commit().await.unwrap();
    olga.delete_member(delete("olga", "k6")).await.unwrap();
    assert_eq!(core.store.member("olga").await.unwrap(), None);
}

#[tokio::test]
async fn of_two_operators_who_delete_each_other_one_stays() {
    let core = lab().await;
    join(&core, "oscar", "operator", "").await;
    let (mut olga, mut oscar) = (auth!(&core, "olga"), auth!(&core, "oscar"));
    let (one, other) = tokio::join!(
        olga.delete_member(delete("oscar", "k1")),
        oscar.delete_member(delete("olga", "k2"))
    );
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
}

#[tokio::test]
async fn the_use_of_a_member_is_kept_to_the_hour() {
    let core = testing::core().await;
    join(&core, "vera", "viewer", "").await;
    for _ in 0..2 {
        auth!(&core, "vera").who_am_i(v1::WhoAmIRequest {}).await.unwrap();
    }
    let used = async {
        loop {
            if let Some(used) = core.store.member("vera").await.unwrap().unwrap().used_at {
                return used;
            }
            tokio::task::yield_now().await;
        }
    };
    let used = tokio::time::timeout(std::time::Duration::from_secs(10), used)
        .await
        .unwrap();
    auth!(&core, "vera").who_am_i(v1::WhoAmIRequest {}).await.unwrap();
    assert_eq!(core.store.member("vera").await.unwrap().unwrap().used_at, Some(used));
}
