//! The least time of an erase: bytes cannot cross a link faster than the link allows.

use std::fmt;

use super::{DriveList, ReportedDrive, Source, group_of_entry, groups, plain};

/// Highest rate of a drive's link in bytes a second, by protocol. `docs/erase-certificates.md` has the sources.
const LINKS: [(&str, &str, u64); 5] = [
    // 6 Gbit/s, 8b/10b.
    ("sata", "SATA", 600_000_000),
    // 24G SAS: 22.5 Gbit/s, 128b/150b; two ports.
    ("sas", "SAS", 4_800_000_000),
    // PCIe 6.0 x4, as PCIe 5.0 x8.
    ("nvme", "NVMe", 32_000_000_000),
    ("pcie", "NVMe", 32_000_000_000),
    // USB4 version 2: 80 Gbit/s.
    ("usb", "USB", 10_000_000_000),
];
/// For virtual drives and unknown protocols: the bandwidth of a host's memory.
const UNKNOWN: (&str, u64) = ("unknown or virtual", 64_000_000_000);

/// The name of a protocol's link and its highest rate in bytes a second.
#[must_use]
pub fn link_of(protocol: &str) -> (&'static str, u64) {
    let protocol = plain(protocol).to_lowercase();
    let found = LINKS.iter().find(|(word, _, _)| protocol.starts_with(word));
    found.map_or(UNKNOWN, |(_, name, rate)| (*name, *rate))
}

/// A drive that was erased faster than its link allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooFast {
    /// The drive, described for people.
    pub drive: String,
    /// The name of the link.
    pub link: &'static str,
    /// Highest rate of the link, in bytes a second.
    pub bytes_per_s: u64,
    /// Bytes that must cross the link.
    pub bytes: u64,
    /// The least time in microseconds.
    pub least_us: u64,
    /// The time that passed, in microseconds.
    pub elapsed_us: u64,
}

impl fmt::Display for TooFast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |us: u64| us as f64 / 1e6;
        write!(
            f,
            "{}: {} bytes have to cross its link ({}, at most {} MB/s), which takes {:.3} s or more; the report came \
             {:.3} s after the job was sent",
            self.drive,
            self.bytes,
            self.link,
            self.bytes_per_s / 1_000_000,
            seconds(self.least_us),
            seconds(self.elapsed_us)
        )
    }
}

/// The drives of a report that arrived sooner than the erase can have taken. The protocol comes from the lists, the BMC's
/// before the agent's. Namespaces of one drive share a link.
#[must_use]
pub fn too_fast(lists: &[DriveList], reported: &[ReportedDrive], elapsed_us: u64) -> Vec<TooFast> {
    let groups = groups(reported);
    let quick = groups.iter().filter_map(|group| {
        let protocol = [Source::BmcReclaiming, Source::Bmc, Source::Inspection, Source::Operator]
            .into_iter()
            .flat_map(|source| lists.iter().filter(move |list| list.source == source))
            .flat_map(|list| &list.drives)
            .filter(|drive| !drive.protocol.is_empty())
            .find(|drive| group_of_entry(&groups, drive).is_some_and(|entry_group| entry_group.serial == group.serial))
            .map_or("", |drive| drive.protocol.as_str());
        let (link, bytes_per_s) = link_of(protocol);
        let moved = group.drives.iter().map(|drive| drive.moved_bytes);
        let bytes = moved.fold(0, u64::saturating_add);
        let least_us = u64::try_from(u128::from(bytes) * 1_000_000 / u128::from(bytes_per_s)).unwrap_or(u64::MAX);
        (elapsed_us < least_us).then(|| TooFast {
            drive: group.description(),
            link,
            bytes_per_s,
            bytes,
            least_us,
            elapsed_us,
        })
    });
    quick.collect()
}
