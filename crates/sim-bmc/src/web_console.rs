//! The serial port over a WebSocket of the web server (RFC 6455; `SerialConsole.WebSocket` of a ComputerSystem).

use super::console::{Terminal, carry};
use super::host::ConsoleKind;
use super::reply::Fault;
use super::routes::{Bmc, To};
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

/// The same path as on OpenBMC.
pub(super) const PATH: &str = "/console0";

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Opens the serial port; the login was checked as for every request.
pub(super) async fn open(To(bmc): To, mut request: Request) -> Result<Response, Fault> {
    let is_there = bmc.host.description().console == Some(ConsoleKind::WebSocket) && bmc.host.serial().is_some();
    if !is_there {
        return Err(Fault::not_found(PATH));
    }
    let Some(key) = accept_key(request.headers()) else {
        return answer(StatusCode::UPGRADE_REQUIRED, None);
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(serve(upgrade, bmc));
    answer(StatusCode::SWITCHING_PROTOCOLS, Some(&key))
}

fn answer(status: StatusCode, accept: Option<&str>) -> Result<Response, Fault> {
    let mut answer = Response::builder()
        .status(status)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket");
    if let Some(accept) = accept {
        answer = answer.header(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    answer
        .body(Body::empty())
        .map_err(|_| Fault::internal("no answer can be made"))
}

/// The accept value for a WebSocket request; `None` if it is not one.
fn accept_key(headers: &HeaderMap) -> Option<String> {
    let has_value = |name: header::HeaderName, word: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    };
    let is_upgrade = has_value(header::CONNECTION, "upgrade")
        && has_value(header::UPGRADE, "websocket")
        && has_value(header::SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?;
    is_upgrade.then(|| derive_accept_key(key.as_bytes()))
}

/// Runs until the client leaves. The connection no longer belongs to the web server.
async fn serve(upgrade: OnUpgrade, bmc: Arc<Bmc>) {
    let Ok(upgraded) = upgrade.await else { return };
    let Some(serial) = bmc.host.serial() else { return };
    let socket: Socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
    let (to, from) = socket.split();
    let (input, typed) = mpsc::channel(64);
    tokio::select! {
        () = carry(to, serial, typed) => {}
        () = read(from, input) => {}
    }
}

impl Terminal for SplitSink<Socket, Message> {
    async fn show(&mut self, bytes: &[u8]) -> bool {
        self.send(Message::Binary(bytes.to_vec().into())).await.is_ok()
    }
}

/// Forwards input until the client leaves.
async fn read(mut from: SplitStream<Socket>, input: mpsc::Sender<Vec<u8>>) {
    while let Some(Ok(message)) = from.next().await {
        let typed = match message {
            Message::Binary(bytes) => bytes.to_vec(),
            Message::Text(text) => text.as_bytes().to_vec(),
            Message::Close(_) => return,
            // Pings; the library answers them.
            _ => continue,
        };
        if input.send(typed).await.is_err() {
            return;
        }
    }
}
