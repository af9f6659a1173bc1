//! UEFI variables through efivarfs. A variable is a file: four bytes of attributes, then the value. One write replaces both.
//! The kernel marks the files as immutable against accidents; the agent removes this flag before a change.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::Loader;
use super::entry::{label_of, load_option};
use crate::{ioctl, text};

/// EFI_GLOBAL_VARIABLE: the vendor GUID of all boot variables (UEFI 2.10, 3.3).
pub(super) const GLOBAL_GUID: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// The attributes of a written variable: non-volatile, boot service access, runtime access (UEFI 2.10, 8.2).
const ATTRIBUTES: u32 = 0x1 | 0x2 | 0x4;
/// Length of the attributes before the value.
pub(super) const ATTRIBUTES_BYTES: usize = 4;
/// Prefix of the labels of all boot entries that the agent makes. The agent recognises its own entries by it.
pub const LABEL_PREFIX: &str = "Rackwright: ";

/// A boot variable could not be read or changed.
#[derive(Debug, Error)]
#[error("UEFI variable {variable}: {source}")]
pub struct EfiError {
    /// Name of the variable.
    pub variable: String,
    /// The kernel's error.
    pub source: io::Error,
}

/// The boot variables of a mounted efivarfs.
#[derive(Clone, Debug)]
pub struct EfiVars {
    folder: PathBuf,
}

impl EfiVars {
    /// Uses a mounted efivarfs, or a plain folder in tests.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The folder of all variables.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether Secure Boot is on; false if the variable is missing or unreadable.
    pub fn secure_boot(&self) -> bool {
        self.read("SecureBoot").is_some_and(|value| value.first() == Some(&1))
    }

    /// Makes the loader the first boot entry, labelled `Rackwright: LABEL`, and removes the agent's older entries. Returns
    /// the number of the new entry: that of the first removed entry, else the lowest free number.
    ///
    /// # Errors
    /// The variable that could not be read or changed.
    pub fn set_boot_entry(&self, label: &str, loader: &Loader) -> Result<u16, EfiError> {
        let removed = self.remove_entries()?;
        let used = self.boot_numbers();
        let free = || (0..=u16::MAX).find(|number| !used.contains(number));
        let number = removed
            .first()
            .copied()
            .or_else(free)
            .ok_or_else(|| failure("Boot####", io::Error::other("all 65536 numbers are in use")))?;
        let option = load_option(&format!("{LABEL_PREFIX}{label}"), loader);
        self.write(&boot_name(number), &option)?;
        let mut order = self.order();
        order.retain(|other| *other != number);
        order.insert(0, number);
        self.write_order(&order)?;
        Ok(number)
    }

    /// Removes the agent's own entries and their places in the boot order. Returns their numbers.
    ///
    /// # Errors
    /// The variable that could not be removed or changed.
    pub fn remove_entries(&self) -> Result<Vec<u16>, EfiError> {
        let is_own = |number: &u16| {
            let label = self.read(&boot_name(*number)).as_deref().and_then(label_of);
            label.is_some_and(|label| label.starts_with(LABEL_PREFIX))
        };
        let own_entries: Vec<u16> = self.boot_numbers().into_iter().filter(is_own).collect();
        if own_entries.is_empty() {
            return Ok(own_entries);
        }
        let mut order = self.order();
        order.retain(|number| !own_entries.contains(number));
        self.write_order(&order)?;
        for number in &own_entries {
            let name = boot_name(*number);
            let path = self.path(&name);
            ioctl::clear_immutable(&path);
            fs::remove_file(&path).map_err(|source| failure(&name, source))?;
        }
        Ok(own_entries)
    }

    /// Numbers of the `Boot####` variables, ascending.
    fn boot_numbers(&self) -> Vec<u16> {
        let files = text::names(&self.folder);
        files.iter().filter_map(|file| boot_number(file)).collect()
    }

    /// The numbers in `BootOrder`; empty if the variable is missing or unreadable.
    fn order(&self) -> Vec<u16> {
        let value = self.read("BootOrder").unwrap_or_default();
        value
            .chunks_exact(2)
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
            .collect()
    }

    fn write_order(&self, order: &[u16]) -> Result<(), EfiError> {
        let value: Vec<u8> = order.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.write("BootOrder", &value)
    }

    /// The value of a variable; `None` if it is missing or unreadable.
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let content = text::bytes(&self.path(name))?;
        content.get(ATTRIBUTES_BYTES..).map(<[u8]>::to_vec)
    }

    fn write(&self, name: &str, value: &[u8]) -> Result<(), EfiError> {
        let path = self.path(name);
        ioctl::clear_immutable(&path);
        let content = [&ATTRIBUTES.to_le_bytes(), value].concat();
        let written = open_empty(&path).and_then(|mut file| file.write_all(&content));
        written.map_err(|source| failure(name, source))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}-{GLOBAL_GUID}"))
    }
}

/// Opens a variable's file for one write. Only the plain folder of a test needs the truncation: a write to efivarfs replaces
/// the value.
fn open_empty(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)
}

pub(super) fn failure(variable: &str, source: io::Error) -> EfiError {
    EfiError {
        variable: variable.to_owned(),
        source,
    }
}

fn boot_name(number: u16) -> String {
    format!("Boot{number:04X}")
}

/// The number in a file name `Boot####-GUID`; `None` for another variable's file.
pub(super) fn boot_number(file: &str) -> Option<u16> {
    let digits = file
        .strip_prefix("Boot")?
        .strip_suffix(GLOBAL_GUID)?
        .strip_suffix('-')?;
    if digits.len() != 4 {
        return None;
    }
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::gpt::{Partition, TYPE_ESP};

    fn loader() -> Loader {
        let partition = Partition {
            number: 1,
            type_guid: TYPE_ESP,
            guid: [7; 16],
            first: 2048,
            last: 4095,
            name: String::new(),
        };
        Loader {
            partition,
            path: "\\EFI\\BOOT\\BOOTX64.EFI".into(),
        }
    }

    #[test]
    fn our_boot_entry_is_first_and_replaces_our_former_one() {
        let dir = tempfile::tempdir().unwrap();
        let vars = EfiVars::new(dir.path().to_owned());
        vars.write("Boot0000", &load_option("UEFI Shell", &loader())).unwrap();
        vars.write("Boot0002", &load_option("PXE", &loader())).unwrap();
        vars.write_order(&[2, 0]).unwrap();
        assert_eq!(vars.set_boot_entry("debian", &loader()).unwrap(), 1);
        assert_eq!(vars.order(), [1, 2, 0]);
        assert_eq!(
            vars.set_boot_entry("ubuntu", &loader()).unwrap(),
            1,
            "its number is used again"
        );
        assert_eq!(vars.order(), [1, 2, 0]);
        assert_eq!(vars.boot_numbers(), [0, 1, 2]);
        let option = vars.read("Boot0001").unwrap();
        assert_eq!(label_of(&option).as_deref(), Some("Rackwright: ubuntu"));
        assert_eq!(vars.remove_entries().unwrap(), [1]);
        assert_eq!((vars.order(), vars.boot_numbers()), (vec![2, 0], vec![0, 2]));
        assert_eq!(vars.remove_entries().unwrap(), [0_u16; 0]);
    }

    #[test]
    fn without_efivarfs_the_error_names_the_variable() {
        let vars = EfiVars::new("/nonexistent".into());
        assert!(!vars.secure_boot());
        let error = vars.set_boot_entry("x", &loader()).unwrap_err();
        assert_eq!(error.variable, "Boot0000");
    }
}
