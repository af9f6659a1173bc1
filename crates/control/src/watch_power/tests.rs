use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use rackwright_ground::bmc::bmc_password_purpose;
use rackwright_ground::config::power_watch::Settings;
use rackwright_ground::testing;
use rackwright_lifecycle::{NodeId, Power, State};
use rackwright_redfish::{BmcClient, BmcTarget};
use rackwright_store::Scope;
use secrecy::SecretString;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::*;

const SYSTEM: &str = "/redfish/v1/Systems/1";
/// Generous, because other tests run in parallel.
const SOON: Duration = Duration::from_secs(60);

type Object = BTreeMap<&'static str, Value>;

/// The JSON values that a BMC needs here.
#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Text(&'static str),
    Link {
        #[serde(rename = "@odata.id")]
        id: &'static str,
    },
    Links(Vec<Value>),
}

/// A BMC with one machine and an event stream, which repeats the events after the requested one.
struct Bmc {
    power: Mutex<&'static str>,
    stream: Mutex<Option<mpsc::UnboundedSender<io::Result<Bytes>>>>,
    /// Number of events so far.
    events: AtomicUsize,
    /// Last event id of each stream request.
    opened: Mutex<Vec<Option<String>>>,
    looks: AtomicUsize,
}

fn event(id: usize) -> Bytes {
    let data = "{\"Events\": [{\"MessageId\": \"ResourceEvent.1.0.ResourceChanged\"}]}";
    Bytes::from(format!("id: {id}\ndata: {data}\n\n"))
}

impl Bmc {
    async fn start() -> (Arc<Self>, String) {
        let bmc = Arc::new(Self {
            power: Mutex::new("Off"),
            stream: Mutex::default(),
            events: AtomicUsize::new(0),
            opened: Mutex::default(),
            looks: AtomicUsize::new(0),
        });
        let own = bmc.clone();
        let app = Router::new().fallback(async move |request: Request| own.answer(&request));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (bmc, address)
    }

    fn answer(&self, request: &Request) -> Response {
        let link = |id| Value::Link { id };
        let object: Object = match request.uri().path().trim_end_matches('/') {
            "/redfish/v1" => [
                ("Systems", link("/redfish/v1/Systems")),
                ("EventService", link("/redfish/v1/EventService")),
            ]
            .into(),
            "/redfish/v1/Systems" => [("Members", Value::Links(vec![link(SYSTEM)]))].into(),
            SYSTEM => {
                self.looks.fetch_add(1, Ordering::SeqCst);
                [("PowerState", Value::Text(*self.power.lock().unwrap()))].into()
            }
            "/redfish/v1/EventService" => [("ServerSentEventUri", Value::Text("/sse"))].into(),
            "/sse" => {
                let last = request.headers().get("last-event-id");
                return self.respond(last.map(|id| id.to_str().unwrap().to_owned()));
            }
            _ => return StatusCode::NOT_FOUND.into_response(),
        };
        Json(object).into_response()
    }

    /// A stream, after this event if one is named.
    fn respond(&self, last: Option<String>) -> Response {
        let (sender, receiver) = mpsc::unbounded_channel();
        if let Some(last) = &last {
            let missed = last.parse::<usize>().unwrap() + 1..=self.events.load(Ordering::SeqCst);
            missed.for_each(|id| sender.send(Ok(event(id))).unwrap());
        }
        self.opened.lock().unwrap().push(last);
        *self.stream.lock().unwrap() = Some(sender);
        let body = Body::from_stream(UnboundedReceiverStream::new(receiver));
        ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
    }

    /// Changes the power. Returns the event about it.
    fn change(&self, power: &'static str) -> Bytes {
        *self.power.lock().unwrap() = power;
        event(self.events.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Changes the power, and sends the event on the stream.
    fn switch(&self, power: &'static str) {
        let event = self.change(power);
        let stream = self.stream.lock().unwrap();
        stream.as_ref().unwrap().send(Ok(event)).unwrap();
    }

    /// Changes the power, and breaks the connection in the middle of the event.
    fn break_off(&self, power: &'static str) {
        let event = self.change(power);
        let stream = self.stream.lock().unwrap().take().unwrap();
        stream.send(Ok(event.slice(..event.len() / 2))).unwrap();
        stream.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
    }
}

async fn core(dir: &Path, pace: &str) -> Arc<Core> {
    let config = testing::config(dir, &format!("power_watch: {pace}\n"));
    testing::open(config).await.unwrap()
}

async fn add(core: &Core, id: &str, address: &str) {
    let mut record = testing::node(id, State::Available, None);
    record.spec.bmc_address = address.to_owned();
    let password = SecretString::from("secret");
    let sealed = core
        .keys
        .sealer
        .seal(&password, &bmc_password_purpose(&NodeId::stored(id)));
    record.spec.bmc_password = sealed.unwrap();
    testing::add(core, &record).await;
}

/// Waits for a condition. It is checked after each change of the database and each tick of the watch.
async fn until(core: &Core, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut commits = core.commits.subscribe();
    let wait = async {
        while !is_so().await {
            let _ = tokio::time::timeout(TICK, commits.changed()).await;
        }
    };
    let waited = tokio::time::timeout(SOON, wait).await;
    assert!(waited.is_ok(), "{what}: not within {SOON:?}");
}

async fn power(core: &Core, id: &str) -> Option<Power> {
    core.store
        .node(&Scope::Site, &NodeId::stored(id))
        .await
        .unwrap()
        .readings
        .power
        .last()
        .copied()
}

#[tokio::test]
async fn a_bmc_with_events_is_seen_at_once_and_rarely_polled() {
    let dir = tempfile::tempdir().unwrap();
    let core = core(dir.path(), "{interval_s: 1, recheck_s: 1, streamed_s: 3600}").await;
    let (bmc, address) = Bmc::start().await;
    add(&core, "n1", &address).await;
    let watch = tokio::spawn(run(core.clone()));
    until(&core, "the stream is open", async || core.watch.streams() == 1).await;
    until(&core, "off", async || power(&core, "n1").await == Some(Power::Off)).await;
    for (word, expected) in [("On", Power::On), ("Off", Power::Off)] {
        let before = bmc.looks.load(Ordering::SeqCst);
        bmc.switch(word);
        until(&core, word, async || power(&core, "n1").await == Some(expected)).await;
        let looks = bmc.looks.load(Ordering::SeqCst) - before;
        assert!(looks <= 10, "{looks} looks until {word}");
    }
    let events = core.store.events(&Scope::Site, 0, "nodes/n1", 10).await.unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.kind.to_string()).collect();
    assert_eq!(kinds, ["power.off", "power.on", "power.off"]);
    assert!(core.watch.seen_at(&"n1".into()).is_some());
    // Without the stream, a look reads the power again.
    bmc.stream.lock().unwrap().take();
    *bmc.power.lock().unwrap() = "On";
    until(&core, "on by asking", async || {
        power(&core, "n1").await == Some(Power::On)
    })
    .await;
    core.stop.cancel();
    watch.await.unwrap();
}

#[tokio::test]
async fn two_replicas_share_the_nodes_and_the_survivor_takes_all() {
    let dir = tempfile::tempdir().unwrap();
    let core = core(dir.path(), "{interval_s: 60, streams: 0}").await;
    for n in 0..40 {
        add(&core, &format!("n{n}"), "http://127.0.0.1:1").await;
    }
    let now = clock::now();
    for replica in [core.replica.as_str(), "other"] {
        core.store.record_heartbeat(replica, now).await.unwrap();
    }
    let mut watch = Watch::new(core.clone());
    let mut looks = Readings::default();
    watch.look_for_due(&mut looks).await.unwrap();
    let shared = core.watch.watched();
    assert!((5..35).contains(&shared), "{shared}");
    core.store.end_replica("other").await.unwrap();
    // Makes the comparison of shares due.
    watch.shared_at = Timestamp::default();
    watch.look_for_due(&mut looks).await.unwrap();
    assert_eq!(core.watch.watched(), 40);
}

#[tokio::test]
async fn a_node_is_looked_at_again_after_a_look_that_panicked() {
    async fn panics() -> LookOutcome {
        panic!("an unexpected body")
    }
    let dir = tempfile::tempdir().unwrap();
    let core = core(dir.path(), "{interval_s: 60, streams: 0}").await;
    let mut watch = Watch::new(core);
    let id: Id = "n1".into();
    watch.schedule.found(&id, clock::now());
    let in_an_hour = || clock::now().plus(seconds(3600));
    assert_eq!(watch.schedule.take(in_an_hour(), 9), ["n1"]);
    assert_eq!(watch.schedule.take(in_an_hour(), 9), [""; 0], "the look is in progress");
    watch.ended(id, tokio::spawn(panics()).await).await;
    assert_eq!(
        watch.schedule.take(in_an_hour(), 9),
        ["n1"],
        "it would never be looked at again"
    );
}

async fn kinds(core: &Core) -> Vec<String> {
    let events = core.store.events(&Scope::Site, 0, "nodes/n1", 100).await.unwrap();
    events.into_iter().map(|event| event.kind.to_string()).collect()
}

#[tokio::test]
async fn a_broken_stream_resumes_after_the_last_whole_event() {
    let dir = tempfile::tempdir().unwrap();
    let core = core(dir.path(), "{interval_s: 1, recheck_s: 1, streamed_s: 3600}").await;
    let (bmc, address) = Bmc::start().await;
    add(&core, "n1", &address).await;
    let watch = tokio::spawn(run(core.clone()));
    until(&core, "the stream is open", async || core.watch.streams() == 1).await;
    until(&core, "off", async || power(&core, "n1").await == Some(Power::Off)).await;
    bmc.switch("On");
    until(&core, "on", async || power(&core, "n1").await == Some(Power::On)).await;
    bmc.break_off("Off");
    // Two events without a stream; the power ends as it began.
    bmc.change("Off");
    bmc.change("Off");
    until(&core, "a second stream", async || bmc.opened.lock().unwrap().len() == 2).await;
    assert_eq!(*bmc.opened.lock().unwrap(), [None, Some("1".to_owned())]);
    until(&core, "off again", async || {
        power(&core, "n1").await == Some(Power::Off)
    })
    .await;
    bmc.break_off("Off");
    until(&core, "a third stream", async || bmc.opened.lock().unwrap().len() == 3).await;
    // All four events arrived in full, the broken one on the second stream.
    assert_eq!(bmc.opened.lock().unwrap()[2].as_deref(), Some("4"));
    let expected = ["power.off", "power.on", "power.off"];
    assert_eq!(kinds(&core).await, expected, "none is acted on twice");
    core.stop.cancel();
    watch.await.unwrap();
}

/// One stream after the other, without the watch.
struct Following {
    bmc: Arc<Bmc>,
    target: BmcTarget,
    streams: Streams,
    messages: mpsc::Receiver<StreamEvent>,
    node: Id,
}

impl Following {
    async fn new() -> Self {
        let (bmc, address) = Bmc::start().await;
        let target = BmcTarget {
            address,
            username: "admin".into(),
            password: "secret".into(),
            certificate_sha256: None,
            system: None,
        };
        let (streams, messages) = Streams::new(Settings::default());
        Self {
            bmc,
            target,
            streams,
            messages,
            node: "n1".into(),
        }
    }

    async fn next(&mut self) -> StreamEvent {
        tokio::time::timeout(SOON, self.messages.recv()).await.unwrap().unwrap()
    }

    async fn open(&mut self) {
        let client = BmcClient::connect(self.target.clone(), rackwright_redfish::Settings::default()).await;
        self.streams.begin(&self.node, client.unwrap());
        assert!(matches!(self.next().await, StreamEvent::Open(_)));
    }

    async fn hints(&mut self, count: usize) {
        for _ in 0..count {
            let next = self.next().await;
            assert!(matches!(next, StreamEvent::Hint(_)), "{next:?}");
        }
    }

    /// Expects the stream to end after this event, without a hint before.
    async fn ends_after(&mut self, id: &str) {
        match self.next().await {
            StreamEvent::Ended(_, Some(last)) if last == id => {
                self.streams.ended(&self.node, true, Some(last), Timestamp::default());
            }
            other => panic!("{other:?}, not behind {id}"),
        }
    }
}

#[tokio::test]
async fn events_during_a_broken_stream_arrive_once_by_the_next() {
    let mut following = Following::new().await;
    let bmc = following.bmc.clone();
    following.open().await;
    bmc.switch("On");
    following.hints(1).await;
    bmc.break_off("Off");
    following.ends_after("1").await;
    bmc.change("On");
    bmc.change("Off");
    following.open().await;
    following.hints(3).await;
    bmc.break_off("On");
    following.ends_after("4").await;
    following.open().await;
    following.hints(1).await;
    bmc.stream.lock().unwrap().take();
    following.ends_after("5").await;
    let opened = bmc.opened.lock().unwrap().clone();
    assert_eq!(opened, [None, Some("1".to_owned()), Some("4".to_owned())]);
}
