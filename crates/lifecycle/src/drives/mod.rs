//! The drives of a machine according to independent sources, and whether the report of an erase agrees with them.
//!
//! The agent that reports an erase may lie. So its report is compared with lists recorded earlier or by another source: the
//! BMC, the accepted inspection, an operator. [`judge`] returns the sources that confirm each drive, or every difference;
//! [`too_fast`] finds drives that were erased faster than their link can carry the bytes.

mod judge;
mod pace;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

pub use judge::{Difference, Verdict, judge, uncovered, unnamed_missing};
pub use pace::{TooFast, link_of, too_fast};

/// A source of the list of a machine's drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The BMC, read while the machine is inspected.
    Bmc,
    /// The BMC, read while the machine is reclaimed.
    BmcReclaiming,
    /// The agent, in the inventory of an accepted inspection.
    Inspection,
    /// An operator, by accepting an agent's report.
    Operator,
    /// The BMC's entries that differed when an operator accepted the drives. They neither confirm nor refute.
    Accepted,
    /// An agent, in a report that differed from the record. It confirms nothing until an operator accepts it.
    Reported,
}

impl Source {
    /// Every source.
    pub const ALL: &'static [Self] = &[
        Self::Bmc,
        Self::BmcReclaiming,
        Self::Inspection,
        Self::Operator,
        Self::Accepted,
        Self::Reported,
    ];

    /// The name as stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bmc => "bmc",
            Self::BmcReclaiming => "bmc-reclaiming",
            Self::Inspection => "inspection",
            Self::Operator => "operator",
            Self::Accepted => "accepted",
            Self::Reported => "reported",
        }
    }

    /// The source with that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|source| source.as_str() == text)
    }

    /// The name on an erase certificate; none for a source that cannot confirm.
    #[must_use]
    pub fn witness(self) -> Option<&'static str> {
        match self {
            Self::Bmc | Self::BmcReclaiming => Some("bmc"),
            Self::Inspection => Some("inspection"),
            Self::Operator => Some("operator"),
            Self::Accepted | Self::Reported => None,
        }
    }

    /// True if the list has one entry for each block device, with exact sizes. A BMC lists physical drives.
    #[must_use]
    pub fn is_exact(self) -> bool {
        matches!(self, Self::Inspection | Self::Operator)
    }

    /// True if the list came from the BMC.
    #[must_use]
    pub fn is_bmc(self) -> bool {
        matches!(self, Self::Bmc | Self::BmcReclaiming)
    }
}

/// A drive, or one namespace of it, as a source describes it. A field that the source does not know is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownDrive {
    /// The kernel's name, or the BMC's id.
    pub name: String,
    /// Serial number. Namespaces of one NVMe drive share it.
    pub serial: String,
    /// Model name, as the source writes it.
    pub model: String,
    /// Size in bytes; none: the source does not report it.
    pub size_bytes: Option<u64>,
    /// World-wide name or namespace identifier.
    pub wwn: String,
    /// Protocol or transport, such as "NVMe", "SATA", "sas", "virtio".
    pub protocol: String,
    /// The name by which [`crate::Evidence::drives`] knows the drive; empty for a BMC's entry.
    pub key: String,
}

/// The drives of a machine according to one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveList {
    /// The source of the list.
    pub source: Source,
    /// When the source reported the list.
    pub at: Timestamp,
    /// The operator who accepted the list; empty for other sources.
    pub by: String,
    /// One entry for each drive or namespace.
    pub drives: Vec<KnownDrive>,
}

/// A drive, or one namespace of it, that an agent reports as erased.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportedDrive {
    /// The kernel's name.
    pub name: String,
    /// Serial number; empty: the drive has none.
    pub serial: String,
    /// Model name, as the kernel reports it.
    pub model: String,
    pub size_bytes: u64,
    /// Bytes that the erase method must read from or write to the drive.
    pub moved_bytes: u64,
}

impl From<&KnownDrive> for ReportedDrive {
    fn from(drive: &KnownDrive) -> Self {
        Self {
            name: drive.name.clone(),
            serial: drive.serial.clone(),
            model: drive.model.clone(),
            size_bytes: drive.size_bytes.unwrap_or_default(),
            moved_bytes: 0,
        }
    }
}

/// Letters and digits only, in upper case: vendors differ in padding, blanks, dashes and letter case.
fn plain(text: &str) -> String {
    text.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_uppercase)
        .collect()
}

/// Reported drives with one serial number: the namespaces of an NVMe drive, or one drive.
struct Group<'a> {
    /// The plain serial number; empty for all drives without one.
    serial: String,
    /// Indexes into the report.
    places: Vec<usize>,
    drives: Vec<&'a ReportedDrive>,
}

impl Group<'_> {
    fn bytes(&self) -> u64 {
        let sizes = self.drives.iter().map(|drive| drive.size_bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// The drive, described for people.
    fn description(&self) -> String {
        let names: Vec<&str> = self.drives.iter().map(|drive| drive.name.as_str()).collect();
        let serial = self.drives.first().map_or("", |drive| drive.serial.trim());
        drive_text(&names.join(", "), serial)
    }
}

fn drive_text(name: &str, serial: &str) -> String {
    match (name, serial) {
        (name, "") => format!("drive {name} (no serial number)"),
        ("", serial) => format!("drive with serial number {serial}"),
        (name, serial) => format!("drive {name} (serial number {serial})"),
    }
}

fn groups(reported: &[ReportedDrive]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (place, drive) in reported.iter().enumerate() {
        let serial = plain(&drive.serial);
        match groups.iter_mut().find(|group| group.serial == serial) {
            Some(group) => {
                group.places.push(place);
                group.drives.push(drive);
            }
            None => groups.push(Group {
                serial,
                places: vec![place],
                drives: vec![drive],
            }),
        }
    }
    groups
}

/// Vendors cut serial numbers or append to them; the first this many characters stay.
const SERIAL_LEAST: usize = 8;

/// The group that a BMC's entry refers to.
fn group_of_entry<'a, 'b>(groups: &'a [Group<'b>], entry: &KnownDrive) -> Option<&'a Group<'b>> {
    let serial = plain(&entry.serial);
    let cut = |group: &&Group<'_>| {
        group.serial.len().min(serial.len()) >= SERIAL_LEAST
            && (group.serial.starts_with(&serial) || serial.starts_with(&group.serial))
    };
    let exact = groups.iter().find(|group| group.serial == serial);
    exact.or_else(|| groups.iter().find(cut))
}
