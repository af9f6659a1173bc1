//! Calls over a WebSocket.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, Method, Request, Response, Version};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use prost::Message as _;
use rackwright_api::v1::attach_console_request::Message as Typed;
use rackwright_api::v1::attach_console_response::Message as Shown;
use rackwright_api::v1::{AttachConsoleRequest, AttachConsoleResponse, ConsoleEntry};
use rackwright_gateway::Gateway;
use serde_json::json;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use tonic::Status;
use tonic::body::Body;
use tower::{ServiceExt as _, service_fn};

use crate::common::{LIMIT, Scripted, framed, methods, rights};

const PATH: &str = "/v1/nodes/n1/console";
const PROTOCOL: &str = "rackwright.console.v1";

/// What the service sees of a call.
#[derive(Debug, PartialEq)]
enum Event {
    Entered(ConsoleEntry),
    Ended,
}

async fn next(body: &mut Body) -> Option<Typed> {
    let frame = body.frame().await?.expect("no error");
    let message = frame.into_data().expect("data").slice(5..);
    AttachConsoleRequest::decode(message).expect("a message").message
}

fn shown(message: Shown) -> Result<Frame<Bytes>, Infallible> {
    let message = AttachConsoleResponse { message: Some(message) };
    Ok(Frame::data(framed(&message.encode_to_vec())))
}

fn ended(status: &Status) -> Result<Frame<Bytes>, Infallible> {
    let mut trailers = HeaderMap::new();
    status.add_header(&mut trailers).expect("trailers");
    Ok(Frame::trailers(trailers))
}

/// A console that shows what is typed. `logout` ends the call; `take` ends it with an error.
async fn console(request: Request<Body>, events: mpsc::Sender<Event>) -> Result<Response<Body>, Infallible> {
    assert_eq!(request.uri().path(), "/rackwright.v1.ConsoleService/AttachConsole");
    assert!(!request.headers().contains_key("sec-websocket-key"));
    let mut body = request.into_body();
    let Some(Typed::Enter(entry)) = next(&mut body).await else {
        panic!("the first message is no entry");
    };
    events.send(Event::Entered(entry)).await.expect("a test");
    let (to, frames) = mpsc::channel(1);
    tokio::spawn(async move {
        let notice = "you only watch: ann types".to_owned();
        // The client may be gone.
        let _ = to.send(shown(Shown::Notice(notice))).await;
        while let Some(Typed::Input(typed)) = next(&mut body).await {
            let answer = match typed.as_slice() {
                b"logout" => ended(&Status::ok("")),
                b"take" => ended(&Status::aborted("é".repeat(100))),
                _ => shown(Shown::Output(typed)),
            };
            let _ = to.send(answer).await;
        }
        events.send(Event::Ended).await.expect("a test");
    });
    Ok(Response::new(Body::new(StreamBody::new(ReceiverStream::new(frames)))))
}

type Client = WebSocketStream<DuplexStream>;

/// A WebSocket to the console, and the events of its service.
async fn open(query: &str) -> (Client, mpsc::Receiver<Event>) {
    let (events, seen) = mpsc::channel(4);
    let service = service_fn(move |request| console(request, events.clone()));
    let gateway = Gateway::new(service, methods(), rights(), Arc::new(|| {}));
    let (near, far) = tokio::io::duplex(4096);
    let calls =
        hyper::service::service_fn(move |request: Request<Incoming>| gateway.clone().oneshot(request.map(Body::new)));
    tokio::spawn(
        http1::Builder::new()
            .serve_connection(TokioIo::new(far), calls)
            .with_upgrades(),
    );
    let uri = format!("ws://rack.example{PATH}{query}");
    let mut request = uri.into_client_request().expect("a request");
    let protocol = PROTOCOL.parse().expect("a value");
    request.headers_mut().insert("sec-websocket-protocol", protocol);
    let origin = "http://rack.example".parse().expect("a value");
    request.headers_mut().insert("origin", origin);
    let (client, answer) = client_async(request, near).await.expect("an accepted call");
    assert_eq!(answer.headers()["sec-websocket-protocol"], PROTOCOL);
    (client, seen)
}

async fn receive(client: &mut Client) -> Message {
    client.next().await.expect("a message").expect("a connection")
}

/// The code and the reason of the close frame that comes next.
async fn closed(client: &mut Client) -> (u16, String) {
    match receive(client).await {
        Message::Close(Some(CloseFrame { code, reason })) => (code.into(), reason.to_string()),
        other => panic!("{other:?} is no close frame"),
    }
}

#[tokio::test]
async fn an_accepted_call_carries_bytes_both_ways_and_notices_as_text() {
    let (mut client, mut seen) = open("?read_only=true").await;
    let entry = ConsoleEntry {
        node: "nodes/n1".to_owned(),
        read_only: true,
        take_over: false,
    };
    assert_eq!(seen.recv().await, Some(Event::Entered(entry)));
    let Message::Text(notice) = receive(&mut client).await else {
        panic!("no text")
    };
    let notice: serde_json::Value = serde_json::from_str(&notice).expect("JSON");
    assert_eq!(notice, json!({"notice": "you only watch: ann types"}));
    for typed in [&b"root\r"[..], b"\x1b[A\xff\x00"] {
        let message = Message::Binary(Bytes::from_static(typed));
        client.send(message.clone()).await.expect("sent");
        assert_eq!(receive(&mut client).await, message);
    }
    let typed = Message::Binary(Bytes::from_static(b"logout"));
    client.send(typed).await.expect("sent");
    assert_eq!(closed(&mut client).await, (1000, String::new()));
    assert!(client.next().await.is_none(), "the connection has ended");
    assert_eq!(seen.recv().await, Some(Event::Ended));
}

#[tokio::test]
async fn the_status_of_a_failed_call_is_the_close_code() {
    let (mut client, mut seen) = open("?take_over=true").await;
    let Some(Event::Entered(entry)) = seen.recv().await else {
        panic!("no entry")
    };
    assert!(entry.take_over && !entry.read_only);
    receive(&mut client).await;
    let typed = Message::Binary(Bytes::from_static(b"take"));
    client.send(typed).await.expect("sent");
    // A close frame has room for 123 bytes, and these characters have two each.
    assert_eq!(closed(&mut client).await, (4010, "é".repeat(61)));
}

#[tokio::test]
async fn a_message_that_is_too_large_or_is_text_closes_the_connection() {
    let large = Message::Binary(vec![7; LIMIT + 1].into());
    for (message, expected) in [
        (large, (1009, format!("a message has at most {LIMIT} bytes"))),
        (Message::Text("ls".into()), (1003, "send binary messages".to_owned())),
    ] {
        let (mut client, mut seen) = open("").await;
        assert!(matches!(seen.recv().await, Some(Event::Entered(_))));
        receive(&mut client).await;
        client.send(message).await.expect("sent");
        assert_eq!(closed(&mut client).await, expected);
        assert_eq!(seen.recv().await, Some(Event::Ended));
    }
}

#[tokio::test]
async fn the_end_of_the_client_ends_the_call() {
    let (client, mut seen) = open("").await;
    assert!(matches!(seen.recv().await, Some(Event::Entered(_))));
    drop(client);
    assert_eq!(seen.recv().await, Some(Event::Ended));

    let (mut client, mut seen) = open("").await;
    assert!(matches!(seen.recv().await, Some(Event::Entered(_))));
    client.close(None).await.expect("closed");
    assert_eq!(seen.recv().await, Some(Event::Ended));
}

/// A request for a WebSocket without a connection.
fn request() -> Request<Body> {
    let request = Request::get(PATH)
        .header("host", "rack.example")
        .header("connection", "keep-alive, Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let mut request = request.body(Body::empty()).expect("a request");
    let upgrade = hyper::upgrade::on(Request::new(()));
    request.extensions_mut().insert(upgrade);
    request
}

#[tokio::test]
async fn a_refused_call_is_a_rest_error() {
    let service = Scripted {
        refuses: true,
        ..Scripted::new(&[], Status::permission_denied("viewers cannot type"))
    };
    let answer = service.send(request()).await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.headers["content-type"], "application/json");
    let error = json!({"code": 403, "status": "PERMISSION_DENIED", "message": "viewers cannot type"});
    assert_eq!(answer.json()["error"], error);
}

#[tokio::test]
async fn requests_that_cannot_open_a_websocket_do_not_reach_the_service() {
    let service = Scripted::new(&[], Status::ok(""));
    for (header, value, status, words) in [
        ("connection", "keep-alive", 426, "send Connection: Upgrade"),
        ("upgrade", "h2c", 426, "Upgrade: websocket"),
        ("sec-websocket-version", "8", 426, "only version 13"),
        ("sec-websocket-key", "c2hvcnQ=", 400, "Sec-WebSocket-Key: 16 bytes"),
        ("content-length", "2", 400, "takes no body"),
        ("origin", "https://other.example", 403, "pages of other sites"),
        ("origin", "null", 403, "pages of other sites"),
        ("sec-fetch-site", "cross-site", 403, "pages of other sites"),
    ] {
        let mut request = request();
        let value = value.parse().expect("a value");
        request.headers_mut().insert(header, value);
        let answer = service.send(request).await;
        let message = answer.json()["error"]["message"].to_string();
        assert_eq!(answer.status, status, "{header}: {message}");
        assert!(message.contains(words), "{header}: {message}");
        if status == 426 {
            assert_eq!(answer.headers["upgrade"], "websocket");
            assert_eq!(answer.headers["sec-websocket-version"], "13");
        }
    }
    let mut over_http2 = request();
    *over_http2.version_mut() = Version::HTTP_2;
    let answer = service.send(over_http2).await;
    assert_eq!(answer.status, 400);
    let mut post = request();
    *post.method_mut() = Method::POST;
    let answer = service.send(post).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["allow"]),
        (405, &"GET".parse().expect("a value"))
    );
    let mut unknown = request();
    *unknown.uri_mut() = "/v1/nodes/n1/console?colour=red".parse().expect("a path");
    let answer = service.send(unknown).await;
    assert_eq!(answer.status, 400);
    assert!(service.is_untouched());
}
