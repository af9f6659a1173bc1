//! The quirk files: the built-in ones, and those of an optional folder of the operator, which are read after them.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rackwright_pattern::fits_any_case;
use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::etag::EtagRung;
use serde::Deserialize;

use super::update::UpdateOverrides;
use super::{AcCycle, BiosLock, BootPayload, ConsoleSsh, Equipment, Evidence, FIELDS, Profile, ReadBack};
use crate::bmc_state::{AccountRemoval, InBandSwitch};
use crate::capabilities::Capability;
use crate::event_log::ClearPayload;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../quirks/", $name, ".json")))),*]
    };
}

/// Built-in files, from general to specific: a later file overrides an earlier one.
const FILES: &[(&str, &str)] = built_in![
    "sushy-emulator",
    "openbmc",
    "ami-megarac",
    "gigabyte",
    "dell-idrac",
    "dell-idrac9",
    "dell-idrac10",
    "hpe-ilo",
    "hpe-ilo5",
    "hpe-ilo6",
    "lenovo-xcc",
    "lenovo-sr675-v3",
    "supermicro",
    "supermicro-x12",
    "supermicro-x13",
    "supermicro-x14",
    "nvidia-hgx-baseboard",
    "nvidia-dgx-h100",
    "nvidia-dgx-b200",
    "nvidia-gh200",
    "nvidia-gb200",
    "nvidia-gb300",
    "nvidia-nvlink-switch",
    "power-shelf-lite-on",
    "power-shelf-delta",
];

/// Most files of an operator's folder.
const MAX_FILES: usize = 256;
/// Largest file, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 10;

/// All profiles of a client, in the order in which they apply.
#[derive(Debug)]
pub struct QuirkSet {
    files: Vec<(String, QuirkFile)>,
}

impl QuirkSet {
    /// The built-in profiles.
    ///
    /// # Errors
    /// [`RedfishError::QuirkFile`] if one of them is faulty, which is a fault of this program.
    pub fn built_in() -> Result<Arc<Self>, RedfishError> {
        static PARSED: OnceLock<Arc<QuirkSet>> = OnceLock::new();
        if let Some(parsed) = PARSED.get() {
            return Ok(Arc::clone(parsed));
        }
        let parse = |(name, text): &(&str, &str)| Ok(((*name).to_owned(), QuirkFile::parse(name, text)?));
        let files = FILES.iter().map(parse).collect::<Result<_, RedfishError>>()?;
        Ok(Arc::clone(PARSED.get_or_init(|| Arc::new(Self { files }))))
    }

    /// The built-in profiles and then those of a folder: its `*.json` in the order of their names.
    ///
    /// # Errors
    /// [`RedfishError::QuirkFolder`] if the folder or a file in it cannot be read, [`RedfishError::QuirkFile`] with the
    /// file, place and field of the first fault.
    pub fn with_folder(folder: &Path) -> Result<Arc<Self>, RedfishError> {
        let failed = |path: &Path, source| RedfishError::QuirkFolder {
            path: path.display().to_string(),
            source,
        };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|source| failed(folder, source))? {
            let path = entry.map_err(|source| failed(folder, source))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                paths.push(path);
            }
            if paths.len() > MAX_FILES {
                let why = std::io::Error::other(format!("more than {MAX_FILES} files of profiles"));
                return Err(failed(folder, why));
            }
        }
        paths.sort();
        let mut files = Self::built_in()?.files.clone();
        for path in paths {
            let mut text = String::new();
            let read =
                std::fs::File::open(&path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
            read.map_err(|source| failed(&path, source))?;
            if text.len() as u64 > MAX_FILE_BYTES {
                let why = std::io::Error::other(format!("larger than {MAX_FILE_BYTES} bytes"));
                return Err(failed(&path, why));
            }
            let file = QuirkFile::parse(&path.display().to_string(), &text)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            files.push((name, file));
        }
        Ok(Arc::new(Self { files }))
    }

    /// The profile for the evidence; the standard's if no file matches.
    pub fn profile_for(&self, evidence: &Evidence) -> Profile {
        let mut profile = Profile::default();
        for (name, file) in &self.files {
            if file.applies_to(evidence) {
                profile.names.push(name.clone());
                file.set.apply(&mut profile);
            }
        }
        profile
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuirkFile {
    /// Sources of the facts; for readers only, but required.
    source: Vec<String>,
    /// A file matches if one of these holds; each holds if all its fields match.
    matches: Vec<BTreeMap<String, String>>,
    set: Overrides,
}

impl QuirkFile {
    fn parse(name: &str, text: &str) -> Result<Self, RedfishError> {
        let faulty = |why: String| RedfishError::QuirkFile {
            name: name.to_owned(),
            why,
        };
        let file: Self = serde_json::from_str(text).map_err(|fault| faulty(fault.to_string()))?;
        if file.source.iter().all(|source| source.trim().is_empty()) {
            return Err(faulty("`source` must name the sources of the facts".to_owned()));
        }
        if file.matches.is_empty() || file.matches.iter().any(BTreeMap::is_empty) {
            return Err(faulty(
                "`matches` needs at least one entry, and each entry at least one field".to_owned(),
            ));
        }
        let unknown = file
            .matches
            .iter()
            .flat_map(BTreeMap::keys)
            .find(|field| !FIELDS.contains(&field.as_str()));
        match unknown {
            Some(field) => Err(faulty(format!(
                "unknown field `{field}` in `matches`, expected one of {}",
                FIELDS.join(", ")
            ))),
            None => Ok(file),
        }
    }

    fn applies_to(&self, evidence: &Evidence) -> bool {
        let holds = |all: &BTreeMap<String, String>| {
            all.iter()
                .all(|(field, pattern)| evidence.values(field).any(|value| fits_any_case(pattern, value)))
        };
        self.matches.iter().any(holds)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Overrides {
    equipment: Option<Equipment>,
    etag_order: Option<Vec<EtagRung>>,
    boot_payload: Option<BootPayload>,
    boot_read_back: Option<Vec<ReadBack>>,
    forced_boot_targets: Option<Vec<String>>,
    cd_boot_targets: Option<Vec<String>>,
    avoided_reset_types: Option<Vec<String>>,
    clear_log_order: Option<Vec<ClearPayload>>,
    max_concurrent: Option<u8>,
    ac_cycle_actions: Option<Vec<AcCycle>>,
    bios_settings: Option<String>,
    bios_locks: Option<Vec<BiosLock>>,
    side_systems: Option<Vec<String>>,
    serial_is_sku: Option<bool>,
    update: UpdateOverrides,
    first_account_slot: Option<u32>,
    account_removal: Option<Vec<AccountRemoval>>,
    account_keys: Option<Vec<String>>,
    in_band: Option<Vec<InBandSwitch>>,
    console_ssh: Option<ConsoleSsh>,
    notes: BTreeMap<Capability, String>,
}

impl Overrides {
    fn apply(&self, profile: &mut Profile) {
        fn set<T: Clone>(to: &mut T, from: &Option<T>) {
            if let Some(from) = from {
                to.clone_from(from);
            }
        }
        self.update.apply(&mut profile.update);
        set(&mut profile.equipment, &self.equipment);
        set(&mut profile.etag_order, &self.etag_order);
        set(&mut profile.boot_payload, &self.boot_payload);
        set(&mut profile.boot_read_back, &self.boot_read_back);
        set(&mut profile.forced_boot_targets, &self.forced_boot_targets);
        set(&mut profile.cd_boot_targets, &self.cd_boot_targets);
        set(&mut profile.avoided_reset_types, &self.avoided_reset_types);
        if let Some(at_once) = self.max_concurrent {
            profile.max_concurrent = Some(at_once.into());
        }
        set(&mut profile.clear_log_order, &self.clear_log_order);
        set(&mut profile.ac_cycle_actions, &self.ac_cycle_actions);
        if self.bios_settings.is_some() {
            profile.bios_settings.clone_from(&self.bios_settings);
        }
        set(&mut profile.bios_locks, &self.bios_locks);
        set(&mut profile.side_systems, &self.side_systems);
        set(&mut profile.serial_is_sku, &self.serial_is_sku);
        set(&mut profile.first_account_slot, &self.first_account_slot);
        set(&mut profile.account_removal, &self.account_removal);
        set(&mut profile.account_keys, &self.account_keys);
        set(&mut profile.in_band, &self.in_band);
        if self.console_ssh.is_some() {
            profile.console_ssh.clone_from(&self.console_ssh);
        }
        profile.notes.extend(self.notes.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Resource;

    fn evidence(root: serde_json::Value, system: serde_json::Value, manager: serde_json::Value) -> Evidence {
        let resource = |body| Resource::new("/", None, body);
        Evidence::gather(&resource(root), Some(&resource(system)), Some(&resource(manager)))
    }

    #[test]
    fn every_built_in_file_is_listed_and_can_be_read() {
        let built_in = QuirkSet::built_in().unwrap();
        let mut listed: Vec<String> = built_in.files.iter().map(|(name, _)| format!("{name}.json")).collect();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("quirks");
        let there = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut there: Vec<String> = there.map(|name| name.into_string().unwrap()).collect();
        listed.sort();
        there.sort();
        assert_eq!(listed, there);
    }

    #[test]
    fn each_platform_gets_its_profiles() {
        let none = json!({});
        let hgx = ["DGX".to_owned(), "HGX_Baseboard_0".to_owned()];
        let nvidia = |model: &str| json!({"Manufacturer": "NVIDIA", "Model": model});
        for (evidence, names) in [
            (evidence(json!({"Vendor": "Acme"}), none.clone(), none.clone()), vec![]),
            (
                evidence(
                    none.clone(),
                    json!({"Manufacturer": "Supermicro", "Model": "SYS-821GE-TNHR"}),
                    none.clone(),
                ),
                vec!["supermicro", "supermicro-x13"],
            ),
            (
                evidence(
                    json!({"Vendor": "Dell"}),
                    none.clone(),
                    json!({"Model": "17G Monolithic"}),
                ),
                vec!["dell-idrac", "dell-idrac10"],
            ),
            (
                evidence(
                    json!({"Vendor": "Dell"}),
                    none.clone(),
                    json!({"Model": "15G Monolithic"}),
                ),
                vec!["dell-idrac", "dell-idrac9"],
            ),
            (
                evidence(json!({"Vendor": "HPE"}), none.clone(), json!({"Model": "iLO 6"})),
                vec!["hpe-ilo", "hpe-ilo6"],
            ),
            (
                evidence(json!({"Vendor": "AMI"}), nvidia("DGXH100"), none.clone()).with_systems(&hgx),
                vec!["ami-megarac", "nvidia-hgx-baseboard", "nvidia-dgx-h100"],
            ),
            (
                evidence(
                    json!({"Vendor": "NVIDIA", "Product": "GB200 NVL"}),
                    nvidia("GB200 NVL"),
                    json!({"Model": "OpenBmc"}),
                ),
                vec!["openbmc", "nvidia-gb200"],
            ),
            (
                evidence(
                    json!({"Vendor": "NVIDIA", "Product": "GB BMC"}),
                    nvidia("NVIDIA GB300"),
                    none.clone(),
                ),
                vec!["nvidia-gb200", "nvidia-gb300"],
            ),
            (
                evidence(json!({"Vendor": "Lite-On Technology Corp."}), none.clone(), none),
                vec!["power-shelf-lite-on"],
            ),
        ] {
            let profile = QuirkSet::built_in().unwrap().profile_for(&evidence);
            assert_eq!(profile.names, names, "{evidence:?}");
        }
    }

    #[test]
    fn silent_equipment_is_known_by_its_chassis() {
        let chassis = |id: &str, maker: &str| Resource::new("/c", None, json!({"Id": id, "Manufacturer": maker}));
        let root = |product: &str| Resource::new("/", None, json!({"Product": product}));
        let equipment = |root: Resource, chassis: Resource| {
            let evidence = Evidence::gather(&root, None, None).with_chassis(&[chassis]);
            QuirkSet::built_in().unwrap().profile_for(&evidence).equipment
        };
        assert_eq!(
            equipment(root(""), chassis("powershelf", "DELTA")),
            Equipment::PowerShelf
        );
        assert_eq!(
            equipment(root("P3809"), chassis("MGX_NVSwitch_0", "NVIDIA")),
            Equipment::Switch
        );
        assert_eq!(
            equipment(root("P3809"), chassis("Chassis_0", "NVIDIA")),
            Equipment::Machine
        );
    }

    #[test]
    fn the_operators_folder_has_precedence() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, set: serde_json::Value| {
            let text = json!({"source": ["seen here"], "matches": [{"root.Vendor": "AMI*"}], "set": set}).to_string();
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        file("20-later.json", json!({"boot_payload": "changed"}));
        file(
            "10-first.json",
            json!({"boot_payload": "with_enabled", "notes": {"boot-pxe": "first"}}),
        );
        std::fs::write(folder.path().join("README"), "no profile").unwrap();
        let set = QuirkSet::with_folder(folder.path()).unwrap();
        let profile = set.profile_for(&evidence(json!({"Vendor": "AMI"}), json!({}), json!({})));
        assert_eq!(profile.names, ["ami-megarac", "10-first", "20-later"]);
        assert_eq!(
            (profile.boot_payload, profile.etag_order[0]),
            (BootPayload::Changed, EtagRung::Star)
        );
        assert_eq!(profile.notes[&Capability::BootPxe], "first");
    }

    #[test]
    fn a_faulty_file_is_named_with_the_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.json");
        for (text, words) in [
            (
                r#"{"source": ["x"], "matches": [{"root.Vendor": "A"}], "set": {"boot_paylod": "full"}}"#,
                "boot_paylod",
            ),
            (
                r#"{"source": ["x"], "matches": [{"root.Vendr": "A"}], "set": {}}"#,
                "root.Vendr",
            ),
            (
                r#"{"source": [], "matches": [{"root.Vendor": "A"}], "set": {}}"#,
                "`source`",
            ),
            (r#"{"source": ["x"], "matches": [{}], "set": {}}"#, "`matches`"),
            (
                r#"{"source": ["x"], "matches": [{"root.Vendor": "A"}], "set": {"notes": {"boot-pxx": "a"}}}"#,
                "boot-pxx",
            ),
            (r#"{"source": ["x"], "extra": 1}"#, "extra"),
            ("{", "line 1"),
        ] {
            std::fs::write(&path, text).unwrap();
            let failure = QuirkSet::with_folder(folder.path()).unwrap_err().to_string();
            assert!(failure.contains("mine.json") && failure.contains(words), "{failure}");
        }
        std::fs::write(&path, " ".repeat(300 << 10)).unwrap();
        let failure = QuirkSet::with_folder(folder.path()).unwrap_err();
        assert!(matches!(failure, RedfishError::QuirkFolder { .. }), "{failure}");
        assert!(QuirkSet::with_folder(&folder.path().join("nowhere")).is_err());
    }
}
