//! The machine's TPM: its keys for the hello, and the answer to the control plane's challenge.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rackwright_api::v1::{Attestation, Challenge, TpmKeys};
use rackwright_tpm::binding;
use rackwright_tpm::client::{Key, Tpm, TpmError};
use rackwright_tpm::credential::Credential;
use rackwright_tpm::device::Device;
use rackwright_tpm::log::LOG_MAX;
use rackwright_tpm::pcr::ASKED;
use rackwright_tpm::public::Kind;

use crate::root::SysRoot;

/// Whatever proves which machine this is.
pub trait Attester: Send + Sync {
    /// The public parts of the TPM's keys.
    fn keys(&self) -> TpmKeys;

    /// The answer to a challenge, for the session of the TLS key with that SHA-256. It may take seconds.
    fn answer(&self, challenge: &Challenge, key_sha256: &str) -> Attestation;
}

/// The data that a quote for a challenge has to carry.
#[must_use]
pub fn quote_data(challenge: &Challenge, key_sha256: &str) -> [u8; 32] {
    let Challenge {
        nonce,
        node,
        claim_generation,
        boot,
        ..
    } = challenge;
    binding(nonce, node, *claim_generation, boot, key_sha256)
}

/// The kernel's TPM. Its keys stay loaded as long as this lives.
pub struct KernelTpm {
    tpm: Mutex<Tpm>,
    ek: Key,
    ak: Key,
    certificate: Vec<u8>,
    root: SysRoot,
}

impl KernelTpm {
    /// Opens the TPM and makes its keys; none: there is no TPM 2.0.
    ///
    /// # Errors
    /// It cannot be used, in words for an operator.
    pub fn open(root: &SysRoot) -> Result<Option<Arc<dyn Attester>>, String> {
        let device = match Device::open(&root.dev) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| format!("the TPM's device cannot be opened: {error}"))?,
        };
        let opened = Self::with(Tpm::new(Box::new(device)), root).map_err(|error| error.to_string())?;
        Ok(Some(Arc::new(opened)))
    }

    fn with(mut tpm: Tpm, root: &SysRoot) -> Result<Self, TpmError> {
        let (ek, ak) = (tpm.key(Kind::Endorsement)?, tpm.key(Kind::Attestation)?);
        // The identity does not depend on it.
        let certificate = tpm.certificate().unwrap_or_else(|error| {
            tracing::warn!("the TPM's certificate cannot be read: {error}");
            None
        });
        Ok(Self {
            tpm: Mutex::new(tpm),
            ek,
            ak,
            certificate: certificate.unwrap_or_default(),
            root: root.clone(),
        })
    }

    fn proven(&self, challenge: &Challenge, key_sha256: &str) -> Result<Attestation, TpmError> {
        let credential = Credential {
            blob: challenge.credential_blob.clone(),
            seed: challenge.credential_seed.clone(),
        };
        let mut tpm = self.tpm.lock().unwrap_or_else(PoisonError::into_inner);
        let secret = tpm.activate(&self.ek, &self.ak, &credential)?;
        let quoted = tpm.quote(&self.ak, &quote_data(challenge, key_sha256), ASKED)?;
        let pcrs = quoted.values.iter();
        Ok(Attestation {
            secret,
            quote: quoted.quote,
            signature: quoted.signature,
            pcrs: pcrs.map(|(index, value)| ((*index).into(), value.to_vec())).collect(),
            event_log: self.event_log(),
            fault: String::new(),
        })
    }

    /// Empty where the firmware left none.
    fn event_log(&self) -> Vec<u8> {
        let log = std::fs::read(self.root.event_log()).unwrap_or_default();
        if log.len() > LOG_MAX {
            tracing::warn!(
                bytes = log.len(),
                "the firmware's event log is too long and is left out"
            );
            return Vec::new();
        }
        log
    }
}

impl Attester for KernelTpm {
    fn keys(&self) -> TpmKeys {
        TpmKeys {
            endorsement_public: self.ek.public.bytes().to_vec(),
            endorsement_certificate: self.certificate.clone(),
            attestation_public: self.ak.public.bytes().to_vec(),
        }
    }

    fn answer(&self, challenge: &Challenge, key_sha256: &str) -> Attestation {
        self.proven(challenge, key_sha256).unwrap_or_else(|error| {
            tracing::error!("the challenge cannot be answered: {error}");
            Attestation {
                fault: error.to_string(),
                ..Attestation::default()
            }
        })
    }
}
