//! Slow answers: limits for a body, and for all resources of a walk together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rackwright_redfish::{BmcClient, Environment, RedfishError, RetryPolicy, Settings};
use serde_json::{Value, json};

use crate::abuse::{TEST_LIMIT, full_tree};
use crate::bmc::{Bmc, TestEnvironment};
use crate::server::Answer;

#[tokio::test]
async fn a_walk_through_slow_answers_ends_with_partial_results() {
    let bmc = Bmc::start_with(full_tree(), Duration::from_millis(30), |request, _| {
        let path = request.path.clone();
        let links: Vec<Value> = (0..2000).map(|n| json!({"@odata.id": format!("{path}/{n}")})).collect();
        request
            .is("GET", "/redfish/v1/Systems/1/Memory")
            .then(|| Answer::json(200, &json!({"Members": links})))
    })
    .await;
    let settings = Settings {
        walk_timeout: Duration::from_secs(5),
        ..Settings::default()
    };
    let client = BmcClient::connect(bmc.target(), settings).await.unwrap();
    let started = Instant::now();
    let found = client.inventory().await.unwrap();
    assert!(
        found
            .gaps
            .iter()
            .any(|gap| gap.why.contains("the time limit of 5 s was reached")),
        "{:?}",
        found.gaps.len()
    );
    assert_eq!(found.processors.len(), 1, "what was read before is kept");
    assert!(started.elapsed() < TEST_LIMIT);
}

/// Memory modules of a slow BMC.
const MODULES: usize = 600;

/// A BMC with [`MODULES`] memory modules. The body of each module arrives in three pieces, with this pause before each.
async fn dripping(pause: Duration) -> Bmc {
    modules(move |body| Answer::Pieces(body.into_bytes(), 3, pause)).await
}

/// A BMC with [`MODULES`] memory modules, and the answer with the body of one.
async fn modules(answer: impl Fn(String) -> Answer + Send + Sync + 'static) -> Bmc {
    Bmc::start_with(full_tree(), Duration::ZERO, move |request, _| {
        let path = request.path.clone();
        let links: Vec<Value> = (0..MODULES)
            .map(|n| json!({"@odata.id": format!("{path}/{n}")}))
            .collect();
        if path.starts_with("/redfish/v1/Systems/1/Memory/") {
            let body = json!({"@odata.id": path, "Id": "1", "CapacityMiB": 1024}).to_string();
            return Some(answer(body));
        }
        request
            .is("GET", "/redfish/v1/Systems/1/Memory")
            .then(|| Answer::json(200, &json!({"Members": links})))
    })
    .await
}

#[tokio::test]
async fn a_walk_ends_where_every_body_is_slow() {
    let bmc = dripping(Duration::from_millis(200)).await;
    // Two requests at once: 300 ms a resource, and 100 ms are allowed.
    let settings = Settings {
        walk_grace: Duration::from_secs(3),
        walk_pace: Duration::from_millis(100),
        ..Settings::default()
    };
    let client = BmcClient::connect(bmc.target(), settings).await.unwrap();
    let found = client.inventory().await.unwrap();
    let slow = found
        .gaps
        .iter()
        .filter(|gap| gap.why.contains("answers too slowly"))
        .count();
    assert_eq!(slow, 1, "{:?}", found.gaps);
    // On a busy computer, what comes before the modules may use up all the time.
    assert!(found.memory.len() < MODULES / 2, "{}", found.memory.len());
}

#[tokio::test]
async fn by_default_a_slow_bmc_is_read_to_the_end_and_one_that_drips_2_s_a_piece_ends_within_4_minutes() {
    // Two requests at once: a body of three pieces, with 2 s for each, takes 3 s a resource.
    for (answer_s, is_whole) in [(2, true), (4, false), (6, false)] {
        let clock = Arc::new(TestEnvironment::default());
        let passing = Arc::clone(&clock);
        let bmc = modules(move |body| {
            passing.advance(Duration::from_secs(answer_s) / 2);
            Answer::text(200, &body)
        })
        .await;
        let settings = Settings {
            environment: Arc::clone(&clock) as Arc<dyn Environment>,
            ..Settings::default()
        };
        let client = BmcClient::connect(bmc.target(), settings).await.unwrap();
        let found = client.inventory().await.unwrap();
        let spent = clock.elapsed();
        let is_slow = found.gaps.iter().any(|gap| gap.why.contains("answers too slowly"));
        assert_eq!(is_slow, !is_whole, "{answer_s} s: {:?}", found.gaps);
        assert_eq!(
            found.memory.len() == MODULES,
            is_whole,
            "{answer_s} s: {}",
            found.memory.len()
        );
        assert!(is_whole || spent < Duration::from_secs(240), "{answer_s} s: {spent:?}");
    }
}

#[tokio::test]
async fn a_body_has_a_size_limit_and_time_for_the_bytes_that_arrive() {
    let bmc = dripping(Duration::from_millis(400)).await;
    let link = "/redfish/v1/Systems/1/Memory/1";
    let get = async |body_timeout| {
        let settings = Settings {
            body_timeout,
            retry: RetryPolicy {
                retries: 0,
                ..RetryPolicy::default()
            },
            ..bmc.settings()
        };
        let client = BmcClient::connect(bmc.target(), settings).await.unwrap();
        client.get(link).await
    };
    let late = get(Duration::from_millis(100)).await.unwrap_err();
    assert!(matches!(late, RedfishError::TimedOut { .. }), "{late}");
    get(TEST_LIMIT).await.unwrap();
}
