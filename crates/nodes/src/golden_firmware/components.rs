//! Firmware measurements of components, read through the BMC (Redfish `ComponentIntegrity`, SPDM).
//!
//! They are read while the agent runs: the machine was restarted since the last customer, and no code of the customer
//! runs. A component that can sign has to sign a new nonce. Values without a signature are stored as the BMC's report
//! only.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rackwright_ground::bmc::BmcError;
use rackwright_ground::config::identity::Ignored;
use rackwright_ground::core::Core;
use rackwright_ground::text::{NAME_MAX, SENTENCE_MAX, cut};
use rackwright_identity::{Rng as _, SystemRng};
use rackwright_redfish::{BmcClient, ComponentIntegrity, ReportedMeasurement};
use rackwright_spdm::{Key, Measurement, hex, keys, sha256_hex, verify};
use rackwright_store::{NodeRecord, StoreError};
use serde::{Deserialize, Serialize};

use super::{CHANGES_MAX, parse, short};

/// Longest time for all components. A GPU signs in some seconds, and the BMC asks one component after the other.
const READ_LIMIT: Duration = Duration::from_secs(300);
/// Longest value that is stored as it is, in bytes. Longer values are stored as digests.
const VALUE_MAX: usize = 64;

/// A measurement of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Kind of the measured object.
    pub what: String,
    /// Hex digits, or `sha256:` and the digest of a longer value.
    pub value: String,
}

/// The measurements of one component, or why they are unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Component {
    /// SHA-256 of the key that signed, 64 hex digits; empty: the values are only reported by the BMC.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Why the values are unknown; empty if they are known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fault: String,
    /// Measurements by index.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub measurements: BTreeMap<u8, Measured>,
}

impl Component {
    /// Whether the component signed its values.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        !self.key.is_empty()
    }

    fn unknown(fault: impl fmt::Display) -> Self {
        Self {
            fault: cut(&fault.to_string(), SENTENCE_MAX),
            ..Self::default()
        }
    }
}

/// Components by the link of the measured object.
pub type Components = BTreeMap<String, Component>;

/// Result of reading all components.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComponentReading {
    pub components: Components,
    /// Why the reading failed; empty if it succeeded.
    pub fault: String,
}

/// Whether the components of a machine have to be read: the BMC offered it at the last identification, or golden values
/// of the SKU contain components.
pub async fn is_asked(core: &Core, record: &NodeRecord) -> Result<bool, StoreError> {
    if record.identity.attests_components {
        return Ok(true);
    }
    let golden = core.store.golden_firmware_of(&record.spec.sku).await?;
    for row in golden {
        if !parse(&row.id, &row.body)?.components.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the measurements of a machine's components.
pub async fn read(core: &Core, record: &NodeRecord) -> ComponentReading {
    let components = match tokio::time::timeout(READ_LIMIT, through_bmc(core, record)).await {
        Ok(read) => read,
        Err(_) => Err(format!("the BMC did not answer within {} s", READ_LIMIT.as_secs())),
    };
    match components {
        Ok(components) => ComponentReading {
            components,
            fault: String::new(),
        },
        Err(fault) => ComponentReading {
            components: Components::new(),
            fault,
        },
    }
}

async fn through_bmc(core: &Core, record: &NodeRecord) -> Result<Components, String> {
    let description = |error: BmcError| error.description(&record.spec.bmc_address);
    let client = core.bmcs.client(record, &core.keys.sealer).await.map_err(description)?;
    let listed = match client.component_integrity().await {
        Ok(listed) => listed.ok_or_else(|| "the BMC offers no ComponentIntegrity".to_owned())?,
        Err(error) => {
            drop(client);
            core.bmcs.forget(&record.id).await;
            return Err(description(BmcError::Redfish(error)));
        }
    };
    let mut components = Components::new();
    for one in listed {
        let mut name = cut(&one.target, NAME_MAX);
        let mut component = ask(&client, &one).await;
        if components.contains_key(&name) {
            component = Component::unknown("the BMC lists it twice");
            name.push_str(" (again)");
        }
        components.insert(name, component);
    }
    Ok(components)
}

async fn ask(client: &BmcClient, one: &ComponentIntegrity) -> Component {
    if !one.enabled {
        return Component::unknown("its attestation is switched off (ComponentIntegrityEnabled)");
    }
    if !one.signs() {
        return reported(&one.reported);
    }
    let mut nonce = [0; 32];
    if let Err(error) = SystemRng.fill(&mut nonce) {
        return Component::unknown(error);
    }
    let signed = match client.signed_measurements(one, &nonce).await {
        Ok(signed) => signed,
        Err(error) => return Component::unknown(error),
    };
    let known: Vec<Key> = signed.keys.iter().flat_map(|text| keys(text)).collect();
    match verify(&signed.statement, &nonce, &known) {
        Ok(proven) if proven.measurements.is_empty() => Component::unknown("it signs no measurement"),
        Ok(proven) => Component {
            key: proven.key_sha256,
            fault: String::new(),
            measurements: proven.measurements.iter().map(measured).collect(),
        },
        Err(refused) => Component::unknown(refused),
    }
}

fn reported(list: &[ReportedMeasurement]) -> Component {
    let word = |one: &ReportedMeasurement| {
        let what = cut(&one.kind, NAME_MAX);
        let value = value(&one.value);
        (one.index, Measured { what, value })
    };
    match list {
        [] => Component::unknown("it signs nothing, and the BMC shows no measurement of it"),
        list => Component {
            measurements: list.iter().map(word).collect(),
            ..Component::default()
        },
    }
}

fn measured(one: &Measurement) -> (u8, Measured) {
    // Value types of DSP0274, DMTFSpecMeasurementValueType.
    let what = match one.kind {
        0 => "immutable ROM",
        1 => "mutable firmware",
        2 => "hardware configuration",
        3 => "firmware configuration",
        4 => "manifest",
        5 => "device mode",
        6 => "firmware version",
        7 => "firmware security version",
        _ => "other",
    };
    let value = value(&one.value);
    let what = what.to_owned();
    (one.index, Measured { what, value })
}

fn value(bytes: &[u8]) -> String {
    match bytes.len() {
        0..=VALUE_MAX => hex(bytes),
        _ => format!("sha256:{}", sha256_hex(bytes)),
    }
}

/// The components without the ignored measurements.
pub(super) fn without_ignored(ignored: &Ignored, components: &Components) -> Components {
    let mut left = components.clone();
    for (name, component) in &mut left {
        component.measurements.retain(|index, _| !ignored.names(name, *index));
    }
    left
}

/// A component with other values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentDifference {
    /// Link of the component.
    pub name: String,
    /// Fault of the whole component; empty if only measurements differ.
    pub fault: String,
    /// Measurements with other values.
    pub measurements: Vec<MeasurementDifference>,
}

/// A measurement with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasurementDifference {
    /// Index of the measurement.
    pub index: u8,
    /// Kind of the measured object.
    pub what: String,
    /// The golden value; empty if the golden values lack it.
    pub expected: String,
    /// The machine's value; empty if the machine lacks it.
    pub found: String,
}

impl ComponentDifference {
    /// Number of differences, at least one.
    pub(super) fn weight(&self) -> usize {
        self.measurements.len().max(1)
    }
}

/// The components that differ. `unread` is the reason why components are missing.
pub(super) fn differing(found: &Components, golden: &Components, unread: &str) -> Vec<ComponentDifference> {
    let mut names: Vec<&String> = found.keys().chain(golden.keys()).collect();
    names.sort();
    names.dedup();
    let names = names.into_iter();
    names
        .filter_map(|name| differs(name, found.get(name), golden.get(name), unread))
        .collect()
}

fn differs(
    name: &str,
    found: Option<&Component>,
    golden: Option<&Component>,
    unread: &str,
) -> Option<ComponentDifference> {
    let wrong = |fault: String, measurements| {
        Some(ComponentDifference {
            name: name.to_owned(),
            fault,
            measurements,
        })
    };
    let Some(found) = found else {
        return match unread {
            "" => wrong("is not shown by the BMC".to_owned(), Vec::new()),
            why => wrong(format!("was not read: {why}"), Vec::new()),
        };
    };
    if !found.fault.is_empty() {
        return wrong(format!("is unknown: {}", found.fault), Vec::new());
    }
    let Some(golden) = golden else {
        return wrong("has no approved values".to_owned(), Vec::new());
    };
    let fault = match golden.is_signed() && !found.is_signed() {
        true => "is reported by the BMC only, and the approved values were signed by the component",
        false => "",
    };
    let mut indices: Vec<u8> = found
        .measurements
        .keys()
        .chain(golden.measurements.keys())
        .copied()
        .collect();
    indices.sort_unstable();
    indices.dedup();
    let of = |one: Option<&Measured>| one.map(|one| one.value.clone()).unwrap_or_default();
    let measurement = |index: u8| {
        let (actual, wanted) = (found.measurements.get(&index), golden.measurements.get(&index));
        let what = actual.or(wanted).map(|one| one.what.clone()).unwrap_or_default();
        let (found, expected) = (of(actual), of(wanted));
        (found != expected || actual.is_some() != wanted.is_some()).then_some(MeasurementDifference {
            index,
            what,
            expected,
            found,
        })
    };
    let measurements: Vec<MeasurementDifference> = indices.into_iter().filter_map(measurement).collect();
    if fault.is_empty() && measurements.is_empty() {
        return None;
    }
    wrong(fault.to_owned(), measurements)
}

impl fmt::Display for ComponentDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "component {}", self.name)?;
        if !self.fault.is_empty() {
            return write!(f, " {}", self.fault);
        }
        let description = self.measurements.iter().take(CHANGES_MAX).map(|one| {
            let MeasurementDifference {
                index,
                what,
                expected,
                found,
            } = one;
            match (found.as_str(), expected.as_str()) {
                ("", expected) => format!("index {index} ({what}) is missing and should be {}", short(expected)),
                (found, "") => format!(
                    "index {index} ({what}) is {}, and no value of it is approved",
                    short(found)
                ),
                (found, expected) => {
                    format!(
                        "index {index} ({what}) is {} and should be {}",
                        short(found),
                        short(expected)
                    )
                }
            }
        });
        write!(f, ": {}", description.collect::<Vec<_>>().join(", "))?;
        match self.measurements.len().checked_sub(CHANGES_MAX) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, ", and {more} more"),
        }
    }
}

/// Components that sign with another key than the stored one.
pub(super) fn other_keys(components: &Components, known: &BTreeMap<String, String>) -> Vec<String> {
    let is_other = |(name, one): &(&String, &Component)| {
        one.is_signed() && known.get(*name).is_some_and(|known| *known != one.key)
    };
    let other = components.iter().filter(is_other);
    other
        .map(|(name, one)| {
            let first = known.get(name).map(String::as_str).unwrap_or_default();
            format!(
                "component {name} signs with key {} and first signed with {}",
                short(&one.key),
                short(first)
            )
        })
        .collect()
}

/// The source of the components' values, in one sentence.
pub(super) fn description(components: &Components, fault: &str) -> String {
    if !fault.is_empty() {
        return format!("not read: {fault}");
    }
    let part = |intro: &str, wanted: &dyn Fn(&Component) -> bool| {
        let names: Vec<&str> = components
            .iter()
            .filter(|(_, one)| wanted(one))
            .map(|(name, _)| name.as_str())
            .collect();
        (!names.is_empty()).then(|| format!("{intro}: {}", names.join(", ")))
    };
    let faulty = components
        .iter()
        .filter(|(_, one)| !one.fault.is_empty())
        .map(|(name, one)| format!("unknown: {name} ({})", one.fault));
    let parts = [
        part("signed by the component", &|one| one.is_signed()),
        part("reported by the BMC", &|one| !one.is_signed() && one.fault.is_empty()),
    ];
    let description: Vec<String> = parts.into_iter().flatten().chain(faulty).collect();
    match description.is_empty() {
        true => "the BMC lists no component that SPDM measures".to_owned(),
        false => cut(&description.join(". "), SENTENCE_MAX),
    }
}
