//! Switches that lie, stay silent, send too much, or use another protocol.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rackwright_ports::{
    Access, Address, Login, Netconf, NetconfSettings, OpenVSwitch, OvsSettings, PortDriver, PortsError, SshSettings,
    SwitchConfig, Version, report,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener, UnixStream};

/// A switch that serves each connection with `serve`. It ends with the runtime.
fn listen<F: Future<Output = ()> + Send>(dir: &Path, serve: impl Fn(UnixStream) -> F + Send + 'static) -> PathBuf {
    let path = dir.join("db.sock");
    let listener = UnixListener::bind(&path).expect("it works");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            serve(stream).await;
        }
    });
    path
}

fn driver(path: PathBuf, timeout: Duration) -> OpenVSwitch {
    OpenVSwitch::new(OvsSettings {
        switch: "leaf-1".into(),
        address: Address::Unix(path),
        tls: None,
        bridge: "br0".into(),
        timeout,
    })
}

fn config(vlan: u16) -> SwitchConfig {
    SwitchConfig {
        version: Version { generation: 2, step: 5 },
        ports: [("p1".to_owned(), Access { vlan, isolated: true })].into(),
    }
}

/// Reads one request. `None`: the client has disconnected.
async fn request(stream: &mut UnixStream, buffer: &mut Vec<u8>) -> Option<Value> {
    loop {
        let mut texts = serde_json::Deserializer::from_slice(buffer).into_iter();
        if let Some(Ok(message)) = texts.next() {
            let end = texts.byte_offset();
            buffer.drain(..end);
            return Some(message);
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Answers every request with the same rows and accepts every change.
async fn same_rows(mut stream: UnixStream, port: Value, current: i64, stored: i64) {
    let mut buffer = Vec::new();
    while let Some(request) = request(&mut stream, &mut buffer).await {
        let results: Vec<Value> = request["params"].as_array().expect("it works")[1..]
            .iter()
            .map(
                |operation| match (operation["op"].as_str(), operation["table"].as_str()) {
                    (Some("select"), Some("Bridge")) => json!({"rows": [{"ports": ["uuid", "1"]}]}),
                    (Some("select"), Some("Port")) => json!({"rows": [port]}),
                    (Some("select"), _) => json!({"rows": [{"cur_cfg": current, "next_cfg": stored}]}),
                    (Some("wait"), Some("Open_vSwitch")) => json!({"error": "timed out", "details": ""}),
                    _ => json!({}),
                },
            )
            .collect();
        // A request by the switch. The client must answer it and must not take it for the answer.
        stream
            .write_all(br#"{"method":"echo","params":["x"],"id":"e"}"#)
            .await
            .expect("it works");
        let answer = json!({"id": request["id"], "result": results, "error": null}).to_string();
        stream.write_all(answer.as_bytes()).await.expect("it works");
        let echoed = self::request(&mut stream, &mut buffer).await.expect("it works");
        assert_eq!((&echoed["id"], &echoed["result"]), (&json!("e"), &json!(["x"])));
    }
}

fn port(vlan: Value, external_ids: Value) -> Value {
    json!({
        "_uuid": ["uuid", "1"], "name": "p1", "tag": vlan, "trunks": ["set", []], "cvlans": ["set", []],
        "vlan_mode": "access", "protected": true, "external_ids": external_ids,
    })
}

async fn answer_of(port: Value, (current, stored): (i64, i64), vlan: u16) -> Result<bool, PortsError> {
    let dir = tempfile::tempdir().expect("it works");
    let path = listen(dir.path(), move |stream| {
        same_rows(stream, port.clone(), current, stored)
    });
    let applied = driver(path, Duration::from_secs(60)).apply(&config(vlan)).await;
    applied.map(|applied| applied.changed)
}

fn no_ids() -> Value {
    json!(["map", []])
}

#[tokio::test]
async fn a_switch_that_accepts_a_change_and_keeps_the_port_is_detected() {
    let kept = answer_of(port(json!(101), no_ids()), (4, 4), 10)
        .await
        .expect_err("it is refused");
    assert!(matches!(kept, PortsError::NotApplied { .. }), "{kept}");
    assert!(
        kept.to_string()
            .contains("switch leaf-1, port p1: VLAN 10, isolated was set"),
        "{kept}"
    );
    assert!(
        answer_of(port(json!(10), no_ids()), (4, 4), 10)
            .await
            .expect("it works")
    );
}

#[tokio::test]
async fn a_switch_that_only_stores_a_change_proves_nothing() {
    let idle = answer_of(port(json!(10), no_ids()), (3, 4), 10)
        .await
        .expect_err("it is refused");
    assert!(matches!(idle, PortsError::NotInEffect { .. }), "{idle}");
}

#[tokio::test]
async fn a_newer_request_on_a_port_stays() {
    let ids = json!(["map", [["rackwright-version", "3.1"]]]);
    let newer = answer_of(port(json!(101), ids), (4, 4), 10)
        .await
        .expect_err("it is refused");
    assert!(matches!(newer, PortsError::Superseded { .. }), "{newer}");
}

#[tokio::test]
async fn rows_of_another_form_are_refused() {
    for bad in [
        json!("ten"),
        json!(70000),
        json!(-1),
        json!(["set", [["uuid", "x"]]]),
        json!({"a": 1}),
    ] {
        let error = answer_of(port(bad.clone(), no_ids()), (4, 4), 10)
            .await
            .expect_err("it is refused");
        assert!(matches!(error, PortsError::Answer { .. }), "{bad}: {error}");
    }
    for column in ["name", "tag", "trunks", "protected", "external_ids"] {
        let mut port = port(json!(10), no_ids());
        port.as_object_mut().expect("it works").remove(column);
        let error = answer_of(port, (4, 4), 10).await.expect_err("it is refused");
        assert!(matches!(error, PortsError::Answer { .. }), "{column}: {error}");
    }
}

#[tokio::test]
async fn a_port_of_another_bridge_is_not_touched() {
    let mut other = port(json!(10), no_ids());
    other["_uuid"] = json!(["uuid", "2"]);
    let error = answer_of(other, (4, 4), 10).await.expect_err("it is refused");
    assert!(matches!(error, PortsError::NoPort { .. }), "{error}");
}

/// The driver's error when a switch sends these bytes, once or endlessly.
async fn answered_with(bytes: &'static [u8], endless: bool) -> PortsError {
    let dir = tempfile::tempdir().expect("it works");
    let path = listen(dir.path(), move |mut stream| async move {
        let mut request = [0; 64];
        let _ = stream.read(&mut request).await;
        while stream.write_all(bytes).await.is_ok() && endless {}
    });
    driver(path, Duration::from_secs(60))
        .read()
        .await
        .expect_err("it is refused")
}

#[tokio::test]
async fn answers_without_sense_or_end_are_refused() {
    assert!(matches!(
        answered_with(b"SSH-2.0-x\r\n", false).await,
        PortsError::Answer { .. }
    ));
    assert!(matches!(
        answered_with(b"{not json}", false).await,
        PortsError::Answer { .. }
    ));
    assert!(matches!(
        answered_with(b"{\"id\":1,", false).await,
        PortsError::Broken { .. }
    ));
    assert!(matches!(answered_with(b"", false).await, PortsError::Broken { .. }));
    let endless = answered_with(&[b'{'; 1 << 16], true).await;
    assert!(matches!(endless, PortsError::TooLong { .. }), "{endless}");
    let others = answered_with(br#"{"method":"update","params":[],"id":null}"#, true).await;
    assert!(matches!(others, PortsError::Answer { .. }), "{others}");
    for result in [
        &br#"{"id":1,"result":7,"error":null}"#[..],
        br#"{"id":1,"result":[],"error":null}"#,
        br#"{"id":1,"result":[{"rows":[{}]},{"rows":[7]},{"rows":[]}],"error":null}"#,
    ] {
        let error = answered_with(result, false).await;
        assert!(matches!(error, PortsError::Answer { .. }), "{error}");
    }
    let refused = answered_with(br#"{"id":1,"result":null,"error":"not now"}"#, false).await;
    assert!(matches!(refused, PortsError::Refused { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_switch_is_given_up_in_time() {
    let dir = tempfile::tempdir().expect("it works");
    let path = listen(dir.path(), |stream| async move {
        let _open = stream;
        std::future::pending::<()>().await;
    });
    let silent = driver(path, Duration::from_secs(20))
        .read()
        .await
        .expect_err("it is refused");
    assert_eq!(
        silent.to_string(),
        "switch leaf-1 did not answer within 20 s; check that its management service runs"
    );
    let gone = driver(dir.path().join("nothing"), Duration::from_secs(20))
        .read()
        .await
        .expect_err("it is refused");
    assert!(
        report(&gone).contains("cannot be reached at unix:"),
        "{}",
        report(&gone)
    );
}

/// The error of a driver for NETCONF when a server sends these bytes instead of SSH, once or endlessly. The driver leaves no
/// connection open.
async fn greeted_with(bytes: &'static [u8], endless: bool) -> PortsError {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("it works");
    let address = listener.local_addr().expect("it works");
    let ended = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("it works");
        while stream.write_all(bytes).await.is_ok() && endless {}
        // The connection stays open until the driver ends it.
        let _: Result<usize, _> = stream.read_to_end(&mut Vec::new()).await;
    });
    let driver = Netconf::new(NetconfSettings {
        switch: "leaf-1".into(),
        ssh: SshSettings {
            address: format!("ssh://{address}").parse().expect("it works"),
            host_key: "SHA256:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE"
                .parse()
                .expect("it works"),
            user: "rackwright".into(),
            login: Login::Key("Cargo.toml".into()),
        },
        isolated: [10].into(),
        timeout: Duration::from_secs(2),
    });
    let error = driver.apply(&config(10)).await.expect_err("it is refused");
    let ended = tokio::time::timeout(Duration::from_secs(20), ended).await;
    ended.expect("the connection ends").expect("it works");
    error
}

#[tokio::test]
async fn servers_without_ssh_are_refused_or_given_up_in_time() {
    let silent = greeted_with(b"", false).await;
    assert!(matches!(silent, PortsError::Timeout { .. }), "{silent}");
    let half = greeted_with(b"SSH-2.0-switch", false).await;
    assert!(matches!(half, PortsError::Timeout { .. }), "{half}");
    for (bytes, endless) in [
        (&b"SSH-1.0-x\r\n"[..], false),
        (b"SSH-2.0-switch\r\n\xff\xff\xff\xff\xff\xff\xff\xff", false),
        (&[b'x'; 1 << 12], true),
        (b"words\r\n", true),
    ] {
        let error = greeted_with(bytes, endless).await;
        let is_bounded = matches!(error, PortsError::Unproven { .. } | PortsError::Timeout { .. });
        assert!(is_bounded && !report(&error).chars().any(char::is_control), "{error}");
    }
}
