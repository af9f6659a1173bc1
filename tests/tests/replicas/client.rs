//! An operator's program that knows all replicas: a call that one replica does not answer is sent to the next, with the
//! same idempotency key.

use std::error::Error as _;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rackwright_api::v1;
use rackwright_api::v1::event_service_client::EventServiceClient;
use rackwright_tests::member;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

/// Time limit of one attempt.
const TRY: Duration = Duration::from_secs(15);
/// The site is stuck if no replica answers for this long.
const STUCK: Duration = Duration::from_secs(120);

/// Channels to every replica, and the results of calls.
pub struct Client {
    channels: Vec<Channel>,
    at: AtomicUsize,
    keys: AtomicU64,
    pub answered: AtomicU64,
    pub refused: AtomicU64,
    pub again: AtomicU64,
}

/// Whether the replica, the way to it or its database is unavailable. A status from the replica itself is an answer.
fn is_away(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded) || status.source().is_some()
}

impl Client {
    pub fn new(login: &Path, servers: &[String]) -> Self {
        let tls = member::tls(login);
        let channel = |server: &String| {
            let endpoint = Endpoint::from_shared(server.clone()).expect("a URL");
            let endpoint = endpoint.tls_config(tls.clone()).expect("the files are PEM");
            endpoint.connect_timeout(Duration::from_secs(2)).connect_lazy()
        };
        Self {
            channels: servers.iter().map(channel).collect(),
            at: AtomicUsize::new(0),
            keys: AtomicU64::new(1),
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            again: AtomicU64::new(0),
        }
    }

    /// The envelope of a new request.
    pub fn fresh(&self) -> Option<v1::Mutation> {
        Some(v1::Mutation {
            idempotency_key: format!("chaos-{}", self.keys.fetch_add(1, Ordering::Relaxed)),
            ..v1::Mutation::default()
        })
    }

    fn channel(&self) -> Channel {
        self.channels[self.at.load(Ordering::Relaxed) % self.channels.len()].clone()
    }

    /// The answer or refusal of the first replica that gives one. Calls go to the replicas in turn.
    ///
    /// # Panics
    /// If no replica answers for long.
    pub async fn call<Q, A>(
        &self,
        request: Q,
        send: impl AsyncFn(Channel, Q) -> Result<Response<A>, Status>,
    ) -> Result<A, Status>
    where
        Q: Clone + Debug,
    {
        let start = Instant::now();
        self.at.fetch_add(1, Ordering::Relaxed);
        loop {
            let tried = tokio::time::timeout(TRY, send(self.channel(), request.clone())).await;
            let status = match tried.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer"))) {
                Ok(answer) => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    return Ok(answer.into_inner());
                }
                Err(status) if is_away(&status) => status,
                Err(status) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    return Err(status);
                }
            };
            assert!(start.elapsed() < STUCK, "no replica answers {request:?}: {status:?}");
            self.again.fetch_add(1, Ordering::Relaxed);
            self.at.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// All present events after a position.
    pub async fn events(&self, after_position: u64) -> Vec<v1::Event> {
        let mut seen: Vec<v1::Event> = Vec::new();
        loop {
            let request = v1::StreamEventsRequest {
                after_position: seen.last().map_or(after_position, |event| event.position),
                until_now: true,
                ..v1::StreamEventsRequest::default()
            };
            let stream = self
                .call(request, async |channel, request| {
                    EventServiceClient::new(channel).stream_events(request).await
                })
                .await;
            let mut stream = stream.expect("events can be followed");
            loop {
                match stream.message().await {
                    Ok(Some(event)) => seen.push(event),
                    Ok(None) => return seen,
                    Err(status) if is_away(&status) => break,
                    Err(status) => panic!("{status:?}"),
                }
            }
        }
    }

    /// Follows events from the first on, from one replica to the next, without end. Adds the events to `seen`.
    pub async fn follow(&self, seen: &Mutex<Vec<v1::Event>>) {
        loop {
            let last = seen
                .lock()
                .expect("no test failed")
                .last()
                .map_or(0, |event| event.position);
            let request = v1::StreamEventsRequest {
                after_position: last,
                ..v1::StreamEventsRequest::default()
            };
            let stream = self
                .call(request, async |channel, request| {
                    EventServiceClient::new(channel).stream_events(request).await
                })
                .await;
            let mut stream = stream.expect("events can be followed");
            while let Ok(Some(event)) = stream.message().await {
                seen.lock().expect("no test failed").push(event);
            }
        }
    }
}
