use std::time::Duration;

use rackwright_redfish::{BmcClient, MediaKind, RedfishError};
use serde_json::{Value, json};

use crate::bmc::{Bmc, SYSTEM, merge, standard_tree};
use crate::server::{Answer, Request};

const MEDIA: &str = "/redfish/v1/Managers/BMC/VirtualMedia";
const CD: &str = "/redfish/v1/Managers/BMC/VirtualMedia/CD";
const INSERT: &str = "/redfish/v1/Managers/BMC/VirtualMedia/CD/Actions/VirtualMedia.InsertMedia";
const EJECT: &str = "/redfish/v1/Managers/BMC/VirtualMedia/CD/Actions/VirtualMedia.EjectMedia";
const IMAGE: &str = "http://10.77.0.1:8080/agent.iso";

/// A BMC with a CD drive below its manager; `takes` decides which bodies are accepted.
async fn with_drive(actions: bool, inserted: bool, takes: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Bmc {
    let mut tree = standard_tree();
    tree.get_mut("/redfish/v1/Managers/BMC").unwrap()["VirtualMedia"] = json!({"@odata.id": MEDIA});
    let usb = format!("{MEDIA}/USB");
    tree.insert(
        MEDIA.to_owned(),
        json!({"Members": [{"@odata.id": usb}, {"@odata.id": CD}]}),
    );
    tree.insert(usb, json!({"Id": "USB", "MediaTypes": ["USBStick"], "Inserted": false}));
    let mut cd = json!({"Id": "CD", "MediaTypes": ["CD", "DVD"], "Inserted": inserted, "Image": null});
    if inserted {
        cd["Image"] = json!("http://old/old.iso");
    }
    if actions {
        let eject = json!({"target": EJECT});
        cd["Actions"] =
            json!({"#VirtualMedia.InsertMedia": {"target": INSERT}, "Oem": {"#SmcVirtualMedia.EjectMedia": eject}});
    }
    tree.insert(CD.to_owned(), cd);
    Bmc::start_with(tree, Duration::ZERO, move |request: &Request, state| {
        let drive = state.tree.get_mut(CD).unwrap();
        if request.is("POST", EJECT) {
            let empty = drive["Inserted"] == false;
            merge(drive, &json!({"Inserted": false, "Image": null}));
            return Some(Answer::status(if empty { 404 } else { 204 }));
        }
        let is_insert = request.is("POST", INSERT) || (request.is("PATCH", CD) && !request.body["Image"].is_null());
        if !is_insert {
            return None;
        }
        if drive["Inserted"] == true {
            return Some(Answer::error(409, "Base.1.8.ResourceInUse", "eject first"));
        }
        if !takes(&request.body) {
            return Some(Answer::error(400, "Base.1.8.PropertyUnknown", "not like this"));
        }
        merge(drive, &json!({"Inserted": true, "Image": request.body["Image"]}));
        Some(Answer::status(204))
    })
    .await
}

#[tokio::test]
async fn a_medium_is_inserted_by_the_smallest_action() {
    let bmc = with_drive(true, true, |body| body.as_object().unwrap().len() == 1).await;
    let client = bmc.connect().await;
    let drive = client.insert_media(IMAGE, MediaKind::Cd).await.unwrap();
    assert_eq!((drive.path(), drive.image().as_deref()), (CD, Some(IMAGE)));
    assert_eq!(bmc.server.count("POST", EJECT), 1, "what was there is ejected first");
    let drive = client.eject_media(&drive).await.unwrap();
    assert!(!drive.is_inserted());
    client.eject_media(&drive).await.unwrap();
    assert_eq!(
        bmc.bodies("POST", EJECT),
        vec![json!({}); 3],
        "an empty drive that answers 404 is fine"
    );
}

#[tokio::test]
async fn fields_are_added_as_the_bmc_requires_them() {
    let bmc = with_drive(true, false, |body| body["TransferMethod"] == "Stream").await;
    bmc.connect().await.insert_media(IMAGE, MediaKind::Cd).await.unwrap();
    let last = bmc.bodies("POST", INSERT).pop().unwrap();
    assert_eq!(
        last,
        json!({"Image": IMAGE, "TransferProtocolType": "HTTP", "TransferMethod": "Stream"})
    );
}

#[tokio::test]
async fn without_actions_a_medium_is_inserted_by_patch() {
    let bmc = with_drive(false, false, |body| body["Inserted"] == true).await;
    let client = bmc.connect().await;
    let drive = client.insert_media(IMAGE, MediaKind::Cd).await.unwrap();
    assert!(drive.is_inserted());
    assert!(!client.eject_media(&drive).await.unwrap().is_inserted());
    assert_eq!(
        bmc.bodies("PATCH", CD).last().unwrap(),
        &json!({"Image": null, "Inserted": false})
    );
}

#[tokio::test]
async fn a_medium_without_a_drive_for_it_is_refused() {
    let bmc = with_drive(true, false, |_| false).await;
    let failure = bmc
        .connect()
        .await
        .insert_media(IMAGE, MediaKind::Cd)
        .await
        .unwrap_err();
    assert!(failure.to_string().contains("not like this"), "{failure}");
    let bmc = Bmc::plain().await;
    let failure = bmc
        .connect()
        .await
        .insert_media(IMAGE, MediaKind::Cd)
        .await
        .unwrap_err();
    assert!(matches!(failure, RedfishError::NotOffered { .. }), "{failure}");
}

const TASK: &str = "/redfish/v1/TaskService/Tasks/7";
const MONITOR: &str = "/redfish/v1/TaskService/TaskMonitors/7";

/// Sets the boot override on a BMC that makes it a task, and returns the result.
async fn boot_by_task(
    accept: Answer,
    look: impl Fn(&Request, usize) -> Option<Answer> + Send + Sync + 'static,
) -> (Result<(), RedfishError>, Bmc) {
    let bmc = Bmc::start(move |request, state| {
        if request.is("PATCH", SYSTEM) {
            merge(state.tree.get_mut(SYSTEM).unwrap(), &request.body);
            return Some(accept.clone());
        }
        if request.path.starts_with("/redfish/v1/TaskService") {
            state.n += 1;
            return look(request, state.n);
        }
        None
    })
    .await;
    let client: BmcClient = bmc.connect().await;
    let target = rackwright_redfish::BootTarget::Pxe;
    let outcome = client
        .set_boot(target, rackwright_redfish::Persistence::Once, None)
        .await;
    (outcome.map(drop), bmc)
}

#[tokio::test]
async fn a_task_is_followed_to_its_end() {
    let accept = Answer::json(202, &json!({"@odata.id": TASK, "TaskState": "New"})).with("Location", MONITOR);
    let states = ["New", "Running", "Completed"];
    let (outcome, bmc) = boot_by_task(accept, move |request, n| {
        let body = json!({"TaskState": states[n.min(3) - 1]});
        request
            .is("GET", TASK)
            .then(|| Answer::json(200, &body).with("Retry-After", "2"))
    })
    .await;
    outcome.unwrap();
    assert_eq!(bmc.server.count("GET", TASK), 3);
    assert_eq!(bmc.environment.sleeps_ms(), [2000, 2000]);
}

#[tokio::test]
async fn a_monitor_alone_is_enough_and_may_vanish() {
    let accept = Answer::status(202).with("Location", MONITOR);
    let (outcome, bmc) = boot_by_task(accept.clone(), |_, n| {
        Some(Answer::status(if n < 3 { 202 } else { 204 }))
    })
    .await;
    outcome.unwrap();
    assert_eq!(bmc.server.count("GET", MONITOR), 3);
    let (outcome, _) = boot_by_task(accept, |_, n| Some(Answer::status(if n < 2 { 202 } else { 404 }))).await;
    outcome.unwrap();
}

#[tokio::test]
async fn a_task_that_vanishes_is_looked_for_at_its_monitor() {
    let accept = Answer::json(202, &json!({"@odata.id": TASK})).with("Location", MONITOR);
    let (outcome, bmc) = boot_by_task(accept, |request, _| {
        Some(if request.is("GET", TASK) {
            Answer::status(404)
        } else {
            Answer::status(200)
        })
    })
    .await;
    outcome.unwrap();
    assert_eq!(
        (bmc.server.count("GET", TASK), bmc.server.count("GET", MONITOR)),
        (1, 1)
    );
}

#[tokio::test]
async fn a_failed_task_has_its_reason() {
    let accept = Answer::status(202).with("Location", TASK);
    let body = json!({"TaskState": "Exception", "Messages": [{"MessageId": "X.1.Bad", "Message": "no such device"}]});
    let (outcome, _) = boot_by_task(accept, move |_, _| Some(Answer::json(200, &body))).await;
    let failure = outcome.unwrap_err();
    assert!(
        failure
            .to_string()
            .ends_with("ended as Exception: no such device (X.1.Bad)"),
        "{failure}"
    );
}

#[tokio::test]
async fn a_task_that_never_ends_is_given_up() {
    let accept = Answer::status(202).with("Location", TASK);
    let body = json!({"TaskState": "Running", "PercentComplete": 42});
    let (outcome, _) = boot_by_task(accept, move |_, _| Some(Answer::json(200, &body))).await;
    let failure = outcome.unwrap_err();
    assert!(
        failure.to_string().ends_with("within 20 s; last seen: Running 42 %"),
        "{failure}"
    );
}
