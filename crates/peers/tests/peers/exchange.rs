use std::sync::Arc;
use std::time::Duration;

use rackwright_fanout::{Bits, Chunk};
use rackwright_peers::{Answer, AskError, Holdings, PeerClient, ServerSettings};

use crate::support::{MEMORY, Site, agent, certificate, patient_client, patient_server, soon};

#[tokio::test]
async fn an_image_spreads_from_one_agent_over_a_second_to_a_third() {
    let site = Site::new(3);
    let image = &site.image;
    let first = site
        .serve("gpu-001", image.store(MEMORY, &[0, 1, 2]), patient_server())
        .await;
    let store = image.store(MEMORY, &[]);
    let second = site.serve("gpu-002", store.clone(), patient_server()).await;
    let of_second = agent("gpu-002");
    let client = PeerClient::new(
        certificate(&site.authority, &of_second),
        site.trust(),
        site.signed(&site.ticket(&of_second)),
        store.clone(),
        patient_client(),
    );
    for chunk in [Chunk(2), Chunk(0)] {
        let answer = client.ask(&first.address, chunk, soon()).await.unwrap();
        let Answer::Frame(_, shown) = &answer else {
            panic!("{answer:?}")
        };
        assert_eq!(shown.held, Bits::full(3), "each answer shows what the agent holds");
        let frame = image.open(&client, answer).unwrap();
        assert!(store.offer(frame, |_| 0));
    }
    // A look tells both ends what the other one holds.
    let shown = client.look(&first.address, 3, soon()).await.unwrap();
    assert_eq!((shown.held, shown.load), (Bits::full(3), 0));
    let mut held = Bits::new(3);
    held.add(Chunk(0));
    held.add(Chunk(2));
    assert_eq!(
        *site.looks.lock().unwrap(),
        [(
            of_second,
            Holdings {
                held: held.clone(),
                load: 3
            }
        )]
    );

    let third = site.client(&agent("gpu-003"));
    let answer = third.ask(&second.address, Chunk(2), soon()).await.unwrap();
    image.open(&third, answer).unwrap();
    for absent in [1, 3, u32::MAX] {
        let answer = third.ask(&second.address, Chunk(absent), soon()).await.unwrap();
        let Answer::NotHeld(shown) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(shown.held, held);
    }
    let counts = first.server.counts();
    assert_eq!((counts.frames, counts.looks, counts.broken), (2, 1, 0));
    assert_eq!(counts.bytes, (image.frames[0].len() + image.frames[2].len()) as u64);
    assert_eq!(second.server.counts().not_held, 3);
    assert_eq!(first.server.connections(), 1, "the connection was kept");
}

#[tokio::test]
async fn an_agent_without_memory_to_serve_says_so_and_serves_nothing() {
    let site = Site::new(2);
    // A quarter of this is a little less than the image's two frames.
    let store = site.image.store(MEMORY / 64 - 4, &[0, 1]);
    assert_eq!(store.limit_bytes(), 0);
    let served = site.serve("gpu-001", store, patient_server()).await;
    let client = site.client(&agent("gpu-002"));
    let shown = client.look(&served.address, 0, soon()).await.unwrap();
    assert!(shown.held.is_empty());
    let answer = client.ask(&served.address, Chunk(0), soon()).await.unwrap();
    assert!(matches!(answer, Answer::NotHeld(_)), "{answer:?}");
    assert_eq!(served.server.counts().frames, 0);
}

#[tokio::test]
async fn a_connection_that_the_other_agent_closed_is_replaced() {
    let site = Site::new(1);
    let settings = ServerSettings {
        idle: Duration::from_millis(500),
        ..patient_server()
    };
    let served = site.serve("gpu-001", site.image.store(MEMORY, &[0]), settings).await;
    let client = site.client(&agent("gpu-002"));
    for _ in 0..2 {
        let answer = client.ask(&served.address, Chunk(0), soon()).await.unwrap();
        site.image.open(&client, answer).unwrap();
        // The server gives the place back when it ends the idle connection.
        while served.server.connections() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(served.server.counts().frames, 2);
}

#[tokio::test]
async fn a_server_that_stops_ends_its_connections() {
    let site = Site::new(1);
    let served = site
        .serve("gpu-001", site.image.store(MEMORY, &[0]), patient_server())
        .await;
    let client = Arc::new(site.client(&agent("gpu-002")));
    let address = served.address.clone();
    client.look(&address, 0, soon()).await.unwrap();
    served.stop().await;
    let error = client.look(&address, 0, soon()).await.unwrap_err();
    assert!(matches!(error, AskError::Unreachable { .. }), "{error}");
}
