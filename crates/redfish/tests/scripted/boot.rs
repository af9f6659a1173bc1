use rackwright_redfish::{BootMode, BootTarget, Persistence, RedfishError};
use serde_json::{Value, json};

use crate::bmc::{Bmc, SYSTEM, merge};
use crate::server::Answer;

const SETTINGS: &str = "/redfish/v1/Systems/1/Settings";

fn boots(bmc: &Bmc, path: &str) -> Vec<Value> {
    bmc.bodies("PATCH", path)
        .into_iter()
        .map(|body| body["Boot"].clone())
        .collect()
}

#[tokio::test]
async fn network_boot_once_is_set_and_cleared() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    let outcome = client
        .set_boot(BootTarget::Pxe, Persistence::Once, Some(BootMode::Uefi))
        .await
        .unwrap();
    assert!(outcome.changed && outcome.deviations.is_empty());
    assert_eq!(outcome.after.target.as_deref(), Some("Pxe"));
    let again = client
        .set_boot(BootTarget::Pxe, Persistence::Once, Some(BootMode::Uefi))
        .await
        .unwrap();
    assert!(
        !again.changed,
        "an unchanged value is refused by some BMCs, so it is not sent"
    );
    client
        .set_boot(BootTarget::Disk, Persistence::Continuous, None)
        .await
        .unwrap();
    client
        .set_boot(BootTarget::None, Persistence::Disabled, None)
        .await
        .unwrap();
    assert_eq!(
        boots(&bmc, SYSTEM),
        [
            json!({"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}),
            json!({"BootSourceOverrideTarget": "Hdd", "BootSourceOverrideEnabled": "Continuous"}),
            json!({"BootSourceOverrideEnabled": "Disabled"}),
        ]
    );
    assert_eq!(client.boot().await.unwrap().enabled.as_deref(), Some("Disabled"));
}

#[tokio::test]
async fn the_settings_object_is_written_where_it_holds_the_override() {
    for (held, written) in [
        (
            json!({"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled"}),
            SETTINGS,
        ),
        (json!({"BootOrder": ["Boot0001"]}), SYSTEM),
    ] {
        let bmc = Bmc::plain().await;
        bmc.set(
            SYSTEM,
            "/@Redfish.Settings",
            json!({"SettingsObject": {"@odata.id": SETTINGS}}),
        );
        bmc.state
            .lock()
            .unwrap()
            .tree
            .insert(SETTINGS.to_owned(), json!({"Boot": held}));
        let client = bmc.connect().await;
        let outcome = client.set_boot(BootTarget::Pxe, Persistence::Once, None).await.unwrap();
        assert_eq!(outcome.written_to, written);
        assert_eq!(
            (boots(&bmc, SETTINGS).len(), boots(&bmc, SYSTEM).len()),
            if written == SETTINGS { (1, 0) } else { (0, 1) }
        );
    }
}

#[tokio::test]
async fn a_settings_object_is_written_even_if_it_reads_as_wanted() {
    let bmc = Bmc::plain().await;
    bmc.set(
        SYSTEM,
        "/@Redfish.Settings",
        json!({"SettingsObject": {"@odata.id": SETTINGS}}),
    );
    let stale = json!({"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}});
    bmc.state.lock().unwrap().tree.insert(SETTINGS.to_owned(), stale);
    let outcome = bmc
        .connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Once, None)
        .await
        .unwrap();
    assert!(outcome.changed);
    assert_eq!(boots(&bmc, SETTINGS).len(), 1);
}

#[tokio::test]
async fn allowed_values_of_the_settings_object_count() {
    let bmc = Bmc::plain().await;
    bmc.set(
        SYSTEM,
        "/@Redfish.Settings",
        json!({"SettingsObject": {"@odata.id": SETTINGS}}),
    );
    bmc.set(
        SYSTEM,
        "/Boot",
        json!({"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled"}),
    );
    let listing = json!({"Boot": {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None",
        "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Hdd"]}});
    bmc.state.lock().unwrap().tree.insert(SETTINGS.to_owned(), listing);
    let client = bmc.connect().await;
    let failure = client
        .set_boot(BootTarget::Pxe, Persistence::Once, None)
        .await
        .unwrap_err();
    assert!(
        failure
            .to_string()
            .ends_with("does not offer boot target Pxe; it offers: None, Hdd"),
        "{failure}"
    );
    assert_eq!(client.boot().await.unwrap().allowed_targets, ["None", "Hdd"]);
}

#[tokio::test]
async fn without_continuous_the_override_is_once_and_reported() {
    let bmc = Bmc::plain().await;
    bmc.set(
        SYSTEM,
        "/Boot/BootSourceOverrideEnabled@Redfish.AllowableValues",
        json!(["Once", "Disabled"]),
    );
    let outcome = bmc
        .connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Continuous, None)
        .await
        .unwrap();
    assert_eq!(outcome.persistence, Persistence::Once);
    assert_eq!(boots(&bmc, SYSTEM)[0]["BootSourceOverrideEnabled"], "Once");

    let bmc = Bmc::start(|request, _| {
        let continuous = request.body["Boot"]["BootSourceOverrideEnabled"] == "Continuous";
        continuous.then(|| Answer::error(400, "Base.1.8.PropertyValueNotInList", "Continuous is not in the list"))
    })
    .await;
    let outcome = bmc
        .connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Continuous, None)
        .await
        .unwrap();
    assert_eq!(outcome.persistence, Persistence::Once);
}

#[tokio::test]
async fn a_bmc_that_requires_all_fields_gets_them_together() {
    let bmc = Bmc::start(|request, _| {
        let full = request.body["Boot"].as_object().is_some_and(|boot| boot.len() == 3);
        (request.is("PATCH", SYSTEM) && !full).then(|| Answer::error(400, "Base.1.8.PropertyMissing", "all three"))
    })
    .await;
    let client = bmc.connect().await;
    client.set_boot(BootTarget::Pxe, Persistence::Once, None).await.unwrap();
    let all = json!({"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once", "BootSourceOverrideMode": "UEFI"});
    assert_eq!(boots(&bmc, SYSTEM).last().unwrap(), &all);
}

#[tokio::test]
async fn accepted_but_not_applied_is_an_error() {
    let bmc = Bmc::start(|request, _| request.is("PATCH", SYSTEM).then(|| Answer::status(204))).await;
    let failure = bmc
        .connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Once, None)
        .await
        .unwrap_err();
    assert!(matches!(failure, RedfishError::NotApplied { .. }), "{failure}");
    assert!(
        failure.to_string().contains("BootSourceOverrideEnabled = Once"),
        "{failure}"
    );
    assert_eq!(bmc.environment.elapsed().as_secs(), 20);
}

#[tokio::test]
async fn a_slow_change_is_awaited() {
    let bmc = Bmc::start(|request, state| {
        if request.is("PATCH", SYSTEM) {
            state.n = 1;
            return Some(Answer::status(202));
        }
        if request.is("GET", SYSTEM) && state.n > 0 {
            state.n += 1;
            if state.n == 5 {
                let applied = json!({"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}});
                merge(state.tree.get_mut(SYSTEM).unwrap(), &applied);
            }
        }
        None
    })
    .await;
    bmc.connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Once, None)
        .await
        .unwrap();
    assert_eq!(bmc.environment.sleeps_ms(), [250, 400, 640]);
}

#[tokio::test]
async fn known_deviations_are_data() {
    let bmc = Bmc::start(|request, state| {
        request.is("PATCH", SYSTEM).then(|| {
            let mut body = request.body.clone();
            body["Boot"]["BootSourceOverrideTarget"] = json!("UefiBootNext");
            merge(state.tree.get_mut(SYSTEM).unwrap(), &body);
            Answer::status(204)
        })
    })
    .await;
    bmc.set(SYSTEM, "/Manufacturer", json!("Supermicro"));
    let outcome = bmc
        .connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Once, None)
        .await
        .unwrap();
    assert_eq!(outcome.deviations.len(), 1);
    assert_eq!(outcome.deviations[0].seen, "UefiBootNext");
    // The same behaviour of another maker's machine is not trusted.
    bmc.set(SYSTEM, "/Manufacturer", json!("Acme"));
    bmc.set(SYSTEM, "/Boot/BootSourceOverrideTarget", json!("None"));
    let failure = bmc
        .connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Once, None)
        .await
        .unwrap_err();
    assert!(matches!(failure, RedfishError::NotApplied { .. }), "{failure}");
}

#[tokio::test]
async fn a_mode_that_the_target_changed_is_set_again() {
    let bmc = Bmc::start(|request, state| {
        request.is("PATCH", SYSTEM).then(|| {
            merge(state.tree.get_mut(SYSTEM).unwrap(), &request.body);
            if request.body["Boot"]["BootSourceOverrideTarget"] == "Pxe" {
                state.set(SYSTEM, "/Boot/BootSourceOverrideMode", json!("Legacy"));
            }
            Answer::status(204)
        })
    })
    .await;
    let outcome = bmc
        .connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Once, Some(BootMode::Uefi))
        .await
        .unwrap();
    assert_eq!(outcome.after.mode.as_deref(), Some("UEFI"));
    assert_eq!(boots(&bmc, SYSTEM).len(), 2);
}

#[tokio::test]
async fn a_running_post_is_awaited() {
    let bmc = Bmc::start(|request, state| {
        state.n += usize::from(request.method == "PATCH");
        let busy = || Answer::error(400, "iLO.2.14.UnableToModifyDuringSystemPOST", "in POST");
        (request.method == "PATCH" && state.n <= 2).then(busy)
    })
    .await;
    bmc.connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Once, None)
        .await
        .unwrap();
    assert_eq!(bmc.environment.sleeps_ms(), [5000, 10_000]);
}

#[tokio::test]
async fn an_http_boot_uri_is_sent_only_where_supported_and_removed_afterwards() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    let failure = client
        .set_http_boot("http://10.77.0.1/ipxe.efi", Persistence::Once)
        .await
        .unwrap_err();
    assert!(matches!(failure, RedfishError::NotOffered { .. }), "{failure}");
    bmc.set(SYSTEM, "/Boot/HttpBootUri", json!(null));
    let outcome = client
        .set_http_boot("http://10.77.0.1/ipxe.efi", Persistence::Once)
        .await
        .unwrap();
    assert_eq!(
        outcome.after.http_boot_uri.as_deref(),
        Some("http://10.77.0.1/ipxe.efi")
    );
    let outcome = client
        .set_boot(BootTarget::Disk, Persistence::Once, None)
        .await
        .unwrap();
    assert_eq!(outcome.after.http_boot_uri, None);
}

#[tokio::test]
async fn a_bmc_without_an_override() {
    let bmc = Bmc::plain().await;
    bmc.set(SYSTEM, "/Boot", json!({"BootOrder": []}));
    let failure = bmc
        .connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Once, None)
        .await
        .unwrap_err();
    assert!(matches!(failure, RedfishError::MissingProperty { .. }), "{failure}");
}
