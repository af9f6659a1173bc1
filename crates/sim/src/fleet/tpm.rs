//! The TPM of a simulated machine: two keys, and answers in the structures of a real TPM.

use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::elliptic_curve::sec1::ToSec1Point as _;
use p256::{PublicKey, SecretKey};
use rackwright_agent::tpm::{Attester, quote_data};
use rackwright_api::v1::{Attestation, Challenge, TpmKeys};
use rackwright_tpm::credential::{Keys, ephemeral};
use rackwright_tpm::firmware::write_variable;
use rackwright_tpm::log::{Event, Log, write};
use rackwright_tpm::pcr::{QUOTED, Values, digest};
use rackwright_tpm::public::{Kind, Point, Public};
use rackwright_tpm::quote::{Quote, write_signature};
use rackwright_tpm::sha256;

/// Measurements of a simulated machine's firmware and boot programs: register, type, data.
const MEASURED: [(u8, u32, &[u8]); 7] = [
    (0, 0x08, b"simulated firmware 1"),
    (2, 0x8000_0004, b"simulated option ROM"),
    (4, 0x8000_0003, b"simulated boot program"),
    (0, 0x04, &[0; 4]),
    (2, 0x04, &[0; 4]),
    (4, 0x04, &[0; 4]),
    (7, 0x04, &[0; 4]),
];
const VARIABLE: u32 = 0x8000_0001;

/// A TPM in software.
#[derive(Clone)]
pub struct SimTpm {
    ek: SecretKey,
    ak: SigningKey,
    ek_public: Public,
    ak_public: Public,
    /// The machine's measurements in order: register, type, data.
    measured: Vec<(u8, u32, Vec<u8>)>,
    /// Data that a system has stored in it.
    stored: Vec<u8>,
    /// Whether a system has set the lockout password.
    locked: bool,
}

fn key(seed: &[u8], what: &[u8]) -> SecretKey {
    let mut round = 0_u32;
    loop {
        // Nearly every 256-bit value is a valid key.
        let candidate = sha256(&[seed, what, &round.to_be_bytes()]);
        if let Ok(key) = SecretKey::from_slice(&candidate) {
            return key;
        }
        round += 1;
    }
}

fn public(kind: Kind, key: &PublicKey) -> Public {
    let point = Point::of_sec1(key.to_sec1_point(false).as_bytes());
    Public::new(kind, point.unwrap_or(Point { x: [0; 32], y: [0; 32] }))
}

impl SimTpm {
    /// The TPM of this seed; a different seed gives a different TPM.
    #[must_use]
    pub fn new(seed: &[u8]) -> Self {
        let (ek, ak) = (key(seed, b"endorsement"), key(seed, b"attestation"));
        let mut measured: Vec<_> = MEASURED.map(|(pcr, kind, data)| (pcr, kind, data.to_vec())).into();
        let variables = [("SecureBoot", &[1][..]), ("PK", b"vendor"), ("db", b"vendor")];
        let variables = variables.map(|(name, content)| (7, VARIABLE, write_variable(name, content)));
        measured.splice(0..0, variables);
        Self {
            measured,
            stored: Vec::new(),
            locked: false,
            ek_public: public(Kind::Endorsement, &ek.public_key()),
            ak_public: public(Kind::Attestation, &ak.public_key()),
            ek,
            ak: SigningKey::from(ak),
        }
    }

    /// The same TPM in a machine with a firmware of this version.
    #[must_use]
    pub fn with_firmware(mut self, version: &str) -> Self {
        let version = (0, 0x08, version.as_bytes().to_vec());
        self.measured.retain(|(pcr, kind, _)| (*pcr, *kind) != (0, 0x08));
        self.measured.insert(0, version);
        self
    }

    /// The same TPM in a machine with this content of a Secure Boot variable.
    #[must_use]
    pub fn with_variable(mut self, name: &str, content: &[u8]) -> Self {
        let new = write_variable(name, content);
        let head = write_variable(name, &[]);
        // GUID and name; the length of the content is between them.
        let is_same = |data: &[u8]| data.starts_with(&head[..24]) && data[32..].starts_with(&head[32..]);
        for (_, kind, data) in &mut self.measured {
            if *kind == VARIABLE && is_same(data) {
                data.clone_from(&new);
            }
        }
        self
    }

    /// The same TPM with a system's data in it.
    #[must_use]
    pub fn with_stored(mut self, data: &[u8]) -> Self {
        self.stored = data.to_vec();
        self
    }

    /// The same TPM after a system has set its lockout password.
    #[must_use]
    pub fn locked(mut self) -> Self {
        self.locked = true;
        self
    }

    /// Data that systems have stored in it.
    #[must_use]
    pub fn stored(&self) -> &[u8] {
        &self.stored
    }

    /// Removes the data that systems have stored in it.
    pub(super) fn clear(&mut self) -> Result<(), String> {
        if self.locked {
            let refusal = "the TPM refuses to be cleared: code 0x9a2 (a system has set a password: clear the TPM in the \
                           firmware's settings)";
            return Err(refusal.into());
        }
        self.stored.clear();
        Ok(())
    }

    /// The digest by which the control plane identifies it.
    #[must_use]
    pub fn digest(&self) -> String {
        rackwright_tpm::sha256_text(&self.ek_public.sha256())
    }

    fn open(&self, challenge: &Challenge) -> Option<Vec<u8>> {
        let point = ephemeral(&challenge.credential_seed).ok()?;
        let peer = PublicKey::from_sec1_bytes(&point.sec1()).ok()?;
        let shared = p256::ecdh::diffie_hellman(self.ek.to_nonzero_scalar(), peer.as_affine());
        let name = self.ak_public.name();
        let keys = Keys::new(shared.raw_secret_bytes(), &point, &self.ek_public.point, &name);
        keys.open(&challenge.credential_blob, &name).ok()
    }

    fn event_log(&self) -> Vec<u8> {
        let events = self.measured.iter().map(|(pcr, kind, data)| Event {
            pcr: *pcr,
            kind: *kind,
            digest: sha256(&[data]),
            data,
        });
        write(&events.collect::<Vec<_>>())
    }

    /// Signs a quote over these values.
    fn quote(&self, extra: &[u8], values: &Values) -> (Vec<u8>, Vec<u8>) {
        let quote = Quote {
            extra: extra.to_vec(),
            clock: 1,
            resets: 1,
            restarts: 0,
            selection: QUOTED,
            digest: digest(values),
        };
        let bytes = quote.write(&self.ak_public.name());
        let signature: Signature = self.ak.sign(&bytes);
        let (r, s) = signature.split_bytes();
        (bytes, write_signature(&r, &s))
    }
}

impl Attester for SimTpm {
    fn keys(&self) -> TpmKeys {
        TpmKeys {
            endorsement_public: self.ek_public.bytes().to_vec(),
            endorsement_certificate: Vec::new(),
            attestation_public: self.ak_public.bytes().to_vec(),
        }
    }

    fn answer(&self, challenge: &Challenge, key_sha256: &str) -> Attestation {
        let Some(secret) = self.open(challenge) else {
            return Attestation {
                fault: "the credential is not for this TPM".into(),
                ..Attestation::default()
            };
        };
        let event_log = self.event_log();
        let mut values: Values = QUOTED.indexes().map(|index| (index, [0; 32])).collect();
        values.extend(Log::parse(&event_log).map(|log| log.replay()).unwrap_or_default());
        let (quote, signature) = self.quote(&quote_data(challenge, key_sha256), &values);
        Attestation {
            secret,
            quote,
            signature,
            pcrs: values
                .iter()
                .map(|(index, value)| ((*index).into(), value.to_vec()))
                .collect(),
            event_log,
            ..Attestation::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackwright_tpm::credential;
    use rackwright_tpm::quote::verify;
    use ring::rand::SystemRandom;

    #[test]
    fn a_simulated_tpm_answers_as_a_real_one() {
        let (tpm, other) = (SimTpm::new(b"one"), SimTpm::new(b"other"));
        assert_ne!(tpm.digest(), other.digest());
        let made = credential::make(&tpm.ek_public, &tpm.ak_public.name(), &[7; 32], &SystemRandom::new()).unwrap();
        let challenge = Challenge {
            nonce: vec![1; 32],
            credential_blob: made.blob,
            credential_seed: made.seed,
            node: "n1".into(),
            claim_generation: 2,
            boot: "b".into(),
            bmc_secret: false,
        };
        let answer = tpm.answer(&challenge, "key");
        assert_eq!(answer.secret, [7; 32]);
        let values: Values = answer
            .pcrs
            .iter()
            .map(|(index, value)| (*index as u8, value.as_slice().try_into().unwrap()))
            .collect();
        let quote = verify(&tpm.ak_public, &answer.quote, &answer.signature, &values).unwrap();
        assert_eq!(quote.extra, quote_data(&challenge, "key"));
        assert_eq!(Log::parse(&answer.event_log).unwrap().differs(&values), None);
        assert!(!other.answer(&challenge, "key").fault.is_empty());
    }
}
