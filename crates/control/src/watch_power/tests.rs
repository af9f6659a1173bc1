use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use rackwright_lifecycle::{Power, State};
use rackwright_store::Scope;
use secrecy::SecretString;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::daemon;
use crate::grpc::nodes::bmc_password_purpose;
use crate::telemetry::Traces;
use crate::testing;

const SYSTEM: &str = "/redfish/v1/Systems/1";
/// Generous: other tests run beside this one.
const SOON: Duration = Duration::from_secs(60);

type Object = BTreeMap<&'static str, Value>;

/// As much of JSON as a BMC needs here.
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

/// A BMC with one machine and a stream of events.
struct Bmc {
    power: Mutex<&'static str>,
    stream: Mutex<Option<mpsc::UnboundedSender<Result<Event, Infallible>>>>,
    looks: AtomicUsize,
}

impl Bmc {
    async fn start() -> (Arc<Self>, String) {
        let bmc = Arc::new(Self {
            power: Mutex::new("Off"),
            stream: Mutex::default(),
            looks: AtomicUsize::new(0),
        });
        let own = bmc.clone();
        let app = Router::new().fallback(async move |request: Request| own.answer(request.uri().path()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (bmc, address)
    }

    fn answer(&self, path: &str) -> Response {
        let link = |id| Value::Link { id };
        let object: Object = match path.trim_end_matches('/') {
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
                let (sender, receiver) = mpsc::unbounded_channel();
                *self.stream.lock().unwrap() = Some(sender);
                return Sse::new(UnboundedReceiverStream::new(receiver)).into_response();
            }
            _ => return StatusCode::NOT_FOUND.into_response(),
        };
        Json(object).into_response()
    }

    /// The power changes, and the stream tells of it.
    fn switch(&self, power: &'static str) {
        *self.power.lock().unwrap() = power;
        let event = Event::default().data("{\"Events\": [{\"MessageId\": \"ResourceEvent.1.0.ResourceChanged\"}]}");
        let stream = self.stream.lock().unwrap();
        stream.as_ref().unwrap().send(Ok(event)).unwrap();
    }
}

async fn core(dir: &Path, pace: &str) -> Arc<Core> {
    let config = testing::config(dir, &format!("power_watch: {pace}\n"));
    daemon::open(config, Traces::default(), CancellationToken::new())
        .await
        .unwrap()
}

async fn add(core: &Core, id: &str, address: &str) {
    let mut record = testing::node(id, State::Available, None);
    record.spec.bmc_address = address.to_owned();
    let password = SecretString::from("secret");
    let sealed = core.keys.sealer.seal(&password, &bmc_password_purpose(id));
    record.spec.bmc_password = sealed.unwrap();
    testing::add(core, &record).await;
}

/// Waits until something is so: each change of the database is an occasion to look, and each tick of the watch.
async fn until(core: &Core, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut events = core.events.subscribe();
    let wait = async {
        while !is_so().await {
            let _ = tokio::time::timeout(TICK, events.changed()).await;
        }
    };
    let waited = tokio::time::timeout(SOON, wait).await;
    assert!(waited.is_ok(), "{what}: not within {SOON:?}");
}

async fn power(core: &Core, id: &str) -> Option<Power> {
    core.store
        .node(&Scope::Site, id)
        .await
        .unwrap()
        .readings
        .power
        .last()
        .copied()
}

#[tokio::test]
async fn where_the_bmc_tells_of_changes_they_are_seen_at_once_and_it_is_hardly_asked() {
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
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["power.off", "power.on", "power.off"]);
    assert!(core.watch.seen_at("n1").is_some());
    // Without the stream, it is asked again.
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
async fn two_replicas_share_the_nodes_and_who_is_left_takes_all() {
    let dir = tempfile::tempdir().unwrap();
    let core = core(dir.path(), "{interval_s: 60, streams: 0}").await;
    for n in 0..40 {
        add(&core, &format!("n{n}"), "http://127.0.0.1:1").await;
    }
    let now = clock::now();
    for replica in [core.replica.as_str(), "other"] {
        core.store.replica_lives(replica, now).await.unwrap();
    }
    let (streams, _news) = Streams::new(0);
    let mut watch = Watch::new(core.clone(), streams);
    let mut looks = JoinSet::new();
    watch.tick(&mut looks).await.unwrap();
    let shared = core.watch.watched();
    assert!((5..35).contains(&shared), "{shared}");
    core.store.replica_ended("other").await.unwrap();
    // As if the time to compare shares had come.
    watch.shared_at = Timestamp::default();
    watch.tick(&mut looks).await.unwrap();
    assert_eq!(core.watch.watched(), 40);
}
