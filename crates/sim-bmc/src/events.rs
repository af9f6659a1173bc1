//! The event service: a stream (DSP0266, "Server-sent events") that reports changes of the machine's power. Subscriptions
//! can be listed and deleted, but no events are sent to them.

use super::host::Host;
use super::reply::Fault;
use super::routes::{Bmc, To};
use super::time::{now_s, time};
use super::words::PowerState;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::body::{Body as HttpBody, Frame};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

pub(super) const SERVICE: &str = "/redfish/v1/EventService";
pub(super) const STREAM: &str = "/redfish/v1/EventService/SSE";
/// Most open streams of a BMC.
const STREAMS: usize = 4;
/// Time between comments that keep a stream alive; the streams of a BMC that went down end by then.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Pieces of a stream that wait for a slow client.
const WAITING: usize = 16;

/// The streams of one BMC.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: AtomicUsize,
    events: AtomicU64,
}

pub(super) fn service(_: &dyn Host) -> Option<Value> {
    Some(json!({
        "@odata.id": SERVICE,
        "@odata.type": "#EventService.v1_10_3.EventService",
        "Id": "EventService",
        "Name": "Event Service",
        "ServiceEnabled": true,
        "Status": {"State": "Enabled", "Health": "OK"},
        "EventFormatTypes": ["Event"],
        "RegistryPrefixes": ["ResourceEvent"],
        "ResourceTypes": ["ComputerSystem"],
        "ServerSentEventUri": STREAM,
        "Subscriptions": {"@odata.id": super::in_band::SUBSCRIPTIONS},
    }))
}

pub(super) async fn stream(To(bmc): To, headers: HeaderMap) -> Result<Response, Fault> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if accept.is_some_and(|kinds| !kinds.contains("text/event-stream") && !kinds.contains("*/*")) {
        return Err(Fault::not_acceptable());
    }
    let place = StreamSlot::take(&bmc).ok_or_else(|| Fault::unavailable(30))?;
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(send_events(place, sender));
    let mut response = Response::new(Body::new(Pieces(receiver)));
    *response.status_mut() = StatusCode::OK;
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// A place among the streams of a BMC.
struct StreamSlot(Arc<Bmc>);

impl StreamSlot {
    fn take(bmc: &Arc<Bmc>) -> Option<Self> {
        let taken = bmc.streams.open.fetch_add(1, Ordering::Relaxed);
        let place = Self(Arc::clone(bmc));
        (taken < STREAMS).then_some(place)
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.streams.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reports the machine's power until the client or the BMC is gone.
async fn send_events(place: StreamSlot, sender: mpsc::Sender<Bytes>) {
    let bmc = &place.0;
    let mut power = bmc.host.state().power;
    let mut piece = Bytes::from_static(b": hello\n\n");
    while !bmc.host.is_down() && sender.send(piece).await.is_ok() {
        piece = tokio::select! {
            now = bmc.host.wait_power_change(power) => {
                power = now;
                let number = bmc.streams.events.fetch_add(1, Ordering::Relaxed) + 1;
                event(number, now, bmc.host.clock_skew_s())
            }
            () = tokio::time::sleep(HEARTBEAT) => Bytes::from_static(b": still here\n\n"),
            () = sender.closed() => return,
        };
    }
}

fn event(number: u64, power: PowerState, skew_s: i64) -> Bytes {
    let event = json!({
        "@odata.type": "#Event.v1_7_0.Event",
        "Id": number.to_string(),
        "Name": "Power",
        "Events": [{
            "MemberId": "0",
            "EventId": number.to_string(),
            "EventType": "Other",
            "EventTimestamp": time(now_s().saturating_add_signed(skew_s)),
            "Severity": "OK",
            "MessageId": "ResourceEvent.1.0.ResourceChanged",
            "Message": format!("One or more resource properties have changed: the power state is {}.", power.as_str()),
            "MessageArgs": [],
            "OriginOfCondition": {"@odata.id": "/redfish/v1/Systems/1"},
        }],
    });
    Bytes::from(format!("id: {number}\ndata: {event}\n\n"))
}

/// The body of a stream.
struct Pieces(mpsc::Receiver<Bytes>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
