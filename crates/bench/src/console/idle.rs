//! Open consoles without a browser: sessions of their own, each with a connection and the requests of a page that is open.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use rackwright_cli_context::error::CliError;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tonic::body::Body;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tower::Service as _;

use super::login;
use crate::test_bed::TestBed;

/// Sessions of a member; with one more, the oldest would end.
const SESSIONS: usize = 16;
/// The streams of an open page: the nodes, and the events that its banner and its pages show.
const STREAMS: [(&str, &str); 2] = [
    ("NodeService/WatchNodes", "{}"),
    ("EventService/StreamEvents", "{\"onlyNew\":true}"),
];
/// What the page Fleet asks for while it is seen, and how often: `everyMs` in `crates/web/ui/src/fleet`. A page in the
/// background asks for nothing.
const POLLS: [(&str, &str, Duration); 6] = [
    (
        "OperationService/ListOperations",
        "{\"pageSize\":1000,\"filter\":\"done = false\"}",
        Duration::from_secs(3),
    ),
    (
        "OperationService/ListOperations",
        "{\"pageSize\":300,\"filter\":\"done = true\"}",
        Duration::from_secs(15),
    ),
    (
        "PowerService/ListAlarms",
        "{\"pageSize\":1000}",
        Duration::from_secs(10),
    ),
    ("SiteService/ListFabricFaults", "{}", Duration::from_secs(20)),
    ("ControlService/GetControl", "{}", Duration::from_secs(60)),
    (
        "NodeService/ListNodes",
        "{\"pageSize\":1000,\"readMask\":\"name,spec,status,metadata\"}",
        Duration::from_secs(20),
    ),
];

/// Cores in use of the control plane.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Without an open console.
    pub without: f64,
    /// With consoles in the background.
    pub background: f64,
    /// With consoles that are seen.
    pub shown: f64,
}

/// A connection with a session.
#[derive(Debug, Clone)]
struct Console {
    channel: Channel,
    address: String,
    cookie: String,
}

/// Opens consoles, and measures the control plane before, with them in the background, and with them shown.
pub async fn measured(test_bed: &TestBed, consoles: usize, window: Duration) -> Result<Cost, CliError> {
    let without = cores(test_bed, window).await?;
    let mut opened = Vec::new();
    let mut member = test_bed.join("console-0").await?;
    for place in 0..consoles {
        if place > 0 && place.is_multiple_of(SESSIONS) {
            member = test_bed.join(&format!("console-{}", place / SESSIONS)).await?;
        }
        let (token, _) = login(&member).await?;
        opened.push(Console::open(test_bed, place, &token).await?);
    }
    let mut streams = JoinSet::new();
    for console in &opened {
        for (method, message) in STREAMS {
            let stream = console.stream(method, message).await?;
            streams.spawn(async move { end_of(stream, method).await });
        }
    }
    // The first message of a stream is on its way as long as the list of nodes is sent; the measurement begins after it.
    for console in &opened {
        console.call("NodeService/ListNodes", "{\"pageSize\":1000}").await?;
    }
    let background = tokio::select! {
        cores = cores(test_bed, window) => cores?,
        Some(ended) = streams.join_next() => return Err(unexpected(ended)),
    };
    let mut polls = JoinSet::new();
    for (method, message, every) in POLLS {
        polls.spawn(poll(opened.clone(), method, message, every));
    }
    let shown = tokio::select! {
        cores = cores(test_bed, window) => cores?,
        Some(ended) = streams.join_next() => return Err(unexpected(ended)),
        Some(ended) = polls.join_next() => return Err(unexpected(ended)),
    };
    Ok(Cost {
        without,
        background,
        shown,
    })
}

/// The error of a task that should not have ended.
fn unexpected(ended: Result<CliError, tokio::task::JoinError>) -> CliError {
    ended.unwrap_or_else(|error| CliError::BadAnswer(format!("a console ended: {error}")))
}

/// The cores that the control plane uses in a window of time.
async fn cores(test_bed: &TestBed, window: Duration) -> Result<f64, CliError> {
    let control = test_bed.control_plane();
    let before = control.usage()?.cpu_s;
    // Only the time ends the measurement.
    tokio::time::sleep(window).await;
    Ok((control.usage()?.cpu_s - before) / window.as_secs_f64())
}

/// Reads a stream to its end, which is an error: it lasts as long as the console is open.
async fn end_of(response: Response<Body>, method: &str) -> CliError {
    let mut body = response.into_body();
    loop {
        match body.frame().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => return CliError::BadAnswer(format!("{method}: {error}")),
            None => return CliError::BadAnswer(format!("{method}: the stream ended")),
        }
    }
}

/// Makes a call of each console in its turn, so that each makes it once in `every`. Ends only with an error.
async fn poll(consoles: Vec<Console>, method: &'static str, message: &'static str, every: Duration) -> CliError {
    let Ok(number) = u32::try_from(consoles.len()) else {
        return CliError::usage("--consoles is too large", "");
    };
    let mut ticks = tokio::time::interval(every / number.max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = JoinSet::new();
    for console in consoles.iter().cycle() {
        ticks.tick().await;
        let console = console.clone();
        calls.spawn(async move { console.call(method, message).await });
        while let Some(done) = calls.try_join_next() {
            match done {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error,
                Err(error) => return CliError::BadAnswer(format!("{method}: {error}")),
            }
        }
    }
    CliError::BadAnswer("there is no console".to_owned())
}

impl Console {
    /// Connects, and exchanges a login token for a session.
    async fn open(test_bed: &TestBed, place: usize, token: &str) -> Result<Self, CliError> {
        let failed = |error: &dyn std::fmt::Display| CliError::BadAnswer(format!("console {place}: {error}"));
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&test_bed.authority));
        // As browsers of different people, each has an address of its own.
        let [_, _, high, low] = u32::try_from(place).unwrap_or_default().to_be_bytes();
        let own = IpAddr::V4(Ipv4Addr::new(127, 1, high, low));
        let endpoint = Endpoint::from_shared(test_bed.web.clone()).map_err(|e| failed(&e))?;
        let endpoint = endpoint.tls_config(tls).map_err(|e| failed(&e))?;
        let channel = endpoint.local_address(Some(own)).connect().await;
        let mut console = Self {
            channel: channel.map_err(|e| failed(&e))?,
            address: test_bed.web.clone(),
            cookie: String::new(),
        };
        let login = serde_json::json!({ "token": token }).to_string();
        let response = console.send("/auth/login", "application/json", login.into()).await?;
        let cookie = response.headers().get(SET_COOKIE).and_then(|value| value.to_str().ok());
        let cookie = cookie.and_then(|text| text.split(';').next());
        console.cookie = cookie.ok_or_else(|| failed(&"the login set no cookie"))?.to_owned();
        Ok(console)
    }

    /// Sends a request as a page of the console does. The answer must be a good one.
    async fn send(&self, path: &str, content: &str, body: Bytes) -> Result<Response<Body>, CliError> {
        let failed = |error: &dyn std::fmt::Display| CliError::BadAnswer(format!("{path}: {error}"));
        let request = Request::post(format!("{}{path}", self.address))
            .header(CONTENT_TYPE, content)
            .header("sec-fetch-site", "same-origin");
        let request = match self.cookie.is_empty() {
            true => request,
            false => request.header(COOKIE, &self.cookie),
        };
        let request = request.body(Body::new(Full::new(body))).map_err(|e| failed(&e))?;
        let mut channel = self.channel.clone();
        let ready = std::future::poll_fn(|context| channel.poll_ready(context)).await;
        ready.map_err(|e| failed(&e))?;
        let response = channel.call(request).await.map_err(|e| failed(&e))?;
        match response.status() {
            StatusCode::OK | StatusCode::NO_CONTENT => Ok(response),
            status => {
                let body = response.into_body().collect().await.map_err(|e| failed(&e))?.to_bytes();
                Err(failed(&format!("{status} {}", String::from_utf8_lossy(&body))))
            }
        }
    }

    async fn call(&self, method: &str, message: &str) -> Result<(), CliError> {
        let path = format!("/rackwright.v1.{method}");
        let message = Bytes::copy_from_slice(message.as_bytes());
        let response = self.send(&path, "application/json", message).await?;
        let body = response.into_body().collect().await;
        body.map(drop)
            .map_err(|e| CliError::BadAnswer(format!("{method}: {e}")))
    }

    async fn stream(&self, method: &str, message: &str) -> Result<Response<Body>, CliError> {
        let mut framed = BytesMut::new();
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len()).unwrap_or_default());
        framed.put(message.as_bytes());
        let path = format!("/rackwright.v1.{method}");
        self.send(&path, "application/connect+json", framed.freeze()).await
    }
}
