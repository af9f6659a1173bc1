//! Looks for breaches of the isolation of clusters between two changes of the partitions, and stores them.
//!
//! A check reads the partition file and some ports, the ports of clusters first, and all ports in turn within `proof_s`.
//! The last discovery shows the ports that the site does not have. Each check also asks for the master subnet manager. A
//! breach makes the partitions due at once: they are brought to the fabric again, and every port is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rackwright_fabric::{FabricError, FabricManager, Inspection, ManagerFault, PartitionFile, Reading};
use rackwright_ground::audit::{PendingRecord, local_record};
use rackwright_ground::clock;
use rackwright_ground::config::fabric::Settings;
use rackwright_ground::core::Core;
use rackwright_ground::hall::{self, HallError, work};
use rackwright_ground::text::chain;
use rackwright_infiniband::{Guid, Partitions, Tables};
use rackwright_lifecycle::{Timestamp, seconds};
use rackwright_store::{FabricCheckRow, FabricRow, Store, WriteTx};

use super::Clusters;
use super::breach::{
    Breach, BreachChanges, Finding, PortKeys, digest, end, judge_file, judge_manager, judge_ports, settle,
};
use super::partitions::{Fabric, loaded};
use super::reconcile::LEASE_S;

/// Fewest ports of a check.
const MIN_PORTS: usize = 64;
/// Most ports that are read after a breach is seen and before it is repaired: the reading delays the repair.
const MAX_PORTS_OF_BREACH: usize = 512;
/// Ports of each cluster that are read first then, so that every concerned cluster is found.
const FIRST_OF_CLUSTER: usize = 4;
/// Longest pause before a failed check is repeated, in seconds.
const RETRY_S: i64 = 60;
/// Shortest pause after a check, in seconds: where checks take longer than `check_s`.
const SHORTEST_S: i64 = 1;

/// The next check of this process.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    next: Timestamp,
}

impl Schedule {
    /// The time until the next check, at most `longest`; without a next check `longest`.
    pub(super) fn pause(&self, longest: Duration) -> Duration {
        match u64::try_from(self.next.since(clock::now())) {
            Ok(us @ 1..) => Duration::from_micros(us).min(longest),
            _ => longest,
        }
    }
}

/// The end ports of the fabric at its last discovery by this process. Empty: it was not discovered yet.
#[derive(Debug, Default)]
pub(super) struct DiscoveredPorts(Mutex<Arc<BTreeSet<Guid>>>);

impl DiscoveredPorts {
    pub(super) fn put(&self, ports: BTreeSet<Guid>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(ports);
    }

    fn get(&self) -> Arc<BTreeSet<Guid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
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
        Ok(Look {
            found,
            problem,
            has_read,
        }) => {
            last.next = now.plus(pace).max(clock::now().plus(seconds(SHORTEST_S)));
            let checked = |row: &mut FabricCheckRow| {
                if problem.is_empty() {
                    row.checked_at = Some(now);
                }
                // Without a subnet manager no port of its fabric was read. If ports of other fabrics were, the next check
                // goes on after them.
                if problem.is_empty() || has_read {
                    row.last_port = last_port;
                }
                row.problem = problem;
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
            last.next = clock::now().plus(pace.min(seconds(RETRY_S)));
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

/// The end ports of the fabric: those of partitions first, then ports that the site does not have, then the others of the
/// site. Ports that lead to a storage fabric are not in this one.
async fn ports(core: &Core, keys: &PortKeys) -> Result<Vec<Guid>, HallError> {
    let mut known: BTreeSet<Guid> = keys.must_have.keys().copied().collect();
    for (_, may_have) in keys.may_have.values() {
        known.extend(may_have);
    }
    let mut of_site = BTreeSet::new();
    if let Some((_, site)) = core.sites.current(&core.store).await? {
        let ports = site.node_ids().flat_map(|node| site.compute_ports(node));
        of_site.extend(ports.filter_map(|(_, guid)| Guid::new(guid?)));
    }
    let discovered = core.feature::<Clusters>().discovered.get();
    let unknown = discovered
        .iter()
        .filter(|port| !known.contains(port) && !of_site.contains(port));
    let others = of_site.difference(&known);
    Ok(known.iter().chain(unknown).chain(others).copied().collect())
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

/// The result of a check.
struct Look {
    found: Vec<Finding>,
    /// Why a fabric was not read; empty: every one was.
    problem: String,
    /// Whether a port was read.
    has_read: bool,
}

/// Reads the file and the ports of the sample; after a breach also other ports, so that all concerned clusters are known.
async fn look(
    core: &Core,
    manager: &Arc<dyn FabricManager>,
    keys: &Arc<PortKeys>,
    state: &FabricRow,
    row: &FabricCheckRow,
    (sample, all): (&[Guid], &[Guid]),
) -> Result<Look, LookError> {
    let inspection = manager.inspect(&sample.iter().copied().collect()).await?;
    let file = file_finding(core, &inspection, state, row);
    let (mut fault, mut problem) = (inspection.manager, inspection.problem);
    let (mut reading, mut found) = judged(keys, inspection.reading).await?;
    let has_read = !reading.tables.read.is_empty();
    let is_breach = file.is_some() || fault.is_some() || !found.is_empty();
    let is_readable = has_read || !matches!(fault, Some(ManagerFault::Absent(_)));
    if is_breach && is_readable && sample.len() < all.len() {
        let again = manager.inspect(&ports_of_breach(keys, sample, all)).await?;
        fault = again.manager.or(fault);
        problem = again.problem.or(problem);
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
    found.extend(fault.as_ref().map(judge_manager));
    found.extend(file);
    let absent = match fault {
        Some(ManagerFault::Absent(why)) => Some(why),
        _ => None,
    };
    let problems: Vec<String> = absent.into_iter().chain(problem).collect();
    Ok(Look {
        found,
        problem: problems.join("; "),
        has_read,
    })
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

/// A partition file with its digest, as stored in a line: replica, digest, path. Each replica may have OpenSMs with files of
/// its own.
fn stamp(core: &Core, path: &Path, content: &[u8]) -> String {
    stamp_of(core, path, &digest(content))
}

fn stamp_of(core: &Core, path: &Path, digest: &str) -> String {
    format!("{} {digest} {}", core.replica, path.display())
}

/// The digest of a file of this replica in stored lines.
fn own<'a>(core: &Core, stamps: &'a str, path: &Path) -> Option<&'a str> {
    let path = path.display().to_string();
    let mut lines = stamps
        .lines()
        .filter_map(|line| line.strip_prefix(core.replica.as_str())?.strip_prefix(' '));
    lines.find_map(|line| match line.split_once(' ') {
        Some((digest, of)) => (of == path).then_some(digest),
        // Stored by a version that knew one file.
        None => Some(line),
    })
}

/// The first fault of a partition file. A file that this replica has not written yet is not judged. After a failed change
/// the file may be the former or the intended one, or the one that closes every partition.
fn file_finding(core: &Core, inspection: &Inspection, state: &FabricRow, row: &FabricCheckRow) -> Option<Finding> {
    let closed = Partitions::default().render().map(|text| digest(text.as_bytes()));
    inspection.files.iter().find_map(|file| {
        let written = own(core, &row.written, &file.path)?;
        let mut known = vec![written, own(core, &row.intended, &file.path).unwrap_or_default()];
        if let (Ok(closed), false) = (&closed, state.fault.is_empty()) {
            known.push(closed);
        }
        judge_file(file, &known)
    })
}

/// The stored lines of the written files, with the files of an interrupted change that are in place. `None`: no file of an
/// interrupted change is in place.
fn with_interrupted(core: &Core, files: &[PartitionFile], row: &FabricCheckRow) -> Option<String> {
    let in_place = |file: &PartitionFile| {
        let line = stamp(core, &file.path, file.content.as_deref()?);
        row.intended.lines().any(|intended| *intended == line).then_some(line)
    };
    let interrupted: Vec<Option<String>> = files.iter().map(in_place).collect();
    if interrupted.iter().all(Option::is_none) {
        return None;
    }
    let lines = files.iter().zip(interrupted).filter_map(|(file, line)| {
        let former = || own(core, &row.written, &file.path).map(|digest| stamp_of(core, &file.path, digest));
        line.or_else(former)
    });
    Some(lines.collect::<Vec<String>>().join("\n"))
}

/// Looks at the partition files before a change replaces them, stores a breach, and notes the files that the change writes.
/// Returns their stamps; none: this manager has no file, or cannot be read, which the change reports.
pub async fn before_change(
    core: &Arc<Core>,
    manager: &Arc<dyn FabricManager>,
    fabric: &Fabric,
    wanted: &Partitions,
) -> Result<Option<String>, HallError> {
    let Ok(inspection) = manager.inspect(&BTreeSet::new()).await else {
        return Ok(None);
    };
    if inspection.files.is_empty() {
        return Ok(None);
    }
    let intended = inspection.files.iter().map(|file| {
        let text = match &file.fabric {
            Some(fabric) => wanted.in_fabric(fabric).render(),
            None => wanted.render(),
        };
        Some(stamp(core, &file.path, text.ok()?.as_bytes()))
    });
    let Some(intended) = intended.collect::<Option<Vec<String>>>() else {
        return Ok(None);
    };
    let intended = intended.join("\n");
    let row = core.store.fabric_check().await?.unwrap_or_default();
    let finding = file_finding(core, &inspection, &fabric.state, &row);
    if let Some(finding) = finding {
        let found = match core.store.count_open_breaches().await? {
            0 => {
                let keys = Arc::new(fabric.port_keys());
                let all = ports(core, &keys).await?;
                match look(core, manager, &keys, &fabric.state, &row, (&[], &all)).await {
                    Ok(look) => look.found,
                    Err(LookError::Hall(error)) => return Err(error),
                    // The ports cannot be read. The file alone is a breach.
                    Err(LookError::Fabric(_)) => vec![finding],
                }
            }
            // The check that found an open breach has read the ports already.
            _ => vec![finding],
        };
        store(core, &found, |_| {}).await?;
    }
    if intended != row.written && intended != row.intended {
        let mut tx = core.store.write().await?;
        tx.hall().await?;
        let mut row = tx.fabric_check().await?.unwrap_or_default();
        if let Some(written) = with_interrupted(core, &inspection.files, &row) {
            row.written = written;
        }
        row.intended.clone_from(&intended);
        tx.put_fabric_check(&row).await?;
        core.commit(tx).await?;
    }
    Ok(Some(intended))
}

/// Stores the breach that these tables show. A change has repaired them, and failed in another fabric.
pub(super) async fn record_repaired(core: &Arc<Core>, fabric: Fabric, before: Reading) -> Result<(), HallError> {
    let found = work(move || judge_ports(&fabric.port_keys(), &before)).await?;
    store(core, &found, |_| {}).await
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
    // Only a proof reads every port.
    let (of_each, of_ports): (Vec<Finding>, Vec<Finding>) =
        found.iter().cloned().partition(|one| one.kind.is_seen_by_each_check());
    let mut changes = settle(&open, &of_each, &ids, checked_at.max(proven_at), now);
    changes.add(settle(&open, &of_ports, &ids, proven_at, now));
    let report = store_changes(core, &mut tx, &changes).await?;
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
) -> Result<BreachChanges, HallError> {
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
    let mut changes = settle(&open, repaired, ids, proven_at, now);
    open.retain(|known| changes.changed.iter().all(|one| one.row.id != known.row.id));
    open.extend(changes.changed.iter().cloned());
    changes.add(end(&open, ids, now));
    Ok(changes)
}

/// Stores breaches with their events, audit records and rows in the usage of customers, as the last writes of a change.
pub(super) async fn store_changes(core: &Core, tx: &mut WriteTx, changes: &BreachChanges) -> Result<Report, HallError> {
    for breach in &changes.changed {
        let row = breach.to_row()?;
        tx.put_breach(&row).await?;
        for (uid, cluster) in &breach.concerned.clusters {
            let since = cluster.since.unwrap_or(row.since);
            tx.add_usage_breach(&row, uid, since).await?;
        }
        if let Some(since) = breach.concerned.unknown_since {
            tx.add_usage_breach_of_unknown(&row, since).await?;
        }
    }
    for event in &changes.events {
        tx.add_event(event).await?;
    }
    let mut report = Report {
        begun: changes.begun,
        ..Report::default()
    };
    for message in &changes.records {
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
    use rackwright_fabric::Proof;
    use rackwright_ground::testing;
    use rackwright_infiniband::PKey;

    use super::*;

    const FORMER: &[u8] = b"former";
    const NEXT: &[u8] = b"next";

    /// The partition files of two fabrics with these contents.
    fn files(contents: [&[u8]; 2]) -> Vec<PartitionFile> {
        let of = |(path, content): (&str, &[u8])| PartitionFile {
            path: path.into(),
            fabric: None,
            content: Some(content.to_vec()),
            is_protected: true,
            owner: "user 0, mode 0644".into(),
        };
        ["/east", "/west"].into_iter().zip(contents).map(of).collect()
    }

    fn stamps(core: &Core, contents: [&[u8]; 2]) -> String {
        let [east, west] = ["/east", "/west"].map(Path::new);
        let [of_east, of_west] = contents;
        [stamp(core, east, of_east), stamp(core, west, of_west)].join("\n")
    }

    #[tokio::test]
    async fn each_partition_file_is_judged_by_its_own_digest() {
        let core = testing::core().await;
        let judged = |contents, row: &FabricCheckRow| {
            let inspection = Inspection {
                files: files(contents),
                manager: None,
                reading: Reading {
                    tables: Tables::default(),
                    managers: BTreeSet::new(),
                    proof: Proof::Ports,
                },
                problem: None,
            };
            let finding = file_finding(&core, &inspection, &FabricRow::default(), row);
            finding.map(|finding| finding.text)
        };
        let written = FabricCheckRow {
            written: stamps(&core, [FORMER, FORMER]),
            ..FabricCheckRow::default()
        };
        assert_eq!(judged([FORMER, FORMER], &written), None);
        let text = judged([FORMER, NEXT], &written).unwrap();
        assert!(text.starts_with("/west "), "{text}");
        // The change reached one of the fabrics.
        let interrupted = FabricCheckRow {
            intended: stamps(&core, [NEXT, NEXT]),
            ..written.clone()
        };
        assert_eq!(judged([NEXT, FORMER], &interrupted), None);
        let in_place = with_interrupted(&core, &files([NEXT, FORMER]), &interrupted);
        assert_eq!(in_place, Some(stamps(&core, [NEXT, FORMER])));
        assert_eq!(with_interrupted(&core, &files([FORMER, FORMER]), &interrupted), None);
        // A fabric with a new manager.
        let of_east = FabricCheckRow {
            written: stamp(&core, Path::new("/east"), FORMER),
            ..FabricCheckRow::default()
        };
        assert_eq!(judged([FORMER, NEXT], &of_east), None, "this file was not written yet");
        assert!(judged([NEXT, NEXT], &of_east).unwrap().starts_with("/east "));
        // Stored by a version that knew one file.
        let legacy = FabricCheckRow {
            written: format!("{} {}", core.replica, digest(FORMER)),
            ..FabricCheckRow::default()
        };
        assert_eq!(judged([FORMER, FORMER], &legacy), None);
        assert!(judged([NEXT, FORMER], &legacy).unwrap().starts_with("/east "));
        // Files of another replica are not judged.
        let other = FabricCheckRow {
            written: format!("other {}", digest(FORMER)),
            ..FabricCheckRow::default()
        };
        assert_eq!(judged([NEXT, NEXT], &other), None);
    }

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
