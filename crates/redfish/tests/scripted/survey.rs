//! The answer of an address to a client without a login.

use rackwright_redfish::{BmcClient, RedfishError, ServiceFacts, Survey};
use serde_json::json;

use crate::bmc::Bmc;
use crate::server::Answer;

async fn survey(bmc: &Bmc) -> Result<Survey, RedfishError> {
    let found = BmcClient::survey(&bmc.server.url(), bmc.settings()).await;
    for request in bmc.server.requests() {
        assert_eq!(request.header("authorization"), None);
        assert_eq!(request.header("x-auth-token"), None);
        assert!(request.is("GET", "/redfish/v1/") || request.is("GET", "/redfish/v1"));
    }
    found
}

/// The reason that is reported for this answer.
async fn reason(answer: impl Fn() -> Answer + Send + Sync + 'static) -> String {
    let bmc = Bmc::start(move |_, _| Some(answer())).await;
    let found = survey(&bmc).await.unwrap();
    assert_eq!(found.service, None);
    found.reason
}

#[tokio::test]
async fn a_service_is_known_by_its_root() {
    let bmc = Bmc::start(|request, _| {
        let root = json!({
            "@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot", "RedfishVersion": "1.6.0", "Product": "P", "Oem": {"Maker": {}},
            "UUID": "1DE17171-0000-4000-8000-00000000000A", "Systems": {"@odata.id": "/redfish/v1/Systems"},
        });
        // Some BMCs answer only without the slash.
        let is_bare = request.is("GET", "/redfish/v1");
        Some(if is_bare { Answer::json(200, &root) } else { Answer::status(404) })
    })
    .await;
    let facts = ServiceFacts {
        redfish_version: Some("1.6.0".into()),
        vendor: Some("Maker".into()),
        product: Some("P".into()),
        uuid: Some("1de17171-0000-4000-8000-00000000000a".into()),
    };
    assert_eq!(survey(&bmc).await.unwrap().service, Some(facts));
}

#[tokio::test]
async fn other_services_are_recognised_by_their_answer() {
    for (why, words) in [
        (reason(|| Answer::text(200, "<html>")).await, "not a JSON object"),
        (
            reason(|| Answer::json(200, &json!({"hello": "world"}))).await,
            "not a Redfish service root",
        ),
        (
            reason(|| Answer::json(200, &json!({"RedfishVersion": "1.6.0"}))).await,
            "not a Redfish service root",
        ),
        (reason(|| Answer::json(200, &json!([1]))).await, "not a JSON object"),
        (reason(|| Answer::status(404)).await, "HTTP 404"),
        (
            reason(|| Answer::status(301).with("location", "https://elsewhere/")).await,
            "another host",
        ),
        (reason(|| Answer::status(401)).await, "requires a password"),
        (reason(|| Answer::text(200, &"[".repeat(9 << 20))).await, "larger"),
    ] {
        assert!(why.contains(words), "{why}");
    }
    let failure = BmcClient::survey("http://127.0.0.1:1", Bmc::plain().await.settings()).await;
    assert!(matches!(failure, Err(RedfishError::Unreachable { .. })), "{failure:?}");
}
