//! Malformed inputs on every listener.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rackwright_fuzz::changes::{Numbers, changed};
use rackwright_tests::impostor::Host;
use rackwright_tests::ports::free_port;
use rackwright_tests::wire::{call, methods};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Code;

use crate::exhaustion::plane::{Plane, TEST_LIMIT};

/// Inputs for each listener: 20,000, or as many as `RACKWRIGHT_MALFORMED_INPUTS` says (`make test-attacks`: 100,000).
static INPUTS: LazyLock<usize> = LazyLock::new(|| {
    let number = std::env::var("RACKWRIGHT_MALFORMED_INPUTS");
    number.map_or(20_000, |number| {
        number.parse().expect("RACKWRIGHT_MALFORMED_INPUTS is a number")
    })
});
/// Datagrams between two requests that must be answered. A socket's receive buffer holds this many.
const BURST: usize = 64;
/// Concurrent connections.
const AT_ONCE: usize = 32;
/// Allowed growth of the control plane, in bytes: less than a kilobyte for each input of one listener.
const MEMORY: u64 = 64 << 20;

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
    let (good, next, taken) = (
        Arc::new(good),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut tasks = JoinSet::new();
    for task in 0..AT_ONCE {
        let (good, next, taken) = (good.clone(), next.clone(), taken.clone());
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= *INPUTS {
                    return;
                }
                // A separate address for each task, so that the limit per address is not under test.
                let from = Ipv4Addr::new(127, 251, task as u8, 1 + (number % 200) as u8);
                if one_connection(port, from, &malformed(&good, number)).await.is_ok() {
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    taken.load(Ordering::Relaxed)
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

/// Sends messages that do not decode to every method, as an operator. Returns the number of refusals.
async fn messages(plane: &Plane) -> usize {
    let methods: Arc<Vec<String>> = Arc::new(methods().iter().map(|method| method.path()).collect());
    let (next, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let channel = plane.channel(Some(plane.operator()));
        let (methods, next, refused) = (methods.clone(), next.clone(), refused.clone());
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= *INPUTS {
                    return;
                }
                // Field number 0 is not allowed, so no valid message begins like this.
                let message = [&[0][..], &malformed(&[vec![10, 2, b'n', b'1']], number)].concat();
                let answer = call(channel.clone(), &methods[number % methods.len()], message).await;
                if answer.is_err_and(|status| !matches!(status.code(), Code::Unavailable | Code::Unknown)) {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    refused.load(Ordering::Relaxed)
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_listener_survives_malformed_inputs() {
    let dir = tempfile::tempdir().expect("a folder");
    let ssh = free_port();
    let plane = Plane::start(dir.path(), &format!("console_ssh: {{listen: \"127.0.0.1:{ssh}\"}}\n")).await;
    let fleet = plane.machine().await;
    let id = fleet.node(0).name();
    let (before, pid) = (plane.memory(), plane.site.pid());
    let mut figures = Vec::new();
    let mut note = |listener: &str, taken: usize| {
        figures.push(format!("{listener}: {taken} inputs, {} MiB", plane.memory() >> 20));
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
        ("API, before TLS", plane.api, hello),
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
    let refused = messages(&plane).await;
    assert_eq!(refused, *INPUTS, "messages that were not refused");
    note("API, as an operator", refused);

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
    plane.site.stop().await;
}
