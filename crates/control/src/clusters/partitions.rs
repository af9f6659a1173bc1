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

    /// Gives up the former ports of replaced adapters: ports that are in no partition, have no place in the site, and were
    /// not seen by the reading. A port that comes back gets its keys from the subnet manager before it is active.
    /// Returns these ports.
    pub fn give_up_replaced(&mut self, site_ports: &BTreeSet<Guid>, tables: &Tables) -> BTreeSet<Guid> {
        let members: BTreeSet<Guid> = self.members.values().flat_map(|one| &one.ports).copied().collect();
        let ports = self.pool.taken().values().flat_map(|state| match state {
            KeyState::Held { ports, .. } | KeyState::Draining { ports, .. } => ports,
        });
        let is_gone = |port: &Guid| {
            let is_seen = tables.read.contains_key(port) || tables.unread.contains_key(port);
            !is_seen && !site_ports.contains(port) && !members.contains(port)
        };
        let gone: BTreeSet<Guid> = ports.copied().filter(is_gone).collect();
        for port in &gone {
            tracing::info!(%port, "a replaced port is gone and keeps no key reserved");
            self.pool.scrap(*port);
        }
        self.cut_off.retain(|port| !gone.contains(port));
        gone
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
#[path = "partitions_tests.rs"]
mod tests;
