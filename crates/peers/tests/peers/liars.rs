use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rackwright_fanout::Chunk;
use rackwright_identity::peer_server_config;
use rackwright_image::codec::MAX_FRAME_BYTES;
use rackwright_peers::{AskError, ClientSettings, PeerAddress, SIGNATURE_BYTES};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::support::{MEMORY, PATIENT, Site, address, agent, certificate, pack, patient_client, patient_server, soon};

/// How an agent misbehaves.
#[derive(Clone)]
pub enum Fault {
    /// Answers each request with these bytes, and keeps the connection.
    Answers(Vec<u8>),
    /// Answers the hello with this byte.
    Welcomes(u8),
    /// Takes connections, and says nothing at all.
    NoTls,
    /// Takes the hello, and says nothing.
    NoWelcome,
}

/// An agent with a right certificate and the fault. Counts its connections.
pub async fn liar(site: &Site, fault: Fault) -> (PeerAddress, Arc<AtomicUsize>) {
    let of = agent("gpu-001");
    let tls = peer_server_config(certificate(&site.authority, &of), site.trust()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = address(listener.local_addr().unwrap(), &of);
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let (tls, fault) = (tls.clone(), fault.clone());
            tokio::spawn(async move {
                if matches!(fault, Fault::NoTls) {
                    std::future::pending::<()>().await;
                }
                let mut stream = TlsAcceptor::from(tls).accept(stream).await.unwrap();
                let _flags = stream.read_u8().await.unwrap();
                let length = stream.read_u16_le().await.unwrap();
                let mut rest = vec![0; usize::from(length) + SIGNATURE_BYTES];
                stream.read_exact(&mut rest).await.unwrap();
                match fault {
                    Fault::NoTls | Fault::NoWelcome => std::future::pending::<()>().await,
                    Fault::Welcomes(byte) => stream.write_all(&[byte]).await.unwrap(),
                    Fault::Answers(bytes) => {
                        stream.write_all(&[0]).await.unwrap();
                        let mut request = [0; 5];
                        while stream.read_exact(&mut request).await.is_ok() {
                            stream.write_all(&bytes).await.unwrap();
                            stream.flush().await.unwrap();
                        }
                    }
                }
                // Keeps the connection open.
                let _ = stream.read_u8().await;
            });
        }
    });
    (peer, connections)
}

/// The answer "here is the frame", of an agent that holds all three chunks.
pub fn frame_answer(frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0b111];
    bytes.extend_from_slice(&(frame.len() as u32).to_le_bytes());
    bytes.extend_from_slice(frame);
    bytes
}

#[tokio::test]
async fn an_agent_with_wrong_bytes_is_reported_once_and_not_asked_again() {
    let site = Site::new(3);
    let mut damaged = site.image.frames[0].clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 19).unwrap();
    let behind = [site.image.frames[0].clone(), pack(b"more")].concat();
    let mut too_long = vec![0, 0, 0b111];
    too_long.extend_from_slice(&(MAX_FRAME_BYTES as u32 + 1).to_le_bytes());
    let cases = [
        (
            "another chunk of the image",
            frame_answer(&site.image.frames[1]),
            "digest",
        ),
        ("a damaged frame", frame_answer(&damaged), "digest"),
        (
            "a frame that unpacks to 64 MiB",
            frame_answer(&bomb),
            "declares 67108864 bytes",
        ),
        (
            "a frame of another size",
            frame_answer(&pack(&[1; 4096])),
            "declares 4096 bytes",
        ),
        ("no frame", frame_answer(b"rubbish"), "not exactly one frame"),
        ("an empty frame", frame_answer(b""), "not exactly one frame"),
        (
            "something behind the frame",
            frame_answer(&behind),
            "not exactly one frame",
        ),
        ("a length beyond every frame, and no bytes", too_long, "a frame of"),
        ("a chunk that the image does not have", vec![1, 0, 0b1111], "behind"),
        ("an unknown answer", vec![77], "unknown answer 77"),
        ("the answer to a look", vec![3, 0, 0b111], "Holdings"),
    ];
    for (why, answer, reason) in cases {
        let (peer, connections) = liar(&site, Fault::Answers(answer)).await;
        let client = site.client(&agent("gpu-002"));
        // Two requests find the same lie: one of them reports it.
        let ask = async || {
            let answer = client.ask(&peer, Chunk(0), soon()).await?;
            site.image.open(&client, answer)
        };
        let (one, other) = tokio::join!(ask(), ask());
        let (first, second) = match one {
            Err(AskError::Banned(_)) => (other, one),
            _ => (one, other),
        };
        let Err(AskError::WrongBytes(lie)) = first else {
            panic!("{why}: {first:?}")
        };
        assert_eq!((&lie.agent, lie.at), (&peer.agent, peer.at), "{why}");
        assert!(lie.reason.contains(reason), "{why}: {}", lie.reason);
        assert!(matches!(second, Err(AskError::Banned(_))), "{why}: {second:?}");
        assert!(client.is_banned(&peer.agent), "{why}");
        let before = connections.load(Ordering::SeqCst);
        for _ in 0..3 {
            let again = client.look(&peer, 0, soon()).await;
            assert!(matches!(again, Err(AskError::Banned(_))), "{why}: {again:?}");
        }
        assert_eq!(
            connections.load(Ordering::SeqCst),
            before,
            "{why}: it is left for the job"
        );
    }
}

#[tokio::test]
async fn one_liar_does_not_keep_an_honest_agent_from_helping() {
    let site = Site::new(3);
    let (peer, _) = liar(&site, Fault::Answers(frame_answer(&site.image.frames[1]))).await;
    let honest = site
        .serve("gpu-003", site.image.store(MEMORY, &[0]), patient_server())
        .await;
    let client = site.client(&agent("gpu-002"));
    let answer = client.ask(&peer, Chunk(0), soon()).await.unwrap();
    assert!(matches!(site.image.open(&client, answer), Err(AskError::WrongBytes(_))));
    let answer = client.ask(&honest.address, Chunk(0), soon()).await.unwrap();
    site.image.open(&client, answer).unwrap();
}

#[tokio::test]
async fn an_agent_that_hangs_is_given_up_at_the_deadline_and_is_no_liar() {
    let site = Site::new(3);
    let half = frame_answer(&site.image.frames[0]);
    let half = half[..half.len() / 2].to_vec();
    let cases = [
        ("no TLS", Fault::NoTls),
        ("no answer to the hello", Fault::NoWelcome),
        ("no answer to the request", Fault::Answers(Vec::new())),
        ("half an answer", Fault::Answers(half)),
    ];
    let wait = Duration::from_millis(300);
    for (why, fault) in cases {
        let (peer, _) = liar(&site, fault).await;
        let client = site.client(&agent("gpu-002"));
        let begun = Instant::now();
        let error = client.ask(&peer, Chunk(0), begun + wait).await.unwrap_err();
        assert!(matches!(error, AskError::Late { .. }), "{why}: {error}");
        assert!(
            (wait..PATIENT / 2).contains(&begun.elapsed()),
            "{why}: {:?}",
            begun.elapsed()
        );
        assert!(!client.is_banned(&peer.agent), "{why}");
    }
    // Without a near deadline, the connection has a limit of its own.
    let (peer, _) = liar(&site, Fault::NoTls).await;
    let own = agent("gpu-002");
    let settings = ClientSettings {
        connect: wait,
        ..patient_client()
    };
    let client = site.client_with(&own, site.signed(&site.ticket(&own)), settings);
    let error = client.ask(&peer, Chunk(0), soon()).await.unwrap_err();
    assert!(matches!(error, AskError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_lie_and_an_unknown_welcome_is_one() {
    let site = Site::new(3);
    let (peer, _) = liar(&site, Fault::Welcomes(200)).await;
    let client = site.client(&agent("gpu-002"));
    let error = client.look(&peer, 0, soon()).await.unwrap_err();
    assert!(
        matches!(&error, AskError::WrongBytes(lie) if lie.reason.contains("200")),
        "{error}"
    );

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = address(listener.local_addr().unwrap(), &agent("gpu-004"));
    drop(listener);
    let error = client.look(&gone, 0, soon()).await.unwrap_err();
    assert!(matches!(error, AskError::Unreachable { .. }), "{error}");
    assert!(!client.is_banned(&gone.agent));
}
