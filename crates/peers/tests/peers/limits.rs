use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rackwright_fanout::{Chunk, Span, UploadSettings};
use rackwright_identity::peer_client_config;
use rackwright_peers::{Answer, AskError, ClientSettings, PeerAddress, ServerSettings};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{MEMORY, Served, Site, agent, certificate, patient_client, patient_server, soon};

/// A connection of an agent after its hello, without the client.
async fn opened(site: &Site, served: &Served, node: &str) -> TlsStream<TcpStream> {
    let own = agent(node);
    let config = peer_client_config(
        certificate(&site.authority, &own),
        site.trust(),
        served.address.agent.clone(),
    );
    let stream = TcpStream::connect(served.address.at).await.unwrap();
    let name = ServerName::from(served.address.at.ip());
    let mut stream = TlsConnector::from(config.unwrap()).connect(name, stream).await.unwrap();
    let ticket = site.signed(&site.ticket(&own));
    let mut hello = vec![0];
    hello.extend_from_slice(&(ticket.text().len() as u16).to_le_bytes());
    hello.extend_from_slice(ticket.text());
    hello.extend_from_slice(ticket.signature());
    stream.write_all(&hello).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

#[tokio::test]
async fn strangers_take_no_places_of_agents() {
    let site = Site::new(1);
    let settings = ServerSettings {
        strangers: 20,
        strangers_of_address: 10,
        hello: Duration::from_secs(300),
        ..patient_server()
    };
    let served = site.serve("gpu-001", site.image.store(MEMORY, &[0]), settings).await;
    let mut strangers = Vec::new();
    for _ in 0..200 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        strangers.push(socket.connect(served.address.at).await.unwrap());
    }
    let client = site.client(&agent("gpu-002"));
    let answer = client.ask(&served.address, Chunk(0), soon()).await.unwrap();
    site.image.open(&client, answer).unwrap();
    assert_eq!(
        served.server.counts().full,
        190,
        "ten connections of one address wait for their ticket"
    );
    assert_eq!(served.server.connections(), 1);
    drop(strangers);
}

#[tokio::test]
async fn a_stranger_that_says_nothing_is_given_up() {
    let site = Site::new(1);
    let settings = ServerSettings {
        hello: Duration::from_millis(50),
        ..patient_server()
    };
    let served = site.serve("gpu-001", site.image.store(MEMORY, &[0]), settings).await;
    let mut stream = TcpStream::connect(served.address.at).await.unwrap();
    assert_eq!(
        stream.read(&mut [0]).await.unwrap(),
        0,
        "the server ends the connection"
    );
    assert_eq!(served.server.counts().broken, 1);
}

#[tokio::test]
async fn the_connections_of_a_node_and_of_all_are_limited() {
    let site = Site::new(1);
    let settings = ServerSettings {
        connections: 3,
        connections_of_node: 2,
        ..patient_server()
    };
    let served = site.serve("gpu-001", site.image.store(MEMORY, &[0]), settings).await;
    let mut kept = Vec::new();
    for node in ["gpu-002", "gpu-002", "gpu-003"] {
        let mut stream = opened(&site, &served, node).await;
        assert_eq!(stream.read_u8().await.unwrap(), 0);
        kept.push(stream);
    }
    let client = site.client(&agent("gpu-002"));
    for client in [&client, &site.client(&agent("gpu-004"))] {
        let error = client.look(&served.address, 0, soon()).await.unwrap_err();
        assert!(matches!(error, AskError::Full(_)), "{error}");
        assert!(!client.is_banned(&served.address.agent));
    }
    assert_eq!(served.server.counts().full, 2);
    drop(kept);
    while served.server.connections() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.look(&served.address, 0, soon()).await.unwrap();
}

#[tokio::test]
async fn connections_to_other_racks_are_kept_for_a_few_agents() {
    let site = Site::new(1);
    let own = agent("gpu-009");
    let settings = ClientSettings {
        kept_outside: 2,
        ..patient_client()
    };
    let client = site.client_with(&own, site.signed(&site.ticket(&own)), settings);
    let mut served = Vec::new();
    for node in ["gpu-001", "gpu-002", "gpu-003"] {
        served.push(site.serve(node, site.image.store(MEMORY, &[0]), patient_server()).await);
    }
    for served in &served {
        let outside = PeerAddress {
            is_outside: true,
            ..served.address.clone()
        };
        for _ in 0..2 {
            client.look(&outside, 0, soon()).await.unwrap();
        }
    }
    // The connection to the first agent ends.
    while served[0].server.connections() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let kept: Vec<usize> = served.iter().map(|served| served.server.connections()).collect();
    assert_eq!(kept, [0, 1, 1], "and those to the others serve both of their requests");
}

#[tokio::test]
async fn an_agent_that_does_not_read_its_answer_holds_up_others_for_a_limited_time() {
    let site = Site::new(2);
    let settings = ServerSettings {
        answer: Duration::from_millis(500),
        ..patient_server()
    };
    let served = site.serve("gpu-001", site.image.store(MEMORY, &[0, 1]), settings).await;
    let _stalled = stalled(&site, &served, "gpu-002", 0).await;
    let client = site.client(&agent("gpu-003"));
    let shown = client.look(&served.address, 0, soon()).await.unwrap();
    assert_eq!(shown.load, 1, "the one turn of an agent with few chunks is taken");
    let answer = client.ask(&served.address, Chunk(1), soon()).await.unwrap();
    site.image.open(&client, answer).unwrap();
    let counts = served.server.counts();
    assert_eq!(
        (counts.broken, counts.frames),
        (1, 1),
        "only the second answer was sent in full"
    );
}

/// A connection of an agent that has asked for a chunk and does not read more than the first byte of the answer. So the
/// server sends.
async fn stalled(site: &Site, served: &Served, node: &str, chunk: u8) -> TlsStream<TcpStream> {
    let mut stream = opened(site, served, node).await;
    assert_eq!(stream.read_u8().await.unwrap(), 0);
    stream.write_all(&[1, chunk, 0, 0, 0]).await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), 0);
    stream
}

#[tokio::test]
async fn an_agent_that_reads_nothing_loses_its_place_to_one_that_waits() {
    let site = Site::new(2);
    let patient = patient_server();
    let settings = ServerSettings {
        uploads: UploadSettings {
            slow_after: Span::millis(200),
            ..patient.uploads
        },
        answer: Duration::from_secs(3600),
        ..patient
    };
    let served = site.serve("gpu-001", site.image.store(MEMORY, &[0, 1]), settings).await;
    let _stalled = stalled(&site, &served, "gpu-002", 0).await;
    let client = site.client(&agent("gpu-003"));
    let answer = client.ask(&served.address, Chunk(1), soon()).await.unwrap();
    site.image.open(&client, answer).unwrap();
    let counts = served.server.counts();
    assert_eq!((counts.slow, counts.frames), (1, 1));
}

#[tokio::test]
async fn several_connections_of_one_node_take_one_upload_place() {
    const CHUNKS: u32 = 10;
    let site = Site::new(CHUNKS);
    let held: Vec<u32> = (0..CHUNKS).collect();
    let served = site
        .serve("gpu-001", site.image.store(MEMORY, &held), patient_server())
        .await;
    // With ten chunks, two are sent at once.
    let _first = stalled(&site, &served, "gpu-002", 0).await;
    let mut second = opened(&site, &served, "gpu-002").await;
    assert_eq!(second.read_u8().await.unwrap(), 0);
    second.write_all(&[1, 1, 0, 0, 0]).await.unwrap();
    second.flush().await.unwrap();
    let mut third = opened(&site, &served, "gpu-002").await;
    assert_eq!(third.read_u8().await.unwrap(), 0);
    // One request of the node is answered, one waits, and a third one is refused.
    while served.server.load() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    third.write_all(&[1, 2, 0, 0, 0]).await.unwrap();
    third.flush().await.unwrap();
    assert_eq!(third.read_u8().await.unwrap(), 2, "no room now");
    let client = site.client(&agent("gpu-003"));
    let outside = PeerAddress {
        is_outside: true,
        ..served.address.clone()
    };
    let answer = client.ask(&outside, Chunk(3), soon()).await.unwrap();
    site.image.open(&client, answer).unwrap();
    assert_eq!(served.server.counts().frames, 1, "the second place is free for others");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_agents_get_every_chunk_though_most_are_asked_to_come_again() {
    const AGENTS: usize = 24;
    const CHUNKS: u32 = 4;
    let site = Arc::new(Site::new(CHUNKS));
    let store = site.image.store(MEMORY, &[0, 1, 2, 3]);
    let settings = ServerSettings {
        strangers_of_address: 64,
        ..patient_server()
    };
    let served = site.serve("gpu-000", store, settings).await;
    let mut agents = tokio::task::JoinSet::new();
    for number in 1..=AGENTS {
        let (site, peer) = (site.clone(), served.address.clone());
        agents.spawn(async move {
            let client = site.client(&agent(&format!("gpu-{number:03}")));
            let mut missing: HashSet<u32> = (0..CHUNKS).collect();
            let mut busy = 0_u64;
            while let Some(chunk) = missing.iter().next().copied() {
                let answer = client.ask(&peer, Chunk(chunk), soon()).await.unwrap();
                if let Answer::Busy(_) = answer {
                    busy += 1;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
                tokio::task::block_in_place(|| site.image.open(&client, answer)).unwrap();
                missing.remove(&chunk);
            }
            busy
        });
    }
    let mut busy = 0;
    while let Some(agent) = agents.join_next().await {
        busy += agent.unwrap();
    }
    let counts = served.server.counts();
    assert_eq!((counts.frames, counts.busy), (AGENTS as u64 * u64::from(CHUNKS), busy));
    assert!(
        busy > 0,
        "one is sent at a time by an agent with few chunks, and one waits"
    );
    assert_eq!((counts.broken, counts.refused, counts.full), (0, 0, 0));
}
