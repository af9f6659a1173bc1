//! The listeners of `rackwrightd`: exactly the documented sockets, cleartext only where firmware needs it, and counters
//! for invalid packets.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rackwright_lab::{self as lab, SERVER_IPV4};
use rackwright_tests::site::{Site, texts};

use crate::client::{authority, start, until};

/// As listed in deploy/README.md, except ports that only proxyDHCP needs.
const IN_THE_CLEAR: &[(&str, u16)] = &[("UDP", 67), ("UDP", 68), ("UDP", 69), ("TCP", 8080)];
const OVER_TLS: &[(&str, u16)] = &[("TCP", 7070), ("TCP", 7443)];

#[test]
fn only_documented_ports_are_open_and_only_firmware_is_served_without_tls() {
    lab::run_test(
        "wire::only_documented_ports_are_open_and_only_firmware_is_served_without_tls",
        async |namespace| {
            let (_lab, site, _api) = start(&namespace).await;
            let documented = include_str!("../../../deploy/README.md").replace('\n', " ");
            for (protocol, port) in IN_THE_CLEAR.iter().chain(OVER_TLS) {
                let named = format!("{protocol} {port}");
                assert!(documented.contains(&named), "deploy/README.md does not name {named}");
            }
            let wanted: BTreeSet<_> = IN_THE_CLEAR.iter().chain(OVER_TLS).copied().collect();
            assert_eq!(listening(site.pid()), wanted);
            let authority_file = namespace.state_dir().join("authority.pem");
            std::fs::write(&authority_file, authority(&site.dir().join("cli"))).expect("the file can be written");
            for (_, port) in OVER_TLS {
                speaks_tls(*port, &authority_file);
                let plain = answer_in_the_clear(*port);
                assert!(
                    !plain.starts_with("HTTP/1"),
                    "port {port} answers in the clear: {plain}"
                );
            }
            // The same request is understood on the cleartext port.
            assert!(answer_in_the_clear(8080).starts_with("HTTP/1"));
        },
    );
}

/// Ports on which a process accepts unsolicited data: TCP in state LISTEN, UDP that is bound and not connected.
fn listening(pid: u32) -> BTreeSet<(&'static str, u16)> {
    let folder = format!("/proc/{pid}/fd");
    let links = std::fs::read_dir(folder).expect("the daemon's files can be listed");
    let own: BTreeSet<String> = links
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            Some(
                link.to_str()?
                    .strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_owned(),
            )
        })
        .collect();
    let tables = [
        ("TCP", "tcp", "0A"),
        ("TCP", "tcp6", "0A"),
        ("UDP", "udp", "07"),
        ("UDP", "udp6", "07"),
    ];
    let mut ports = BTreeSet::new();
    for (protocol, table, state) in tables {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).expect("the table can be read");
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields[3] == state && own.contains(fields[9]) {
                let port = fields[1].rsplit(':').next().expect("an address has a port");
                ports.insert((protocol, u16::from_str_radix(port, 16).expect("a port is hex")));
            }
        }
    }
    ports
}

/// A handshake under the site's authority. Without a client certificate it ends there; another test covers the rest.
fn speaks_tls(port: u16, authority: &Path) {
    let output = Command::new("openssl")
        .args([
            "s_client",
            "-brief",
            "-verify_return_error",
            "-verify_ip",
            &SERVER_IPV4.to_string(),
            "-CAfile",
        ])
        .arg(authority)
        .args(["-connect", &format!("{SERVER_IPV4}:{port}")])
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs");
    let (out, err) = texts(&output);
    let output = format!("{out}{err}");
    assert!(output.contains("Verification: OK"), "no TLS on port {port}: {output}");
    assert!(output.contains("TLSv1.3") || output.contains("TLSv1.2"), "{output}");
}

fn answer_in_the_clear(port: u16) -> String {
    let mut stream = TcpStream::connect((SERVER_IPV4, port)).expect("the port is open");
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a time-out can be set");
    // A TLS server may hang up at any point of this.
    let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn counters(site: &Site) -> BTreeMap<String, u64> {
    let shown = site.json(["boot", "counters"]);
    let counters = shown["counters"]
        .as_object()
        .unwrap_or_else(|| panic!("no counters: {shown}"));
    let number = |value: &serde_json::Value| value.as_u64().expect("a counter is a number");
    counters
        .iter()
        .map(|(name, value)| (name.clone(), number(value)))
        .collect()
}

#[test]
fn malformed_packets_are_counted_and_dropped() {
    lab::run_test("wire::malformed_packets_are_counted_and_dropped", async |namespace| {
        let (_lab, site, _api) = start(&namespace).await;
        let before = counters(&site);
        let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a port is free");
        socket.set_broadcast(true).expect("broadcasts can be sent");
        // A packet of the right length without the magic cookie, and a packet that ends in its header.
        let mut packet = vec![0; 300];
        packet[..4].copy_from_slice(&[1, 1, 6, 0]);
        for sent in [&packet[..], &packet[..20]] {
            socket.send_to(sent, ("10.77.0.255", 67)).expect("it is sent");
        }
        let after = until("they are counted", async || {
            let now = counters(&site);
            (now["dhcp_malformed_total"] >= before["dhcp_malformed_total"] + 2).then_some(now)
        })
        .await;
        assert_eq!(after["dhcp_malformed_total"], before["dhcp_malformed_total"] + 2);
        for answered in ["dhcp_offer_total", "dhcp_ack_total"] {
            assert_eq!(after.get(answered), before.get(answered), "{answered}");
        }
        let text = site.cli(["boot", "counters"]);
        let line = text.lines().find(|l| l.starts_with("dhcp_malformed_total"));
        assert!(line.is_some_and(|l| l.trim_end().ends_with('2')), "{text}");
    });
}
