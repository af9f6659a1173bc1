//! Every fault of a script, as a client sees it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Client, LONG, RESET, SESSIONS, SYSTEM, assert_error};
use rackwright_sim::fleet::{Fleet, FleetConfig, Phase, PowerState, Profile, Script, SimNode};
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::time::{Duration, Instant};

async fn start_with_faults(profile: Profile, faults: &str) -> (Fleet, SimNode, Client) {
    let config = FleetConfig {
        nodes: 2,
        profile,
        speed: if profile == Profile::Instant { 1.0 } else { 100_000.0 },
        faults: Script::parse("faults.yaml", &format!("faults: [{faults}]"), 2).unwrap(),
        ..FleetConfig::default()
    };
    let fleet = Fleet::start(config).await.unwrap();
    let node = fleet.node(0);
    let client = Client::of_fleet(&node);
    (fleet, node, client)
}

async fn status(client: &Client, path: &str) -> reqwest::Result<StatusCode> {
    Ok(client.request(Method::GET, path).send().await?.status())
}

#[tokio::test]
async fn a_bmc_that_is_down_answers_no_request() {
    let (fleet, _, client) = start_with_faults(Profile::Instant, "{fault: bmc-down, nodes: [0]}").await;
    let error = status(&client, SYSTEM).await.unwrap_err();
    assert!(error.is_connect() && !error.is_timeout(), "{error:?}");
    Client::of_fleet(&fleet.node(1)).get(SYSTEM).await;
}

#[tokio::test]
async fn a_bmc_that_goes_down_at_a_request_hangs_up() {
    let (_fleet, _, client) =
        start_with_faults(Profile::Instant, "{fault: bmc-down, at: 2, path: /redfish/v1/Systems}").await;
    client.get(SYSTEM).await;
    // The HTTP client does not repeat a POST.
    let reset = client.request(Method::POST, RESET).json(&json!({"ResetType": "On"}));
    let error = reset.send().await.unwrap_err();
    assert!(
        !error.is_connect() && !error.is_timeout() && !error.is_status(),
        "{error:?}"
    );
    assert_eq!(
        client.get(SYSTEM).await["PowerState"],
        "Off",
        "the request was not carried out"
    );
}

#[tokio::test]
async fn a_slow_bmc_answers_late() {
    let (_fleet, _, client) = start_with_faults(Profile::Instant, "{fault: bmc-slow, delay_s: 0.7, at: 2}").await;
    client.get(SYSTEM).await;
    let started = Instant::now();
    client.get(SYSTEM).await;
    assert!(started.elapsed() >= Duration::from_millis(700));
}

#[tokio::test]
async fn a_bmc_answers_nonsense_of_each_kind() {
    let faults = "{fault: bmc-wrong, answer: html, at: 1, path: /redfish/v1/Systems}, \
                  {fault: bmc-wrong, answer: truncated, at: 2, path: /redfish/v1/Systems}, \
                  {fault: bmc-wrong, answer: types, at: 3, path: /redfish/v1/Systems}, \
                  {fault: bmc-wrong, answer: internal-error, at: 4, path: /redfish/v1/Systems}";
    let (_fleet, _, client) = start_with_faults(Profile::Instant, faults).await;
    let get = || client.request(Method::GET, SYSTEM).send();
    let html = get().await.unwrap();
    assert_eq!(html.status(), StatusCode::OK);
    assert_eq!(html.headers()["content-type"], "text/html; charset=utf-8");
    assert!(html.text().await.unwrap().contains("<html>"));
    let truncated = get().await.unwrap();
    assert_eq!(truncated.status(), StatusCode::OK);
    assert!(truncated.json::<serde_json::Value>().await.unwrap_err().is_decode());
    let types: serde_json::Value = get().await.unwrap().json().await.unwrap();
    assert!(
        types["PowerState"].is_number() && types["@odata.id"].is_string(),
        "{types}"
    );
    assert_error(get().await.unwrap(), StatusCode::INTERNAL_SERVER_ERROR, "InternalError").await;
    client.get(SYSTEM).await;
}

#[tokio::test]
async fn exhausted_sessions_leave_basic_authentication() {
    let (_fleet, _, client) =
        start_with_faults(Profile::Instant, "{fault: bmc-sessions-exhausted, at: 1, times: 2}").await;
    let open = || client.anonymous(Method::POST, SESSIONS).json(&client.login()).send();
    for _ in 0..2 {
        let full = StatusCode::SERVICE_UNAVAILABLE;
        assert_error(open().await.unwrap(), full, "SessionLimitExceeded").await;
    }
    client.get(SYSTEM).await;
    assert_eq!(open().await.unwrap().status(), StatusCode::CREATED);
}

#[tokio::test]
async fn an_unavailable_bmc_sends_retry_after() {
    let (_fleet, _, client) =
        start_with_faults(Profile::Instant, "{fault: bmc-unavailable, retry_after_s: 17, at: 1}").await;
    let answer = client.request(Method::GET, SYSTEM).send().await.unwrap();
    assert_eq!(answer.headers()["retry-after"], "17");
    assert_error(answer, StatusCode::SERVICE_UNAVAILABLE, "ServiceTemporarilyUnavailable").await;
    assert_eq!(status(&client, SYSTEM).await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn stuck_power_accepts_a_request_without_effect() {
    let (_fleet, node, client) = start_with_faults(Profile::DgxH100, "{fault: power-stuck, at: 1}").await;
    let on = json!({"ResetType": "On"});
    let accepted = client.post(RESET, on.clone()).await;
    assert_eq!(accepted.status(), StatusCode::ACCEPTED);
    let monitor = accepted.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(status(&client, &monitor).await.unwrap(), StatusCode::ACCEPTED);
    assert_eq!((node.view().phase, node.view().boots), (Phase::Off, 0));
    assert_eq!(client.get(SYSTEM).await["PowerState"], "Off");
    // The second attempt works, and the first attempt's task has failed.
    client.post(RESET, on).await;
    let on = node.wait_for(|view| view.power == PowerState::On);
    tokio::time::timeout(LONG, on).await.unwrap();
    assert_eq!(
        status(&client, &monitor).await.unwrap(),
        StatusCode::INTERNAL_SERVER_ERROR
    );
}

#[tokio::test]
async fn a_post_that_hangs_is_on_and_never_boots() {
    let (_fleet, node, client) = start_with_faults(Profile::Instant, "{fault: post-hang, at: 2}").await;
    client.reset("On").await;
    client.reset("ForceRestart").await;
    assert_eq!((node.view().phase, node.view().boots), (Phase::Hung, 2));
    assert_eq!(client.get(SYSTEM).await["PowerState"], "On");
    client.reset("PowerCycle").await;
    assert!(matches!(node.view().phase, Phase::Up(_)));
}

#[tokio::test]
async fn a_wrong_inventory_lacks_a_part() {
    let faults = "{fault: wrong-inventory, missing: gpu, nodes: [0]}, {fault: wrong-inventory, missing: drive, nodes: [0]}, \
                  {fault: wrong-inventory, missing: dimm, nodes: [0]}, {fault: wrong-inventory, missing: cpu, nodes: [0]}, \
                  {fault: wrong-inventory, missing: nic, nodes: [0]}";
    let (fleet, _, client) = start_with_faults(Profile::DgxH100, faults).await;
    let whole = Client::of_fleet(&fleet.node(1));
    for (collection, count, missing) in [("Processors", 10, 2), ("Memory", 32, 1), ("EthernetInterfaces", 3, 1)] {
        let path = format!("{SYSTEM}/{collection}");
        assert_eq!(whole.get(&path).await["Members@odata.count"], count);
        assert_eq!(client.get(&path).await["Members@odata.count"], count - missing);
    }
    let storage = format!("{SYSTEM}/Storage/1");
    assert_eq!(whole.get(&storage).await["Drives@odata.count"], 10);
    assert_eq!(client.get(&storage).await["Drives@odata.count"], 9);
    assert_eq!(
        status(&client, &format!("{storage}/Drives/9")).await.unwrap(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_clock_that_is_wrong_shows_at_the_manager() {
    let (fleet, _, client) =
        start_with_faults(Profile::Instant, "{fault: clock-skew, skew_s: 31622400, nodes: [0]}").await;
    let year = async |client: &Client| {
        let manager = client.get("/redfish/v1/Managers/1").await;
        let text = manager["DateTime"].as_str().unwrap().to_owned();
        text[..4].parse::<i32>().unwrap()
    };
    // 366 days ahead: the next year, or the one after if the real year ends meanwhile.
    let right = year(&Client::of_fleet(&fleet.node(1))).await;
    let ahead = year(&client).await - right;
    assert!(ahead == 1 || ahead == 2, "{ahead} years");
}

#[tokio::test]
async fn the_time_of_day_is_no_change_of_the_manager() {
    let (_fleet, _, client) = start_with_faults(Profile::Instant, "").await;
    let manager = || client.request(Method::GET, "/redfish/v1/Managers/1").send();
    let first = manager().await.unwrap();
    let (etag, before) = (first.headers()["etag"].clone(), first.text().await.unwrap());
    // Waits until the clock has advanced, at most a second.
    let moved = async {
        loop {
            let again = manager().await.unwrap();
            assert_eq!(again.headers()["etag"], etag);
            if again.text().await.unwrap() != before {
                break;
            }
        }
    };
    tokio::time::timeout(LONG, moved).await.unwrap();
}
