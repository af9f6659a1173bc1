//! Reads small text files of sysfs and procfs, up to a limit.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// Upper limit in bytes for the sysfs and procfs files that the agent reads.
const LIMIT_BYTES: u64 = 1 << 20;

/// Returns up to 1 MiB of the file; `None` if it is missing or unreadable (many sysfs files cannot be read).
pub fn bytes(path: &Path) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)
        .ok()?
        .take(LIMIT_BYTES)
        .read_to_end(&mut content)
        .ok()?;
    Some(content)
}

/// The file's text without surrounding whitespace and zero bytes; `None` if it is missing, unreadable or empty.
pub fn trimmed(path: &Path) -> Option<String> {
    let content = bytes(path)?;
    let text = String::from_utf8_lossy(&content);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// Same as [`trimmed`], but with an empty string for a missing text, as in the inventory.
pub fn or_empty(path: &Path) -> String {
    trimmed(path).unwrap_or_default()
}

/// Reads a decimal number.
pub fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    trimmed(path)?.parse().ok()
}

/// Reads a hexadecimal number, with or without `0x`.
pub fn hex_number(path: &Path) -> Option<u32> {
    let text = trimmed(path)?;
    u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// The sorted names in a folder; empty if the folder does not exist.
pub fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .take(65_536)
        .collect();
    names.sort();
    names
}

/// The last part of a symbolic link's target.
pub fn link_name(link: &Path) -> Option<String> {
    fs::read_link(link).ok()?.file_name()?.to_str().map(str::to_owned)
}

/// The PCI address in a resolved sysfs path: the last part with the form `0000:3b:00.0`.
pub fn pci_address(resolved: &Path) -> Option<String> {
    let mut found = None;
    for part in resolved.iter().filter_map(|part| part.to_str()) {
        if is_pci_address(part) {
            found = Some(part.to_owned());
        }
    }
    found
}

/// Whether the text has the form `0000:3b:00.0`.
pub fn is_pci_address(text: &str) -> bool {
    let digits = |part: &str, least: usize| part.len() >= least && part.bytes().all(|b| b.is_ascii_hexdigit());
    let mut parts = text.splitn(3, ':');
    let (Some(domain), Some(bus), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Some((device, function)) = rest.split_once('.') else {
        return false;
    };
    digits(domain, 4)
        && digits(bus, 2)
        && bus.len() == 2
        && digits(device, 2)
        && device.len() == 2
        && digits(function, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_recognised() {
        assert!(is_pci_address("0000:3b:00.0"));
        assert!(is_pci_address("10000:e1:00.0"));
        for wrong in [
            "pci0000:00",
            "0000:3b",
            "virtio0",
            "0000:3b:00",
            "00:1f.2",
            "0000:3b:0g.0",
        ] {
            assert!(!is_pci_address(wrong), "{wrong}");
        }
        let path = Path::new("/sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda");
        assert_eq!(pci_address(path).as_deref(), Some("0000:00:04.0"));
    }

    #[test]
    fn missing_and_blank_files_read_as_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(trimmed(&dir.path().join("none")), None);
        std::fs::write(dir.path().join("blank"), " \n\0").unwrap();
        assert_eq!(trimmed(&dir.path().join("blank")), None);
        std::fs::write(dir.path().join("n"), "0x10de\n").unwrap();
        assert_eq!(hex_number(&dir.path().join("n")), Some(0x10de));
    }
}
