//! The event log, read and cleared, and the AC cycle.

use std::time::{Duration, Instant};

use rackwright_redfish::{BmcClient, PowerState, RedfishError, Settings};
use serde_json::{Value, json};

use crate::bmc::{Bmc, SESSIONS, SYSTEM, standard_tree};
use crate::server::Answer;

const LOG: &str = "/redfish/v1/Managers/BMC/LogServices/SEL";
const ENTRIES: &str = "/redfish/v1/Managers/BMC/LogServices/SEL/Entries";
const CLEAR: &str = "/redfish/v1/Managers/BMC/LogServices/SEL/Actions/LogService.ClearLog";

fn entry(n: u32, created: &str) -> Value {
    json!({"@odata.id": format!("{ENTRIES}/{n}"), "Id": n.to_string(), "Created": created, "Severity": "Warning", "Message": format!("entry {n}")})
}

/// A BMC with one log of these members. `clear` answers the POST that clears it; an answer with 2xx empties the log.
async fn with_log(members: Value, clear: impl Fn(&Value, bool) -> Answer + Send + Sync + 'static) -> Bmc {
    let mut tree = standard_tree();
    let link = |path: &str| json!({"@odata.id": path});
    tree.get_mut("/redfish/v1/Managers/BMC").unwrap()["LogServices"] = link("/redfish/v1/Managers/BMC/LogServices");
    tree.insert(
        "/redfish/v1/Managers/BMC/LogServices".into(),
        json!({"Members": [link(LOG)]}),
    );
    tree.insert(
        LOG.into(),
        json!({"Id": "SEL", "Entries": link(ENTRIES), "Actions": {"#LogService.ClearLog": {"target": CLEAR}}}),
    );
    tree.insert(ENTRIES.into(), json!({"Members": members, "@odata.etag": "\"e1\""}));
    Bmc::start_with(tree, Duration::ZERO, move |request, state| {
        if !request.is("POST", CLEAR) {
            return None;
        }
        let has_body = request.header("content-length").is_some_and(|length| length != "0");
        let answer = clear(&request.body, has_body);
        if matches!(answer, Answer::Full { status: 200..=299, .. }) {
            state.set(ENTRIES, "/Members", json!([]));
        }
        Some(answer)
    })
    .await
}

#[tokio::test]
async fn entries_come_newest_first_and_no_more_than_wanted() {
    let members = json!([
        entry(1, "2024-01-01T00:00:00Z"), entry(3, "2024-03-01T00:00:00+01:00"), null, {"Bogus": 1},
        entry(2, "2024-02-29T23:30:00Z"), entry(4, "0000-00-00T00:00:00Z"), {"@odata.id": format!("{ENTRIES}/9")}
    ]);
    let bmc = with_log(members, |_, _| Answer::status(204)).await;
    let path = format!("{ENTRIES}/9");
    bmc.state
        .lock()
        .unwrap()
        .tree
        .insert(path, entry(9, "2024-02-01T00:00:00Z"));
    let client = bmc.connect().await;
    let found = client.event_log(100).await.unwrap();
    let ids: Vec<&str> = found.entries.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(
        ids,
        ["2", "3", "9", "1", "4"],
        "by time whatever the zone; without one last"
    );
    assert_eq!((found.logs[0].read, found.logs[0].can_clear), (5, true));
    assert!(found.gaps.is_empty(), "{:?}", found.gaps);
    assert_eq!(client.event_log(2).await.unwrap().entries, found.entries[..2]);
}

#[tokio::test]
async fn an_endless_log_is_cut_and_marked_as_cut() {
    let bmc = with_log(json!([]), |_, _| Answer::status(204)).await;
    let endless = |n: u32| {
        let members: Vec<Value> = (0..50).map(|i| entry(n * 50 + i, "2024-01-01T00:00:00Z")).collect();
        json!({"Members": members, "Members@odata.nextLink": format!("{ENTRIES}?$skip={}", n + 1)})
    };
    {
        let mut state = bmc.state.lock().unwrap();
        state.tree.insert(ENTRIES.into(), endless(0));
        (1..200).for_each(|n| drop(state.tree.insert(format!("{ENTRIES}?$skip={n}"), endless(n))));
    }
    let found = bmc.connect().await.event_log(10).await.unwrap();
    assert_eq!(found.entries.len(), 10);
    assert_eq!(found.logs[0].read, 2000, "forty pages");
    assert!(found.gaps[0].why.contains("40 pages"), "{:?}", found.gaps);
}

#[tokio::test]
async fn a_log_is_cleared_by_the_method_of_the_bmc_and_read_back() {
    type Accepts = fn(&Value, bool) -> bool;
    let forms: [(Accepts, usize); 3] = [
        (|body, _| *body == json!({}), 1),
        (|body, _| body["LogEntriesETag"] == "\"e1\"", 2),
        (|_, has_body| !has_body, 3),
    ];
    for (accepts, posts) in forms {
        let members = json!([entry(1, "2024-01-01T00:00:00Z"), entry(2, "2024-01-02T00:00:00Z")]);
        let bmc = with_log(members, move |body, has_body| {
            Answer::status(if accepts(body, has_body) { 204 } else { 400 })
        })
        .await;
        let client = bmc.connect().await;
        assert_eq!(client.clear_event_log(None).await.unwrap(), ["SEL"]);
        assert_eq!(bmc.server.count("POST", CLEAR), posts);
        assert!(client.event_log(10).await.unwrap().entries.is_empty());
    }
}

#[tokio::test]
async fn a_log_that_only_claims_to_be_cleared_is_an_error() {
    let members = json!([entry(1, "2024-01-01T00:00:00Z"), entry(2, "2024-01-02T00:00:00Z")]);
    let bmc = with_log(members, |_, _| Answer::Raw(b"HTTP/1.1 204 No\r\n\r\n".to_vec())).await;
    let failure = bmc.connect().await.clear_event_log(Some("sel")).await.unwrap_err();
    assert!(matches!(failure, RedfishError::NotApplied { .. }), "{failure}");
    let failure = bmc.connect().await.clear_event_log(Some("Lclog")).await.unwrap_err();
    assert!(failure.to_string().ends_with("it offers: SEL"), "{failure}");
}

const AC: &str = "/redfish/v1/Systems/1/Actions/Oem/X.SystemReset";

/// A BMC that accepts the AC cycle of a profile, then fails `away` requests and forgets its sessions.
async fn with_ac_cycle(away: usize) -> Bmc {
    let mut tree = standard_tree();
    let system = tree.get_mut(SYSTEM).unwrap();
    system["Manufacturer"] = json!("HPE");
    system["Actions"]["Oem"] = json!({"Hpe": {"#HpeComputerSystemExt.SystemReset": {"target": AC, "ResetType@Redfish.AllowableValues": ["ColdBoot", "AuxCycle"]}}});
    Bmc::start_with(tree, Duration::ZERO, move |request, state| {
        if request.is("POST", AC) {
            assert_eq!(request.body, json!({"ResetType": "AuxCycle"}));
            state.n = 1;
            state.tokens.clear();
            // The answer is lost when the BMC goes away.
            return Some(if away > 0 { Answer::Hangup } else { Answer::status(204) });
        }
        if (1..=away).contains(&state.n) {
            state.n += 1;
            return Some(Answer::Hangup);
        }
        None
    })
    .await
}

#[tokio::test]
async fn an_ac_cycle_ends_when_the_bmc_accepts_a_login_again() {
    for away in [0, 1, 9] {
        let bmc = with_ac_cycle(away).await;
        bmc.set("/redfish/v1", "/Vendor", json!("HPE"));
        let client = bmc.connect().await;
        let started = Instant::now();
        let cycled = client.ac_cycle(Duration::from_secs(600)).await.unwrap();
        assert_eq!(
            (cycled.action.as_str(), &cycled.power),
            ("HpeComputerSystemExt.SystemReset", &PowerState::Off)
        );
        assert_eq!(
            (bmc.server.count("POST", AC), bmc.server.count("POST", SESSIONS)),
            (1, 2),
            "away for {away}"
        );
        assert!(started.elapsed() < Duration::from_secs(30), "by virtual time");
        client.close().await.unwrap();
        assert!(bmc.state.lock().unwrap().tokens.is_empty());
    }
}

#[tokio::test]
async fn a_missing_or_ineffective_ac_cycle_is_an_error() {
    let bmc = with_ac_cycle(1_000_000).await;
    bmc.set("/redfish/v1", "/Vendor", json!("HPE"));
    let failure = bmc
        .connect()
        .await
        .ac_cycle(Duration::from_secs(300))
        .await
        .unwrap_err();
    assert!(matches!(failure, RedfishError::WaitedTooLong { .. }), "{failure}");

    let mut tree = standard_tree();
    tree.get_mut("/redfish/v1").unwrap()["Vendor"] = json!("HPE");
    tree.get_mut(SYSTEM).unwrap()["Actions"]["#HpeComputerSystemExt.SystemReset"] = json!({"target": AC});
    let bmc = Bmc::start_with(tree, Duration::ZERO, |request, _| {
        request.is("POST", AC).then(|| Answer::status(204))
    })
    .await;
    let failure = bmc
        .connect()
        .await
        .ac_cycle(Duration::from_secs(300))
        .await
        .unwrap_err();
    assert!(matches!(failure, RedfishError::NotApplied { .. }), "{failure}");
    assert_eq!(bmc.server.count("POST", AC), 1);

    let bmc = Bmc::plain().await;
    let client = BmcClient::connect(bmc.target(), Settings::default()).await.unwrap();
    let failure = client.ac_cycle(Duration::from_secs(1)).await.unwrap_err();
    assert!(failure.to_string().contains("does not offer an AC cycle"), "{failure}");
}
