//! Identities and secrets: the site's certificate authority, sealing of secrets at rest, one-time tokens, signed erase
//! certificates, SSH keys, and the TLS settings built from them.
//!
//! Synchronous and without a clock: the time is an argument (`SystemTime`), randomness is an [`Rng`]. Two things cannot be
//! injected because `ring` takes randomness from the operating system only: the P-256 keys that it generates and the nonces
//! in its ECDSA signatures.
//!
//! This crate never signs a CA certificate for others, uses only the public key of a certificate request, refuses a key
//! file that other users can read, and never creates a key that is missing from an existing set.

mod audit;
mod authorities;
mod authority;
mod authority_files;
mod client;
mod erase;
mod key_backup;
mod key_files;
mod peer_tls;
mod rng;
mod rotation;
mod seal;
mod signer;
mod ssh;
mod tls;
mod token;

pub use audit::{
    AUDIT_RECORD_MAX, AuditChainError, AuditEntry, AuditFault, AuditHead, AuditRecord, AuditRecordError, AuditVerifier,
    is_signed,
};
pub use authorities::Authorities;
pub use authority::{Authority, CertificateError, ClientKey, IssuedCertificate, ServerCredential, Validity};
pub use client::{ClientIdentity, ClientKind, IdentifyError, identify, new_epoch};
pub use erase::{ChainLink, EVIDENCE_MAX, EraseRecord, PayloadError, chain_hash, chain_head, payload_hash};
pub use key_backup::LockedKeys;
pub use key_files::{KeyFileError, KeyFiles};
pub use peer_tls::{PEER_PROTOCOL, peer_client_config, peer_server_config};
pub use rng::{Rng, RngError, SystemRng};
pub use rotation::OldSealingKeys;
pub use seal::{SealError, Sealer, SealingKey, seal_header, sealed_under};
pub use signer::{CertificateSigner, SignatureError, SigningKey};
pub use ssh::{SshKeyError, SshKeyPair};
pub use tls::{ClientAuth, ClientTrust, ServerCertificate, TlsError, client_config, server_config};
pub use token::{Token, TokenError, TokenHash};
