use std::time::Duration;

use rackwright_redfish::{BmcClient, BmcTarget, ErrorKind, RedfishError};
use serde_json::json;

use crate::bmc::{Bmc, PASSWORD, SESSIONS, SYSTEM, standard_tree};
use crate::server::Answer;

const BASIC: &str = "Basic YWRtaW46Y29ycmVjdCBob3JzZSBiYXR0ZXJ5";

fn used_basic(bmc: &Bmc) -> bool {
    bmc.server
        .requests()
        .iter()
        .any(|request| request.header("authorization") == Some(BASIC))
}

#[tokio::test]
async fn one_session_is_used_for_everything_and_deleted() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    client.system().await.unwrap();
    client.identity().await.unwrap();
    client.close().await.unwrap();
    assert_eq!(bmc.server.count("POST", SESSIONS), 1);
    // The path of the Location counts, not the BMC's own address in it.
    assert_eq!(bmc.server.count("DELETE", &format!("{SESSIONS}/1")), 1);
    assert!(bmc.state.lock().unwrap().tokens.is_empty());
    assert!(!used_basic(&bmc));
    for request in bmc.server.requests() {
        assert_eq!(request.header("odata-version"), Some("4.0"));
        assert_eq!(request.header("accept-encoding"), Some("identity"));
    }
    assert!(matches!(client.system().await, Err(RedfishError::Closed { .. })));
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_dropped_client_closes_its_session() {
    let bmc = Bmc::plain().await;
    drop(bmc.connect().await);
    let deleted = async {
        while !bmc.state.lock().unwrap().tokens.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), deleted).await.unwrap();
}

#[tokio::test]
async fn a_lost_session_is_renewed_once_for_all_requests() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    bmc.state.lock().unwrap().tokens.clear();
    let (a, b, c) = tokio::join!(client.system(), client.system(), client.manager());
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(bmc.server.count("POST", SESSIONS), 2);
    assert!(!used_basic(&bmc));
}

#[tokio::test]
async fn a_session_that_is_never_accepted_ends_in_an_error() {
    let bmc = Bmc::start(|request, _| {
        let refuse = request.method == "GET" && request.path == SYSTEM;
        refuse.then(|| Answer::error(401, "Base.1.8.NoValidSession", "no"))
    })
    .await;
    let client = bmc.connect().await;
    let failure = client.system().await.unwrap_err();
    assert!(matches!(failure, RedfishError::Unauthorized { .. }), "{failure}");
    assert_eq!(failure.kind(), ErrorKind::Security);
    assert_eq!(
        (bmc.server.count("GET", SYSTEM), bmc.server.count("POST", SESSIONS)),
        (2, 2)
    );
}

#[tokio::test]
async fn basic_only_where_sessions_are_not_offered() {
    for status in [404, 405, 501] {
        let bmc = Bmc::start(move |request, _| request.is("POST", SESSIONS).then(|| Answer::status(status))).await;
        let client = bmc.connect().await;
        client.system().await.unwrap();
        client.close().await.unwrap();
        assert!(used_basic(&bmc), "{status}");
        assert_eq!(bmc.server.count("POST", SESSIONS), 1, "{status}");
    }
    let mut tree = standard_tree();
    tree.get_mut("/redfish/v1")
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove("Links");
    let bmc = Bmc::start_with(tree, Duration::ZERO, |_, _| None).await;
    bmc.connect().await.system().await.unwrap();
    assert!(used_basic(&bmc));
}

#[tokio::test]
async fn no_basic_after_a_session_has_worked() {
    let bmc = Bmc::start(|request, state| {
        let logins = if request.is("POST", SESSIONS) {
            state.n += 1;
            state.n
        } else {
            0
        };
        (logins > 1).then(|| Answer::status(404))
    })
    .await;
    let client = bmc.connect().await;
    bmc.state.lock().unwrap().tokens.clear();
    assert!(matches!(client.system().await, Err(RedfishError::NotOffered { .. })));
    assert!(!used_basic(&bmc));
}

#[tokio::test]
async fn exhausted_sessions_fall_back_to_basic_at_once() {
    let bmc = Bmc::start(|request, _| {
        let full = || {
            Answer::error(
                503,
                "IDRAC.2.7.RAC0218",
                "The maximum number of user sessions is reached",
            )
        };
        request.is("POST", SESSIONS).then(|| full().with("Retry-After", "30"))
    })
    .await;
    bmc.connect().await.system().await.unwrap();
    assert!(used_basic(&bmc));
    assert!(bmc.environment.sleeps_ms().is_empty());
}

#[tokio::test]
async fn a_wrong_password_is_tried_once_and_never_shown() {
    let bmc = Bmc::plain().await;
    let target = BmcTarget {
        password: "hunter2-hunter2".into(),
        ..bmc.target()
    };
    assert!(!format!("{target:?}").contains("hunter2"));
    let failure = BmcClient::connect(target, bmc.settings()).await.unwrap_err();
    assert!(
        matches!(failure, RedfishError::Unauthorized { status: 401, .. }),
        "{failure}"
    );
    assert_eq!(failure.kind(), ErrorKind::Security);
    for text in [failure.to_string(), format!("{failure:?}")] {
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("***"), "{text}");
    }
    assert_eq!(bmc.server.count("POST", SESSIONS), 1);
    assert!(
        !bmc.server
            .requests()
            .iter()
            .any(|request| request.header("authorization").is_some())
    );
}

#[tokio::test]
async fn nothing_secret_in_debug_output() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    let text = format!("{client:?}");
    assert!(!text.contains(PASSWORD) && !text.contains("token-1"), "{text}");
}

#[tokio::test]
async fn a_root_behind_a_login_is_reached_by_the_standard_path() {
    let bmc = Bmc::start(|request, _| {
        let has_no_token = request.header("x-auth-token").is_none();
        (request.is("GET", "/redfish/v1") && has_no_token).then(|| Answer::status(401))
    })
    .await;
    let client = bmc.connect().await;
    assert_eq!(client.service_root().await.unwrap().vendor().as_deref(), Some("Acme"));
    assert_eq!(bmc.server.count("POST", SESSIONS), 1);
}

#[tokio::test]
async fn the_session_service_leads_to_the_sessions() {
    let mut tree = standard_tree();
    tree.get_mut("/redfish/v1")
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove("Links");
    tree.get_mut("/redfish/v1").unwrap()["SessionService"] = json!({"@odata.id": "/redfish/v1/SessionService"});
    let bmc = Bmc::start_with(tree, Duration::ZERO, |request, _| {
        let service = json!({"Sessions": {"@odata.id": SESSIONS}});
        request
            .is("GET", "/redfish/v1/SessionService")
            .then(|| Answer::json(200, &service))
    })
    .await;
    bmc.connect().await;
    assert_eq!(bmc.server.count("POST", SESSIONS), 1);
}

#[tokio::test]
async fn a_demand_for_a_new_password_has_its_own_error() {
    let bmc = Bmc::start(|request, _| {
        let demand = || Answer::error(403, "Base.1.8.PasswordChangeRequired", "change it");
        request.is("POST", SESSIONS).then(demand)
    })
    .await;
    let failure = bmc.try_connect().await.unwrap_err();
    assert!(
        matches!(failure, RedfishError::PasswordChangeRequired { .. }),
        "{failure}"
    );
}

#[tokio::test]
async fn redirects_are_followed_within_the_bmc_only() {
    let moved = "/redfish/v1/Sessions2";
    let bmc = Bmc::start(move |request, _| {
        let here = request
            .is("POST", SESSIONS)
            .then(|| Answer::status(301).with("Location", moved));
        let there = Answer::status(201)
            .with("X-Auth-Token", "t")
            .with("Location", "/redfish/v1/Sessions2/1");
        here.or_else(|| request.is("POST", moved).then_some(there))
    })
    .await;
    bmc.connect().await;
    assert_eq!(bmc.bodies("POST", moved)[0]["UserName"], "admin");

    let bmc = Bmc::start(|request, _| {
        let away = || Answer::status(307).with("Location", "http://203.0.113.9/steal");
        request.is("POST", SESSIONS).then(away)
    })
    .await;
    let failure = bmc.try_connect().await.unwrap_err();
    assert!(matches!(failure, RedfishError::ForeignRedirect { .. }), "{failure}");
    assert_eq!(failure.kind(), ErrorKind::Security);
}

#[tokio::test]
async fn a_page_of_xhtml_is_an_error_with_its_text() {
    let bmc = Bmc::start(|request, _| {
        let page = "<html><head><title>403 Forbidden</title></head></html>";
        request
            .is("GET", SYSTEM)
            .then(|| Answer::text(403, page).with("Content-Type", "application/xhtml+xml"))
    })
    .await;
    let failure = bmc.connect().await.system().await.unwrap_err();
    assert!(failure.to_string().ends_with("HTTP 403: 403 Forbidden"), "{failure}");
    assert!(
        failure
            .to_string()
            .starts_with(&format!("GET {SYSTEM} on BMC http://127.0.0.1:")),
        "{failure}"
    );
    assert_eq!(failure.kind(), ErrorKind::Permanent);
}
