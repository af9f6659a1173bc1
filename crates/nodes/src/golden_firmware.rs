//! Compares the firmware of machines, as measured by their TPMs and components, with the golden values of their SKU.
//!
//! An operator approves the values of a good node (the call in `firmware/golden.rs` of `rackwright-grpc`). A session is
//! compared if its node is known by its TPM, or if its BMC reports component measurements. The settings `identity.firmware`
//! state what follows from a difference.

pub mod components;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rackwright_api::v1;
use rackwright_ground::clock;
use rackwright_ground::config::identity::{FirmwarePolicy, Ignored};
use rackwright_ground::core::Core;
use rackwright_ground::stored;
use rackwright_ground::text::{SENTENCE_MAX, cut};
use rackwright_lifecycle::{EventKind, State, Timestamp};
use rackwright_store::{EventRow, FirmwareValuesRow, GoldenFirmwareRow, NodeRecord, StoreError, WriteTx};
use rackwright_tpm::firmware::{REGISTERS, name, purpose};
use rackwright_tpm::log::Event;
use rackwright_tpm::pcr::Values as Quoted;
use rackwright_tpm::{sha256, sha256_text};
use serde::{Deserialize, Serialize};

use self::components::{ComponentDifference, ComponentReading, Components};
use crate::attestation::{BY_TPM, MachineIdentity, TpmEvidence};

/// Most stored events of a register: they only name the difference; the register's value decides.
const EVENTS_MAX: usize = 128;
/// Most changes of a register that are named.
const CHANGES_MAX: usize = 4;
/// Most components with attributes in an event.
const COMPONENTS_MAX: usize = 16;
/// Hexadecimal digits of a digest in a sentence.
const SHORT_DIGITS: usize = 12;

/// One measurement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Measured {
    /// The measured object, as the event log names it.
    pub name: String,
    /// `sha256:` and 64 hex digits.
    pub digest: String,
}

/// A PCR.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The quoted value: `sha256:` and 64 hex digits.
    pub value: String,
    /// Its entries in the event log; empty: the firmware keeps no log.
    pub events: Vec<Measured>,
}

/// Registers of the firmware, by number.
pub type Registers = BTreeMap<u8, Register>;

/// The firmware's registers in a quote, with the events of a log that replays to them.
#[must_use]
pub fn registers(quoted: &Quoted, log: &[Event<'_>]) -> Registers {
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

/// The values of a machine, or approved values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Values {
    /// PCR values from the TPM.
    pub registers: Registers,
    /// Measurements of components.
    pub components: Components,
    /// Why no components were read; empty: they were read, or there were none to read.
    pub unread: String,
}

/// Parses the stored values of a node, or stored golden values.
///
/// # Errors
/// The body has another form.
pub fn parse(id: &str, body: &str) -> Result<Values, StoreError> {
    Ok(body_of(id, body)?.values())
}

fn body_of(id: &str, body: &str) -> Result<Body, StoreError> {
    stored::json("values of firmware", id, body)
}

/// The body for approval: each component's present signing key becomes its accepted key.
///
/// # Errors
/// The body does not parse, or a component was not read, so that its values cannot be approved.
pub fn approve(body: &str) -> Result<String, String> {
    let mut body: Body = serde_json::from_str(body).map_err(|error| format!("its values cannot be read: {error}"))?;
    if !body.unread.is_empty() {
        return Err(format!("its components were not read: {}", body.unread));
    }
    for (name, one) in &body.components {
        if !one.fault.is_empty() {
            return Err(format!("component {name} is unknown: {}", one.fault));
        }
        if one.is_signed() {
            body.keys.insert(name.clone(), one.key.clone());
        }
    }
    serde_json::to_string(&body).map_err(|error| error.to_string())
}

/// The stored form.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Body {
    registers: Registers,
    #[serde(skip_serializing_if = "Components::is_empty")]
    components: Components,
    /// Why no components were read.
    #[serde(skip_serializing_if = "String::is_empty")]
    unread: String,
    /// SHA-256 of each component's signing key: its first one, or the one at the approval of its values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    keys: BTreeMap<String, String>,
    /// The control plane's firmware update before these values.
    #[serde(skip_serializing_if = "Option::is_none")]
    update: Option<Update>,
}

impl Body {
    fn values(&self) -> Values {
        Values {
            registers: self.registers.clone(),
            components: self.components.clone(),
            unread: self.unread.clone(),
        }
    }
}

/// A firmware update by the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    at: Timestamp,
    to: String,
}

/// The id of golden values: equal values of a SKU have the same id.
#[must_use]
pub fn id_of(sku: &str, shown: &Values) -> String {
    let mut values: Vec<String> = shown
        .registers
        .iter()
        .map(|(pcr, register)| format!("{pcr} {}\n", register.value))
        .collect();
    for (name, component) in &shown.components {
        let by = if component.is_signed() { "signed" } else { "said" };
        values.push(format!("component {} {name} {by}\n", name.len()));
        let measured = component.measurements.iter();
        values.extend(measured.map(|(index, one)| format!("{index} {}\n", one.value)));
    }
    let length = (sku.len() as u64).to_be_bytes();
    let digest = sha256(&[&length, sku.as_bytes(), values.concat().as_bytes()]);
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// How a machine's firmware compares with the golden values of its SKU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It has the golden values with this id.
    Golden(String),
    /// It has none of the SKU's golden values.
    Differs(Difference),
    /// The SKU has no golden values.
    NoneApproved,
}

/// A difference from the nearest golden values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The id of the golden values.
    pub golden: String,
    /// The registers that differ.
    pub registers: Vec<RegisterDifference>,
    /// The components that differ.
    pub components: Vec<ComponentDifference>,
}

/// A register that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterDifference {
    /// The number of the PCR.
    pub pcr: u8,
    /// The golden value; empty: the golden values lack this register.
    pub expected: String,
    /// The machine's value.
    pub found: String,
    /// The changes in it, from the event logs.
    pub changes: Vec<String>,
}

/// Compares these registers and all components of a machine with all golden values of its SKU: one set has to match in all
/// of them.
#[must_use]
pub fn compare(found: &Values, golden: &[(String, Values)], compared: &BTreeSet<u8>, ignored: &Ignored) -> Finding {
    let components = components::without_ignored(ignored, &found.components);
    let against = |(id, golden): &(String, Values)| Difference {
        golden: id.clone(),
        registers: compared
            .iter()
            .filter_map(|pcr| differing(*pcr, found.registers.get(pcr), golden.registers.get(pcr)))
            .collect(),
        components: components::differing(
            &components,
            &components::without_ignored(ignored, &golden.components),
            &found.unread,
        ),
    };
    match golden.iter().map(against).min_by_key(Difference::weight) {
        None => Finding::NoneApproved,
        Some(nearest) if nearest.weight() == 0 => Finding::Golden(nearest.golden),
        Some(nearest) => Finding::Differs(nearest),
    }
}

/// `None`: the register has the golden value.
fn differing(pcr: u8, found: Option<&Register>, golden: Option<&Register>) -> Option<RegisterDifference> {
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
    Some(RegisterDifference {
        pcr,
        expected: value(golden),
        found: value(found),
        changes,
    })
}

/// The measurements that changed, are new or are missing.
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
    digits.get(..SHORT_DIGITS).unwrap_or(digits)
}

impl fmt::Display for RegisterDifference {
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
        let registers = self.registers.iter().map(ToString::to_string);
        let components = self.components.iter().map(ToString::to_string);
        f.write_str(&registers.chain(components).collect::<Vec<_>>().join("; "))
    }
}

impl Difference {
    fn weight(&self) -> usize {
        let components: usize = self.components.iter().map(ComponentDifference::weight).sum();
        self.registers.len() + components
    }

    /// Why a firmware update does not explain the difference. An update changes neither the Secure Boot policy nor a
    /// component's ability to prove itself.
    fn not_from_update(&self) -> Option<&'static str> {
        if self.registers.iter().any(|register| register.pcr == 7) {
            return Some("an update does not explain a change of PCR 7");
        }
        let is_unproven = self.components.iter().any(|one| !one.fault.is_empty());
        is_unproven.then_some("an update does not explain a component without proof")
    }
}

/// A node's values and their comparison.
struct Judgement<'a> {
    record: &'a NodeRecord,
    body: &'a Body,
    finding: Finding,
}

impl Judgement<'_> {
    /// The fault, as a sentence without its full stop. `None`: the values are golden.
    fn fault(&self) -> Option<String> {
        let (id, sku) = (&self.record.id, &self.record.spec.sku);
        let other_keys = components::other_keys(&self.body.components, &self.body.keys);
        match &self.finding {
            Finding::Golden(_) if other_keys.is_empty() => None,
            Finding::Golden(golden) => Some(format!(
                "the firmware of {id} has the golden values {golden} of SKU {sku}, but {}: the part was exchanged, or \
                 another device answers for the part",
                cut(&other_keys.join("; "), SENTENCE_MAX)
            )),
            Finding::NoneApproved => Some(format!("no golden values of firmware are approved for SKU {sku}")),
            Finding::Differs(difference) => {
                let words = cut(&difference.to_string(), SENTENCE_MAX);
                let golden = &difference.golden;
                let differs =
                    format!("the firmware of {id} differs from the golden values {golden} of SKU {sku}: {words}");
                Some(match (&self.body.update, difference.not_from_update()) {
                    (Some(Update { at, to }), None) => format!(
                        "Rackwright updated {to} at {}, and the new values are not approved: {differs}",
                        at.date()
                    ),
                    (Some(Update { at, to }), Some(why)) => {
                        format!("{differs}. Rackwright updated {to} at {}; {why}", at.date())
                    }
                    (None, _) => format!("{differs}. No update by Rackwright explains it"),
                })
            }
        }
    }

    fn advice(&self) -> String {
        let (id, set) = (&self.record.id, id_of(&self.record.spec.sku, &self.body.values()));
        let again = match self.record.node.state {
            State::Inspecting => "retry",
            _ => "readmit",
        };
        format!(
            "If these values are correct: `rackwright firmware golden add --from-node {id} --values {set} --reason \
             TEXT`, then `rackwright node {again} {id}` if the node was given up"
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
            for component in difference.components.iter().take(COMPONENTS_MAX) {
                let name = &component.name;
                if !component.fault.is_empty() {
                    attributes.insert(format!("component {name}"), component.fault.clone());
                }
                for one in component.measurements.iter().take(CHANGES_MAX) {
                    attributes.insert(format!("component {name} {}_expected", one.index), one.expected.clone());
                    attributes.insert(format!("component {name} {}_found", one.index), one.found.clone());
                }
            }
        }
        EventRow {
            at,
            kind: EventKind::SecurityFirmwareNotGolden,
            target: format!("nodes/{id}"),
            message: format!("{fault}. {}", self.advice()),
            attributes: attributes.into_iter().collect(),
            ..EventRow::default()
        }
    }
}

fn golden_of(rows: &[GoldenFirmwareRow]) -> Result<Vec<(String, Values)>, StoreError> {
    let golden = |row: &GoldenFirmwareRow| Ok((row.id.clone(), parse(&row.id, &row.body)?));
    rows.iter().map(golden).collect()
}

/// The row after a session that showed these values. An update by the control plane explains the first change after it, and
/// no later one. A component's first signing key is kept.
fn next_row(
    before: &FirmwareValuesRow,
    found: &Values,
    ek: &str,
    now: Timestamp,
) -> Result<FirmwareValuesRow, StoreError> {
    let stored = body_of(before.node.as_str(), &before.body)?;
    let mut row = before.clone();
    (row.updated_at, row.updated_to) = (Timestamp(0), String::new());
    let mut keys = stored.keys.clone();
    for (name, one) in found.components.iter().filter(|(_, one)| one.is_signed()) {
        keys.entry(name.clone()).or_insert_with(|| one.key.clone());
    }
    let values = |registers: &Registers| -> Vec<(u8, String)> {
        registers.iter().map(|(pcr, one)| (*pcr, one.value.clone())).collect()
    };
    let is_same = values(&stored.registers) == values(&found.registers)
        && (&stored.components, &stored.unread) == (&found.components, &found.unread);
    if is_same && keys == stored.keys && before.tpm_ek == ek && !before.body.is_empty() {
        return Ok(row);
    }
    let update = (before.updated_at != Timestamp(0)).then(|| Update {
        at: before.updated_at,
        to: before.updated_to.clone(),
    });
    let Values {
        registers,
        components,
        unread,
    } = found.clone();
    let body = Body {
        registers,
        components,
        unread,
        keys,
        update,
    };
    row.first_seen_at = now;
    row.tpm_ek = ek.to_owned();
    row.body = serde_json::to_string(&body).unwrap_or_default();
    Ok(row)
}

/// The firmware values of a session. `None`: there are none. The error states why the machine is refused.
fn shown_values(
    core: &Core,
    record: &NodeRecord,
    known: &MachineIdentity,
    shown: &TpmEvidence,
    reading: Option<&ComponentReading>,
) -> Result<Option<Values>, String> {
    let (id, sku) = (&record.id, &record.spec.sku);
    let registers = match shown {
        TpmEvidence::Tpm(proof) if known.identity == BY_TPM => Some(proof.firmware.clone()),
        _ if core.config.identity.of(sku).firmware == FirmwarePolicy::Hold => {
            return Err(format!(
                "the settings hold machines of SKU {sku} without golden firmware, and no enrolled TPM proves the \
                 firmware of {id}"
            ));
        }
        _ => None,
    };
    if registers.is_none() && reading.is_none() {
        return Ok(None);
    }
    let mut registers = registers.unwrap_or_default();
    registers.retain(|pcr, _| core.config.identity.firmware_registers.0.contains(pcr));
    let ComponentReading { components, fault } = reading.cloned().unwrap_or_default();
    Ok(Some(Values {
        registers,
        components,
        unread: fault,
    }))
}

/// Compares stored values. A machine without a TPM is compared by its components alone.
fn finding(core: &Core, body: &Body, golden: &[GoldenFirmwareRow]) -> Result<Finding, StoreError> {
    let settings = &core.config.identity;
    let none = BTreeSet::new();
    let compared = match body.registers.is_empty() {
        true => &none,
        false => &settings.firmware_registers.0,
    };
    let ignored = &settings.firmware_ignored_measurements;
    Ok(compare(&body.values(), &golden_of(golden)?, compared, ignored))
}

/// Compares the firmware values of a session and stores them: the TPM's values, and the component values read just before.
/// The inner error states why the machine is refused. The node is locked.
pub async fn judge(
    core: &Core,
    tx: &mut WriteTx,
    record: &NodeRecord,
    known: &MachineIdentity,
    shown: &TpmEvidence,
    reading: Option<&ComponentReading>,
) -> Result<Result<(), String>, StoreError> {
    let (id, sku) = (&record.id, &record.spec.sku);
    let policy = core.config.identity.of(sku).firmware;
    let values = match shown_values(core, record, known, shown, reading) {
        Ok(Some(values)) => values,
        Ok(None) => return Ok(Ok(())),
        Err(why) => return Ok(Err(why)),
    };
    let now = clock::now();
    let before = tx.firmware_values(id).await?.unwrap_or_else(|| FirmwareValuesRow {
        node: id.clone(),
        ..FirmwareValuesRow::default()
    });
    let mut row = next_row(&before, &values, &known.ek, now)?;
    let golden = tx.golden_firmware_of(sku).await?;
    let stored = body_of(id.as_str(), &row.body)?;
    let judgement = Judgement {
        record,
        body: &stored,
        finding: finding(core, &stored, &golden)?,
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
        Some(fault) if policy == FirmwarePolicy::Hold => Err(format!(
            "the settings hold machines of SKU {sku} without golden firmware: {fault}. {}",
            judgement.advice()
        )),
        _ => Ok(()),
    })
}

/// How a node's firmware compares, and which source measured its components, for `rackwright node explain`.
pub async fn explain(core: &Core, record: &NodeRecord) -> Result<[v1::FactLine; 2], StoreError> {
    let line = |name: &str, value: String, time| v1::FactLine {
        name: name.to_owned(),
        value,
        time,
    };
    let (name, of_components) = ("firmware measurements", "firmware components");
    let row = core.store.firmware_values(&record.id).await?;
    let row = row.filter(|row| !row.body.is_empty());
    let stored = body_of(record.id.as_str(), row.as_ref().map_or("", |row| row.body.as_str()))?;
    let reads_components =
        record.identity.attests_components || !stored.components.is_empty() || !stored.unread.is_empty();
    let components = match reads_components {
        false => "not offered by the BMC".to_owned(),
        true if row.is_none() => "not read yet".to_owned(),
        true => components::description(&stored.components, &stored.unread),
    };
    let Some(row) = row else {
        let unknown = "unknown: no enrolled TPM has proven the firmware of the machine";
        return Ok([
            line(name, unknown.to_owned(), None),
            line(of_components, components, None),
        ]);
    };
    let rows = core.store.golden_firmware_of(&record.spec.sku).await?;
    let judgement = Judgement {
        record,
        body: &stored,
        finding: finding(core, &stored, &rows)?,
    };
    let value = match (&judgement.finding, judgement.fault()) {
        (Finding::Golden(id), None) => {
            let approved = rows.iter().find(|row| row.id == *id);
            let by = approved.map(|row| format!(", approved by {} on {}", row.approved_by, row.approved_at.date()));
            format!("golden values {id}{}", by.unwrap_or_default())
        }
        (_, fault) => format!("{}. {}", fault.unwrap_or_default(), judgement.advice()),
    };
    let seen = clock::to_proto(row.first_seen_at);
    Ok([line(name, value, seen), line(of_components, components, seen)])
}

#[cfg(test)]
mod tests;
