//! Event streams of BMCs. A node with an open stream needs fewer looks. An event only triggers a look; its content is
//! not trusted.

use std::collections::HashMap;

use rackwright_ground::config::power_watch::Settings;
use rackwright_lifecycle::{NodeId, Timestamp, seconds};
use rackwright_redfish::{BmcClient, RedfishError};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::schedule::Id;

/// Pause before a BMC without a stream is tried again, in seconds: its firmware may be new by then.
const NOT_OFFERED_S: i64 = 24 * 3600;
/// A stream that has lasted this many seconds counts as working.
const WORKED_S: i64 = 600;
/// First pause after a stream that did not work, as a multiple of `recheck_s`. It doubles with each failure.
const FIRST_PAUSE: i64 = 5;
/// Most doublings of that pause.
const DOUBLINGS: u32 = 8;
/// Hints in the queue. While the watch is busy, streams wait.
const WAITING: usize = 256;

/// Message from a stream's task.
#[derive(Debug)]
pub(super) enum StreamEvent {
    /// The stream is open.
    Open(Id),
    /// An event reports a change that may concern the power.
    Hint(Id),
    /// The BMC offers no stream.
    NotOffered(Id),
    /// The stream ended after the event of this id.
    Ended(Id, Option<String>),
}

/// The stream of one node.
#[derive(Debug)]
enum Stream {
    /// The stream is being opened, or is open since `open_since`.
    Running {
        task: AbortHandle,
        open_since: Option<Timestamp>,
        failures: u32,
    },
    /// No stream; the next try is at `until`.
    Waiting {
        until: Timestamp,
        failures: u32,
        last_id: Option<String>,
    },
}

/// All streams of this process.
#[derive(Debug)]
pub(super) struct Streams {
    limit: usize,
    first_pause_s: i64,
    streams: HashMap<Id, Stream>,
    running: usize,
    sender: mpsc::Sender<StreamEvent>,
}

impl Drop for Streams {
    fn drop(&mut self) {
        let nodes: Vec<Id> = self.streams.keys().cloned().collect();
        nodes.iter().for_each(|node| self.close(node));
    }
}

impl Streams {
    /// Returns the streams, and the receiver of their messages.
    pub(super) fn new(pace: Settings) -> (Self, mpsc::Receiver<StreamEvent>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let streams = Self {
            limit: pace.streams,
            first_pause_s: FIRST_PAUSE * i64::from(pace.recheck_s),
            streams: HashMap::new(),
            running: 0,
            sender,
        };
        (streams, receiver)
    }

    /// Number of open streams.
    pub(super) fn open(&self) -> usize {
        self.streams.values().filter(|stream| stream.is_open()).count()
    }

    /// Whether the node has an open stream.
    pub(super) fn has(&self, node: &NodeId) -> bool {
        self.streams.get(node).is_some_and(Stream::is_open)
    }

    /// Whether a stream to the node may be opened now.
    pub(super) fn may_open(&self, node: &NodeId, now: Timestamp) -> bool {
        let is_time = match self.streams.get(node) {
            None => true,
            Some(Stream::Running { .. }) => false,
            Some(Stream::Waiting { until, .. }) => *until <= now,
        };
        is_time && self.running < self.limit
    }

    /// Starts to open a stream to the BMC of a node, after the last event of the previous stream.
    pub(super) fn begin(&mut self, node: &Id, client: BmcClient) {
        let (failures, last_id) = match self.streams.remove(node) {
            Some(Stream::Waiting { failures, last_id, .. }) => (failures, last_id),
            _ => (0, None),
        };
        let task = tokio::spawn(follow(node.clone(), client, last_id, self.sender.clone()));
        self.running += 1;
        let stream = Stream::Running {
            task: task.abort_handle(),
            open_since: None,
            failures,
        };
        self.streams.insert(node.clone(), stream);
    }

    /// Notes that a stream is open.
    pub(super) fn opened(&mut self, node: &Id, now: Timestamp) {
        if let Some(Stream::Running { open_since, .. }) = self.streams.get_mut(node) {
            *open_since = Some(now);
        }
    }

    /// Notes that a stream ended, or that the BMC offers none (`is_offered`). Each failure in a row delays the next try
    /// further.
    pub(super) fn ended(&mut self, node: &Id, is_offered: bool, last_id: Option<String>, now: Timestamp) {
        let Some(Stream::Running {
            open_since, failures, ..
        }) = self.streams.get(node)
        else {
            return;
        };
        let has_worked = open_since.is_some_and(|since| now.since(since) >= seconds(WORKED_S));
        let failures = if has_worked { 0 } else { failures.saturating_add(1) };
        let pause_s = match (is_offered, failures) {
            (false, _) => NOT_OFFERED_S,
            (true, 0) => 0,
            (true, failures) => self.first_pause_s << (failures - 1).min(DOUBLINGS),
        };
        self.running -= 1;
        let stream = Stream::Waiting {
            until: now.plus(seconds(pause_s)),
            failures,
            last_id,
        };
        self.streams.insert(node.clone(), stream);
    }

    /// Ends the stream of a node that belongs to another replica now, or has another BMC.
    pub(super) fn close(&mut self, node: &NodeId) {
        if let Some(Stream::Running { task, .. }) = self.streams.remove(node) {
            task.abort();
            self.running -= 1;
        }
    }
}

impl Stream {
    fn is_open(&self) -> bool {
        matches!(
            self,
            Self::Running {
                open_since: Some(_),
                ..
            }
        )
    }
}

/// Opens a stream and passes on its hints until it ends.
async fn follow(node: Id, client: BmcClient, mut last_id: Option<String>, sender: mpsc::Sender<StreamEvent>) {
    let stream_event = match try_follow(&node, &client, &mut last_id, &sender).await {
        Ok(false) => StreamEvent::NotOffered(node),
        Ok(true) => StreamEvent::Ended(node, last_id),
        Err(error) => {
            tracing::debug!(node = node.as_str(), %error, "a BMC's stream of events broke");
            StreamEvent::Ended(node, last_id)
        }
    };
    // The watch may have ended: then there is no receiver.
    let _ = sender.send(stream_event).await;
}

/// Returns false if the BMC offers no stream. In all cases `last_id` is the id of the last complete event.
async fn try_follow(
    node: &Id,
    client: &BmcClient,
    last_id: &mut Option<String>,
    sender: &mpsc::Sender<StreamEvent>,
) -> Result<bool, RedfishError> {
    let Some(mut stream) = client.event_stream(last_id.as_deref()).await? else {
        return Ok(false);
    };
    let _ = sender.send(StreamEvent::Open(node.clone())).await;
    loop {
        let next = stream.next_change().await;
        *last_id = stream.last_id().map(str::to_owned);
        if !next? {
            return Ok(true);
        }
        let _ = sender.send(StreamEvent::Hint(node.clone())).await;
    }
}

#[cfg(test)]
mod tests {
    use rackwright_redfish::{BmcHints, BmcTarget};

    use super::*;

    fn at(s: i64) -> Timestamp {
        Timestamp(0).plus(seconds(s))
    }

    /// A client to an address without a listener.
    fn client() -> BmcClient {
        let target = BmcTarget {
            address: "http://127.0.0.1:1".into(),
            username: "admin".into(),
            password: "secret".into(),
            certificate_sha256: None,
            system: None,
        };
        BmcClient::for_polling(target, rackwright_redfish::Settings::default(), &BmcHints::default()).unwrap()
    }

    #[tokio::test]
    async fn streams_are_bounded_and_each_failure_lengthens_the_pause() {
        let (mut streams, _stream_events) = Streams::new(Settings {
            streams: 2,
            ..Settings::default()
        });
        let [a, b]: [Id; 2] = ["a".into(), "b".into()];
        for node in [&a, &b] {
            assert!(streams.may_open(node, at(0)));
            streams.begin(node, client());
        }
        assert!(!streams.may_open(&"c".into(), at(0)), "two are enough");
        streams.opened(&a, at(0));
        assert!(streams.has(&"a".into()) && !streams.has(&"b".into()));
        assert_eq!(streams.open(), 1);
        for (failure, pause_s) in [(1, 300), (2, 600), (3, 1200)] {
            let now = failure * 100_000;
            streams.ended(&b, true, Some("7".into()), at(now));
            assert!(!streams.may_open(&b, at(now + pause_s - 1)), "after failure {failure}");
            assert!(streams.may_open(&b, at(now + pause_s)), "after failure {failure}");
            streams.begin(&b, client());
        }
        // A stream that worked is opened again at once.
        streams.ended(&a, true, None, at(600));
        assert!(streams.may_open(&a, at(600)));
        streams.ended(&b, false, None, at(500_000));
        assert!(!streams.may_open(&b, at(500_000 + NOT_OFFERED_S - 1)));
        assert!(streams.may_open(&b, at(500_000 + NOT_OFFERED_S)));
        assert_eq!((streams.running, streams.open()), (0, 0));
        streams.begin(&a, client());
        streams.close(&a);
        assert!(streams.running == 0 && streams.may_open(&a, at(600)));
    }
}
