//! Edits OVMF's variable store in the machine's `vars.fd`, while the machine is off.
//!
//! OVMF keeps the boot entries that it made for the NIC, oldest first. After an HTTP boot with PXE disabled, a later PXE
//! boot would try HTTP first, for a minute. So the HTTP entries are removed in between; OVMF makes them again, after the
//! PXE entries.
//!
//! Layout: UEFI PI specification 1.7 volume 3 (3.2.1, firmware volume header) and EDK II's
//! `MdeModulePkg/Include/Guid/VariableFormat.h` (`AUTHENTICATED_VARIABLE_HEADER`).

use std::io;
use std::path::Path;

/// `gEfiAuthenticatedVariableGuid`, aaf32c78-947b-439a-a180-2e144ec37792.
const STORE: [u8; 16] = [
    0x78, 0x2c, 0xf3, 0xaa, 0x7b, 0x94, 0x9a, 0x43, 0xa1, 0x80, 0x2e, 0x14, 0x4e, 0xc3, 0x77, 0x92,
];
const STORE_HEADER: usize = 28;
const VARIABLE_HEADER: usize = 60;
const VARIABLE_START: u16 = 0x55aa;
/// A variable in use; clearing bit 1 deletes it.
const ADDED: u8 = 0x3f;
const DELETED: u8 = 0x3d;

/// Deletes the boot entries for HTTP from a variable store file; returns their number.
pub(crate) fn forget_http_boot(path: &Path) -> io::Result<usize> {
    let mut store = std::fs::read(path)?;
    let mut entries = entries_of(&store)?;
    entries.retain(|entry| entry.description.starts_with("UEFI HTTP"));
    for entry in &entries {
        store[entry.offset + 2] = DELETED;
    }
    if !entries.is_empty() {
        std::fs::write(path, store)?;
    }
    Ok(entries.len())
}

/// The names of the boot entries in a variable store file, in the order of the file.
pub(crate) fn boot_entries(path: &Path) -> io::Result<Vec<String>> {
    let entries = entries_of(&std::fs::read(path)?)?;
    Ok(entries.into_iter().map(|entry| entry.description).collect())
}

/// The names of all variables in use in a variable store file, in the order of the file.
pub(crate) fn variables(path: &Path) -> io::Result<Vec<String>> {
    let variables = variables_of(&std::fs::read(path)?)?;
    Ok(variables.into_iter().map(|variable| variable.name).collect())
}

/// A boot entry in use.
struct Entry {
    /// Offset of its variable.
    offset: usize,
    description: String,
}

/// The variables `Boot####`.
fn entries_of(store: &[u8]) -> io::Result<Vec<Entry>> {
    let is_entry = |variable: &Variable| {
        let number = variable.name.strip_prefix("Boot").unwrap_or_default();
        number.len() == 4 && number.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let entries = variables_of(store)?.into_iter().filter(is_entry);
    let entry = |variable: Variable| Entry {
        offset: variable.offset,
        // EFI_LOAD_OPTION: attributes (4), length of the path list (2), description.
        description: variable.data.get(6..).map(utf16).unwrap_or_default(),
    };
    Ok(entries.map(entry).collect())
}

/// A variable in use.
struct Variable {
    offset: usize,
    name: String,
    data: Vec<u8>,
}

fn variables_of(store: &[u8]) -> io::Result<Vec<Variable>> {
    parsed(store).ok_or_else(|| io::Error::other("this is no OVMF variable store"))
}

fn parsed(store: &[u8]) -> Option<Vec<Variable>> {
    let volume_header = usize::from(u16_at(store, 48)?);
    if store.get(volume_header..volume_header + STORE.len())? != STORE {
        return None;
    }
    let mut found = Vec::new();
    let mut offset = volume_header + STORE_HEADER;
    while u16_at(store, offset) == Some(VARIABLE_START) {
        let (name_bytes, data_bytes) = (u32_at(store, offset + 36)?, u32_at(store, offset + 40)?);
        let name_at = offset + VARIABLE_HEADER;
        let data_at = name_at.checked_add(name_bytes)?;
        let end = data_at.checked_add(data_bytes)?;
        let (name, data) = (utf16(store.get(name_at..data_at)?), store.get(data_at..end)?.to_vec());
        if store[offset + 2] == ADDED {
            found.push(Variable { offset, name, data });
        }
        offset = end.next_multiple_of(4);
    }
    Some(found)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

/// The text up to the first NUL.
fn utf16(bytes: &[u8]) -> String {
    let units = bytes
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .take_while(|unit| *unit != 0);
    char::decode_utf16(units).map(|unit| unit.unwrap_or('?')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> Vec<u8> {
        text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
    }

    fn variable(name: &str, description: &str) -> Vec<u8> {
        let (name, data) = (wide(name), [vec![1, 0, 0, 0, 4, 0], wide(description)].concat());
        let mut header = vec![0; VARIABLE_HEADER];
        header[..3].copy_from_slice(&[0xaa, 0x55, ADDED]);
        header[36..40].copy_from_slice(&(name.len() as u32).to_le_bytes());
        header[40..44].copy_from_slice(&(data.len() as u32).to_le_bytes());
        let mut variable = [header, name, data].concat();
        variable.resize(variable.len().next_multiple_of(4), 0xff);
        variable
    }

    fn store(variables: &[Vec<u8>]) -> Vec<u8> {
        let mut store = vec![0; 72];
        store[48] = 72;
        store.extend(STORE);
        store.resize(72 + STORE_HEADER, 0);
        store.extend(variables.concat());
        store.extend([0xff; 64]);
        store
    }

    #[test]
    fn only_http_entries_are_deleted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let variables = [
            ("Boot0001", "UEFI PXEv4 (MAC)"),
            ("Boot0002", "UEFI HTTPv4 (MAC)"),
            ("BootOrder", "UEFI HTTPv4"),
        ];
        let text = store(&variables.map(|(name, description)| variable(name, description)));
        std::fs::write(file.path(), &text).unwrap();
        let http = "UEFI HTTPv4 (MAC)";
        assert_eq!(boot_entries(file.path()).unwrap(), ["UEFI PXEv4 (MAC)", http]);
        assert_eq!(
            super::variables(file.path()).unwrap(),
            ["Boot0001", "Boot0002", "BootOrder"]
        );
        assert_eq!(forget_http_boot(file.path()).unwrap(), 1);
        assert_eq!(boot_entries(file.path()).unwrap(), ["UEFI PXEv4 (MAC)"]);
        assert_eq!(super::variables(file.path()).unwrap(), ["Boot0001", "BootOrder"]);
        let after = std::fs::read(file.path()).unwrap();
        let changed: Vec<usize> = (0..text.len()).filter(|at| text[*at] != after[*at]).collect();
        let second = 72 + STORE_HEADER + variable("Boot0001", "UEFI PXEv4 (MAC)").len();
        assert_eq!(changed, [second + 2]);
        assert_eq!(forget_http_boot(file.path()).unwrap(), 0);
    }

    #[test]
    fn other_files_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0; 4096]).unwrap();
        assert!(forget_http_boot(file.path()).is_err());
    }
}
