//! Partition keys with their ports. A change of one cluster's partition reads and writes the rows of that cluster. Only the
//! replica that brings the partitions to the fabric reads all rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use rackwright_ground::hall::{HallError, work};
use rackwright_ground::text::{chain, counted};
use rackwright_infiniband::partition::{KeyPool, KeyState, OtherKey, PoolError, ReadingNumber};
use rackwright_infiniband::{Guid, PKey, Partition, Partitions, Tables};
use rackwright_lifecycle::{ClusterId, Timestamp};
use rackwright_site::model::Site;
use rackwright_store::{FabricKeyRow, FabricRow, Store, StoreError, TakenKeyRow, WriteTx};

use super::breach::PortKeys;

/// Longest partition name that OpenSM accepts.
const NAME_MAX: usize = 32;

/// The error of stored data that do not parse.
pub fn unreadable(why: impl Display) -> HallError {
    HallError::Broken(format!("the stored state of the fabric cannot be read: {why}"))
}

/// Names the row that does not parse.
///
/// # Errors
/// As the read.
pub fn loaded<T>(read: Result<T, StoreError>) -> Result<T, HallError> {
    read.map_err(|error| match error {
        StoreError::Corrupt { .. } => unreadable(chain(&error)),
        other => other.into(),
    })
}

/// Keys with their ports: of one cluster for a change of its partition, or of all clusters.
#[derive(Debug, Clone)]
pub struct Fabric {
    /// The fabric as a whole.
    pub state: FabricRow,
    pool: KeyPool,
    /// By the cluster's uid.
    members: BTreeMap<String, Members>,
    /// Ports of members that were missing in the last reading.
    absent: BTreeSet<Guid>,
    /// Ports that held a returned key and were missing in the last reading: cut off, or switched off. Their keys stay
    /// reserved, and clusters do not wait for them.
    cut_off: BTreeSet<Guid>,
    /// The rows of the keys as they were read.
    stored: BTreeMap<PKey, FabricKeyRow>,
}

#[derive(Debug, Clone, PartialEq)]
struct Members {
    name: String,
    key: PKey,
    ports: BTreeSet<Guid>,
}

/// The rows to write for a change.
#[derive(Debug)]
pub struct FabricChanges {
    state: FabricRow,
    keys: Vec<FabricKeyRow>,
    freed: Vec<PKey>,
}

impl FabricChanges {
    /// Writes the rows. The fabric must have been read within this change, or must not have changed since it was read; the
    /// hall is locked.
    ///
    /// # Errors
    /// The database failed.
    pub async fn store(&self, tx: &mut WriteTx) -> Result<(), StoreError> {
        for key in &self.freed {
            tx.delete_fabric_key(key.number()).await?;
        }
        for row in &self.keys {
            tx.put_fabric_key(row).await?;
        }
        tx.put_fabric(&self.state).await
    }
}

impl Fabric {
    /// All keys, parsed on a blocking thread. `None`: no partition was ever requested.
    ///
    /// # Errors
    /// The database failed, or the stored state does not parse.
    pub async fn load(store: &Store) -> Result<Option<Self>, HallError> {
        // The row with the version comes first: a change after it may be in the keys, and no change before it is missing.
        let Some(state) = loaded(store.fabric().await)? else {
            return Ok(None);
        };
        let keys = loaded(store.fabric_keys().await)?;
        work(move || Self::of_rows(state, keys, &[])).await?.map(Some)
    }

    /// The keys of one cluster, for a change of its partition.
    ///
    /// # Errors
    /// The database failed, or the stored state of this partition does not parse.
    pub async fn of_cluster(tx: &mut WriteTx, state: FabricRow, uid: &str) -> Result<Self, HallError> {
        let keys = loaded(tx.fabric_keys_of(uid).await)?;
        // A cluster with a key keeps it. Only the choice of a new key needs to know the others.
        let has_key = keys.iter().any(|key| key.released_at.is_none());
        let others = match has_key {
            true => Vec::new(),
            false => loaded(tx.taken_keys_of_others(uid).await)?,
        };
        Self::of_rows(state, keys, &others)
    }

    fn of_rows(state: FabricRow, rows: Vec<FabricKeyRow>, others: &[TakenKeyRow]) -> Result<Self, HallError> {
        let (mut keys, mut stored) = (BTreeMap::new(), BTreeMap::new());
        let mut members = BTreeMap::new();
        let (mut absent, mut cut_off) = (BTreeSet::new(), BTreeSet::new());
        for row in rows {
            let key = pkey(row.key)?;
            absent.extend(guids(row.key, &row.absent)?);
            cut_off.extend(guids(row.key, &row.cut_off)?);
            let (owner, ports) = (row.owner.clone(), guids(row.key, &row.ports)?);
            let state = match row.released_at {
                Some(reading) => KeyState::Draining {
                    owner,
                    ports,
                    released_at: ReadingNumber(reading),
                },
                None => {
                    let partition = Members {
                        name: row.name.clone(),
                        key,
                        ports: guids(row.key, &row.members)?,
                    };
                    members.insert(owner.clone(), partition);
                    KeyState::Held { owner, ports }
                }
            };
            keys.insert(key, state);
            stored.insert(key, row);
        }
        let mut taken = BTreeMap::new();
        for other in others {
            let state = match other.draining_ports {
                Some(ports) => OtherKey::Draining { ports },
                None => OtherKey::Held,
            };
            taken.insert(pkey(other.key)?, state);
        }
        let range = (pkey(state.first_key)?, pkey(state.last_key)?);
        let given = state.given_key.map(pkey).transpose()?;
        Ok(Self {
            pool: KeyPool::restore(range, given, keys, taken).map_err(unreadable)?,
            state,
            members,
            absent,
            cut_off,
            stored,
        })
    }

    /// The rows that have changed since they were read.
    pub fn changes(&self) -> FabricChanges {
        let (mut keys, mut freed) = (Vec::new(), Vec::new());
        for (key, state) in self.pool.taken() {
            let row = self.row(*key, state);
            if self.stored.get(key) != Some(&row) {
                keys.push(row);
            }
        }
        for key in self.stored.keys() {
            if !self.pool.taken().contains_key(key) {
                freed.push(*key);
            }
        }
        let given_key = self.pool.given().map(PKey::number);
        FabricChanges {
            state: FabricRow {
                given_key,
                ..self.state.clone()
            },
            keys,
            freed,
        }
    }

    fn row(&self, key: PKey, state: &KeyState) -> FabricKeyRow {
        let nothing = BTreeSet::new();
        let (owner, ports, released_at) = match state {
            KeyState::Held { owner, ports } => (owner, ports, None),
            KeyState::Draining {
                owner,
                ports,
                released_at,
            } => (owner, ports, Some(released_at.0)),
        };
        let held = self.members.get(owner).filter(|members| members.key == key);
        let members = held.map_or(&nothing, |members| &members.ports);
        let (absent, cut_off) = match released_at {
            None => (self.absent.intersection(members), self.cut_off.intersection(&nothing)),
            Some(_) => (self.absent.intersection(ports), self.cut_off.intersection(ports)),
        };
        FabricKeyRow {
            key: key.number(),
            owner: owner.clone(),
            name: held.map(|members| members.name.clone()).unwrap_or_default(),
            released_at,
            absent: absent.map(ToString::to_string).collect(),
            cut_off: cut_off.map(ToString::to_string).collect(),
            members: members.iter().map(ToString::to_string).collect(),
            ports: ports.iter().map(ToString::to_string).collect(),
        }
    }

    /// Gives a cluster a key for these ports, or replaces the ports of its key. Returns the key and the version that
    /// contains it.
    ///
    /// # Errors
    /// All keys are taken.
    pub fn hold(&mut self, cluster: &ClusterId, uid: &str, ports: BTreeSet<Guid>) -> Result<(PKey, u64), PoolError> {
        let key = self.pool.allocate(uid, &ports)?;
        if let Some(former) = self.members.get(uid) {
            // The partition does not miss a port that leaves it.
            let count = self.absent.len();
            self.absent
                .retain(|port| ports.contains(port) || !former.ports.contains(port));
            self.state.absent_changes += u64::from(self.absent.len() < count);
        }
        let name = partition_name(cluster, key);
        self.members.insert(uid.to_owned(), Members { name, key, ports });
        self.state.wanted += 1;
        Ok((key, self.state.wanted))
    }

    /// The ports of a cluster's partition, by the cluster's uid. `None`: the cluster holds no key.
    pub fn ports_of(&self, uid: &str) -> Option<&BTreeSet<Guid>> {
        self.members.get(uid).map(|members| &members.ports)
    }

    /// Removes a cluster's key from its ports. Returns the version without it.
    pub fn drop_cluster(&mut self, uid: &str) -> u64 {
        if let Some(members) = self.members.remove(uid) {
            // Cannot fail: the pool gave the key to this cluster.
            let _ = self.pool.release(members.key, uid, ReadingNumber(self.state.reading));
            self.state.wanted += 1;
        }
        self.state.wanted
    }

    /// The wanted partitions of the fabric.
    pub fn partitions(&self) -> Partitions {
        let of = |members: &Members| {
            let ports = members.ports.iter().copied();
            Partition::of_cluster(members.name.clone(), members.key, ports)
        };
        Partitions {
            partitions: self
                .members
                .values()
                .map(|members| (members.key, of(members)))
                .collect(),
            ..Partitions::default()
        }
    }

    /// The keys that ports may have and must have now. A port of a former, larger partition may keep the key until the
    /// change is in place.
    pub fn port_keys(&self) -> PortKeys {
        let is_in_place = self.state.wanted <= self.state.applied && self.state.fault.is_empty();
        let mut keys = PortKeys {
            is_in_place,
            ..PortKeys::default()
        };
        for (uid, members) in &self.members {
            let own = members.ports.iter().map(|port| (*port, (members.key, uid.clone())));
            keys.must_have.extend(own);
            keys.may_have.insert(members.key, (uid.clone(), members.ports.clone()));
        }
        for (key, state) in self.pool.taken() {
            let (owner, ports, is_returned) = match state {
                KeyState::Held { owner, ports } => (owner, ports, false),
                KeyState::Draining { owner, ports, .. } => (owner, ports, true),
            };
            let known = keys.may_have.entry(*key);
            let (_, may_have) = known.or_insert_with(|| (owner.clone(), BTreeSet::new()));
            if is_returned || !is_in_place {
                may_have.extend(ports);
            }
        }
        keys
    }

    /// Notes that version `applied` was brought to the fabric and read back.
    pub fn record_proof(&mut self, applied: u64, absent: BTreeSet<Guid>, tables: Option<&Tables>, now: Timestamp) {
        self.state.applied = self.state.applied.max(applied);
        self.state.proven_at = Some(now);
        self.state.fault.clear();
        self.state.absent_changes += u64::from(absent != self.absent);
        self.absent = absent;
        self.state.reading += 1;
        // Only a reading of the ports themselves frees a key.
        if let Some(tables) = tables {
            self.pool.observe(ReadingNumber(self.state.reading), tables);
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
}

/// Ports of partitions and of returned keys that the last reading did not find.
///
/// # Errors
/// The database failed, or the stored state does not parse.
pub async fn absent_ports(store: &Store) -> Result<BTreeSet<Guid>, HallError> {
    let ports = loaded(store.absent_ports().await)?;
    work(move || ports.iter().map(|port| guid(port)).collect()).await?
}

fn pkey(number: u16) -> Result<PKey, HallError> {
    PKey::try_from(number).map_err(unreadable)
}

fn guid(text: &str) -> Result<Guid, HallError> {
    text.parse::<Guid>().map_err(unreadable)
}

/// The ports in a list of a key's row.
///
/// # Errors
/// The port that does not parse, with the key.
pub(super) fn guids(key: u16, ports: &[String]) -> Result<BTreeSet<Guid>, HallError> {
    let port = |port: &String| {
        port.parse::<Guid>()
            .map_err(|fault| unreadable(format!("key {key:#06x}: {fault}")))
    };
    ports.iter().map(port).collect()
}

/// Ports that may still hold a returned key.
fn left(state: &KeyState) -> Option<&BTreeSet<Guid>> {
    match state {
        KeyState::Draining { ports, .. } => Some(ports),
        KeyState::Held { .. } => None,
    }
}

/// A unique name that OpenSM accepts: letters, digits and dashes, with a letter first.
fn partition_name(cluster: &ClusterId, key: PKey) -> String {
    let suffix = format!("-{:04x}", key.number());
    let mut name = String::from("c-");
    name.extend(cluster.as_str().chars().take(NAME_MAX - 2 - suffix.len()));
    name + &suffix
}

/// The port GUIDs of these nodes, apart from ports that lead to a storage fabric.
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
        let of_node: Vec<Option<Guid>> = site.compute_ports(id).map(|(_, guid)| Guid::new(guid?)).collect();
        if of_node.is_empty() || of_node.contains(&None) {
            without.push(name.as_str());
        }
        ports.extend(of_node.into_iter().flatten());
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
    use rackwright_lifecycle::cluster::Partition as Fact;
    use rackwright_store::{ClusterRecord, PartitionRow, PartitionRows};

    use super::*;
    use crate::clusters::cluster_partitions::ClusterPartitions;

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

    fn fabric(first: u16, last: u16) -> Fabric {
        let state = FabricRow {
            first_key: first,
            last_key: last,
            ..FabricRow::default()
        };
        Fabric::of_rows(state, Vec::new(), &[]).unwrap()
    }

    fn rows(fabric: &Fabric) -> Vec<FabricKeyRow> {
        let keys = fabric.pool.taken().iter();
        keys.map(|(key, state)| fabric.row(*key, state)).collect()
    }

    /// As a step of the cluster reads it.
    fn fact(fabric: &Fabric, record: &ClusterRecord) -> Fact {
        let own = rows(fabric).into_iter().filter(|row| row.owner == record.uid);
        let keys = own.map(|row| PartitionRow {
            key: row.key,
            ports: row.ports.len(),
            members: row.members.len(),
            cut_off: row.cut_off.len(),
            owner: row.owner,
            name: row.name,
            released_at: row.released_at,
            absent: row.absent,
        });
        let rows = PartitionRows {
            keys: keys.collect(),
            fabric: fabric.state.clone(),
        };
        let partitions = ClusterPartitions::of_rows(Some(rows)).unwrap();
        partitions.of(&record.uid).fact(record)
    }

    fn cluster(uid: &str, version: u64) -> ClusterRecord {
        let mut record = rackwright_ground::testing::cluster(uid);
        record.uid = uid.into();
        record.partition = Some(1);
        record.partitions_version = version;
        record
    }

    #[test]
    fn a_partition_is_proven_by_its_own_version_and_no_former_one() {
        let mut fabric = fabric(1, 9);
        let (_, first) = fabric.hold(&"a".into(), "a", [guid(1)].into()).unwrap();
        let (_, second) = fabric.hold(&"b".into(), "b", [guid(2)].into()).unwrap();
        fabric.record_proof(first, BTreeSet::new(), None, Timestamp(5));
        assert_eq!(fact(&fabric, &cluster("a", first)), Fact::Proven);
        assert_eq!(fact(&fabric, &cluster("b", second)), Fact::Pending);
        fabric.record_proof(second, [guid(2)].into(), None, Timestamp(6));
        assert_eq!(fact(&fabric, &cluster("a", first)), Fact::Proven);
        let absent = fact(&fabric, &cluster("b", second));
        assert!(
            matches!(&absent, Fact::Faulty(why) if why.contains("1 of the cluster's 1 ports")),
            "{absent:?}"
        );
        fabric.state.fault = "OpenSM is gone".into();
        assert_eq!(
            fact(&fabric, &cluster("a", first)),
            Fact::Faulty("OpenSM is gone".into())
        );
    }

    #[test]
    fn a_key_is_gone_when_every_port_that_had_it_was_read_without_it_since() {
        let mut fabric = fabric(1, 1);
        let (given, version) = fabric.hold(&"a".into(), "a", [guid(1), guid(2)].into()).unwrap();
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
        assert!(matches!(fact(&fabric, &record), Fact::Draining(_)));
        assert!(
            fabric.hold(&"b".into(), "b", [guid(3)].into()).is_err(),
            "the only key is not free yet"
        );
        // One port still has the key; then one port gives no answer.
        fabric.record_proof(
            version,
            BTreeSet::new(),
            Some(&tables(&[(1, &[entry]), (2, &[])])),
            Timestamp(2),
        );
        assert!(matches!(fact(&fabric, &record), Fact::Draining(_)));
        let mut silent = tables(&[(2, &[])]);
        silent.unread.insert(guid(1), "no answer".into());
        fabric.record_proof(version, BTreeSet::new(), Some(&silent), Timestamp(3));
        assert!(matches!(fact(&fabric, &record), Fact::Draining(_)));
        // The manager's belief frees nothing.
        fabric.record_proof(version, BTreeSet::new(), None, Timestamp(4));
        assert!(fabric.is_draining());
        fabric.record_proof(version, BTreeSet::new(), Some(&tables(&[(1, &[0x7fff])])), Timestamp(5));
        assert_eq!(fact(&fabric, &record), Fact::Gone);
        assert!(fabric.hold(&"b".into(), "b", [guid(3)].into()).is_ok());
    }

    #[test]
    fn a_port_that_is_cut_off_blocks_the_key_for_others_and_not_the_cluster() {
        let mut fabric = fabric(1, 1);
        let (given, version) = fabric.hold(&"a".into(), "a", [guid(1), guid(2)].into()).unwrap();
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
        assert_eq!(fact(&fabric, &record), Fact::Gone);
        assert!(!fabric.is_draining(), "nothing is to be read again at once");
        assert!(
            fabric.hold(&"b".into(), "b", [guid(3)].into()).is_err(),
            "port 1 may have the key"
        );
        // The port is back with its old key, and is read with all others from time to time.
        fabric.record_proof(version, BTreeSet::new(), Some(&tables(&[(1, &[entry])])), Timestamp(3));
        assert!(fabric.is_draining());
        fabric.record_proof(version, BTreeSet::new(), Some(&tables(&[(1, &[])])), Timestamp(4));
        assert!(fabric.hold(&"b".into(), "b", [guid(3)].into()).is_ok());
    }

    #[test]
    fn rows_come_back_as_they_were_and_only_changed_ones_are_written() {
        let mut first = fabric(1, 9);
        first.hold(&"a".into(), "a", [guid(1), guid(2)].into()).unwrap();
        first.drop_cluster("a");
        let (_, version) = first.hold(&"b".into(), "b", [guid(3), guid(4)].into()).unwrap();
        // Port 1 is cut off. Port 2 still has the returned key.
        let seen = tables(&[(2, &[0x8001]), (3, &[0x8002]), (4, &[0x8002])]);
        first.record_proof(version, [guid(3)].into(), Some(&seen), Timestamp(5));
        let written = first.changes();
        assert_eq!((written.keys.len(), written.freed.len()), (2, 0));
        assert_eq!((written.state.given_key, written.state.absent_changes), (Some(2), 1));
        let mut again = Fabric::of_rows(written.state, written.keys, &[]).unwrap();
        assert_eq!((&again.pool, &again.members), (&first.pool, &first.members));
        assert_eq!((&again.absent, &again.cut_off), (&first.absent, &first.cut_off));
        let unchanged = again.changes();
        assert_eq!((unchanged.keys.len(), unchanged.freed.len()), (0, 0));

        // Both ports of the returned key are read without it.
        let clean = tables(&[(1, &[]), (2, &[]), (3, &[0x8002]), (4, &[0x8002])]);
        again.record_proof(version, [guid(3)].into(), Some(&clean), Timestamp(6));
        let freed = again.changes();
        assert_eq!((freed.keys.len(), freed.freed.as_slice()), (0, [key(1)].as_slice()));
        assert_eq!(freed.state.absent_changes, 1, "the same port is absent");
        // The absent port leaves the partition.
        again.hold(&"b".into(), "b", [guid(4)].into()).unwrap();
        let left = again.changes();
        assert_eq!((left.keys.len(), left.state.absent_changes), (1, 2));
        assert!(left.keys[0].absent.is_empty() && left.keys[0].ports.len() == 2);
    }

    #[test]
    fn a_row_that_does_not_parse_is_named() {
        let mut whole = fabric(1, 9);
        whole.hold(&"a".into(), "a", [guid(1)].into()).unwrap();
        let state = whole.changes().state;
        let broken = |change: fn(&mut FabricKeyRow)| {
            let mut keys = rows(&whole);
            change(&mut keys[0]);
            Fabric::of_rows(state.clone(), keys, &[]).unwrap_err().to_string()
        };
        let why = broken(|row| row.members.push("no port".into()));
        assert!(
            why.contains("cannot be read: key 0x0001: \"no port\" is not a GUID"),
            "{why}"
        );
        let why = broken(|row| row.key = 0x8000);
        assert!(why.contains("\"0x8000\" is not a P_Key"), "{why}");
    }

    #[test]
    fn a_port_that_leads_to_storage_is_in_no_partition() {
        use rackwright_site::file::{Source, check};
        let text = "site: {name: s}
rooms: [{name: h}]
racks: [{name: r, room: h}]
skus: [{name: k, power: {max_watts: 1 kW}, psus: {count: 1, watts: 1 kW, needed: 1}, height_units: 1, hcas: [c0, s0]}]
nodes: [{name: n, sku: k, rack: r, unit: 1, guids: {c0: 0xa1, s0: 0xa2}}]
fabrics: [{name: disks, purpose: storage}]
switches: [{name: leaf, role: leaf, ports: 8}, {name: disk, role: leaf, ports: 8, fabric: disks}]
cables: [{label: c, a: n/c0, b: leaf/1}, {label: s, a: n/s0, b: disk/1}]
";
        let of = |text: &str| {
            let checked = check(&[Source { name: "s.yaml", text }]);
            let site = checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings.list));
            ports(&site, ["n".to_owned()].iter())
        };
        assert_eq!(of(text), Ok([guid(0xa1)].into()));
        // Neither does it need a GUID.
        assert_eq!(of(&text.replace(", s0: 0xa2", "")), Ok([guid(0xa1)].into()));
        assert_eq!(
            of(&text.replace(", purpose: storage", "")),
            Ok([guid(0xa1), guid(0xa2)].into())
        );
        let why = of(&text.replace("c0: 0xa1, ", "")).unwrap_err();
        assert!(why.starts_with("the site file lacks port GUIDs of 1 node, n "), "{why}");
    }

    #[test]
    fn partition_names_are_valid_for_opensm() {
        for name in ["a", "0-9", &"x".repeat(63)] {
            let mut fabric = fabric(0x7ffe, 0x7ffe);
            fabric.hold(&ClusterId::stored(name), name, [guid(1)].into()).unwrap();
            fabric.partitions().check().unwrap();
        }
    }
}
