//! The identity of the holder of a client certificate.
//!
//! The identity is one URI in the subject alternative name:
//!
//! - `rackwright://member/NAME/EPOCH`: a person or a program that calls the API. The store, not the certificate, holds the
//!   member's permissions and current epoch. A certificate with another epoch is no longer valid.
//!   `rackwright://member/NAME` is the older form and means epoch 0.
//! - `rackwright://agent/NODE/GENERATION/BOOT`: the agent of one node, with the claim generation and the boot (the id of
//!   the power-on) in which it registered.
//! - `rackwright://agent/unknown.MAC/0`: the agent of a machine that belongs to no node and has no expected boot.
//!
//! The subject repeats the identity for people (`CN` = the name, `OU` = `member` or `agent`), but is never trusted.

use std::fmt;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::rng::{Rng, RngError, random};

/// Longest name in characters: the upper bound of a common name (RFC 5280, `ub-common-name`).
const NAME_MAX: usize = 64;
const SCHEME: &str = "rackwright://";

/// The holder of a client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientIdentity {
    /// The member's name, or the node's id without `nodes/`.
    pub common_name: String,
    /// Member or agent.
    pub kind: ClientKind,
}

/// The kinds of holders of client certificates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientKind {
    /// A person or a program that calls the API.
    Member {
        /// The member's epoch when the certificate was issued.
        epoch: u64,
    },
    /// The agent in the ramdisk of a node.
    Agent {
        /// The node's claim generation when the certificate was issued.
        claim_generation: u64,
        /// The boot in which the agent registered; empty for a machine that belongs to no node.
        boot: String,
    },
}

/// Why a certificate or a name gives no identity. Permanent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentifyError {
    /// The input is not a certificate.
    #[error("the client certificate cannot be parsed: {0}")]
    Malformed(String),
    /// The certificate was not issued for a client.
    #[error("the certificate was not issued to a client ({0}); use one that Rackwright issued to a member or an agent")]
    NotAClient(&'static str),
    /// The certificate carries no identity, or several.
    #[error("the client certificate has {0} Rackwright identities, but must have exactly one")]
    Ambiguous(usize),
    /// The URI does not have one of the known forms.
    #[error("the client certificate's identity {0:?} has an unknown form; issue a new certificate")]
    UnknownForm(String),
    /// The name contains characters that a certificate must not carry, or is too long.
    #[error(
        "the name {0:?} is not allowed in a certificate: use 1 to 64 characters of a-z A-Z 0-9 . _ @ - and begin with \
         a letter or digit"
    )]
    Name(String),
}

impl ClientIdentity {
    /// A member of the site. `epoch` is the member's current epoch in the store.
    pub fn member(name: &str, epoch: u64) -> Result<Self, IdentifyError> {
        Ok(Self {
            common_name: check_name(name)?,
            kind: ClientKind::Member { epoch },
        })
    }

    /// The agent of a machine with no expected boot, in a claim generation.
    pub fn agent(node: &str, claim_generation: u64) -> Result<Self, IdentifyError> {
        let boot = String::new();
        Ok(Self {
            common_name: check_name(node)?,
            kind: ClientKind::Agent { claim_generation, boot },
        })
    }

    /// The agent of `node` (the node's id without `nodes/`) in a claim generation and one boot.
    pub fn agent_of_boot(node: &str, claim_generation: u64, boot: &str) -> Result<Self, IdentifyError> {
        let boot = check_name(boot)?;
        Ok(Self {
            common_name: check_name(node)?,
            kind: ClientKind::Agent { claim_generation, boot },
        })
    }

    /// The URI in the certificate.
    pub fn uri(&self) -> String {
        match &self.kind {
            ClientKind::Member { epoch } => format!("{SCHEME}member/{}/{epoch}", self.common_name),
            ClientKind::Agent { claim_generation, boot } if boot.is_empty() => {
                format!("{SCHEME}agent/{}/{claim_generation}", self.common_name)
            }
            ClientKind::Agent { claim_generation, boot } => {
                format!("{SCHEME}agent/{}/{claim_generation}/{boot}", self.common_name)
            }
        }
    }

    /// `member` or `agent`.
    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            ClientKind::Member { .. } => "member",
            ClientKind::Agent { .. } => "agent",
        }
    }

    /// Checks the names again, because the fields are public.
    pub(crate) fn validate(&self) -> Result<(), IdentifyError> {
        check_name(&self.common_name)?;
        match &self.kind {
            ClientKind::Agent { boot, .. } if !boot.is_empty() => check_name(boot).map(|_| ()),
            ClientKind::Agent { .. } | ClientKind::Member { .. } => Ok(()),
        }
    }

    pub fn from_uri(uri: &str) -> Result<Self, IdentifyError> {
        let unknown = || IdentifyError::UnknownForm(uri.chars().take(200).collect());
        let path = uri.strip_prefix(SCHEME).ok_or_else(unknown)?;
        let parts: Vec<&str> = path.split('/').collect();
        match parts.as_slice() {
            ["member", name] => Self::member(name, 0),
            ["member", name, epoch] => {
                let identity = Self::member(name, epoch.parse().map_err(|_| unknown())?)?;
                if identity.uri() == uri {
                    Ok(identity)
                } else {
                    Err(unknown())
                }
            }
            ["agent", node, generation, boot @ ..] if boot.len() < 2 => {
                let claim_generation: u64 = generation.parse().map_err(|_| unknown())?;
                let identity = match boot.first() {
                    Some(boot) => Self::agent_of_boot(node, claim_generation, boot)?,
                    None => Self::agent(node, claim_generation)?,
                };
                // `parse` also accepts "+5" and "05"; only the canonical form is valid.
                if identity.uri() == uri {
                    Ok(identity)
                } else {
                    Err(unknown())
                }
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind_name(), self.common_name)
    }
}

/// Returns the identity in a peer's certificate (DER).
///
/// The certificate must come from a completed handshake under [`crate::server_config`]. That handshake verified its
/// signature and times; this function does not check them again.
pub fn identify(peer_certificate: &[u8]) -> Result<ClientIdentity, IdentifyError> {
    let (rest, certificate) =
        X509Certificate::from_der(peer_certificate).map_err(|e| IdentifyError::Malformed(e.to_string()))?;
    let malformed = |e: x509_parser::error::X509Error| IdentifyError::Malformed(e.to_string());
    if !rest.is_empty() {
        return Err(IdentifyError::Malformed("extra bytes follow the certificate".into()));
    }
    if certificate.is_ca() {
        return Err(IdentifyError::NotAClient("it is a CA"));
    }
    let usage = certificate.extended_key_usage().map_err(malformed)?;
    if !usage.is_some_and(|u| u.value.client_auth && !u.value.any) {
        return Err(IdentifyError::NotAClient(
            "its extended key usage is not client authentication",
        ));
    }
    let names = certificate.subject_alternative_name().map_err(malformed)?;
    let uris: Vec<&str> = names
        .iter()
        .flat_map(|n| &n.value.general_names)
        .filter_map(|n| match n {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        })
        .collect();
    match uris.as_slice() {
        [uri] => ClientIdentity::from_uri(uri),
        other => Err(IdentifyError::Ambiguous(other.len())),
    }
}

/// Returns a new epoch of a member: 63 random bits, never 0. A counter would repeat an epoch after the restore of an older
/// copy of the database.
pub fn new_epoch(rng: &dyn Rng) -> Result<u64, RngError> {
    let bits = u64::from_le_bytes(random::<8>(rng)?) >> 1;
    Ok(bits.max(1))
}

fn check_name(name: &str) -> Result<String, IdentifyError> {
    let fits = (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._@-".contains(&b))
        && name.as_bytes()[0].is_ascii_alphanumeric();
    if fits {
        Ok(name.into())
    } else {
        Err(IdentifyError::Name(name.chars().take(NAME_MAX).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uri_and_back() {
        for identity in [
            ClientIdentity::member("alice@acme.example", 0).unwrap(),
            ClientIdentity::member("alice@acme.example", u64::MAX).unwrap(),
            ClientIdentity::agent("gpu-001", 0).unwrap(),
            ClientIdentity::agent("gpu-001", u64::MAX).unwrap(),
            ClientIdentity::agent_of_boot("gpu-001", 7, "01994d5e-7c1f-7abc-8def-0123456789ab").unwrap(),
        ] {
            assert_eq!(ClientIdentity::from_uri(&identity.uri()).unwrap(), identity);
        }
    }

    #[test]
    fn a_certificate_without_an_epoch_is_of_epoch_0() {
        let old = ClientIdentity::from_uri("rackwright://member/alice").unwrap();
        assert_eq!(old, ClientIdentity::member("alice", 0).unwrap());
    }

    #[test]
    fn malformed_uris_are_refused() {
        for uri in [
            "",
            "https://member/alice",
            "rackwright://member/",
            "rackwright://member/a/b",
            "rackwright://member/a/",
            "rackwright://member/a/05",
            "rackwright://member/a/+5",
            "rackwright://member/a/18446744073709551616",
            "rackwright://member/a/1/",
            "rackwright://member/a/1/2",
            "rackwright://admin/alice",
            "rackwright://agent/gpu-001",
            "rackwright://agent/gpu-001/05",
            "rackwright://agent/gpu-001/+5",
            "rackwright://agent/gpu-001/-1",
            "rackwright://agent/gpu-001/5/",
            "rackwright://agent/gpu-001/5/a b",
            "rackwright://agent/gpu-001/5/-a",
            "rackwright://agent/gpu-001/05/boot",
            "rackwright://agent/gpu-001/5/boot/more",
            "rackwright://agent/gpu-001/18446744073709551616",
            "rackwright://agent/../5",
        ] {
            assert!(ClientIdentity::from_uri(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn names_that_could_pass_for_another_are_refused() {
        for name in ["", "a/b", "a b", "a\n", "a\0", "ä", ".a", "-a", &"a".repeat(65)] {
            assert!(
                matches!(ClientIdentity::member(name, 1), Err(IdentifyError::Name(_))),
                "{name:?}"
            );
        }
        assert!(ClientIdentity::member(&"a".repeat(64), 1).is_ok());
    }
}
