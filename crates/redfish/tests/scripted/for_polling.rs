//! Clients for one reading at a time.

use rackwright_redfish::{BmcClient, BmcHints, ErrorKind, LoginMethod, PowerState, RedfishError};
use serde_json::json;

use crate::bmc::{Bmc, PASSWORD, SESSIONS, SYSTEM};
use crate::server::{Answer, Request};

fn client(bmc: &Bmc, known: &BmcHints) -> BmcClient {
    BmcClient::for_polling(bmc.target(), bmc.settings(), known).unwrap()
}

/// Reads once, as a client that returns later. Returns the facts known afterwards.
async fn look(bmc: &Bmc, known: &BmcHints) -> BmcHints {
    let client = client(bmc, known);
    assert_eq!(client.power().await.unwrap(), PowerState::Off);
    let learned = client.hints().await;
    client.close().await.unwrap();
    learned
}

fn known(login: LoginMethod) -> BmcHints {
    BmcHints {
        system: Some(SYSTEM.into()),
        login,
    }
}

/// Requests that carried name and password.
fn with_password(bmc: &Bmc) -> usize {
    let requests = bmc.server.requests();
    requests.iter().filter(|r| r.header("authorization").is_some()).count()
}

#[tokio::test]
async fn a_poll_of_a_known_bmc_is_one_request_without_a_session() {
    let bmc = Bmc::plain().await;
    let learned = look(&bmc, &BmcHints::default()).await;
    let known = known(LoginMethod::EachRequest);
    assert_eq!(learned, known);
    assert_eq!(
        bmc.server.count("POST", SESSIONS),
        1,
        "shows that the password is right"
    );
    let before = bmc.server.requests().len();
    assert_eq!(look(&bmc, &known).await, known);
    assert_eq!(bmc.server.requests().len(), before + 1);
    assert_eq!(bmc.server.count("POST", SESSIONS), 1);
    assert!(bmc.state.lock().unwrap().tokens.is_empty(), "no session is left behind");
}

#[tokio::test]
async fn a_bmc_that_requires_sessions_gets_one_for_each_poll() {
    let bmc = Bmc::start(|request, _| {
        let refused = request.header("authorization").is_some();
        refused.then(|| Answer::error(401, "Base.1.8.NoValidSession", "log in first"))
    })
    .await;
    let known = look(&bmc, &BmcHints::default()).await;
    assert_eq!(known.login, LoginMethod::Session);
    assert_eq!(with_password(&bmc), 1);
    assert_eq!(look(&bmc, &known).await, known);
    assert_eq!(with_password(&bmc), 1, "it is not tried again");
    assert_eq!(bmc.server.count("POST", SESSIONS), 2);
    assert!(bmc.state.lock().unwrap().tokens.is_empty(), "no session is left behind");
}

#[tokio::test]
async fn without_sessions_the_password_goes_with_each_request() {
    let bmc = Bmc::start(|request, _| request.is("POST", SESSIONS).then(|| Answer::status(404))).await;
    assert_eq!(look(&bmc, &BmcHints::default()).await, known(LoginMethod::EachRequest));
}

#[tokio::test]
async fn a_root_behind_a_login_shows_that_there_are_no_sessions() {
    let bmc = Bmc::start(|request, _| {
        if request.is("GET", "/redfish/v1/") {
            let root = json!({"@odata.type": "#ServiceRoot.v1_9_0.ServiceRoot", "RedfishVersion": "1.9.0", "Systems": {"@odata.id": "/redfish/v1/Systems"}});
            return Some(Answer::json(200, &root));
        }
        let refuses = request.is("POST", SESSIONS) || request.header("authorization").is_none();
        refuses.then(|| Answer::error(401, "Base.1.8.NoValidSession", "who are you?"))
    })
    .await;
    assert_eq!(look(&bmc, &BmcHints::default()).await, known(LoginMethod::EachRequest));
}

#[tokio::test]
async fn a_wrong_password_is_sent_once_even_to_a_known_bmc() {
    let refuses_sessions = |request: &Request| request.is("POST", SESSIONS).then(|| Answer::status(404));
    // Without known facts, the root is first read for its sessions.
    for (method, sessions, requests) in [
        (LoginMethod::Unknown, 1, 2),
        (LoginMethod::Session, 1, 1),
        (LoginMethod::EachRequest, 0, 1),
    ] {
        let bmc = Bmc::plain().await;
        let mut target = bmc.target();
        target.password = format!("not {PASSWORD}").into();
        let client = BmcClient::for_polling(target, bmc.settings(), &known(method)).unwrap();
        let failure = client.power().await.unwrap_err();
        assert!(matches!(failure, RedfishError::Unauthorized { .. }), "{failure}");
        assert_eq!(failure.kind(), ErrorKind::Security);
        let sent = (bmc.server.count("POST", SESSIONS), with_password(&bmc));
        assert_eq!(sent, (sessions, 1 - sessions), "{method:?}");
        assert_eq!(client.hints().await.login, LoginMethod::Unknown);
        let _ = client.close().await;
        assert_eq!(
            bmc.server.requests().len(),
            requests,
            "{method:?}: there is no other request"
        );
    }
    let bmc = Bmc::start(move |request, _| refuses_sessions(request)).await;
    let mut target = bmc.target();
    target.password = format!("not {PASSWORD}").into();
    let client = BmcClient::for_polling(target, bmc.settings(), &known(LoginMethod::Unknown)).unwrap();
    client.power().await.unwrap_err();
    assert_eq!(with_password(&bmc), 1, "where there are no sessions");
}

#[tokio::test]
async fn an_outdated_hint_about_a_bmc_is_an_error() {
    let bmc = Bmc::plain().await;
    let known = BmcHints {
        system: Some("/redfish/v1/Systems/Gone".into()),
        login: LoginMethod::EachRequest,
    };
    let failure = client(&bmc, &known).power().await.unwrap_err();
    assert_eq!(failure.status(), Some(404), "{failure}");
}
