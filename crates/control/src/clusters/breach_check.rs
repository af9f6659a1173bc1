//! Looks for breaches of the isolation of clusters between two changes of the partitions, and stores them.
//!
//! A check reads the partition file and some ports, the ports of clusters first, and all ports in turn within
//! `proof_s`. A breach makes the partitions due at once: they are brought to the fabric again, and every port is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rackwright_fabric::{FabricError, FabricManager, Inspection, Reading};
use rackwright_infiniband::{Guid, Partitions, Tables};
use rackwright_lifecycle::{Timestamp, seconds};
use rackwright_store::{FabricCheckRow, FabricRow, Store, WriteTx};

use super::breach::{Breach, Finding, Kind, News, PortKeys, digest, end, judge_file, judge_ports, settle};
use super::manager::Settings;
use super::partitions::{Fabric, loaded};
use super::reconcile::LEASE_S;
use crate::audit::{PendingRecord, local_record};
use crate::clock;
use crate::core::Core;
use crate::hall::{self, HallError, work};
use crate::text::chain;

/// Fewest ports of a check.
const MIN_PORTS: usize = 64;
/// Most ports that are read after a breach is seen and before it is repaired: the reading delays the repair.
const MAX_PORTS_OF_BREACH: usize = 512;
/// Ports of each cluster that are read first then, so that every concerned cluster is found.
const FIRST_OF_CLUSTER: usize = 4;
/// Longest pause before a failed check is repeated, in seconds.
const AGAIN_S: i64 = 60;

/// The next check of this process.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    next: Timestamp,
}

/// Records and numbers that are reported after the commit.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Report {
    records: Vec<PendingRecord>,
    begun: u64,
}

impl Report {
    /// Call this after the commit.
    pub(super) fn committed(&self, core: &Core) {
        for record in &self.records {
            core.audit.stored(record);
        }
        core.metrics.fabric_breaches_begun(self.begun);
    }
}

/// Makes a check if it is due.
pub(super) async fn run_round(
    core: &Arc<Core>,
    settings: &Settings,
    manager: &Arc<dyn FabricManager>,
    last: &mut Schedule,
) -> Result<(), HallError> {
    let now = clock::now();
    if settings.check_s == 0 || now < last.next {
        return Ok(());
    }
    // Without a row no partition was ever requested.
    let Some(state) = loaded(core.store.fabric().await)?.filter(|state| state.wanted > 0) else {
        return Ok(());
    };
    let pace = seconds(settings.check_s.into());
    let row = core.store.fabric_check().await?.unwrap_or_default();
    if row.checked_at.is_some_and(|at| now.since(at) < pace) {
        return Ok(());
    }
    let until = now.plus(seconds(LEASE_S));
    if !core.store.lease_fabric(&core.replica, now, until).await? {
        return Ok(());
    }
    let Some(fabric) = Fabric::load(&core.store).await? else {
        return Ok(());
    };
    let keys = Arc::new(work(move || fabric.port_keys()).await?);
    let all = ports(core, &keys).await?;
    let count = sample_size(all.len(), settings);
    let sample = next_ports(&all, &row.last_port, count);
    let last_port = sample.last().map(ToString::to_string).unwrap_or_default();
    match look(core, manager, &keys, &state, &row, (&sample, &all)).await {
        Ok(found) => {
            last.next = clock::now().plus(pace);
            let checked = |row: &mut FabricCheckRow| {
                row.checked_at = Some(now);
                row.problem.clear();
                row.last_port = last_port;
            };
            store(core, &found, checked).await
        }
        // This manager cannot be checked between changes.
        Err(LookError::Fabric(FabricError::Unsupported(_))) => {
            last.next = clock::now().plus(pace);
            Ok(())
        }
        Err(LookError::Fabric(error)) => {
            let problem = chain(&error);
            last.next = clock::now().plus(pace.min(seconds(AGAIN_S)));
            if row.problem == problem {
                return Ok(());
            }
            tracing::warn!(problem, "the isolation of clusters could not be checked");
            store(core, &[], |row| row.problem = problem).await
        }
        Err(LookError::Hall(error)) => Err(error),
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Fabric(#[from] FabricError),
    #[error(transparent)]
    Hall(#[from] HallError),
}

/// The end ports of the fabric: those of partitions first, then the others of the site.
async fn ports(core: &Core, keys: &PortKeys) -> Result<Vec<Guid>, HallError> {
    let mut known: BTreeSet<Guid> = keys.must_have.keys().copied().collect();
    for (_, may_have) in keys.may_have.values() {
        known.extend(may_have);
    }
    let mut all: Vec<Guid> = known.iter().copied().collect();
    if let Some((_, site)) = core.sites.current(&core.store).await? {
        let guids = site.nodes.iter().flat_map(|node| node.port_guids.iter().flatten());
        let others: BTreeSet<Guid> = guids.filter_map(|guid| Guid::new(*guid)).collect();
        all.extend(others.difference(&known));
    }
    Ok(all)
}

/// The number of ports of a check with which all ports are read within `proof_s`.
fn sample_size(all: usize, settings: &Settings) -> usize {
    let (check_s, proof_s) = (u64::from(settings.check_s), u64::from(settings.proof_s.max(1)));
    let share = u64::try_from(all)
        .unwrap_or(u64::MAX)
        .saturating_mul(check_s)
        .div_ceil(proof_s);
    usize::try_from(share).unwrap_or(usize::MAX).max(MIN_PORTS).min(all)
}

/// The `count` ports after the port `last`, and again from the first port. Without `last` the first ports.
fn next_ports(all: &[Guid], last: &str, count: usize) -> Vec<Guid> {
    let last = last.parse::<Guid>().ok();
    let at = last.and_then(|last| all.iter().position(|port| *port == last));
    let start = at.map_or(0, |at| at + 1);
    all.iter()
        .cycle()
        .skip(start)
        .take(count.min(all.len()))
        .copied()
        .collect()
}

/// Reads the file and the ports of the sample; after a breach also other ports, so that all concerned clusters are known.
async fn look(
    core: &Core,
    manager: &Arc<dyn FabricManager>,
    keys: &Arc<PortKeys>,
    state: &FabricRow,
    row: &FabricCheckRow,
    (sample, all): (&[Guid], &[Guid]),
) -> Result<Vec<Finding>, LookError> {
    let inspection = manager.inspect(&sample.iter().copied().collect()).await?;
    let file = file_finding(core, &inspection, state, row);
    let (mut reading, mut found) = judged(keys, inspection.reading).await?;
    if (file.is_some() || !found.is_empty()) && sample.len() < all.len() {
        let again = manager.inspect(&ports_of_breach(keys, sample, all)).await?;
        (reading, found) = judged(keys, again.reading).await?;
    }
    if !found.is_empty() {
        let mut unexpected = Tables::default();
        for port in found.iter().flat_map(|finding| &finding.ports) {
            if let Some(table) = reading.tables.read.get(port) {
                unexpected.read.insert(*port, table.clone());
            }
        }
        let confirmed = manager.confirm(&unexpected).await?;
        // The ports with expected tables stay in the number of read ports.
        reading
            .tables
            .read
            .retain(|port, _| !unexpected.read.contains_key(port));
        reading.tables.read.extend(confirmed.read);
        (_, found) = judged(keys, reading).await?;
    }
    found.extend(file);
    Ok(found)
}

/// The ports that are read after a breach is seen: some of each cluster, then those of the sample, then others.
fn ports_of_breach(keys: &PortKeys, sample: &[Guid], all: &[Guid]) -> BTreeSet<Guid> {
    let clusters = keys.may_have.values();
    let first = clusters.flat_map(|(_, ports)| ports.iter().take(FIRST_OF_CLUSTER));
    let mut ports: BTreeSet<Guid> = first.chain(sample).copied().collect();
    for port in all {
        if ports.len() >= MAX_PORTS_OF_BREACH {
            break;
        }
        ports.insert(*port);
    }
    ports
}

async fn judged(keys: &Arc<PortKeys>, reading: Reading) -> Result<(Reading, Vec<Finding>), HallError> {
    let keys = keys.clone();
    work(move || {
        let found = judge_ports(&keys, &reading);
        (reading, found)
    })
    .await
}

/// This replica and the digest of its partition file, as stored. Each replica may have an OpenSM with a file of its own.
fn stamp(core: &Core, content: &[u8]) -> String {
    format!("{} {}", core.replica, digest(content))
}

/// The digest in a stamp of this replica.
fn own<'a>(core: &Core, stamp: &'a str) -> Option<&'a str> {
    stamp.strip_prefix(core.replica.as_str())?.strip_prefix(' ')
}

/// The fault of the partition file. A file that this replica has not written yet is not judged. After a failed change
/// the file may be any of several.
fn file_finding(core: &Core, inspection: &Inspection, state: &FabricRow, row: &FabricCheckRow) -> Option<Finding> {
    let written = own(core, &row.written).filter(|_| state.fault.is_empty())?;
    let intended = own(core, &row.intended).unwrap_or_default();
    judge_file(inspection.file.as_ref()?, &[written, intended])
}

/// Looks at the partition file before a change replaces it, stores a breach, and notes the file that the change writes.
/// Returns the stamp of that file; none: this manager has no file, or cannot be read, which the change reports.
pub(super) async fn before_change(
    core: &Arc<Core>,
    manager: &Arc<dyn FabricManager>,
    fabric: &Fabric,
    wanted: &Partitions,
) -> Result<Option<String>, HallError> {
    let Ok(inspection) = manager.inspect(&BTreeSet::new()).await else {
        return Ok(None);
    };
    let (Some(file), Ok(text)) = (&inspection.file, wanted.render()) else {
        return Ok(None);
    };
    let intended = stamp(core, text.as_bytes());
    let row = core.store.fabric_check().await?.unwrap_or_default();
    let finding = file_finding(core, &inspection, &fabric.state, &row);
    // An open breach has the file already.
    if let Some(finding) = finding
        && core.store.count_open_breaches().await? == 0
    {
        let keys = Arc::new(fabric.port_keys());
        let all = ports(core, &keys).await?;
        match look(core, manager, &keys, &fabric.state, &row, (&[], &all)).await {
            Ok(found) => store(core, &found, |_| {}).await?,
            Err(LookError::Hall(error)) => return Err(error),
            // The ports cannot be read. The file alone is a breach.
            Err(LookError::Fabric(_)) => store(core, &[finding], |_| {}).await?,
        }
    }
    if intended != row.written && intended != row.intended {
        // The file of a change that was interrupted may be in place.
        let in_place = file.content.as_deref().map(|content| stamp(core, content));
        let is_intended = in_place.as_ref() == Some(&row.intended);
        let mut tx = core.store.write().await?;
        tx.hall().await?;
        let mut row = tx.fabric_check().await?.unwrap_or_default();
        if is_intended {
            row.written.clone_from(&row.intended);
        }
        row.intended.clone_from(&intended);
        tx.put_fabric_check(&row).await?;
        core.commit(tx).await?;
    }
    Ok(Some(intended))
}

/// Clusters that are not released: id by uid.
pub(super) async fn ids(store: &Store) -> Result<BTreeMap<String, String>, HallError> {
    let live = hall::live(store).await?;
    Ok(live
        .into_iter()
        .map(|record| (record.uid, record.id.to_string()))
        .collect())
}

async fn store(core: &Arc<Core>, found: &[Finding], change: impl FnOnce(&mut FabricCheckRow)) -> Result<(), HallError> {
    let ids = match found.is_empty() {
        true => BTreeMap::new(),
        false => ids(&core.store).await?,
    };
    let now = clock::now();
    let mut tx = core.store.write().await?;
    tx.hall().await?;
    let mut row = tx.fabric_check().await?.unwrap_or_default();
    let checked_at = row.checked_at;
    change(&mut row);
    tx.put_fabric_check(&row).await?;
    let proven_at = loaded(tx.fabric().await)?.and_then(|state| state.proven_at);
    let open = open_breaches(&mut tx).await?;
    // Every check reads the file, and only a proof reads every port.
    let (files, of_ports): (Vec<Finding>, Vec<Finding>) = found.iter().cloned().partition(|one| one.kind == Kind::File);
    let mut news = settle(&open, &files, &ids, checked_at.max(proven_at), now);
    news.add(settle(&open, &of_ports, &ids, proven_at, now));
    let report = store_news(core, &mut tx, &news).await?;
    core.commit(tx).await?;
    report.committed(core);
    Ok(())
}

async fn open_breaches(tx: &mut WriteTx) -> Result<Vec<Breach>, HallError> {
    let rows = tx.open_breaches().await?;
    rows.into_iter().map(Breach::of_row).collect()
}

/// Within a change that stores a proof, before it writes the fabric's row: the file with the stamp `written` is in
/// place, and open breaches are over. `repaired` is the breach that the proof itself found and repaired. `ids` as in
/// [`settle`].
pub(super) async fn record_proof(
    tx: &mut WriteTx,
    written: Option<&String>,
    repaired: &[Finding],
    ids: &BTreeMap<String, String>,
) -> Result<News, HallError> {
    let now = clock::now();
    if let Some(written) = written {
        let known = tx.fabric_check().await?.unwrap_or_default();
        let row = FabricCheckRow {
            written: written.clone(),
            intended: String::new(),
            ..known.clone()
        };
        if row != known {
            tx.put_fabric_check(&row).await?;
        }
    }
    let proven_at = loaded(tx.fabric().await)?.and_then(|state| state.proven_at);
    let mut open = open_breaches(tx).await?;
    let mut news = settle(&open, repaired, ids, proven_at, now);
    open.retain(|known| news.changed.iter().all(|one| one.row.id != known.row.id));
    open.extend(news.changed.iter().cloned());
    news.add(end(&open, ids, now));
    Ok(news)
}

/// Stores breaches with their events and audit records, as the last writes of a change.
pub(super) async fn store_news(core: &Core, tx: &mut WriteTx, news: &News) -> Result<Report, HallError> {
    for breach in &news.changed {
        tx.put_breach(&breach.to_row()?).await?;
    }
    for event in &news.events {
        tx.add_event(event).await?;
    }
    let mut report = Report {
        begun: news.begun,
        ..Report::default()
    };
    for message in &news.records {
        tracing::warn!(breach = message, "a breach of the isolation of clusters");
        let record = local_record(None, "fabric-breach", "fabric", message);
        report
            .records
            .push(core.audit.add(tx, &core.keys.signer, record).await?);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use rackwright_infiniband::PKey;

    use super::*;

    fn guids(numbers: impl IntoIterator<Item = u64>) -> Vec<Guid> {
        numbers.into_iter().filter_map(Guid::new).collect()
    }

    #[test]
    fn after_a_breach_ports_of_every_cluster_are_read_and_not_too_many() {
        let key = |n| PKey::new(n).unwrap();
        let of = |uid: &str, numbers| (uid.to_owned(), guids(numbers).into_iter().collect::<BTreeSet<Guid>>());
        let keys = PortKeys {
            may_have: [(key(1), of("a", 1..=5000)), (key(2), of("b", 5001..=5002))].into(),
            ..PortKeys::default()
        };
        let all = guids(1..=6000);
        let ports = ports_of_breach(&keys, &guids([5500]), &all);
        assert_eq!(ports.len(), MAX_PORTS_OF_BREACH);
        for port in guids([1, 5001, 5002, 5500]) {
            assert!(ports.contains(&port), "{port}");
        }
        assert_eq!(ports_of_breach(&PortKeys::default(), &[], &all[..9]).len(), 9);
    }

    #[test]
    fn all_ports_are_read_in_turn() {
        let all = guids([3, 4, 1, 2, 5]);
        assert_eq!(next_ports(&all, "", 2), guids([3, 4]));
        assert_eq!(next_ports(&all, "0x4", 2), guids([1, 2]));
        assert_eq!(next_ports(&all, "0x2", 2), guids([5, 3]));
        // The port is gone.
        assert_eq!(next_ports(&all, "0x9", 2), guids([3, 4]));
        assert_eq!(next_ports(&all, "0x3", 9), guids([4, 1, 2, 5, 3]));
        assert!(next_ports(&[], "", 2).is_empty());
    }
}
