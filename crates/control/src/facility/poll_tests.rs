#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

use rackwright_ground::testing;
use secrecy::SecretString;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use rackwright_store::Scope;

use super::*;

fn key(kind: Kind, name: &str) -> Key {
    (kind, name.to_owned())
}

#[tokio::test]
async fn slow_nodes_do_not_delay_readings_of_equipment() {
    let core = testing::core_with("facility: {at_once: 1}\n").await;
    let mut poll = Poll::new((*core).clone(), core.config.facility.clone().unwrap());
    let now = clock::now();
    for name in ["n1", "n2"] {
        poll.nodes.set(key(Kind::Node, name), now);
        poll.entries.insert(key(Kind::Node, name), Entry::default());
    }
    poll.equipment.set(key(Kind::Cooling, "cdu-1"), now);
    poll.entries.insert(key(Kind::Cooling, "cdu-1"), Entry::default());
    let mut reading = Readings::default();
    reading.begin(key(Kind::Node, "n0"), std::future::pending());
    poll.begin(now, &mut reading);
    let nodes = reading.count(|key| key.0 == Kind::Node);
    assert_eq!((nodes, reading.len()), (1, 2));
    assert!(poll.entries[&key(Kind::Cooling, "cdu-1")].is_reading);
    assert!(!poll.entries[&key(Kind::Node, "n1")].is_reading);
}

#[tokio::test]
async fn equipment_is_read_again_after_a_panic_and_repeated_panics_are_reported() {
    async fn panics() -> PollResult {
        panic!("an unexpected body")
    }
    let core = testing::core_with("facility: {}\n").await;
    let mut poll = Poll::new((*core).clone(), core.config.facility.clone().unwrap());
    let of = key(Kind::Cooling, "cdu-1");
    poll.entries.insert(of.clone(), Entry::default());
    let mut reading = Readings::default();
    for _ in 0..MISSES {
        let now = clock::now();
        poll.equipment.set(of.clone(), now);
        poll.begin(now, &mut reading);
        assert!(poll.entries[&of].is_reading);
        // A task that panics replaces the reading that began.
        reading.shutdown().await;
        reading.begin(of.clone(), panics());
        let (panicked, outcome) = reading.next().await.unwrap();
        poll.ended(panicked, outcome).await;
        assert!(!poll.entries[&of].is_reading, "it would never be read again");
    }
    let events = core.store.events(&Scope::Site, 0, "", 100).await.unwrap();
    let unread: Vec<_> = events.iter().filter(|event| event.kind == "facility.unread").collect();
    assert_eq!(unread.len(), 1, "{events:?}");
}

fn cdu(address: String) -> Equipment {
    Equipment {
        kind: Kind::Cooling,
        name: "cdu-1".into(),
        address,
        certificate: None,
    }
}

fn account() -> (String, SecretString) {
    ("facility".into(), SecretString::from("secret".to_owned()))
}

#[tokio::test]
async fn a_reading_that_takes_too_long_is_given_up() {
    let core = testing::core_with("facility: {}\n").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let one = cdu(format!("http://{}", listener.local_addr().unwrap()));
    let silent = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // Reads everything and never answers.
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
    });
    let limit = Duration::from_millis(300);
    let mut known = BmcHints::default();
    let read = read::equipment(&core, &one, account(), None, &mut known, limit);
    let read = tokio::time::timeout(Duration::from_secs(20), read).await.unwrap();
    assert!(read.reading.unwrap_err().contains("took longer than 0.3 s"));
    silent.abort();
}

/// A TLS server that completes the handshake and then stays silent.
async fn silent_tls_server() -> (String, String, tokio::task::JoinHandle<()>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let certificate = made.cert.der().clone();
    let pin = rackwright_redfish::CertificateFingerprint::of(&certificate).to_string();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut heard = Vec::new();
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let _ = stream.read_to_end(&mut heard).await;
            }
        }
    });
    (address, pin, task)
}

#[tokio::test]
async fn the_first_certificate_is_pinned_without_a_reading() {
    let core = testing::core_with("facility: {username: facility, password_file: PASSWORD}\n").await;
    let mut settings = core.config.facility.clone().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret\n").unwrap();
    settings.password_file = Some(file.path().to_owned());
    let (address, pin, task) = silent_tls_server().await;
    let (one, bmc_locks) = (cdu(address.clone()), BmcLocks::default());
    let limit = Duration::from_secs(2);
    let done = poll_equipment(
        &core,
        &bmc_locks,
        &settings,
        key(Kind::Cooling, "cdu-1"),
        &one,
        BmcHints::default(),
        limit,
    )
    .await;
    assert!(
        done.row.is_none() && done.failure.contains("took longer"),
        "{}",
        done.failure
    );
    let kept = core.store.facility_pin("cooling", "cdu-1").await.unwrap();
    assert_eq!(kept, Some(format!("{address} {pin}")));
    task.abort();
}
