//! Firmware: its inventory, the way in which an update is sent, and the polling of its task.

use std::collections::BTreeMap;
use std::time::Duration;

use rackwright_redfish::quirks::QuirkSet;
use rackwright_redfish::{BmcClient, FirmwareEntry, FirmwareImage, RedfishError, Settings, UpdateLook, UpdateTicket};
use serde_json::{Value, json};

use crate::bmc::{Bmc, State, standard_tree};
use crate::server::{Answer, Request};

const SERVICE: &str = "/redfish/v1/UpdateService";
const LIST: &str = "/redfish/v1/UpdateService/FirmwareInventory";
const BMC: &str = "/redfish/v1/UpdateService/FirmwareInventory/BMC";
const UPLOAD: &str = "/redfish/v1/UpdateService/upload";
const PUSH: &str = "/fwupdate";
const SIMPLE: &str = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate";
const TASK: &str = "/redfish/v1/TaskService/Tasks/9";

/// A standard machine with an update service that offers `offered`.
fn tree(offered: Value) -> BTreeMap<String, Value> {
    let mut tree = standard_tree();
    tree.get_mut("/redfish/v1").unwrap()["UpdateService"] = json!({"@odata.id": SERVICE});
    let mut service = json!({"@odata.id": SERVICE, "FirmwareInventory": {"@odata.id": LIST}});
    crate::bmc::merge(&mut service, &offered);
    tree.insert(SERVICE.to_owned(), service);
    tree.insert(
        LIST.to_owned(),
        json!({"Members": [{"@odata.id": BMC}, {"@odata.id": format!("{LIST}/gone")}]}),
    );
    tree.insert(
        BMC.to_owned(),
        json!({"Id": "BMC", "Name": "BMC image", "Version": "1.0", "Updateable": true, "SoftwareId": "bmc-1"}),
    );
    tree
}

async fn bmc(offered: Value, hook: impl Fn(&Request, &mut State) -> Option<Answer> + Send + Sync + 'static) -> Bmc {
    Bmc::start_with(tree(offered), Duration::ZERO, hook).await
}

fn accepted(_: &Request, _: &mut State) -> Option<Answer> {
    None
}

/// A file of some hundred kB, so that it is sent in pieces.
fn image(dir: &tempfile::TempDir, url: Option<&str>) -> FirmwareImage {
    let file = dir.path().join("bmc.bin");
    let text: String = (0..60_000).map(|i| format!("{i:05}\n")).collect();
    std::fs::write(&file, &text).unwrap();
    FirmwareImage {
        file,
        bytes: text.len() as u64,
        name: "bmc.bin".to_owned(),
        url: url.map(str::to_owned),
    }
}

async fn entry(client: &BmcClient) -> FirmwareEntry {
    client.firmware().await.unwrap().entries.remove(0)
}

fn takes(path: &'static str) -> impl Fn(&Request, &mut State) -> Option<Answer> + Send + Sync {
    move |request, _| {
        let is_it = request.is("POST", path);
        is_it.then(|| Answer::json(202, &json!({"@odata.id": TASK, "TaskState": "New"})))
    }
}

#[tokio::test]
async fn installed_versions_and_unreadable_ones() {
    let bmc = bmc(
        json!({"MultipartHttpPushUri": UPLOAD, "MaxImageSizeBytes": 0}),
        accepted,
    )
    .await;
    let state = bmc.connect().await.firmware().await.unwrap();
    assert_eq!(state.entries.len(), 1);
    let entry = &state.entries[0];
    assert_eq!(
        (entry.id.as_str(), entry.version.as_str(), entry.software_id.as_str()),
        ("BMC", "1.0", "bmc-1")
    );
    assert_eq!(state.gaps.len(), 1, "one member is not there: {:?}", state.gaps);
    assert_eq!(state.offer.multipart.as_deref(), Some(UPLOAD));
    assert_eq!(state.offer.max_bytes, None, "0 is no limit");
}

#[tokio::test]
async fn without_an_inventory_versions_come_from_system_and_manager() {
    let bmc = Bmc::plain().await;
    let state = bmc.connect().await.firmware().await.unwrap();
    let versions: Vec<_> = state
        .entries
        .iter()
        .map(|e| (e.id.as_str(), e.version.as_str()))
        .collect();
    assert_eq!(versions, [("BMC", "1.2.3")]);
    assert!(state.offer.is_empty());
}

#[tokio::test]
async fn multipart_is_tried_first_and_sent_with_its_length() {
    let dir = tempfile::tempdir().unwrap();
    let offered = json!({
        "MultipartHttpPushUri": UPLOAD, "HttpPushUri": PUSH,
        "MultipartHttpPushUri@Redfish.OperationApplyTimeSupport": {"SupportedValues": ["Immediate", "OnReset"]}
    });
    let bmc = bmc(offered, takes(UPLOAD)).await;
    let client = bmc.connect().await;
    let image = image(&dir, None);
    let ticket = client.start_update(&entry(&client).await, &image).await.unwrap();
    assert_eq!(ticket.places, [TASK]);
    let requests = bmc.server.requests();
    let sent = requests.iter().find(|r| r.is("POST", UPLOAD)).unwrap();
    assert_eq!(sent.header("content-length").unwrap(), sent.raw.len().to_string());
    assert_eq!(sent.header("transfer-encoding"), None);
    let text = String::from_utf8(sent.raw.clone()).unwrap();
    let boundary = sent.header("content-type").unwrap().split_once("boundary=").unwrap().1;
    let parts: Vec<&str> = text.split(&format!("--{boundary}")).collect();
    assert_eq!(parts.len(), 4, "nothing, two parts, the end");
    let (head, parameters) = parts[1].split_once("\r\n\r\n").unwrap();
    assert!(head.contains("name=\"UpdateParameters\"") && head.contains("application/json"));
    let parameters: Value = serde_json::from_str(parameters.trim()).unwrap();
    assert_eq!(
        parameters,
        json!({"Targets": [BMC], "@Redfish.OperationApplyTime": "Immediate"})
    );
    let (head, content) = parts[2].split_once("\r\n\r\n").unwrap();
    assert!(head.contains("name=\"UpdateFile\"; filename=\"bmc.bin\""));
    assert_eq!(
        content.strip_suffix("\r\n").unwrap(),
        std::fs::read_to_string(&image.file).unwrap()
    );
}

#[tokio::test]
async fn a_missing_update_method_leads_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let offered = json!({"MultipartHttpPushUri": "/nowhere", "HttpPushUri": PUSH, "HttpPushUriTargets": []});
    let bmc = bmc(offered, |request, state| {
        (request.is("POST", "/nowhere"))
            .then(|| Answer::status(404))
            .or_else(|| takes(PUSH)(request, state))
    })
    .await;
    let client = bmc.connect().await;
    let image = image(&dir, None);
    client.start_update(&entry(&client).await, &image).await.unwrap();
    let requests = bmc.server.requests();
    let sent = requests.iter().find(|r| r.is("POST", PUSH)).unwrap();
    assert_eq!(sent.raw, std::fs::read(&image.file).unwrap());
    assert_eq!(sent.header("content-type"), Some("application/octet-stream"));
    assert_eq!(bmc.bodies("PATCH", SERVICE), [json!({"HttpPushUriTargets": [BMC]})]);
}

#[tokio::test]
async fn the_bmc_fetches_with_the_fields_that_it_requires() {
    let dir = tempfile::tempdir().unwrap();
    let offered = json!({"Actions": {"#UpdateService.SimpleUpdate": {"target": SIMPLE}}});
    let bmc = bmc(offered, |request, state| {
        let lacks = request.is("POST", SIMPLE) && request.body["Username"].is_null();
        lacks
            .then(|| Answer::error(400, "Base.1.8.ActionParameterMissing", "Username"))
            .or_else(|| takes(SIMPLE)(request, state))
    })
    .await;
    let client = bmc.connect().await;
    let url = "http://10.0.0.1:8080/firmware/v1/x/bmc.bin";
    client
        .start_update(&entry(&client).await, &image(&dir, Some(url)))
        .await
        .unwrap();
    let bodies = bmc.bodies("POST", SIMPLE);
    assert_eq!(
        bodies[0],
        json!({"ImageURI": url, "TransferProtocol": "HTTP", "Targets": [BMC]})
    );
    assert_eq!(bodies[1], json!({"ImageURI": url, "Targets": [BMC]}));
    assert_eq!(bodies[2]["Username"], "none");
    assert_eq!(bodies.len(), 3);
    let failure = client
        .start_update(&entry(&client).await, &image(&dir, None))
        .await
        .unwrap_err();
    assert!(failure.to_string().contains("no URL"), "{failure}");
}

#[tokio::test]
async fn a_file_that_is_too_large_or_was_changed_is_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let bmc = bmc(json!({"HttpPushUri": PUSH, "MaxImageSizeBytes": 400_000}), takes(PUSH)).await;
    let client = bmc.connect().await;
    let entry = entry(&client).await;
    let mut image = image(&dir, None);
    std::fs::write(&image.file, "short").unwrap();
    let failure = client.start_update(&entry, &image).await.unwrap_err();
    assert!(matches!(failure, RedfishError::FirmwareFile { .. }), "{failure:?}");
    image.bytes = 400_001;
    let failure = client.start_update(&entry, &image).await.unwrap_err();
    assert!(failure.to_string().contains("at most 400000 bytes"), "{failure}");
    assert_eq!(bmc.server.count("POST", PUSH), 0);
}

#[tokio::test]
async fn an_upload_is_repeated_only_after_a_refused_session() {
    let dir = tempfile::tempdir().unwrap();
    let bmc = bmc(json!({"HttpPushUri": PUSH}), |request, state| {
        request.is("POST", PUSH).then(|| {
            state.n += 1;
            match state.n {
                1 => Answer::error(401, "Base.1.8.NoValidSession", "log in again"),
                _ => Answer::Hangup,
            }
        })
    })
    .await;
    let client = bmc.connect().await;
    let failure = client
        .start_update(&entry(&client).await, &image(&dir, None))
        .await
        .unwrap_err();
    assert!(matches!(failure, RedfishError::Broken { .. }), "{failure:?}");
    assert_eq!(bmc.server.count("POST", PUSH), 2);
}

#[tokio::test]
async fn a_profile_describes_the_differences() {
    let dir = tempfile::tempdir().unwrap();
    let quirks = tempfile::tempdir().unwrap();
    let profile = json!({
        "source": ["this test"],
        "matches": [{"root.Vendor": "Acme"}],
        "set": {"update": {
            "targets": "none", "claim": true, "parameters": {"ForceUpdate": true},
            "oem_parameters": [{"id": "BMC*", "body": {"ImageType": "BMC"}}],
            "activation": [{"id": "BMC", "by": "ac_cycle"}]
        }}
    });
    std::fs::write(quirks.path().join("acme.json"), profile.to_string()).unwrap();
    let offered = json!({"MultipartHttpPushUri": UPLOAD, "HttpPushUriTargetsBusy": false});
    let bmc = bmc(offered, takes(UPLOAD)).await;
    let settings = Settings {
        quirks: Some(QuirkSet::with_folder(quirks.path()).unwrap()),
        ..bmc.settings()
    };
    let client = BmcClient::connect(bmc.target(), settings).await.unwrap();
    client
        .start_update(&entry(&client).await, &image(&dir, None))
        .await
        .unwrap();
    let requests = bmc.server.requests();
    let text = String::from_utf8_lossy(&requests.iter().find(|r| r.is("POST", UPLOAD)).unwrap().raw).into_owned();
    assert!(
        text.contains("{\"Targets\":[],\"ForceUpdate\":true}"),
        "{}",
        &text[..600]
    );
    assert!(text.contains("name=\"OemParameters\"") && text.contains("{\"ImageType\":\"BMC\"}"));
    let claims = bmc.bodies("PATCH", SERVICE);
    assert_eq!(claims[0]["HttpPushUriTargetsBusy"], true);
    assert_eq!(claims[1]["HttpPushUriTargetsBusy"], false, "it is set free");
    let update = &client.profile().await.unwrap().update;
    assert!(update.activation_of("bmc").is_some() && update.activation_of("BIOS").is_none());
}

#[tokio::test]
async fn a_task_is_followed_lost_and_failed() {
    let offered = json!({"HttpPushUri": PUSH});
    let bmc = bmc(offered, |request, state| {
        if !request.is("GET", TASK) {
            return None;
        }
        state.n += 1;
        Some(match state.n {
            1 => Answer::json(200, &json!({"TaskState": "Running", "PercentComplete": 40})),
            2 => Answer::Hangup,
            3 => Answer::Hangup,
            4 => Answer::status(404),
            5 => Answer::json(
                200,
                &json!({"TaskState": "Exception", "Messages": [{"MessageId": "Update.1.0.VerificationFailed", "Message": "bad signature"}]}),
            ),
            _ => Answer::json(200, &json!({"TaskState": "Completed"})),
        })
    })
    .await;
    let client = bmc.connect().await;
    let ticket = UpdateTicket {
        method: None,
        places: vec![TASK.to_owned()],
    };
    let look = async || client.look_at_update(&ticket).await.unwrap();
    let UpdateLook::Running(progress) = look().await else {
        panic!("it runs")
    };
    assert_eq!(progress.percent, Some(40));
    assert!(
        matches!(look().await, UpdateLook::Away(_)),
        "a restart of the BMC is expected"
    );
    assert_eq!(look().await, UpdateLook::Forgotten);
    let UpdateLook::Failed { state, messages } = look().await else {
        panic!("it failed")
    };
    assert!(state == "Exception" && messages.to_string().contains("bad signature"));
    assert!(matches!(look().await, UpdateLook::Done(_)));
    let nowhere = UpdateTicket {
        places: vec!["https://elsewhere.example/redfish/v1/x".to_owned()],
        ..UpdateTicket::default()
    };
    let failure = client.look_at_update(&nowhere).await.unwrap_err();
    assert!(matches!(failure, RedfishError::ForeignLink { .. }), "{failure:?}");
}
