//! Boot options and Secure Boot: read, and corrected by the methods that BMCs offer.

use std::time::Duration;

use rackwright_redfish::{BmcClient, RedfishError, Shown, StateScope, UefiState};
use serde_json::{Value, json};

use crate::bmc::{Bmc, SYSTEM, State, merge, standard_tree};
use crate::server::{Answer, Request};

const OPTIONS: &str = "/redfish/v1/Systems/1/BootOptions";
const SECURE: &str = "/redfish/v1/Systems/1/SecureBoot";
const DATABASES: &str = "/redfish/v1/Systems/1/SecureBoot/SecureBootDatabases";
const SETTINGS: &str = "/redfish/v1/Systems/1/Settings";
const RESET: &str = "/redfish/v1/Systems/1/SecureBoot/SecureBootDatabases/db/Actions/SecureBootDatabase.ResetKeys";

fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

fn list(paths: &[String]) -> Value {
    json!({"Members": paths.iter().map(|path| link(path)).collect::<Vec<_>>(), "Members@odata.count": paths.len()})
}

/// A BMC with a machine that has two boot options, keys, and a list of revoked programs that is too long to read.
async fn bmc_with(hook: impl Fn(&Request, &mut State) -> Option<Answer> + Send + Sync + 'static) -> Bmc {
    let mut tree = standard_tree();
    let boot = json!({"BootOrder": ["Boot0005", "Boot0000"], "BootOptions": link(OPTIONS)});
    merge(
        tree.get_mut(SYSTEM).unwrap(),
        &json!({"Boot": boot, "SecureBoot": link(SECURE)}),
    );
    let option = |id: &str, name: &str| {
        let path = format!("{OPTIONS}/{id}");
        let body = json!({"@odata.id": path, "Id": id, "BootOptionReference": format!("Boot{id}"), "DisplayName": name,
                          "UefiDevicePath": format!("Pci/{name}")});
        (path, body)
    };
    let options = [option("0000", "pxe"), option("0005", "evil")];
    tree.insert(OPTIONS.into(), list(&options.clone().map(|(path, _)| path)));
    tree.extend(options);
    let mode = json!({"Id": "SecureBoot", "SecureBootEnable": false, "SecureBootMode": "UserMode", "SecureBootDatabases": link(DATABASES)});
    tree.insert(SECURE.into(), mode);
    let database = |id: &str| format!("{DATABASES}/{id}");
    tree.insert(DATABASES.into(), list(&["PK", "db", "dbx", "dbDefault"].map(database)));
    for id in ["PK", "db", "dbx"] {
        let path = database(id);
        let body = json!({"@odata.id": path, "Id": id, "DatabaseId": id, "Certificates": link(&format!("{path}/Certificates")),
                          "Signatures": link(&format!("{path}/Signatures")),
                          "Actions": {"#SecureBootDatabase.ResetKeys": {"target": format!("{path}/Actions/SecureBootDatabase.ResetKeys")}}});
        tree.insert(path.clone(), body);
        let certificate = format!("{path}/Certificates/1");
        let is_empty = id == "dbx";
        let certificates = if is_empty {
            Vec::new()
        } else {
            vec![certificate.clone()]
        };
        tree.insert(format!("{path}/Certificates"), list(&certificates));
        // A certificate that is not itself shown, as on a recorded BMC.
        let body = json!({"@odata.id": certificate, "Id": "1", "CertificateString": null, "ValidNotAfter": "2035",
                          "Subject": {"CommonName": format!("CA of {id}"), "Organization": "Acme"}});
        tree.insert(certificate, body);
    }
    let hash = format!("{DATABASES}/db/Signatures/1");
    tree.insert(format!("{DATABASES}/db/Signatures"), list(std::slice::from_ref(&hash)));
    let signature =
        json!({"@odata.id": hash, "Id": "1", "SignatureType": "EFI_CERT_SHA256_GUID", "SignatureString": "ABCD"});
    tree.insert(hash, signature);
    let revoked: Vec<String> = (0..267).map(|n| format!("{DATABASES}/dbx/Signatures/{n}")).collect();
    tree.insert(format!("{DATABASES}/dbx/Signatures"), list(&revoked));
    Bmc::start_with(tree, Duration::ZERO, hook).await
}

/// Gives the system a settings object at `SETTINGS`.
fn add_settings_object(state: &mut State) {
    let system = state.tree.get_mut(SYSTEM).unwrap();
    system["@Redfish.Settings"] = json!({"SettingsObject": link(SETTINGS)});
    let settings = json!({"@odata.id": SETTINGS, "Id": "SD"});
    state.tree.insert(SETTINGS.to_owned(), settings);
}

async fn uefi(client: &BmcClient) -> UefiState {
    let scope = StateScope {
        own: "admin",
        in_band: false,
        uefi: true,
    };
    client.bmc_state(scope).await.unwrap().uefi.unwrap()
}

fn known<T: Clone + std::fmt::Debug>(shown: &Shown<T>) -> T {
    match shown {
        Shown::Known(it) => it.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn options_and_keys_are_read_and_the_revoked_programs_only_counted() {
    let bmc = bmc_with(|_, _| None).await;
    let seen = uefi(&bmc.connect().await).await;
    let options: Vec<String> = known(&seen.options)
        .into_iter()
        .map(|one| format!("{} {} {}", one.reference, one.name, one.device))
        .collect();
    assert_eq!(options, ["Boot0000 pxe Pci/pxe", "Boot0005 evil Pci/evil"]);
    assert_eq!(known(&seen.order), ["Boot0005", "Boot0000"]);
    let secure = known(&seen.secure_boot);
    assert_eq!(
        (secure.enabled, secure.mode.as_deref()),
        (Some(false), Some("UserMode"))
    );
    let keys = known(&seen.keys);
    let entries: Vec<String> = keys
        .entries
        .iter()
        .map(|one| format!("{} {} {}", one.database, one.name, one.identity))
        .collect();
    assert_eq!(
        entries,
        [
            "PK CA of PK ValidNotAfter 2035, Subject.CommonName CA of PK, Subject.Organization Acme",
            "db CA of db ValidNotAfter 2035, Subject.CommonName CA of db, Subject.Organization Acme",
            "db EFI_CERT_SHA256_GUID abcd",
        ]
    );
    assert_eq!(keys.revoked, Some(267));
    let requests = bmc.server.requests();
    let of = |what: &str| requests.iter().filter(|request| request.path.contains(what)).count();
    assert_eq!((of("dbx/"), of("dbDefault"), of("PK/Signatures")), (2, 0, 0));
    // The options and their list; Secure Boot, the list of databases, three databases, their lists and entries.
    assert_eq!((of("/BootOptions"), of("/SecureBoot")), (3, 13));
}

#[tokio::test]
async fn a_list_with_a_gap_is_unread_and_absent_parts_are_not_shown() {
    for (path, status, keys) in [
        (format!("{DATABASES}/db"), 500, true),
        (format!("{DATABASES}/dbx/Signatures"), 503, true),
        (SECURE.to_owned(), 501, false),
        (DATABASES.to_owned(), 404, false),
    ] {
        let failing = path.clone();
        let bmc = bmc_with(move |request, _| request.is("GET", &failing).then(|| Answer::status(status))).await;
        let seen = uefi(&bmc.connect().await).await;
        assert_eq!(matches!(seen.keys, Shown::Unread(_)), keys, "{path}: {:?}", seen.keys);
        assert_eq!(seen.keys == Shown::NotOffered, !keys, "{path}: {:?}", seen.keys);
    }
}

#[tokio::test]
async fn the_order_is_written_to_the_settings_where_the_system_refuses_it() {
    let bmc = bmc_with(|request, state| {
        add_settings_object(state);
        request.is("PATCH", SYSTEM).then(|| Answer::status(405))
    })
    .await;
    let client = bmc.connect().await;
    client.put_boot_order(&["Boot0000".into()]).await.unwrap();
    let written = bmc.bodies("PATCH", SETTINGS);
    assert_eq!(written, [json!({"Boot": {"BootOrder": ["Boot0000", "Boot0005"]}})]);
    // An order that already holds is not written.
    client
        .put_boot_order(&["Boot0005".into(), "Boot0000".into()])
        .await
        .unwrap();
    assert_eq!(bmc.bodies("PATCH", SETTINGS).len(), 1);
}

#[tokio::test]
async fn a_key_is_removed_alone_or_with_its_database_and_a_replaced_one_stays() {
    for (deletes, resets) in [(true, true), (false, true), (false, false)] {
        let bmc = bmc_with(move |request, _| match request.method.as_str() {
            "DELETE" => Some(Answer::status(if deletes { 204 } else { 405 })),
            "POST" if request.path == RESET => Some(Answer::status(if resets { 204 } else { 403 })),
            _ => None,
        })
        .await;
        let client = bmc.connect().await;
        let keys = known(&uefi(&client).await.keys);
        let evil = keys.entries.iter().find(|key| key.identity == "abcd").unwrap();
        let removed = client.remove_secure_boot_key(evil, &format!("{DATABASES}/db")).await;
        match (deletes, resets) {
            (false, false) => assert_eq!(removed.unwrap_err().status(), Some(405)),
            _ => removed.unwrap(),
        }
        assert_eq!(bmc.server.count("POST", RESET), usize::from(!deletes));
        let mut moved = evil.clone();
        moved.identity = "ffff".into();
        let before = bmc.server.count("DELETE", &evil.path);
        client
            .remove_secure_boot_key(&moved, &format!("{DATABASES}/db"))
            .await
            .unwrap();
        assert_eq!(bmc.server.count("DELETE", &evil.path), before);
    }
}

#[tokio::test]
async fn a_demand_for_a_new_password_stops_the_fallbacks_of_boot_order_and_keys() {
    let bmc = bmc_with(|request, state| {
        add_settings_object(state);
        let is_refused = request.is("PATCH", SYSTEM) || request.method == "DELETE";
        is_refused.then(|| Answer::error(403, "Base.1.8.PasswordChangeRequired", "no"))
    })
    .await;
    let client = bmc.connect().await;
    let keys = known(&uefi(&client).await.keys);
    let evil = keys.entries.iter().find(|key| key.identity == "abcd").unwrap();
    for failure in [
        client.put_boot_order(&["Boot0000".into()]).await.unwrap_err(),
        client
            .remove_secure_boot_key(evil, &format!("{DATABASES}/db"))
            .await
            .unwrap_err(),
    ] {
        assert!(
            matches!(failure, RedfishError::PasswordChangeRequired { .. }),
            "{failure}"
        );
    }
    assert!(bmc.bodies("PATCH", SETTINGS).is_empty());
    assert_eq!(bmc.server.count("POST", RESET), 0);
}
