//! The fleet's progress, from the event stream: each machine, the edges that it passed, and the times. An edge is a change
//! from one state of the lifecycle's chart to another.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1::event_service_client::EventServiceClient;
use rackwright_api::v1::{Event, StreamEventsRequest};
use rackwright_cli_context::client::{Client, open_stream};
use rackwright_cli_context::error::CliError;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt as _;

/// Maximum number of failures that [`Tally::failures`] returns.
const FAILURES_MAX: usize = 10;

/// The edges of the lifecycle's chart at which a phase begins or ends.
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

/// How often machines have passed one edge, with the first and the last time.
#[derive(Debug, Clone, Copy, Default)]
pub struct EdgeTimes {
    pub count: usize,
    /// Seconds since 1970, by the control plane's clock.
    pub first_s: f64,
    pub last_s: f64,
}

/// The progress so far.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    edges: BTreeMap<Edge, EdgeTimes>,
    /// The time at which each watched machine passed each edge.
    watched: HashMap<String, BTreeMap<Edge, f64>>,
    /// Machines that failed or went to quarantine (event `condemned`), each with the reason.
    failed: HashMap<String, String>,
    /// The reason why the event stream has ended; `None` while it lasts.
    end_reason: Option<String>,
}

impl Tally {
    pub fn edge(&self, edge: Edge) -> EdgeTimes {
        self.edges.get(&edge).copied().unwrap_or_default()
    }

    /// The number of machines that failed or went to quarantine.
    pub fn failed(&self) -> usize {
        self.failed.len()
    }

    /// The first failures in the order of the machines' names, each as a text.
    pub fn failures(&self) -> Vec<String> {
        let mut texts: Vec<_> = self.failed.iter().map(|(node, why)| format!("{node}: {why}")).collect();
        texts.sort();
        texts.truncate(FAILURES_MAX);
        texts
    }

    /// The time at which a watched machine passed the edge, in seconds since 1970. `None`: the machine is not watched, or
    /// has not passed the edge.
    pub fn passed_s(&self, machine: &str, edge: Edge) -> Option<f64> {
        self.watched.get(machine)?.get(&edge).copied()
    }

    fn record(&mut self, event: &Event) {
        if let Some((machine, edge)) = passage(event) {
            let at = event
                .time
                .as_ref()
                .map_or(0.0, |t| t.seconds as f64 + f64::from(t.nanos) / 1e9);
            if let Some(edges) = self.watched.get_mut(machine) {
                edges.insert(edge, at);
            }
            let times = self.edges.entry(edge).or_default();
            if times.count == 0 {
                times.first_s = at;
            }
            times.count += 1;
            times.last_s = times.last_s.max(at);
        } else if matches!(event.kind.as_str(), "failed" | "condemned") {
            self.failed.insert(event.target.clone(), event.message.clone());
        }
    }
}

/// The machine and the edge; `None`: the event is about no edge of [`Edge`].
fn passage(event: &Event) -> Option<(&str, Edge)> {
    let edge = Edge::parse(&event.kind)?;
    Some((event.target.strip_prefix("nodes/").unwrap_or_default(), edge))
}

/// A machine that has just passed an edge.
pub type Passage = (String, Edge);

/// A task that reads the event stream and updates the tally.
#[derive(Debug)]
pub struct Progress {
    tally: watch::Receiver<Tally>,
}

impl Progress {
    /// Follows all events from the first one. The tally stores the times of the machines in `watched`. Each passage is sent
    /// to `passages`; while that channel is full, no more events are read.
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
            sender.send_modify(|tally| tally.end_reason = Some(why));
        });
        Self { tally }
    }

    /// The tally up to now.
    pub fn now(&self) -> Tally {
        self.tally.borrow().clone()
    }

    /// Waits until `nodes` machines have passed `edge` or failed. An error if no event of any kind arrives for `patience`.
    pub async fn until(&mut self, edge: Edge, nodes: usize, patience: Duration) -> Result<Tally, CliError> {
        loop {
            let (done, passed) = {
                let tally = self.tally.borrow_and_update();
                if let Some(why) = &tally.end_reason {
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
        // A broken stream is resumed after the last event: the phase `restart` kills and starts the control plane.
        while let Some(Ok(event)) = stream.next().await {
            position = event.position;
            tally.send_modify(|tally| tally.record(&event));
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
            tally.record(&event(kind, node, second));
        }
        let times = tally.edge(Edge::Validated);
        assert_eq!((times.count, times.first_s, times.last_s), (2, 3.5, 7.5));
        assert_eq!((tally.failed(), tally.failures()), (1, vec!["nodes/c: why".to_owned()]));
        assert_eq!(tally.edge(Edge::Erased).count, 0);
        assert_eq!(tally.passed_s("b", Edge::Validated), Some(7.5));
        assert_eq!(tally.passed_s("a", Edge::Validated), None, "machine a is not watched");
    }
}
