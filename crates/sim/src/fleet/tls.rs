//! TLS for thousands of BMCs: one shared key, and one certificate for each.

use super::FleetError;
use rackwright_sim_bmc as bmc;
use rcgen::KeyPair;
use rustls::crypto::ring::Ticketer;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{ServerConfig, version};
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// What all BMCs share.
pub(super) struct Tls {
    pair: KeyPair,
    signing: Arc<dyn SigningKey>,
    template: ServerConfig,
}

/// A BMC's certificate and its TLS acceptor.
pub(super) struct Secured {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) acceptor: TlsAcceptor,
}

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

impl Tls {
    pub(super) fn new() -> Result<Self, FleetError> {
        let pair = KeyPair::generate().map_err(failed)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        let signing = rustls::crypto::ring::sign::any_ecdsa_type(&key).map_err(failed)?;
        let no_name = Arc::new(rustls::server::ResolvesServerCertUsingSni::new());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut template = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(failed)?
            .with_no_client_auth()
            .with_cert_resolver(no_name);
        template.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Sessions are resumed by tickets: a BMC stores one key and no data per session.
        template.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self {
            pair,
            signing,
            template,
        })
    }

    /// Makes a BMC's certificate. Each call returns a different one, even for the same BMC.
    pub(super) fn secure(&self, name: &str, address: Ipv4Addr) -> Result<Secured, FleetError> {
        let made = bmc::certificate(name, address, &self.pair).map_err(failed)?;
        let certificate = made.der().clone();
        let mut config = self.template.clone();
        let key = CertifiedKey::new(vec![certificate.clone()], Arc::clone(&self.signing));
        config.cert_resolver = Arc::new(Always(Arc::new(key)));
        // Tickets of one certificate are invalid for any other.
        config.ticketer = Ticketer::new().map_err(failed)?;
        Ok(Secured {
            certificate,
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }
}

fn failed(error: impl std::fmt::Display) -> FleetError {
    FleetError::Tls {
        detail: error.to_string(),
    }
}
