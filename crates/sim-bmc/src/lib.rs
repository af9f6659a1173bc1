//! A simulated BMC for one machine: Redfish over HTTPS with a self-signed certificate, sessions and Basic authentication,
//! and the serial console over SSH.
//!
//! The machine behind the BMC is a [`Host`]: a QEMU process of the crate `lab`, or a simulated machine of the crate `sim`.
//!
//! Written from DMTF's DSP0266 (protocol) and DSP8010 (schemas), not from the client: the two share no code.

// Tests may read clocks and files, and may wait for tasks that they started.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod accounts;
mod climate;
mod components;
mod console;
mod error;
mod events;
mod expand;
mod firmware;
mod host;
mod in_band;
mod log;
pub mod random;
mod reply;
mod request_fault;
mod resources;
mod routes;
mod session;
mod system;
mod tasks;
mod time;
mod uefi;
mod update;
mod web_console;
mod words;

pub use accounts::AccountRules;
pub use components::ComponentFault;
pub use console::{Console, host_key};
pub use error::BmcError;
pub use firmware::Firmware;
pub use host::{
    Accepted, BadAnswer, Climate, ConsoleKind, Description, Drive, Host, MediaRefused, MemoryModule, Nic, Processor,
    Progress, RequestFault, RequestLine, State, Task,
};
use hyper_util::rt::{TokioIo, TokioTimer};
pub use in_band::AccessFault;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
pub use routes::{Bmc, Service, router};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
pub use session::same;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
pub use time::{now_s, system_time};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
pub use uefi::UefiFault;
pub use update::UpdateSettings;
pub use words::{BootEnabled, BootOverride, BootTarget, PowerState, ResetRefused, ResetType};

/// Most concurrent connections of a BMC; further ones are dropped.
pub const CONNECTIONS: usize = 32;
/// Time limit for a client's TLS handshake, and for the header of a request.
pub const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// The faults of a BMC.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// It does not listen.
    pub dead: bool,
    /// It listens but never answers.
    pub silent: bool,
    /// Delay of every answer.
    pub delay: Duration,
}

/// Limits of a BMC.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub sessions: usize,
    pub session_timeout: Duration,
    pub accounts: AccountRules,
}

/// A self-signed certificate for the BMC of `machine`.
pub fn certificate(machine: &str, address: Ipv4Addr, key: &KeyPair) -> Result<rcgen::Certificate, rcgen::Error> {
    let mut params = CertificateParams::new(vec![format!("{machine}-bmc")])?;
    params.subject_alt_names.push(SanType::IpAddress(address.into()));
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{machine}-bmc"));
    params.self_signed(key)
}

/// Installs ring as the process's TLS provider, unless one is installed already.
pub fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// `sha256:` and the hexadecimal digest of a certificate.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    format!("sha256:{}", hex::encode(digest))
}

/// A BMC's self-signed certificate.
pub struct Identity {
    pub fingerprint: String,
    pub certificate_pem: String,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub fn new(machine: &str, address: Ipv4Addr) -> Result<Self, BmcError> {
        let failed = |error: rcgen::Error| BmcError::Tls {
            machine: machine.to_owned(),
            detail: error.to_string(),
        };
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = certificate(machine, address, &key).map_err(failed)?;
        Ok(Self {
            fingerprint: fingerprint(certificate.der()),
            certificate_pem: certificate.pem(),
            certificate: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        })
    }

    pub fn acceptor(self, machine: &str) -> Result<TlsAcceptor, BmcError> {
        let failed = |error: rustls::Error| BmcError::Tls {
            machine: machine.to_owned(),
            detail: error.to_string(),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate], self.key)
            .map_err(failed)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// The listening BMC of a machine.
pub struct Server {
    machine: String,
    address: SocketAddr,
    first: Option<TcpListener>,
    tls: TlsAcceptor,
    service: Service,
    faults: watch::Receiver<Faults>,
    listening: watch::Sender<bool>,
}

impl Server {
    pub async fn bind(
        machine: &str,
        host: Arc<dyn Host>,
        address: SocketAddr,
        identity: Identity,
        limits: Limits,
        faults: watch::Receiver<Faults>,
        listening: watch::Sender<bool>,
    ) -> Result<Self, BmcError> {
        let failed = |source| BmcError::Listen {
            machine: machine.to_owned(),
            address,
            source,
        };
        let first = Some(TcpListener::bind(address).await.map_err(failed)?);
        let _ = listening.send(true);
        let tls = identity.acceptor(machine)?;
        let service = Service::new(router(), Arc::new(Bmc::new(host, limits)));
        Ok(Self {
            machine: machine.to_owned(),
            address,
            first,
            tls,
            service,
            faults,
            listening,
        })
    }

    /// Serves until the task is aborted.
    pub async fn run(mut self) {
        loop {
            let Some(listener) = self.listener().await else { return };
            self.listening.send_replace(true);
            self.serve(listener).await;
            self.listening.send_replace(false);
        }
    }

    /// The listener of a live BMC: the first one, or a new one after the BMC's return.
    async fn listener(&mut self) -> Option<TcpListener> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        self.faults.wait_for(|faults| !faults.dead).await.ok()?;
        match TcpListener::bind(self.address).await {
            Ok(listener) => Some(listener),
            Err(error) => {
                tracing::error!(machine = self.machine.as_str(), address = %self.address, %error, "the BMC cannot come back");
                None
            }
        }
    }

    /// Accepts connections until the BMC dies; on return, listener and connections are closed.
    async fn serve(&mut self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        let mut faults = self.faults.clone();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if connections.len() < CONNECTIONS => {
                        connections.spawn(connection(stream, self.tls.clone(), self.service.clone(), self.faults.clone()));
                    }
                    Ok(_) => tracing::warn!(machine = self.machine.as_str(), "too many connections to the BMC"),
                    Err(error) => tracing::warn!(machine = self.machine.as_str(), %error, "BMC connection lost"),
                },
                _ = faults.wait_for(|faults| faults.dead) => break,
                Some(_) = connections.join_next() => {}
            }
        }
        connections.shutdown().await;
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, service: Service, mut faults: watch::Receiver<Faults>) {
    if faults.wait_for(|faults| !faults.silent).await.is_err() {
        return;
    }
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(WAIT_LIMIT, tls.accept(stream)).await else {
        return;
    };
    serve(stream, service).await;
}

/// Answers the requests of one connection until it ends.
pub async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, service: Service) {
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(WAIT_LIMIT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "BMC connection ended");
    }
}
