//! Several fabrics, each with a manager of its own.
//!
//! A manager gets the ports that the site has in its fabric, and the ports that the site has in no fabric. A customer can
//! write any GUID into an adapter: a port with the GUID of another fabric's port gets no key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::future::join_all;
use rackwright_infiniband::partition::HealthCheck;
use rackwright_infiniband::{Dump, Guid, Partitions, Tables};

use crate::error::FabricError;
use crate::fence::Fence;
use crate::manager::{Applied, FabricManager, Inspection, ManagerFault, PartitionFile, Proof, Reading};

/// The managers of several fabrics, as one.
#[derive(Debug)]
pub struct Managers {
    members: Vec<Member>,
    /// The members that read each port last: several only where an adapter has a forged GUID.
    places: Mutex<HashMap<Guid, BTreeSet<usize>>>,
    /// By port of a partition, the fabric that the last change had for it.
    fabric_of: Mutex<BTreeMap<Guid, Box<str>>>,
}

#[derive(Debug)]
struct Member {
    /// The name of the fabric.
    fabric: String,
    manager: Arc<dyn FabricManager>,
}

impl Managers {
    /// With the manager of each fabric, by the name of the fabric.
    #[must_use]
    pub fn new(managers: impl IntoIterator<Item = (String, Arc<dyn FabricManager>)>) -> Self {
        let members = managers.into_iter().map(|(fabric, manager)| Member { fabric, manager });
        Self {
            members: members.collect(),
            places: Mutex::default(),
            fabric_of: Mutex::default(),
        }
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Guid, BTreeSet<usize>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ports that each member reads: its own, and the ports that no member has read yet. A member without one of these
    /// gets another port, because it looks for its subnet manager only when it reads a port.
    fn by_member(&self, ports: &BTreeSet<Guid>) -> Vec<BTreeSet<Guid>> {
        let places = self.places();
        let mut shares = vec![BTreeSet::new(); self.members.len()];
        if ports.is_empty() {
            return shares;
        }
        for port in ports {
            match places.get(port) {
                Some(members) => {
                    for at in members {
                        shares[*at].insert(*port);
                    }
                }
                None => {
                    for share in &mut shares {
                        share.insert(*port);
                    }
                }
            }
        }
        for (at, share) in shares.iter_mut().enumerate().filter(|(_, share)| share.is_empty()) {
            let own = places
                .iter()
                .find(|(_, members)| members.contains(&at))
                .map(|(port, _)| port);
            share.extend(own.or(ports.first()));
        }
        shares
    }

    /// One reading of all fabrics. A port counts as unread only if no fabric has its table. A table that was read from a
    /// port counts more than a manager's record. A GUID that answers in two fabrics has the keys of both ports: neither
    /// hides a key of the other.
    fn joined(&self, readings: impl IntoIterator<Item = (usize, Reading)>) -> Reading {
        let mut readings: Vec<(usize, Reading)> = readings.into_iter().collect();
        readings.sort_by_key(|(_, reading)| reading.proof == Proof::Manager);
        let mut joined = Reading {
            tables: Tables::default(),
            managers: BTreeSet::new(),
            proof: Proof::Ports,
        };
        let mut read_by: HashMap<Guid, BTreeSet<usize>> = HashMap::new();
        for (at, reading) in readings {
            for (port, table) in reading.tables.read {
                let members = read_by.entry(port).or_default();
                if reading.proof == Proof::Manager && !members.is_empty() {
                    continue;
                }
                members.insert(at);
                let known = joined.tables.read.entry(port).or_default();
                for entry in table {
                    if !known.contains(&entry) {
                        known.push(entry);
                    }
                }
            }
            joined.tables.unread.extend(reading.tables.unread);
            joined.managers.extend(reading.managers);
            if reading.proof == Proof::Manager {
                joined.proof = Proof::Manager;
            }
        }
        let Tables { read, unread } = &mut joined.tables;
        unread.retain(|port, _| !read.contains_key(port));
        let mut places = self.places();
        places.extend(read_by);
        // The port may have moved to another fabric.
        places.retain(|port, _| !unread.contains_key(port));
        joined
    }
}

impl Member {
    fn named<T>(&self, result: Result<T, FabricError>) -> Result<T, FabricError> {
        result.map_err(|source| FabricError::OfFabric {
            fabric: self.fabric.clone(),
            source: Box::new(source),
            before: None,
        })
    }
}

/// By the member's index.
type ByMember<T> = Vec<(usize, T)>;

/// The results of an action of all members.
struct Results<T> {
    done: ByMember<T>,
    failed: Vec<FabricError>,
    unsupported: Option<FabricError>,
}

impl<T> Results<T> {
    fn of(members: &[Member], results: Vec<Result<T, FabricError>>) -> Self {
        let mut all = Self {
            done: Vec::new(),
            failed: Vec::new(),
            unsupported: None,
        };
        for ((at, member), result) in members.iter().enumerate().zip(results) {
            match result {
                Err(error @ FabricError::Unsupported(_)) => all.unsupported = Some(error),
                other => match member.named(other) {
                    Ok(one) => all.done.push((at, one)),
                    Err(error) => all.failed.push(error),
                },
            }
        }
        all
    }

    /// The results of the members that support the action.
    ///
    /// # Errors
    /// The first error; [`FabricError::Unsupported`] if no member supports the action.
    fn all(mut self) -> Result<ByMember<T>, FabricError> {
        if !self.failed.is_empty() {
            return Err(self.failed.swap_remove(0));
        }
        match self.unsupported {
            Some(error) if self.done.is_empty() => Err(error),
            _ => Ok(self.done),
        }
    }

    /// The results of the members without an error, and the errors in words.
    ///
    /// # Errors
    /// No member has a result: as `all`.
    fn some(self) -> Result<(ByMember<T>, Vec<String>), FabricError> {
        if self.done.is_empty() {
            return self.all().map(|done| (done, Vec::new()));
        }
        let words = self.failed.iter().map(|error| words(error)).collect();
        Ok((self.done, words))
    }
}

/// An error with its causes.
fn words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<String>>().join(": ")
}

/// One fault for all fabrics: a foreign subnet manager first, because it may give keys. Beside it, absent managers become
/// problems.
fn joined_fault(faults: Vec<(&str, ManagerFault)>, problems: &mut Vec<String>) -> Option<ManagerFault> {
    let (mut foreign, mut absent) = (None, Vec::new());
    for (fabric, fault) in faults {
        match fault {
            ManagerFault::Foreign { master, .. } => {
                let fabric = Some(fabric.to_owned());
                foreign = foreign.or(Some(ManagerFault::Foreign { master, fabric }));
            }
            ManagerFault::Absent(why) => absent.push(format!("fabric {fabric}: {why}")),
        }
    }
    if foreign.is_some() {
        problems.append(&mut absent);
        return foreign;
    }
    (!absent.is_empty()).then(|| ManagerFault::Absent(absent.join("; ")))
}

#[async_trait]
impl FabricManager for Managers {
    fn name(&self) -> &'static str {
        "a manager for each fabric"
    }

    async fn topology(&self) -> Result<Dump, FabricError> {
        let reads = self.members.iter().map(|member| member.manager.topology());
        let dumps = Results::of(&self.members, join_all(reads).await).all()?;
        let named = dumps
            .into_iter()
            .map(|(at, dump)| (self.members[at].fabric.as_str(), dump));
        let fabric_of = self.fabric_of.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Dump::joined(named, &fabric_of))
    }

    /// Changes every fabric, also if one of them fails.
    async fn apply(&self, wanted: &Partitions, fence: &dyn Fence) -> Result<Applied, FabricError> {
        *self.fabric_of.lock().unwrap_or_else(PoisonError::into_inner) = wanted.fabric_of.clone();
        let shares: Vec<Partitions> = self
            .members
            .iter()
            .map(|member| wanted.in_fabric(&member.fabric))
            .collect();
        let changes = self
            .members
            .iter()
            .zip(&shares)
            .map(|(member, share)| member.manager.apply(share, fence));
        let results = join_all(changes).await;
        let (mut changed, mut before, mut readings) = (false, Vec::new(), Vec::new());
        let mut present: BTreeSet<Guid> = BTreeSet::new();
        let mut failed = None;
        for (at, (member, result)) in self.members.iter().zip(results).enumerate() {
            match member.named(result) {
                Ok(applied) => {
                    changed |= applied.changed;
                    before.extend(applied.before.map(|before| (at, before)));
                    readings.push((at, applied.reading));
                    present.extend(shares[at].members().filter(|port| !applied.absent.contains(port)));
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let before = (!before.is_empty()).then(|| self.joined(before));
        if let Some(mut error) = failed {
            if let FabricError::OfFabric { before: repaired, .. } = &mut error {
                *repaired = before.map(Box::new);
            }
            return Err(error);
        }
        Ok(Applied {
            changed,
            before,
            absent: wanted.members().filter(|port| !present.contains(port)).collect(),
            reading: self.joined(readings),
        })
    }

    async fn tables(&self) -> Result<Reading, FabricError> {
        let reads = self.members.iter().map(|member| member.manager.tables());
        let readings = Results::of(&self.members, join_all(reads).await).all()?;
        Ok(self.joined(readings))
    }

    /// Inspects every fabric, also if one of them cannot be inspected.
    async fn inspect(&self, ports: &BTreeSet<Guid>) -> Result<Inspection, FabricError> {
        let shares = self.by_member(ports);
        let reads = self
            .members
            .iter()
            .zip(&shares)
            .map(|(member, share)| member.manager.inspect(share));
        let (inspections, mut problems) = Results::of(&self.members, join_all(reads).await).some()?;
        let (mut files, mut faults, mut readings) = (Vec::new(), Vec::new(), Vec::new());
        for (at, inspection) in inspections {
            let fabric = &self.members[at].fabric;
            files.extend(inspection.files.into_iter().map(|file| PartitionFile {
                fabric: Some(fabric.clone()),
                ..file
            }));
            problems.extend(inspection.problem);
            faults.extend(inspection.manager.map(|fault| (fabric.as_str(), fault)));
            readings.push((at, inspection.reading));
        }
        Ok(Inspection {
            files,
            manager: joined_fault(faults, &mut problems),
            reading: self.joined(readings),
            problem: (!problems.is_empty()).then(|| problems.join("; ")),
        })
    }

    async fn confirm(&self, unexpected: &Tables) -> Result<Tables, FabricError> {
        let ports = unexpected.read.keys().copied().collect();
        let mut confirmed = Tables::default();
        for (member, share) in self.members.iter().zip(self.by_member(&ports)) {
            let of_share = |port: &Guid| Some((*port, unexpected.read.get(port)?.clone()));
            let tables = Tables {
                read: share.iter().filter_map(of_share).collect(),
                unread: BTreeMap::new(),
            };
            if tables.read.is_empty() {
                continue;
            }
            let found = member.named(member.manager.confirm(&tables).await)?;
            confirmed.read.extend(found.read);
        }
        Ok(confirmed)
    }

    async fn health(&self) -> Result<Vec<HealthCheck>, FabricError> {
        let mut checks = Vec::new();
        for member in &self.members {
            let found = member.named(member.manager.health().await)?;
            checks.extend(found.into_iter().map(|check| HealthCheck {
                text: format!("fabric {}: {}", member.fabric, check.text),
                ..check
            }));
        }
        Ok(checks)
    }
}
