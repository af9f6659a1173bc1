//! What a BMC tells by itself: the stream of its event service (DSP0266, "Server-sent events"). An event is a hint to look,
//! and never believed.

use std::collections::VecDeque;

use reqwest::Response;
use serde_json::Value;

use crate::client::BmcClient;
use crate::error::RedfishError;
use crate::json;
use crate::sse::Parser;

/// Most values of a message that is looked at.
const VALUES: usize = 20_000;
/// Deepest nesting of one.
const DEPTH: usize = 32;
/// What the ids of messages end with that may tell of another power state, without regard to case (DSP8011: `ResourceEvent`,
/// `Power`, and what vendors call theirs).
const CHANGES: [&str; 2] = ["resourcechanged", "statechanged"];

/// An open stream of events.
#[derive(Debug)]
pub struct EventStream {
    at: Box<crate::error::Exchange>,
    response: Response,
    parser: Parser,
    waiting: VecDeque<()>,
    last_id: Option<String>,
}

impl EventStream {
    /// Waits for an event after which the power may be another; whatever else is told is passed over. False when the
    /// stream has ended.
    ///
    /// # Errors
    /// The connection broke, or what came is no stream of events.
    pub async fn next_change(&mut self) -> Result<bool, RedfishError> {
        loop {
            if self.waiting.pop_front().is_some() {
                return Ok(true);
            }
            let piece = self.response.chunk().await.map_err(|source| RedfishError::Broken {
                at: self.at.clone(),
                source: source.without_url(),
            })?;
            let Some(piece) = piece else { return Ok(false) };
            let messages = self.parser.feed(&piece).map_err(|_| RedfishError::TooComplex {
                at: self.at.clone(),
                why: "an event is longer than any that makes sense".to_owned(),
            })?;
            for message in messages {
                self.last_id = message.id;
                if may_change_power(&message.data) {
                    self.waiting.push_back(());
                }
            }
        }
    }

    /// The id of the last event, behind which the stream can be taken up again.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }
}

/// Whether a message may tell that the power is another: one of its events is of that kind, or is about a system as a
/// whole.
fn may_change_power(data: &str) -> bool {
    if json::check_cost(data, DEPTH, VALUES).is_err() {
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
    if kind.contains("power") || CHANGES.iter().any(|end| kind.ends_with(end)) {
        return true;
    }
    let origin = json::link(event, &["OriginOfCondition"]).unwrap_or_default();
    let mut parents = origin.trim_end_matches('/').rsplit('/').skip(1);
    parents.next() == Some("Systems")
}

impl BmcClient {
    /// Opens the stream of events, behind the event `last_id` where that is known. None where the BMC offers none.
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
            waiting: VecDeque::new(),
            last_id: last_id.map(str::to_owned),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for nothing in [
            "",
            "[]",
            "{}",
            "{\"Events\": 1}",
            "{\"Events\": [null, 7, {\"MessageId\": 3}]}",
            "{",
            &deep,
        ] {
            assert!(!may_change_power(nothing), "{:.60}", nothing);
        }
    }
}
