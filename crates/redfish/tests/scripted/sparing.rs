//! Clients for one look at a time.

use rackwright_redfish::{BmcClient, ErrorKind, PowerState, Shortcut};

use crate::bmc::{Bmc, PASSWORD, SESSIONS, SYSTEM};
use crate::server::Answer;

fn client(bmc: &Bmc, known: &Shortcut) -> BmcClient {
    BmcClient::sparing(bmc.target(), bmc.settings(), known).unwrap()
}

/// Looks once, as somebody who comes back later. Answers what is known then.
async fn look(bmc: &Bmc, known: &Shortcut) -> Shortcut {
    let client = client(bmc, known);
    assert_eq!(client.power().await.unwrap(), PowerState::Off);
    let learned = client.shortcut().await;
    client.close().await.unwrap();
    learned
}

#[tokio::test]
async fn a_look_at_what_is_known_is_one_request_without_a_session() {
    let bmc = Bmc::plain().await;
    let learned = look(&bmc, &Shortcut::default()).await;
    let known = Shortcut {
        system: Some(SYSTEM.into()),
        needs_session: false,
    };
    assert_eq!(learned, known);
    let before = bmc.server.requests().len();
    assert_eq!(look(&bmc, &known).await, known);
    assert_eq!(bmc.server.requests().len(), before + 1);
    assert_eq!(bmc.server.count("POST", SESSIONS), 0);
}

#[tokio::test]
async fn where_a_password_counts_only_in_a_session_each_look_opens_one_and_closes_it() {
    let bmc = Bmc::start(|request, _| {
        let refused = request.header("authorization").is_some();
        refused.then(|| Answer::error(401, "Base.1.8.NoValidSession", "log in first"))
    })
    .await;
    let known = look(&bmc, &Shortcut::default()).await;
    assert!(known.needs_session);
    let refusals = |bmc: &Bmc| {
        let requests = bmc.server.requests();
        requests.iter().filter(|r| r.header("authorization").is_some()).count()
    };
    assert_eq!(refusals(&bmc), 1);
    assert_eq!(look(&bmc, &known).await, known);
    assert_eq!(refusals(&bmc), 1, "it is not tried again");
    assert_eq!(bmc.server.count("POST", SESSIONS), 2);
    assert!(bmc.state.lock().unwrap().tokens.is_empty(), "no session is left behind");
}

#[tokio::test]
async fn a_wrong_password_is_tried_twice_and_no_more() {
    let bmc = Bmc::plain().await;
    let mut target = bmc.target();
    target.password = format!("not {PASSWORD}").into();
    let known = Shortcut {
        system: Some(SYSTEM.into()),
        needs_session: false,
    };
    let client = BmcClient::sparing(target, bmc.settings(), &known).unwrap();
    let failure = client.power().await.unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::Security, "{failure}");
    assert_eq!(bmc.server.requests().len(), 2, "with the request, and for a session");
}

#[tokio::test]
async fn what_was_known_and_is_wrong_is_told() {
    let bmc = Bmc::plain().await;
    let known = Shortcut {
        system: Some("/redfish/v1/Systems/Gone".into()),
        needs_session: false,
    };
    let failure = client(&bmc, &known).power().await.unwrap_err();
    assert_eq!(failure.status(), Some(404), "{failure}");
}
