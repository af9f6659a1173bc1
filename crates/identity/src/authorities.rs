//! The authorities that a site trusts: one, or two during a rotation.
//!
//! During a rotation the present authority still signs the server's certificate, because clients pin that authority. The
//! server accepts client certificates of both. Once every replica trusts the next authority, it signs all new client
//! certificates, and clients receive the certificates of both authorities. After the rotation the next authority becomes
//! the present one.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;

use crate::authority::{Authority, CertificateError, ClientKey, IssuedCertificate, ServerCredential};
use crate::client::ClientIdentity;
use crate::tls::{ClientTrust, TlsError};

/// The authorities of a site. A running process refreshes them from its key folder.
#[derive(Debug)]
pub struct Authorities {
    /// SHA-256 of the site's first authority. It names the site and stays the same through rotations.
    site: String,
    trust: Arc<ClientTrust>,
    state: RwLock<State>,
}

#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) current: Arc<Authority>,
    pub(crate) next: Option<Arc<Authority>>,
    /// Whether the next authority signs client certificates.
    pub(crate) uses_next: bool,
    /// Hashes of the authorities that are no longer trusted, oldest first.
    pub(crate) retired: Vec<String>,
}

impl State {
    fn trusted(&self) -> impl Iterator<Item = &Arc<Authority>> {
        std::iter::once(&self.current).chain(&self.next)
    }

    /// The authorities that the server announces to clients as trusted.
    fn announced(&self) -> impl Iterator<Item = &Arc<Authority>> {
        let next = self.next.iter().filter(|_| self.uses_next);
        std::iter::once(&self.current).chain(next)
    }

    fn issuing(&self) -> &Arc<Authority> {
        self.next.as_ref().filter(|_| self.uses_next).unwrap_or(&self.current)
    }

    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.trusted().map(|one| one.ca_der().clone()).collect()
    }
}

impl Authorities {
    pub(crate) fn new(
        current: Arc<Authority>,
        next: Option<Arc<Authority>>,
        retired: Vec<String>,
    ) -> Result<Self, TlsError> {
        let site = retired.first().cloned().unwrap_or_else(|| current.ca_sha256());
        let state = State {
            current,
            next,
            uses_next: false,
            retired,
        };
        Ok(Self {
            site,
            trust: ClientTrust::new(&state.certificates())?,
            state: RwLock::new(state),
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the site: the SHA-256 of its first authority. Stays the same through rotations.
    pub fn site_id(&self) -> String {
        self.site.clone()
    }

    /// The hash that clients pin at first contact: that of the authority that signs the server's certificate.
    pub fn ca_sha256(&self) -> String {
        self.read().current.ca_sha256()
    }

    /// The certificate of the authority that signs the server's certificate.
    pub fn ca_der(&self) -> CertificateDer<'static> {
        self.read().current.ca_der().clone()
    }

    /// The certificates that clients should trust, PEM.
    pub fn ca_pem(&self) -> String {
        self.read().announced().map(|one| one.ca_pem()).collect()
    }

    /// The hashes of the certificates that clients should trust; the signer of the server's certificate comes first.
    pub fn announced(&self) -> Vec<String> {
        self.read().announced().map(|one| one.ca_sha256()).collect()
    }

    /// The certificates of all trusted authorities, PEM.
    pub fn trusted_pem(&self) -> String {
        self.read().trusted().map(|one| one.ca_pem()).collect()
    }

    /// The hashes of the trusted authorities: the present one, then the next one.
    pub fn trusted(&self) -> Vec<String> {
        self.read().trusted().map(|one| one.ca_sha256()).collect()
    }

    /// The authority that takes over at the end of the rotation; `None` outside a rotation.
    pub fn next(&self) -> Option<String> {
        self.read().next.as_ref().map(|next| next.ca_sha256())
    }

    /// The hash of the authority that signs client certificates.
    pub fn issues_with(&self) -> String {
        self.read().issuing().ca_sha256()
    }

    /// Lets the next authority sign client certificates from now on, if its hash is `sha256`. Returns true on a change.
    pub fn use_issuer(&self, sha256: &str) -> bool {
        let mut state = self.write();
        let is_next = state.next.as_ref().is_some_and(|next| next.ca_sha256() == sha256);
        let is_new = is_next && !state.uses_next;
        state.uses_next |= is_next;
        is_new
    }

    /// Whether the key folder has this authority, trusted or retired.
    pub fn has_authority(&self, sha256: &str) -> bool {
        let state = self.read();
        state.retired.iter().any(|one| one == sha256) || state.trusted().any(|one| one.ca_sha256() == sha256)
    }

    /// The trusted authority that signed the certificate; `None` if no trusted authority did.
    pub fn issuer_of(&self, certificate: &[u8]) -> Option<String> {
        let state = self.read();
        let issuer = state.trusted().find(|one| one.has_signed(certificate))?;
        Some(issuer.ca_sha256())
    }

    /// The verifier of client certificates; it follows rotations.
    pub fn client_trust(&self) -> Arc<ClientTrust> {
        self.trust.clone()
    }

    /// Calls [`Authority::issue_server`] of the authority that clients pin.
    pub fn issue_server(
        &self,
        names: &[String],
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<ServerCredential, CertificateError> {
        let current = self.read().current.clone();
        current.issue_server(names, now, lifetime)
    }

    /// Calls [`Authority::issue_client`] of the authority that signs client certificates.
    pub fn issue_client(
        &self,
        key: &ClientKey,
        identity: &ClientIdentity,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<IssuedCertificate, CertificateError> {
        let issuing = self.read().issuing().clone();
        issuing.issue_client(key, identity, now, lifetime)
    }

    /// Takes over the state of the key folder. Returns one phrase for each new authority.
    pub(crate) fn replace(&self, found: Self) -> Result<Vec<String>, TlsError> {
        let mut found = found.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.write();
        let hash = |one: &Option<Arc<Authority>>| one.as_ref().map(|one| one.ca_sha256());
        let (current, next) = (found.current.ca_sha256(), hash(&found.next));
        let mut new = Vec::new();
        if state.current.ca_sha256() == current && hash(&state.next) == next {
            return Ok(new);
        }
        if state.current.ca_sha256() != current {
            new.push(format!("authority {current} (instead of the former authority)"));
        }
        if let Some(next) = next.filter(|next| hash(&state.next).as_ref() != Some(next)) {
            new.push(format!("next authority {next}"));
        }
        self.trust.replace(&found.certificates())?;
        found.uses_next = state.uses_next && hash(&state.next) == hash(&found.next);
        *state = found;
        Ok(new)
    }
}
