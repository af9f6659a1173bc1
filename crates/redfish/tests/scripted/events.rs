//! Streams of events.

use std::time::Duration;

use rackwright_redfish::{BmcClient, BmcHints, EventStream, RedfishError};
use serde_json::{Value, json};

use crate::bmc::{Bmc, standard_tree};
use crate::server::Answer;

const SERVICE: &str = "/redfish/v1/EventService";
const STREAM: &str = "/redfish/v1/EventService/SSE";

/// A BMC with the given event service and stream.
async fn bmc(service: Value, stream: impl Fn() -> Answer + Send + Sync + 'static) -> Bmc {
    let mut tree = standard_tree();
    let root = tree.get_mut("/redfish/v1").unwrap();
    root["EventService"] = json!({"@odata.id": SERVICE});
    tree.insert(SERVICE.into(), service);
    Bmc::start_with(tree, Duration::ZERO, move |request, _| {
        request.is("GET", STREAM).then(&stream)
    })
    .await
}

fn offered() -> Value {
    json!({"ServiceEnabled": true, "ServerSentEventUri": STREAM})
}

fn event(id: u32, kind: &str) -> String {
    let data =
        json!({"@odata.type": "#Event.v1_7_0.Event", "Events": [{"MessageId": format!("ResourceEvent.1.3.{kind}")}]});
    format!("id: {id}\ndata: {data}\n\n")
}

fn raw(body: &str) -> Answer {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n";
    Answer::Raw(format!("{head}{body}").into_bytes())
}

async fn open(bmc: &Bmc, last_id: Option<&str>) -> Result<Option<EventStream>, RedfishError> {
    let client = BmcClient::for_polling(bmc.target(), bmc.settings(), &BmcHints::default())?;
    client.event_stream(last_id).await
}

#[tokio::test]
async fn power_changes_are_events_and_the_stream_resumes_after_the_last() {
    let text = format!(
        ": welcome\n\n{}{}{}",
        event(7, "PowerStateChanged"),
        event(8, "LicenseExpired"),
        event(9, "ResourceChanged")
    );
    let bmc = bmc(offered(), move || raw(&text)).await;
    let mut stream = open(&bmc, None).await.unwrap().unwrap();
    assert!(stream.next_change().await.unwrap());
    assert!(stream.next_change().await.unwrap());
    assert!(!stream.next_change().await.unwrap(), "the BMC has ended it");
    assert_eq!(stream.last_id(), Some("9"));
    open(&bmc, stream.last_id()).await.unwrap().unwrap();
    let requests = bmc.server.requests();
    let ids: Vec<_> = requests
        .iter()
        .filter(|request| request.is("GET", STREAM))
        .map(|request| (request.header("accept"), request.header("last-event-id")))
        .collect();
    let accept = Some("text/event-stream");
    assert_eq!(ids, [(accept, None), (accept, Some("9"))]);
}

#[tokio::test]
async fn a_bmc_without_streams_gets_none() {
    for service in [
        json!({}),
        json!({"ServiceEnabled": false, "ServerSentEventUri": STREAM}),
    ] {
        let bmc = bmc(service, || Answer::status(500)).await;
        assert!(open(&bmc, None).await.unwrap().is_none());
        assert_eq!(bmc.server.count("GET", STREAM), 0);
    }
    assert!(open(&Bmc::plain().await, None).await.unwrap().is_none());
    for answer in [Answer::json(200, &json!({})), Answer::status(404), Answer::status(405)] {
        let bmc = bmc(offered(), move || answer.clone()).await;
        assert!(open(&bmc, None).await.unwrap().is_none());
    }
    let bmc = bmc(offered(), || Answer::status(503)).await;
    assert_eq!(open(&bmc, None).await.unwrap_err().status(), Some(503));
}

#[tokio::test]
async fn a_stream_that_is_one_endless_line_is_given_up() {
    let bmc = bmc(offered(), || raw(&"x".repeat(1 << 20))).await;
    let mut stream = open(&bmc, None).await.unwrap().unwrap();
    let failure = stream.next_change().await.unwrap_err();
    assert!(matches!(failure, RedfishError::TooComplex { .. }), "{failure}");
}
