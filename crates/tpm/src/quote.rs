//! A quote: the attestation key's signature over PCR values and over data chosen by the verifier.

use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

use crate::pcr::{self, Selection, Values};
use crate::public::{ALG_ECDSA, ALG_SHA256, Public, padded};
use crate::wire::{Malformed, Reader, Writer};

const MAGIC: u32 = 0xff54_4347;
const TYPE_QUOTE: u16 = 0x8018;
/// Maximum length of a quote by these keys, in bytes.
pub const QUOTE_MAX: usize = 512;
/// Maximum length of a signature by these keys, in bytes.
pub const SIGNATURE_MAX: usize = 128;

/// The content of a quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    /// The data chosen by the verifier.
    pub extra: Vec<u8>,
    /// Time that the TPM has been powered since it was cleared, in milliseconds.
    pub clock: u64,
    /// Resets of the TPM since it was cleared. A reset of the machine resets its TPM.
    pub resets: u32,
    /// Restarts, such as wakes from sleep, since the last reset.
    pub restarts: u32,
    /// The quoted registers.
    pub selection: Selection,
    /// The digest of the registers' values.
    pub digest: [u8; 32],
}

/// Why a quote proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuoteError {
    /// The bytes are not a quote.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The attestation key did not sign the quote.
    #[error("the quote is not signed by the attestation key")]
    Signature,
    /// The quote is about other values.
    #[error("the quote does not match the PCR values that came with it")]
    Values,
}

impl Quote {
    /// Reads a TPMS_ATTEST of the type quote.
    ///
    /// # Errors
    /// The bytes are any other structure.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u32("quote's magic")? != MAGIC {
            return Err(Malformed("quote's magic"));
        }
        reader.must_be(TYPE_QUOTE, "quote's type")?;
        reader.sized("quote's signer")?;
        let extra = reader.sized("quote's data")?.to_vec();
        let clock = reader.u64("quote's clock")?;
        let resets = reader.u32("quote's count of resets")?;
        let restarts = reader.u32("quote's count of restarts")?;
        reader.u8("quote's clock")?;
        reader.u64("quote's firmware version")?;
        let selection = Selection::read(&mut reader)?;
        let digest = reader.sized("quote's digest")?;
        reader.end("quote")?;
        Ok(Self {
            extra,
            clock,
            resets,
            restarts,
            selection,
            digest: digest.try_into().map_err(|_| Malformed("quote's digest"))?,
        })
    }

    /// Writes the quote as a TPM does, for simulated TPMs.
    #[must_use]
    pub fn write(&self, signer: &[u8]) -> Vec<u8> {
        let writer = Writer::new()
            .u32(MAGIC)
            .u16(TYPE_QUOTE)
            .sized(signer)
            .sized(&self.extra);
        let writer = writer.u64(self.clock).u32(self.resets).u32(self.restarts).u8(1).u64(1);
        writer.bytes(&self.selection.write()).sized(&self.digest).done()
    }
}

/// Writes a TPMT_SIGNATURE of ECDSA with SHA-256 as a TPM does, for simulated TPMs.
#[must_use]
pub fn write_signature(r: &[u8], s: &[u8]) -> Vec<u8> {
    Writer::new().u16(ALG_ECDSA).u16(ALG_SHA256).sized(r).sized(s).done()
}

fn read_signature(bytes: &[u8]) -> Result<[u8; 64], Malformed> {
    const WHAT: &str = "quote's signature";
    let mut reader = Reader::new(bytes);
    reader.must_be(ALG_ECDSA, WHAT)?;
    reader.must_be(ALG_SHA256, WHAT)?;
    let mut fixed = [0; 64];
    for half in fixed.chunks_mut(32) {
        half.copy_from_slice(&padded(reader.sized(WHAT)?).ok_or(Malformed(WHAT))?);
    }
    reader.end(WHAT)?;
    Ok(fixed)
}

/// Checks that the attestation key signed the quote and that the quote is about exactly these values. The caller must
/// compare [`Quote::extra`].
///
/// # Errors
/// The quote proves nothing.
pub fn verify(ak: &Public, quote: &[u8], signature: &[u8], values: &Values) -> Result<Quote, QuoteError> {
    let parsed = Quote::parse(quote)?;
    let signature = read_signature(signature)?;
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, ak.point.sec1())
        .verify(quote, &signature)
        .map_err(|_| QuoteError::Signature)?;
    if parsed.selection != pcr::selection(values) || parsed.digest != pcr::digest(values) {
        return Err(QuoteError::Values);
    }
    Ok(parsed)
}
