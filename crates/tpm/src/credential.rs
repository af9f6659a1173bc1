//! A secret that one TPM can read, only while that TPM holds a certain attestation key. This is TPM2_MakeCredential in
//! software.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt as _, KeyInit as _};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::hmac;
use ring::rand::SecureRandom;

use crate::public::{Kind, Point, Public};
use crate::sha256;
use crate::wire::{Malformed, Reader, Writer};

/// Length of a secret, in bytes.
pub const SECRET: usize = 32;
const BLOCK: usize = 16;

/// The input of TPM2_ActivateCredential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// TPMS_ID_OBJECT: the integrity value and the encrypted secret.
    pub blob: Vec<u8>,
    /// TPMS_ECC_POINT: the ephemeral key.
    pub seed: Vec<u8>,
}

/// Why a credential cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The point of the endorsement key is not on the curve P-256.
    #[error("the endorsement key is not a P-256 key")]
    NotOnCurve,
    /// The system's random number generator failed.
    #[error("the system's random number generator failed")]
    NoRandom,
}

/// Encrypts `secret` to the endorsement key, bound to the attestation key with the name `ak_name`.
///
/// # Errors
/// The endorsement key is not a valid P-256 key, or the system has no random numbers.
pub fn make(
    ek: &Public,
    ak_name: &[u8],
    secret: &[u8; SECRET],
    random: &dyn SecureRandom,
) -> Result<Credential, CredentialError> {
    debug_assert_eq!(ek.kind, Kind::Endorsement);
    let none = |_| CredentialError::NoRandom;
    let ephemeral = EphemeralPrivateKey::generate(&ECDH_P256, random).map_err(none)?;
    let public = ephemeral.compute_public_key().map_err(none)?;
    let point = Point::of_sec1(public.as_ref()).ok_or(CredentialError::NoRandom)?;
    let peer = UnparsedPublicKey::new(&ECDH_P256, ek.point.sec1());
    let keys = agree_ephemeral(ephemeral, &peer, |z| Keys::new(z, &point, &ek.point, ak_name));
    let keys = keys.map_err(|_| CredentialError::NotOnCurve)?;
    let mut sealed = Writer::new().sized(secret).done();
    keys.encrypt(&mut sealed);
    let integrity = keys.integrity(&sealed, ak_name);
    Ok(Credential {
        blob: Writer::new().sized(&integrity).bytes(&sealed).done(),
        seed: point.write(Writer::new()).done(),
    })
}

/// The keys of one credential.
pub struct Keys {
    storage: [u8; 16],
    integrity: hmac::Key,
}

impl Keys {
    /// Derives the keys from `z` (the x-coordinate that ECDH returns), the ephemeral key, the endorsement key and the
    /// name of the attestation key.
    #[must_use]
    pub fn new(z: &[u8], ephemeral: &Point, ek: &Point, ak_name: &[u8]) -> Self {
        // KDFe: one round gives the required 256 bits.
        let seed = sha256(&[&1_u32.to_be_bytes(), z, b"IDENTITY\0", &ephemeral.x, &ek.x]);
        let mut storage = [0; 16];
        storage.copy_from_slice(&kdfa(&seed, b"STORAGE\0", ak_name, 128)[..16]);
        let integrity = kdfa(&seed, b"INTEGRITY\0", &[], 256);
        Self {
            storage,
            integrity: hmac::Key::new(hmac::HMAC_SHA256, &integrity),
        }
    }

    /// AES-128 in CFB mode with an IV of zeros.
    fn encrypt(&self, bytes: &mut [u8]) {
        self.crypt(bytes, true);
    }

    fn crypt(&self, bytes: &mut [u8], encrypts: bool) {
        let cipher = Aes128::new(&self.storage.into());
        let mut feedback = [0; BLOCK];
        for chunk in bytes.chunks_mut(BLOCK) {
            let mut stream = feedback.into();
            cipher.encrypt_block(&mut stream);
            if !encrypts {
                feedback[..chunk.len()].copy_from_slice(chunk);
            }
            for (byte, key) in chunk.iter_mut().zip(stream.iter()) {
                *byte ^= key;
            }
            if encrypts {
                feedback[..chunk.len()].copy_from_slice(chunk);
            }
        }
    }

    fn integrity(&self, sealed: &[u8], ak_name: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.integrity);
        context.update(sealed);
        context.update(ak_name);
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }

    /// Opens a credential as a TPM does. Simulated TPMs call this.
    ///
    /// # Errors
    /// The credential was made for another TPM or for another attestation key.
    pub fn open(&self, blob: &[u8], ak_name: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut reader = Reader::new(blob);
        let integrity = reader.sized("credential")?;
        let mut sealed = reader.rest().to_vec();
        if self.integrity(&sealed, ak_name) != integrity {
            return Err(Malformed("credential"));
        }
        self.crypt(&mut sealed, false);
        let mut opened = Reader::new(&sealed);
        let secret = opened.sized("credential")?.to_vec();
        opened.end("credential")?;
        Ok(secret)
    }
}

/// Reads the ephemeral key of a credential.
///
/// # Errors
/// The bytes are not a point.
pub fn ephemeral(seed: &[u8]) -> Result<Point, Malformed> {
    let mut reader = Reader::new(seed);
    let point = Point::read(&mut reader, "ephemeral key of the credential")?;
    reader.end("ephemeral key of the credential")?;
    Ok(point)
}

/// KDFa with SHA-256, for at most 256 bits: one round.
fn kdfa(key: &[u8], label: &[u8], context: &[u8], bits: u32) -> [u8; 32] {
    let mut hmac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in [&1_u32.to_be_bytes(), label, context, &bits.to_be_bytes()] {
        hmac.update(part);
    }
    let mut derived = [0; 32];
    derived.copy_from_slice(hmac.sign().as_ref());
    derived
}
