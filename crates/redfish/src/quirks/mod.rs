//! The peculiarities of single BMCs, as data.
//!
//! Each file in `quirks/` of this crate holds one profile: the sources of its facts, the properties that a BMC must
//! have to match, and the mechanisms that differ. The code below and everywhere else knows mechanisms, not vendors.
//! All matching files apply; a later file overrides an earlier one, and the files of the operator's folder come last
//! ([`QuirkSet`]).

mod files;
mod update;

use std::collections::BTreeMap;

use rackwright_redfish_wire::etag::{DEFAULT_ORDER, EtagRung};
use serde::{Deserialize, Serialize};

pub use files::QuirkSet;
pub use update::{ActivationRule, UpdateMethod, UpdateProfile, UpdateTargets};

use crate::bmc_state::{AccountRemoval, InBandSwitch};
use crate::capabilities::Capability;
use crate::event_log::{CLEAR_ORDER, ClearPayload};
use crate::resource::Resource;
use crate::views::ServiceRoot;

/// The fields on which files may match.
const FIELDS: [&str; 11] = [
    "root.Vendor",
    "root.Product",
    "root.Name",
    "root.Oem",
    "system.Manufacturer",
    "system.Model",
    "systems.Id",
    "manager.Model",
    "manager.FirmwareVersion",
    "chassis.Id",
    "chassis.Manufacturer",
];

/// The properties that identify a BMC, from several resources because none has them on all BMCs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    fields: Vec<(&'static str, String)>,
}

impl Evidence {
    /// Collects the evidence from the service root and, if known, from the system and the manager.
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

    /// Adds the ids of all systems that the BMC lists.
    pub fn with_systems(mut self, ids: &[String]) -> Self {
        self.fields.extend(ids.iter().map(|id| ("systems.Id", id.clone())));
        self
    }

    /// Adds the properties of chassis, where root and system do not identify the machine.
    pub fn with_chassis(mut self, chassis: &[Resource]) -> Self {
        for one in chassis {
            self.fields.push(("chassis.Id", one.id()));
            let maker = one.fact(&["Manufacturer"]);
            self.fields.extend(maker.map(|maker| ("chassis.Manufacturer", maker)));
        }
        self
    }

    fn values<'a>(&'a self, field: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.fields.iter().filter(move |(name, _)| *name == field);
        named.map(|(_, value)| value.as_str())
    }
}

/// The kind of equipment that a BMC manages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Equipment {
    /// A server.
    #[default]
    Machine,
    /// A switch, such as an NVLink switch.
    Switch,
    /// A shelf of power supplies.
    PowerShelf,
}

/// How much of the boot override is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BootPayload {
    /// The target, and otherwise only changed values: some BMCs refuse an unchanged value.
    Changed,
    /// Target and enabled.
    WithEnabled,
    /// Target, enabled and mode.
    Full,
}

/// A known difference between the written and the read value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReadBack {
    /// The property below `Boot`.
    pub property: String,
    /// The written value.
    pub wanted: String,
    /// The value that was read.
    pub seen: String,
    /// Why the difference is harmless.
    pub note: String,
}

/// An action that cuts all power, standby power included.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AcCycle {
    /// The action's name, `Schema.Verb`.
    pub action: String,
    /// The `ResetType` for an AC cycle.
    pub reset_type: String,
}

/// A BIOS attribute that prevents writes to other attributes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BiosLock {
    /// The attribute's name.
    pub attribute: String,
    /// The value with which the others can be written.
    pub unlocked: String,
}

/// The serial port behind the BMC's SSH server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsoleSsh {
    /// TCP port, if it differs from SSH's own.
    pub port: Option<u16>,
    /// Commands to type after the login, one a line.
    pub commands: Vec<String>,
}

/// The mechanisms that the code uses for a BMC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Names of the files that apply.
    pub names: Vec<String>,
    /// The kind of equipment that the BMC manages.
    pub equipment: Equipment,
    /// Order of `If-Match` values.
    pub etag_order: Vec<EtagRung>,
    /// How much of the boot override is written.
    pub boot_payload: BootPayload,
    /// Known differences between written and read values.
    pub boot_read_back: Vec<ReadBack>,
    /// Targets that work although the BMC does not list them.
    pub forced_boot_targets: Vec<String>,
    /// Preferred targets for a CD.
    pub cd_boot_targets: Vec<String>,
    /// Reset types that are listed but do harm.
    pub avoided_reset_types: Vec<String>,
    /// The bodies for clearing a log, in the order of trying.
    pub clear_log_order: Vec<ClearPayload>,
    /// Concurrent requests that the BMC allows; none for the usual number. The client never sends more than four.
    pub max_concurrent: Option<usize>,
    /// Actions, of any resource, that cut all power for a moment, standby power included.
    pub ac_cycle_actions: Vec<AcCycle>,
    /// The resource for changes of BIOS settings, below the BIOS resource, if that names no settings object.
    pub bios_settings: Option<String>,
    /// Attributes that must be opened before others can be written.
    pub bios_locks: Vec<BiosLock>,
    /// Patterns for the ids of systems that are parts of a machine, such as a board of accelerators, not machines.
    pub side_systems: Vec<String>,
    /// Whether the serial number on the machine's label is its `SKU`.
    pub serial_is_sku: bool,
    /// How firmware is updated.
    pub update: UpdateProfile,
    /// The first fixed account slot that may be written; earlier slots belong to the BMC.
    pub first_account_slot: u32,
    /// Methods to remove accounts, in the order of trying.
    pub account_removal: Vec<AccountRemoval>,
    /// Path of names to the SSH keys in an account, if they are not separate resources; empty: they are.
    pub account_keys: Vec<String>,
    /// The properties that open and close root's access to the BMC; empty: no public source names one.
    pub in_band: Vec<InBandSwitch>,
    /// The serial port behind the BMC's SSH server, for BMCs that do not report it themselves.
    pub console_ssh: Option<ConsoleSsh>,
    /// Notes for the operator about single capabilities.
    pub notes: BTreeMap<Capability, String>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            equipment: Equipment::default(),
            etag_order: DEFAULT_ORDER.to_vec(),
            boot_payload: BootPayload::Changed,
            boot_read_back: Vec::new(),
            forced_boot_targets: Vec::new(),
            cd_boot_targets: vec!["Cd".to_owned(), "UsbCd".to_owned()],
            avoided_reset_types: Vec::new(),
            clear_log_order: CLEAR_ORDER.to_vec(),
            max_concurrent: None,
            ac_cycle_actions: Vec::new(),
            bios_settings: None,
            bios_locks: Vec::new(),
            side_systems: Vec::new(),
            serial_is_sku: false,
            update: UpdateProfile::default(),
            first_account_slot: 2,
            account_removal: vec![AccountRemoval::Delete, AccountRemoval::Blank, AccountRemoval::Disable],
            account_keys: Vec::new(),
            in_band: Vec::new(),
            console_ssh: None,
            notes: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    /// Vendors are data: the code contains no vendor's name except in tests and in messages for people.
    #[test]
    fn the_code_names_no_vendor() {
        let vendors = [
            "dell",
            "idrac",
            "hpe",
            "ilo",
            "lenovo",
            "xclarity",
            "supermicro",
            "gigabyte",
            "megarac",
            "ami",
            "nvidia",
            "dgx",
            "hgx",
            "openbmc",
            "sushy",
            "delta",
            "liteon",
            "smc",
        ];
        let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let crates = ["src", "../redfish-wire/src", "../redfish-record/src"];
        let mut folders: Vec<_> = crates.iter().map(|folder| here.join(folder)).collect();
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                // The list of built-in files is itself data; tests are at the end of a file.
                let code = text.split("#[cfg(test)]").next().unwrap();
                let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
                for line in code.filter(|_| !path.ends_with("quirks/files.rs")) {
                    let words = line
                        .split(|c: char| !c.is_ascii_alphanumeric())
                        .map(str::to_ascii_lowercase);
                    if words.into_iter().any(|word| vendors.contains(&word.as_str())) {
                        found.push(format!("{}: {}", path.display(), line.trim()));
                    }
                }
            }
        }
        assert!(found.is_empty(), "{found:#?}");
    }
}
