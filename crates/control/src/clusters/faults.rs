//! Known faults of the fabric: open faults, their start, and the clusters that they affect. Each is a row, written when it
//! changes.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_ground::hall::HallError;
use rackwright_infiniband::Guid;
use rackwright_lifecycle::cluster::Impaired;
use rackwright_lifecycle::{ClusterId, EventKind, NodeId, Timestamp};
use rackwright_planner::watch::{Fault, Faults, Kind, broken, impaired};
use rackwright_store::{ComparisonRow, EventRow, ImpairedNodeRow, WriteTx};
use serde::{Deserialize, Serialize};

use super::partitions::{loaded, unreadable};

/// Most faults kept one by one. A site file of another fabric gives more. Broken links are always kept whole.
const MAX_OPEN: usize = 1000;
/// Most events of one comparison.
const MAX_EVENTS: usize = 100;
/// Most names in an event.
const MAX_NAMES: usize = 20;

/// The known state of the fabric.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Watch {
    /// The last comparison with the site.
    pub comparison: ComparisonRow,
    /// Open faults by id.
    pub open: BTreeMap<String, Open>,
    /// Cables between switches that plans must not use.
    pub broken: BTreeSet<String>,
    /// Nodes of clusters without their full connection, by node.
    pub impaired: BTreeMap<NodeId, ImpairedNodeRow>,
}

/// An open fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Open {
    pub fault: Fault,
    /// When it was first seen.
    pub since: Timestamp,
    /// Clusters with nodes on its cables.
    pub clusters: BTreeSet<ClusterId>,
    /// Clusters with bandwidth that depends on a link broken by it.
    pub counting: BTreeSet<ClusterId>,
}

/// The result of a comparison.
#[derive(Debug, Clone, Default)]
pub struct FabricComparison {
    /// Faults by id.
    pub faults: Faults,
    /// The cluster of each node with a running system.
    pub clusters: BTreeMap<NodeId, ClusterId>,
    /// By cable, the clusters that depend on it.
    pub counting: BTreeMap<String, BTreeSet<ClusterId>>,
    /// The time that the result describes.
    pub seen: Timestamp,
    /// The evaluated reading: the number of changes of the absent ports up to it, and its time.
    pub reading: (u64, Option<Timestamp>),
    /// Port GUIDs that answer in several fabrics.
    pub twice: BTreeSet<Guid>,
}

/// Changes since the last comparison.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FaultChanges {
    /// New faults.
    pub opened: Vec<Open>,
    /// Faults that are gone.
    pub closed: Vec<Open>,
    /// The set of links for placement has changed.
    pub links_changed: bool,
    /// The impaired nodes have changed: clusters may have to decide.
    pub nodes_changed: bool,
}

/// Parses a stored fault.
///
/// # Errors
/// The fault does not parse.
pub fn open_fault(id: &str, body: &str) -> Result<Open, HallError> {
    serde_json::from_str(body).map_err(|e| unreadable(format!("fault {id}: {e}")))
}

impl Watch {
    /// Reads the known state within a change, with the hall locked.
    ///
    /// # Errors
    /// The database failed, or the stored state does not parse.
    pub async fn load(tx: &mut WriteTx) -> Result<Self, HallError> {
        let comparison = loaded(tx.fabric_comparison().await)?.unwrap_or_default();
        let mut open = BTreeMap::new();
        for (id, body) in tx.fabric_faults().await? {
            let fault = open_fault(&id, &body)?;
            open.insert(id, fault);
        }
        let broken = tx.broken_links().await?.into_iter().collect();
        let impaired = tx.impaired_nodes().await?.into_iter();
        Ok(Self {
            comparison,
            open,
            broken,
            impaired: impaired.map(|row| (row.node.clone(), row)).collect(),
        })
    }

    /// Writes the rows that differ from `before`.
    pub async fn store(&self, tx: &mut WriteTx, before: &Self) -> Result<(), HallError> {
        for id in before.open.keys() {
            if !self.open.contains_key(id) {
                tx.delete_fabric_fault(id).await?;
            }
        }
        for (id, open) in &self.open {
            if before.open.get(id) != Some(open) {
                let body = serde_json::to_string(open)
                    .map_err(|e| HallError::Broken(format!("fault {id} of the fabric cannot be written: {e}")))?;
                tx.put_fabric_fault(id, &body).await?;
            }
        }
        for cable in self.broken.symmetric_difference(&before.broken) {
            tx.set_link_broken(cable, self.broken.contains(cable)).await?;
        }
        for node in before.impaired.keys() {
            if !self.impaired.contains_key(node) {
                tx.delete_impaired_node(node).await?;
            }
        }
        for (node, row) in &self.impaired {
            if before.impaired.get(node) != Some(row) {
                tx.put_impaired_node(row).await?;
            }
        }
        Ok(tx.put_fabric_comparison(&self.comparison).await?)
    }

    /// Replaces the known state by the result.
    pub fn settle(&mut self, found: &FabricComparison, now: Timestamp) -> FaultChanges {
        let mut open: Vec<(String, Open)> = found
            .faults
            .iter()
            .map(|(id, fault)| (id.clone(), self.opened(id, fault, found, now)))
            .collect();
        // Faults that affect clusters are kept first.
        open.sort_by_key(|(_, one)| one.clusters.is_empty() && one.counting.is_empty());
        let more = open.len().saturating_sub(MAX_OPEN);
        self.comparison.more_faults = u64::try_from(more).unwrap_or(u64::MAX);
        open.truncate(MAX_OPEN);
        let open: BTreeMap<String, Open> = open.into_iter().collect();
        let not_in = |these: &BTreeMap<String, Open>, those: &BTreeMap<String, Open>| -> Vec<Open> {
            let new = these.iter().filter(|(id, _)| !those.contains_key(*id));
            new.map(|(_, one)| one.clone()).collect()
        };
        let (opened, closed) = (not_in(&open, &self.open), not_in(&self.open, &open));
        self.open = open;
        let links = broken(&found.faults);
        let links_changed = links != self.broken;
        self.broken = links;
        let nodes_changed = self.impair(found, now);
        (self.comparison.compared_changes, self.comparison.compared_reading) = found.reading;
        self.comparison.checked_at = Some(now);
        FaultChanges {
            opened,
            closed,
            links_changed,
            nodes_changed,
        }
    }

    fn opened(&self, id: &str, fault: &Fault, found: &FabricComparison, now: Timestamp) -> Open {
        let nodes = fault.nodes.iter();
        let counting = fault.broken.iter().filter_map(|cable| found.counting.get(cable));
        Open {
            fault: fault.clone(),
            since: self.open.get(id).map_or(now, |known| known.since),
            clusters: nodes
                .filter_map(|node| found.clusters.get(node.as_str()).cloned())
                .collect(),
            counting: counting.flatten().cloned().collect(),
        }
    }

    /// Ages all impairments by `s` seconds. Only tests do, which do not wait for the end of a grace.
    pub fn age(&mut self, s: i64) {
        for known in self.impaired.values_mut() {
            known.since = known.since.plus(-rackwright_lifecycle::seconds(s));
        }
    }

    /// Returns true if another node is impaired, or a known impairment was seen again later.
    fn impair(&mut self, found: &FabricComparison, now: Timestamp) -> bool {
        let nodes = impaired(&found.faults).into_iter();
        let ours = nodes.filter(|(node, _)| found.clusters.contains_key(node.as_str()));
        let next: BTreeMap<NodeId, ImpairedNodeRow> = ours
            .map(|(node, why)| {
                let node = NodeId::stored(node);
                let since = self.impaired.get(&node).map_or(now, |known| known.since);
                let seen = found.seen.max(since);
                (node.clone(), ImpairedNodeRow { node, since, seen, why })
            })
            .collect();
        let changed = next != self.impaired;
        self.impaired = next;
        changed
    }
}

/// The fault of a node's links. It counts from `since` at the earliest, the start of the node's present state.
#[must_use]
pub fn impaired_in_state(known: &ImpairedNodeRow, since: Timestamp) -> Impaired {
    Impaired {
        since: known.since.max(since),
        seen: known.seen,
        why: known.why.clone(),
    }
}

impl FaultChanges {
    /// The events of the changes. Beyond `MAX_EVENTS`, one event has the number of the rest.
    #[must_use]
    pub fn events(&self, now: Timestamp) -> Vec<EventRow> {
        let opened = self.opened.iter().map(|one| event(one, false, now));
        let closed = self.closed.iter().map(|one| event(one, true, now));
        let mut events: Vec<EventRow> = opened.chain(closed).take(MAX_EVENTS).collect();
        let all = self.opened.len() + self.closed.len();
        if all > MAX_EVENTS {
            events.push(EventRow {
                at: now,
                kind: EventKind::FabricFaults,
                target: "fabric".to_owned(),
                message: format!(
                    "{} more faults opened or closed; `rackwright fabric faults` lists the open faults",
                    all - MAX_EVENTS
                ),
                ..EventRow::default()
            });
        }
        events
    }
}

fn list_some(names: impl ExactSizeIterator<Item: ToString>) -> String {
    let more = names.len().saturating_sub(MAX_NAMES);
    let mut words: Vec<String> = names.take(MAX_NAMES).map(|name| name.to_string()).collect();
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join(", ")
}

/// `cluster alpha uses a broken link`; empty: no cluster does.
#[must_use]
pub fn counting_text(open: &Open) -> String {
    match open.counting.len() {
        0 => String::new(),
        1 => format!("cluster {} uses a broken link", list_some(open.counting.iter())),
        _ => format!("clusters {} use a broken link", list_some(open.counting.iter())),
    }
}

fn event(open: &Open, is_closed: bool, now: Timestamp) -> EventRow {
    let fault = &open.fault;
    let kind = match (fault.kind, is_closed) {
        (Kind::Cable, false) => EventKind::FabricCable,
        (Kind::Cable, true) => EventKind::FabricCableMended,
        (Kind::PortAbsent, false) => EventKind::FabricPortAbsent,
        (Kind::PortAbsent, true) => EventKind::FabricPortBack,
        (Kind::GuidTwice, false) => EventKind::FabricGuidTwice,
        (Kind::GuidTwice, true) => EventKind::FabricGuidTwiceOver,
    };
    let mut message = match is_closed {
        true => format!("cleared: {}", fault.text),
        false => fault.text.clone(),
    };
    if !is_closed && !open.clusters.is_empty() {
        message = format!("{message}; affects nodes of {}", list_some(open.clusters.iter()));
    }
    if !is_closed && !open.counting.is_empty() {
        message = format!("{message}; {}", counting_text(open));
    }
    let ends: Vec<String> = fault.ends.iter().map(|[a, b]| format!("{a} - {b}")).collect();
    let clusters: BTreeSet<ClusterId> = open.clusters.union(&open.counting).cloned().collect();
    let attributes = [
        ("fault", fault.what.clone()),
        ("cables", list_some(fault.cables.iter())),
        ("ends", list_some(ends.iter())),
        ("nodes", list_some(fault.nodes.iter())),
        ("clusters", list_some(clusters.iter())),
    ];
    EventRow {
        at: now,
        kind,
        target: "fabric".to_owned(),
        message,
        attributes: attributes
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        ..EventRow::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(kind: Kind, cable: &str, node: &str) -> Fault {
        let is_host = !node.is_empty();
        Fault {
            kind,
            what: "missing".into(),
            cables: vec![cable.into()],
            ends: vec![["a/1".into(), "b/1".into()]],
            nodes: is_host.then(|| node.to_owned()).into_iter().collect(),
            impairs: is_host,
            broken: if is_host { Vec::new() } else { vec![cable.into()] },
            text: format!("{cable} is out"),
            replaced: Vec::new(),
        }
    }

    fn found(faults: &[(&str, Fault)], seen: i64) -> FabricComparison {
        FabricComparison {
            faults: faults
                .iter()
                .map(|(id, fault)| ((*id).to_owned(), fault.clone()))
                .collect(),
            clusters: [("n1".into(), "alpha".into())].into(),
            counting: [("up1".to_owned(), ["beta".into()].into())].into(),
            seen: Timestamp(seen),
            ..FabricComparison::default()
        }
    }

    #[test]
    fn a_fault_is_reported_when_it_opens_and_closes() {
        let mut watch = Watch::default();
        let faults = [
            ("cable/missing/up1", fault(Kind::Cable, "up1", "")),
            ("port-absent/n1", fault(Kind::PortAbsent, "c1", "n1")),
            ("port-absent/n9", fault(Kind::PortAbsent, "c9", "n9")),
        ];
        let changes = watch.settle(&found(&faults, 5), Timestamp(5));
        assert!(changes.links_changed && changes.nodes_changed);
        let events = changes.events(Timestamp(5));
        let kinds: Vec<_> = events
            .iter()
            .map(|event| (event.kind.to_string(), event.message.as_str()))
            .collect();
        assert_eq!(
            kinds,
            [
                ("fabric.cable".to_owned(), "up1 is out; cluster beta uses a broken link"),
                ("fabric.port-absent".to_owned(), "c1 is out; affects nodes of alpha"),
                ("fabric.port-absent".to_owned(), "c9 is out"),
            ]
        );
        assert_eq!(events[0].attributes["ends"], "a/1 - b/1");
        assert_eq!(events[1].attributes["clusters"], "alpha");
        assert_eq!(watch.broken, ["up1".to_owned()].into());

        let again = watch.settle(&found(&faults, 9), Timestamp(9));
        assert!(again.opened.is_empty() && again.closed.is_empty() && !again.links_changed);
        assert!(again.nodes_changed, "it is so for longer");
        assert_eq!(watch.open["port-absent/n1"].since, Timestamp(5));
        let known = impaired_in_state(&watch.impaired["n1"], Timestamp(1));
        assert_eq!((known.since, known.seen), (Timestamp(5), Timestamp(9)));
        // The time before the node's present state does not count.
        let later = impaired_in_state(&watch.impaired["n1"], Timestamp(7));
        assert_eq!(later.since, Timestamp(7));
        assert!(!watch.impaired.contains_key("n9"), "it is in no cluster");

        let mended = watch.settle(&found(&faults[2..], 12), Timestamp(12));
        let kinds: Vec<_> = mended
            .events(Timestamp(12))
            .into_iter()
            .map(|event| event.kind)
            .collect();
        assert_eq!(kinds, ["fabric.cable-mended", "fabric.port-back"]);
        assert!(watch.broken.is_empty() && watch.impaired.is_empty());
    }

    #[test]
    fn a_stored_fault_that_does_not_parse_is_named() {
        let error = open_fault("cable/missing/up1", "{").unwrap_err().to_string();
        let why = "the stored state of the fabric cannot be read: fault cable/missing/up1: ";
        assert!(error.starts_with(why), "{error}");
    }

    #[test]
    fn faults_and_events_are_bounded() {
        let mut watch = Watch::default();
        let mut faults: Vec<(String, Fault)> = (0..3000)
            .map(|n| {
                (
                    format!("cable/missing/{n:04}"),
                    fault(Kind::Cable, &format!("x{n}"), ""),
                )
            })
            .collect();
        faults.push(("z".into(), fault(Kind::PortAbsent, "c1", "n1")));
        let faults: Vec<(&str, Fault)> = faults.iter().map(|(id, fault)| (&**id, fault.clone())).collect();
        let changes = watch.settle(&found(&faults, 5), Timestamp(5));
        assert_eq!((watch.open.len(), watch.comparison.more_faults), (MAX_OPEN, 2001));
        assert!(watch.open.contains_key("z"), "it concerns a cluster");
        assert_eq!(watch.broken.len(), 3000);
        let events = changes.events(Timestamp(5));
        assert_eq!(events.len(), MAX_EVENTS + 1);
        assert!(
            events[MAX_EVENTS].message.starts_with("900 more faults"),
            "{:?}",
            events[MAX_EVENTS]
        );
    }
}
