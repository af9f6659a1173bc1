//! The identity of a machine by its TPM: what a site requires, the challenge of a session, and the judgement of the answer.
//!
//! `docs/machine-identity.md` has the message flow. This module holds the parts that need no stream and no database.

use rackwright_api::v1;
use rackwright_ground::config::identity::{AddressOnly, BmcRequirement, MeasuredBoot, Policy, TpmRequirement};
use rackwright_ground::text::{SENTENCE_MAX, cut};
use rackwright_identity::{Rng as _, SystemRng, payload_hash};
use rackwright_lifecycle::{NodeId, State};
use rackwright_store::{AgentBootRow, AgentSession, NodeRecord};
use rackwright_tpm::client::CERTIFICATE_MAX;
use rackwright_tpm::credential::{self, SECRET};
use rackwright_tpm::log::{LOG_MAX, Log};
use rackwright_tpm::measured::{Boot, Served};
use rackwright_tpm::pcr::{COUNT, QUOTED, Values, selection};
use rackwright_tpm::public::{Kind, PUBLIC_MAX, Public};
use rackwright_tpm::quote::{QUOTE_MAX, Quote, SIGNATURE_MAX, verify};
use rackwright_tpm::{binding, sha256_text};
use ring::rand::SystemRandom;

use crate::golden_firmware::{self, Registers};

/// The machine holds the enrolled TPM.
pub const BY_TPM: &str = "tpm";
/// The machine has read the secret that only its BMC delivers.
pub const BY_BMC: &str = "bmc";
/// Known by MAC and IP address only: another machine with the same addresses would have been accepted as well.
pub const BY_ADDRESS: &str = "address only";

/// The TPM attests that the machine started the boot programs, the kernel, the ramdisk and the command line that were
/// served.
pub const AS_SERVED: &str = "as served";

/// Parses a digest from a setting or request. Returns it as it is stored.
#[must_use]
pub fn digest(text: &str) -> Option<String> {
    let hex = text.strip_prefix("sha256:")?;
    let is_digest = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    is_digest.then(|| text.to_ascii_lowercase())
}

/// The challenge of a session in which no TPM is asked.
///
/// # Errors
/// There are no random numbers.
pub fn challenge(node: &NodeId, of: &AgentSession) -> Result<v1::Challenge, String> {
    let mut nonce = vec![0; 32];
    SystemRng.fill(&mut nonce).map_err(|error| error.to_string())?;
    Ok(v1::Challenge {
        nonce,
        node: node.to_string(),
        claim_generation: of.generation,
        boot: of.boot.clone(),
        ..v1::Challenge::default()
    })
}

/// A challenge that waits for its answer.
pub struct Pending {
    nonce: [u8; 32],
    secret: [u8; SECRET],
    ek: Public,
    ak: Public,
}

/// Proof that a machine holds a TPM. Whether the proof is of this session is judged with the node's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The TPM, as it is stored.
    pub ek: String,
    /// Why there is no proof that the machine started what was served. `None`: it is proven.
    pub unproven: Option<String>,
    /// The firmware's registers in the quote.
    pub firmware: Registers,
    /// SHA-256 of the quote and its signature, 64 hex digits.
    pub quote_sha256: String,
    nonce: [u8; 32],
    extra: Vec<u8>,
}

/// What a machine showed of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TpmEvidence {
    /// No TPM, and why an agent could not use the TPM that is there.
    Nothing(String),
    /// The proof that its TPM gave.
    Tpm(Box<Proof>),
    /// An answer that proves nothing, and why.
    Wrong(String),
}

impl Pending {
    /// Makes the challenge of a session that showed these keys.
    ///
    /// # Errors
    /// They are not valid keys of a TPM.
    pub fn new(keys: &v1::TpmKeys, node: &NodeId, of: &AgentSession) -> Result<(Self, v1::Challenge), String> {
        let longest = keys.endorsement_public.len().max(keys.attestation_public.len());
        if longest > PUBLIC_MAX || keys.endorsement_certificate.len() > CERTIFICATE_MAX {
            return Err("its TPM's keys are too long".into());
        }
        let key = |kind, bytes: &[u8]| Public::parse(kind, bytes).map_err(|e| e.to_string());
        let ek = key(Kind::Endorsement, &keys.endorsement_public)?;
        let ak = key(Kind::Attestation, &keys.attestation_public)?;
        let (mut nonce, mut secret) = ([0; 32], [0; SECRET]);
        let filled = SystemRng.fill(&mut nonce).and_then(|()| SystemRng.fill(&mut secret));
        filled.map_err(|error| error.to_string())?;
        #[expect(
            clippy::disallowed_methods,
            reason = "ring makes the ephemeral key, from its own kind of source"
        )]
        let random = SystemRandom::new();
        let made = credential::make(&ek, &ak.name(), &secret, &random).map_err(|e| e.to_string())?;
        let challenge = v1::Challenge {
            nonce: nonce.to_vec(),
            credential_blob: made.blob,
            credential_seed: made.seed,
            node: node.to_string(),
            claim_generation: of.generation,
            boot: of.boot.clone(),
            bmc_secret: false,
        };
        let pending = Self { nonce, secret, ek, ak };
        Ok((pending, challenge))
    }

    /// Judges the answer, except for the session that the quote is bound to. `served` holds the boot files, or why they
    /// cannot be compared.
    #[must_use]
    pub fn judge(self, answer: &v1::Attestation, served: &Result<Served, String>) -> TpmEvidence {
        match self.check_answer(answer, served) {
            Ok(proof) => TpmEvidence::Tpm(Box::new(proof)),
            Err(why) => TpmEvidence::Wrong(cut(&why, SENTENCE_MAX)),
        }
    }

    fn check_answer(self, answer: &v1::Attestation, served: &Result<Served, String>) -> Result<Proof, String> {
        if !answer.fault.is_empty() {
            return Err(format!("its agent says: {}", answer.fault));
        }
        // A plain comparison is enough: the secret is valid for this one answer, so timing reveals nothing of use.
        if answer.secret != self.secret {
            return Err("the TPM does not hold both keys: the credential was not opened".into());
        }
        let quote = verify_quote(&self.ak, answer)?;
        let values = values(&answer.pcrs)?;
        let (started, firmware) = if answer.event_log.is_empty() {
            let started = Err("the firmware keeps no event log".to_owned());
            (started, golden_firmware::registers(&values, &[]))
        } else {
            let log = replay_log(&answer.event_log, &values)?;
            let firmware = golden_firmware::registers(&values, &log.events);
            (compare_served(&log, &values, served), firmware)
        };
        Ok(Proof {
            ek: sha256_text(&self.ek.sha256()),
            unproven: started.err().map(|why| cut(&why, SENTENCE_MAX)),
            firmware,
            quote_sha256: payload_hash(&[answer.quote.as_slice(), &answer.signature].concat()),
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
    if selection(&values) == QUOTED {
        Ok(values)
    } else {
        Err("its PCRs are not the ones that were asked for".into())
    }
}

fn verify_quote(ak: &Public, answer: &v1::Attestation) -> Result<Quote, String> {
    if answer.quote.len() > QUOTE_MAX || answer.signature.len() > SIGNATURE_MAX {
        return Err("the quote is too long".into());
    }
    let values = values(&answer.pcrs)?;
    verify(ak, &answer.quote, &answer.signature, &values).map_err(|e| e.to_string())
}

fn compare_served(log: &Log<'_>, values: &Values, served: &Result<Served, String>) -> Result<(), String> {
    let boot = Boot::read(log, values).map_err(|unproven| unproven.to_string())?;
    boot.judge(served.as_ref()?).map_err(|unproven| unproven.to_string())
}

/// Parses the event log, which has to replay to the firmware's registers.
fn replay_log<'a>(log: &'a [u8], values: &Values) -> Result<Log<'a>, String> {
    if log.len() > LOG_MAX {
        return Err("the event log is too long".into());
    }
    let log = Log::parse(log).map_err(|e| e.to_string())?;
    match log.differs(values) {
        None => Ok(log),
        Some(pcr) => Err(format!("the event log does not replay to PCR {pcr}")),
    }
}

/// How a machine is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineIdentity {
    /// [`BY_TPM`], [`BY_BMC`] or [`BY_ADDRESS`].
    pub identity: &'static str,
    /// The TPM that answered; empty: no TPM answered.
    pub ek: String,
    /// [`AS_SERVED`], or why that is not proven; empty: the TPM was not asked.
    pub measured: String,
}

/// Judges what a machine showed for a session of `of`, in the boot in which it registered. `has_secret` reports whether the
/// machine has the secret of its BMC. The error is a sentence for an operator.
///
/// # Errors
/// The machine is refused.
pub fn identify(
    policy: Policy,
    record: &NodeRecord,
    boot: &AgentBootRow,
    of: &AgentSession,
    shown: &TpmEvidence,
    has_secret: bool,
) -> Result<MachineIdentity, String> {
    let known = identify_by_tpm(policy, record, boot, of, shown)?;
    if known.identity == BY_TPM {
        return Ok(known);
    }
    if has_secret {
        let identity = BY_BMC;
        return Ok(MachineIdentity { identity, ..known });
    }
    if policy.bmc == BmcRequirement::Required {
        return Err(format!(
            "the settings require a TPM or a secret of the BMC for SKU {}, and this boot of {} has neither. Set identity.bmc \
             to preferred and identity.address_only to allow where the machine may be known by its addresses only",
            record.spec.sku, record.id
        ));
    }
    match policy.address_only {
        AddressOnly::Allow => Ok(known),
        AddressOnly::Refuse => Err(no_proof(record, shown, &known)),
    }
}

/// Why a machine without a proof is refused, and the ways out.
fn no_proof(record: &NodeRecord, shown: &TpmEvidence, known: &MachineIdentity) -> String {
    let (id, sku) = (&record.id, &record.spec.sku);
    let because = match shown {
        TpmEvidence::Nothing(fault) if !fault.is_empty() => format!(" ({})", cut(fault, SENTENCE_MAX)),
        _ => String::new(),
    };
    let accept = match known.ek.as_str() {
        "" => String::new(),
        ek => format!(", accept the TPM that answered: `rackwright node readmit {id} --accept-tpm {ek}`"),
    };
    format!(
        "{id} of SKU {sku} has proven itself neither by an enrolled TPM{because} nor by a secret of its BMC, and \
         identity.address_only is refuse. Let it prove itself (identity.tpm, identity.bmc){accept}, or set \
         identity.address_only to allow: then another machine with the same addresses would be accepted as well"
    )
}

/// How the machine is known without the secret of its BMC.
fn identify_by_tpm(
    policy: Policy,
    record: &NodeRecord,
    boot: &AgentBootRow,
    of: &AgentSession,
    shown: &TpmEvidence,
) -> Result<MachineIdentity, String> {
    let requirement = policy.tpm;
    let is_start_required = policy.measured_boot == MeasuredBoot::Required;
    let by_address = |ek: &str, measured: String| MachineIdentity {
        identity: BY_ADDRESS,
        ek: ek.to_owned(),
        measured,
    };
    if requirement == TpmRequirement::None {
        return if is_start_required {
            let sku = &record.spec.sku;
            Err(format!(
                "the settings require a measured boot for SKU {sku} and ask for no TPM: set identity.tpm"
            ))
        } else {
            Ok(by_address("", String::new()))
        };
    }
    let (id, enrolled) = (&record.id, &record.spec.tpm_ek);
    // Until a TPM is enrolled, a boot keeps the TPM that it showed first.
    let expected = if enrolled.is_empty() { &boot.tpm_ek } else { enrolled };
    let accept =
        |ek: &str| format!("If the board or its TPM was changed: `rackwright node readmit {id} --accept-tpm {ek}`");
    let proof = match shown {
        TpmEvidence::Wrong(why) => return Err(format!("its TPM did not prove itself: {why}")),
        TpmEvidence::Nothing(fault) => {
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
            } else if requirement == TpmRequirement::Required || is_start_required {
                Err(format!(
                    "the settings require a TPM for SKU {}, and no TPM 2.0 answered{because}. Switch it on in the \
                     firmware's settings, or set identity.tpm",
                    record.spec.sku
                ))
            } else {
                Ok(by_address("", String::new()))
            };
        }
        TpmEvidence::Tpm(proof) => proof,
    };
    if proof.extra != binding(&proof.nonce, id.as_str(), of.generation, &of.boot, &boot.key_sha256) {
        return Err("the quote was made for another session".into());
    }
    let ek = &proof.ek;
    if !expected.is_empty() && expected != ek {
        return Err(format!(
            "the TPM of {id} is {expected}, and {ek} answered. {}",
            accept(ek)
        ));
    }
    let measured = proof.unproven.clone().unwrap_or_else(|| AS_SERVED.to_owned());
    if let Some(why) = proof.unproven.as_ref().filter(|_| is_start_required) {
        return Err(format!(
            "the settings require a measured boot for SKU {}, and its start is not proven: {why}",
            record.spec.sku
        ));
    }
    let is_first = enrolled.is_empty() && record.node.state != State::Inspecting;
    if !is_first {
        Ok(MachineIdentity {
            identity: BY_TPM,
            ek: ek.clone(),
            measured,
        })
    } else if requirement == TpmRequirement::Required {
        Err(format!(
            "the settings require a TPM for SKU {}, and none was enrolled when {id} was inspected. {}",
            record.spec.sku,
            accept(ek)
        ))
    } else {
        Ok(by_address(ek, measured))
    }
}

/// The TPM that an accepted inspection enrols: the one that answered in the inspection's last boot.
#[must_use]
pub fn tpm_to_enrol(record: &NodeRecord, boot: &AgentBootRow) -> Option<String> {
    let is_of_inspection = boot.state_since == record.node.since && boot.identity == BY_TPM && !boot.is_contested();
    let is_new = record.spec.tpm_ek.is_empty() && !boot.tpm_ek.is_empty();
    (is_of_inspection && is_new).then(|| boot.tpm_ek.clone())
}

#[cfg(test)]
mod tests;
