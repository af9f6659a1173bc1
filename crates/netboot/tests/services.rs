//! The servers over real sockets on loopback, without privileges and firmware.

#![allow(clippy::disallowed_methods)] // a test may read clocks and wait for the processes it started
#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

#[path = "common/mod.rs"]
mod common;

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Machine, MemoryDirectory};
use rackwright_netboot::connections::{Connections, Limits};
use rackwright_netboot::{
    Addresses, Binding, BootDirectory as _, BootIntent, BootLoader, Counters, DhcpMode, Mac, Netboot, NetbootConfig,
    OneTimeToken, Stage, Subnet,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio_util::sync::{CancellationToken, DropGuard};

const SERVER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const MAC: Mac = Mac([0x52, 0x54, 0, 0x77, 0, 1]);
const OTHER: Mac = Mac([0x52, 0x54, 0, 0x77, 0, 2]);
const LIMIT: Duration = Duration::from_secs(20);

struct Running {
    addresses: Addresses,
    directory: Arc<MemoryDirectory>,
    counters: Arc<Counters>,
    stage: Vec<u8>,
    _files: TempDir,
    _stop: DropGuard,
}

fn pseudo_random(length: usize, mut state: u32) -> Vec<u8> {
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn config(first_stages: BTreeMap<String, PathBuf>, dhcp: DhcpMode, dhcp_port: u16) -> NetbootConfig {
    NetbootConfig {
        server_ip: SERVER,
        interface: None,
        dhcp,
        dhcp_port,
        boot_server_port: 4011,
        tftp_port: 0,
        http_port: 0,
        first_stages,
        boot_loader: BootLoader::Ipxe,
        router_advertisements: false,
        boot_unknown: false,
        ca_pem: Some("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n".to_owned()),
        other_servers: Vec::new(),
    }
}

fn connections() -> Arc<Connections> {
    Connections::of_boot_http(&Limits::default())
}

async fn start(dhcp: DhcpMode, dhcp_port: u16) -> Running {
    let files = TempDir::new().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = files.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(content).unwrap();
        path
    };
    // More than 65,536 blocks of 8 bytes, and not a multiple of any block size in use here.
    let stage = pseudo_random(600_001, 1);
    let first = write("snponly.efi", &stage);
    let machine = Machine {
        address: Some(Ipv4Addr::new(127, 0, 0, 3)),
        boot: BootIntent::Network { loader: None },
    };
    let directory = Arc::new(MemoryDirectory::new(
        HashMap::from([(MAC, machine)]),
        write("kernel", &pseudo_random(3_000_000, 2)),
        write("ramdisk", b"ramdisk"),
        "quiet",
    ));
    let first_stages = BTreeMap::from([("snponly.efi".to_owned(), first)]);
    let netboot = Netboot::bind(config(first_stages, dhcp, dhcp_port), directory.clone(), connections())
        .await
        .unwrap();
    let (addresses, counters) = (netboot.addresses(), netboot.counters());
    let cancel = CancellationToken::new();
    tokio::spawn(netboot.run(cancel.clone()));
    Running {
        addresses,
        directory,
        counters,
        stage,
        _files: files,
        _stop: cancel.drop_guard(),
    }
}

impl Running {
    async fn token(&self, address: Option<Ipv4Addr>) -> OneTimeToken {
        self.directory.mint(&Binding { mac: MAC, address }).await.unwrap()
    }

    fn counter(&self, name: &str) -> u64 {
        self.counters.snapshot()[name]
    }

    async fn wait_for_counter(&self, name: &str, value: u64) {
        let until = Instant::now() + LIMIT;
        while self.counter(name) < value {
            assert!(
                Instant::now() < until,
                "{name} is {} and not {value}",
                self.counter(name)
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn http(&self, method: &str, target: &str, header: &str) -> Http {
        let mut stream = TcpStream::connect(self.addresses.http).await.unwrap();
        let request = format!("{method} {target} HTTP/1.1\r\nHost: boot\r\nConnection: close\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer))
            .await
            .unwrap()
            .unwrap();
        let end = answer
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .expect("an HTTP header")
            + 4;
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Http {
            status,
            head: head.to_ascii_lowercase(),
            body: answer[end..].to_vec(),
        }
    }

    async fn script(&self, mac: Mac, token: &OneTimeToken) -> Http {
        self.http(
            "GET",
            &format!("/boot/v1/script?mac={mac}&token={}", token.expose()),
            "",
        )
        .await
    }
}

struct Http {
    status: u16,
    head: String,
    body: Vec<u8>,
}

#[tokio::test]
async fn a_token_opens_one_script_for_one_machine_once() {
    let running = start(DhcpMode::Off, 67).await;
    let elsewhere = running.token(Some(Ipv4Addr::new(127, 0, 0, 3))).await;
    assert_eq!(
        running.script(MAC, &elsewhere).await.status,
        403,
        "another client address"
    );
    let token = running.token(Some(SERVER)).await;
    assert_eq!(running.script(OTHER, &token).await.status, 403, "another MAC address");
    let target = format!("/boot/v1/script?mac={MAC}&token={}", token.expose());
    assert_eq!(
        running.http("HEAD", &target, "").await.status,
        405,
        "HEAD must not use the token up"
    );
    let script = running.script(MAC, &token).await;
    assert_eq!(script.status, 200);
    assert!(script.head.contains("cache-control: no-store"));
    let text = String::from_utf8(script.body).unwrap();
    assert!(text.starts_with("#!ipxe\n"), "{text}");
    let again = running.script(MAC, &token).await;
    assert_eq!(again.status, 403);
    assert!(String::from_utf8(again.body).unwrap().contains("used before"));
    let never = OneTimeToken::new("rw1_0".to_owned()).unwrap();
    assert_eq!(running.script(MAC, &never).await.status, 403);
    assert_eq!(
        running
            .http("GET", "/boot/v1/script?mac=nonsense&token=x", "")
            .await
            .status,
        400
    );
    assert_eq!(running.http("GET", "/boot/v1/script", "").await.status, 400);
    assert_eq!(running.counter("http_scripts_total"), 1);
    assert_eq!(running.counter("http_refused_total"), 6);
    let refused = running
        .directory
        .stages(MAC)
        .into_iter()
        .filter(|seen| seen.stage == Stage::Refused)
        .count();
    assert_eq!(refused, 3, "{}", running.directory.trace());
    assert!(
        !running.directory.trace().contains(token.expose()),
        "the trace holds no token"
    );
}

#[tokio::test]
async fn a_session_serves_whole_files_ranges_and_heads() {
    let running = start(DhcpMode::Off, 67).await;
    let token = running.token(None).await;
    let script = String::from_utf8(running.script(MAC, &token).await.body).unwrap();
    let kernel = script
        .split_whitespace()
        .find(|word| word.ends_with("/vmlinuz"))
        .unwrap();
    let target = kernel
        .strip_prefix(&format!("http://{}", running.addresses.http))
        .unwrap();
    let expected = std::fs::read(&running.directory.kernel).unwrap();
    let head = running.http("HEAD", target, "").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert!(head.head.contains("content-length: 3000000\r\n"), "{}", head.head);
    let whole = running.http("GET", target, "").await;
    assert!(whole.head.contains("content-length: 3000000\r\n"));
    assert!(whole.body == expected);
    let seen = running.directory.wait_for_stage(MAC, Stage::Kernel, LIMIT).await;
    assert!(
        seen.detail.starts_with("vmlinuz by HTTP: 3000000 bytes"),
        "{}",
        seen.detail
    );
    let range = running.http("GET", target, "Range: bytes=1000000-1000009\r\n").await;
    assert_eq!(range.status, 206);
    assert!(range.head.contains("content-range: bytes 1000000-1000009/3000000\r\n"));
    assert_eq!(range.body, expected[1_000_000..1_000_010]);
    assert_eq!(
        running.http("GET", target, "Range: bytes=3000000-\r\n").await.status,
        416
    );
    for wrong in [
        target.replace("/vmlinuz", "/kernel"),
        target.replace("/vmlinuz", "/..%2f..%2fetc%2fpasswd"),
        "/boot/v1/files/0/vmlinuz".to_owned(),
        "/boot/v1/efi/kernel".to_owned(),
        "/boot/v1/efi/..%2fkernel".to_owned(),
        "/".to_owned(),
    ] {
        assert_eq!(running.http("GET", &wrong, "").await.status, 404, "{wrong}");
    }
    assert_eq!(running.http("POST", target, "Content-Length: 0\r\n").await.status, 405);
}

#[tokio::test]
async fn first_stages_and_the_ca_certificate_are_there_for_all() {
    let running = start(DhcpMode::Off, 67).await;
    let efi = running.http("GET", "/boot/v1/efi/snponly.efi", "").await;
    assert!(efi.body == running.stage);
    let ca = running.http("GET", "/boot/v1/ca.pem", "").await;
    assert!(ca.body.starts_with(b"-----BEGIN CERTIFICATE-----"));
    assert_eq!(running.counter("http_bytes_total"), running.stage.len() as u64);
}

#[tokio::test]
async fn a_client_with_a_slow_header_is_cut_off() {
    let running = start(DhcpMode::Off, 67).await;
    let mut slow = TcpStream::connect(running.addresses.http).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: b").await.unwrap();
    let mut flood = TcpStream::connect(running.addresses.http).await.unwrap();
    let _ = flood.write_all(&[b'a'; 40_000]).await;
    let mut answer = Vec::new();
    // An error status or a reset; it only matters that the connection ends.
    let _ = tokio::time::timeout(LIMIT, flood.read_to_end(&mut answer))
        .await
        .expect("a header without end is cut off");
    let _ = tokio::time::timeout(LIMIT, slow.read_to_end(&mut answer))
        .await
        .expect("a slow header is cut off");
}

/// A TFTP client that can lose packets.
struct Tftp {
    socket: UdpSocket,
    server: SocketAddr,
    transfer: Option<SocketAddr>,
}

enum Data {
    Block(u16, Vec<u8>),
    Options,
    Error(u8, String),
}

impl Tftp {
    async fn new(running: &Running) -> Self {
        let socket = UdpSocket::bind((SERVER, 0)).await.unwrap();
        Self {
            socket,
            server: running.addresses.tftp,
            transfer: None,
        }
    }

    async fn request(&self, operation: u8, strings: &[&str]) {
        let mut packet = vec![0, operation];
        for string in strings {
            packet.extend_from_slice(string.as_bytes());
            packet.push(0);
        }
        self.socket.send_to(&packet, self.server).await.unwrap();
    }

    async fn acknowledge(&self, block: u16) {
        let [high, low] = block.to_be_bytes();
        self.socket
            .send_to(&[0, 4, high, low], self.transfer.unwrap())
            .await
            .unwrap();
    }

    async fn receive(&mut self) -> Data {
        let mut packet = [0; 2048];
        let received = tokio::time::timeout(LIMIT, self.socket.recv_from(&mut packet));
        let (length, from) = received.await.expect("an answer by TFTP").unwrap();
        self.transfer = Some(from);
        match &packet[..length] {
            [0, 3, high, low, data @ ..] => Data::Block(u16::from_be_bytes([*high, *low]), data.to_vec()),
            [0, 5, 0, code, text @ ..] => Data::Error(*code, String::from_utf8_lossy(text).into_owned()),
            [0, 6, ..] => Data::Options,
            other => panic!("unexpected packet {other:?}"),
        }
    }

    /// Fetches a file. `lose(n)` returns whether the n-th data packet is lost.
    async fn fetch(
        &mut self,
        options: &[&str],
        block_size: usize,
        window: u16,
        lose: impl Fn(usize) -> bool,
    ) -> Vec<u8> {
        self.request(1, &[&["/snponly.efi", "octet"], options].concat()).await;
        let (mut content, mut expected, mut in_window, mut count) = (Vec::new(), 1u16, 0, 0);
        loop {
            let (number, data) = match self.receive().await {
                Data::Options => {
                    self.acknowledge(0).await;
                    continue;
                }
                Data::Error(code, text) => panic!("error {code}: {text}"),
                Data::Block(number, data) => (number, data),
            };
            count += 1;
            if lose(count) || number != expected {
                // RFC 7440: acknowledge the packets received in order, at least once per gap.
                if number != expected {
                    self.acknowledge(expected.wrapping_sub(1)).await;
                    in_window = 0;
                }
                continue;
            }
            let last = data.len() < block_size;
            content.extend(data);
            in_window += 1;
            if last || in_window == window {
                self.acknowledge(number).await;
                in_window = 0;
            }
            if last {
                return content;
            }
            expected = expected.wrapping_add(1);
        }
    }
}

#[tokio::test]
async fn tftp_delivers_with_any_options_and_losses() {
    let running = start(DhcpMode::Off, 67).await;
    // Options, block size, window, and the lost data packets.
    let cases: [(&[&str], usize, u16, &[usize]); 4] = [
        (&[], 512, 1, &[]),
        (&["blksize", "1468", "windowsize", "16", "tsize", "0"], 1468, 16, &[]),
        (
            &["blksize", "1024", "windowsize", "4", "timeout", "1"],
            1024,
            4,
            &[3, 50],
        ),
        // The block numbers wrap.
        (&["blksize", "8", "windowsize", "32"], 8, 32, &[]),
    ];
    for (i, (options, block_size, window, lost)) in cases.into_iter().enumerate() {
        let mut client = Tftp::new(&running).await;
        let content = client.fetch(options, block_size, window, |n| lost.contains(&n)).await;
        assert!(content == running.stage, "{options:?}: {} bytes", content.len());
        running.wait_for_counter("tftp_completed_total", i as u64 + 1).await;
    }
    assert_eq!(running.counter("tftp_bytes_total"), 4 * running.stage.len() as u64);
    assert_eq!(running.counter("tftp_failed_total"), 0);
}

#[tokio::test]
async fn tftp_serves_no_writes_and_nothing_unnamed() {
    let running = start(DhcpMode::Off, 67).await;
    for (operation, strings, code) in [
        (2, ["snponly.efi", "octet"], 2),
        (1, ["kernel", "octet"], 1),
        (1, ["boot/0123/vmlinuz", "octet"], 1),
        (1, ["grub/node/52:54:00:77:00:01.cfg", "octet"], 2),
        (1, ["snponly.efi", "netascii"], 4),
    ] {
        let mut client = Tftp::new(&running).await;
        client.request(operation, &strings).await;
        let Data::Error(answered, _) = client.receive().await else {
            panic!("{strings:?} was served")
        };
        assert_eq!(answered, code, "{strings:?}");
    }
    let refused = running.directory.wait_for_stage(MAC, Stage::Refused, LIMIT).await;
    assert!(refused.detail.contains("no recent DHCP answer"), "{}", refused.detail);
    // Malformed requests and path escapes get no answer; the server keeps serving.
    let mut client = Tftp::new(&running).await;
    client.request(1, &["../kernel", "octet"]).await;
    client.socket.send_to(b"\0\x01", client.server).await.unwrap();
    running.wait_for_counter("tftp_malformed_total", 2).await;
    let content = client.fetch(&["blksize", "1400"], 1400, 1, |_| false).await;
    assert_eq!(content.len(), running.stage.len());
}

/// curl is an independent TFTP client.
#[tokio::test]
async fn curl_fetches_by_tftp() {
    let running = start(DhcpMode::Off, 67).await;
    for block_size in ["512", "1400", "65464"] {
        let url = format!("tftp://{}/snponly.efi", running.addresses.tftp);
        let fetch = tokio::process::Command::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--max-time",
                "60",
                "--tftp-blksize",
                block_size,
                &url,
            ])
            .output();
        let output = fetch.await.expect("curl (Debian package curl) runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(
            output.stdout == running.stage,
            "{} bytes with blocks of {block_size}",
            output.stdout.len()
        );
    }
}

/// Finds two free adjacent UDP ports.
async fn port_pair() -> u16 {
    for _ in 0..100 {
        let server = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = server.local_addr().unwrap().port();
        if port < u16::MAX && UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port + 1)).await.is_ok() {
            return port;
        }
    }
    panic!("no two free neighbouring ports");
}

fn subnets() -> DhcpMode {
    let network = "127.0.0.0/8".parse().unwrap();
    DhcpMode::Server {
        subnets: vec![Subnet {
            network,
            pool: None,
            router: None,
            dns: Vec::new(),
            lease_s: 3600,
        }],
    }
}

/// Shares the port with the server's own listener for other servers' offers.
fn client_socket(address: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&SocketAddr::from((address, port)).into()).unwrap();
    UdpSocket::from_std(socket.into()).unwrap()
}

/// A client at 127.0.0.3 that renews its address.
fn renewal(options: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 240];
    packet[..4].copy_from_slice(&[1, 1, 6, 0]);
    packet[12..16].copy_from_slice(&[127, 0, 0, 3]);
    packet[28..34].copy_from_slice(&MAC.0);
    packet[236..].copy_from_slice(&[99, 130, 83, 99]);
    packet.extend([53, 1, 3]);
    packet.extend(options);
    packet.push(255);
    packet
}

#[tokio::test]
async fn dhcp_answers_between_malformed_packets_and_reports_other_servers() {
    let port = port_pair().await;
    let running = start(subnets(), port).await;
    let client = client_socket(Ipv4Addr::new(127, 0, 0, 3), port + 1);
    let server = SocketAddr::from((SERVER, port));
    let mut malformed = 0;
    for length in 0..300 {
        let mut packet = pseudo_random(length, length as u32);
        if length > 240 {
            packet[0] = 1;
        }
        client.send_to(&packet, server).await.unwrap();
        malformed += 1;
    }
    running.wait_for_counter("dhcp_malformed_total", malformed).await;
    client.send_to(&renewal(&[]), server).await.unwrap();
    let mut packet = [0; 1500];
    let received = tokio::time::timeout(LIMIT, client.recv_from(&mut packet));
    let (length, _) = received.await.expect("an acknowledgement").unwrap();
    assert!(length >= 300);
    assert_eq!(packet[16..20], [127, 0, 0, 3]);
    assert_eq!(
        packet[240..].windows(3).filter(|w| *w == [53, 1, 5]).count(),
        1,
        "DHCPACK"
    );
    running.directory.wait_for_stage(MAC, Stage::DhcpRequest, LIMIT).await;
    client.send_to(&renewal(&[54, 4, 192, 0, 2, 9]), server).await.unwrap();
    let rogue = running.directory.wait_for_stage(MAC, Stage::RogueDhcp, LIMIT).await;
    assert!(rogue.detail.contains("192.0.2.9"), "{}", rogue.detail);
    assert_eq!(running.counter("rogue_dhcp_total"), 1);
    assert_eq!(running.counter("dhcp_ack_total"), 1);
}

#[tokio::test]
async fn a_client_that_floods_does_not_take_the_place_of_others() {
    const FLOOD: u64 = 40;
    let port = port_pair().await;
    let running = start(subnets(), port).await;
    running.directory.never_answer(OTHER);
    let client = client_socket(Ipv4Addr::new(127, 0, 0, 3), port + 1);
    let server = SocketAddr::from((SERVER, port));
    let mut flood = renewal(&[]);
    flood[28..34].copy_from_slice(&OTHER.0);
    for _ in 0..FLOOD {
        client.send_to(&flood, server).await.unwrap();
    }
    // The first four wait for the directory, and the others are dropped.
    running.wait_for_counter("dhcp_overload_total", FLOOD - 4).await;
    client.send_to(&renewal(&[]), server).await.unwrap();
    running.directory.wait_for_stage(MAC, Stage::DhcpRequest, LIMIT).await;
    assert_eq!(running.counter("dhcp_overload_total"), FLOOD - 4);
}

#[tokio::test]
async fn a_port_in_use_is_named_with_advice() {
    let taken = UdpSocket::bind((SERVER, 0)).await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let directory = Arc::new(MemoryDirectory::new(HashMap::new(), PathBuf::new(), PathBuf::new(), ""));
    let config = NetbootConfig {
        tftp_port: port,
        ..config(BTreeMap::new(), DhcpMode::Off, 67)
    };
    let error = Netboot::bind(config.clone(), directory.clone(), connections())
        .await
        .err()
        .expect("a taken port")
        .to_string();
    assert!(
        error.contains(&format!("TFTP on 127.0.0.1:{port}")) && error.contains("stop that program"),
        "{error}"
    );
    let elsewhere = NetbootConfig {
        server_ip: Ipv4Addr::new(192, 0, 2, 1),
        ..config
    };
    let error = Netboot::bind(elsewhere, directory, connections())
        .await
        .err()
        .expect("not our address")
        .to_string();
    assert!(error.contains("correct `server_ip`"), "{error}");
}

#[tokio::test]
async fn everything_ends_when_cancelled() {
    let directory = Arc::new(MemoryDirectory::new(HashMap::new(), PathBuf::new(), PathBuf::new(), ""));
    let settings = config(BTreeMap::new(), subnets(), port_pair().await);
    let netboot = Netboot::bind(settings, directory, connections()).await.unwrap();
    let http = netboot.addresses().http;
    let cancel = CancellationToken::new();
    let running = tokio::spawn(netboot.run(cancel.clone()));
    let _open = TcpStream::connect(http).await.unwrap();
    cancel.cancel();
    tokio::time::timeout(LIMIT, running)
        .await
        .expect("it ends")
        .unwrap()
        .unwrap();
    tokio::net::TcpListener::bind(http)
        .await
        .expect("the port is free again");
}
