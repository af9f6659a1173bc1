use std::time::Duration;

use rackwright_redfish::{BmcClient, BmcTarget, PowerChange, PowerGoal, PowerState, RedfishError};
use serde_json::json;

use crate::bmc::{Bmc, RESET, SYSTEM};
use crate::server::Answer;

fn accepted(reset_type: &str) -> PowerChange {
    PowerChange::Accepted {
        reset_type: reset_type.to_owned(),
    }
}

#[tokio::test]
async fn on_and_off_with_inline_values() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    assert_eq!(client.power().await.unwrap(), PowerState::Off);
    assert_eq!(
        client.set_power(PowerGoal::Off).await.unwrap(),
        PowerChange::AlreadyThere
    );
    assert_eq!(client.set_power(PowerGoal::On).await.unwrap(), accepted("On"));
    client.wait_power(PowerGoal::On, Duration::from_secs(5)).await.unwrap();
    assert_eq!(client.set_power(PowerGoal::Off).await.unwrap(), accepted("ForceOff"));
    let bodies = bmc.bodies("POST", RESET);
    assert_eq!(bodies, [json!({"ResetType": "On"}), json!({"ResetType": "ForceOff"})]);
    let types = client.reset_types().await.unwrap().unwrap();
    assert_eq!(types, ["On", "ForceOff", "GracefulShutdown", "ForceRestart"]);
}

#[tokio::test]
async fn reset_types_from_action_info() {
    let bmc = Bmc::plain().await;
    let info = "/redfish/v1/Systems/1/ResetActionInfo";
    let action = json!({"#ComputerSystem.Reset": {"target": RESET, "@Redfish.ActionInfo": info}});
    bmc.set(SYSTEM, "/Actions", action);
    let parameters = json!({"Parameters": [null, {"Name": "ResetType", "AllowableValues": ["ForceOn", "ForceOff"]}]});
    bmc.state.lock().unwrap().tree.insert(info.to_owned(), parameters);
    let client = bmc.connect().await;
    assert_eq!(client.set_power(PowerGoal::On).await.unwrap(), accepted("ForceOn"));
    let failure = client.set_power(PowerGoal::GracefulOff).await.unwrap_err();
    let words = "does not offer a reset type for orderly power off; it offers: ForceOn, ForceOff";
    assert!(failure.to_string().ends_with(words), "{failure}");
}

#[tokio::test]
async fn without_a_list_types_are_tried() {
    let bmc = Bmc::start(|request, _| {
        let refuse = request.is("POST", RESET) && request.body["ResetType"] == "ForceRestart";
        refuse.then(|| Answer::error(400, "Base.1.8.ActionParameterNotSupported", "no such type"))
    })
    .await;
    let action = json!({"#ComputerSystem.Reset": {"target": RESET, "@Redfish.ActionInfo": "/redfish/v1/Gone"}});
    bmc.set(SYSTEM, "/Actions", action);
    let client = bmc.connect().await;
    assert_eq!(client.reset_types().await.unwrap(), None);
    assert_eq!(
        client.set_power(PowerGoal::Restart).await.unwrap(),
        accepted("PowerCycle")
    );
}

#[tokio::test]
async fn already_in_that_state_is_success_after_a_second_look() {
    for status in [400, 409] {
        let bmc = Bmc::start(move |request, state| {
            request.is("POST", RESET).then(|| {
                // The power button was pressed in between.
                state.power("On");
                Answer::error(status, "IDRAC.2.7.PSU501", "Server is already powered ON.")
            })
        })
        .await;
        let client = bmc.connect().await;
        assert_eq!(
            client.set_power(PowerGoal::On).await.unwrap(),
            PowerChange::AlreadyThere,
            "{status}"
        );
        assert_eq!(bmc.server.count("POST", RESET), 1);
    }
}

#[tokio::test]
async fn too_soon_after_the_last_change_is_tried_again_later() {
    let bmc = Bmc::start(|request, state| {
        state.n += usize::from(request.is("POST", RESET));
        let refuse = request.is("POST", RESET) && state.n <= 2;
        refuse.then(|| Answer::error(409, "Base.1.12.ActionParameterValueConflict", "not now"))
    })
    .await;
    let client = bmc.connect().await;
    assert_eq!(client.set_power(PowerGoal::On).await.unwrap(), accepted("On"));
    assert_eq!(bmc.environment.sleeps_ms(), [5000, 10_000]);
}

#[tokio::test]
async fn a_refusal_that_stays_is_the_error() {
    let bmc = Bmc::start(|request, _| {
        request
            .is("POST", RESET)
            .then(|| Answer::error(409, "X.1.0.LicenseNeeded", "buy a licence"))
    })
    .await;
    let failure = bmc.connect().await.set_power(PowerGoal::On).await.unwrap_err();
    assert!(failure.to_string().contains("buy a licence"), "{failure}");
    assert_eq!(bmc.server.count("POST", RESET), 7);

    let bmc = Bmc::start(|request, _| {
        request
            .is("POST", RESET)
            .then(|| Answer::error(400, "Base.1.8.Bad", "no"))
    })
    .await;
    assert!(bmc.connect().await.set_power(PowerGoal::On).await.is_err());
    assert_eq!(
        bmc.server.count("POST", RESET),
        1,
        "a plain 400 does not pass by itself"
    );
}

#[tokio::test]
async fn polls_of_a_wait_become_rarer_and_end() {
    let bmc = Bmc::plain().await;
    let failure = bmc
        .connect()
        .await
        .wait_power(PowerGoal::On, Duration::from_secs(30))
        .await
        .unwrap_err();
    assert!(
        failure
            .to_string()
            .ends_with("power on did not happen within 30 s; last seen: Off"),
        "{failure}"
    );
    let sleeps = bmc.environment.sleeps_ms();
    assert_eq!(sleeps[..4], [250, 400, 640, 1024]);
    assert_eq!(bmc.environment.elapsed().as_secs(), 30);
    assert!(sleeps.iter().all(|pause| *pause <= 5000));
}

#[tokio::test]
async fn a_power_cycle_observes_both_halves() {
    let bmc = Bmc::start(|request, state| {
        if request.is("POST", RESET) {
            let goal = if request.body["ResetType"] == "ForceOff" {
                "PoweringOff"
            } else {
                "PoweringOn"
            };
            state.power(goal);
            state.n = 0;
            return Some(Answer::status(202));
        }
        if request.is("GET", SYSTEM) {
            state.n += 1;
            let now = state.tree[SYSTEM]["PowerState"].as_str().unwrap().to_owned();
            match (state.n, now.as_str()) {
                // A BMC may not answer for a while between two states.
                (2, "PoweringOff") => return Some(Answer::status(503)),
                (4, "PoweringOff") => state.power("Off"),
                (3, "PoweringOn") => state.power("On"),
                _ => {}
            }
        }
        None
    })
    .await;
    bmc.state.lock().unwrap().power("On");
    let client = bmc.connect().await;
    client.power_cycle(Duration::from_secs(60)).await.unwrap();
    assert_eq!(client.power().await.unwrap(), PowerState::On);
}

#[tokio::test]
async fn a_system_without_a_reset_action() {
    let bmc = Bmc::plain().await;
    bmc.set(SYSTEM, "/Actions", json!(null));
    let failure = bmc.connect().await.set_power(PowerGoal::On).await.unwrap_err();
    assert!(matches!(failure, RedfishError::MissingProperty { .. }), "{failure}");
}

#[tokio::test]
async fn a_dead_neighbour_does_not_block_power() {
    let bmc = Bmc::start(|request, _| request.path.contains("HGX").then(|| Answer::status(503))).await;
    let members = json!([{"@odata.id": SYSTEM}, {"@odata.id": "/redfish/v1/Systems/HGX_Baseboard_0"}]);
    bmc.set("/redfish/v1/Systems", "/Members", members);
    let target = BmcTarget {
        system: Some("1".to_owned()),
        ..bmc.target()
    };
    let client = BmcClient::connect(target, bmc.settings()).await.unwrap();
    assert_eq!(client.set_power(PowerGoal::On).await.unwrap(), accepted("On"));
    assert!(bmc.environment.sleeps_ms().is_empty());
}
