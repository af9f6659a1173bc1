//! P_Key tables of ports, compared with the wanted ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::{Membership, PKey, Partitions};
use crate::guid::Guid;

/// A port's table, by index. Empty entries are 0. Programs use the first entry by default.
pub type PortTable = Vec<u16>;

/// Tables as read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// By port GUID.
    pub read: BTreeMap<Guid, PortTable>,
    /// Ports with unreadable tables, with the reason.
    pub unread: BTreeMap<Guid, String>,
}

impl Tables {
    /// Ports with this key, as full or limited members.
    pub fn holders(&self, key: PKey) -> impl Iterator<Item = Guid> {
        let has = move |table: &PortTable| table.iter().any(|entry| entry & 0x7fff == key.number());
        self.read
            .iter()
            .filter(move |(_, table)| has(table))
            .map(|(port, _)| *port)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DifferenceKind {
    /// The table could not be read, so its content is unknown.
    NotRead,
    /// The port is a full member of the default partition and can reach every other full member.
    OpenDefault,
    /// The port has the key of a partition that it does not belong to.
    Foreign,
    /// The port is a full member but should be limited.
    TooStrong,
    /// The port is a limited member but should be full.
    TooWeak,
    /// The port lacks a key.
    Lacking,
    /// Another key comes first.
    NotFirst,
}

/// A deviation of a port's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub port: Guid,
    /// The kind of the difference.
    pub kind: DifferenceKind,
    /// The partition.
    pub key: Option<PKey>,
    /// A description.
    pub text: String,
}

impl Difference {
    /// Whether the port can, or might, communicate with a port outside its partitions.
    pub fn breaks_isolation(&self) -> bool {
        use DifferenceKind::{Foreign, NotRead, OpenDefault, TooStrong};
        matches!(self.kind, NotRead | OpenDefault | Foreign | TooStrong)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}: {}", self.port, self.text)
    }
}

/// Compares the tables of these ports with the wanted ones. An unread port counts as a difference.
///
/// `managers` are the ports of subnet managers, which are full members of the default partition.
pub fn compare(
    wanted: &Partitions,
    managers: &BTreeSet<Guid>,
    ports: impl IntoIterator<Item = Guid>,
    tables: &Tables,
) -> Vec<Difference> {
    let by_port = wanted.by_port();
    let none = BTreeMap::new();
    let first: BTreeMap<Guid, PKey> = wanted
        .partitions
        .values()
        .filter(|partition| partition.first)
        .flat_map(|partition| partition.members.keys().map(|port| (*port, partition.key)))
        .collect();
    let mut differences = Vec::new();
    for port in ports {
        let Some(table) = tables.read.get(&port) else {
            let why = tables
                .unread
                .get(&port)
                .map_or("no reading was requested", String::as_str);
            let text = format!("its table was not read: {why}");
            differences.push(difference(port, DifferenceKind::NotRead, None, text));
            continue;
        };
        let mut should = by_port.get(&port).unwrap_or(&none).clone();
        let in_default = if managers.contains(&port) || wanted.management.contains(&port) {
            Membership::Full
        } else {
            Membership::Limited
        };
        should.insert(PKey::DEFAULT, in_default);
        one(wanted, port, &should, table, &mut differences);
        if let Some(key) = first.get(&port)
            && let Some(at) = table.iter().position(|entry| entry & 0x7fff == key.number())
            && at > 0
        {
            let text = format!("{} is at index {at} of its table, not at 0", named(wanted, *key));
            differences.push(difference(port, DifferenceKind::NotFirst, Some(*key), text));
        }
    }
    differences
}

fn difference(port: Guid, kind: DifferenceKind, key: Option<PKey>, text: String) -> Difference {
    Difference { port, kind, key, text }
}

/// Such as `0x0123 (cluster acme-7)`.
fn named(wanted: &Partitions, key: PKey) -> String {
    match wanted.partitions.get(&key) {
        Some(partition) => format!("{key} ({})", partition.name),
        None if key == PKey::DEFAULT => format!("{key} (the default partition)"),
        None => format!("{key} (an unknown partition)"),
    }
}

fn one(
    wanted: &Partitions,
    port: Guid,
    should: &BTreeMap<PKey, Membership>,
    table: &PortTable,
    differences: &mut Vec<Difference>,
) {
    let mut has: BTreeMap<PKey, Membership> = BTreeMap::new();
    for (key, membership) in table.iter().filter_map(|entry| PKey::of_entry(*entry)) {
        let known = has.entry(key).or_insert(membership);
        *known = (*known).max(membership);
    }
    for (key, membership) in &has {
        let words = named(wanted, *key);
        let (kind, text) = match (should.get(key), membership) {
            (None, membership) => {
                let text = format!(
                    "is a {} member of {words}, but should not be a member",
                    membership.word()
                );
                (DifferenceKind::Foreign, text)
            }
            (Some(Membership::Limited), Membership::Full) => {
                let kind = if *key == PKey::DEFAULT {
                    DifferenceKind::OpenDefault
                } else {
                    DifferenceKind::TooStrong
                };
                (
                    kind,
                    format!("is a full member of {words}, but should be a limited member"),
                )
            }
            (Some(Membership::Full), Membership::Limited) => {
                let text = format!("is a limited member of {words}, but should be a full member");
                (DifferenceKind::TooWeak, text)
            }
            _ => continue,
        };
        differences.push(difference(port, kind, Some(*key), text));
    }
    for (key, membership) in should.iter().filter(|(key, _)| !has.contains_key(key)) {
        let text = format!(
            "is not a member of {}, but should be a {} member",
            named(wanted, *key),
            membership.word()
        );
        differences.push(difference(port, DifferenceKind::Lacking, Some(*key), text));
    }
}
