//! TLS between agents.
//!
//! Agents have client certificates only. A certificate for a server would let an agent pose as the control plane before any
//! client that looks at the common name, so agents get none. Instead both ends of a connection verify the other's
//! certificate as that of a client, by the site's authorities. The end that connects also compares the identity: it expects
//! one agent, in one claim and one boot, and no host name.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::client::{ClientIdentity, identify};
use crate::tls::{ClientAuth, ClientTrust, ServerCertificate, TlsError, provider, server_config};

/// The protocol between agents, as TLS names it. A connection without it is none between agents.
pub const PEER_PROTOCOL: &[u8] = b"rackwright-peer-v1";

/// Settings of an agent that serves others. It presents `own`, and accepts only clients with a certificate of `trust`. The
/// caller looks which client that is: see [`identify`].
pub fn peer_server_config(own: Arc<ServerCertificate>, trust: Arc<ClientTrust>) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = (*server_config(own, trust, ClientAuth::Required)?).clone();
    config.alpn_protocols = vec![PEER_PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

/// Settings of an agent that asks the agent `peer`, and no other. It presents `own`.
pub fn peer_client_config(
    own: Arc<ServerCertificate>,
    trust: Arc<ClientTrust>,
    peer: ClientIdentity,
) -> Result<Arc<ClientConfig>, TlsError> {
    let verifier = PeerVerifier { trust, peer };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(own);
    config.alpn_protocols = vec![PEER_PROTOCOL.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// Verifies the certificate of the agent that is asked: as a client's, and of this identity.
#[derive(Debug)]
struct PeerVerifier {
    trust: Arc<ClientTrust>,
    peer: ClientIdentity,
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let trust = self.trust.current();
        trust.verify_client_cert(end_entity, intermediates, now)?;
        match identify(end_entity) {
            Ok(found) if found == self.peer => Ok(ServerCertVerified::assertion()),
            Ok(_) => Err(CertificateError::NotValidForName.into()),
            Err(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let trust = self.trust.current();
        trust.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let trust = self.trust.current();
        trust.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.current().supported_verify_schemes()
    }
}
