//! Which firmware is to be updated, in which order, and why the rest is not. Values in, values out.

use std::cmp::Ordering;

use serde::Serialize;

use crate::model::{FirmwareOrder, WantedFirmware};

/// One entry of a BMC's inventory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Installed {
    /// Id.
    pub id: String,
    /// Name; empty where there is none.
    pub name: String,
    /// Software id; empty where there is none.
    pub software_id: String,
    /// Version; empty where it is not told.
    pub version: String,
    /// Whether the BMC updates it, where that is told.
    pub updateable: Option<bool>,
}

/// What is to be done about a wanted version on one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is updated.
    Update,
    /// The wanted version is installed.
    UpToDate,
    /// A newer version is installed, and no downgrade was asked for.
    Newer,
    /// The BMC says that it does not update it.
    NotUpdateable,
    /// The catalogue has no file for it.
    NoFile,
    /// The BMC lists nothing that is meant.
    NotListed,
}

impl Verdict {
    /// As it is printed and sent.
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

    /// Whether a node with this differs from what its SKU wants.
    #[must_use]
    pub fn is_drift(self) -> bool {
        !matches!(self, Self::UpToDate | Self::Newer)
    }
}

/// A wanted version beside what is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The component.
    pub component: Box<str>,
    /// Id of the entry; empty where none is meant.
    pub id: String,
    /// The installed version; empty where it is not known.
    pub installed: String,
    /// The wanted version.
    pub wanted: Box<str>,
    /// What is to be done.
    pub verdict: Verdict,
    /// The file: digest.
    pub file: Option<Box<str>>,
    /// Before or after others.
    pub order: FirmwareOrder,
}

/// Holds what is wanted against what is installed. Steps come first by order, then as the SKU and the BMC list them.
/// `file_of` finds a file in the catalogue.
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
            // What an earlier entry of the SKU means is its own: two versions of one thing would be put on in turns.
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

/// Whether two versions are one, whatever their letter case and the space around them.
#[must_use]
pub fn same(a: &str, b: &str) -> bool {
    a.trim().eq_ignore_ascii_case(b.trim())
}

/// Which of two versions is the later one: part by part, numbers as numbers. None where their forms differ, so that nobody
/// can say.
#[must_use]
pub fn compare(a: &str, b: &str) -> Option<Ordering> {
    let (a, b) = (parts(a), parts(b));
    for (a, b) in a.iter().zip(&b) {
        let order = match (a, b) {
            (Part::Number(a), Part::Number(b)) => (a.len(), a).cmp(&(b.len(), b)),
            (Part::Word(a), Part::Word(b)) if a == b => Ordering::Equal,
            // One letter counts on, as in 1.0b; words do not.
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
