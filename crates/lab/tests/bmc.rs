//! The Redfish service of a machine, as a client sees it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{CD, LONG, RESET, SESSIONS, SYSTEM, assert_error, client_of, one};
use rackwright_lab::{self as lab, Lab, LabConfig, PowerState};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn only_the_root_is_open_to_everybody() {
    lab::run_test("only_the_root_is_open_to_everybody", async |namespace| {
        let (_lab, machine, client) = one(&namespace, LabConfig::default()).await;
        let root = client.anonymous(Method::GET, "/redfish/v1/").send().await.unwrap();
        assert_eq!(root.status(), StatusCode::OK);
        assert_eq!(root.headers()["odata-version"], "4.0");
        assert_eq!(root.headers()["allow"], "GET, HEAD");
        assert!(
            root.headers()["link"]
                .to_str()
                .unwrap()
                .contains("ServiceRoot.v1_15_0.json>; rel=describedby")
        );
        let query = client
            .anonymous(Method::GET, "/redfish/v1/?$select=Systems")
            .send()
            .await
            .unwrap();
        assert_error(query, StatusCode::NOT_IMPLEMENTED, "QueryNotSupported").await;
        // Only resources that the client may read are expanded, and here it may read none.
        let expanded = client
            .anonymous(Method::GET, "/redfish/v1/?$expand=.")
            .send()
            .await
            .unwrap();
        let expanded: Value = expanded.json().await.unwrap();
        assert_eq!(expanded["Systems"], json!({"@odata.id": "/redfish/v1/Systems"}));

        for request in [
            client.anonymous(Method::GET, SYSTEM),
            client.anonymous(Method::GET, SYSTEM).header("X-Auth-Token", "guess"),
            client.anonymous(Method::GET, SYSTEM).basic_auth("admin", Some("guess")),
            client
                .anonymous(Method::GET, SYSTEM)
                .basic_auth("other", Some(machine.bmc().password())),
            client.anonymous(Method::GET, "/redfish/v1/NoSuchThing"),
            client.anonymous(Method::POST, RESET).json(&json!({"ResetType": "On"})),
        ] {
            let response = request.send().await.unwrap();
            assert!(response.headers().contains_key("www-authenticate"));
            assert_error(response, StatusCode::UNAUTHORIZED, "NoValidSession").await;
        }
        assert_eq!(machine.view().power, PowerState::Off);
    });
}

#[test]
fn a_collection_includes_its_members_on_request() {
    lab::run_test("a_collection_includes_its_members_on_request", async |namespace| {
        let (_lab, _, client) = one(&namespace, LabConfig::default()).await;
        let get = async |path: &str| client.get(path).await;
        let alone = get("/redfish/v1/AccountService/Accounts").await;
        for query in ["$expand=.", "$expand=.($levels=1)", "%24expand=.%28%24levels%3D1%29"] {
            let whole = get(&format!("/redfish/v1/AccountService/Accounts?{query}")).await;
            assert_eq!(whole["Members@odata.count"], alone["Members@odata.count"]);
            let members = whole["Members"].as_array().unwrap();
            assert!(!members.is_empty());
            for member in members {
                let mut member = member.clone();
                let path = member["@odata.id"].as_str().unwrap().to_owned();
                // The ETag of a single resource is in the header.
                assert!(
                    member
                        .as_object_mut()
                        .unwrap()
                        .remove("@odata.etag")
                        .unwrap()
                        .is_string()
                );
                assert_eq!(member, get(&path).await);
            }
        }
        let system = get(&format!("{SYSTEM}?$expand=.")).await;
        let mut interfaces = system["EthernetInterfaces"].clone();
        interfaces.as_object_mut().unwrap().remove("@odata.etag");
        assert_eq!(interfaces, get("/redfish/v1/Systems/1/EthernetInterfaces").await);
        assert_eq!(system["Links"], get(SYSTEM).await["Links"]);
        for query in ["$expand=*", "$expand=~", "$expand=.($levels=2)", "$expand=.&$select=Id"] {
            let refused = client
                .request(Method::GET, &format!("{SYSTEM}?{query}"))
                .send()
                .await
                .unwrap();
            assert_error(refused, StatusCode::NOT_IMPLEMENTED, "QueryNotSupported").await;
        }
    });
}

#[test]
fn a_session_works_until_it_is_deleted() {
    lab::run_test("a_session_works_until_it_is_deleted", async |namespace| {
        let (_lab, _, client) = one(&namespace, LabConfig::default()).await;
        let wrong = client
            .anonymous(Method::POST, SESSIONS)
            .json(&json!({"UserName": "admin", "Password": "no"}));
        assert_error(wrong.send().await.unwrap(), StatusCode::UNAUTHORIZED, "NoValidSession").await;

        let alias = format!("{SESSIONS}/Members");
        let opened = client
            .anonymous(Method::POST, &alias)
            .json(&client.login())
            .send()
            .await
            .unwrap();
        assert_eq!(opened.status(), StatusCode::CREATED);
        let location = opened.headers()["location"].to_str().unwrap().to_owned();
        client.request(Method::DELETE, &location).send().await.unwrap();

        let opened = client
            .anonymous(Method::POST, SESSIONS)
            .json(&client.login())
            .send()
            .await
            .unwrap();
        assert_eq!(opened.status(), StatusCode::CREATED);
        let token = opened.headers()["x-auth-token"].clone();
        let location = opened.headers()["location"].to_str().unwrap().to_owned();
        let with_token = |method, path: &str| {
            client
                .anonymous(method, path)
                .header("X-Auth-Token", token.clone())
                .send()
        };

        assert_eq!(with_token(Method::GET, SYSTEM).await.unwrap().status(), StatusCode::OK);
        let listed: Value = with_token(Method::GET, SESSIONS).await.unwrap().json().await.unwrap();
        assert_eq!(listed["Members"], json!([{"@odata.id": location}]));
        assert_eq!(
            with_token(Method::DELETE, &location).await.unwrap().status(),
            StatusCode::NO_CONTENT
        );
        assert_eq!(
            with_token(Method::GET, SYSTEM).await.unwrap().status(),
            StatusCode::UNAUTHORIZED
        );
    });
}

#[test]
fn sessions_are_few() {
    lab::run_test("sessions_are_few", async |namespace| {
        let config = LabConfig {
            bmc_sessions: 2,
            ..LabConfig::default()
        };
        let (_lab, _, client) = one(&namespace, config).await;
        let open = || client.anonymous(Method::POST, SESSIONS).json(&client.login()).send();
        assert_eq!(open().await.unwrap().status(), StatusCode::CREATED);
        assert_eq!(open().await.unwrap().status(), StatusCode::CREATED);
        let full = open().await.unwrap();
        assert!(full.headers().contains_key("retry-after"));
        assert_error(full, StatusCode::SERVICE_UNAVAILABLE, "SessionLimitExceeded").await;
        // Basic authentication still works, and clients fall back to it.
        client.get(SYSTEM).await;
        let first = client.get(SESSIONS).await["Members"][0]["@odata.id"]
            .as_str()
            .unwrap()
            .to_owned();
        client.request(Method::DELETE, &first).send().await.unwrap();
        assert_eq!(open().await.unwrap().status(), StatusCode::CREATED);
    });
}

#[test]
fn every_link_leads_somewhere() {
    lab::run_test("every_link_leads_somewhere", async |namespace| {
        let config = LabConfig {
            machines: 2,
            disk_kind: lab::DiskKind::Both,
            ..LabConfig::default()
        };
        let lab = Lab::start(&namespace, config).await.unwrap();
        for machine in lab.machines() {
            let client = client_of(machine);
            let known = client.crawl().await;
            assert!(known.len() > 20, "{known:?}");
            assert_eq!(client.get(SYSTEM).await["UUID"], machine.uuid());
            let nic = client.get("/redfish/v1/Systems/1/EthernetInterfaces/NIC0").await;
            assert_eq!(nic["MACAddress"], machine.mac());
            let drive = client.get("/redfish/v1/Systems/1/Storage/1/Drives/1").await;
            assert_eq!(
                (&drive["Protocol"], &drive["CapacityBytes"]),
                (&json!("NVMe"), &json!(4_u64 << 30))
            );
        }
    });
}

#[test]
fn a_stale_etag_changes_nothing() {
    lab::run_test("a_stale_etag_changes_nothing", async |namespace| {
        let (_lab, _, client) = one(&namespace, LabConfig::default()).await;
        let read = client.request(Method::GET, SYSTEM).send().await.unwrap();
        let etag = read.headers()["etag"].clone();
        let boot =
            |target: &str| json!({"Boot": {"BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": "Once"}});
        let patch = |target: &str| {
            client
                .request(Method::PATCH, SYSTEM)
                .header("If-Match", etag.clone())
                .json(&boot(target))
        };
        assert_eq!(patch("Pxe").send().await.unwrap().status(), StatusCode::NO_CONTENT);
        assert_error(
            patch("Cd").send().await.unwrap(),
            StatusCode::PRECONDITION_FAILED,
            "PreconditionFailed",
        )
        .await;
        assert_eq!(client.boot_now().await, ("Pxe".into(), "Once".into()));
        let any = client
            .request(Method::PATCH, SYSTEM)
            .header("If-Match", "*")
            .json(&boot("Hdd"))
            .send()
            .await
            .unwrap();
        assert_eq!(any.status(), StatusCode::NO_CONTENT);
    });
}

#[test]
fn bad_requests_are_refused_by_name_and_change_nothing() {
    lab::run_test(
        "bad_requests_are_refused_by_name_and_change_nothing",
        async |namespace| {
            let config = LabConfig {
                firmware: lab::Firmware::Bios,
                ..LabConfig::default()
            };
            let (_lab, machine, client) = one(&namespace, config).await;
            let before = machine.view();
            let bad = StatusCode::BAD_REQUEST;
            for (body, id) in [
                (
                    json!({"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Twice"}}),
                    "PropertyValueNotInList",
                ),
                (
                    json!({"Boot": {"BootSourceOverrideTarget": "UefiHttp"}}),
                    "PropertyValueNotInList",
                ),
                (
                    json!({"Boot": {"BootSourceOverrideTarget": 7}}),
                    "PropertyValueTypeError",
                ),
                (json!({"Boot": {"Colour": "red"}}), "PropertyUnknown"),
                (json!({"Boot": "Pxe"}), "PropertyValueTypeError"),
                (json!({"SerialNumber": "X"}), "PropertyNotWritable"),
                (json!({"Colour": "red"}), "PropertyUnknown"),
                (json!([]), "MalformedJSON"),
            ] {
                assert_error(client.patch(SYSTEM, body).await, bad, id).await;
            }
            assert_error(client.post(RESET, json!({})).await, bad, "ActionParameterMissing").await;
            assert_error(
                client.post(RESET, json!({"ResetType": "Kick"})).await,
                bad,
                "ActionParameterValueNotInList",
            )
            .await;
            let broken = client.request(Method::POST, RESET).body("{").send().await.unwrap();
            assert_error(broken, bad, "MalformedJSON").await;
            let large = client
                .request(Method::POST, RESET)
                .body(vec![b' '; 1 << 20])
                .send()
                .await
                .unwrap();
            assert_error(large, StatusCode::PAYLOAD_TOO_LARGE, "GeneralError").await;
            let nowhere = client
                .request(Method::GET, "/redfish/v1/Systems/2")
                .send()
                .await
                .unwrap();
            assert_error(nowhere, StatusCode::NOT_FOUND, "ResourceMissingAtURI").await;
            let delete = client.request(Method::DELETE, SYSTEM).send().await.unwrap();
            assert!(delete.headers()["allow"].to_str().unwrap().contains("PATCH"));
            assert_error(delete, StatusCode::METHOD_NOT_ALLOWED, "OperationNotAllowed").await;
            assert_eq!(machine.view(), before);
        },
    );
}

#[test]
fn an_unreachable_medium_is_refused() {
    lab::run_test("an_unreachable_medium_is_refused", async |namespace| {
        let config = LabConfig {
            media_bytes: 4096,
            ..LabConfig::default()
        };
        let (_lab, machine, client) = one(&namespace, config).await;
        let insert = format!("{CD}/Actions/VirtualMedia.InsertMedia");
        let large = common::serve(vec![1; 4097]).await;
        let bad = StatusCode::BAD_REQUEST;
        for url in [
            large.as_str(),
            "http://10.77.0.1:9/none.iso",
            "ftp://10.77.0.1/x.iso",
            "nonsense",
        ] {
            let response = client.post(&insert, json!({"Image": url})).await;
            assert_error(response, bad, "CouldNotEstablishConnection").await;
        }
        let response = client.post(&insert, json!({"Image": large, "Inserted": false})).await;
        assert_error(response, bad, "ActionParameterValueNotInList").await;
        assert_eq!(client.get(CD).await["Inserted"], false);
        let left: Vec<_> = std::fs::read_dir(machine.console_path().parent().unwrap())
            .unwrap()
            .flatten()
            .collect();
        assert!(
            !left
                .iter()
                .any(|entry| entry.file_name().to_string_lossy().contains("media")),
            "{left:?}"
        );
    });
}

#[test]
fn a_bmc_can_be_dead_silent_or_slow() {
    lab::run_test("a_bmc_can_be_dead_silent_or_slow", async |namespace| {
        let (_lab, machine, client) = one(&namespace, LabConfig::default()).await;
        client.get(SYSTEM).await;
        let with_limit = |limit: u64| {
            client
                .request(Method::GET, SYSTEM)
                .timeout(Duration::from_millis(limit))
                .send()
        };

        machine.bmc_dead(true).await.unwrap();
        // The old connection breaks or a new one is refused: either way there is no answer and no wait.
        let error = with_limit(5000).await.unwrap_err();
        assert!(error.is_request() && !error.is_timeout(), "{error:?}");
        machine.bmc_dead(false).await.unwrap();
        client.get(SYSTEM).await;

        machine.bmc_silent(true);
        assert!(with_limit(300).await.unwrap_err().is_timeout());
        machine.bmc_silent(false);
        client.get(SYSTEM).await;

        machine.bmc_slow(Duration::from_millis(700));
        assert!(with_limit(300).await.unwrap_err().is_timeout());
        let started = std::time::Instant::now();
        client.get(SYSTEM).await;
        assert!(started.elapsed() >= Duration::from_millis(700));
    });
}

#[test]
fn power_follows_the_requests_and_inapplicable_ones_are_refused() {
    lab::run_test(
        "power_follows_the_requests_and_inapplicable_ones_are_refused",
        async |namespace| {
            let config = LabConfig {
                firmware: lab::Firmware::Bios,
                ..LabConfig::default()
            };
            let (_lab, machine, client) = one(&namespace, config).await;
            let conflict = StatusCode::CONFLICT;
            for kind in ["ForceOff", "GracefulShutdown", "ForceRestart", "PowerCycle"] {
                let response = client.post(RESET, json!({"ResetType": kind})).await;
                assert_error(response, conflict, "ActionParameterValueConflict").await;
            }
            client.reset("On").await;
            machine.wait_power(PowerState::On, LONG).await.unwrap();
            assert_eq!(client.get(SYSTEM).await["PowerState"], "On");
            let again = client.post(RESET, json!({"ResetType": "On"})).await;
            assert_error(again, conflict, "ActionParameterValueConflict").await;

            // A reset keeps the power on throughout; a power cycle does not.
            let mut states = machine.watch();
            for (kind, off, boots) in [("ForceRestart", false, 2), ("PowerCycle", true, 3)] {
                client.reset(kind).await;
                let mut was_off = false;
                let done = states.wait_for(|view| {
                    was_off |= view.power != PowerState::On;
                    view.boots == boots && view.power == PowerState::On
                });
                tokio::time::timeout(LONG, done).await.unwrap().unwrap();
                assert!(off || !was_off, "{kind}");
            }

            client.reset("ForceOff").await;
            machine.wait_power(PowerState::Off, LONG).await.unwrap();
            assert_eq!(client.get(SYSTEM).await["PowerState"], "Off");
            assert!(machine.cpu_seconds() > 0.0);
        },
    );
}
