//! Reading the small text files of sysfs and procfs, with a bound on their size.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// No file of sysfs or procfs that the agent reads is larger than this many bytes.
const LIMIT_BYTES: u64 = 1 << 20;

/// The file's bytes, at most 1 MiB; `None` when it is missing or unreadable (many sysfs files refuse to be read).
pub fn bytes(path: &Path) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)
        .ok()?
        .take(LIMIT_BYTES)
        .read_to_end(&mut content)
        .ok()?;
    Some(content)
}

/// The file's text without surrounding blanks and zero bytes; `None` when it is missing, unreadable or empty.
pub fn trimmed(path: &Path) -> Option<String> {
    let content = bytes(path)?;
    let text = String::from_utf8_lossy(&content);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// [`trimmed`], with the empty string for "not readable" as the inventory wants it.
pub fn or_empty(path: &Path) -> String {
    trimmed(path).unwrap_or_default()
}

/// A decimal number.
pub fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    trimmed(path)?.parse().ok()
}

/// A hexadecimal number, with or without `0x`.
pub fn hex_number(path: &Path) -> Option<u32> {
    let text = trimmed(path)?;
    u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// The names in a folder, sorted; empty when there is no such folder.
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

/// The last part of the path that a link points to.
pub fn link_name(link: &Path) -> Option<String> {
    fs::read_link(link).ok()?.file_name()?.to_str().map(str::to_owned)
}

/// The PCI address in a resolved sysfs path: the last part that has the form `0000:3b:00.0`.
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
    fn pci_addresses_are_told_from_other_path_parts() {
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
