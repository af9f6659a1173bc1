//! Serial ports behind a WebSocket.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rackwright_redfish::{
    BmcClient, BmcHints, BmcTarget, CertificateFingerprint, ErrorKind, RedfishError, Settings, WebConsole, WebLine,
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::bmc::SYSTEM;
use crate::server::{Answer, Request, Server};
use crate::tls::Certificate;

const CONSOLE: &str = "/console0";

fn accept(request: &Request) -> Answer {
    let is_upgrade = request.header("upgrade") == Some("websocket")
        && request.header("connection") == Some("Upgrade")
        && request.header("sec-websocket-version") == Some("13");
    match request.header("sec-websocket-key") {
        Some(key) if is_upgrade => Answer::WebSocket(derive_accept_key(key.as_bytes())),
        _ => Answer::status(400),
    }
}

/// A BMC over TLS with a console at its system; `console` answers the requests to it.
async fn start(certificate: &Certificate, console: fn(&Request) -> Answer) -> Server {
    let system = json!({"SerialConsole": {"WebSocket": {
        "ServiceEnabled": true, "Interactive": true, "ConsoleURI": CONSOLE
    }}});
    Server::start(
        Some(Arc::new(Mutex::new(certificate.acceptor()))),
        Duration::ZERO,
        Arc::new(move |request| match request.path.as_str() {
            "/redfish/v1/" => Answer::json(200, &json!({"Systems": {"@odata.id": "/redfish/v1/Systems"}})),
            "/redfish/v1/Systems" => Answer::json(200, &json!({"Members": [{"@odata.id": SYSTEM}]})),
            SYSTEM => Answer::json(200, &system),
            CONSOLE => console(request),
            _ => Answer::status(404),
        }),
    )
    .await
}

fn client(server: &Server, pin: CertificateFingerprint) -> BmcClient {
    let target = BmcTarget {
        address: server.url(),
        username: "admin".to_owned(),
        password: "secret-secret".into(),
        certificate_sha256: Some(pin),
        system: None,
    };
    BmcClient::for_polling(target, Settings::default(), &BmcHints::default()).unwrap()
}

async fn open(console: fn(&Request) -> Answer) -> Result<(WebLine, Server), RedfishError> {
    let certificate = Certificate::new();
    let server = start(&certificate, console).await;
    let client = client(&server, certificate.fingerprint());
    let offered = client.console().await?.web.expect("it is offered");
    assert_eq!(
        offered,
        WebConsole {
            uri: CONSOLE.to_owned()
        }
    );
    Ok((client.open_console(&offered).await?, server))
}

async fn read(line: &mut WebLine, expected: &str) {
    let mut shown = vec![0; expected.len()];
    line.read_exact(&mut shown).await.unwrap();
    assert_eq!(String::from_utf8(shown).unwrap(), expected);
}

#[tokio::test]
async fn bytes_go_both_ways_through_the_pinned_connection() {
    let (mut line, server) = open(accept).await.unwrap();
    read(&mut line, "log").await;
    read(&mut line, "in: (pong)").await;
    for typed in ["root\r", "\u{3}", "ls /\r"] {
        line.write_all(typed.as_bytes()).await.unwrap();
        line.flush().await.unwrap();
        read(&mut line, typed).await;
    }
    let long = "x".repeat(100_000);
    let (mut reader, mut writer) = tokio::io::split(line);
    let typing = async {
        writer.write_all(long.as_bytes()).await.unwrap();
        writer.flush().await.unwrap();
    };
    let mut shown = vec![0; long.len()];
    let reading = async { reader.read_exact(&mut shown).await.unwrap() };
    tokio::join!(typing, reading);
    assert_eq!(shown, long.as_bytes());
    writer.write_all(b"quit").await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!(reader.read(&mut [0; 8]).await.unwrap(), 0, "the BMC has ended it");

    let requests = server.requests();
    let upgrade = requests.iter().find(|request| request.path == CONSOLE).unwrap();
    assert!(
        upgrade
            .header("authorization")
            .is_some_and(|proof| proof.starts_with("Basic "))
    );
}

#[tokio::test]
async fn an_answer_without_a_web_socket_is_an_error() {
    let other = open(|_| Answer::json(200, &json!({}))).await.err().unwrap();
    assert!(matches!(other, RedfishError::NotOffered { .. }), "{other:?}");
    let wrong = open(|_| Answer::WebSocket("c29tZWJvZHkgZWxzZQ==".to_owned()))
        .await
        .err()
        .unwrap();
    assert!(matches!(wrong, RedfishError::NotOffered { .. }), "{wrong:?}");
    let absent = open(|_| Answer::status(404)).await.err().unwrap();
    assert_eq!((absent.status(), absent.kind()), (Some(404), ErrorKind::Permanent));
    let busy = open(|_| Answer::status(503)).await.err().unwrap();
    assert_eq!((busy.status(), busy.kind()), (Some(503), ErrorKind::Retryable));
    let broken = open(|_| Answer::Hangup).await.err().unwrap();
    assert!(matches!(broken, RedfishError::Broken { .. }), "{broken:?}");
}

#[tokio::test]
async fn another_certificate_gets_no_password_for_the_console() {
    let server = start(&Certificate::new(), accept).await;
    let client = client(&server, Certificate::new().fingerprint());
    let console = WebConsole {
        uri: format!("wss://elsewhere.example{CONSOLE}"),
    };
    let failure = client.open_console(&console).await.err().unwrap();
    assert!(
        matches!(failure, RedfishError::CertificateChanged { .. }),
        "{failure:?}"
    );
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_uri_of_another_name_leads_to_the_same_bmc() {
    let certificate = Certificate::new();
    let server = start(&certificate, accept).await;
    let client = client(&server, certificate.fingerprint());
    let console = WebConsole {
        uri: format!("wss://elsewhere.example{CONSOLE}"),
    };
    let mut line = client.open_console(&console).await.unwrap();
    read(&mut line, "login: ").await;
}
