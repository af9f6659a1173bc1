//! The identity of a machine by its TPM: what a site asks for, the challenge of a session, and the judgement of the answer.
//!
//! `docs/identity.md` has the message flow. Here is what needs no stream and no database.

use std::collections::BTreeMap;

use rackwright_api::v1;
use rackwright_lifecycle::State;
use rackwright_store::{AgentBootRow, AgentSession, NodeRecord};
use rackwright_tpm::client::CERTIFICATE_MAX;
use rackwright_tpm::credential::{self, SECRET};
use rackwright_tpm::log::{LOG_MAX, Log};
use rackwright_tpm::pcr::{ASKED, COUNT, Values, selection};
use rackwright_tpm::public::{Kind, PUBLIC_MAX, Public};
use rackwright_tpm::quote::{QUOTE_MAX, Quote, SIGNATURE_MAX, verify};
use rackwright_tpm::{binding, sha256, sha256_text};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::Deserialize;

use crate::text::{SENTENCE_MAX, cut};

/// The machine holds the enrolled TPM.
pub const BY_TPM: &str = "tpm";
/// Another machine with the same MAC and IP addresses would have been taken as well.
pub const BY_ADDRESS: &str = "address only";

/// What is asked of a class of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wish {
    /// No machine is taken without the enrolled TPM: "address only" is refused.
    Required,
    /// A machine with a TPM is taken with this TPM only, from its first inspection on. One without a TPM is "address only".
    #[default]
    Preferred,
    /// No TPM is asked. Every machine is "address only".
    None,
}

/// The settings `identity`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// For every SKU without an entry of its own.
    pub tpm: Wish,
    /// By SKU.
    pub skus: BTreeMap<String, Wish>,
}

impl Settings {
    /// What is asked of machines of a SKU.
    #[must_use]
    pub fn of(&self, sku: &str) -> Wish {
        self.skus.get(sku).copied().unwrap_or(self.tpm)
    }

    /// Whether any machine is asked for its TPM.
    #[must_use]
    pub fn asks(&self) -> bool {
        let skus = self.skus.values();
        self.tpm != Wish::None || skus.into_iter().any(|wish| *wish != Wish::None)
    }
}

/// Reads a digest that somebody gave. Answers it as it is stored.
#[must_use]
pub fn digest(text: &str) -> Option<String> {
    let hex = text.strip_prefix("sha256:")?;
    let is_digest = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    is_digest.then(|| text.to_ascii_lowercase())
}

/// A challenge that waits for its answer.
pub struct Pending {
    nonce: [u8; 32],
    secret: [u8; SECRET],
    ek: Public,
    ak: Public,
    certificate_sha256: String,
}

/// A machine has shown that it holds a TPM. Whether it did so for this session is judged with the node's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The TPM, as it is stored.
    pub ek: String,
    /// The digest of the endorsement certificate that it has; empty: it has none. Not judged.
    pub certificate_sha256: String,
    nonce: [u8; 32],
    extra: Vec<u8>,
}

/// What a machine showed of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// No TPM, and why an agent could not use the one that is there.
    Nothing(String),
    /// A TPM.
    Tpm(Box<Proof>),
    /// An answer that proves nothing, and why.
    Wrong(String),
}

impl Pending {
    /// Makes the challenge of a session that showed these keys.
    ///
    /// # Errors
    /// They are no keys of a TPM.
    pub fn new(keys: &v1::TpmKeys, node: &str, of: &AgentSession) -> Result<(Self, v1::Challenge), String> {
        let longest = keys.endorsement_public.len().max(keys.attestation_public.len());
        if longest > PUBLIC_MAX || keys.endorsement_certificate.len() > CERTIFICATE_MAX {
            return Err("its TPM's keys are too long".into());
        }
        let key = |kind, bytes: &[u8]| Public::parse(kind, bytes).map_err(|e| e.to_string());
        let ek = key(Kind::Endorsement, &keys.endorsement_public)?;
        let ak = key(Kind::Attestation, &keys.attestation_public)?;
        let random = SystemRandom::new();
        let (mut nonce, mut secret) = ([0; 32], [0; SECRET]);
        let filled = random.fill(&mut nonce).and_then(|()| random.fill(&mut secret));
        filled.map_err(|_| "there are no random numbers".to_owned())?;
        let made = credential::make(&ek, &ak.name(), &secret, &random).map_err(|e| e.to_string())?;
        let certificate = &keys.endorsement_certificate;
        let certificate_sha256 = match certificate.as_slice() {
            [] => String::new(),
            bytes => sha256_text(&sha256(&[bytes])),
        };
        let challenge = v1::Challenge {
            nonce: nonce.to_vec(),
            credential_blob: made.blob,
            credential_seed: made.seed,
            node: node.to_owned(),
            claim_generation: of.generation,
            boot: of.boot.clone(),
        };
        let pending = Self {
            nonce,
            secret,
            ek,
            ak,
            certificate_sha256,
        };
        Ok((pending, challenge))
    }

    /// Judges the answer, but for the session that the quote is bound to.
    #[must_use]
    pub fn judge(self, answer: &v1::Attestation) -> Shown {
        match self.judged(answer) {
            Ok(proof) => Shown::Tpm(Box::new(proof)),
            Err(why) => Shown::Wrong(cut(&why, SENTENCE_MAX)),
        }
    }

    fn judged(self, answer: &v1::Attestation) -> Result<Proof, String> {
        if !answer.fault.is_empty() {
            return Err(format!("its agent says: {}", answer.fault));
        }
        // Good for this one answer: how long a comparison takes tells nothing.
        if answer.secret != self.secret {
            return Err("the TPM does not hold both keys: the credential was not opened".into());
        }
        let quote = quoted(&self.ak, answer)?;
        if !answer.event_log.is_empty() {
            let values = values(&answer.pcrs)?;
            replays(&answer.event_log, &values)?;
        }
        Ok(Proof {
            ek: sha256_text(&self.ek.sha256()),
            certificate_sha256: self.certificate_sha256,
            nonce: self.nonce,
            extra: quote.extra,
        })
    }
}

fn values(pcrs: &std::collections::HashMap<u32, Vec<u8>>) -> Result<Values, String> {
    if pcrs.len() > usize::from(COUNT) {
        return Err("it has too many PCRs".into());
    }
    let value = |(index, value): (&u32, &Vec<u8>)| {
        let index = u8::try_from(*index).ok().filter(|index| *index < COUNT)?;
        Some((index, value.as_slice().try_into().ok()?))
    };
    let values: Option<Values> = pcrs.iter().map(value).collect();
    let values = values.ok_or("its PCRs are malformed")?;
    if selection(&values) == ASKED {
        Ok(values)
    } else {
        Err("its PCRs are not the ones that were asked for".into())
    }
}

fn quoted(ak: &Public, answer: &v1::Attestation) -> Result<Quote, String> {
    if answer.quote.len() > QUOTE_MAX || answer.signature.len() > SIGNATURE_MAX {
        return Err("the quote is too long".into());
    }
    let values = values(&answer.pcrs)?;
    verify(ak, &answer.quote, &answer.signature, &values).map_err(|e| e.to_string())
}

fn replays(log: &[u8], values: &Values) -> Result<(), String> {
    if log.len() > LOG_MAX {
        return Err("the event log is too long".into());
    }
    let log = Log::parse(log).map_err(|e| e.to_string())?;
    match log.differs(values) {
        None => Ok(()),
        Some(pcr) => Err(format!("the event log does not replay to PCR {pcr}")),
    }
}

/// How a machine is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// [`BY_TPM`] or [`BY_ADDRESS`].
    pub identity: &'static str,
    /// The TPM that answered; empty: none did.
    pub ek: String,
}

/// Judges what a machine showed for a session of `of`, in a boot that it registered in. The error is a sentence for an
/// operator.
///
/// # Errors
/// It is not taken.
pub fn identify(
    wish: Wish,
    record: &NodeRecord,
    boot: &AgentBootRow,
    of: &AgentSession,
    shown: &Shown,
) -> Result<Known, String> {
    let by_address = |ek: &str| Known {
        identity: BY_ADDRESS,
        ek: ek.to_owned(),
    };
    if wish == Wish::None {
        return Ok(by_address(""));
    }
    let (id, enrolled) = (&record.id, &record.spec.tpm_ek);
    // Before one is enrolled, a boot keeps the TPM that it showed first.
    let expected = if enrolled.is_empty() { &boot.tpm_ek } else { enrolled };
    let accept =
        |ek: &str| format!("If the board or its TPM was changed: `rackwright node readmit {id} --accept-tpm {ek}`");
    let proof = match shown {
        Shown::Wrong(why) => return Err(format!("its TPM did not prove itself: {why}")),
        Shown::Nothing(fault) => {
            let because = if fault.is_empty() {
                String::new()
            } else {
                format!(" ({})", cut(fault, SENTENCE_MAX))
            };
            return if !expected.is_empty() {
                let none = accept("none");
                Err(format!(
                    "the TPM of {id} is {expected}, and no TPM answered{because}. {none}"
                ))
            } else if wish == Wish::Required {
                Err(format!(
                    "the settings require a TPM for SKU {}, and no TPM 2.0 answered{because}. Switch it on in the \
                     firmware's settings, or set identity.tpm",
                    record.spec.sku
                ))
            } else {
                Ok(by_address(""))
            };
        }
        Shown::Tpm(proof) => proof,
    };
    if proof.extra != binding(&proof.nonce, id, of.generation, &of.boot, &boot.key_sha256) {
        return Err("the quote was made for another session".into());
    }
    let ek = &proof.ek;
    if !expected.is_empty() && expected != ek {
        return Err(format!(
            "the TPM of {id} is {expected}, and {ek} answered. {}",
            accept(ek)
        ));
    }
    let is_first = enrolled.is_empty() && record.node.state != State::Inspecting;
    if !is_first {
        Ok(Known {
            identity: BY_TPM,
            ek: ek.clone(),
        })
    } else if wish == Wish::Required {
        Err(format!(
            "the settings require a TPM for SKU {}, and none was enrolled when {id} was inspected. {}",
            record.spec.sku,
            accept(ek)
        ))
    } else {
        Ok(by_address(ek))
    }
}

/// The TPM that an accepted inspection enrols: the one that answered in the inspection's last boot.
#[must_use]
pub fn to_enrol(record: &NodeRecord, boot: &AgentBootRow) -> Option<String> {
    let is_of_inspection = boot.state_since == record.node.since && boot.identity == BY_TPM && !boot.is_contested();
    let is_new = record.spec.tpm_ek.is_empty() && !boot.tpm_ek.is_empty();
    (is_of_inspection && is_new).then(|| boot.tpm_ek.clone())
}
