use std::time::Duration;

use rackwright_redfish::{BmcClient, BmcTarget, BootTarget, ErrorKind, Persistence, PowerGoal, RedfishError, Settings};
use serde_json::json;

use crate::bmc::{Bmc, RESET, SESSIONS, SYSTEM, merge, standard_tree};
use crate::server::{Answer, Server};

#[tokio::test]
async fn retry_after_is_honoured() {
    let bmc = Bmc::start(|request, state| {
        state.n += usize::from(request.is("GET", SYSTEM));
        (request.is("GET", SYSTEM) && state.n <= 2).then(|| Answer::status(503).with("Retry-After", "7"))
    })
    .await;
    bmc.connect().await.system().await.unwrap();
    // Never shorter than the requested pause; jitter adds up to a tenth.
    assert_eq!(bmc.environment.sleeps_ms(), [7350, 7350]);
}

#[tokio::test]
async fn retries_end() {
    let bmc = Bmc::start(|request, _| {
        request
            .is("GET", SYSTEM)
            .then(|| Answer::error(500, "", "out of order"))
    })
    .await;
    let failure = bmc.connect().await.system().await.unwrap_err();
    assert!(failure.to_string().ends_with("HTTP 500: out of order"), "{failure}");
    assert_eq!(failure.kind(), ErrorKind::Retryable);
    assert_eq!(bmc.environment.sleeps_ms(), [500, 1000, 2000]);
    assert_eq!(bmc.server.count("GET", SYSTEM), 4);
}

#[tokio::test]
async fn a_broken_connection_is_tried_once_more_where_that_is_safe() {
    for (breaks, works) in [(1, true), (2, false)] {
        let bmc = Bmc::start(move |request, state| {
            state.n += usize::from(request.is("GET", SYSTEM));
            (request.is("GET", SYSTEM) && state.n <= breaks).then_some(Answer::Hangup)
        })
        .await;
        let outcome = bmc.connect().await.system().await;
        assert_eq!(outcome.is_ok(), works, "{breaks} breaks");
        if let Err(failure) = outcome {
            assert!(matches!(failure, RedfishError::Broken { .. }), "{failure}");
        }
    }
}

#[tokio::test]
async fn a_patch_survives_one_broken_connection() {
    let bmc = Bmc::start(|request, state| {
        state.n += usize::from(request.is("PATCH", SYSTEM));
        (request.is("PATCH", SYSTEM) && state.n == 1).then_some(Answer::Hangup)
    })
    .await;
    bmc.connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Once, None)
        .await
        .unwrap();
    assert_eq!(bmc.server.count("PATCH", SYSTEM), 2);
}

#[tokio::test]
async fn a_reset_is_never_repeated_blindly() {
    // The connection breaks after the BMC has done the work, or before.
    for (done, posts) in [(true, 1), (false, 2)] {
        let bmc = Bmc::start(move |request, state| {
            state.n += usize::from(request.is("POST", RESET));
            let breaks = request.is("POST", RESET) && state.n == 1;
            if breaks && done {
                state.power("PoweringOn");
            }
            breaks.then_some(Answer::Hangup)
        })
        .await;
        bmc.connect().await.set_power(PowerGoal::On).await.unwrap();
        assert_eq!(bmc.server.count("POST", RESET), posts);
    }
    let bmc = Bmc::start(|request, _| request.is("POST", RESET).then_some(Answer::Hangup)).await;
    let client = bmc.connect().await;
    for (goal, posts) in [(PowerGoal::Restart, 1), (PowerGoal::On, 3)] {
        let failure = client.set_power(goal).await.unwrap_err();
        assert!(matches!(failure, RedfishError::Broken { .. }), "{failure}");
        assert_eq!(bmc.server.count("POST", RESET), posts, "{goal:?}");
    }
}

#[tokio::test]
async fn at_most_two_requests_at_once() {
    let tree = standard_tree();
    let bmc = Bmc::start_with(tree, Duration::from_millis(10), |_, _| None).await;
    let client = bmc.connect().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        tasks.spawn(async move { client.system().await.map(drop) });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome.unwrap().unwrap();
    }
    assert_eq!(bmc.server.most_at_once(), 2);

    let eager = Settings {
        max_concurrent: 100,
        ..bmc.settings()
    };
    let client = BmcClient::connect(bmc.target(), eager).await.unwrap();
    let links = vec![SYSTEM.to_owned(); 30];
    let outcomes = client.get_each(&links).await;
    assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
    assert_eq!(bmc.server.most_at_once(), 4, "no setting goes beyond four");
}

#[tokio::test]
async fn an_unreachable_bmc_is_an_error() {
    let closed = rackwright_free_port::free_port().unwrap();
    let bmc = Bmc::plain().await;
    let target = BmcTarget {
        address: format!("http://127.0.0.1:{closed}"),
        ..bmc.target()
    };
    let failure = BmcClient::connect(target, bmc.settings()).await.unwrap_err();
    assert!(matches!(failure, RedfishError::Unreachable { .. }), "{failure}");
    assert_eq!(failure.kind(), ErrorKind::Retryable);
    assert_eq!(bmc.environment.sleeps_ms(), [500, 1000]);
}

#[tokio::test]
async fn tls_to_a_plain_port_is_a_clear_error() {
    let bmc = Bmc::plain().await;
    let target = BmcTarget {
        address: bmc.server.url().replace("http://", "https://"),
        ..bmc.target()
    };
    let failure = BmcClient::connect(target, bmc.settings()).await.unwrap_err();
    assert!(matches!(failure, RedfishError::Tls { .. }), "{failure:?}");
    assert!(bmc.environment.sleeps_ms().is_empty(), "it is not tried again");
}

#[tokio::test]
async fn a_base_path_precedes_every_request_path() {
    let inner = Bmc::plain().await;
    let inner_address = inner.server.url();
    // A proxy that removes the base path and does not change links, as real ones do.
    let state = std::sync::Arc::clone(&inner.state);
    let proxy = Server::start(
        None,
        Duration::ZERO,
        std::sync::Arc::new(move |request| {
            let Some(path) = request.path.strip_prefix("/rack7/node3") else {
                return Answer::status(404);
            };
            if request.method == "POST" {
                let answer = Answer::status(201).with("X-Auth-Token", "t");
                return answer.with("Location", &format!("{SESSIONS}/1"));
            }
            match state.lock().unwrap().tree.get(path.trim_end_matches('/')) {
                Some(body) if request.method == "GET" => Answer::json(200, body),
                _ => Answer::status(204),
            }
        }),
    )
    .await;
    let target = BmcTarget {
        address: format!("{}/rack7/node3/", proxy.url()),
        ..inner.target()
    };
    let client = BmcClient::connect(target, inner.settings()).await.unwrap();
    assert_eq!(client.identity().await.unwrap().model.as_deref(), Some("A1"));
    client.close().await.unwrap();
    assert_eq!(proxy.count("DELETE", &format!("/rack7/node3{SESSIONS}/1")), 1);
    assert!(!inner_address.is_empty());
}

#[tokio::test]
async fn several_systems_must_be_chosen_from() {
    let mut tree = standard_tree();
    let members = json!([{"@odata.id": SYSTEM}, null, {}, {"@odata.id": "/redfish/v1/Systems/HGX_0/"}]);
    tree.get_mut("/redfish/v1/Systems").unwrap()["Members"] = members;
    let bmc = Bmc::start_with(tree, Duration::ZERO, |_, _| None).await;
    let failure = bmc.connect().await.system().await.unwrap_err();
    assert!(
        failure.to_string().ends_with("manages 2 systems: name one of 1, HGX_0"),
        "{failure}"
    );
    for wanted in ["1", "/redfish/v1/systems/1/"] {
        let target = BmcTarget {
            system: Some(wanted.to_owned()),
            ..bmc.target()
        };
        let client = BmcClient::connect(target, bmc.settings()).await.unwrap();
        assert_eq!(client.system().await.unwrap().id(), "1");
    }
    let target = BmcTarget {
        system: Some("2".to_owned()),
        ..bmc.target()
    };
    let failure = BmcClient::connect(target, bmc.settings())
        .await
        .unwrap()
        .system()
        .await
        .unwrap_err();
    assert!(
        failure.to_string().ends_with("has no system \"2\"; it has: 1, HGX_0"),
        "{failure}"
    );
}

#[tokio::test]
async fn identity_is_read_from_every_resource() {
    let bmc = Bmc::plain().await;
    let identity = bmc.connect().await.identity().await.unwrap();
    assert_eq!(identity.vendor.as_deref(), Some("Acme"));
    assert_eq!(identity.serial.as_deref(), Some("S-1"));
    assert_eq!(identity.uuid.as_deref(), Some("6173ecec-6ef5-11ee-834a-0a8fc3a58a71"));
    assert_eq!(identity.bmc_firmware.as_deref(), Some("1.2.3"));
    assert_eq!(identity.system_path, SYSTEM);
    assert!(identity.profiles.is_empty());

    bmc.set(SYSTEM, "/Manufacturer", json!("Dell Inc."));
    bmc.set(SYSTEM, "/Links", json!(null));
    let identity = bmc.connect().await.identity().await.unwrap();
    assert_eq!(
        (identity.serial.as_deref(), identity.profiles),
        (Some("K-1"), vec!["dell-idrac".to_owned()])
    );
    assert_eq!(
        identity.manager_path.as_deref(),
        Some("/redfish/v1/Managers/BMC"),
        "the only one there is"
    );
}

/// Runs one PATCH against a BMC that accepts only the values of `accepts`, and returns the tried values of `If-Match`.
async fn if_matches(
    manufacturer: &str,
    etag: Option<&str>,
    accepts: impl Fn(Option<&str>) -> bool + Send + Sync + 'static,
) -> (bool, Vec<String>) {
    let bmc = Bmc::start(move |request, state| {
        if !request.is("PATCH", SYSTEM) {
            return None;
        }
        if !accepts(request.header("if-match")) {
            return Some(Answer::status(412));
        }
        merge(state.tree.get_mut(SYSTEM).unwrap(), &request.body);
        Some(Answer::status(200))
    })
    .await;
    bmc.set(SYSTEM, "/Manufacturer", json!(manufacturer));
    if let Some(etag) = etag {
        bmc.state
            .lock()
            .unwrap()
            .etags
            .insert(SYSTEM.to_owned(), etag.to_owned());
    }
    let works = bmc
        .connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Once, None)
        .await
        .is_ok();
    let patches = bmc
        .server
        .requests()
        .into_iter()
        .filter(|request| request.method == "PATCH");
    (
        works,
        patches
            .map(|request| request.header("if-match").unwrap_or("-").to_owned())
            .collect(),
    )
}

#[tokio::test]
async fn etags_are_tried_in_order() {
    let tried = |list: &[&str]| (true, list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    let weak = Some("W/\"a\"");
    assert_eq!(
        if_matches("Acme", weak, |value| value == Some("W/\"a\"")).await,
        tried(&["W/\"a\""])
    );
    assert_eq!(
        if_matches("Acme", weak, |value| value == Some("\"a\"")).await,
        tried(&["W/\"a\"", "\"a\""])
    );
    assert_eq!(
        if_matches("Acme", weak, |value| value == Some("*")).await,
        tried(&["W/\"a\"", "\"a\"", "*"])
    );
    assert_eq!(
        if_matches("Acme", weak, |value| value.is_none()).await,
        tried(&["W/\"a\"", "\"a\"", "*", "-"])
    );
    assert_eq!(
        if_matches("Acme", Some("\"\""), |value| value.is_none()).await,
        tried(&["-"])
    );
    assert_eq!(
        if_matches("ASRockRack", weak, |value| value == Some("*")).await,
        tried(&["*"])
    );
    assert_eq!(
        if_matches("HPE", weak, |value| value.is_none()).await,
        tried(&["W/\"a\"", "\"a\"", "-"])
    );
    let (works, all) = if_matches("Acme", weak, |_| false).await;
    assert!(!works && all.len() == 4, "{all:?}");
}

#[tokio::test]
async fn a_resource_that_changed_meanwhile_is_read_again() {
    let bmc = Bmc::start(|request, state| {
        if !request.is("PATCH", SYSTEM) {
            return None;
        }
        state.etags.insert(SYSTEM.to_owned(), "\"new\"".to_owned());
        (request.header("if-match") != Some("\"new\"")).then(|| Answer::status(412))
    })
    .await;
    bmc.state
        .lock()
        .unwrap()
        .etags
        .insert(SYSTEM.to_owned(), "\"old\"".to_owned());
    bmc.connect()
        .await
        .set_boot(BootTarget::Pxe, Persistence::Once, None)
        .await
        .unwrap();
    assert_eq!(bmc.server.count("PATCH", SYSTEM), 2);
}

/// Callers run these as tasks; the compiler checks that here.
#[tokio::test]
async fn every_operation_can_be_spawned() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    let everything = async move {
        client.identity().await?;
        client.inventory().await?;
        client.macs().await?;
        client.virtual_media().await?;
        client.set_boot(BootTarget::Pxe, Persistence::Once, None).await?;
        client.power_cycle(Duration::from_secs(60)).await?;
        client.close().await
    };
    tokio::spawn(everything).await.unwrap().unwrap();
}
