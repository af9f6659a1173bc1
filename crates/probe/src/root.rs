//! Files of a machine, below a folder.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Most bytes of a file in sysfs or proc.
const TEXT_MAX: u64 = 256 * 1024;

/// The folder that stands for `/`.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// Files below this folder.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The place of a path such as `sys/bus/pci/devices`.
    #[must_use]
    pub fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// The text of a file without surrounding space. `None`: it is missing, not readable, or empty.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        text(&self.at(path))
    }

    /// The names in a folder, in order. Empty: there is no such folder.
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        names(&self.at(path))
    }
}

/// The text of a file without surrounding space. `None`: it is missing, not readable, or empty.
pub(crate) fn text(path: &Path) -> Option<String> {
    let bytes = bytes(path, TEXT_MAX)?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// At most this many bytes of a file.
pub(crate) fn bytes(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The names in a folder, in order.
pub(crate) fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The name of the file or folder that a link leads to.
pub(crate) fn target(path: &Path) -> Option<String> {
    Some(fs::canonicalize(path).ok()?.file_name()?.to_string_lossy().into_owned())
}
