//! TPM 2.0 (Trusted Platform Module): the commands that prove a machine's identity, and the checks of their answers.
//!
//! A TPM holds an endorsement key (EK) that never leaves the TPM and only decrypts. An attestation key (AK) of the same
//! TPM signs quotes. The control plane encrypts a secret to the EK and includes the name of the AK ([`credential`]).
//! Only the TPM that holds both keys can return the secret. A quote ([`quote`]) is the AK's signature over the values
//! of PCRs (platform configuration registers) and over data chosen by the control plane.
//!
//! - [`client`] and [`device`] talk to a TPM. The agent uses them.
//! - [`credential`], [`quote`], [`log`], [`firmware`], [`measured`] and [`program`] need no TPM. The control plane uses
//!   them.
//!
//! [`medium`] serves machines without a TPM: only the machine's BMC can insert the medium with the secret, and the
//! proof is bound to the same session as a quote.
//!
//! The structures come from the TCG's "TPM 2.0 Library" specification, parts 2 and 3, the templates from the "EK
//! Credential Profile", and the event log from the "PC Client Platform Firmware Profile". All input is hostile: lengths
//! are bounded, and no input causes a panic.

pub mod client;
pub mod credential;
pub mod device;
pub mod firmware;
pub mod log;
pub mod measured;
pub mod medium;
pub mod pcr;
pub mod program;
pub mod public;
pub mod quote;
pub mod wire;

/// SHA-256 of the concatenated parts.
#[must_use]
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for part in parts {
        context.update(part);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// A digest as stored and displayed: `sha256:` and lower-case hexadecimal digits.
#[must_use]
pub fn sha256_text(digest: &[u8; 32]) -> String {
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The data that a quote must carry: a digest of the nonce and of the proven session. A length precedes every part, so
/// two different sessions never hash the same bytes.
#[must_use]
pub fn binding(nonce: &[u8], node: &str, generation: u64, boot: &str, key_sha256: &str) -> [u8; 32] {
    let mut bytes = Vec::new();
    let generation = generation.to_be_bytes();
    let parts = [
        b"rackwright-attestation-v1".as_slice(),
        nonce,
        node.as_bytes(),
        &generation,
        boot.as_bytes(),
        key_sha256.as_bytes(),
    ];
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    sha256(&[&bytes])
}
