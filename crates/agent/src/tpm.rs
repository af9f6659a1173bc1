//! The machine's TPM: the public keys for the hello (the agent's first message), and the answers to the control plane's
//! challenges.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rackwright_api::v1::{Attestation, Challenge, TpmKeys};
use rackwright_tpm::binding;
use rackwright_tpm::client::{Key, Quoted, Tpm, TpmError};
use rackwright_tpm::credential::Credential;
use rackwright_tpm::device::Device;
use rackwright_tpm::log::LOG_MAX;
use rackwright_tpm::pcr::QUOTED;
use rackwright_tpm::public::{Kind, Public};

use crate::root::SysRoot;

/// Proves the identity of the machine.
pub trait Attester: Send + Sync {
    /// The public parts of the TPM's keys.
    fn keys(&self) -> TpmKeys;

    /// Answers a challenge. The quote of the answer is bound to `key_sha256`, the SHA-256 of the session's TLS key. The call
    /// may take seconds.
    fn answer(&self, challenge: &Challenge, key_sha256: &str) -> Attestation;
}

/// The data that the quote of an answer must contain. The data binds the quote to the session with this TLS key.
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

/// The kernel's TPM. Each answer creates the keys again, because clearing the TPM removes loaded keys.
pub struct KernelTpm {
    tpm: Mutex<Tpm>,
    ek: Public,
    ak: Public,
    /// The manufacturer's certificate of the endorsement key; empty if there is none or it cannot be read.
    ek_certificate: Vec<u8>,
    root: SysRoot,
}

/// Opens the kernel's TPM; `None` without a TPM 2.0.
fn open(root: &SysRoot) -> Result<Option<Tpm>, String> {
    match Device::open(&root.dev) {
        Ok(device) => Ok(Some(Tpm::new(Box::new(device)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("the TPM's device cannot be opened: {error}")),
    }
}

/// Removes everything that installed systems have stored in the machine's TPM. Returns false without a TPM 2.0.
///
/// # Errors
/// The reason why an existing TPM was not cleared, as a text for the operator.
pub fn clear(root: &SysRoot) -> Result<bool, String> {
    let Some(mut tpm) = open(root)? else { return Ok(false) };
    tpm.clear().map_err(|error| error.to_string())?;
    Ok(true)
}

/// Removes a key that is no longer needed. A failure is only logged: the results of the key stay valid, and the error of an
/// earlier command must stay visible. If the TPM's memory is full, the creation of the next key fails with its own error.
fn remove(tpm: &mut Tpm, key: &Key) {
    if let Err(error) = tpm.remove(key) {
        tracing::warn!("a key stays in the TPM's memory until the next start: {error}");
    }
}

impl KernelTpm {
    /// Opens the TPM and creates its keys; `None` without a TPM 2.0.
    ///
    /// # Errors
    /// The reason why the TPM cannot be used, as a text for the operator.
    pub fn open(root: &SysRoot) -> Result<Option<Arc<dyn Attester>>, String> {
        let Some(tpm) = open(root)? else { return Ok(None) };
        let opened = Self::from_tpm(tpm, root).map_err(|error| error.to_string())?;
        Ok(Some(Arc::new(opened)))
    }

    fn from_tpm(mut tpm: Tpm, root: &SysRoot) -> Result<Self, TpmError> {
        let mut public = |kind| {
            let key = tpm.key(kind)?;
            remove(&mut tpm, &key);
            Ok::<_, TpmError>(key.public)
        };
        let (ek, ak) = (public(Kind::Endorsement)?, public(Kind::Attestation)?);
        // The machine's identity does not depend on the certificate, so a failure is only logged.
        let ek_certificate = tpm.certificate().unwrap_or_else(|error| {
            tracing::warn!("the TPM's certificate cannot be read: {error}");
            None
        });
        Ok(Self {
            tpm: Mutex::new(tpm),
            ek,
            ak,
            ek_certificate: ek_certificate.unwrap_or_default(),
            root: root.clone(),
        })
    }

    fn try_answer(&self, challenge: &Challenge, key_sha256: &str) -> Result<Attestation, TpmError> {
        let credential = Credential {
            blob: challenge.credential_blob.clone(),
            seed: challenge.credential_seed.clone(),
        };
        let mut tpm = self.tpm.lock().unwrap_or_else(PoisonError::into_inner);
        let ek = tpm.key(Kind::Endorsement)?;
        let proof = Self::activate_and_quote(&mut tpm, &ek, &credential, &quote_data(challenge, key_sha256));
        remove(&mut tpm, &ek);
        let (secret, quoted) = proof?;
        let pcrs = quoted.values.iter();
        Ok(Attestation {
            secret,
            quote: quoted.quote,
            signature: quoted.signature,
            pcrs: pcrs.map(|(index, value)| ((*index).into(), value.to_vec())).collect(),
            event_log: self.event_log(),
            ..Attestation::default()
        })
    }

    /// Opens the credential and creates a quote with `data`. Returns the credential's secret and the quote.
    fn activate_and_quote(
        tpm: &mut Tpm,
        ek: &Key,
        credential: &Credential,
        data: &[u8],
    ) -> Result<(Vec<u8>, Quoted), TpmError> {
        let ak = tpm.key(Kind::Attestation)?;
        let secret = tpm.activate(ek, &ak, credential);
        let proof = secret.and_then(|secret| Ok((secret, tpm.quote(&ak, data, QUOTED)?)));
        remove(tpm, &ak);
        proof
    }

    /// The firmware's event log; empty if the log cannot be read or is longer than [`LOG_MAX`].
    fn event_log(&self) -> Vec<u8> {
        let log = std::fs::read(self.root.event_log()).unwrap_or_default();
        if log.len() > LOG_MAX {
            tracing::warn!(
                bytes = log.len(),
                "the firmware's event log is too long and is not sent"
            );
            return Vec::new();
        }
        log
    }
}

impl Attester for KernelTpm {
    fn keys(&self) -> TpmKeys {
        TpmKeys {
            endorsement_public: self.ek.bytes().to_vec(),
            endorsement_certificate: self.ek_certificate.clone(),
            attestation_public: self.ak.bytes().to_vec(),
        }
    }

    fn answer(&self, challenge: &Challenge, key_sha256: &str) -> Attestation {
        self.try_answer(challenge, key_sha256).unwrap_or_else(|error| {
            tracing::error!("the challenge cannot be answered: {error}");
            Attestation {
                fault: error.to_string(),
                ..Attestation::default()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use rackwright_tpm::credential;
    use rackwright_tpm::device::{Socket, Transport};
    use rackwright_tpm::pcr::Values;
    use rackwright_tpm::quote::verify;
    use ring::rand::SystemRandom;

    use super::*;

    #[test]
    fn a_machine_without_a_tpm_has_no_attester_and_a_broken_tpm_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::below(dir.path());
        assert!(matches!(KernelTpm::open(&root), Ok(None)));
        std::fs::create_dir_all(root.dev.join("tpmrm0")).unwrap();
        assert!(KernelTpm::open(&root).is_err_and(|why| why.contains("cannot be opened")));
    }

    /// Starts swtpm, a TPM in software.
    fn swtpm(dir: &Path) -> (Child, Socket) {
        let at = |name: &str| dir.join(name).display().to_string();
        let swtpm = Command::new("swtpm")
            .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
            .args(["--tpmstate", &format!("dir={}", at(""))])
            .args(["--server", &format!("type=unixio,path={}", at("tpm"))])
            .args(["--ctrl", &format!("type=unixio,path={}", at("ctrl"))])
            .stdin(Stdio::null())
            .spawn()
            .expect("swtpm is installed (make deps)");
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match Socket::connect(&dir.join("tpm")) {
                Ok(socket) => return (swtpm, socket),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::yield_now();
        }
    }

    /// The public parts of a TPM's endorsement key and attestation key.
    fn publics(tpm: &KernelTpm) -> (Public, Public) {
        let keys = tpm.keys();
        let key = |kind, bytes: &[u8]| Public::parse(kind, bytes).unwrap();
        (
            key(Kind::Endorsement, &keys.endorsement_public),
            key(Kind::Attestation, &keys.attestation_public),
        )
    }

    /// A challenge for these keys. Each of the 32 bytes of its secret is 3.
    fn challenge(ek: &Public, ak: &Public) -> Challenge {
        let made = credential::make(ek, &ak.name(), &[3; 32], &SystemRandom::new()).unwrap();
        Challenge {
            nonce: vec![1; 32],
            credential_blob: made.blob,
            credential_seed: made.seed,
            node: "n1".into(),
            claim_generation: 2,
            boot: "b".into(),
            bmc_secret: false,
        }
    }

    #[test]
    fn the_tpm_answers_a_challenge_and_the_quote_is_bound_to_the_tls_key() {
        let dir = tempfile::tempdir().unwrap();
        let (mut swtpm, socket) = swtpm(dir.path());
        let tpm = KernelTpm::from_tpm(Tpm::new(Box::new(socket)), &SysRoot::below(dir.path())).unwrap();
        let (ek, ak) = publics(&tpm);
        let mut challenge = challenge(&ek, &ak);
        let answer = tpm.answer(&challenge, "key");
        assert_eq!((answer.secret, answer.fault), (vec![3; 32], String::new()));
        let value = |(index, value): (&u32, &Vec<u8>)| (*index as u8, value.as_slice().try_into().unwrap());
        let values: Values = answer.pcrs.iter().map(value).collect();
        let quote = verify(&ak, &answer.quote, &answer.signature, &values).unwrap();
        assert_eq!(quote.extra, quote_data(&challenge, "key"));
        assert_ne!(quote.extra, quote_data(&challenge, "another key"));
        challenge.credential_blob[10] ^= 1;
        assert!(
            tpm.answer(&challenge, "key")
                .fault
                .contains("refuses to open the credential")
        );
        swtpm.kill().unwrap();
        swtpm.wait().unwrap();
    }

    /// A TPM that removes a key and answers that the removal failed.
    struct FailingFlush(Socket);

    impl Transport for FailingFlush {
        fn transmit(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
            let answer = self.0.transmit(command)?;
            // TPM2_FlushContext of a transient object.
            let is_removal = command[6..10] == [0, 0, 1, 0x65] && command[10] == 0x80;
            // TPM_RC_FAILURE.
            let refused = [0x80, 1, 0, 0, 0, 10, 0, 0, 1, 1];
            Ok(if is_removal { refused.to_vec() } else { answer })
        }
    }

    #[test]
    fn a_failed_removal_of_a_key_changes_no_answer_and_hides_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let (mut swtpm, socket) = swtpm(dir.path());
        let tpm = KernelTpm::from_tpm(Tpm::new(Box::new(FailingFlush(socket))), &SysRoot::below(dir.path())).unwrap();
        let (ek, ak) = publics(&tpm);
        let mut challenge = challenge(&ek, &ak);
        let answer = tpm.answer(&challenge, "key");
        assert_eq!((answer.secret, answer.fault), (vec![3; 32], String::new()));
        challenge.credential_blob[10] ^= 1;
        let fault = tpm.answer(&challenge, "key").fault;
        assert!(fault.contains("refuses to open the credential"), "{fault}");
        swtpm.kill().unwrap();
        swtpm.wait().unwrap();
    }
}
