//! The event stream of a BMC (DSP0266, "Server-sent events"). An event only triggers a reading of the power; its content is
//! not trusted.

use rackwright_redfish_wire::error::{Exchange, RedfishError};
use rackwright_redfish_wire::json;
use rackwright_redfish_wire::sender::Answer;
use rackwright_redfish_wire::sse::Parser;
use serde_json::Value;

use crate::client::BmcClient;

/// Messages with more JSON values are ignored.
const MAX_VALUES: usize = 20_000;
/// Messages with deeper nesting are ignored.
const MAX_DEPTH: usize = 32;
/// Endings of message ids that may report another power state, without regard to case (DSP8011: `ResourceEvent`, `Power`,
/// and vendors' own).
const CHANGE_ENDINGS: [&str; 2] = ["resourcechanged", "statechanged"];

/// An open stream of events.
#[derive(Debug)]
pub struct EventStream {
    at: Box<Exchange>,
    response: Answer,
    parser: Parser,
    /// Events about the power that [`Self::next_change`] has not returned yet.
    pending: usize,
    last_id: Option<String>,
}

impl EventStream {
    /// Waits for an event that may mean another power state and ignores all others. Returns false at the end of the
    /// stream.
    ///
    /// # Errors
    /// The connection broke, or the data is not an event stream.
    pub async fn next_change(&mut self) -> Result<bool, RedfishError> {
        loop {
            if self.pending > 0 {
                self.pending -= 1;
                return Ok(true);
            }
            let piece = self.response.chunk().await.map_err(|source| RedfishError::Broken {
                at: self.at.clone(),
                source,
            })?;
            let Some(piece) = piece else { return Ok(false) };
            let messages = self.parser.feed(&piece).map_err(|_| RedfishError::TooComplex {
                at: self.at.clone(),
                why: "an event is longer than the limit".to_owned(),
            })?;
            for message in messages {
                self.last_id = message.id;
                if may_change_power(&message.data) {
                    self.pending += 1;
                }
            }
        }
    }

    /// The id of the last event, from which the stream can be resumed.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }
}

/// Whether a message may mean another power state: one of its events reports such a change, or concerns a whole system.
fn may_change_power(data: &str) -> bool {
    if json::check_cost(data, MAX_DEPTH, MAX_VALUES).is_err() {
        return false;
    }
    let Ok(message) = serde_json::from_str::<Value>(data) else {
        return false;
    };
    let events = message.get("Events").and_then(Value::as_array);
    events.is_some_and(|events| events.iter().any(is_about_power))
}

fn is_about_power(event: &Value) -> bool {
    let id = json::text(event, &["MessageId"])
        .unwrap_or_default()
        .to_ascii_lowercase();
    let kind = id.rsplit('.').next().unwrap_or_default();
    if kind.contains("power") || CHANGE_ENDINGS.iter().any(|end| kind.ends_with(end)) {
        return true;
    }
    let origin = json::link(event, &["OriginOfCondition"]).unwrap_or_default();
    let mut parents = origin.trim_end_matches('/').rsplit('/').skip(1);
    parents.next() == Some("Systems")
}

impl BmcClient {
    /// Opens the event stream, after the event `last_id` if it is given. None: the BMC offers no stream.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub async fn event_stream(&self, last_id: Option<&str>) -> Result<Option<EventStream>, RedfishError> {
        let Some(service) = self.service_root().await?.event_service() else {
            return Ok(None);
        };
        let service = self.get(&service).await?;
        let uri = service.text(&["ServerSentEventUri"]);
        let Some(uri) = uri.filter(|_| service.flag(&["ServiceEnabled"]) != Some(false)) else {
            return Ok(None);
        };
        let url = self.bmc().resolve(None, &uri)?;
        let Some((at, response)) = self.open_stream(url, last_id).await? else {
            return Ok(None);
        };
        Ok(Some(EventStream {
            at,
            response,
            parser: Parser::default(),
            pending: 0,
            last_id: last_id.map(str::to_owned),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::settings::{BmcTarget, Settings};
    use crate::{BmcHints, Gates, LoginMethod};

    /// Generous: other tests run at the same time.
    const TEST_LIMIT: Duration = Duration::from_secs(60);

    async fn client() -> (BmcClient, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = BmcTarget {
            address: format!("http://{}", listener.local_addr().unwrap()),
            username: "admin".to_owned(),
            password: "secret".into(),
            certificate_sha256: None,
            system: None,
        };
        let settings = Settings {
            max_concurrent: 1,
            gates: Some(Arc::new(Gates::default())),
            ..Settings::default()
        };
        let known = BmcHints {
            login: LoginMethod::EachRequest,
            ..BmcHints::default()
        };
        (BmcClient::for_polling(target, settings, &known).unwrap(), listener)
    }

    async fn accept(listener: &TcpListener) -> TcpStream {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut head).await.unwrap() > 0);
        }
        stream
    }

    async fn open(client: &BmcClient) -> Result<bool, RedfishError> {
        let url = client.bmc().resolve(None, "/sse")?;
        let stream = tokio::time::timeout(TEST_LIMIT, client.open_stream(url, None))
            .await
            .unwrap()?;
        Ok(stream.is_some())
    }

    #[tokio::test]
    async fn streams_that_cannot_be_opened_close_the_gate() {
        let (client, listener) = client().await;
        for _ in 0..5 {
            let hangs_up = async { drop(accept(&listener).await) };
            let (failure, ()) = tokio::join!(open(&client), hangs_up);
            assert!(matches!(failure, Err(RedfishError::Broken { .. })), "{failure:?}");
        }
        let failure = open(&client).await.unwrap_err();
        assert!(
            matches!(failure, RedfishError::Suspended { failures: 5, .. }),
            "{failure}"
        );
    }

    #[tokio::test]
    async fn an_open_stream_does_not_occupy_the_gate() {
        const PLACES: usize = 4;
        let (client, listener) = client().await;
        let answer = async |body: &str| {
            let mut stream = accept(&listener).await;
            stream.write_all(body.as_bytes()).await.unwrap();
            stream
        };
        let mut held = Vec::new();
        // More streams than the gate has places.
        for _ in 0..=PLACES {
            let head = answer("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
            let url = client.bmc().resolve(None, "/sse").unwrap();
            let opened = tokio::time::timeout(TEST_LIMIT, async { tokio::join!(client.open_stream(url, None), head) });
            held.push(opened.await.unwrap());
        }
        let body = answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        let read = tokio::time::timeout(TEST_LIMIT, async { tokio::join!(client.get("/redfish/v1/X"), body) });
        read.await.unwrap().0.unwrap();
        for (opened, _) in held {
            assert!(opened.unwrap().is_some());
        }
    }

    #[test]
    fn events_of_the_power_and_of_the_system_are_hints_and_others_are_not() {
        let one = |id: &str, origin: &str| {
            let event = serde_json::json!({"MessageId": id, "OriginOfCondition": {"@odata.id": origin}});
            serde_json::json!({"Events": [{"MessageId": "Base.1.0.Other"}, event]}).to_string()
        };
        for (id, origin, expected) in [
            ("ResourceEvent.1.3.PowerStateChanged", "", true),
            ("ResourceEvent.1.0.ResourceChanged", "/redfish/v1/Systems/1", true),
            (
                "ResourceEvent.1.0.ResourceStatusChangedOK",
                "/redfish/v1/Chassis/1",
                false,
            ),
            ("iLOEvents.2.3.ServerPoweredOff", "", true),
            ("Power.1.0.StateChanged", "", true),
            ("IDRAC.2.8.SYS1001", "/redfish/v1/Systems/System.Embedded.1", true),
            ("IDRAC.2.8.SYS1001", "/redfish/v1/Systems/1/", true),
            ("IDRAC.2.8.LOG007", "/redfish/v1/Systems/1/LogServices/1", false),
            (
                "TaskEvent.1.0.TaskCompletedOK",
                "/redfish/v1/TaskService/Tasks/1",
                false,
            ),
            ("", "/redfish/v1/Systems", false),
        ] {
            assert_eq!(may_change_power(&one(id, origin)), expected, "{id} {origin}");
        }
        let deep = format!("{{\"Events\": {}{}}}", "[".repeat(5000), "]".repeat(5000));
        for unrelated in [
            "",
            "[]",
            "{}",
            "{\"Events\": 1}",
            "{\"Events\": [null, 7, {\"MessageId\": 3}]}",
            "{",
            &deep,
        ] {
            assert!(!may_change_power(unrelated), "{:.60}", unrelated);
        }
    }
}
