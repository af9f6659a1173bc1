//! What single BMCs need done differently, as data.
//!
//! Each file in `quirks/` of this crate holds one profile: where its facts come from, what a BMC must say about itself
//! to match, and which mechanisms are set otherwise. The code below and everywhere else knows mechanisms, never
//! vendors. All matching files apply, a later one over an earlier one, in the order of [`FILES`].

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::error::RedfishError;
use crate::etag::{DEFAULT_ORDER, EtagRung};
use crate::resource::Resource;
use crate::views::ServiceRoot;

/// Files from the general to the particular.
const FILES: [(&str, &str); 7] = [
    ("sushy-emulator", include_str!("../../quirks/sushy-emulator.json")),
    ("ami-megarac", include_str!("../../quirks/ami-megarac.json")),
    ("dell-idrac", include_str!("../../quirks/dell-idrac.json")),
    ("hpe-ilo", include_str!("../../quirks/hpe-ilo.json")),
    ("lenovo-xcc", include_str!("../../quirks/lenovo-xcc.json")),
    ("nvidia-gh200", include_str!("../../quirks/nvidia-gh200.json")),
    ("supermicro", include_str!("../../quirks/supermicro.json")),
];

/// What a BMC says about itself, from several places because none is filled everywhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    fields: Vec<(&'static str, String)>,
}

impl Evidence {
    /// Collects it from the service root and, where they are known, the system and the manager.
    pub fn gather(root: &Resource, system: Option<&Resource>, manager: Option<&Resource>) -> Self {
        let mut fields = Vec::new();
        let mut add = |name, value: Option<String>| fields.extend(value.map(|value| (name, value)));
        add("root.Vendor", root.fact(&["Vendor"]));
        add("root.Product", root.fact(&["Product"]));
        add("root.Name", root.fact(&["Name"]));
        for name in ServiceRoot::from(root.clone()).oem_names() {
            add("root.Oem", Some(name));
        }
        add(
            "system.Manufacturer",
            system.and_then(|system| system.fact(&["Manufacturer"])),
        );
        add("system.Model", system.and_then(|system| system.fact(&["Model"])));
        add("manager.Model", manager.and_then(|manager| manager.fact(&["Model"])));
        add(
            "manager.FirmwareVersion",
            manager.and_then(|manager| manager.fact(&["FirmwareVersion"])),
        );
        Self { fields }
    }

    fn says(&self, field: &str, pattern: &str) -> bool {
        self.fields
            .iter()
            .any(|(name, value)| *name == field && matches(pattern, value))
    }
}

/// Letter case is ignored; a `*` at the end stands for anything.
fn matches(pattern: &str, value: &str) -> bool {
    let (pattern, value) = (pattern.to_ascii_lowercase(), value.to_ascii_lowercase());
    match pattern.strip_suffix('*') {
        Some(beginning) => value.starts_with(beginning),
        None => value == pattern,
    }
}

/// How much of the boot override is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BootPayload {
    /// The target, and else only what changes: some BMCs refuse an unchanged value.
    Changed,
    /// Target and enabled.
    WithEnabled,
    /// Target, enabled and mode.
    Full,
}

/// A known difference between what is written and what is read back.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReadBack {
    /// The property below `Boot`.
    pub property: String,
    /// What was written.
    pub wanted: String,
    /// What is read.
    pub seen: String,
    /// What that means.
    pub note: String,
}

/// Mechanisms as the code asks for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Names of the files that apply.
    pub names: Vec<String>,
    /// Order of `If-Match` values.
    pub etag_order: Vec<EtagRung>,
    /// How much of the boot override is written.
    pub boot_payload: BootPayload,
    /// Differences that are known.
    pub boot_read_back: Vec<ReadBack>,
    /// Targets that work although they are not listed.
    pub forced_boot_targets: Vec<String>,
    /// Targets to prefer for a CD.
    pub cd_boot_targets: Vec<String>,
    /// Reset types that are listed but do harm.
    pub avoided_reset_types: Vec<String>,
    /// Whether the serial number on the machine's label is its `SKU`.
    pub serial_is_sku: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            etag_order: DEFAULT_ORDER.to_vec(),
            boot_payload: BootPayload::Changed,
            boot_read_back: Vec::new(),
            forced_boot_targets: Vec::new(),
            cd_boot_targets: vec!["Cd".to_owned(), "UsbCd".to_owned()],
            avoided_reset_types: Vec::new(),
            serial_is_sku: false,
        }
    }
}

/// A quirk file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuirkFile {
    /// Where the facts come from; for readers only, but required.
    #[serde(rename = "source")]
    _source: Vec<String>,
    /// One of these must hold; each holds if all its fields do.
    matches: Vec<std::collections::BTreeMap<String, String>>,
    set: Overrides,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Overrides {
    etag_order: Option<Vec<EtagRung>>,
    boot_payload: Option<BootPayload>,
    boot_read_back: Option<Vec<ReadBack>>,
    forced_boot_targets: Option<Vec<String>>,
    cd_boot_targets: Option<Vec<String>>,
    avoided_reset_types: Option<Vec<String>>,
    serial_is_sku: Option<bool>,
}

fn files() -> Result<&'static [(&'static str, QuirkFile)], RedfishError> {
    static PARSED: OnceLock<Vec<(&'static str, QuirkFile)>> = OnceLock::new();
    if let Some(parsed) = PARSED.get() {
        return Ok(parsed);
    }
    let parse = |(name, text): (&'static str, &str)| {
        serde_json::from_str(text)
            .map(|file| (name, file))
            .map_err(|source| RedfishError::QuirkFile { name, source })
    };
    let parsed = FILES.into_iter().map(parse).collect::<Result<_, _>>()?;
    Ok(PARSED.get_or_init(|| parsed))
}

/// The profile that the evidence asks for; the standard's where nothing matches.
///
/// # Errors
/// [`RedfishError::QuirkFile`] if a built-in file is faulty.
pub fn profile_for(evidence: &Evidence) -> Result<Profile, RedfishError> {
    let mut profile = Profile::default();
    for (name, file) in files()? {
        let holds = |all: &std::collections::BTreeMap<String, String>| {
            !all.is_empty() && all.iter().all(|(field, pattern)| evidence.says(field, pattern))
        };
        if file.matches.iter().any(holds) {
            profile.names.push((*name).to_owned());
            file.set.apply(&mut profile);
        }
    }
    Ok(profile)
}

impl Overrides {
    fn apply(&self, profile: &mut Profile) {
        fn set<T: Clone>(to: &mut T, from: &Option<T>) {
            if let Some(from) = from {
                to.clone_from(from);
            }
        }
        set(&mut profile.etag_order, &self.etag_order);
        set(&mut profile.boot_payload, &self.boot_payload);
        set(&mut profile.boot_read_back, &self.boot_read_back);
        set(&mut profile.forced_boot_targets, &self.forced_boot_targets);
        set(&mut profile.cd_boot_targets, &self.cd_boot_targets);
        set(&mut profile.avoided_reset_types, &self.avoided_reset_types);
        set(&mut profile.serial_is_sku, &self.serial_is_sku);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn profile(root: serde_json::Value, system: serde_json::Value) -> Profile {
        let (root, system) = (Resource::new("/", None, root), Resource::new("/s", None, system));
        profile_for(&Evidence::gather(&root, Some(&system), None)).unwrap()
    }

    #[test]
    fn every_file_can_be_read_and_names_fields_that_exist() {
        let known = [
            "root.Vendor",
            "root.Product",
            "root.Name",
            "root.Oem",
            "system.Manufacturer",
            "system.Model",
            "manager.Model",
            "manager.FirmwareVersion",
        ];
        for (name, file) in files().unwrap() {
            assert!(!file._source.is_empty(), "{name} names no source");
            assert!(!file.matches.is_empty(), "{name} matches nothing");
            for field in file.matches.iter().flat_map(|all| all.keys()) {
                assert!(known.contains(&field.as_str()), "{name}: {field}");
            }
        }
    }

    #[test]
    fn unknown_machines_follow_the_standard() {
        assert_eq!(profile(json!({"Vendor": "Acme"}), json!({})), Profile::default());
    }

    #[test]
    fn machines_are_known_by_several_fields() {
        let silent_root = json!({"Oem": {"Supermicro": {}}});
        assert_eq!(profile(silent_root, json!({})).boot_payload, BootPayload::WithEnabled);
        assert_eq!(
            profile(json!({}), json!({"Manufacturer": "supermicro"})).boot_payload,
            BootPayload::WithEnabled
        );
        let dell = profile(json!({"Vendor": "Dell"}), json!({"Manufacturer": "Dell Inc."}));
        assert!(dell.serial_is_sku);
        let ami = profile(json!({"Vendor": "AMI"}), json!({"Manufacturer": "GIGABYTE"}));
        assert_eq!(
            (ami.etag_order[0], ami.boot_payload),
            (EtagRung::Star, BootPayload::Full)
        );
    }
}
