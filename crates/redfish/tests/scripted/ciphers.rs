//! BMCs that offer only RSA key exchange, played by `openssl s_server`: the built-in TLS reports the cause, and the
//! platform's TLS connects.

use std::path::PathBuf;
use std::process::Stdio;

use rackwright_redfish::{BmcClient, BmcTarget, CertificateFingerprint, RedfishError, Settings};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

/// Options of such a BMC.
const RSA_ONLY: [&str; 3] = ["-tls1_2", "-cipher", "AES256-GCM-SHA384:AES128-SHA"];
const ROOT: &str = r##"{"@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot", "RedfishVersion": "1.6.0",
    "Systems": {"@odata.id": "/redfish/v1/Systems"}}"##;

/// A folder with a self-signed certificate and its RSA key.
struct Certificate {
    folder: TempDir,
}

impl Certificate {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-subj",
                "/CN=elsewhere",
            ])
            .args(["-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(folder.path())
            .output()
            .await
            .expect("openssl runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The fingerprint as OpenSSL computes it.
    async fn fingerprint(&self) -> CertificateFingerprint {
        let shown = Command::new("openssl")
            .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
            .arg(self.path("cert.pem"))
            .output()
            .await
            .expect("openssl runs");
        let text = String::from_utf8(shown.stdout).unwrap();
        text.trim().split_once('=').unwrap().1.parse().unwrap()
    }
}

/// A BMC that accepts one connection and answers each request on it with a service root.
struct OldBmc {
    port: u16,
    /// All received data, available after the end of the connection.
    received: JoinHandle<String>,
}

impl OldBmc {
    async fn start(certificate: &Certificate, offers: &[&str]) -> Self {
        let mut server = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-naccept", "1", "-cert"])
            .arg(certificate.path("cert.pem"))
            .arg("-key")
            .arg(certificate.path("key.pem"))
            .args(offers)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("openssl runs");
        let (into, mut from) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
        let mut output = String::new();
        let port = loop {
            read_some(&mut from, &mut output).await.expect("it listens");
            let port = output
                .split_once("ACCEPT 127.0.0.1:")
                .and_then(|(_, rest)| rest.split_once('\n'));
            if let Some((port, _)) = port {
                break port.parse().unwrap();
            }
        };
        Self {
            port,
            received: tokio::spawn(answer(server, into, from)),
        }
    }

    fn target(&self, pin: Option<CertificateFingerprint>) -> BmcTarget {
        BmcTarget {
            address: format!("https://127.0.0.1:{}", self.port),
            username: "admin".to_owned(),
            password: "secret-secret".into(),
            certificate_sha256: pin,
            system: None,
        }
    }
}

async fn read_some(from: &mut ChildStdout, output: &mut String) -> Option<()> {
    let mut piece = [0; 4096];
    let length = from.read(&mut piece).await.ok().filter(|length| *length > 0)?;
    output.push_str(&String::from_utf8_lossy(&piece[..length]));
    Some(())
}

async fn answer(mut server: Child, mut into: ChildStdin, mut from: ChildStdout) -> String {
    let (mut received, mut answered) = (String::new(), 0);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{ROOT}",
        ROOT.len()
    );
    while read_some(&mut from, &mut received).await.is_some() {
        while received.matches("\r\n\r\n").count() > answered {
            answered += 1;
            into.write_all(answer.as_bytes()).await.unwrap();
        }
    }
    server.wait().await.unwrap();
    received
}

fn causes(failure: &RedfishError) -> String {
    let mut text = failure.to_string();
    let mut cause = std::error::Error::source(failure);
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

#[cfg(not(feature = "platform-tls"))]
#[tokio::test]
async fn the_built_in_tls_names_the_build_that_supports_old_ciphers() {
    let certificate = Certificate::new().await;
    let bmc = OldBmc::start(&certificate, &RSA_ONLY).await;
    let target = bmc.target(None);
    let failure = BmcClient::connect(target.clone(), Settings::default())
        .await
        .unwrap_err();
    assert!(matches!(failure, RedfishError::NoSharedCipher { .. }), "{failure:?}");
    assert_eq!(failure.kind(), rackwright_redfish::ErrorKind::Permanent);
    let text = causes(&failure);
    for part in [
        &*target.address,
        "no common cipher suite",
        "RSA key exchange",
        "--features platform-tls",
        "HandshakeFailure",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    bmc.received.await.unwrap();

    let bmc = OldBmc::start(&certificate, &RSA_ONLY).await;
    let found = BmcClient::survey(&bmc.target(None).address, Settings::default())
        .await
        .unwrap();
    assert!(found.reason.contains("--features platform-tls"), "{}", found.reason);
}

#[cfg(feature = "platform-tls")]
mod with_the_platforms_tls {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, Ordering};

    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn the_service_root_is_read_for_any_name_of_the_certificate() {
        let certificate = Certificate::new().await;
        let bmc = OldBmc::start(&certificate, &RSA_ONLY).await;
        let found = BmcClient::survey(&bmc.target(None).address, Settings::default())
            .await
            .unwrap();
        assert_eq!(found.certificate, Some(certificate.fingerprint().await));
        let service = found.service.expect("a service root");
        assert_eq!(service.redfish_version.as_deref(), Some("1.6.0"));
        let received = bmc.received.await.unwrap();
        assert!(
            received.contains("CIPHER is AES256-GCM-SHA384") && received.contains("GET /redfish/v1/"),
            "{received}"
        );
    }

    #[tokio::test]
    async fn only_the_pinned_certificate_is_accepted() {
        let (certificate, other) = (Certificate::new().await, Certificate::new().await);
        let (expected, pin) = (certificate.fingerprint().await, other.fingerprint().await);
        let bmc = OldBmc::start(&certificate, &RSA_ONLY).await;
        BmcClient::connect(bmc.target(Some(expected)), Settings::default())
            .await
            .unwrap();

        let bmc = OldBmc::start(&certificate, &RSA_ONLY).await;
        let failure = BmcClient::connect(bmc.target(Some(pin)), Settings::default())
            .await
            .unwrap_err();
        match failure {
            RedfishError::CertificateChanged {
                expected: wanted, seen, ..
            } => {
                assert_eq!((wanted, seen), (pin, expected));
            }
            other => panic!("{other:?}"),
        }
        let received = bmc.received.await.unwrap();
        assert!(received.contains("CIPHER is AES256-GCM-SHA384"), "{received}");
        assert!(
            !received.contains("GET"),
            "nothing may be sent to a stranger: {received}"
        );
    }

    /// Forwards each connection to the port that is in `to` when the connection arrives.
    async fn front(to: Arc<AtomicU16>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server = TcpStream::connect(("127.0.0.1", to.load(Ordering::SeqCst)))
                    .await
                    .unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
            }
        });
        address
    }

    #[tokio::test]
    async fn a_replaced_certificate_stops_the_client() {
        let (first, second) = (Certificate::new().await, Certificate::new().await);
        let bmc = OldBmc::start(&first, &RSA_ONLY).await;
        let port = Arc::new(AtomicU16::new(bmc.port));
        let target = BmcTarget {
            address: format!("https://{}", front(Arc::clone(&port)).await),
            ..bmc.target(None)
        };
        let client = BmcClient::connect(target, Settings::default()).await.unwrap();
        bmc.received.await.unwrap();

        let stranger = OldBmc::start(&second, &RSA_ONLY).await;
        port.store(stranger.port, Ordering::SeqCst);
        for _ in 0..2 {
            match client.get("/redfish/v1/Systems").await {
                Err(RedfishError::CertificateChanged { expected, seen, .. }) => {
                    assert_eq!(expected, first.fingerprint().await);
                    assert_eq!(seen, second.fingerprint().await);
                }
                other => panic!("{other:?}"),
            }
        }
        let received = stranger.received.await.unwrap();
        assert!(!received.contains("GET"), "{received}");
    }

    #[tokio::test]
    async fn a_bmc_without_a_safe_cipher_is_an_error_with_openssls_message() {
        let certificate = Certificate::new().await;
        let bmc = OldBmc::start(&certificate, &["-tls1_2", "-cipher", "ADH-AES128-SHA256:@SECLEVEL=0"]).await;
        let failure = BmcClient::connect(bmc.target(None), Settings::default())
            .await
            .unwrap_err();
        assert!(matches!(failure, RedfishError::NoSharedCipher { .. }), "{failure:?}");
        let text = causes(&failure);
        assert!(
            text.contains("the platform's OpenSSL") && text.contains("alert handshake failure"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn older_tls_than_1_2_is_refused() {
    let certificate = Certificate::new().await;
    let bmc = OldBmc::start(&certificate, &["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"]).await;
    let pinned = bmc.target(Some(certificate.fingerprint().await));
    let failure = BmcClient::connect(pinned, Settings::default()).await.unwrap_err();
    assert!(matches!(failure, RedfishError::Tls { .. }), "{}", causes(&failure));
}
