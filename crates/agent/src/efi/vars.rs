//! UEFI variables through efivarfs: four bytes of attributes, then the value; one write is one update. The kernel marks
//! variables as immutable against accidents; the agent removes that flag before a change.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use thiserror::Error;

use super::Loader;
use super::entry::{label_of, load_option};
use crate::{ioctl, text};

/// GUID of EFI_GLOBAL_VARIABLE.
const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Non-volatile, boot service access, runtime access.
const ATTRIBUTES: u32 = 7;
/// Prefix of every label, by which the agent recognises its own entries.
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

    /// Whether Secure Boot is on; false without the variable.
    pub fn secure_boot(&self) -> bool {
        self.read("SecureBoot").is_some_and(|value| value.first() == Some(&1))
    }

    /// Makes the loader the first boot entry, labelled `Rackwright: LABEL`, and removes the agent's older entries. Returns
    /// the number of the entry.
    ///
    /// # Errors
    /// The variable that could not be read or changed.
    pub fn set_boot_entry(&self, label: &str, loader: &Loader) -> Result<u16, EfiError> {
        let removed = self.remove_entries()?;
        let used = self.boot_numbers();
        let number = removed
            .first()
            .copied()
            .or_else(|| (0..=u16::MAX).find(|number| !used.contains(number)));
        let number = number.ok_or_else(|| self.error("Boot####", io::Error::other("all 65536 numbers are in use")))?;
        self.write(
            &boot_name(number),
            &load_option(&format!("{LABEL_PREFIX}{label}"), loader),
        )?;
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
            fs::remove_file(&path).map_err(|source| self.error(&name, source))?;
        }
        Ok(own_entries)
    }

    /// Numbers of the `Boot####` variables, ascending.
    fn boot_numbers(&self) -> Vec<u16> {
        let number = |name: String| {
            let digits = name
                .strip_prefix("Boot")?
                .strip_suffix(GLOBAL)?
                .strip_suffix('-')?
                .to_owned();
            (digits.len() == 4).then(|| u16::from_str_radix(&digits, 16).ok())?
        };
        text::names(&self.folder).into_iter().filter_map(number).collect()
    }

    fn order(&self) -> Vec<u16> {
        let value = self.read("BootOrder").unwrap_or_default();
        value
            .chunks_exact(2)
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
            .collect()
    }

    fn write_order(&self, order: &[u16]) -> Result<(), EfiError> {
        self.write(
            "BootOrder",
            &order
                .iter()
                .flat_map(|number| number.to_le_bytes())
                .collect::<Vec<u8>>(),
        )
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        text::bytes(&self.path(name))?.get(4..).map(<[u8]>::to_vec)
    }

    fn write(&self, name: &str, value: &[u8]) -> Result<(), EfiError> {
        let path = self.path(name);
        ioctl::clear_immutable(&path);
        let content = [&ATTRIBUTES.to_le_bytes(), value].concat();
        let written = self.open(&path).and_then(|mut file| file.write_all(&content));
        written.map_err(|source| self.error(name, source))
    }

    /// efivarfs replaces the value with each write; a plain folder needs truncation.
    fn open(&self, path: &std::path::Path) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}-{GLOBAL}"))
    }

    fn error(&self, variable: &str, source: io::Error) -> EfiError {
        EfiError {
            variable: variable.to_owned(),
            source,
        }
    }
}

fn boot_name(number: u16) -> String {
    format!("Boot{number:04X}")
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
    fn our_entry_is_first_replaces_ours_and_leaves_others() {
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
