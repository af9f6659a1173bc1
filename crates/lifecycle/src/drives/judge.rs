//! Compares a report with the recorded lists.

use std::collections::BTreeSet;
use std::fmt;

use super::{DriveList, Group, KnownDrive, ReportedDrive, Source, drive_text, group_of_entry, groups, plain};

/// The result of the comparison of a report with the recorded lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// For each reported drive, the witnesses that confirm it, by their names on a certificate.
    pub witnesses: Vec<BTreeSet<&'static str>>,
    /// Every difference. A single difference refuses the whole report.
    pub differences: Vec<Difference>,
}

/// A difference between a report and a recorded list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// A list has the drive, and the report does not.
    Missing {
        /// The drive, described for people.
        drive: String,
        /// Size in bytes, where the list has it.
        size_bytes: Option<u64>,
        /// The list, described for people.
        recorded_by: String,
        /// The list's source.
        source: Source,
        /// The drive's serial number.
        serial: String,
        /// The name in [`crate::Evidence::drives`]; empty for a BMC's entry.
        key: String,
    },
    /// The report has the drive, and the list does not.
    Added {
        /// The drive, described for people.
        drive: String,
        /// The list, described for people.
        recorded_by: String,
    },
    /// No list has the drive with its exact size.
    Unrecorded {
        /// The drive, described for people.
        drive: String,
    },
    /// A field differs.
    Field {
        /// The drive, described for people.
        drive: String,
        /// The name of the field.
        field: &'static str,
        /// The value in the list.
        recorded: String,
        /// The list, described for people.
        recorded_by: String,
        /// The value in the report.
        reported: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing {
                drive,
                size_bytes,
                recorded_by,
                ..
            } => {
                let size = size_bytes.map_or_else(String::new, |size| format!(" of {size} bytes"));
                write!(f, "{drive}{size}: recorded by {recorded_by}, not reported")
            }
            Self::Added { drive, recorded_by } => write!(f, "{drive}: reported, not recorded by {recorded_by}"),
            Self::Unrecorded { drive } => write!(f, "{drive}: reported, and no source has recorded it with its size"),
            Self::Field {
                drive,
                field,
                recorded,
                recorded_by,
                reported,
            } => write!(
                f,
                "{drive}: {field} {recorded} recorded by {recorded_by}, {reported} reported"
            ),
        }
    }
}

impl DriveList {
    /// The list, described for people: its source and its date.
    fn description(&self) -> String {
        let date = self.at.date();
        match self.source {
            Source::Bmc | Source::BmcReclaiming => format!("the BMC on {date}"),
            Source::Inspection => format!("the inspection on {date}"),
            Source::Operator => format!("the operator {} on {date}", self.by),
            Source::Accepted | Source::Reported => format!("an agent on {date}"),
        }
    }
}

/// Compares a report with every recorded list.
#[must_use]
pub fn judge(lists: &[DriveList], reported: &[ReportedDrive]) -> Verdict {
    let groups = groups(reported);
    let mut verdict = Verdict {
        witnesses: vec![BTreeSet::new(); reported.len()],
        differences: Vec::new(),
    };
    let accepted: Vec<&KnownDrive> = lists
        .iter()
        .filter(|list| list.source == Source::Accepted)
        .flat_map(|list| &list.drives)
        .collect();
    for list in lists.iter().filter(|list| list.source.is_exact()) {
        exact(list, &groups, &mut verdict);
    }
    for source in [Source::BmcReclaiming, Source::Bmc] {
        for list in lists.iter().filter(|list| list.source == source) {
            physical(list, &accepted, &groups, &mut verdict);
        }
    }
    for group in &groups {
        let is_confirmed = group.places.iter().any(|place| !verdict.witnesses[*place].is_empty());
        if !is_confirmed && verdict.differences.is_empty() {
            verdict.differences.push(Difference::Unrecorded {
                drive: group.description(),
            });
        }
    }
    verdict
}

impl Verdict {
    fn confirm(&mut self, group: &Group<'_>, source: Source) {
        if let Some(witness) = source.witness() {
            for place in &group.places {
                self.witnesses[*place].insert(witness);
            }
        }
    }
}

/// Compares the report with a list that has each block device with its exact size.
fn exact(list: &DriveList, groups: &[Group<'_>], verdict: &mut Verdict) {
    for group in groups {
        let same = |drive: &&KnownDrive| plain(&drive.serial) == group.serial;
        let known: Vec<&KnownDrive> = list.drives.iter().filter(same).collect();
        if known.is_empty() {
            let (drive, recorded_by) = (group.description(), list.description());
            verdict.differences.push(Difference::Added { drive, recorded_by });
        } else if let Some((field, recorded, reported)) = differs(&known, group) {
            verdict.differences.push(Difference::Field {
                drive: group.description(),
                field,
                recorded,
                recorded_by: list.description(),
                reported,
            });
        } else {
            verdict.confirm(group, list.source);
        }
    }
    for known in &list.drives {
        if !groups.iter().any(|group| group.serial == plain(&known.serial)) {
            verdict.differences.push(missing(list, known));
        }
    }
}

fn missing(list: &DriveList, known: &KnownDrive) -> Difference {
    Difference::Missing {
        drive: drive_text(&known.name, known.serial.trim()),
        size_bytes: known.size_bytes,
        recorded_by: list.description(),
        source: list.source,
        serial: known.serial.clone(),
        key: known.key.clone(),
    }
}

/// The first field in which a drive differs: its name, the recorded value and the reported value.
fn differs(known: &[&KnownDrive], group: &Group<'_>) -> Option<(&'static str, String, String)> {
    let counts = (known.len(), group.drives.len());
    if counts.0 != counts.1 {
        let field = if group.serial.is_empty() {
            "number of such drives"
        } else {
            "number of namespaces"
        };
        return Some((field, counts.0.to_string(), counts.1.to_string()));
    }
    let models = |models: Vec<&String>| -> Vec<String> { sorted(models.into_iter().map(|model| plain(model))) };
    let recorded: Vec<&String> = known.iter().map(|drive| &drive.model).collect();
    let reported: Vec<&String> = group.drives.iter().map(|drive| &drive.model).collect();
    if models(recorded.clone()) != models(reported.clone()) {
        let sorted_models =
            |models: Vec<&String>| sorted(models.into_iter().map(|m| format!("{:?}", m.trim()))).join(", ");
        return Some(("model", sorted_models(recorded), sorted_models(reported)));
    }
    let recorded = sorted(known.iter().map(|drive| drive.size_bytes.unwrap_or_default()));
    let reported = sorted(group.drives.iter().map(|drive| drive.size_bytes));
    (recorded != reported).then(|| ("size", bytes(&recorded), bytes(&reported)))
}

fn sorted<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort();
    values
}

fn bytes(sizes: &[u64]) -> String {
    let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
    format!("{} bytes", sizes.join(" + "))
}

/// Compares the report with a BMC's list: physical drives, some without a serial number or a size, some sizes rounded.
fn physical(list: &DriveList, accepted: &[&KnownDrive], groups: &[Group<'_>], verdict: &mut Verdict) {
    let unnamed = unnamed(list, accepted, groups);
    let lost = unnamed.into_iter().filter(|known| !accepted.contains(known));
    verdict.differences.extend(lost.map(|known| missing(list, known)));
    for known in list.drives.iter().filter(|known| has_serial(known)) {
        let is_accepted = accepted.contains(&known);
        let Some(group) = group_of_entry(groups, known) else {
            if !is_accepted {
                verdict.differences.push(missing(list, known));
            }
            continue;
        };
        let size = known
            .size_bytes
            .map_or(Size::Unclear, |recorded_bytes| compare(recorded_bytes, group.bytes()));
        let field = if !models_agree(&known.model, &group.drives) {
            let reported = group.drives.first().map_or("", |drive| drive.model.trim());
            Some(("model", format!("{:?}", known.model.trim()), format!("{reported:?}")))
        } else if size == Size::Differs {
            let recorded = known.size_bytes.unwrap_or_default();
            Some(("size", bytes(&[recorded]), bytes(&[group.bytes()])))
        } else {
            None
        };
        match field {
            Some((field, recorded, reported)) if !is_accepted => verdict.differences.push(Difference::Field {
                drive: group.description(),
                field,
                recorded,
                recorded_by: list.description(),
                reported,
            }),
            None if size == Size::Agrees => verdict.confirm(group, list.source),
            _ => {}
        }
    }
}

fn has_serial(known: &KnownDrive) -> bool {
    !plain(&known.serial).is_empty()
}

/// The BMC's entries without a serial number for which the report has no drive.
#[must_use]
pub fn unnamed_missing(list: &DriveList, reported: &[ReportedDrive]) -> Vec<KnownDrive> {
    unnamed(list, &[], &groups(reported)).into_iter().cloned().collect()
}

/// A BMC's entries without a serial number and without a matching reported drive. An entry matches a drive that no other
/// entry means, if size and model do not contradict. A match confirms nothing. An entry without size and model is an empty
/// bay.
fn unnamed<'a>(list: &'a DriveList, accepted: &[&KnownDrive], groups: &[Group<'_>]) -> Vec<&'a KnownDrive> {
    let named = list.drives.iter().filter(|known| has_serial(known));
    let named: Vec<&str> = named
        .filter_map(|known| Some(group_of_entry(groups, known)?.serial.as_str()))
        .collect();
    // All drives without a serial number form one group.
    let (alone, together): (Vec<&Group<'_>>, Vec<&Group<'_>>) = groups.iter().partition(|g| !g.serial.is_empty());
    let alone = alone
        .into_iter()
        .filter(|group| !named.contains(&group.serial.as_str()));
    let alone = alone.map(|group| (group.bytes(), group.drives.clone()));
    let together = together.into_iter().flat_map(|group| &group.drives);
    let mut free: Vec<(u64, Vec<&ReportedDrive>)> = alone
        .chain(together.map(|drive| (drive.size_bytes, vec![*drive])))
        .collect();
    let entries = list.drives.iter().filter(|known| !has_serial(known));
    let mut entries: Vec<&KnownDrive> = entries
        .filter(|known| known.size_bytes.is_some() || !plain(&known.model).is_empty())
        .collect();
    // Specific entries choose first, because few drives fit them; accepted entries choose last.
    entries.sort_by_key(|known| {
        let is_vague = (known.size_bytes.is_none(), plain(&known.model).is_empty());
        (accepted.contains(known), is_vague)
    });
    entries.retain(|known| {
        let fits = |(bytes, drives): &(u64, Vec<&ReportedDrive>)| {
            let size = known
                .size_bytes
                .map_or(Size::Unclear, |recorded_bytes| compare(recorded_bytes, *bytes));
            size != Size::Differs && models_agree(&known.model, drives)
        };
        let found = free.iter().position(fits);
        if let Some(place) = found {
            free.swap_remove(place);
        }
        found.is_none()
    });
    entries
}

/// Drives of the BMC that no report covers and that an operator accepted nevertheless, in words.
#[must_use]
pub fn uncovered(lists: &[DriveList], reported: &[ReportedDrive]) -> Vec<String> {
    let groups = groups(reported);
    let accepted = lists.iter().filter(|list| list.source == Source::Accepted);
    let lost = accepted.flat_map(|list| list.drives.iter().map(move |known| (list, known)));
    let lost = lost.filter(|(_, known)| !has_serial(known) || group_of_entry(&groups, known).is_none());
    lost.map(|(list, known)| {
        let size = known
            .size_bytes
            .map_or_else(String::new, |size| format!(" of {size} bytes"));
        let drive = drive_text(&known.name, known.serial.trim());
        format!("{drive}{size}, which the BMC lists: accepted by {}", list.by)
    })
    .collect()
}

/// True if one name contains the other: a BMC leaves the vendor out, and a kernel cuts SATA models after 16 characters.
fn models_agree(known: &str, drives: &[&ReportedDrive]) -> bool {
    let known = plain(known);
    known.is_empty()
        || drives.iter().all(|drive| {
            let reported = plain(&drive.model);
            !reported.is_empty() && (reported.contains(&known) || known.contains(&reported))
        })
}

/// The comparison of a BMC's size with a reported size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// Equal within rounding.
    Agrees,
    /// Equal only if the BMC mixes up decimal and binary units, as some do: neither confirms nor refutes.
    Unclear,
    Differs,
}

/// BMCs round to a marketing size: 960 GB for 960,197,124,096 bytes.
const ROUNDING: f64 = 0.005;
/// Ratios of a size in mixed-up units: KiB for KB, MiB for MB, GiB for GB, TiB for TB.
const UNITS: [f64; 4] = [1.024, 1.048_576, 1.073_741_824, 1.099_511_627_776];

fn compare(recorded_bytes: u64, reported: u64) -> Size {
    let ratio = recorded_bytes as f64 / (reported.max(1)) as f64;
    let near = |wanted: f64| (ratio / wanted - 1.0).abs() <= ROUNDING;
    if near(1.0) {
        Size::Agrees
    } else if UNITS.iter().any(|unit| near(*unit) || near(unit.recip())) {
        Size::Unclear
    } else {
        Size::Differs
    }
}
