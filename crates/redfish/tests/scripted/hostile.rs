use std::time::{Duration, Instant};

use rackwright_redfish::{BmcClient, ErrorKind, Limits, RedfishError, Settings};
use serde_json::json;

use crate::bmc::{Bmc, SYSTEM};
use crate::server::Answer;

/// The client's error for this answer in place of a system.
async fn system_answered_by(answer: Answer) -> RedfishError {
    let bmc = Bmc::start(move |request, _| request.is("GET", SYSTEM).then(|| answer.clone())).await;
    let client = bmc.connect().await;
    let failure = client.system().await.unwrap_err();
    // The client is still usable afterwards.
    client.manager_probe().await;
    failure
}

trait Probe {
    async fn manager_probe(&self);
}

impl Probe for BmcClient {
    async fn manager_probe(&self) {
        self.get("/redfish/v1/Managers/BMC").await.unwrap();
    }
}

#[tokio::test]
async fn answers_that_are_no_json_object() {
    for (body, words) in [
        ("{\"a\": [1, 2", "EOF"),
        ("<html>Welcome</html>", "<html>Welcome"),
        ("[1, 2]", "expected a JSON object"),
        ("null", "expected a JSON object"),
        ("", "expected a JSON object"),
        ("{\"a\": 1} trailing", "trailing"),
    ] {
        let failure = system_answered_by(Answer::text(200, body)).await;
        assert!(matches!(failure, RedfishError::NotJson { .. }), "{body}: {failure}");
        assert!(failure.to_string().contains(words), "{body}: {failure}");
        assert_eq!(failure.kind(), ErrorKind::Permanent);
    }
}

#[tokio::test]
async fn invalid_characters_do_not_lose_the_answer() {
    let mut body = b"\xef\xbb\xbf{\"Model\": \"Gr\xf6\xdfe\", \"PowerState\": \"On\"}".to_vec();
    let mut raw = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    raw.append(&mut body);
    let bmc = Bmc::start(move |request, _| request.is("GET", SYSTEM).then(|| Answer::Raw(raw.clone()))).await;
    let system = bmc.connect().await.system().await.unwrap();
    assert_eq!(system.power_state(), rackwright_redfish::PowerState::On);
}

#[tokio::test]
async fn truncated_answers_are_broken_connections() {
    let raw = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{\"Id\": \"1\"".to_vec();
    let failure = system_answered_by(Answer::Raw(raw)).await;
    assert!(matches!(failure, RedfishError::Broken { .. }), "{failure}");
}

#[tokio::test]
async fn gigantic_answers_are_cut_off() {
    let announced = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{".to_vec();
    let failure = system_answered_by(Answer::Raw(announced)).await;
    assert!(
        matches!(
            failure,
            RedfishError::BodyTooLarge {
                limit_bytes: 8_388_608,
                ..
            }
        ),
        "{failure}"
    );

    // No length and no end: the first 64 KiB contain a complete head.
    let endless = Bmc::start(|request, _| {
        let chunk = || {
            let mut bytes = b"HTTP/1.1 200 OK\r\n\r\n{\"a\":\"".to_vec();
            bytes.resize(1 << 16, b'x');
            Answer::Drip(bytes, Duration::ZERO)
        };
        request.is("GET", SYSTEM).then(chunk)
    })
    .await;
    let small = Limits {
        body_bytes: 1 << 20,
        ..Limits::default()
    };
    let settings = Settings {
        limits: small,
        ..endless.settings()
    };
    let client = BmcClient::connect(endless.target(), settings).await.unwrap();
    let failure = client.system().await.unwrap_err();
    assert!(
        matches!(
            failure,
            RedfishError::BodyTooLarge {
                limit_bytes: 1_048_576,
                ..
            }
        ),
        "{failure}"
    );
}

#[tokio::test]
async fn deep_and_wide_answers_are_refused_before_parsing() {
    for (body, words) in [
        (
            format!("{}1{}", "{\"a\":".repeat(5000), "}".repeat(5000)),
            "nested deeper than 64 levels",
        ),
        (
            format!("{{\"a\":[{}0]}}", "0,".repeat(600_000)),
            "more than 500000 values",
        ),
    ] {
        let failure = system_answered_by(Answer::text(200, &body)).await;
        assert!(failure.to_string().ends_with(words), "{failure}");
    }
}

#[tokio::test]
async fn a_slow_drip_ends_at_the_time_limit() {
    let bmc = Bmc::start(|request, _| {
        let drip = || Answer::Drip(b"HTTP/1.1 200 OK\r\nX: ".to_vec(), Duration::from_millis(20));
        request.is("GET", SYSTEM).then(drip)
    })
    .await;
    let settings = Settings {
        request_timeout: Duration::from_millis(400),
        ..bmc.settings()
    };
    let client = BmcClient::connect(bmc.target(), settings).await.unwrap();
    let started = Instant::now();
    let failure = client.system().await.unwrap_err();
    assert!(
        matches!(failure, RedfishError::TimedOut { .. } | RedfishError::Broken { .. }),
        "{failure:?}"
    );
    assert_eq!(failure.kind(), ErrorKind::Retryable);
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn pages_are_read_to_the_end_and_not_beyond() {
    let page = |n: usize, next: Option<String>| {
        let member = format!("/redfish/v1/Big/m{n}");
        let mut body = json!({"Members": [{"@odata.id": member}, null, {"Bogus": 1}]});
        if let Some(next) = next {
            body["Members@odata.nextLink"] = json!(next);
        }
        Answer::json(200, &body)
    };
    let bmc = Bmc::start(move |request, _| {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let n: usize = query.trim_start_matches("$skip=").parse().unwrap_or(0);
        match path {
            "/redfish/v1/Big" => Some(page(n, (n < 3).then(|| format!("/redfish/v1/Big?$skip={}", n + 1)))),
            "/redfish/v1/Query" => Some(page(n, (n < 3).then(|| format!("?$skip={}", n + 1)))),
            "/redfish/v1/Endless" => Some(page(n, Some(format!("/redfish/v1/Endless?$skip={}", n + 1)))),
            "/redfish/v1/Circle" => Some(page(n, Some(format!("/redfish/v1/Circle?$skip={}", (n + 1) % 3)))),
            "/redfish/v1/Away" => Some(page(n, Some("http://203.0.113.9/next".to_owned()))),
            "/redfish/v1/Null" => Some(Answer::json(200, &json!({"Members": null}))),
            "/redfish/v1/Missing" => Some(Answer::json(200, &json!({}))),
            _ => None,
        }
    })
    .await;
    let client = bmc.connect().await;
    let members = ["m0", "m1", "m2", "m3"].map(|name| format!("/redfish/v1/Big/{name}"));
    assert_eq!(client.member_links("/redfish/v1/Big").await.unwrap(), members);
    assert_eq!(client.member_links("/redfish/v1/Query").await.unwrap(), members);
    for empty in ["/redfish/v1/Null", "/redfish/v1/Missing"] {
        assert!(client.member_links(empty).await.unwrap().is_empty());
    }
    for bad in ["/redfish/v1/Endless", "/redfish/v1/Circle"] {
        let failure = client.member_links(bad).await.unwrap_err();
        assert!(matches!(failure, RedfishError::EndlessCollection { .. }), "{failure}");
    }
    assert!(bmc.server.requests().len() < 200);
    assert!(matches!(
        client.member_links("/redfish/v1/Away").await,
        Err(RedfishError::ForeignLink { .. })
    ));
}

#[tokio::test]
async fn links_that_lead_away_are_not_followed() {
    let bmc = Bmc::plain().await;
    bmc.set(
        "/redfish/v1/Systems",
        "/Members",
        json!([{"@odata.id": "//203.0.113.9/redfish/v1/Systems/1"}]),
    );
    let failure = bmc.connect().await.system().await.unwrap_err();
    assert!(matches!(failure, RedfishError::ForeignLink { .. }), "{failure}");
}

#[tokio::test]
async fn redirect_loops_end() {
    let failure = system_answered_by(Answer::status(302).with("Location", SYSTEM)).await;
    assert!(failure.to_string().contains("more than 3 redirects"), "{failure}");
}
