//! Decides which firmware to update, in which order, and why the rest is skipped. Pure functions.

use std::cmp::Ordering;

use serde::Serialize;

use crate::model::{FirmwareOrder, WantedFirmware};

/// One entry of a BMC's inventory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Installed {
    /// The entry's id.
    pub id: String,
    /// The name. Empty: the entry has no name.
    pub name: String,
    /// The software id. Empty: the entry has no software id.
    pub software_id: String,
    /// The version. Empty: not reported.
    pub version: String,
    /// Whether the BMC can update the entry. `None`: not reported.
    pub updateable: Option<bool>,
}

/// The decision about a wanted version for one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The entry will be updated.
    Update,
    /// The wanted version is installed.
    UpToDate,
    /// A newer version is installed, and no downgrade is requested.
    Newer,
    /// The BMC reports that it cannot update the entry.
    NotUpdateable,
    /// The catalogue has no file for the wanted version.
    NoFile,
    /// The BMC lists no matching entry.
    NotListed,
}

impl Verdict {
    /// The name in output and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::UpToDate => "up-to-date",
            Self::Newer => "newer",
            Self::NotUpdateable => "not-updateable",
            Self::NoFile => "no-file",
            Self::NotListed => "not-listed",
        }
    }

    /// Whether this verdict means that the node deviates from its SKU.
    #[must_use]
    pub fn is_drift(self) -> bool {
        !matches!(self, Self::UpToDate | Self::Newer)
    }
}

/// A wanted version and the installed one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The component's name in the SKU.
    pub component: Box<str>,
    /// The id of the entry. Empty: no entry matches.
    pub id: String,
    /// The installed version. Empty: unknown.
    pub installed: String,
    /// The wanted version.
    pub wanted: Box<str>,
    /// The decision.
    pub verdict: Verdict,
    /// The digest of the file.
    pub file: Option<Box<str>>,
    /// The position in the order of updates.
    pub order: FirmwareOrder,
}

/// Compares wanted with installed firmware. The rows are sorted by order, then as listed by the SKU and the BMC.
/// `file_of` looks up a file in the catalogue.
pub fn plan(
    wanted: &[WantedFirmware],
    installed: &[Installed],
    file_of: impl Fn(&WantedFirmware) -> Option<Box<str>>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut taken = vec![false; installed.len()];
    for one in wanted {
        let file = file_of(one);
        let row = |entry: Option<&Installed>, verdict| Row {
            component: one.component.clone(),
            id: entry.map(|entry| entry.id.clone()).unwrap_or_default(),
            installed: entry.map(|entry| entry.version.clone()).unwrap_or_default(),
            wanted: one.version.clone(),
            verdict,
            file: file.clone(),
            order: one.order,
        };
        let before = rows.len();
        for (entry, taken) in installed.iter().zip(&mut taken) {
            // An entry belongs to the first match in the SKU. Otherwise two versions of one component would be
            // installed in turns.
            if !*taken && one.is_for(&entry.id, &entry.name, &entry.software_id) {
                *taken = true;
                rows.push(row(Some(entry), verdict(one, entry, file.is_some())));
            }
        }
        if rows.len() == before {
            rows.push(row(None, Verdict::NotListed));
        }
    }
    rows.sort_by_key(|row| row.order);
    rows
}

fn verdict(wanted: &WantedFirmware, entry: &Installed, has_file: bool) -> Verdict {
    if same(&wanted.version, &entry.version) {
        return Verdict::UpToDate;
    }
    if !wanted.downgrade && compare(&entry.version, &wanted.version) == Some(Ordering::Greater) {
        return Verdict::Newer;
    }
    if entry.updateable == Some(false) {
        return Verdict::NotUpdateable;
    }
    if has_file { Verdict::Update } else { Verdict::NoFile }
}

/// Whether two versions are equal, ignoring case and surrounding space.
#[must_use]
pub fn same(a: &str, b: &str) -> bool {
    a.trim().eq_ignore_ascii_case(b.trim())
}

/// Compares two versions part by part, numbers numerically. Returns `None` if their forms differ, because no order is
/// known.
#[must_use]
pub fn compare(a: &str, b: &str) -> Option<Ordering> {
    let (a, b) = (parts(a), parts(b));
    for (a, b) in a.iter().zip(&b) {
        let order = match (a, b) {
            (Part::Number(a), Part::Number(b)) => (a.len(), a).cmp(&(b.len(), b)),
            (Part::Word(a), Part::Word(b)) if a == b => Ordering::Equal,
            // Single letters are ordered, as in 1.0b. Longer words are not.
            (Part::Word(a), Part::Word(b)) if a.len() == 1 && b.len() == 1 => a.cmp(b),
            _ => return None,
        };
        if order != Ordering::Equal {
            return Some(order);
        }
    }
    Some(a.len().cmp(&b.len()))
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// Digits without leading zeros.
    Number(String),
    /// Letters, in lower case.
    Word(String),
}

fn parts(version: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut run = String::new();
    let mut end = |run: &mut String| {
        let text = std::mem::take(run);
        if text.is_empty() {
            return;
        }
        parts.push(if text.starts_with(|c: char| c.is_ascii_digit()) {
            Part::Number(text.trim_start_matches('0').to_owned())
        } else {
            Part::Word(text)
        });
    };
    for c in version.trim().chars() {
        let is_other = run
            .chars()
            .last()
            .is_some_and(|last| last.is_ascii_digit() != c.is_ascii_digit());
        if !c.is_alphanumeric() || is_other {
            end(&mut run);
        }
        if c.is_alphanumeric() {
            run.extend(c.to_lowercase());
        }
    }
    end(&mut run);
    parts
}
