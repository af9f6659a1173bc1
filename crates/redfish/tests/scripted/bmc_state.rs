//! Leftover state on a BMC: read strictly, removed by the vendor's method.

use std::time::Duration;

use rackwright_redfish::{BmcClient, BmcState, RedfishError, StateItem, StateListed, StatePart, StateScope};
use serde_json::{Value, json};

use crate::bmc::{Bmc, SESSIONS, SYSTEM, State, merge, standard_tree};
use crate::server::{Answer, Request};

const ACCOUNTS: &str = "/redfish/v1/AccountService/Accounts";
const SUBSCRIPTIONS: &str = "/redfish/v1/EventService/Subscriptions";
const MANAGER: &str = "/redfish/v1/Managers/BMC";

fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

fn account(id: u32, user: &str, more: &Value) -> (String, Value) {
    let path = format!("{ACCOUNTS}/{id}");
    let mut body =
        json!({"@odata.id": path, "Id": id.to_string(), "UserName": user, "Enabled": true, "RoleId": "Administrator"});
    merge(&mut body, more);
    (path, body)
}

fn list(paths: &[String]) -> Value {
    json!({"Members": paths.iter().map(|path| link(path)).collect::<Vec<_>>()})
}

/// A BMC on which a customer's system has left one item of each kind.
async fn bmc_with(hook: impl Fn(&Request, &mut State) -> Option<Answer> + Send + Sync + 'static) -> Bmc {
    let mut tree = standard_tree();
    let services =
        json!({"AccountService": link("/redfish/v1/AccountService"), "EventService": link("/redfish/v1/EventService")});
    merge(tree.get_mut("/redfish/v1").unwrap(), &services);
    let manager = json!({"VirtualMedia": link(&format!("{MANAGER}/VirtualMedia")), "HostInterfaces": link(&format!("{MANAGER}/HostInterfaces"))});
    merge(tree.get_mut(MANAGER).unwrap(), &manager);
    let boot = json!({"Boot": {"BootSourceOverrideEnabled": "Continuous", "BootSourceOverrideTarget": "Cd", "BootOrder": ["Boot0003", "Boot0001"]}});
    merge(tree.get_mut(SYSTEM).unwrap(), &boot);
    let keys = format!("{ACCOUNTS}/1/Keys");
    let certificates = format!("{ACCOUNTS}/1/Certificates");
    let accounts = [
        account(
            1,
            "admin",
            &json!({"Keys": link(&keys), "Certificates": link(&certificates)}),
        ),
        account(2, "evil", &json!({})),
        account(3, "former", &json!({"Enabled": false})),
        account(4, "", &json!({"Enabled": false})),
        account(5, "", &json!({})),
    ];
    let paths: Vec<String> = accounts.iter().map(|(path, _)| path.clone()).collect();
    tree.extend(accounts);
    let key = format!("{keys}/7");
    let certificate = format!("{certificates}/c");
    let medium = format!("{MANAGER}/VirtualMedia/Cd");
    let interface = format!("{MANAGER}/HostInterfaces/1");
    let subscription = |id: &str| format!("{SUBSCRIPTIONS}/{id}");
    let entries = [
        (
            "/redfish/v1/AccountService".to_owned(),
            json!({"Accounts": link(ACCOUNTS), "LDAP": {"ServiceEnabled": true, "ServiceAddresses": ["ldaps://evil.example"]},
                   "ActiveDirectory": {"ServiceEnabled": false}}),
        ),
        (ACCOUNTS.to_owned(), list(&paths)),
        (keys.clone(), list(std::slice::from_ref(&key))),
        (
            key.clone(),
            json!({"@odata.id": key, "Id": "7", "KeyType": "SSH", "KeyString": "ssh-ed25519 SECRET"}),
        ),
        (certificates.clone(), list(std::slice::from_ref(&certificate))),
        (
            certificate.clone(),
            json!({"@odata.id": certificate, "Id": "c", "CertificateType": "PEM", "CertificateString": "SECRET"}),
        ),
        (
            "/redfish/v1/EventService".to_owned(),
            json!({"Subscriptions": link(SUBSCRIPTIONS)}),
        ),
        (
            SUBSCRIPTIONS.to_owned(),
            list(&[subscription("a"), subscription("b"), subscription("c")]),
        ),
        (
            subscription("a"),
            json!({"Id": "a", "Destination": "https://u:SECRET@evil.example/x?t=SECRET", "Protocol": "Redfish"}),
        ),
        (
            subscription("b"),
            json!({"Id": "b", "Destination": "0.0.0.0", "Protocol": "SNMPv1"}),
        ),
        (subscription("c"), json!({"Id": "c", "SubscriptionType": "SSE"})),
        (format!("{MANAGER}/VirtualMedia"), list(std::slice::from_ref(&medium))),
        (
            medium.clone(),
            json!({"@odata.id": medium, "Id": "Cd", "Inserted": true, "Image": "http://evil.example/rescue.iso"}),
        ),
        (
            format!("{MANAGER}/HostInterfaces"),
            list(std::slice::from_ref(&interface)),
        ),
        (
            interface.clone(),
            json!({"@odata.id": interface, "Id": "1", "InterfaceEnabled": true, "AuthenticationModes": ["AuthNone"]}),
        ),
        (
            SESSIONS.to_owned(),
            list(&[format!("{SESSIONS}/1"), format!("{SESSIONS}/x")]),
        ),
        (format!("{SESSIONS}/x"), json!({"Id": "x", "UserName": "evil"})),
    ];
    tree.extend(entries);
    Bmc::start_with(tree, Duration::ZERO, hook).await
}

async fn state(client: &BmcClient) -> BmcState {
    let scope = StateScope {
        own: "admin",
        in_band: true,
        uefi: true,
    };
    client.bmc_state(scope).await.unwrap()
}

fn part(state: &BmcState, part: StatePart) -> &StateListed {
    let found = state.parts.iter().find(|(one, _)| *one == part);
    &found.unwrap().1
}

fn items(state: &BmcState, of: StatePart) -> Vec<StateItem> {
    match part(state, of) {
        StateListed::Whole(items) => items.clone(),
        other => panic!("{of:?}: {other:?}"),
    }
}

fn open(state: &BmcState, of: StatePart) -> Vec<String> {
    let all = items(state, of).into_iter().filter(|item| item.is_open);
    all.map(|item| item.name).collect()
}

#[tokio::test]
async fn each_part_is_read_without_its_secrets() {
    let bmc = bmc_with(|_, _| None).await;
    let client = bmc.connect().await;
    let state = state(&client).await;
    assert_eq!(open(&state, StatePart::Accounts), ["admin", "evil", ""]);
    assert_eq!(open(&state, StatePart::Directories), ["LDAP"]);
    assert_eq!(open(&state, StatePart::Keys), ["7", "c"]);
    assert_eq!(open(&state, StatePart::Subscriptions), ["https://evil.example/x"]);
    assert_eq!(open(&state, StatePart::Media), ["Cd"]);
    assert_eq!(open(&state, StatePart::BootOverride), ["Cd"]);
    assert_eq!(open(&state, StatePart::HostInterfaces), ["1"]);
    assert_eq!(*part(&state, StatePart::Kcs), StateListed::NotOffered);
    // Our own session is not listed.
    assert_eq!(open(&state, StatePart::Sessions), ["x"]);
    assert_eq!(state.boot_order, ["Boot0003", "Boot0001"]);
    assert!(!format!("{state:?}").contains("SECRET"), "{state:?}");
}

#[tokio::test]
async fn an_account_is_removed_by_the_first_method_that_works() {
    // DELETE is refused, and an empty name is accepted without effect: in the end the account is disabled.
    let bmc = bmc_with(|request, _| {
        let is_it = request.path == format!("{ACCOUNTS}/2");
        match request.method.as_str() {
            "DELETE" if is_it => Some(Answer::status(405)),
            "PATCH" if is_it && request.body.get("UserName").is_some() => Some(Answer::status(204)),
            _ => None,
        }
    })
    .await;
    let client = bmc.connect().await;
    let before = state(&client).await;
    let evil = items(&before, StatePart::Accounts)
        .into_iter()
        .find(|item| item.name == "evil");
    client.remove_foreign(&evil.unwrap()).await.unwrap();
    assert_eq!(bmc.bodies("PATCH", &format!("{ACCOUNTS}/2")).len(), 2);
    assert_eq!(open(&state(&client).await, StatePart::Accounts), ["admin", ""]);
}

#[tokio::test]
async fn each_other_part_is_removed_by_its_own_method() {
    let bmc = bmc_with(|request, state| {
        (request.method == "DELETE").then(|| {
            let path = request.path.clone();
            state.tree.remove(&path);
            for body in state.tree.values_mut() {
                if let Some(members) = body["Members"].as_array_mut() {
                    members.retain(|member| member["@odata.id"] != path.as_str());
                }
            }
            Answer::status(204)
        })
    })
    .await;
    // The standard tree has no KCS; this one has HPE's switch.
    bmc.set("/redfish/v1", "/Vendor", json!("HPE"));
    let protocol = json!({"Id": "NetworkProtocol", "Oem": {"Hpe": {"KcsEnabled": true}}});
    let path = format!("{MANAGER}/NetworkProtocol");
    bmc.state.lock().unwrap().tree.insert(path, protocol);
    let client = bmc.connect().await;
    let before = state(&client).await;
    assert_eq!(open(&before, StatePart::Kcs), ["KcsEnabled"]);
    for (of, _) in &before.parts {
        if let StateListed::Whole(all) = part(&before, *of) {
            for item in all.iter().filter(|item| item.is_open && item.name != "admin") {
                client
                    .remove_foreign(item)
                    .await
                    .unwrap_or_else(|failure| panic!("{item:?}: {failure}"));
            }
        }
    }
    let after = state(&client).await;
    assert_eq!(open(&after, StatePart::Accounts), ["admin"]);
    for (of, listed) in &after.parts {
        let is_empty = matches!(listed, StateListed::Whole(items) if items.iter().all(|item| !item.is_open));
        let is_fine = is_empty || *of == StatePart::Accounts;
        assert!(is_fine, "{of:?}: {listed:?}");
    }
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_list_with_a_gap_is_unread_and_an_absent_part_is_not_offered() {
    let bmc = bmc_with(|request, state| {
        if request.is("GET", &format!("{ACCOUNTS}/2")) {
            return Some(Answer::status(500));
        }
        if request.is("GET", SUBSCRIPTIONS) {
            return Some(Answer::json(200, &json!({"Members": [], "Members@odata.count": 3})));
        }
        if request.is("GET", &format!("{MANAGER}/VirtualMedia")) {
            return Some(Answer::status(404));
        }
        if request.is("GET", &format!("{MANAGER}/HostInterfaces/1")) {
            state.tree.remove(&request.path);
        }
        None
    })
    .await;
    let state = state(&bmc.connect().await).await;
    for of in [
        StatePart::Accounts,
        StatePart::Keys,
        StatePart::Subscriptions,
        StatePart::HostInterfaces,
    ] {
        assert!(
            matches!(part(&state, of), StateListed::Unread(_)),
            "{of:?}: {:?}",
            part(&state, of)
        );
    }
    assert_eq!(*part(&state, StatePart::Media), StateListed::NotOffered);
}

#[tokio::test]
async fn a_demand_for_a_new_password_is_not_a_bmc_without_directories() {
    const PROVIDERS: &str = "/redfish/v1/AccountService/ExternalAccountProviders";
    let with_refusal = |id: &'static str| {
        bmc_with(move |request, state| {
            let service = state.tree.get_mut("/redfish/v1/AccountService").unwrap();
            service["AdditionalExternalAccountProviders"] = link(PROVIDERS);
            request.is("GET", PROVIDERS).then(|| Answer::error(403, id, "no"))
        })
    };
    let bmc = with_refusal("Base.1.8.PasswordChangeRequired").await;
    let scope = StateScope {
        own: "admin",
        in_band: true,
        uefi: true,
    };
    let failure = bmc.connect().await.bmc_state(scope).await.unwrap_err();
    assert!(
        matches!(failure, RedfishError::PasswordChangeRequired { .. }),
        "{failure}"
    );
    let bmc = with_refusal("Base.1.8.InsufficientPrivilege").await;
    let state = state(&bmc.connect().await).await;
    assert_eq!(open(&state, StatePart::Directories), ["LDAP"], "no licence for more");
}

#[tokio::test]
async fn a_demand_for_a_new_password_stops_the_fallbacks_of_a_removal() {
    let bmc = bmc_with(|request, _| {
        (request.method == "DELETE" && request.path == format!("{ACCOUNTS}/2"))
            .then(|| Answer::error(403, "Base.1.8.PasswordChangeRequired", "no"))
    })
    .await;
    let client = bmc.connect().await;
    let accounts = items(&state(&client).await, StatePart::Accounts);
    let evil = accounts.iter().find(|item| item.name == "evil").unwrap();
    let failure = client.remove_foreign(evil).await.unwrap_err();
    assert!(
        matches!(failure, RedfishError::PasswordChangeRequired { .. }),
        "{failure}"
    );
    assert!(bmc.bodies("PATCH", &format!("{ACCOUNTS}/2")).is_empty());
}

#[tokio::test]
async fn an_expanded_list_costs_one_request_and_a_failed_expansion_falls_back() {
    for works in [true, false] {
        let bmc = bmc_with(move |request, state| {
            let root = state.tree.get_mut("/redfish/v1").unwrap();
            root["ProtocolFeaturesSupported"] = json!({"ExpandQuery": {"NoLinks": true, "Levels": true}});
            let path = request.path.strip_suffix("?$expand=.($levels=1)")?;
            if !works {
                return Some(Answer::status(501));
            }
            let members = state.tree[path]["Members"].as_array().cloned().unwrap_or_default();
            let whole = members.iter().map(|one| {
                let path = one["@odata.id"].as_str().unwrap();
                let mut body = state.tree.get(path).cloned().unwrap_or_else(|| json!({"Id": "1"}));
                body["@odata.id"] = json!(path);
                body
            });
            Some(Answer::json(200, &json!({"Members": whole.collect::<Vec<_>>()})))
        })
        .await;
        let client = bmc.connect().await;
        let state = state(&client).await;
        assert_eq!(open(&state, StatePart::Accounts), ["admin", "evil", ""]);
        assert_eq!(open(&state, StatePart::Sessions), ["x"]);
        let one_by_one = bmc
            .server
            .requests()
            .iter()
            .filter(|request| request.is("GET", &format!("{ACCOUNTS}/2")))
            .count();
        assert_eq!(one_by_one, usize::from(!works));
    }
}
