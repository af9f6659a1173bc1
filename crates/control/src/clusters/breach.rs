//! Breaches of the isolation of clusters: what a reading shows, when a breach begins, goes on and ends, and its events.
//!
//! | kind | seen |
//! |---|---|
//! | `partition-file` | the file of the fabric manager is missing, has another content, or other users may change it |
//! | `open-default` | a port is a full member of the default partition and can reach every port |
//! | `foreign-key` | a port has a partition key that it must not have |
//! | `cut-off` | a port lacks the key of its cluster |
//! | `no-manager` | no subnet manager answers: ports keep their keys, and a port that comes up gets none |
//! | `foreign-manager` | another subnet manager is the master and sets the keys of all ports |
//!
//! At most one breach of a kind is open. A breach ends when every port was read with the right keys: the reading of some
//! ports says nothing about the others.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_fabric::{ManagerFault, PartitionFile, Reading};
use rackwright_ground::audit::export::time;
use rackwright_ground::hall::HallError;
use rackwright_ground::text::counted;
use rackwright_infiniband::{Guid, Membership, PKey};
use rackwright_lifecycle::{EventKind, Timestamp};
use rackwright_store::{BreachRow, EventRow};
use serde::{Deserialize, Serialize};

use super::partitions::unreadable;

/// Most ports, and most clusters, that a sentence names.
const MAX_NAMED: usize = 8;

/// The kind of a breach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The partition file is not the one that rackwrightd wrote, or others may write it.
    File,
    /// A port that is not the subnet manager's is a full member of the default partition.
    OpenDefault,
    /// A port has the key of a cluster that it does not belong to, or a key of no cluster.
    ForeignKey,
    /// A port lacks the key of its cluster, or is only a limited member.
    CutOff,
    /// No subnet manager answers.
    NoManager,
    /// Another subnet manager is the master, and sets the keys of all ports.
    ForeignManager,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::File,
        Self::OpenDefault,
        Self::ForeignKey,
        Self::CutOff,
        Self::NoManager,
        Self::ForeignManager,
    ];

    /// The name under which breaches are stored and sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "partition-file",
            Self::OpenDefault => "open-default",
            Self::ForeignKey => "foreign-key",
            Self::CutOff => "cut-off",
            Self::NoManager => "no-manager",
            Self::ForeignManager => "foreign-manager",
        }
    }

    /// Whether every check sees this kind. The other kinds are seen on the ports, of which a check reads some.
    #[must_use]
    pub fn is_seen_by_each_check(self) -> bool {
        matches!(self, Self::File | Self::NoManager | Self::ForeignManager)
    }

    /// The repair, for the operator.
    fn repair(self) -> &'static str {
        match self {
            Self::File => "rackwrightd restores the file: find who has changed it",
            Self::OpenDefault | Self::ForeignKey | Self::CutOff => {
                "rackwrightd has the keys of the ports set again: find who has changed them"
            }
            Self::NoManager => "start OpenSM; rackwrightd reads every port then",
            Self::ForeignManager => "stop the other subnet manager; rackwrightd reads every port then",
        }
    }

    /// The fault of a cluster's ports, for the cluster's customer.
    fn of_ports(self) -> &'static str {
        match self {
            Self::File | Self::OpenDefault | Self::NoManager | Self::ForeignManager => {
                "can communicate with ports of others"
            }
            Self::ForeignKey => "can use a partition key of others",
            Self::CutOff => "cannot communicate with the other nodes of the cluster",
        }
    }
}

/// The keys that ports may have, and those that they must have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortKeys {
    /// By key, the uid of its cluster and the ports that may have the key.
    pub may_have: BTreeMap<PKey, (String, BTreeSet<Guid>)>,
    /// By port, the key that the port must have, and the uid of its cluster.
    pub must_have: BTreeMap<Guid, (PKey, String)>,
    /// The wanted partitions were read back from every port; false: ports may still lack keys.
    pub is_in_place: bool,
}

/// The findings of one kind in a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    /// The fault, for people.
    pub text: String,
    pub ports: BTreeSet<Guid>,
    /// By uid of a cluster, the number of ports that concern it.
    pub clusters: BTreeMap<String, u64>,
    /// Number of ports that concern no known cluster.
    pub unknown: u64,
}

/// A cluster that a breach concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConcernedCluster {
    pub id: String,
    /// Number of ports that concern it: the most that one check found.
    pub ports: u64,
    /// When the breach was first seen at this cluster. None: stored by a version without it; since the start of the breach.
    #[serde(default)]
    pub since: Option<Timestamp>,
}

/// What a breach concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concerned {
    /// The fault, for people.
    pub text: String,
    /// Number of ports: the most that one check found.
    pub ports: u64,
    /// Some of these ports.
    pub named: Vec<Guid>,
    /// Clusters by uid.
    pub clusters: BTreeMap<String, ConcernedCluster>,
    /// When the breach was first seen at a port of an unknown cluster. None: at no such port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_since: Option<Timestamp>,
}

/// A stored breach, with its parsed body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// The stored values.
    pub row: BreachRow,
    /// The parsed `body` of the row, which is written again when the breach is stored.
    pub concerned: Concerned,
}

/// Changes to store, and to report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BreachChanges {
    /// Breaches that have changed.
    pub changed: Vec<Breach>,
    /// Their events.
    pub events: Vec<EventRow>,
    /// Sentences for the audit.
    pub records: Vec<String>,
    /// Number of new breaches.
    pub begun: u64,
}

impl BreachChanges {
    /// Adds later news.
    pub fn add(&mut self, later: Self) {
        // A breach that has changed again replaces its former state.
        self.changed
            .retain(|known| later.changed.iter().all(|one| one.row.id != known.row.id));
        self.changed.extend(later.changed);
        self.events.extend(later.events);
        self.records.extend(later.records);
        self.begun += later.begun;
    }
}

impl Breach {
    /// Parses a stored breach.
    ///
    /// # Errors
    /// The row does not parse.
    pub fn of_row(row: BreachRow) -> Result<Self, HallError> {
        let concerned = serde_json::from_str(&row.body).map_err(|e| unreadable(format!("breach {}: {e}", row.id)))?;
        Ok(Self { row, concerned })
    }

    /// The row to store.
    ///
    /// # Errors
    /// The breach cannot be written as JSON.
    pub fn to_row(&self) -> Result<BreachRow, HallError> {
        let body = serde_json::to_string(&self.concerned)
            .map_err(|e| HallError::Broken(format!("breach {} cannot be written: {e}", self.row.id)))?;
        Ok(BreachRow {
            body,
            ..self.row.clone()
        })
    }

    /// The kind; none: another version has stored the breach.
    fn kind(&self) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == self.row.kind)
    }

    fn begin(finding: &Finding, good_at: Option<Timestamp>, now: Timestamp) -> Self {
        let kind = finding.kind.as_str();
        Self {
            row: BreachRow {
                id: format!("{kind}/{}", now.0),
                kind: kind.to_owned(),
                good_at,
                since: now,
                seen: now,
                ended_at: None,
                body: String::new(),
            },
            concerned: Concerned {
                text: String::new(),
                ports: 0,
                named: Vec::new(),
                clusters: BTreeMap::new(),
                unknown_since: None,
            },
        }
    }

    /// Adds what a check found. Returns the clusters that are new in this breach.
    fn see(&mut self, finding: &Finding, ids: &BTreeMap<String, String>, now: Timestamp) -> Vec<ConcernedCluster> {
        self.row.seen = now;
        let known = &mut self.concerned;
        let ports = u64::try_from(finding.ports.len()).unwrap_or(u64::MAX);
        if known.text.is_empty() || ports > known.ports {
            known.text.clone_from(&finding.text);
            known.named = finding.ports.iter().take(MAX_NAMED).copied().collect();
            known.ports = ports;
        }
        // A cluster that was released meanwhile has no customer either.
        if finding.unknown > 0 || finding.clusters.keys().any(|uid| !ids.contains_key(uid)) {
            known.unknown_since.get_or_insert(now);
        }
        let mut new = Vec::new();
        for (uid, ports) in &finding.clusters {
            if let Some(cluster) = known.clusters.get_mut(uid) {
                cluster.ports = cluster.ports.max(*ports);
                continue;
            }
            // A cluster that is gone has no customer to tell.
            let Some(id) = ids.get(uid) else {
                continue;
            };
            let (id, ports) = (id.clone(), *ports);
            let since = Some(now);
            let cluster = ConcernedCluster { id, ports, since };
            new.push(cluster.clone());
            known.clusters.insert(uid.clone(), cluster);
        }
        new
    }

    /// The words that the operator reads: `512 ports ...; clusters alpha, beta`.
    fn sentence(&self) -> String {
        let mut ids: Vec<&str> = self.concerned.clusters.values().map(|one| one.id.as_str()).collect();
        ids.sort_unstable();
        match ids.len() {
            0 => self.concerned.text.clone(),
            1 => format!("{}; cluster {}", self.concerned.text, ids[0]),
            _ => format!("{}; clusters {}", self.concerned.text, some(ids.into_iter())),
        }
    }

    fn event(&self, kind: EventKind, target: String, message: String, at: Timestamp) -> EventRow {
        let mut attributes = BTreeMap::from([
            ("breach".to_owned(), self.row.kind.clone()),
            ("since".to_owned(), time(self.row.since)),
        ]);
        if let Some(good_at) = self.row.good_at {
            attributes.insert("not_before".to_owned(), time(good_at));
        }
        if let Some(ended_at) = self.row.ended_at {
            attributes.insert("until".to_owned(), time(ended_at));
        }
        EventRow {
            at,
            kind,
            target,
            message,
            attributes,
            ..EventRow::default()
        }
    }
}

/// `a, b and 3 more`
fn some<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(MAX_NAMED);
    let mut list = names.take(MAX_NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        list.push_str(&format!(" and {more} more"));
    }
    list
}

/// The digest of a partition file.
#[must_use]
pub fn digest(content: &[u8]) -> String {
    format!("b3-{}", blake3::hash(content).to_hex())
}

/// The breach that a partition file shows. `known` are the digests of the files that may be in place.
#[must_use]
pub fn judge_file(file: &PartitionFile, known: &[&str]) -> Option<Finding> {
    let path = file.path.display();
    let text = match &file.content {
        None => {
            format!("{path} is missing: without this file, every port becomes a full member of the default partition")
        }
        Some(_) if !file.is_protected => format!("other users may change {path} ({})", file.owner),
        Some(content) if !known.contains(&digest(content).as_str()) => {
            format!("{path} ({}) has another content than rackwrightd wrote", file.owner)
        }
        Some(_) => return None,
    };
    Some(Finding {
        kind: Kind::File,
        text,
        ports: BTreeSet::new(),
        clusters: BTreeMap::new(),
        unknown: 0,
    })
}

/// The breach that the fault of a subnet manager is.
#[must_use]
pub fn judge_manager(fault: &ManagerFault) -> Finding {
    let (kind, text) = match fault {
        ManagerFault::Absent(why) => (Kind::NoManager, why.clone()),
        ManagerFault::Foreign { master, fabric } => {
            let of = fabric
                .as_deref()
                .map(|name| format!(" of fabric {name}"))
                .unwrap_or_default();
            let text =
                format!("{master} is the master and sets the keys of all ports{of}; OpenSM beside rackwrightd is not");
            (Kind::ForeignManager, text)
        }
    };
    Finding {
        kind,
        text,
        ports: BTreeSet::new(),
        clusters: BTreeMap::new(),
        unknown: 0,
    }
}

/// The breaches that these tables show. Unread ports show nothing.
#[must_use]
pub fn judge_ports(keys: &PortKeys, reading: &Reading) -> Vec<Finding> {
    let mut found = BTreeMap::<Kind, Seen>::new();
    for (port, table) in &reading.tables.read {
        let mut has: BTreeMap<PKey, Membership> = BTreeMap::new();
        for (key, membership) in table.iter().filter_map(|entry| PKey::of_entry(*entry)) {
            let known = has.entry(key).or_insert(membership);
            *known = (*known).max(membership);
        }
        let own = keys.must_have.get(port);
        let owner = own.map(|(_, uid)| uid);
        if has.get(&PKey::DEFAULT) == Some(&Membership::Full) && !reading.managers.contains(port) {
            found.entry(Kind::OpenDefault).or_default().note(*port, owner);
        }
        for key in has.keys().filter(|key| **key != PKey::DEFAULT) {
            let known = keys.may_have.get(key);
            if known.is_some_and(|(_, ports)| ports.contains(port)) {
                continue;
            }
            let seen = found.entry(Kind::ForeignKey).or_default();
            seen.note(*port, owner);
            seen.note(*port, known.map(|(holder, _)| holder));
        }
        if let Some((key, uid)) = own
            && keys.is_in_place
            && has.get(key) != Some(&Membership::Full)
        {
            found.entry(Kind::CutOff).or_default().note(*port, Some(uid));
        }
    }
    let read = reading.tables.read.len();
    found.into_iter().map(|(kind, seen)| seen.finding(kind, read)).collect()
}

/// Ports with a fault of one kind.
#[derive(Default)]
struct Seen {
    ports: BTreeSet<Guid>,
    /// By uid of a cluster, the ports that concern it.
    clusters: BTreeMap<String, BTreeSet<Guid>>,
}

impl Seen {
    fn note(&mut self, port: Guid, cluster: Option<&String>) {
        self.ports.insert(port);
        if let Some(uid) = cluster {
            self.clusters.entry(uid.clone()).or_default().insert(port);
        }
    }

    /// `read` is the number of ports that were read.
    fn finding(self, kind: Kind, read: usize) -> Finding {
        let text = ports_text(kind, &self.ports, read);
        let known: BTreeSet<&Guid> = self.clusters.values().flatten().collect();
        let unknown = self.ports.iter().filter(|port| !known.contains(port)).count();
        let unknown = u64::try_from(unknown).unwrap_or(u64::MAX);
        let clusters = self.clusters.into_iter();
        Finding {
            kind,
            text,
            ports: self.ports,
            clusters: clusters
                .map(|(uid, ports)| (uid, u64::try_from(ports.len()).unwrap_or(u64::MAX)))
                .collect(),
            unknown,
        }
    }
}

/// `512 of 600 ports read are full members of the default partition, 0x... is the first`
fn ports_text(kind: Kind, ports: &BTreeSet<Guid>, read: usize) -> String {
    let what = match kind {
        Kind::File | Kind::OpenDefault | Kind::NoManager | Kind::ForeignManager => {
            "are full members of the default partition"
        }
        Kind::ForeignKey => "have a partition key that they must not have",
        Kind::CutOff => "lack the key of their cluster",
    };
    let first = ports.first().map(ToString::to_string).unwrap_or_default();
    format!(
        "{} of {} read {what}, {first} is the first",
        ports.len(),
        counted(read, "port")
    )
}

/// The open breaches after a check. `ids` are the clusters that are not released: id by uid. `good_at` is the last time
/// at which every port was read with the right keys.
#[must_use]
pub fn settle(
    open: &[Breach],
    found: &[Finding],
    ids: &BTreeMap<String, String>,
    good_at: Option<Timestamp>,
    now: Timestamp,
) -> BreachChanges {
    let mut changes = BreachChanges::default();
    for finding in found {
        let known = open.iter().find(|breach| breach.kind() == Some(finding.kind));
        let mut breach = known.cloned().unwrap_or_else(|| Breach::begin(finding, good_at, now));
        let new = breach.see(finding, ids, now);
        if known.is_none() {
            let (sentence, repair) = (breach.sentence(), finding.kind.repair());
            let message = match good_at {
                Some(good_at) => format!(
                    "{sentence}; the last reading without it is of {}; {repair}",
                    time(good_at)
                ),
                None => format!("{sentence}; {repair}"),
            };
            let mut event = breach.event(EventKind::SecurityFabricBreach, "fabric".into(), message.clone(), now);
            let named = breach.concerned.named.iter().map(ToString::to_string);
            event
                .attributes
                .insert("ports".into(), breach.concerned.ports.to_string());
            event
                .attributes
                .insert("first_ports".into(), named.collect::<Vec<_>>().join(", "));
            changes.events.push(event);
            changes.records.push(format!("{} begun: {message}", breach.row.kind));
            changes.begun += 1;
        }
        for cluster in new {
            let message = format!(
                "the partition of the cluster is broken: {} {}; seen first at {}",
                counted(cluster.ports, "port"),
                finding.kind.of_ports(),
                time(now)
            );
            let target = format!("clusters/{}", cluster.id);
            changes
                .events
                .push(breach.event(EventKind::ClusterIsolationBreach, target, message, now));
        }
        changes.changed.push(breach);
    }
    changes
}

/// The end of all open breaches: every port was read with the right keys. `ids` as in [`settle`].
#[must_use]
pub fn end(open: &[Breach], ids: &BTreeMap<String, String>, now: Timestamp) -> BreachChanges {
    let mut changes = BreachChanges::default();
    for breach in open {
        let mut breach = breach.clone();
        breach.row.ended_at = Some(now.max(breach.row.seen));
        let span = format!("from {} to {}", time(breach.row.since), time(now.max(breach.row.seen)));
        let message = format!("over: {}; seen {span}", breach.sentence());
        let kind = EventKind::SecurityFabricBreachEnded;
        changes
            .events
            .push(breach.event(kind, "fabric".into(), message.clone(), now));
        changes.records.push(format!("{} {message}", breach.row.kind));
        for (uid, cluster) in &breach.concerned.clusters {
            // Another cluster of this name is not concerned.
            if ids.get(uid) != Some(&cluster.id) {
                continue;
            }
            let message = format!("the partition of the cluster is in order again; the breach was seen {span}");
            let target = format!("clusters/{}", cluster.id);
            changes
                .events
                .push(breach.event(EventKind::ClusterIsolationRestored, target, message, now));
        }
        changes.changed.push(breach);
    }
    changes
}
