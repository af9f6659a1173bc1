//! Malformed inputs on every listener.

#[path = "malformed/behind_tls.rs"]
mod behind_tls;
#[path = "malformed/messages.rs"]
mod messages;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rackwright_fuzz::changes::{Numbers, changed};
use rackwright_sim::install_crypto;
use rackwright_tests::impostor::Host;
use rackwright_tests::ports::free_port;
use rackwright_tests::wire::{Method, call, methods};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Code;

use self::behind_tls::{Listener, STORE, WEB};
use self::messages::Messages;
use crate::exhaustion::plane::{Plane, TEST_LIMIT};

/// Inputs for each listener: 20,000, or as many as `RACKWRIGHT_MALFORMED_INPUTS` says (`make test-attacks`: 100,000).
static INPUTS: LazyLock<usize> = LazyLock::new(|| asked().unwrap_or(20_000));
/// Inputs that cost much more each: behind TLS, and messages that the API decodes.
static COSTLY: LazyLock<usize> = LazyLock::new(|| asked().unwrap_or(2_000));
/// Datagrams between two requests that must be answered. A socket's receive buffer holds this many.
const BURST: usize = 64;
/// Concurrent connections.
const AT_ONCE: usize = 32;
/// Allowed growth of the control plane, in bytes: less than a kilobyte for each input of one listener.
const MEMORY: u64 = 64 << 20;

fn asked() -> Option<usize> {
    let number = std::env::var("RACKWRIGHT_MALFORMED_INPUTS").ok()?;
    Some(number.parse().expect("RACKWRIGHT_MALFORMED_INPUTS is a number"))
}

/// Inputs that concurrent tasks share out.
struct Batch {
    next: AtomicUsize,
    count: usize,
    /// Inputs that had an answer, or an end in order.
    taken: AtomicUsize,
}

impl Batch {
    fn new(count: usize) -> Self {
        let (next, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { next, count, taken }
    }

    /// The number of the next input.
    fn next(&self) -> Option<usize> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.count).then_some(number)
    }

    fn is_open(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.count
    }
}

/// Valid inputs from the fuzzer's corpus for the parser with this byte.
fn corpus(kind: u8) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/fuzz/corpus");
    let entries = std::fs::read_dir(folder).expect("the corpus is there");
    let inputs = entries.map(|entry| std::fs::read(entry.expect("an entry").path()).expect("an input"));
    let inputs = inputs.filter(|input| input.first() == Some(&kind));
    let mut inputs: Vec<_> = inputs.map(|input| input[1..].to_vec()).collect();
    assert!(!inputs.is_empty());
    inputs.sort();
    inputs
}

/// The same number gives the same input: half of the inputs are changed copies of valid ones, half are noise.
fn malformed(good: &[Vec<u8>], number: usize) -> Vec<u8> {
    let mut numbers = Numbers::of(number as u64);
    if number.is_multiple_of(2) {
        return changed(&good[numbers.below(good.len())], &mut numbers);
    }
    let length = [8, 64, 400, 1400][numbers.below(4)];
    (0..numbers.below(length)).map(|_| numbers.below(256) as u8).collect()
}

/// Sends datagrams. After each burst `answers` sends a valid request and waits for the answer, so that no datagram is
/// lost before the server reads it.
async fn datagrams(port: u16, kind: u8, mut answers: impl AsyncFnMut() -> bool) {
    let good = corpus(kind);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    for number in 0..*INPUTS {
        let sent = socket.send_to(&malformed(&good, number), to).await;
        sent.expect("it is sent");
        if number % BURST == BURST - 1 {
            until_answered(&mut answers).await;
        }
    }
    until_answered(&mut answers).await;
}

/// Sends one input on each connection, and waits until the server ends the connection. Returns the number of inputs
/// that the server accepted.
async fn connections(port: u16, good: Vec<Vec<u8>>) -> usize {
    let (good, batch) = (Arc::new(good), Arc::new(Batch::new(*INPUTS)));
    let mut tasks = JoinSet::new();
    for task in 0..AT_ONCE {
        let (good, batch) = (good.clone(), batch.clone());
        tasks.spawn(async move {
            while let Some(number) = batch.next() {
                // A separate address for each task, so that the limit per address is not under test.
                let from = Ipv4Addr::new(127, 251, task as u8, 1 + (number % 200) as u8);
                if one_connection(port, from, &malformed(&good, number)).await.is_ok() {
                    batch.taken.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    batch.taken.load(Ordering::Relaxed)
}

async fn one_connection(port: u16, from: Ipv4Addr, input: &[u8]) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let mut stream = socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
    stream.write_all(input).await?;
    stream.shutdown().await?;
    let mut answer = Vec::new();
    // A server that closes without reading everything resets the connection, which also counts as an answer.
    let read = timeout(TEST_LIMIT, (&mut stream).take(64 << 10).read_to_end(&mut answer)).await;
    read.expect("the server ends the connection").map_or(Ok(()), |_| Ok(()))
}

/// Sends messages to every method, as an operator. `message` makes a message from its number, and `is_fine` judges the
/// code of the answer. Returns the number of fine answers, and some others.
async fn messages(
    plane: &Plane,
    count: usize,
    message: impl Fn(&Method, usize) -> Vec<u8> + Send + Sync + 'static,
    is_fine: impl Fn(usize, Option<Code>) -> bool + Send + Sync + 'static,
) -> (usize, Vec<String>) {
    let (methods, batch) = (Arc::new(methods()), Arc::new(Batch::new(count)));
    let calls = Arc::new((message, is_fine));
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let channel = plane.channel(Some(plane.operator()));
        let (methods, batch, calls) = (methods.clone(), batch.clone(), calls.clone());
        tasks.spawn(async move {
            let mut others = Vec::new();
            while let Some(number) = batch.next() {
                let method = &methods[number % methods.len()];
                let answer = call(channel.clone(), &method.path(), (calls.0)(method, number)).await;
                match answer {
                    answer if (calls.1)(number, answer.as_ref().err().map(tonic::Status::code)) => {
                        batch.taken.fetch_add(1, Ordering::Relaxed);
                    }
                    answer => others.push(format!("{} {number}: {answer:?}", method.path())),
                }
            }
            others
        });
    }
    let others = tasks.join_all().await.concat();
    (
        batch.taken.load(Ordering::Relaxed),
        others.into_iter().take(20).collect(),
    )
}

/// A message that no decoder accepts: field number 0 is not allowed.
fn undecodable(_: &Method, number: usize) -> Vec<u8> {
    [&[0][..], &malformed(&[vec![10, 2, b'n', b'1']], number)].concat()
}

/// The call ended in the server, and did not break.
fn is_answered(code: Option<Code>) -> bool {
    !matches!(code, Some(Code::Unavailable | Code::Unknown))
}

/// Sends packets to the port of PXE boot servers, which is open where another server gives the addresses.
async fn boot_server(plane: &mut Plane) {
    let port = free_port();
    plane.site.halt().await;
    let file = plane.site.dir().join("rackwrightd.yaml");
    let text = std::fs::read_to_string(&file).expect("the settings");
    let (before, after) = text.split_once("    dhcp:\n").expect("settings of DHCP");
    let (_, after) = after.split_once("policy:").expect("the next block");
    let proxy = format!("    dhcp: proxy\n    boot_server_port: {port}\n    boot_unknown: true\npolicy:");
    std::fs::write(&file, format!("{before}{proxy}{after}")).expect("the settings");
    plane.site.restart().await;
    let pid = plane.site.pid();
    let host = Host::with_mac(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), "52:54:00:ee:00:02").await;
    datagrams(port, b'd', async || host.ask_boot_server().await.is_some()).await;
    assert_eq!(plane.site.pid(), pid);
}

/// Requests a file that the TFTP server does not have, as often as a client repeats: the answer is an error.
async fn tftp_answers(socket: &UdpSocket, port: u16) -> bool {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    socket.send_to(b"\0\x01absent\0octet\0", to).await.expect("it is sent");
    let mut packet = [0; 600];
    let answer = timeout(Duration::from_secs(1), socket.recv_from(&mut packet)).await;
    answer.is_ok_and(|received| received.is_ok() && packet[..2] == [0, 5])
}

/// Repeats until there is an answer: a datagram may be lost on a busy computer.
async fn until_answered(mut is_answered: impl AsyncFnMut() -> bool) {
    let answered = async { while !is_answered().await {} };
    timeout(TEST_LIMIT, answered)
        .await
        .expect("the server answers a good question");
}

/// The listeners whose requests come behind TLS: name, port, valid requests, further lines of the head.
fn behind_tls_of(plane: &Plane, web: u16) -> [(&'static str, u16, &'static [behind_tls::Good], String); 2] {
    let made = plane
        .site
        .json(["api-key", "create", "odd", "--role", "viewer", "--lifetime", "2h"]);
    let key = made["key"].as_str().expect("a key");
    let bearer = format!("Authorization: Bearer {key}\r\n");
    [
        ("web console, behind TLS", web, &WEB[..], bearer),
        ("image store, behind TLS", plane.store, &STORE[..], String::new()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_listener_survives_malformed_inputs() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let ssh = free_port();
    let web = free_port();
    let further = format!("console_ssh: {{listen: \"127.0.0.1:{ssh}\"}}\nweb: {{listen: \"127.0.0.1:{web}\"}}\n");
    // The operator is also a cache, whose requests the image store reads.
    let mut plane = Plane::start_with_caches(dir.path(), "operator", &further).await;
    let fleet = plane.machine().await;
    let id = fleet.node(0).name();
    let (before, pid) = (plane.memory(), plane.site.pid());
    let (mut figures, begun) = (Vec::new(), Instant::now());
    let mut note = |listener: &str, taken: usize| {
        let (memory, seconds) = (plane.memory() >> 20, begun.elapsed().as_secs());
        figures.push(format!("{listener}: {taken} inputs, {memory} MiB, after {seconds} s"));
    };

    let host = Host::with_mac(SocketAddrV4::new(Ipv4Addr::LOCALHOST, plane.dhcp), &fleet.node(0).mac()).await;
    datagrams(plane.dhcp, b'd', async || host.discover().await.is_some()).await;
    note("DHCP", *INPUTS);
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    datagrams(plane.tftp, b't', async || tftp_answers(&client, plane.tftp).await).await;
    note("TFTP", *INPUTS);
    let http = vec![b"GET /boot/ipxe?token=x HTTP/1.1\r\nHost: a\r\nRange: bytes=0-\r\n\r\n".to_vec()];
    let hello = vec![
        b"\x16\x03\x01\0\x2f\x01\0\0\x2b\x03\x03abcdefghijklmnopqrstuvwxyzabcdef\0\0\x02\x13\x01\x01\0\0\0".to_vec(),
    ];
    for (listener, port, good) in [
        ("boot HTTP", plane.http, http),
        ("image store, before TLS", plane.store, hello.clone()),
        ("API, before TLS", plane.api, hello.clone()),
        ("web console, before TLS", web, hello),
        (
            "SSH",
            ssh,
            vec![b"SSH-2.0-x\r\n\0\0\x01\x04\x06\x14abcdefghijklmnop\0\0\0\x04none".to_vec()],
        ),
    ] {
        let taken = connections(port, good).await;
        assert!(taken * 10 > *INPUTS * 9, "{listener}: only {taken} connections");
        note(listener, taken);
    }
    for (listener, port, good, further) in behind_tls_of(&plane, web) {
        let tls = behind_tls::client(&plane.site.dir().join("cli"), port == plane.store);
        let listener_of = Listener {
            port,
            tls,
            good,
            further,
        };
        let taken = behind_tls::requests(listener_of, *COSTLY).await;
        assert!(taken * 10 > *COSTLY * 9, "{listener}: only {taken} requests");
        note(listener, taken);
    }
    let is_refused = |_, code: Option<Code>| code.is_some() && is_answered(code);
    let (refused, others) = messages(&plane, *INPUTS, undecodable, is_refused).await;
    assert_eq!(refused, *INPUTS, "messages that were not refused: {others:#?}");
    note("API, as an operator, undecodable", refused);
    let all = Messages::new();
    // A message that was not changed is decoded, and the code of messages that are not is no answer to it.
    let is_fine = |number: usize, code| is_answered(code) && (number % 2 == 1 || code != Some(Code::Internal));
    let odd = move |method: &Method, number| all.request(method, number);
    let (answered, others) = messages(&plane, *COSTLY, odd, is_fine).await;
    assert_eq!(answered, *COSTLY, "calls without an answer: {others:#?}");
    note("API, as an operator, odd values", answered);

    println!("{}", figures.join("\n"));
    assert_eq!(plane.site.pid(), pid, "the control plane was started again");
    let after = plane.memory();
    assert!(after < before + MEMORY, "{before} bytes grew to {after}: {figures:?}");
    // An honest machine still works.
    plane.site.until(&id, &["available"], Duration::from_secs(30)).await;
    plane
        .site
        .cli(["node", "quarantine", &id, "--reason", "a test", "--yes"]);
    plane.site.cli(["node", "readmit", &id, "--yes"]);
    plane.site.until(&id, &["available"], TEST_LIMIT).await;
    boot_server(&mut plane).await;
    println!("PXE boot server: {} inputs, {} MiB", *INPUTS, plane.memory() >> 20);
    let log = plane.site.log();
    let panics: Vec<&str> = log.lines().filter(|line| line.contains("panicked")).collect();
    assert!(panics.is_empty(), "{panics:#?}");
    plane.site.stop().await;
}
