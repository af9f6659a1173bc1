//! Switches that lie, stay silent, send too much, or use another protocol.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::model::Access;
use crate::wire::ANSWER_BYTES;

const END: &str = "]]>]]>";
const OK: &str = "<ok/>";
const CANDIDATE: &str = "urn:ietf:params:netconf:capability:candidate:1.0";

fn driver(seconds: u64) -> Netconf {
    Netconf::new(NetconfSettings {
        switch: "leaf-1".into(),
        ssh: SshSettings {
            address: "ssh://leaf-1".parse().unwrap(),
            host_key: "SHA256:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE".parse().unwrap(),
            user: "rackwright".into(),
            login: Login::Key("/".into()),
        },
        isolated: [10].into(),
        timeout: Duration::from_secs(seconds),
    })
}

fn config(vlan: u16) -> SwitchConfig {
    let access = Access { vlan, isolated: false };
    SwitchConfig {
        version: Version { generation: 2, step: 5 },
        ports: [("p1".to_owned(), access)].into(),
    }
}

fn hello(capabilities: &[&str]) -> String {
    let capability = |name: &&str| format!("<capability>{name}</capability>");
    let list: String = capabilities.iter().map(capability).collect();
    format!(
        "<hello xmlns=\"{}\"><capabilities>{list}</capabilities></hello>{END}",
        Space::Base.name()
    )
}

fn base(more: &[&'static str]) -> String {
    hello(&[&["urn:ietf:params:netconf:base:1.0"], more].concat())
}

fn reply(id: &str, content: &str) -> String {
    format!(
        "<rpc-reply xmlns=\"{}\" message-id=\"{id}\">{content}</rpc-reply>{END}",
        Space::Base.name()
    )
}

fn rpc_error(tag: &str, severity: &str, info: &str) -> String {
    format!(
        "<rpc-error><error-tag>{tag}</error-tag><error-severity>{severity}</error-severity><error-path>/x</error-path>\
         <error-message>words</error-message><error-info>{info}</error-info></rpc-error>"
    )
}

/// A port in a VLAN by its configuration, and in one by its state.
fn port(name: &str, configured: u16, state: Option<u16>, description: &str) -> String {
    let leaves = |vlan| format!("<interface-mode>ACCESS</interface-mode><access-vlan>{vlan}</access-vlan>");
    let state = state
        .map(|vlan| format!("<state>{}</state>", leaves(vlan)))
        .unwrap_or_default();
    format!(
        "<interface><name>{name}</name><config><description>{description}</description></config><ethernet xmlns=\"{}\">\
         <switched-vlan xmlns=\"{}\"><config>{}</config>{state}</switched-vlan></ethernet></interface>",
        Space::Ethernet.name(),
        Space::Vlan.name(),
        leaves(configured)
    )
}

fn data(ports: &str) -> String {
    format!(
        "<data><interfaces xmlns=\"{}\">{ports}</interfaces></data>",
        Space::Interfaces.name()
    )
}

/// A switch that begins with `first`, and answers each request with what `answer` makes of it and of its id.
fn serve(first: String, mut answer: impl FnMut(&str, &str) -> String + Send + 'static) -> DuplexStream {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        far.write_all(first.as_bytes()).await?;
        let (mut input, mut is_greeted) = (Vec::new(), false);
        while far.read_buf(&mut input).await? > 0 {
            while let Some(at) = input.windows(END.len()).position(|bytes| bytes == END.as_bytes()) {
                let request: Vec<u8> = input.drain(..at + END.len()).collect();
                if std::mem::replace(&mut is_greeted, true) {
                    let request = String::from_utf8_lossy(&request);
                    let (_, id) = request.split_once("message-id=\"").unwrap();
                    let answered = answer(&request, id.split('"').next().unwrap());
                    far.write_all(answered.as_bytes()).await?;
                }
            }
        }
        std::io::Result::Ok(())
    });
    near
}

async fn apply(stream: DuplexStream, vlan: u16) -> Result<Applied, PortsError> {
    let driver = driver(60);
    driver
        .with_timeout(async {
            let session = Session::over("leaf-1", Box::new(stream), Box::new(()), true).await?;
            driver.apply_over(session, &config(vlan)).await
        })
        .await
}

/// The result with a switch that answers each reading with these ports and accepts every change.
async fn with_ports(ports: String, vlan: u16) -> Result<Applied, PortsError> {
    let answer = move |request: &str, id: &str| match request.contains("<get>") {
        true => reply(id, &data(&ports)),
        false => reply(id, OK),
    };
    apply(serve(base(&[CANDIDATE]), answer), vlan).await
}

/// The error with a switch that sends this after its hello, whatever is asked.
async fn with_bytes(bytes: String) -> PortsError {
    apply(serve(base(&[CANDIDATE]) + &bytes, |_, _| String::new()), 10)
        .await
        .unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_accepts_a_change_and_keeps_the_port_is_detected() {
    let kept = with_ports(port("p1", 101, None, ""), 7).await.unwrap_err();
    assert_eq!(
        kept.to_string(),
        "switch leaf-1, port p1: VLAN 7 was set, but the port is in VLAN 101; check the port on the switch"
    );
    let only_stored = with_ports(port("p1", 7, Some(101), ""), 7).await.unwrap_err();
    assert!(
        only_stored
            .to_string()
            .contains("the port is in VLAN 101, but configured for VLAN 7;"),
        "{only_stored}"
    );
    let moved = with_ports(port("p1", 7, Some(7), ""), 7).await.unwrap();
    assert!(moved.changed && moved.operational);
    assert!(!with_ports(port("p1", 7, None, ""), 7).await.unwrap().operational);
    let version = "uplink [rackwright 2.5]";
    assert!(!with_ports(port("p1", 7, Some(7), version), 7).await.unwrap().changed);
}

#[tokio::test]
async fn newer_requests_and_other_ports_stay() {
    let newer = with_ports(port("p1", 101, None, "[rackwright 3.1]"), 7)
        .await
        .unwrap_err();
    assert!(matches!(newer, PortsError::Superseded { .. }), "{newer}");
    let missing = with_ports(port("p2", 101, None, ""), 7).await.unwrap_err();
    assert!(matches!(missing, PortsError::NoPort { .. }), "{missing}");
    let twice = with_ports([port("p1", 101, None, ""), port("p1", 7, None, "")].concat(), 7)
        .await
        .unwrap_err();
    assert!(twice.to_string().contains("port p1 appears twice"), "{twice}");
    let unnamed = with_ports(port("", 101, None, ""), 7).await.unwrap_err();
    assert!(unnamed.to_string().contains("an interface has no name"), "{unnamed}");
}

#[tokio::test(start_paused = true)]
async fn refusals_name_the_tag_the_path_and_the_words_and_end_the_change() {
    for (step, tag, words) in [
        ("<lock>", "lock-denied", "session 7 has locked its configuration"),
        (
            "<discard-changes/>",
            "operation-failed",
            "operation-failed at /x: words",
        ),
        ("<edit-config>", "invalid-value", "invalid-value at /x: words"),
        ("<commit/>", "operation-failed", "operation-failed at /x: words"),
    ] {
        let (sent, requests) = std::sync::mpsc::channel();
        let ports = data(&port("p1", 101, None, ""));
        let answer = move |request: &str, id: &str| {
            sent.send(request.to_owned()).unwrap();
            if request.contains(step) {
                let warning = rpc_error("other", "warning", "");
                return reply(id, &(warning + &rpc_error(tag, "error", "<session-id>7</session-id>")));
            }
            reply(id, if request.contains("<get>") { &ports } else { OK })
        };
        let error = apply(serve(base(&[CANDIDATE]), answer), 7).await.unwrap_err();
        assert!(error.to_string().contains(words), "{step}: {error}");
        let last = requests.try_iter().last().unwrap();
        assert!(last.contains(step), "nothing follows {step}: {last}");
    }
    let warned = |request: &str, id: &str| match request.contains("<get>") {
        true => reply(id, &data(&port("p1", 7, Some(7), ""))),
        false => reply(id, &(rpc_error("other", "warning", "") + OK)),
    };
    assert!(apply(serve(base(&[CANDIDATE]), warned), 7).await.unwrap().changed);
}

#[tokio::test]
async fn a_switch_without_a_safe_way_to_change_ports_is_refused() {
    for (capabilities, words) in [
        (&[][..], ":candidate or :writable-running"),
        (
            &["urn:ietf:params:netconf:capability:writable-running:1.0"],
            ":candidate or :rollback-on-error",
        ),
    ] {
        let error = apply(serve(base(capabilities), |_, _| String::new()), 7)
            .await
            .unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn first_messages_of_another_form_are_refused() {
    for (first, words) in [
        (reply("1", OK), "not a hello"),
        (hello(&[]), "neither NETCONF 1.0 nor 1.1"),
        (format!("% Invalid input{END}"), "text outside"),
        (
            format!("<!DOCTYPE a [<!ENTITY b \"bbbb\">]><hello>&b;</hello>{END}"),
            "a DTD",
        ),
        (format!("<hello>{}{END}", "<a>".repeat(1000)), "levels"),
    ] {
        let error = apply(serve(first, |_, _| String::new()), 7).await.unwrap_err();
        assert!(
            matches!(error, PortsError::Answer { .. }) && error.to_string().contains(words),
            "{words}: {error}"
        );
    }
}

#[tokio::test]
async fn answers_to_other_requests_and_answers_without_a_request_are_refused() {
    let other = apply(serve(base(&[CANDIDATE]), |_, _| reply("9", &data(""))), 7)
        .await
        .unwrap_err();
    assert!(other.to_string().contains("another request"), "{other}");
    let unasked = with_bytes(reply("1", &data(""))).await;
    assert!(
        matches!(unasked, PortsError::Answer { .. } | PortsError::NoPort { .. }),
        "{unasked}"
    );
    let ports = data(&port("p1", 101, None, ""));
    let twice = move |request: &str, id: &str| match request.contains("<get>") {
        true => reply(id, &ports) + &reply(id, &ports),
        false => reply(id, OK),
    };
    let twice = apply(serve(base(&[CANDIDATE]), twice), 7).await.unwrap_err();
    assert!(matches!(twice, PortsError::Answer { .. }), "{twice}");
    for content in ["", "<data xmlns=\"x\"/>", "<ok/>"] {
        let answer = move |_: &str, id: &str| reply(id, content);
        let error = apply(serve(base(&[CANDIDATE]), answer), 7).await.unwrap_err();
        assert!(error.to_string().contains("no data"), "{error}");
    }
    let event = apply(serve(base(&[CANDIDATE]), |_, _| format!("<notification/>{END}")), 7)
        .await
        .unwrap_err();
    assert!(event.to_string().contains("not an rpc-reply"), "{event}");
}

#[tokio::test]
async fn endless_messages_are_refused() {
    for is_answer in [false, true] {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            if is_answer {
                far.write_all(base(&[CANDIDATE]).as_bytes()).await?;
                let mut requests = Vec::new();
                while !String::from_utf8_lossy(&requests).contains("message-id") {
                    far.read_buf(&mut requests).await?;
                }
            }
            while far.write_all(&[b'<'; 1 << 12]).await.is_ok() {}
            std::io::Result::Ok(())
        });
        let error = apply(near, 7).await.unwrap_err();
        assert!(
            matches!(
                error,
                PortsError::TooLong {
                    limit: ANSWER_BYTES,
                    ..
                }
            ),
            "{error}"
        );
    }
    let (near, far) = tokio::io::duplex(1 << 16);
    drop(far);
    assert!(matches!(apply(near, 7).await.unwrap_err(), PortsError::Broken { .. }));
}

#[tokio::test(start_paused = true)]
async fn silent_and_slow_switches_are_given_up_in_time() {
    let silent = apply(serve(base(&[CANDIDATE]), |_, _| String::new()), 7)
        .await
        .unwrap_err();
    assert!(silent.to_string().contains("did not answer within 60 s"), "{silent}");
    let (near, mut far) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        for byte in hello(&["x"; 1000]).bytes() {
            far.write_all(&[byte]).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        std::io::Result::Ok(())
    });
    let slow = apply(near, 7).await.unwrap_err();
    assert!(matches!(slow, PortsError::Timeout { .. }), "{slow}");
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_loses_its_first_request_in_chunks_is_recognised() {
    let open = async |offers_chunks: bool| {
        // This switch looks only for end marks.
        let answer = |_: &str, id: &str| reply(id, &data(&port("p1", 101, None, "")));
        let stream = serve(base(&["urn:ietf:params:netconf:base:1.1"]), answer);
        Session::over("leaf-1", Box::new(stream), Box::new(()), offers_chunks)
            .await
            .unwrap()
    };
    assert!(answering(open(true).await).await.unwrap().is_none());
    let mut session = answering(open(false).await).await.unwrap().unwrap();
    assert!(driver(60).reading(&mut session).await.unwrap().ports.contains_key("p1"));
}
