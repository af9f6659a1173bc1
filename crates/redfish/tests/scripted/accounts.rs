//! Accounts: read, made, written into slots, changed, and the changes that a BMC allows while it demands a new password.

use rackwright_redfish::{ErrorKind, RedfishError};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::bmc::{Bmc, SYSTEM, State, merge, standard_tree};
use crate::server::{Answer, Request};

const SERVICE: &str = "/redfish/v1/AccountService";
const ACCOUNTS: &str = "/redfish/v1/AccountService/Accounts";
const NEW: &str = "vN7-qXtR_mKw4.Zp";

fn password() -> SecretString {
    SecretString::from(NEW)
}

fn slot(id: u32, user: &str) -> (String, Value) {
    let path = format!("{ACCOUNTS}/{id}");
    let body = json!({"@odata.id": path, "Id": id.to_string(), "UserName": user, "Enabled": !user.is_empty()});
    (path, body)
}

async fn bmc_with(
    slots: &[(u32, &str)],
    hook: impl Fn(&Request, &mut State) -> Option<Answer> + Send + Sync + 'static,
) -> Bmc {
    let mut tree = standard_tree();
    let link = |path: &str| json!({"@odata.id": path});
    merge(
        tree.get_mut("/redfish/v1").unwrap(),
        &json!({"AccountService": link(SERVICE)}),
    );
    let service = json!({
        "Accounts": link(ACCOUNTS), "MinPasswordLength": 13, "MaxPasswordLength": 20,
        "AccountLockoutThreshold": 5, "AccountLockoutDuration": 30, "AccountLockoutCounterResetAfter": 60,
        "SupportedAccountTypes": ["Redfish", "IPMI"],
    });
    tree.insert(SERVICE.to_owned(), service);
    let members: Vec<Value> = slots.iter().map(|(id, _)| link(&format!("{ACCOUNTS}/{id}"))).collect();
    tree.insert(ACCOUNTS.to_owned(), json!({"Members": members}));
    tree.extend(slots.iter().map(|(id, user)| slot(*id, user)));
    Bmc::start_with(tree, std::time::Duration::ZERO, hook).await
}

#[tokio::test]
async fn accounts_and_password_rules_are_read() {
    let bmc = bmc_with(&[(1, ""), (2, "admin")], |_, _| None).await;
    let client = bmc.connect().await;
    let policy = client.account_policy().await.unwrap();
    assert_eq!((policy.min_length, policy.max_length), (Some(13), Some(20)));
    assert_eq!(
        (policy.lockout_threshold, policy.lockout_s, policy.counter_reset_s),
        (Some(5), Some(30), Some(60))
    );
    let users: Vec<_> = client.accounts().await.unwrap().iter().map(|a| a.user()).collect();
    assert_eq!(users, [None, Some("admin".to_owned())]);
    let failure = client.roles().await.unwrap_err();
    assert!(matches!(failure, RedfishError::NotOffered { .. }), "{failure}");
}

#[tokio::test]
async fn a_new_account_is_posted() {
    let bmc = bmc_with(&[(1, "admin")], |request, _| {
        request.is("POST", ACCOUNTS).then(|| Answer::status(201))
    })
    .await;
    bmc.connect()
        .await
        .put_administrator("ours", &password())
        .await
        .unwrap();
    let wanted = json!({
        "UserName": "ours", "Password": NEW, "RoleId": "Administrator", "Enabled": true, "AccountTypes": ["Redfish"],
    });
    assert_eq!(bmc.bodies("POST", ACCOUNTS), [wanted]);
}

#[tokio::test]
async fn the_first_free_slot_that_we_may_use_is_written() {
    let bmc = bmc_with(&[(16, ""), (1, ""), (2, "admin"), (4, ""), (3, "other")], |_, _| None).await;
    let client = bmc.connect().await;
    client.put_administrator("ours", &password()).await.unwrap();
    let bodies = bmc.bodies("PATCH", &format!("{ACCOUNTS}/4"));
    assert_eq!(bodies.len(), 1);
    assert_eq!(bodies[0]["UserName"], "ours");
    // A second time: the account exists now, and only its password is written.
    client.put_administrator("ours", &password()).await.unwrap();
    let again = bmc.bodies("PATCH", &format!("{ACCOUNTS}/4"));
    assert_eq!(again[1], json!({"Password": NEW, "Enabled": true}));
}

#[tokio::test]
async fn no_free_slot_is_an_error_with_the_bmcs_message() {
    let bmc = bmc_with(&[(1, ""), (2, "admin")], |_, _| None).await;
    let failure = bmc.connect().await.put_administrator("ours", &password()).await;
    assert_eq!(failure.unwrap_err().status(), Some(405));
}

#[tokio::test]
async fn a_refused_password_is_redacted_in_the_refusal() {
    let bmc = bmc_with(&[(2, "admin")], |request, _| {
        let text = format!("The value {NEW} for the property Password is not acceptable");
        (request.method == "PATCH").then(|| Answer::error(400, "Base.1.8.PropertyValueFormatError", &text))
    })
    .await;
    let failure = bmc.connect().await.change_own_password("admin", &password()).await;
    let failure = failure.unwrap_err();
    assert!(failure.to_string().contains("***"), "{failure}");
    assert!(!format!("{failure:?} {failure}").contains(NEW));
    assert_eq!(failure.kind(), ErrorKind::Permanent);
}

/// Only the change is allowed, not even a reading of the account, so no ETag is known.
#[tokio::test]
async fn a_password_that_must_be_changed_is_changed_by_the_link_of_the_refusal() {
    let account = format!("{ACCOUNTS}/2");
    let text = format!("PATCH the 'Password' property for this account located at the target URI '{account}' first.");
    let path = account.clone();
    let bmc = bmc_with(&[(2, "admin")], move |request, state| {
        let is_open = request.path.trim_end_matches('/') == "/redfish/v1" || request.path.contains("Sessions");
        if is_open || state.n > 0 {
            return None;
        }
        if request.is("PATCH", &path) {
            if request.header("if-match") != Some("*") {
                return Some(Answer::error(428, "Base.1.8.PreconditionRequired", "an ETag is needed"));
            }
            state.n = 1;
            return Some(Answer::status(204));
        }
        Some(Answer::error(403, "Base.1.8.PasswordChangeRequired", &text))
    })
    .await;
    let client = bmc.connect().await;
    let failure = client.verify_login().await.unwrap_err();
    assert!(
        matches!(failure, RedfishError::PasswordChangeRequired { .. }),
        "{failure}"
    );
    client.change_own_password("admin", &password()).await.unwrap();
    client.verify_login().await.unwrap();
    let sent = bmc.bodies("PATCH", &account);
    assert_eq!(sent.last(), Some(&json!({"Password": NEW})));
    assert!(bmc.bodies("PATCH", SYSTEM).is_empty());
}

#[tokio::test]
async fn accounts_are_disabled_and_removed() {
    let bmc = bmc_with(&[(2, "admin"), (3, "old")], |_, _| None).await;
    let client = bmc.connect().await;
    let old = client.account_of("old").await.unwrap().unwrap();
    client.disable_account(&old).await.unwrap();
    let old = client.account_of("old").await.unwrap().unwrap();
    assert!(!old.is_enabled());
    // This BMC does not support DELETE: the slot is emptied.
    client.delete_account(&old).await.unwrap();
    assert!(client.account_of("old").await.unwrap().is_none());
}

/// The BMC answers POST and DELETE with this error and status 403.
async fn bmc_that_refuses(slots: &[(u32, &str)], id: &'static str) -> Bmc {
    bmc_with(slots, move |request, _| {
        let is_account = request.path.starts_with(ACCOUNTS);
        let is_refused = is_account && ["POST", "DELETE"].contains(&request.method.as_str());
        is_refused.then(|| Answer::error(403, id, "no"))
    })
    .await
}

#[tokio::test]
async fn a_demand_for_a_new_password_stops_the_fallbacks_of_account_changes() {
    let slots = [(2, "admin"), (3, "old"), (4, "")];
    let bmc = bmc_that_refuses(&slots, "Base.1.8.PasswordChangeRequired").await;
    let client = bmc.connect().await;
    let old = client.account_of("old").await.unwrap().unwrap();
    for failure in [
        client.put_administrator("ours", &password()).await.unwrap_err(),
        client.delete_account(&old).await.unwrap_err(),
    ] {
        assert!(
            matches!(failure, RedfishError::PasswordChangeRequired { .. }),
            "{failure}"
        );
    }
    let is_write = |request: &Request| request.method == "PATCH";
    assert!(!bmc.server.requests().iter().any(is_write), "no slot is written");

    let bmc = bmc_that_refuses(&slots, "Base.1.8.InsufficientPrivilege").await;
    let client = bmc.connect().await;
    client.put_administrator("ours", &password()).await.unwrap();
    client.delete_account(&old).await.unwrap();
    assert!(client.account_of("ours").await.unwrap().is_some());
    assert!(client.account_of("old").await.unwrap().is_none());
}

#[tokio::test]
async fn a_bmc_without_accounts_is_an_error_of_its_own() {
    let bmc = Bmc::plain().await;
    let failure = bmc.connect().await.change_own_password("admin", &password()).await;
    assert!(matches!(failure, Err(RedfishError::NotOffered { .. })));
}

#[tokio::test]
async fn a_missing_account_is_reported_with_its_collection() {
    let bmc = bmc_with(&[(2, "admin")], |_, _| None).await;
    let failure = bmc.connect().await.change_own_password("ours", &password()).await;
    let text = failure.unwrap_err().to_string();
    assert!(
        text.contains("the list of accounts has no readable account of this user name, so"),
        "{text}"
    );
    let bmc = bmc_with(&[(2, "admin")], |request, _| {
        request
            .path
            .starts_with(SERVICE)
            .then(|| Answer::error(403, "Base.1.8.PasswordChangeRequired", "change it"))
    })
    .await;
    let failure = bmc.connect().await.change_own_password("admin", &password()).await;
    let text = failure.unwrap_err().to_string();
    let demand = format!("the demand for a new password in the answer to GET {SERVICE} has no link to the account, so");
    assert!(text.contains(&demand), "{text}");
}

#[tokio::test]
async fn a_login_that_cannot_be_proved_is_not_a_missing_account() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    let text = client.account_policy().await.unwrap_err().to_string();
    let words =
        "does not offer an account service; it offers: no accounts over Redfish; read and change its accounts at";
    assert!(text.contains(words), "{text}");
    let mut tree = standard_tree();
    let root = tree.get_mut("/redfish/v1").unwrap().as_object_mut().unwrap();
    root.remove("Managers");
    root.remove("Systems");
    let bmc = Bmc::start_with(tree, std::time::Duration::ZERO, |_, _| None).await;
    let text = bmc.connect().await.verify_login().await.unwrap_err().to_string();
    assert!(
        text.ends_with("it offers: a service root without AccountService, Managers and Systems"),
        "{text}"
    );
}
