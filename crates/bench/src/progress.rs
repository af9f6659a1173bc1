//! The fleet's progress from the event stream: which machine passed which edge at which time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1::event_service_client::EventServiceClient;
use rackwright_api::v1::{Event, StreamEventsRequest};
use rackwright_cli_context::client::{Client, open_stream};
use rackwright_cli_context::error::CliError;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt as _;

/// Number of failures with a stored message.
const FAILURES_KEPT: usize = 10;

/// The edges at which a phase begins and ends, as the lifecycle's chart names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Edge {
    Enrolled,
    Inspected,
    HostUp,
    Validated,
    Erased,
}

impl Edge {
    fn parse(kind: &str) -> Option<Self> {
        Some(match kind {
            "enrolled" => Self::Enrolled,
            "inspected" => Self::Inspected,
            "hostup" => Self::HostUp,
            "validated" => Self::Validated,
            "erased" => Self::Erased,
            _ => return None,
        })
    }
}

/// Passages of one edge.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passages {
    pub count: usize,
    /// Seconds since 1970, by the control plane's clock.
    pub first_s: f64,
    pub last_s: f64,
}

/// The progress so far.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    edges: BTreeMap<Edge, Passages>,
    /// The time at which each watched machine passed each edge.
    watched: HashMap<String, BTreeMap<Edge, f64>>,
    /// Machines that failed or were condemned, with the reason.
    failed: HashMap<String, String>,
    /// Why the event stream has ended.
    broken: Option<String>,
}

impl Tally {
    pub fn edge(&self, edge: Edge) -> Passages {
        self.edges.get(&edge).copied().unwrap_or_default()
    }

    pub fn failed(&self) -> usize {
        self.failed.len()
    }

    /// Some of the failures, as texts.
    pub fn failures(&self) -> Vec<String> {
        let mut words: Vec<_> = self.failed.iter().map(|(node, why)| format!("{node}: {why}")).collect();
        words.sort();
        words.truncate(FAILURES_KEPT);
        words
    }

    /// The time at which the watched machine passed an edge, in seconds since 1970; none if it has not passed it.
    pub fn passed_s(&self, machine: &str, edge: Edge) -> Option<f64> {
        self.watched.get(machine)?.get(&edge).copied()
    }

    fn take(&mut self, event: &Event) {
        if let Some((machine, edge)) = passage(event) {
            let at = event
                .time
                .as_ref()
                .map_or(0.0, |t| t.seconds as f64 + f64::from(t.nanos) / 1e9);
            if let Some(edges) = self.watched.get_mut(machine) {
                edges.insert(edge, at);
            }
            let passages = self.edges.entry(edge).or_default();
            if passages.count == 0 {
                passages.first_s = at;
            }
            passages.count += 1;
            passages.last_s = passages.last_s.max(at);
        } else if matches!(event.kind.as_str(), "failed" | "condemned") {
            self.failed.insert(event.target.clone(), event.message.clone());
        }
    }
}

/// The machine and the edge, if the event is a passage.
fn passage(event: &Event) -> Option<(&str, Edge)> {
    let edge = Edge::parse(&event.kind)?;
    Some((event.target.strip_prefix("nodes/").unwrap_or_default(), edge))
}

/// A machine that has just passed an edge.
pub type Passage = (String, Edge);

/// The tally, kept up to date from the event stream.
#[derive(Debug)]
pub struct Progress {
    tally: watch::Receiver<Tally>,
}

impl Progress {
    /// Follows all events from the first one, stores the times of some machines, and sends each passage to `passages`:
    /// no more events are read while that channel is full.
    pub fn follow(
        client: Arc<Client>,
        watched: impl Iterator<Item = String>,
        passages: Option<mpsc::Sender<Passage>>,
    ) -> Self {
        let (sender, tally) = watch::channel(Tally {
            watched: watched.map(|machine| (machine, BTreeMap::new())).collect(),
            ..Tally::default()
        });
        tokio::spawn(async move {
            let ended = follow(&client, &sender, passages).await;
            let why = ended.map_or_else(|e| e.to_string(), |()| "the event stream ended".to_owned());
            sender.send_modify(|tally| tally.broken = Some(why));
        });
        Self { tally }
    }

    pub fn now(&self) -> Tally {
        self.tally.borrow().clone()
    }

    /// Waits until `nodes` machines have passed `edge` or failed; an error if there is no progress at all for `patience`.
    pub async fn until(&mut self, edge: Edge, nodes: usize, patience: Duration) -> Result<Tally, CliError> {
        loop {
            let (done, passed) = {
                let tally = self.tally.borrow_and_update();
                if let Some(why) = &tally.broken {
                    return Err(CliError::BadAnswer(why.clone()));
                }
                let passed = tally.edge(edge).count;
                (passed + tally.failed() >= nodes, passed)
            };
            if done {
                return Ok(self.now());
            }
            match tokio::time::timeout(patience, self.tally.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(CliError::BadAnswer("the event stream ended".to_owned())),
                Err(_) => {
                    return Err(CliError::TimedOut {
                        what: format!("{edge:?} ({passed} of {nodes} nodes)"),
                        after: format!("{} s without progress", patience.as_secs()),
                        hint: "run the command again with --keep DIR and read the logs in DIR".to_owned(),
                    });
                }
            }
        }
    }
}

async fn follow(
    client: &Client,
    tally: &watch::Sender<Tally>,
    mut passages: Option<mpsc::Sender<Passage>>,
) -> Result<(), CliError> {
    let mut position = 0;
    loop {
        let request = StreamEventsRequest {
            after_position: position,
            ..StreamEventsRequest::default()
        };
        let doing = "follow the events";
        let mut stream = open_stream!(client, EventServiceClient.stream_events, doing, request).await?;
        // A broken stream is resumed at its position: the control plane may have been restarted on purpose.
        while let Some(Ok(event)) = stream.next().await {
            position = event.position;
            tally.send_modify(|tally| tally.take(&event));
            if let (Some(sender), Some((machine, edge))) = (&passages, passage(&event))
                && sender.send((machine.to_owned(), edge)).await.is_err()
            {
                passages = None;
            }
        }
        if tally.is_closed() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, target: &str, second: i64) -> Event {
        Event {
            kind: kind.to_owned(),
            target: target.to_owned(),
            message: "why".to_owned(),
            time: Some(prost_types::Timestamp {
                seconds: second,
                nanos: 500_000_000,
            }),
            ..Event::default()
        }
    }

    #[test]
    fn edges_are_counted_and_timed_and_a_node_fails_once() {
        let mut tally = Tally {
            watched: [("b".to_owned(), BTreeMap::new())].into(),
            ..Tally::default()
        };
        for (kind, node, second) in [
            ("validated", "nodes/a", 3),
            ("power.on", "nodes/a", 4),
            ("validated", "nodes/b", 7),
            ("failed", "nodes/c", 8),
            ("condemned", "nodes/c", 9),
        ] {
            tally.take(&event(kind, node, second));
        }
        let passages = tally.edge(Edge::Validated);
        assert_eq!((passages.count, passages.first_s, passages.last_s), (2, 3.5, 7.5));
        assert_eq!((tally.failed(), tally.failures()), (1, vec!["nodes/c: why".to_owned()]));
        assert_eq!(tally.edge(Edge::Erased).count, 0);
        assert_eq!(tally.passed_s("b", Edge::Validated), Some(7.5));
        assert_eq!(tally.passed_s("a", Edge::Validated), None, "node a is not tracked");
    }
}
