//! The firmware of machines, as their TPMs measure it, against the golden values of their SKU.
//!
//! An operator approves what a good node shows (`grpc/firmware/golden.rs`). Each session of a node that is known by its TPM is
//! compared. The settings `identity.firmware` say what follows from a difference.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rackwright_api::v1;
use rackwright_lifecycle::{State, Timestamp};
use rackwright_store::{EventRow, FirmwareValuesRow, GoldenFirmwareRow, NodeRecord, StoreError, WriteTx};
use rackwright_tpm::firmware::{REGISTERS, name, purpose};
use rackwright_tpm::log::Event;
use rackwright_tpm::pcr::Values;
use rackwright_tpm::{sha256, sha256_text};
use serde::{Deserialize, Serialize};

use crate::attestation::{BY_TPM, FirmwarePolicy, Known, Shown};
use crate::clock;
use crate::core::Core;
use crate::grpc::convert;
use crate::text::{SENTENCE_MAX, cut};

/// Events of a register that are kept: they name what differs, and the value alone decides.
const EVENTS_MAX: usize = 128;
/// Changes of a register that are named.
const CHANGES_MAX: usize = 4;
/// Hexadecimal digits of a digest in a sentence.
const SHORT: usize = 12;

/// One measurement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Measured {
    /// What was measured, by the event log.
    pub name: String,
    /// `sha256:` and 64 hex digits.
    pub digest: String,
}

/// A register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The quoted value: `sha256:` and 64 hex digits.
    pub value: String,
    /// What the event log has for it; empty where the firmware keeps no log.
    pub events: Vec<Measured>,
}

/// Registers of the firmware, by number.
pub type Registers = BTreeMap<u8, Register>;

/// The registers of the firmware in a quote, with the events of a log that replays to them.
#[must_use]
pub fn registers(quoted: &Values, log: &[Event<'_>]) -> Registers {
    let of = |pcr: u8| {
        let events = log.iter().filter(|event| event.pcr == pcr).take(EVENTS_MAX);
        let events = events.map(|event| Measured {
            name: name(event),
            digest: sha256_text(&event.digest),
        });
        let value = sha256_text(quoted.get(&pcr)?);
        Some((
            pcr,
            Register {
                value,
                events: events.collect(),
            },
        ))
    };
    REGISTERS.into_iter().filter_map(of).collect()
}

/// What is stored of a node or of golden values. What cannot be read has no registers, and so equals nothing.
#[must_use]
pub fn parse(body: &str) -> Registers {
    serde_json::from_str::<Body>(body).unwrap_or_default().registers
}

/// As stored.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Body {
    registers: Registers,
    /// The update by the control plane that these values followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    update: Option<Update>,
}

/// An update of the firmware by the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    at: Timestamp,
    to: String,
}

/// The id of golden values: the same for the same values of a SKU.
#[must_use]
pub fn id_of(sku: &str, registers: &Registers) -> String {
    let values: Vec<String> = registers
        .iter()
        .map(|(pcr, register)| format!("{pcr} {}\n", register.value))
        .collect();
    let length = (sku.len() as u64).to_be_bytes();
    let digest = sha256(&[&length, sku.as_bytes(), values.concat().as_bytes()]);
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// How a machine's firmware stands against the golden values of its SKU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It has these golden values.
    Golden(String),
    /// It has none of them.
    Differs(Difference),
    /// The SKU has no golden values.
    NoneApproved,
}

/// A difference from the nearest golden values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The golden values.
    pub golden: String,
    /// The registers that differ.
    pub registers: Vec<Differing>,
}

/// A register that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differing {
    /// Its number.
    pub pcr: u8,
    /// The golden value; empty: the golden values lack this register.
    pub expected: String,
    /// The machine's.
    pub found: String,
    /// What differs in it, by the event logs.
    pub changes: Vec<String>,
}

/// Compares these registers of a machine with all golden values of its SKU: one set has to have all of them.
#[must_use]
pub fn compare(found: &Registers, golden: &[(String, Registers)], compared: &BTreeSet<u8>) -> Finding {
    let against = |(id, golden): &(String, Registers)| Difference {
        golden: id.clone(),
        registers: compared
            .iter()
            .filter_map(|pcr| differing(*pcr, found.get(pcr), golden.get(pcr)))
            .collect(),
    };
    match golden.iter().map(against).min_by_key(|one| one.registers.len()) {
        None => Finding::NoneApproved,
        Some(nearest) if nearest.registers.is_empty() => Finding::Golden(nearest.golden),
        Some(nearest) => Finding::Differs(nearest),
    }
}

/// None: the register has the golden value.
fn differing(pcr: u8, found: Option<&Register>, golden: Option<&Register>) -> Option<Differing> {
    if let (Some(found), Some(golden)) = (found, golden)
        && found.value == golden.value
    {
        return None;
    }
    let value = |register: Option<&Register>| register.map(|one| one.value.clone()).unwrap_or_default();
    let changes = match (found, golden) {
        (Some(found), Some(golden)) => changes(&found.events, &golden.events),
        _ => Vec::new(),
    };
    Some(Differing {
        pcr,
        expected: value(golden),
        found: value(found),
        changes,
    })
}

/// What has another digest, is new or is missing.
fn changes(found: &[Measured], golden: &[Measured]) -> Vec<String> {
    let mut left: Vec<&Measured> = golden.iter().collect();
    let mut new = Vec::new();
    for one in found {
        match left.iter().position(|other| *other == one) {
            Some(at) => drop(left.remove(at)),
            None => new.push(one),
        }
    }
    let mut changes = Vec::new();
    for one in new {
        let digest = short(&one.digest);
        match left.iter().position(|other| other.name == one.name) {
            Some(at) => {
                let expected = short(&left.remove(at).digest);
                changes.push(format!("{} is {digest} and should be {expected}", one.name));
            }
            None => changes.push(format!("{} is new ({digest})", one.name)),
        }
    }
    changes.extend(
        left.iter()
            .map(|one| format!("{} is missing ({})", one.name, short(&one.digest))),
    );
    if changes.is_empty() && !found.is_empty() && !golden.is_empty() {
        changes.push("the same measurements in another order".to_owned());
    }
    if changes.len() > CHANGES_MAX {
        let more = changes.len() - CHANGES_MAX;
        changes.truncate(CHANGES_MAX);
        changes.push(format!("and {more} more"));
    }
    changes
}

fn short(digest: &str) -> &str {
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    digits.get(..SHORT).unwrap_or(digits)
}

impl fmt::Display for Differing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pcr, purpose) = (self.pcr, purpose(self.pcr));
        write!(f, "PCR {pcr} ({purpose}) is {}", short(&self.found))?;
        match self.expected.as_str() {
            "" => write!(f, ", and no value of it is approved"),
            expected => write!(f, " and should be {}", short(expected)),
        }?;
        match self.changes.as_slice() {
            [] => Ok(()),
            changes => write!(f, ": {}", changes.join(", ")),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registers: Vec<String> = self.registers.iter().map(ToString::to_string).collect();
        f.write_str(&registers.join("; "))
    }
}

impl Difference {
    /// Whether an update of the firmware explains it. An update does not change the Secure Boot policy.
    fn is_explained_by_update(&self) -> bool {
        self.registers.iter().all(|register| register.pcr != 7)
    }
}

/// The values that a node shows, and how they stand.
struct Judgement<'a> {
    record: &'a NodeRecord,
    registers: &'a Registers,
    update: Option<&'a Update>,
    finding: Finding,
}

impl Judgement<'_> {
    /// What is wrong, as a sentence without its end; none: the values are golden.
    fn fault(&self) -> Option<String> {
        let (id, sku) = (&self.record.id, &self.record.spec.sku);
        match &self.finding {
            Finding::Golden(_) => None,
            Finding::NoneApproved => Some(format!("no golden values of firmware are approved for SKU {sku}")),
            Finding::Differs(difference) => {
                let words = cut(&difference.to_string(), SENTENCE_MAX);
                let golden = &difference.golden;
                let differs =
                    format!("the firmware of {id} differs from the golden values {golden} of SKU {sku}: {words}");
                Some(match self.update {
                    Some(Update { at, to }) if difference.is_explained_by_update() => format!(
                        "Rackwright updated {to} at {}, and the new values are not approved: {differs}",
                        at.date()
                    ),
                    Some(Update { at, to }) => format!(
                        "{differs}. Rackwright updated {to} at {}; an update does not explain a change of PCR 7",
                        at.date()
                    ),
                    None => format!("{differs}. No update by Rackwright explains it"),
                })
            }
        }
    }

    fn advice(&self) -> String {
        let (id, set) = (&self.record.id, id_of(&self.record.spec.sku, self.registers));
        let again = match self.record.node.state {
            State::Inspecting => "retry",
            _ => "readmit",
        };
        format!(
            "If these values are good: `rackwright firmware golden add --from-node {id} --values {set} --reason TEXT`, then \
             `rackwright node {again} {id}` if the node was given up"
        )
    }

    fn event(&self, at: Timestamp, fault: &str) -> EventRow {
        let id = &self.record.id;
        let mut attributes = BTreeMap::from([("sku".to_owned(), self.record.spec.sku.clone())]);
        if let Finding::Differs(difference) = &self.finding {
            attributes.insert("golden".to_owned(), difference.golden.clone());
            for register in &difference.registers {
                attributes.insert(format!("pcr_{}_expected", register.pcr), register.expected.clone());
                attributes.insert(format!("pcr_{}_found", register.pcr), register.found.clone());
            }
        }
        EventRow {
            at,
            kind: "security.firmware-not-golden".into(),
            target: format!("nodes/{id}"),
            message: format!("{fault}. {}", self.advice()),
            attributes: attributes.into_iter().collect(),
            ..EventRow::default()
        }
    }
}

fn golden_of(rows: &[GoldenFirmwareRow]) -> Vec<(String, Registers)> {
    rows.iter().map(|row| (row.id.clone(), parse(&row.body))).collect()
}

/// The row after a session that showed these registers. An update by the control plane explains the first change after it, and
/// no later one.
fn follow(before: &FirmwareValuesRow, found: &Registers, ek: &str, now: Timestamp) -> FirmwareValuesRow {
    let stored: Body = serde_json::from_str(&before.body).unwrap_or_default();
    let values = |registers: &Registers| -> Vec<(u8, String)> {
        registers.iter().map(|(pcr, one)| (*pcr, one.value.clone())).collect()
    };
    let mut row = before.clone();
    (row.updated_at, row.updated_to) = (Timestamp(0), String::new());
    if values(&stored.registers) == values(found) && before.tpm_ek == ek {
        return row;
    }
    let update = (before.updated_at != Timestamp(0)).then(|| Update {
        at: before.updated_at,
        to: before.updated_to.clone(),
    });
    let registers = found.clone();
    row.first_seen_at = now;
    row.tpm_ek = ek.to_owned();
    row.body = serde_json::to_string(&Body { registers, update }).unwrap_or_default();
    row
}

/// Compares what the TPM of a session says of the firmware, and keeps it. The inner error says why the machine is not taken.
/// The node is locked.
///
/// # Errors
/// The database failed.
pub async fn judge(
    core: &Core,
    tx: &mut WriteTx,
    record: &NodeRecord,
    known: &Known,
    shown: &Shown,
) -> Result<Result<(), String>, StoreError> {
    let (id, sku) = (&record.id, &record.spec.sku);
    let policy = core.config.identity.of(sku).firmware;
    let is_held = policy == FirmwarePolicy::Hold;
    let proof = match shown {
        Shown::Tpm(proof) if known.identity == BY_TPM => proof,
        _ if is_held => {
            return Ok(Err(format!(
                "the settings hold machines of SKU {sku} without golden firmware, and no enrolled TPM says what firmware {id} has"
            )));
        }
        _ => return Ok(Ok(())),
    };
    let compared = &core.config.identity.firmware_registers.0;
    let mut registers = proof.firmware.clone();
    registers.retain(|pcr, _| compared.contains(pcr));
    let now = clock::now();
    let before = tx.firmware_values(id).await?.unwrap_or_else(|| FirmwareValuesRow {
        node: id.clone(),
        ..FirmwareValuesRow::default()
    });
    let mut row = follow(&before, &registers, &known.ek, now);
    let golden = golden_of(&tx.golden_firmware_of(sku).await?);
    let stored: Body = serde_json::from_str(&row.body).unwrap_or_default();
    let judgement = Judgement {
        record,
        registers: &registers,
        update: stored.update.as_ref(),
        finding: compare(&registers, &golden, compared),
    };
    let fault = judgement.fault().filter(|_| policy != FirmwarePolicy::Recorded);
    row.reported = fault.clone().unwrap_or_default();
    if let Some(fault) = fault.as_ref().filter(|fault| **fault != before.reported) {
        tx.add_event(&judgement.event(now, fault)).await?;
    }
    if row != before {
        tx.put_firmware_values(&row).await?;
    }
    Ok(match fault {
        Some(fault) if is_held => Err(format!(
            "the settings hold machines of SKU {sku} without golden firmware: {fault}. {}",
            judgement.advice()
        )),
        _ => Ok(()),
    })
}

/// How the firmware of a node stands, for `rackwright node explain`.
///
/// # Errors
/// The database failed.
pub async fn explain(core: &Core, record: &NodeRecord) -> Result<v1::FactLine, StoreError> {
    let name = "firmware measurements".to_owned();
    let row = core.store.firmware_values(&record.id).await?;
    let Some(row) = row.filter(|row| !row.body.is_empty()) else {
        return Ok(v1::FactLine {
            name,
            value: "unknown: no enrolled TPM has said what firmware the machine has".to_owned(),
            time: None,
        });
    };
    let rows = core.store.golden_firmware_of(&record.spec.sku).await?;
    let stored: Body = serde_json::from_str(&row.body).unwrap_or_default();
    let judgement = Judgement {
        record,
        registers: &stored.registers,
        update: stored.update.as_ref(),
        finding: compare(
            &stored.registers,
            &golden_of(&rows),
            &core.config.identity.firmware_registers.0,
        ),
    };
    let value = match (&judgement.finding, judgement.fault()) {
        (Finding::Golden(id), _) => {
            let approved = rows.iter().find(|row| row.id == *id);
            let by = approved.map(|row| format!(", approved by {} on {}", row.approved_by, row.approved_at.date()));
            format!("golden values {id}{}", by.unwrap_or_default())
        }
        (_, fault) => format!("{}. {}", fault.unwrap_or_default(), judgement.advice()),
    };
    Ok(v1::FactLine {
        name,
        value,
        time: convert::time(row.first_seen_at),
    })
}

#[cfg(test)]
mod tests;
