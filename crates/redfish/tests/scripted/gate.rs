//! The client's restraint, counted by the BMC.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rackwright_redfish::quirks::QuirkSet;
use rackwright_redfish::{
    BmcClient, BmcHints, ErrorKind, Gates, LoginMethod, PowerGoal, RedfishError, RetryPolicy, Settings,
};

use crate::bmc::{Bmc, RESET, SESSIONS, SYSTEM, standard_tree};
use crate::server::{Answer, Server};

/// A BMC that hangs up on requests for the system while the switch is on.
async fn intermittent_bmc() -> (Bmc, Arc<AtomicBool>) {
    let is_silent = Arc::new(AtomicBool::new(false));
    let switch = is_silent.clone();
    let bmc = Bmc::start(move |request, _| {
        (request.is("GET", SYSTEM) && switch.load(Ordering::SeqCst)).then_some(Answer::Hangup)
    })
    .await;
    (bmc, is_silent)
}

#[tokio::test]
async fn a_silent_bmc_is_left_alone_and_tried_by_one_request_at_a_time() {
    let (bmc, is_silent) = intermittent_bmc().await;
    let client = bmc.connect().await;
    is_silent.store(true, Ordering::SeqCst);
    let failure = loop {
        match client.system().await.unwrap_err() {
            RedfishError::Broken { .. } => {}
            other => break other,
        }
    };
    assert!(
        matches!(failure, RedfishError::Suspended { failures: 5, .. }),
        "{failure:?}"
    );
    assert_eq!(failure.kind(), ErrorKind::Retryable);
    let text = failure.to_string();
    assert!(
        text.contains("paused for 5 s") && text.contains("last failure: GET /redfish/v1/Systems/1"),
        "{text}"
    );
    assert_eq!(bmc.server.count("GET", SYSTEM), 5);
    for _ in 0..50 {
        client.system().await.unwrap_err();
    }
    assert_eq!(bmc.server.count("GET", SYSTEM), 5, "nothing is sent");

    // The pause is over: of many concurrent requests, one is the trial.
    rackwright_redfish::Environment::sleep(&*bmc.environment, Duration::from_secs(6)).await;
    let outcomes = futures_of(&client, 20).await;
    assert_eq!(outcomes, 0);
    assert_eq!(bmc.server.count("GET", SYSTEM), 6, "one request in all");

    // The next pause is longer, until there is an answer.
    rackwright_redfish::Environment::sleep(&*bmc.environment, Duration::from_secs(6)).await;
    client.system().await.unwrap_err();
    assert_eq!(bmc.server.count("GET", SYSTEM), 6);
    is_silent.store(false, Ordering::SeqCst);
    rackwright_redfish::Environment::sleep(&*bmc.environment, Duration::from_secs(6)).await;
    client.system().await.unwrap();
    assert_eq!(futures_of(&client, 20).await, 20, "the gate is open for all");
}

/// The number of successes among `n` concurrent requests.
async fn futures_of(client: &BmcClient, n: usize) -> usize {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..n {
        let client = client.clone();
        tasks.spawn(async move { client.system().await.is_ok() });
    }
    tasks.join_all().await.into_iter().filter(|worked| *worked).count()
}

#[tokio::test]
async fn clients_of_one_bmc_share_its_limits() {
    let (bmc, is_silent) = intermittent_bmc().await;
    let gates = Arc::new(Gates::default());
    let settings = Settings {
        gates: Some(gates.clone()),
        ..bmc.settings()
    };
    let first = BmcClient::connect(bmc.target(), settings.clone()).await.unwrap();
    is_silent.store(true, Ordering::SeqCst);
    while !matches!(first.system().await, Err(RedfishError::Suspended { .. })) {}
    drop(first);
    let reads = bmc.server.count("GET", SYSTEM);
    let known = BmcHints {
        system: Some(SYSTEM.into()),
        login: LoginMethod::EachRequest,
    };
    let second = BmcClient::for_polling(bmc.target(), settings, &known).unwrap();
    assert!(matches!(second.power().await, Err(RedfishError::Suspended { .. })));
    assert_eq!(bmc.server.count("GET", SYSTEM), reads);
    gates.tidy();
    assert_eq!(gates.count(), 1);
}

#[tokio::test]
async fn refusals_count_as_answers() {
    let bmc = Bmc::start(|request, _| request.is("GET", SYSTEM).then(|| Answer::status(500))).await;
    let client = bmc.connect().await;
    for _ in 0..10 {
        assert_eq!(client.system().await.unwrap_err().status(), Some(500));
    }
}

#[tokio::test]
async fn two_clients_together_send_no_more_than_one_may() {
    let bmc = Bmc::start_with(standard_tree(), Duration::from_millis(10), |_, _| None).await;
    let settings = Settings {
        gates: Some(Arc::default()),
        ..bmc.settings()
    };
    let a = BmcClient::connect(bmc.target(), settings.clone()).await.unwrap();
    let b = BmcClient::connect(bmc.target(), settings).await.unwrap();
    assert_eq!(tokio::join!(futures_of(&a, 15), futures_of(&b, 15)), (15, 15));
    assert_eq!(bmc.server.most_at_once(), 2);
}

#[tokio::test]
async fn a_profile_sets_the_concurrent_requests_up_to_four() {
    for (configured, most) in [(1, 1), (3, 3), (200, 4)] {
        let folder = tempfile::tempdir().unwrap();
        let profile = serde_json::json!({"source": ["a test"], "matches": [{"root.Vendor": "Acme"}], "set": {"max_concurrent": configured}});
        std::fs::write(folder.path().join("acme.json"), profile.to_string()).unwrap();
        let quirks = QuirkSet::with_folder(folder.path()).unwrap();
        let bmc = Bmc::start_with(standard_tree(), Duration::from_millis(10), |_, _| None).await;
        let settings = Settings {
            quirks: Some(quirks),
            ..bmc.settings()
        };
        let client = BmcClient::connect(bmc.target(), settings).await.unwrap();
        client.profile().await.unwrap();
        assert_eq!(futures_of(&client, 30).await, 30);
        assert_eq!(client.get_each(&vec![SYSTEM.to_owned(); 30]).await.len(), 30);
        assert_eq!(bmc.server.most_at_once(), most, "the profile has {configured}");
    }
}

#[tokio::test]
async fn a_date_to_wait_for_counts_by_the_clock_of_the_bmc() {
    for (until, sleeps) in [
        ("Mon, 01 Jan 2001 00:01:20 GMT", vec![21_000]),
        ("Mon, 01 Jan 2001 09:00:00 GMT", vec![63_000]),
        // A date in the past, or a text that cannot be parsed.
        ("Mon, 01 Jan 2001 00:00:50 GMT", vec![0]),
        ("when it is ready", vec![500]),
    ] {
        let bmc = Bmc::start(move |request, state| {
            state.n += usize::from(request.is("GET", SYSTEM));
            let busy = || Answer::status(503).with("Date", "Mon, 01 Jan 2001 00:01:00 GMT");
            (request.is("GET", SYSTEM) && state.n == 1).then(|| busy().with("Retry-After", until))
        })
        .await;
        bmc.connect().await.system().await.unwrap();
        let slept = bmc.environment.sleeps_ms();
        let expected: Vec<u64> = sleeps.into_iter().filter(|ms| *ms > 0).collect();
        assert_eq!(slept, expected, "{until}");
    }
}

#[tokio::test]
async fn the_session_is_given_back_after_errors_too() {
    let bmc = Bmc::start(|request, _| request.is("POST", RESET).then(|| Answer::status(400))).await;
    let client = bmc.connect().await;
    client.set_power(PowerGoal::Restart).await.unwrap_err();
    client.get("/redfish/v1/Nothing").await.unwrap_err();
    drop(client);
    let deleted = async {
        while !bmc.state.lock().unwrap().tokens.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), deleted).await.unwrap();
    assert_eq!(
        (
            bmc.server.count("POST", SESSIONS),
            bmc.server.count("DELETE", &format!("{SESSIONS}/1"))
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn redirects_keep_method_body_and_proof() {
    const MOVED: &str = "/redfish/v1/Systems/1/Elsewhere";
    for status in [301, 302, 307, 308] {
        let bmc = Bmc::start(move |request, state| {
            if request.is("POST", MOVED) {
                state.power("On");
                return Some(Answer::status(204));
            }
            request
                .is("POST", RESET)
                .then(|| Answer::status(status).with("Location", MOVED))
        })
        .await;
        bmc.connect().await.set_power(PowerGoal::On).await.unwrap();
        assert_eq!(
            bmc.bodies("POST", MOVED),
            [serde_json::json!({"ResetType": "On"})],
            "{status}"
        );
        let moved = bmc
            .server
            .requests()
            .into_iter()
            .find(|request| request.is("POST", MOVED))
            .unwrap();
        assert!(moved.header("x-auth-token").is_some());
    }
    // Another port of the same host is a different service.
    let stranger = Server::start(None, Duration::ZERO, Arc::new(|_| Answer::status(200))).await;
    let away = format!("{}/redfish/v1/Systems/1", stranger.url());
    let bmc = Bmc::start(move |request, _| {
        request
            .is("GET", SYSTEM)
            .then(|| Answer::status(307).with("Location", &away))
    })
    .await;
    let failure = bmc.connect().await.system().await.unwrap_err();
    assert!(matches!(failure, RedfishError::ForeignRedirect { .. }), "{failure}");
    assert!(stranger.requests().is_empty());
}

/// The test below runs this in a process with a proxy in its environment.
#[tokio::test]
#[ignore = "run by environment_proxies_are_never_used"]
async fn with_a_proxy_in_the_environment() {
    assert!(std::env::var("HTTP_PROXY").is_ok());
    let bmc = Bmc::plain().await;
    let settings = Settings {
        retry: RetryPolicy::default(),
        ..bmc.settings()
    };
    BmcClient::connect(bmc.target(), settings)
        .await
        .unwrap()
        .system()
        .await
        .unwrap();
}

#[tokio::test]
async fn environment_proxies_are_never_used() {
    let proxy = Server::start(None, Duration::ZERO, Arc::new(|_| Answer::status(502))).await;
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "gate::with_a_proxy_in_the_environment", "--ignored"]);
    for name in [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ] {
        child.env(name, proxy.url());
    }
    child.env_remove("NO_PROXY").env_remove("no_proxy");
    let output = tokio::task::spawn_blocking(move || child.output())
        .await
        .unwrap()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    assert!(proxy.requests().is_empty());
}
