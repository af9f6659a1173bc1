//! UEFI variables that an operating system added: crash dumps of a kernel, settings of a boot loader, programs that the
//! firmware would start before the boot loader.
//!
//! The firmware of some machines does not survive the loss of its own variables. So a new variable is removed only if the
//! firmware cannot have added it: the vendor GUID belongs to operating systems or was not in use at the inspection, or the
//! variable is one that the UEFI specification lets an operating system write. Any other new variable is only reported.

use std::collections::BTreeSet;
use std::fs;

use rackwright_api::v1::{NewUefiVariables, UefiVariables};

use super::vars::{ATTRIBUTES_BYTES, EfiError, EfiVars, GLOBAL_GUID, boot_number, failure};
use crate::{ioctl, text};

/// Attribute of a variable that outlives the loss of power (UEFI 2.10, 8.2).
const NON_VOLATILE: u32 = 0x1;
/// Length of a GUID as text.
const GUID_BYTES: usize = 36;
/// Most variables that are listed or reported. Machines have a few hundred.
const COUNT_MAX: usize = 4096;
/// Vendor GUIDs that only operating systems and their boot loaders use.
const SYSTEM_VENDORS: [&str; 4] = [
    // Crash dumps of Linux (`LINUX_EFI_CRASH_GUID`).
    "cfc8fc79-be2e-4ddc-97f0-9f98bfe298a0",
    // Random seed of Linux (`LINUX_EFI_RANDOM_SEED_TABLE_GUID`).
    "1ce1e5bc-7ceb-42f2-81e5-8aadf180f57b",
    // systemd-boot (Boot Loader Interface).
    "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f",
    // shim.
    "605dab50-e046-4300-abb6-3dd810dd8b23",
];
/// Names below [`GLOBAL_GUID`] that an operating system may write (UEFI 2.10, 3.3), without boot options. `#` stands for a
/// hexadecimal digit.
const SYSTEM_GLOBALS: [&str; 7] = [
    "BootNext",
    "Driver####",
    "DriverOrder",
    "Key####",
    "OsIndications",
    "SysPrep####",
    "SysPrepOrder",
];

impl EfiVars {
    /// The variables to record at an inspection.
    pub fn recorded(&self) -> UefiVariables {
        let names = self.lasting();
        let vendors: BTreeSet<&str> = names.iter().filter_map(|name| vendor(name)).collect();
        let hashes: BTreeSet<u64> = names.iter().map(|name| hash(name)).collect();
        UefiVariables {
            vendors: vendors.into_iter().map(str::to_owned).collect(),
            names: hashes.into_iter().collect(),
        }
    }

    /// Removes the variables that an operating system added since the inspection. The result names these variables and the
    /// other new ones.
    ///
    /// # Errors
    /// The variable that could not be removed. Those before it are removed.
    pub fn remove_foreign(&self, recorded: &UefiVariables) -> Result<NewUefiVariables, EfiError> {
        let mut new = NewUefiVariables::default();
        for name in self.lasting() {
            if recorded.names.contains(&hash(&name)) {
                continue;
            }
            if is_of_system(&name, recorded) {
                let path = self.folder().join(&name);
                ioctl::clear_immutable(&path);
                fs::remove_file(&path).map_err(|source| failure(&name, source))?;
                new.removed.push(name);
            } else {
                new.left.push(name);
            }
        }
        Ok(new)
    }

    /// File names of the non-volatile variables without boot options and their order, ascending.
    fn lasting(&self) -> Vec<String> {
        let is_lasting = |name: &String| {
            let content = text::bytes(&self.folder().join(name));
            let attributes = content
                .as_deref()
                .and_then(|content| content.first_chunk::<ATTRIBUTES_BYTES>());
            attributes.is_some_and(|bytes| u32::from_le_bytes(*bytes) & NON_VOLATILE != 0)
        };
        let names = text::names(self.folder()).into_iter();
        let names = names.filter(|name| vendor(name).is_some() && !is_boot_option(name));
        names.filter(is_lasting).take(COUNT_MAX).collect()
    }
}

/// The vendor GUID at the end of a name in efivarfs.
fn vendor(name: &str) -> Option<&str> {
    let (rest, guid) = name.split_at_checked(name.len().checked_sub(GUID_BYTES)?)?;
    rest.ends_with('-').then_some(guid)
}

fn hash(name: &str) -> u64 {
    let hash = blake3::hash(name.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// Whether the boot settings that the BMC shows contain the variable.
fn is_boot_option(name: &str) -> bool {
    boot_number(name).is_some() || name == format!("BootOrder-{GLOBAL_GUID}")
}

/// Whether only an operating system can have added the variable.
fn is_of_system(name: &str, recorded: &UefiVariables) -> bool {
    let Some(guid) = vendor(name) else { return false };
    if guid == GLOBAL_GUID {
        let name = &name[..name.len() - GUID_BYTES - 1];
        return SYSTEM_GLOBALS.iter().any(|pattern| matches(pattern, name));
    }
    SYSTEM_VENDORS.contains(&guid) || !recorded.vendors.iter().any(|known| known == guid)
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.len() == name.len()
        && pattern.bytes().zip(name.bytes()).all(|pair| match pair {
            (b'#', digit) => digit.is_ascii_hexdigit(),
            (expected, found) => expected == found,
        })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const VENDOR: &str = "11111111-2222-3333-4444-555555555555";
    const OTHER: &str = "99999999-2222-3333-4444-555555555555";

    fn put(folder: &Path, name: &str, guid: &str, attributes: u32) {
        let content = [&attributes.to_le_bytes()[..], b"value"].concat();
        std::fs::write(folder.join(format!("{name}-{guid}")), content).unwrap();
    }

    #[test]
    fn what_an_operating_system_added_is_removed_and_what_the_firmware_may_have_added_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let vars = EfiVars::new(dir.path().to_owned());
        put(dir.path(), "Setup", VENDOR, 7);
        put(dir.path(), "Timeout", GLOBAL_GUID, 7);
        put(dir.path(), "DriverOrder", GLOBAL_GUID, 7);
        put(dir.path(), "Boot0000", GLOBAL_GUID, 7);
        put(dir.path(), "BootOrder", GLOBAL_GUID, 7);
        put(dir.path(), "SecureBoot", GLOBAL_GUID, 6);
        let recorded = vars.recorded();
        assert_eq!(recorded.vendors, [VENDOR, GLOBAL_GUID]);
        assert_eq!(recorded.names.len(), 3);
        assert_eq!(vars.remove_foreign(&recorded).unwrap(), NewUefiVariables::default());

        let crash = SYSTEM_VENDORS[0];
        let foreign = [
            ("Driver0A0f", GLOBAL_GUID),
            ("OsIndications", GLOBAL_GUID),
            ("dump-type0-1-1-1700000000-C", crash),
            ("Note-to-the-next", OTHER),
        ];
        let unsure = [
            ("Setup2", VENDOR),
            ("Driver000", GLOBAL_GUID),
            ("DriverZZZZ", GLOBAL_GUID),
        ];
        for (name, guid) in foreign.into_iter().chain(unsure) {
            put(dir.path(), name, guid, 7);
        }
        put(dir.path(), "Boot0001", GLOBAL_GUID, 7);
        put(dir.path(), "Volatile", OTHER, 6);
        std::fs::write(dir.path().join(format!("Empty-{OTHER}")), []).unwrap();
        let names = |list: &[(&str, &str)]| -> Vec<String> {
            let mut names: Vec<String> = list.iter().map(|(name, guid)| format!("{name}-{guid}")).collect();
            names.sort();
            names
        };
        let new = vars.remove_foreign(&recorded).unwrap();
        assert_eq!((new.removed, new.left), (names(&foreign), names(&unsure)));
        for name in names(&foreign) {
            assert!(!dir.path().join(&name).exists(), "{name}");
        }
        for (name, guid) in unsure.into_iter().chain([("Boot0001", GLOBAL_GUID), ("Setup", VENDOR)]) {
            assert!(dir.path().join(format!("{name}-{guid}")).exists(), "{name}");
        }
        assert_eq!(vars.remove_foreign(&recorded).unwrap().removed, [""; 0]);
    }
}
