//! BIOS settings and Secure Boot of BMCs that behave like recorded and documented ones.

use std::collections::BTreeMap;

use rackwright_redfish::quirks::QuirkSet;
use rackwright_redfish::{BmcClient, KeysReset, RedfishError, pem_fingerprint};
use serde_json::{Value, json};

use crate::bmc::{Bmc, SYSTEM, State, standard_tree};
use crate::server::{Answer, Request};

const BIOS: &str = "/redfish/v1/Systems/1/Bios";
const SETTINGS: &str = "/redfish/v1/Systems/1/Bios/Settings";
const SECURE: &str = "/redfish/v1/Systems/1/SecureBoot";
const DB: &str = "/redfish/v1/Systems/1/SecureBoot/SecureBootDatabases/db";

fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

/// `settings`: the settings object's body; none: there is no such object and no link to one.
fn tree(settings: Option<Value>, apply_times: &[&str]) -> BTreeMap<String, Value> {
    let mut tree = standard_tree();
    tree.get_mut(SYSTEM).unwrap()["Bios"] = link(BIOS);
    tree.get_mut("/redfish/v1").unwrap()["Registries"] = link("/redfish/v1/Registries");
    let mut bios = json!({
        "@odata.id": BIOS, "AttributeRegistry": "BiosAttributeRegistry.v1_0_3",
        "Attributes": {"Mode": "Slow", "Count": 1, "Quiet": true, "Board": "A1"},
        "Actions": {"#Bios.ResetBios": {"target": format!("{BIOS}/Actions/Bios.ResetBios")}}
    });
    if let Some(settings) = settings {
        bios["@Redfish.Settings"] = json!({"SettingsObject": link(SETTINGS), "SupportedApplyTimes": apply_times});
        tree.insert(SETTINGS.into(), settings);
    }
    tree.insert(BIOS.into(), bios);
    let file = "/redfish/v1/Registries/BiosAttributeRegistry.v1_0_0";
    let members = [link("/redfish/v1/Registries/Base.1.8"), link(file)];
    tree.insert("/redfish/v1/Registries".into(), json!({"Members": members}));
    // Outside the service's own path, as on one recorded BMC.
    let location = json!([{"Language": "ja", "Uri": "/nowhere"}, {"Language": "en", "Uri": "/registries/bios.json"}]);
    tree.insert(file.into(), json!({"Location": location}));
    tree.insert(
        "/registries/bios.json".into(),
        json!({"RegistryEntries": {"Attributes": [
            {"AttributeName": "Mode", "Type": "Enumeration", "Value": [{"ValueName": "Slow"}, {"ValueName": "Fast"}]},
            {"AttributeName": "Count", "Type": "Integer", "LowerBound": 1, "UpperBound": 4},
            {"AttributeName": "Quiet", "Type": "Boolean"},
            {"AttributeName": "Board", "Type": "String", "ReadOnly": true}
        ]}}),
    );
    tree
}

async fn bmc_with(
    tree: BTreeMap<String, Value>,
    hook: impl Fn(&Request, &mut State) -> Option<Answer> + Send + Sync + 'static,
) -> (Bmc, BmcClient) {
    let bmc = Bmc::start_with(tree, std::time::Duration::ZERO, hook).await;
    let client = bmc.connect().await;
    (bmc, client)
}

fn attributes(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[tokio::test]
async fn the_difference_is_written_once_and_read_back_as_pending() {
    // No pending value: there are no `Attributes` at all.
    let (bmc, client) = bmc_with(tree(Some(json!({"@odata.id": SETTINGS})), &["OnReset"]), |_, _| None).await;
    let state = client.bios().await.unwrap().unwrap();
    assert!(state.pending.is_empty() && state.can_reset && !state.can_change_password);
    let change = client
        .set_bios(
            &state,
            &attributes(&[("Mode", "Fast"), ("Count", "4"), ("Quiet", "true")]),
        )
        .await
        .unwrap();
    assert_eq!(change.written.len(), 2);
    assert_eq!(
        bmc.bodies("PATCH", SETTINGS),
        [json!({"Attributes": {"Mode": "Fast", "Count": 4}, "@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}})]
    );
    let state = client.bios().await.unwrap().unwrap();
    assert_eq!(state.pending.keys().collect::<Vec<_>>(), ["Count", "Mode"]);
    // Pending values are not sent again.
    let again = client.set_bios(&state, &attributes(&[("Mode", "Fast")])).await.unwrap();
    assert!(again.written.is_empty());
    assert_eq!(bmc.bodies("PATCH", SETTINGS).len(), 1);
    client.reset_bios().await.unwrap_err();
    assert_eq!(
        bmc.bodies("POST", &format!("{BIOS}/Actions/Bios.ResetBios")),
        [json!({})],
        "an empty object"
    );
    client.close().await.unwrap();
}

#[tokio::test]
async fn an_invalid_request_lists_every_fault_and_writes_nothing() {
    let (bmc, client) = bmc_with(tree(Some(json!({})), &[]), |_, _| None).await;
    let state = client.bios().await.unwrap().unwrap();
    let wanted = attributes(&[
        ("Mode", "Ludicrous"),
        ("Count", "5"),
        ("Board", "B2"),
        ("Colour", "red"),
        ("Quiet", "false"),
    ]);
    let failure = client.set_bios(&state, &wanted).await.unwrap_err();
    let RedfishError::UnfitSettings { faults, .. } = &failure else {
        panic!("{failure}")
    };
    assert_eq!(faults.len(), 4, "{faults:?}");
    let text = failure.to_string();
    for words in [
        "takes one of Slow, Fast",
        "from 1 to 4",
        "its value is \"A1\"",
        "no such attribute",
        "no setting was written",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(bmc.bodies("PATCH", SETTINGS), Vec::<Value>::new());
}

#[tokio::test]
async fn a_complete_settings_object_has_its_differences_pending() {
    let all = json!({"Attributes": {"Mode": "Fast", "Count": 1, "Quiet": true, "Board": "A1"}});
    let (_bmc, client) = bmc_with(tree(Some(all), &[]), |_, _| None).await;
    let state = client.bios().await.unwrap().unwrap();
    assert_eq!(state.pending.keys().collect::<Vec<_>>(), ["Mode"]);
}

#[tokio::test]
async fn settings_without_a_named_object_are_written_where_the_profile_says() {
    let folder = tempfile::tempdir().unwrap();
    let quirk = r#"{"source": ["t"], "matches": [{"root.Vendor": "Acme"}],
        "set": {"bios_settings": "SD", "bios_locks": [{"attribute": "Board", "unlocked": "A0"}]}}"#;
    std::fs::write(folder.path().join("1.json"), quirk).unwrap();
    let quirks = QuirkSet::with_folder(folder.path()).unwrap();
    let mut tree = tree(None, &[]);
    let place = format!("{BIOS}/SD");
    // Without a registry, the types of the values in force count.
    tree.remove("/redfish/v1/Registries");
    tree.insert(place.clone(), json!({}));
    let bmc = Bmc::start_with(tree, std::time::Duration::ZERO, |_, _| None).await;
    let settings = rackwright_redfish::Settings {
        quirks: Some(quirks),
        ..bmc.settings()
    };
    let client = BmcClient::connect(bmc.target(), settings).await.unwrap();
    let state = client.bios().await.unwrap().unwrap();
    assert_eq!(state.settings_path, place);
    // A closed lock is opened first, alone.
    let change = client.set_bios(&state, &attributes(&[("Count", "2")])).await.unwrap();
    assert_eq!(change.held_back, ["Count"]);
    bmc.set(BIOS, "/Attributes/Board", json!("A0"));
    let state = client.bios().await.unwrap().unwrap();
    client.set_bios(&state, &attributes(&[("Count", "2")])).await.unwrap();
    let sent = bmc.bodies("PATCH", &place);
    assert_eq!(
        sent,
        [
            json!({"Attributes": {"Board": "A0"}}),
            json!({"Attributes": {"Count": 2}})
        ]
    );
    assert_eq!(bmc.bodies("PATCH", BIOS), Vec::<Value>::new());
}

#[tokio::test]
async fn an_accepted_change_that_is_not_pending_is_an_error_and_a_pending_job_has_the_bmcs_message() {
    let ignores_changes = |request: &Request, _: &mut State| request.is("PATCH", SETTINGS).then(|| Answer::status(200));
    let waiting = json!({"Attributes": {"Quiet": false}});
    let (_bmc, client) = bmc_with(tree(Some(waiting), &[]), ignores_changes).await;
    let state = client.bios().await.unwrap().unwrap();
    let failure = client
        .set_bios(&state, &attributes(&[("Mode", "Fast")]))
        .await
        .unwrap_err();
    assert!(
        matches!(&failure, RedfishError::NotApplied { property, .. } if property == "Mode"),
        "{failure}"
    );
    let busy = |request: &Request, _: &mut State| {
        let words = "A configuration job already exists.";
        request
            .is("PATCH", SETTINGS)
            .then(|| Answer::error(400, "Base.1.8.ResourceInUse", words))
    };
    let (_bmc, client) = bmc_with(tree(Some(json!({})), &[]), busy).await;
    let state = client.bios().await.unwrap().unwrap();
    let failure = client
        .set_bios(&state, &attributes(&[("Mode", "Fast")]))
        .await
        .unwrap_err();
    assert!(
        failure.to_string().contains("A configuration job already exists"),
        "{failure}"
    );
}

#[tokio::test]
async fn absent_resources_are_not_offered_and_malformed_ones_are_survived() {
    let (_bmc, client) = bmc_with(standard_tree(), |_, _| None).await;
    assert_eq!(client.bios().await.unwrap(), None);
    assert_eq!(client.secure_boot().await.unwrap(), None);
    assert_eq!(client.secure_boot_certificates().await.unwrap(), None);
    for failure in [
        client.reset_bios().await.unwrap_err(),
        client.set_secure_boot(true).await.unwrap_err(),
        client.reset_secure_boot_keys(KeysReset::ToDefault).await.unwrap_err(),
        client.enrol_secure_boot_certificate("db", "x").await.unwrap_err(),
    ] {
        assert!(matches!(failure, RedfishError::NotOffered { .. }), "{failure}");
    }
    let mut malformed = tree(Some(json!({"Attributes": [1, 2]})), &[]);
    malformed.insert(
        "/registries/bios.json".into(),
        json!({"RegistryEntries": {"Attributes": {"x": 1}}}),
    );
    malformed.get_mut(BIOS).unwrap()["Attributes"] = json!({"Mode": {"deep": 1}, "Count": [1], "Quiet": null});
    let (_bmc, client) = bmc_with(malformed, |_, _| None).await;
    let state = client.bios().await.unwrap().unwrap();
    assert_eq!(state.current.len(), 1, "{state:?}");
    assert_eq!(client.bios_rules(&state).await.unwrap(), None);
}

#[tokio::test]
async fn secure_boot_is_switched_and_its_keys_listed_added_and_reset() {
    let made = rcgen::generate_simple_self_signed(vec!["db".to_owned()]).unwrap();
    let pem = made.cert.pem();
    let mut tree = standard_tree();
    tree.get_mut(SYSTEM).unwrap()["SecureBoot"] = link(SECURE);
    let databases = format!("{SECURE}/SecureBootDatabases");
    let reset = format!("{SECURE}/Actions/SecureBoot.ResetKeys");
    tree.insert(SECURE.into(), json!({
        "@odata.id": SECURE, "SecureBootEnable": false, "SecureBootCurrentBoot": "Disabled", "SecureBootMode": "UserMode",
        "SecureBootDatabases": link(&databases),
        "Actions": {"#SecureBoot.ResetKeys": {"target": reset, "@Redfish.ActionInfo": link("/info")}}
    }));
    tree.insert(
        "/info".into(),
        json!({"Parameters": [
            {"Name": "ResetKeysType", "AllowableValues": ["ResetAllKeysToDefault", "DeletePK"]}
        ]}),
    );
    tree.insert(databases, json!({"Members": [link(DB)]}));
    tree.insert(
        DB.into(),
        json!({"DatabaseId": "db", "Certificates": link(&format!("{DB}/Certificates"))}),
    );
    let members = [
        link(&format!("{DB}/Certificates/1")),
        link(&format!("{DB}/Certificates/2")),
    ];
    tree.insert(format!("{DB}/Certificates"), json!({"Members": members}));
    tree.insert(
        format!("{DB}/Certificates/1"),
        json!({"CertificateString": pem, "Subject": {"CommonName": "db"}}),
    );
    // One recorded BMC does not show the certificate itself.
    tree.insert(format!("{DB}/Certificates/2"), json!({"CertificateString": null}));
    let (bmc, client) = bmc_with(tree, |request, _| {
        (request.method == "POST" && !request.path.contains("Session")).then(|| Answer::status(201))
    })
    .await;
    let state = client.secure_boot().await.unwrap().unwrap();
    assert_eq!(
        (state.enabled, state.in_force, state.has_databases),
        (Some(false), Some(false), true)
    );
    assert_eq!(state.resets, ["ResetAllKeysToDefault", "DeletePK"]);
    assert!(client.set_secure_boot(true).await.unwrap());
    assert!(!client.set_secure_boot(true).await.unwrap(), "it is so already");
    assert_eq!(bmc.bodies("PATCH", SECURE), [json!({"SecureBootEnable": true})]);
    let found = client.secure_boot_certificates().await.unwrap().unwrap();
    let prints: Vec<_> = found.iter().map(|one| one.sha256).collect();
    assert_eq!(prints, [pem_fingerprint(&pem), None]);
    assert!(prints[0].is_some() && found[0].subject.as_deref() == Some("db"));
    client.enrol_secure_boot_certificate("db", &pem).await.unwrap();
    let sent = bmc.bodies("POST", &format!("{DB}/Certificates"));
    assert_eq!(sent, [json!({"CertificateString": pem, "CertificateType": "PEM"})]);
    let failure = client.enrol_secure_boot_certificate("KEK", &pem).await.unwrap_err();
    assert!(failure.to_string().contains("offers: db"), "{failure}");
    client
        .reset_secure_boot_keys(KeysReset::DeletePlatformKey)
        .await
        .unwrap();
    assert_eq!(bmc.bodies("POST", &reset), [json!({"ResetKeysType": "DeletePK"})]);
    let failure = client.reset_secure_boot_keys(KeysReset::DeleteAll).await.unwrap_err();
    assert!(matches!(failure, RedfishError::NotOffered { .. }), "{failure}");
}

const JOB: &str = "/redfish/v1/Managers/1/Jobs/JID_7";

/// A BMC that makes a change a job; each poll returns the next of these states.
async fn job_of(states: &'static [&'static str]) -> (Bmc, BmcClient, Vec<String>) {
    let hook = move |request: &Request, state: &mut State| {
        if request.is("PATCH", SETTINGS) {
            crate::bmc::merge(state.tree.get_mut(SETTINGS).unwrap(), &request.body);
            return Some(Answer::status(200).with("Location", JOB));
        }
        if !request.is("GET", JOB) {
            return None;
        }
        let word = states[state.n.min(states.len() - 1)];
        state.n += 1;
        let message = "Unable to set BIOS attributes because the system lockdown mode is enabled.";
        Some(match word {
            "gone" => Answer::status(404),
            _ => Answer::json(
                200,
                &json!({"JobState": word, "PercentComplete": 5, "Message": message, "MessageId": "SYS428"}),
            ),
        })
    };
    let (bmc, client) = bmc_with(tree(Some(json!({"@odata.id": SETTINGS})), &["OnReset"]), hook).await;
    let state = client.bios().await.unwrap().unwrap();
    let change = client.set_bios(&state, &attributes(&[("Mode", "Fast")])).await.unwrap();
    assert_eq!(change.job, [JOB]);
    (bmc, client, change.job)
}

#[tokio::test]
async fn the_job_of_a_change_is_followed_until_it_has_ended() {
    let limit = std::time::Duration::from_secs(600);
    for (states, looks) in [
        (&["Scheduled", "Running", "Completed"][..], 3),
        (&["Scheduled", "gone"], 2),
    ] {
        let (bmc, client, job) = job_of(states).await;
        client.wait_bios_job(&job, limit).await.unwrap();
        assert_eq!(bmc.server.count("GET", JOB), looks);
    }
    let (_bmc, client, job) = job_of(&["Scheduled", "Failed"]).await;
    let failure = client.wait_bios_job(&job, limit).await.unwrap_err();
    let ending = "ended as Failed: Unable to set BIOS attributes because the system lockdown mode is enabled. (SYS428)";
    assert!(failure.to_string().ends_with(ending), "{failure}");
    let (_bmc, client, job) = job_of(&["Scheduled"]).await;
    let failure = client.wait_bios_job(&job, limit).await.unwrap_err();
    assert!(matches!(failure, RedfishError::WaitedTooLong { .. }), "{failure}");
    let elsewhere = ["https://elsewhere.example/redfish/v1/Managers/1/Jobs/1".to_owned()];
    client.wait_bios_job(&elsewhere, limit).await.unwrap_err();
}
