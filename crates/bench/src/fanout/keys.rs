//! Keys and certificates of a site for one run: its authority, the signer of its tickets, and what they make for servers and
//! agents. The tests of `crates/agent` use this file, too.

use std::io;
use std::sync::Arc;

use rackwright_agent::jobs::writer::Credentials;
use rackwright_api::v1::Peers;
use rackwright_fanout::Ticket;
use rackwright_identity::{
    CertificateSigner, ClientAuth, ClientIdentity, ClientKind, ClientTrust, ServerCertificate, SystemRng, server_config,
};
use rackwright_image::ImageDigest;
use rackwright_peers::SignedTicket;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use rustls_pki_types::CertificateDer;
use secrecy::SecretString;

/// Validity of a ticket.
const TICKET_S: i64 = 3600;
/// The claim generation of every agent.
pub const GENERATION: u64 = 7;

pub struct SiteKeys {
    pub ca_pem: String,
    ca: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    pub signer: CertificateSigner,
}

/// A certificate and its key.
pub struct Pem {
    pub certificate: String,
    pub key: String,
}

impl SiteKeys {
    pub fn new() -> io::Result<Self> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        // OpenSSL takes a certificate with the name of its authority for the authority itself.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).map_err(io::Error::other)?;
        Ok(Self {
            ca_pem: ca.pem(),
            ca: ca.der().clone(),
            issuer: Issuer::new(params, key),
            signer: CertificateSigner::generate(&SystemRng).map_err(io::Error::other)?,
        })
    }

    fn sign(&self, params: &CertificateParams) -> io::Result<Pem> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        Ok(Pem {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// A server's certificate for these addresses and names.
    pub fn server(&self, names: &[&str]) -> io::Result<Pem> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// TLS of a server with these addresses and names that accepts only clients of the site.
    pub fn server_tls(&self, names: &[&str]) -> io::Result<Arc<rustls::ServerConfig>> {
        let Pem { certificate, key } = self.server(names)?;
        let own = ServerCertificate::of_pem(certificate.as_bytes(), key.as_bytes()).map_err(io::Error::other)?;
        let trust = ClientTrust::new(std::slice::from_ref(&self.ca)).map_err(io::Error::other)?;
        server_config(own, trust, ClientAuth::Required).map_err(io::Error::other)
    }

    pub fn client(&self, of: &ClientIdentity) -> io::Result<Pem> {
        let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        params.subject_alt_names = vec![SanType::URI(of.uri().try_into().map_err(io::Error::other)?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    pub fn credentials(&self, of: &ClientIdentity) -> io::Result<Credentials> {
        let Pem { certificate, key } = self.client(of)?;
        Ok(Credentials {
            ca_pem: self.ca_pem.clone(),
            certificate_pem: certificate,
            key_pem: SecretString::from(key),
        })
    }

    /// A ticket of an agent of this customer for the image.
    pub fn ticket(&self, image: &ImageDigest, of: &ClientIdentity, customer: &str) -> io::Result<SignedTicket> {
        let ClientKind::Agent { claim_generation, boot } = &of.kind else {
            return Err(io::Error::other(format!("{of} is no agent")));
        };
        let now = rackwright_agent::clock::unix_s();
        let ticket = Ticket {
            image: image.to_string(),
            customer: customer.to_owned(),
            node: of.common_name.clone(),
            generation: *claim_generation,
            boot: boot.clone(),
            begins: now,
            ends: now + TICKET_S,
        };
        SignedTicket::sign(&ticket, &self.signer).map_err(io::Error::other)
    }

    /// What a job of this customer says about peers.
    pub fn peers(&self, image: &ImageDigest, of: &ClientIdentity, customer: &str, port: u16) -> io::Result<Peers> {
        let ticket = self.ticket(image, of, customer)?;
        Ok(Peers {
            ticket: ticket.text().to_vec(),
            ticket_signature: ticket.signature().to_vec(),
            ticket_keys: vec![self.signer.public_key().to_vec()],
            customer: customer.to_owned(),
            is_public: false,
            port: port.into(),
        })
    }
}

/// The agent of a node in its only boot.
pub fn agent(node: &str) -> io::Result<ClientIdentity> {
    ClientIdentity::agent_of_boot(node, GENERATION, &format!("boot-of-{node}")).map_err(io::Error::other)
}
