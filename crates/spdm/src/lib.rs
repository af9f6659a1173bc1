//! Signed measurements of a device's firmware, relayed by a BMC (Redfish `SPDMGetSignedMeasurements`).
//!
//! Written from DMTF DSP0274 (SPDM 1.1, 1.2 and 1.3). The BMC queries the device and is not trusted: only the bytes
//! signed by the device count. They contain the nonce of this reading, so an old statement is refused.

mod key;
mod transcript;

pub use key::{Curve, Key, keys};
pub use transcript::{Algorithms, Measurement, STATEMENT_MAX, Statement, StatementError, Version};

use ring::digest::{Algorithm, SHA256, SHA384, digest};

/// SHA-256 as 64 hex digits.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The proven content of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// SHA-256 of the signer's `SubjectPublicKeyInfo`, 64 hex digits.
    pub key_sha256: String,
    /// The measurements, ordered by index.
    pub measurements: Vec<Measurement>,
    /// The SPDM version.
    pub version: Version,
}

/// Checks that one of the keys signed the statement for this nonce.
///
/// # Errors
/// The reason why the statement proves nothing.
pub fn verify(statement: &[u8], nonce: &[u8; 32], keys: &[Key]) -> Result<Verified, StatementError> {
    let read = Statement::parse(statement)?;
    if read.nonce != *nonce {
        return Err(StatementError::OldNonce);
    }
    if keys.is_empty() {
        return Err(StatementError::NoKey);
    }
    let curve = match read.signature.len() {
        64 => Curve::P256,
        96 => Curve::P384,
        other => return Err(StatementError::SignatureLength(other)),
    };
    if let Some(algorithms) = read.algorithms {
        algorithms.check_curve(curve)?;
    }
    let message = to_be_signed(&read, curve);
    let signer = keys
        .iter()
        .find(|key| key.curve == curve && key.has_signed(&message, read.signature));
    let signer = signer.ok_or(StatementError::WrongSignature)?;
    Ok(Verified {
        key_sha256: signer.sha256.clone(),
        measurements: read.measurements,
        version: read.version,
    })
}

/// DSP0274 1.2, section "Signature generation": from 1.2 on, a 100-byte prefix with version and purpose precedes the
/// hash of the transcript. In 1.1 the transcript itself is signed.
fn to_be_signed(read: &Statement<'_>, curve: Curve) -> Vec<u8> {
    const CONTEXT: &str = "responder-measurements signing";
    const PREFIX: usize = 100;
    if !read.version.has_prefix() {
        return read.signed.to_vec();
    }
    let Version { major, minor } = read.version;
    let mut message = format!("dmtf-spdm-v{major}.{minor}.*").repeat(4).into_bytes();
    message.resize(PREFIX.saturating_sub(CONTEXT.len()), 0);
    message.extend_from_slice(CONTEXT.as_bytes());
    message.extend_from_slice(digest(hash_of(curve), read.signed).as_ref());
    message
}

fn hash_of(curve: Curve) -> &'static Algorithm {
    match curve {
        Curve::P256 => &SHA256,
        Curve::P384 => &SHA384,
    }
}
