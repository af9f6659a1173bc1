//! Partition keys: the key of each cluster, and whether every port of the fabric was read with its wanted keys.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_infiniband::partition::{KeyPool, KeyState, PoolError, ReadingNumber};
use rackwright_infiniband::{Guid, PKey, Partition, Partitions, Tables};
use rackwright_lifecycle::Timestamp;
use rackwright_lifecycle::cluster::Partition as Fact;
use rackwright_site::model::Site;
use rackwright_store::ClusterRecord;
use serde::{Deserialize, Serialize};

use super::faults::Watch;
use crate::text::counted;

/// Longest partition name that OpenSM accepts.
const NAME_MAX: usize = 32;

/// The stored state of the partitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fabric {
    pool: KeyPool,
    /// By the cluster's uid.
    members: BTreeMap<String, Members>,
    /// Grows with every change of partitions.
    pub wanted: u64,
    /// The version that was brought to the fabric and read back from every port.
    pub applied: u64,
    /// The time of the last such reading.
    pub proven_at: Option<Timestamp>,
    /// Why the last try failed; empty: it succeeded.
    pub fault: String,
    /// Ports of members that were missing in that reading.
    absent: BTreeSet<Guid>,
    /// Ports that held a returned key and were missing in the last reading: cut off, or switched off. Their keys stay
    /// reserved, and clusters do not wait for them.
    #[serde(default)]
    cut_off: BTreeSet<Guid>,
    reading: ReadingNumber,
    /// Known faults of the fabric.
    #[serde(default)]
    pub watch: Watch,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Members {
    name: String,
    key: PKey,
    ports: BTreeSet<Guid>,
}

impl Fabric {
    /// Partitions over a range of keys.
    ///
    /// # Errors
    /// The range is not valid.
    pub fn new(first: PKey, last: PKey) -> Result<Self, PoolError> {
        Ok(Self {
            pool: KeyPool::new(first, last)?,
            members: BTreeMap::new(),
            wanted: 0,
            applied: 0,
            proven_at: None,
            fault: String::new(),
            absent: BTreeSet::new(),
            cut_off: BTreeSet::new(),
            reading: ReadingNumber::default(),
            watch: Watch::default(),
        })
    }

    /// Parses the stored form.
    ///
    /// # Errors
    /// The text does not parse.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The stored form.
    ///
    /// # Errors
    /// It cannot be serialised, which would be a bug.
    pub fn text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Whether no partition was ever requested.
    pub fn is_unused(&self) -> bool {
        self.wanted == 0
    }

    /// Ports of members that were missing in the last reading of the fabric.
    pub fn absent(&self) -> &BTreeSet<Guid> {
        &self.absent
    }

    /// Gives a cluster a key for these ports, or replaces the ports of its key. Returns the key and the version that
    /// contains it.
    ///
    /// # Errors
    /// All keys are taken.
    pub fn hold(&mut self, cluster: &str, uid: &str, ports: BTreeSet<Guid>) -> Result<(PKey, u64), PoolError> {
        let key = self.pool.allocate(uid, &ports)?;
        let name = partition_name(cluster, key);
        self.members.insert(uid.to_owned(), Members { name, key, ports });
        self.wanted += 1;
        Ok((key, self.wanted))
    }

    /// Removes a cluster's key from its ports. Returns the version without it.
    pub fn drop_cluster(&mut self, uid: &str) -> u64 {
        if let Some(members) = self.members.remove(uid) {
            // Cannot fail: the pool gave the key to this cluster.
            let _ = self.pool.release(members.key, uid, self.reading);
            self.wanted += 1;
        }
        self.wanted
    }

    /// The wanted partitions of the fabric.
    pub fn partitions(&self) -> Partitions {
        let of = |members: &Members| {
            let ports = members.ports.iter().copied();
            Partition::of_cluster(members.name.clone(), members.key, ports)
        };
        Partitions {
            management: BTreeSet::new(),
            partitions: self
                .members
                .values()
                .map(|members| (members.key, of(members)))
                .collect(),
        }
    }

    /// Notes that version `applied` was brought to the fabric and read back.
    pub fn record_proof(&mut self, applied: u64, absent: BTreeSet<Guid>, tables: Option<&Tables>, now: Timestamp) {
        self.applied = self.applied.max(applied);
        self.proven_at = Some(now);
        self.fault.clear();
        self.absent = absent;
        self.reading.0 += 1;
        // Only a reading of the ports themselves frees a key.
        if let Some(tables) = tables {
            self.pool.observe(self.reading, tables);
            let seen = |port: &Guid| tables.read.contains_key(port) || tables.unread.contains_key(port);
            let left = self.pool.taken().values().filter_map(left);
            self.cut_off = left.flatten().filter(|port| !seen(port)).copied().collect();
        }
    }

    /// Whether returned keys are, or may be, still in ports of the fabric.
    pub fn is_draining(&self) -> bool {
        let mut ports = self.pool.taken().values().filter_map(left).flatten();
        ports.any(|port| !self.cut_off.contains(port))
    }

    /// The state of a cluster's partition.
    pub fn fact(&self, cluster: &ClusterRecord) -> Fact {
        self.fact_excusing(cluster, &BTreeSet::new())
    }

    /// The same without a wait for the ports in `excused`: their nodes are in use, and get the key when they return.
    pub fn fact_excusing(&self, cluster: &ClusterRecord, excused: &BTreeSet<Guid>) -> Fact {
        if cluster.partition.is_none() {
            return Fact::None;
        }
        let Some(members) = self.members.get(&cluster.uid) else {
            return self.draining(&cluster.uid);
        };
        if !self.fault.is_empty() {
            return Fact::Faulty(self.fault.clone());
        }
        if self.applied < cluster.partitions_version {
            return Fact::Pending;
        }
        let absent: Vec<String> = members
            .ports
            .intersection(&self.absent)
            .filter(|port| !excused.contains(port))
            .map(ToString::to_string)
            .collect();
        match absent.first() {
            None => Fact::Proven,
            Some(first) => Fact::Faulty(format!(
                "{} of the cluster's {} ports are not in the fabric, {first} is the first",
                absent.len(),
                members.ports.len()
            )),
        }
    }

    fn draining(&self, uid: &str) -> Fact {
        let of = |state: &KeyState| match state {
            KeyState::Draining { owner, ports, .. } if owner == uid => Some(ports.difference(&self.cut_off).count()),
            _ => None,
        };
        match self.pool.taken().values().find_map(of) {
            // The key of cut-off ports stays reserved, so the cluster does not wait for their return.
            None | Some(0) => Fact::Gone,
            Some(_) if !self.fault.is_empty() => Fact::Faulty(self.fault.clone()),
            Some(ports) => Fact::Draining(ports),
        }
    }

    /// The name of a cluster's partition at the fabric manager.
    pub fn name_of(&self, uid: &str) -> Option<&str> {
        self.members.get(uid).map(|members| members.name.as_str())
    }

    /// Number of ports in a cluster's partition.
    pub fn ports_of(&self, uid: &str) -> usize {
        self.members.get(uid).map_or(0, |members| members.ports.len())
    }
}

/// Ports that may still hold a returned key.
fn left(state: &KeyState) -> Option<&BTreeSet<Guid>> {
    match state {
        KeyState::Draining { ports, .. } => Some(ports),
        KeyState::Held { .. } => None,
    }
}

/// A unique name that OpenSM accepts: letters, digits and dashes, with a letter first.
fn partition_name(cluster: &str, key: PKey) -> String {
    let suffix = format!("-{:04x}", key.number());
    let mut name = String::from("c-");
    name.extend(cluster.chars().take(NAME_MAX - 2 - suffix.len()));
    name + &suffix
}

/// The port GUIDs of these nodes.
///
/// # Errors
/// A sentence with the nodes that lack a GUID in the site.
pub fn ports<'a>(site: &Site, nodes: impl Iterator<Item = &'a String>) -> Result<BTreeSet<Guid>, String> {
    let (mut ports, mut without) = (BTreeSet::new(), Vec::new());
    for name in nodes {
        let Some(id) = site.node_named(name) else {
            without.push(name.as_str());
            continue;
        };
        let guids = &site.node(id).port_guids;
        let known: Vec<Guid> = guids.iter().flatten().filter_map(|guid| Guid::new(*guid)).collect();
        if known.is_empty() || known.len() < site.sku_of(id).hcas.len() {
            without.push(name.as_str());
        }
        ports.extend(known);
    }
    match without.first() {
        None => Ok(ports),
        Some(first) => Err(format!(
            "the site file lacks port GUIDs of {}, {first} is the first: no partition can be set up",
            counted(without.len(), "node")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guid(n: u64) -> Guid {
        Guid::new(n).unwrap()
    }

    fn key(n: u16) -> PKey {
        PKey::new(n).unwrap()
    }

    fn tables(entries: &[(u64, &[u16])]) -> Tables {
        let mut tables = Tables::default();
        for (port, table) in entries {
            tables.read.insert(guid(*port), table.to_vec());
        }
        tables
    }

    fn cluster(uid: &str, version: u64) -> ClusterRecord {
        let mut record = crate::testing::cluster(uid);
        record.uid = uid.into();
        record.partition = Some(1);
        record.partitions_version = version;
        record
    }

    #[test]
    fn a_partition_is_proven_by_its_own_version_and_no_former_one() {
        let mut fabric = Fabric::new(key(1), key(9)).unwrap();
        let (_, first) = fabric.hold("a", "a", [guid(1)].into()).unwrap();
        let (_, second) = fabric.hold("b", "b", [guid(2)].into()).unwrap();
        fabric.record_proof(first, BTreeSet::new(), None, Timestamp(5));
        assert_eq!(fabric.fact(&cluster("a", first)), Fact::Proven);
        assert_eq!(fabric.fact(&cluster("b", second)), Fact::Pending);
        fabric.record_proof(second, [guid(2)].into(), None, Timestamp(6));
        assert_eq!(fabric.fact(&cluster("a", first)), Fact::Proven);
        let absent = fabric.fact(&cluster("b", second));
        assert!(
            matches!(&absent, Fact::Faulty(why) if why.contains("1 of the cluster's 1 ports")),
            "{absent:?}"
        );
        fabric.fault = "OpenSM is gone".into();
        assert_eq!(fabric.fact(&cluster("a", first)), Fact::Faulty("OpenSM is gone".into()));
    }

    #[test]
    fn a_key_is_gone_when_every_port_that_had_it_was_read_without_it_since() {
        let mut fabric = Fabric::new(key(1), key(1)).unwrap();
        let (given, version) = fabric.hold("a", "a", [guid(1), guid(2)].into()).unwrap();
        let entry = given.number() | 0x8000;
        fabric.record_proof(
            version,
            BTreeSet::new(),
            Some(&tables(&[(1, &[entry]), (2, &[entry])])),
            Timestamp(1),
        );
        let version = fabric.drop_cluster("a");
        assert!(fabric.partitions().partitions.is_empty());
        let record = cluster("a", version);
        assert!(matches!(fabric.fact(&record), Fact::Draining(_)));
        assert!(
            fabric.hold("b", "b", [guid(3)].into()).is_err(),
            "the only key is not free yet"
        );
        // One port still has the key; then one port gives no answer.
        fabric.record_proof(
            version,
            BTreeSet::new(),
            Some(&tables(&[(1, &[entry]), (2, &[])])),
            Timestamp(2),
        );
        assert!(matches!(fabric.fact(&record), Fact::Draining(_)));
        let mut silent = tables(&[(2, &[])]);
        silent.unread.insert(guid(1), "no answer".into());
        fabric.record_proof(version, BTreeSet::new(), Some(&silent), Timestamp(3));
        assert!(matches!(fabric.fact(&record), Fact::Draining(_)));
        // The manager's belief frees nothing.
        fabric.record_proof(version, BTreeSet::new(), None, Timestamp(4));
        assert!(fabric.is_draining());
        fabric.record_proof(version, BTreeSet::new(), Some(&tables(&[(1, &[0x7fff])])), Timestamp(5));
        assert_eq!(fabric.fact(&record), Fact::Gone);
        assert!(fabric.hold("b", "b", [guid(3)].into()).is_ok());
    }

    #[test]
    fn a_port_that_is_cut_off_keeps_the_key_from_others_and_the_cluster_from_nothing() {
        let mut fabric = Fabric::new(key(1), key(1)).unwrap();
        let (given, version) = fabric.hold("a", "a", [guid(1), guid(2)].into()).unwrap();
        let entry = given.number() | 0x8000;
        fabric.record_proof(
            version,
            BTreeSet::new(),
            Some(&tables(&[(1, &[entry]), (2, &[entry])])),
            Timestamp(1),
        );
        let version = fabric.drop_cluster("a");
        let record = cluster("a", version);
        fabric.record_proof(version, BTreeSet::new(), Some(&tables(&[(2, &[])])), Timestamp(2));
        assert_eq!(fabric.fact(&record), Fact::Gone);
        assert!(!fabric.is_draining(), "nothing is to be read again at once");
        assert!(
            fabric.hold("b", "b", [guid(3)].into()).is_err(),
            "port 1 may have the key"
        );
        // The port is back with its old key, and is read with all others from time to time.
        fabric.record_proof(version, BTreeSet::new(), Some(&tables(&[(1, &[entry])])), Timestamp(3));
        assert!(fabric.is_draining());
        fabric.record_proof(version, BTreeSet::new(), Some(&tables(&[(1, &[])])), Timestamp(4));
        assert!(fabric.hold("b", "b", [guid(3)].into()).is_ok());
    }

    #[test]
    fn what_is_stored_comes_back() {
        let mut fabric = Fabric::new(key(1), key(9)).unwrap();
        fabric.hold("a", "a", [guid(1)].into()).unwrap();
        fabric.drop_cluster("a");
        fabric.hold("b", "b", [guid(2)].into()).unwrap();
        assert_eq!(Fabric::parse(&fabric.text().unwrap()).unwrap(), fabric);
    }

    #[test]
    fn names_are_such_as_opensm_takes() {
        for name in ["a", "0-9", &"x".repeat(63)] {
            let mut fabric = Fabric::new(key(0x7ffe), key(0x7ffe)).unwrap();
            fabric.hold(name, name, [guid(1)].into()).unwrap();
            fabric.partitions().check().unwrap();
        }
    }
}
