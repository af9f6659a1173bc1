//! Downloads from servers that disconnect, send wrong data, stall, or require client certificates.

#![allow(clippy::disallowed_methods)] // a test may read clocks and wait for the processes it started
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rackwright_image::writer::{HttpOptions, HttpSource, Tls};
use rackwright_image::{CHUNK_SIZE, ChunkStore, ImageDigest, Options, WriteError, Written, write_image};
use support::server::{Fault, Server};
use support::{Fixture, noise, sample_disk};

fn fast_options() -> HttpOptions {
    HttpOptions {
        read_timeout: Duration::from_secs(6),
        attempts: 4,
        first_pause: Duration::from_millis(5),
        longest_pause: Duration::from_millis(50),
        ..HttpOptions::default()
    }
}

struct Case {
    f: Fixture,
    disk: Vec<u8>,
    image: ImageDigest,
    target: PathBuf,
}

impl Case {
    fn new() -> Self {
        let f = Fixture::new();
        let disk = sample_disk();
        let image = f.add(&disk);
        let target = f.file("target", &vec![0xa5; disk.len()]);
        Self { f, disk, image, target }
    }

    fn chunk_path(&self, position: usize) -> String {
        format!(
            "/chunks/{}",
            self.f.store.index(&self.image).unwrap().data()[position].digest
        )
    }

    fn write(&self, servers: &[&Server]) -> Result<Written, WriteError> {
        let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
        let source = HttpSource::new(&urls, None, fast_options()).unwrap();
        let options = Options {
            threads: 2,
            ..Options::default()
        };
        write_image(&source, &self.image, &self.target, &options, &|_| {})
    }

    fn assert_written(&self) {
        assert!(fs::read(&self.target).unwrap() == self.disk);
    }
}

#[test]
fn connections_are_kept() {
    let case = Case::new();
    let server = Server::start(&case.f.store, |_, _| Fault::None);
    let written = case.write(&[&server]).unwrap();
    case.assert_written();
    assert_eq!(written.resumed_downloads, 0);
    let requests = server.requests();
    assert_eq!(requests.len(), 7, "{requests:?}");
    assert!(server.connections() <= 3, "{} connections", server.connections());
    let packed: u64 = case.f.store.stored_bytes(&case.image).unwrap();
    assert!(written.fetched_bytes > packed);
}

#[test]
fn a_broken_download_resumes_at_the_break() {
    let case = Case::new();
    let cut_chunk = case.chunk_path(4);
    let path = cut_chunk.clone();
    let server = Server::start(&case.f.store, move |requested, number| match number {
        0 | 1 if requested == path => Fault::CutAfter(1_000_000),
        _ => Fault::None,
    });
    let written = case.write(&[&server]).unwrap();
    case.assert_written();
    assert_eq!(written.resumed_downloads, 2);
    let ranges: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|(path, _)| *path == cut_chunk)
        .collect();
    assert_eq!(ranges.len(), 3);
    assert_eq!(ranges[0].1, None);
    assert_eq!(ranges[1].1.as_deref(), Some("bytes=1000000-"));
    assert_eq!(ranges[2].1.as_deref(), Some("bytes=2000000-"));
    let packed = case.f.store.stored_bytes(&case.image).unwrap();
    let twice = fs::metadata(
        case.f
            .store
            .chunk_path(&case.f.store.index(&case.image).unwrap().data()[1].digest),
    );
    let index = fs::metadata(case.f.store.image_path(&case.image)).unwrap().len();
    assert_eq!(
        written.fetched_bytes,
        packed + twice.unwrap().len() + index,
        "no byte came twice"
    );
}

#[test]
fn breaks_are_tolerated_while_there_is_progress() {
    let case = Case::new();
    let server = Server::start(&case.f.store, |_, _| Fault::CutAfter(300_000));
    let written = case.write(&[&server]).unwrap();
    case.assert_written();
    assert!(written.resumed_downloads > 30, "{}", written.resumed_downloads);
}

#[test]
fn a_dead_server_is_replaced_by_the_next() {
    let case = Case::new();
    let failing_server = Server::start(&case.f.store, |_, _| Fault::Status(503));
    let error = case.write(&[&failing_server]).unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("download-failed", true));
    assert!(error.to_string().contains("503"), "{error}");
    assert_eq!(failing_server.requests().len(), 4);
    let server = Server::start(&case.f.store, |_, _| Fault::None);
    case.write(&[&failing_server, &server]).unwrap();
    case.assert_written();

    let gone = Server::start(&case.f.store, |_, _| Fault::None);
    let urls = [gone.url(), server.url()];
    drop(gone);
    let source = HttpSource::new(&urls, None, fast_options()).unwrap();
    write_image(&source, &case.image, &case.target, &Options::default(), &|_| {}).unwrap();
    case.assert_written();
}

#[test]
fn a_corrupt_server_is_dropped() {
    let case = Case::new();
    let corrupt_server = Server::start(&case.f.store, |path, _| match path.starts_with("/chunks/") {
        true => Fault::Corrupt,
        false => Fault::None,
    });
    let error = case.write(&[&corrupt_server]).unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("digest-mismatch", false), "{error}");
    let requests_before = corrupt_server.requests().len();
    let intact_server = Server::start(&case.f.store, |_, _| Fault::None);
    case.write(&[&corrupt_server, &intact_server]).unwrap();
    case.assert_written();
    // Each of the two threads may have sent one request already.
    assert!(
        corrupt_server.requests().len() <= requests_before + 1 + 2,
        "{:?}",
        corrupt_server.requests()
    );
}

#[test]
fn a_wrong_index_is_refused_or_fetched_elsewhere() {
    let case = Case::new();
    let corrupt_server = Server::start(&case.f.store, |path, _| match path.starts_with("/images/") {
        true => Fault::Corrupt,
        false => Fault::None,
    });
    let error = case.write(&[&corrupt_server]).unwrap_err();
    assert_eq!(error.code(), "digest-mismatch", "{error}");
    assert_eq!(fs::read(&case.target).unwrap()[0], 0xa5);
    let intact_server = Server::start(&case.f.store, |_, _| Fault::None);
    case.write(&[&corrupt_server, &intact_server]).unwrap();
    case.assert_written();
}

#[test]
fn a_missing_object_is_fetched_from_another_server() {
    let case = Case::new();
    let empty = Fixture::new();
    let incomplete_server = Server::start(&empty.store, |_, _| Fault::None);
    let error = case.write(&[&incomplete_server]).unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("download-failed", false), "{error}");
    let server = Server::start(&case.f.store, |_, _| Fault::None);
    case.write(&[&incomplete_server, &server]).unwrap();
    case.assert_written();
}

#[test]
fn an_endless_answer_is_refused() {
    let case = Case::new();
    let server = Server::start(&case.f.store, |_, _| Fault::TooLong);
    let error = case.write(&[&server]).unwrap_err();
    assert_eq!(error.code(), "download-failed", "{error}");
    assert!(error.to_string().contains("longer than"), "{error}");
}

#[test]
fn a_stalled_server_is_left_after_the_time_out() {
    let case = Case::new();
    let path = case.chunk_path(3);
    let server = Server::start(&case.f.store, move |requested, number| {
        match requested == path && number == 0 {
            true => Fault::Stall,
            false => Fault::None,
        }
    });
    let begun = Instant::now();
    let written = case.write(&[&server]).unwrap();
    case.assert_written();
    assert_eq!(written.resumed_downloads, 1);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn cancelling_does_not_wait_for_the_network() {
    let case = Case::new();
    let server = Server::start(&case.f.store, |_, _| Fault::Status(500));
    let options = HttpOptions {
        attempts: 1000,
        first_pause: Duration::from_secs(100),
        longest_pause: Duration::from_secs(100),
        ..HttpOptions::default()
    };
    let source = HttpSource::new(&[server.url()], None, options).unwrap();
    let options = Options::default();
    let cancel = Arc::clone(&options.cancel);
    let begun = Instant::now();
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            while server.requests().is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
            cancel.store(true, Ordering::Relaxed);
        });
        write_image(&source, &case.image, &case.target, &options, &|_| {}).unwrap_err()
    });
    assert_eq!(error.code(), "cancelled");
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
}

#[test]
fn a_chunk_that_changes_restarts_its_download() {
    let case = Case::new();
    let path = case.chunk_path(0);
    let store = case.f.store.clone();
    let chunk = case
        .f
        .store
        .chunk_path(&case.f.store.index(&case.image).unwrap().data()[0].digest);
    let repacked = zstd::encode_all(&case.disk[..CHUNK_SIZE], 1).map(|mut frame| {
        // A skippable frame after the chunk gives another file with the same content.
        frame.extend([0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4]);
        frame
    });
    let repacked = repacked.unwrap();
    let server = Server::start(&store, move |requested, number| {
        if requested == path && number == 0 {
            fs::write(&chunk, &repacked).unwrap();
            return Fault::CutAfter(100);
        }
        Fault::None
    });
    let written = case.write(&[&server]).unwrap();
    case.assert_written();
    assert_eq!(written.resumed_downloads, 0, "If-Range kept the halves apart");
}

struct Pki {
    ca: String,
    server: Arc<rustls::ServerConfig>,
    client: (String, String),
}

fn pki() -> Pki {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    let ca_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(params, ca_key);
    let issue = |name: &str, usage: ExtendedKeyUsagePurpose| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        (params.signed_by(&key, &issuer).unwrap(), key)
    };
    let (server, server_key) = issue("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
    let (client, client_key) = issue("node-1", ExtendedKeyUsagePurpose::ClientAuth);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(
            vec![CertificateDer::from(server.der().to_vec())],
            PrivateKeyDer::try_from(server_key.serialize_der()).unwrap(),
        )
        .unwrap();
    Pki {
        ca: ca.pem(),
        server: Arc::new(config),
        client: (client.pem(), client_key.serialize_pem()),
    }
}

fn write_tls(store: &ChunkStore, case: &Case, pki: &Pki, tls: &Tls) -> Result<Written, WriteError> {
    let server = Server::start_with(store, Box::new(|_, _| Fault::None), Some(Arc::clone(&pki.server)));
    let source = HttpSource::new(&[server.url()], Some(tls), fast_options()).unwrap();
    write_image(
        &source,
        &case.image,
        &case.target,
        &Options {
            threads: 2,
            ..Options::default()
        },
        &|_| {},
    )
}

#[test]
fn https_with_certificates_on_both_sides() {
    let case = Case::new();
    let pki = pki();
    let tls = Tls::with_ca(pki.ca.as_bytes()).unwrap();
    let known = tls
        .clone()
        .with_identity(pki.client.0.as_bytes(), pki.client.1.as_bytes())
        .unwrap();
    write_tls(&case.f.store, &case, &pki, &known).unwrap();
    case.assert_written();

    let error = write_tls(&case.f.store, &case, &pki, &tls).unwrap_err();
    assert_eq!(error.code(), "download-failed", "a stranger gets nothing: {error}");
    let other = Tls::with_ca(self::pki().ca.as_bytes()).unwrap();
    let other = other
        .with_identity(pki.client.0.as_bytes(), pki.client.1.as_bytes())
        .unwrap();
    let error = write_tls(&case.f.store, &case, &pki, &other).unwrap_err();
    assert_eq!(
        error.code(),
        "download-failed",
        "a server of another authority is not believed: {error}"
    );
}

#[test]
fn a_large_image_over_many_connections() {
    let f = Fixture::new();
    let disk = noise(77, 24 * CHUNK_SIZE);
    let image = f.add(&disk);
    let target = f.file("target", b"");
    let server = Server::start(&f.store, |_, _| Fault::None);
    let source = HttpSource::new(&[server.url()], None, fast_options()).unwrap();
    let options = Options {
        threads: 6,
        verify_whole_disk: true,
        ..Options::default()
    };
    let written = write_image(&source, &image, &target, &options, &|_| {}).unwrap();
    assert!(fs::read(&target).unwrap() == disk);
    assert_eq!(written.threads, 6);
    assert!(server.connections() <= 7, "{}", server.connections());
}
