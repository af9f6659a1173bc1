//! TPM 2.0 (Trusted Platform Module): the commands by which a machine proves its identity, and the judgement of the answers.
//!
//! A TPM holds an endorsement key (EK) that never leaves it and that only decrypts. An attestation key (AK) of the same TPM
//! signs quotes. The control plane encrypts a secret to the EK and names the AK in it ([`credential`]): only the TPM that
//! holds both gives the secret back. A quote ([`quote`]) is the AK's signature over the values of PCRs (platform
//! configuration registers) and over data that the control plane chose.
//!
//! - [`client`] and [`device`] speak to a TPM. The agent uses them.
//! - [`credential`], [`quote`], [`log`], [`firmware`], [`measured`] and [`program`] need no TPM. The control plane uses them.
//!
//! [`medium`] is the way of machines without a TPM: a secret on a medium that only the machine's BMC brings, which answers for the
//! same session as a quote does.
//!
//! The structures are those of the TCG's "TPM 2.0 Library" specification, parts 2 and 3; the templates are those of the
//! "EK Credential Profile"; the event log is that of the "PC Client Platform Firmware Profile". Everything that is read is
//! hostile input: lengths are bounded, and no input panics.

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

/// SHA-256 of all parts, one after the other.
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

/// A digest as it is stored and shown.
#[must_use]
pub fn sha256_text(digest: &[u8; 32]) -> String {
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The data that a quote has to carry: a digest of the nonce and of the session that it proves. Every part has its length in
/// front, so that no two sessions have one digest.
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
