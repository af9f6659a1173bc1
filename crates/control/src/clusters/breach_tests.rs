//! Breaches of isolation: what is one, and what is stored and reported, with a scripted fabric manager.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rackwright_fabric::{Applied, FabricError, FabricManager, Inspection, PartitionFile, Proof, Reading};
use rackwright_infiniband::partition::HealthCheck;
use rackwright_infiniband::{Dump, Guid, PKey, Partitions, Tables};
use rackwright_lifecycle::{Timestamp, minutes, seconds};
use rackwright_store::{AuditFilter, Scope};

use super::breach::{Breach, Finding, Kind, PortKeys, digest, end, judge_file, judge_ports, settle};
use super::breach_check::before_change;
use super::partitions::Fabric;
use super::reconcile::Rounds;
use super::tests::{FABRIC, cluster, hall, spec};
use crate::clock;
use crate::core::Core;
use crate::grpc::test_calls::create_cluster;

const NOTHING: FabricError = FabricError::Unsupported("it cannot be read");

fn guid(n: u64) -> Guid {
    Guid::new(n).unwrap()
}

fn key(n: u16) -> PKey {
    PKey::new(n).unwrap()
}

fn guids(numbers: &[u64]) -> BTreeSet<Guid> {
    numbers.iter().map(|n| guid(*n)).collect()
}

/// Alpha has key 1 in ports 1 and 2, beta has key 2 in ports 3 and 4. The returned key 3 may be in port 5.
fn keys() -> PortKeys {
    let of = |key_number, uid: &str, ports: &[u64]| (key(key_number), (uid.to_owned(), guids(ports)));
    let must = |port, key_number, uid: &str| (guid(port), (key(key_number), uid.to_owned()));
    PortKeys {
        may_have: [of(1, "a", &[1, 2]), of(2, "b", &[3, 4]), of(3, "c", &[5])].into(),
        must_have: [must(1, 1, "a"), must(2, 1, "a"), must(3, 2, "b"), must(4, 2, "b")].into(),
        is_in_place: true,
    }
}

/// Port 9 is the subnet manager's.
fn reading(entries: &[(u64, &[u16])]) -> Reading {
    let mut tables = Tables::default();
    for (port, table) in entries {
        tables.read.insert(guid(*port), table.to_vec());
    }
    Reading {
        tables,
        managers: guids(&[9]),
        proof: Proof::Ports,
    }
}

/// A finding: its kind, its ports, and its clusters with their numbers of ports.
type Seen<'a> = (Kind, BTreeSet<Guid>, Vec<(&'a str, u64)>);

fn seen(found: &[Finding]) -> Vec<Seen<'_>> {
    found
        .iter()
        .map(|finding| {
            let clusters = finding.clusters.iter().map(|(uid, ports)| (uid.as_str(), *ports));
            (finding.kind, finding.ports.clone(), clusters.collect())
        })
        .collect()
}

#[test]
fn expected_tables_are_no_breach() {
    let mut right = reading(&[
        (1, &[0x8001, 0x7fff]),
        (2, &[0x7fff, 0, 0x8001]),
        (3, &[0x8002, 0x7fff]),
        (5, &[0x7fff, 0x8003]),
        (6, &[0x7fff]),
        (9, &[0xffff]),
    ]);
    right.tables.unread.insert(guid(4), "no answer".into());
    assert_eq!(judge_ports(&keys(), &right), []);
}

#[test]
fn each_fault_of_a_table_is_a_breach_of_its_kind_and_names_its_clusters() {
    let found = judge_ports(
        &keys(),
        &reading(&[
            // Open, and cut off.
            (1, &[0xffff]),
            // Limited in the own partition, and in beta's.
            (2, &[0x0001, 0x0002, 0x7fff]),
            (3, &[0x8002, 0x7fff]),
            // No cluster's port, in a partition of no cluster.
            (6, &[0xffff, 0x8077]),
        ]),
    );
    let expected = [
        (Kind::OpenDefault, guids(&[1, 6]), vec![("a", 1)]),
        (Kind::ForeignKey, guids(&[2, 6]), vec![("a", 1), ("b", 1)]),
        (Kind::CutOff, guids(&[1, 2]), vec![("a", 2)]),
    ];
    assert_eq!(seen(&found), expected);
    assert_eq!(
        found[0].text,
        "2 of 4 ports read are full members of the default partition, 0x0000000000000001 is the first"
    );
}

#[test]
fn while_a_change_is_on_its_way_a_port_may_lack_its_key_but_have_no_other() {
    let pending = PortKeys {
        is_in_place: false,
        ..keys()
    };
    let found = judge_ports(&pending, &reading(&[(1, &[0x7fff]), (3, &[0x8001, 0x7fff])]));
    assert_eq!(
        seen(&found),
        [(Kind::ForeignKey, guids(&[3]), vec![("a", 1), ("b", 1)])]
    );
}

fn file(content: Option<&str>) -> PartitionFile {
    PartitionFile {
        path: PathBuf::from("/p.conf"),
        content: content.map(|text| text.as_bytes().to_vec()),
        is_protected: true,
        owner: "user 0, mode 0644".into(),
    }
}

#[test]
fn a_partition_file_is_missing_foreign_or_open_to_others() {
    let (written, intended) = (digest(b"written"), digest(b"intended"));
    let judged = |file: &PartitionFile| judge_file(file, &[&written, &intended]).map(|found| found.text);
    assert_eq!(judged(&file(Some("written"))), None);
    assert_eq!(judged(&file(Some("intended"))), None);
    let why = judged(&file(None)).unwrap();
    assert!(why.starts_with("/p.conf is missing"), "{why}");
    let why = judged(&file(Some("intruder"))).unwrap();
    assert_eq!(
        why,
        "/p.conf (user 0, mode 0644) has another content than rackwrightd wrote"
    );
    let open = PartitionFile {
        is_protected: false,
        owner: "user 7, mode 0666".into(),
        ..file(Some("written"))
    };
    let why = judged(&open).unwrap();
    assert_eq!(why, "other users may change /p.conf (user 7, mode 0666)");
}

/// The events as lines: kind, target.
fn lines(news: &super::breach::News) -> Vec<(String, &str)> {
    news.events
        .iter()
        .map(|event| (event.kind.to_string(), event.target.as_str()))
        .collect()
}

#[test]
fn a_breach_begins_once_goes_on_with_more_clusters_and_ends_for_those_that_are_still_there() {
    let ids: BTreeMap<String, String> = [("a".into(), "alpha".into()), ("b".into(), "beta".into())].into();
    let found = |ports: &[u64], clusters: &[(&str, u64)]| Finding {
        kind: Kind::OpenDefault,
        text: format!("{} ports are open", ports.len()),
        ports: guids(ports),
        clusters: clusters.iter().map(|(uid, n)| ((*uid).to_owned(), *n)).collect(),
    };
    let begun = settle(
        &[],
        &[found(&[1], &[("a", 1), ("gone", 1)])],
        &ids,
        Some(Timestamp(5)),
        Timestamp(10),
    );
    let expected = [
        ("security.fabric-breach".to_owned(), "fabric"),
        ("cluster.isolation-breach".to_owned(), "clusters/alpha"),
    ];
    assert_eq!(
        (lines(&begun), begun.begun, begun.records.len()),
        (expected.to_vec(), 1, 1)
    );
    assert_eq!(begun.events[0].attributes["not_before"], "1970-01-01T00:00:00.000005Z");
    assert_eq!(
        begun.events[1].message,
        "the partition of the cluster is broken: 1 port can communicate with ports of others; seen first at \
         1970-01-01T00:00:00.000010Z"
    );

    // A restart: the breach is read from its row.
    let stored = Breach::of_row(begun.changed[0].to_row().unwrap()).unwrap();
    let more = found(&[1, 2, 3], &[("a", 2), ("b", 1)]);
    let on = settle(&[stored], &[more], &ids, Some(Timestamp(5)), Timestamp(20));
    let expected = [("cluster.isolation-breach".to_owned(), "clusters/beta")];
    assert_eq!((lines(&on), on.begun, on.records.len()), (expected.to_vec(), 0, 0));
    let row = &on.changed[0].row;
    assert_eq!(
        (row.since, row.seen, row.ended_at),
        (Timestamp(10), Timestamp(20), None)
    );
    let concerned = &on.changed[0].concerned;
    assert_eq!(
        (concerned.ports, concerned.clusters["a"].ports, concerned.named.len()),
        (3, 2, 3)
    );
    assert_eq!(concerned.text, "3 ports are open");

    // Nothing found is no end: only some ports were read.
    assert!(settle(&on.changed, &[], &ids, None, Timestamp(25)).changed.is_empty());
    // Meanwhile another cluster has got the name beta.
    let ids: BTreeMap<String, String> = [("a".into(), "alpha".into()), ("b2".into(), "beta".into())].into();
    let ended = end(&on.changed, &ids, Timestamp(30));
    let expected = [
        ("security.fabric-breach-ended".to_owned(), "fabric"),
        ("cluster.isolation-restored".to_owned(), "clusters/alpha"),
    ];
    assert_eq!(lines(&ended), expected);
    assert_eq!(ended.changed[0].row.ended_at, Some(Timestamp(30)));
    let attributes = &ended.events[1].attributes;
    assert_eq!(
        (attributes["since"].as_str(), attributes["until"].as_str()),
        ("1970-01-01T00:00:00.000010Z", "1970-01-01T00:00:00.000030Z")
    );
}

/// A manager with a file and ports that tests change.
#[derive(Debug, Default)]
struct Scripted {
    refuses: AtomicBool,
    changes: AtomicUsize,
    file: Mutex<Option<Vec<u8>>>,
    tables: Mutex<BTreeMap<Guid, Vec<u16>>>,
    /// Ports that have just come up.
    inactive: Mutex<BTreeSet<Guid>>,
    /// What the next change finds and repairs.
    before: Mutex<Option<Reading>>,
}

impl Scripted {
    fn reading(&self, ports: &BTreeSet<Guid>) -> Reading {
        let tables = self.tables.lock().unwrap();
        let of = tables.iter().filter(|(port, _)| ports.contains(port));
        Reading {
            tables: Tables {
                read: of.map(|(port, table)| (*port, table.clone())).collect(),
                ..Tables::default()
            },
            managers: BTreeSet::new(),
            proof: Proof::Ports,
        }
    }

    /// OpenSM without a usable file, after SIGHUP.
    fn open(&self) {
        *self.file.lock().unwrap() = None;
        for table in self.tables.lock().unwrap().values_mut() {
            *table = vec![0xffff];
        }
    }
}

#[async_trait]
impl FabricManager for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn topology(&self) -> Result<Dump, FabricError> {
        Err(NOTHING)
    }

    async fn apply(&self, wanted: &Partitions) -> Result<Applied, FabricError> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if self.refuses.load(Ordering::Relaxed) {
            return Err(FabricError::NoManager("it is away".into()));
        }
        *self.file.lock().unwrap() = Some(wanted.render()?.into_bytes());
        let mut tables = BTreeMap::new();
        for (port, keys) in wanted.by_port() {
            let entries = keys.iter().map(|(key, membership)| key.entry(*membership));
            tables.insert(port, entries.chain([0x7fff]).collect());
        }
        *self.tables.lock().unwrap() = tables;
        let ports = self.tables.lock().unwrap().keys().copied().collect();
        Ok(Applied {
            changed: true,
            before: self.before.lock().unwrap().take(),
            absent: BTreeSet::new(),
            reading: self.reading(&ports),
        })
    }

    async fn tables(&self) -> Result<Reading, FabricError> {
        Err(NOTHING)
    }

    async fn inspect(&self, ports: &BTreeSet<Guid>) -> Result<Inspection, FabricError> {
        let content = self.file.lock().unwrap().clone();
        Ok(Inspection {
            file: Some(PartitionFile { content, ..file(None) }),
            reading: self.reading(ports),
        })
    }

    async fn confirm(&self, unexpected: &Tables) -> Result<Tables, FabricError> {
        let mut tables = unexpected.clone();
        let inactive = self.inactive.lock().unwrap();
        tables.read.retain(|port, _| !inactive.contains(port));
        Ok(tables)
    }

    async fn health(&self) -> Result<Vec<HealthCheck>, FabricError> {
        Err(NOTHING)
    }
}

/// Two clusters with proven partitions, and the rounds of the replica that has proven them.
async fn proven(core: &Arc<Core>) -> (Arc<Scripted>, Rounds) {
    create_cluster(core, "1", "alpha", spec("acme", 4)).await.unwrap();
    create_cluster(core, "2", "beta", spec("bolt", 4)).await.unwrap();
    let manager = Arc::new(Scripted::default());
    let mut rounds = restarted(core, &manager);
    rounds.run(core).await;
    assert_eq!(manager.changes.load(Ordering::Relaxed), 1);
    (manager, rounds)
}

fn restarted(core: &Core, manager: &Arc<Scripted>) -> Rounds {
    Rounds::new(core.config.fabric.clone().unwrap(), manager.clone())
}

/// The stored breaches by kind: since, until.
async fn breaches(core: &Core) -> BTreeMap<String, (Timestamp, Option<Timestamp>)> {
    let rows = core.store.fabric_breaches(99).await.unwrap();
    rows.into_iter()
        .map(|row| (row.kind, (row.since, row.ended_at)))
        .collect()
}

/// The events that a reader may see: kind, target.
async fn events(core: &Core, scope: &Scope, target: &str) -> Vec<(String, String)> {
    let all = core.store.events(scope, 0, target, 1000).await.unwrap();
    let of = all.into_iter().map(|event| (event.kind.to_string(), event.target));
    of.filter(|(kind, _)| kind.contains("breach") || kind.contains("isolation"))
        .collect()
}

#[tokio::test]
async fn an_opened_fabric_is_reported_with_its_clusters_and_its_times_and_survives_a_restart() {
    let now = clock::now();
    clock::simulated::set(now);
    let core = hall(32, FABRIC).await;
    let (manager, mut rounds) = proven(&core).await;
    let (first, later, last) = (now.plus(seconds(60)), now.plus(seconds(120)), now.plus(seconds(180)));
    let ports = u64::try_from(manager.tables.lock().unwrap().len()).unwrap();
    manager.open();
    manager.refuses.store(true, Ordering::Relaxed);
    rounds.run(&core).await;
    assert!(breaches(&core).await.is_empty(), "before check_s");

    clock::simulated::set(first);
    rounds.run(&core).await;
    let open: BTreeMap<String, _> = ["cut-off", "open-default", "partition-file"]
        .map(|kind| (kind.to_owned(), (first, None)))
        .into();
    assert_eq!(breaches(&core).await, open);
    assert_eq!(core.store.count_open_breaches().await.unwrap(), 3);
    let shown = crate::grpc::fabric::faults(&core.store).await.unwrap().breaches;
    let default = shown.iter().find(|breach| breach.kind == "open-default").unwrap();
    assert_eq!(
        (default.ports, default.clusters.clone()),
        (ports, vec!["clusters/alpha".to_owned(), "clusters/beta".to_owned()])
    );
    assert_eq!(default.good_time, clock::to_proto(now));
    assert_eq!(default.end_time, None);

    // Another process goes on with the same breaches, and the file of a failed change shows nothing new.
    clock::simulated::set(later);
    let mut rounds = restarted(&core, &manager);
    rounds.run(&core).await;
    assert_eq!(breaches(&core).await, open);
    clock::simulated::set(last);
    manager.refuses.store(false, Ordering::Relaxed);
    restarted(&core, &manager).run(&core).await;
    let ended: BTreeMap<String, _> = open.into_keys().map(|kind| (kind, (first, Some(last)))).collect();
    assert_eq!(breaches(&core).await, ended);

    let count = |all: &[(String, String)], kind: &str| all.iter().filter(|(one, _)| one == kind).count();
    let all = events(&core, &Scope::Site, "fabric").await;
    assert_eq!(
        (
            count(&all, "security.fabric-breach"),
            count(&all, "security.fabric-breach-ended")
        ),
        (3, 3)
    );
    let acme = events(&core, &Scope::Customer("acme".into()), "").await;
    assert!(acme.iter().all(|(_, target)| target == "clusters/alpha"), "{acme:?}");
    assert_eq!(
        (
            count(&acme, "cluster.isolation-breach"),
            count(&acme, "cluster.isolation-restored")
        ),
        (2, 2)
    );
    let audit = core.store.audit(&AuditFilter::default(), 0, 1000).await.unwrap();
    let records = audit.iter().filter(|row| row.method == "local/fabric-breach").count();
    assert_eq!(records, 6, "a begin and an end of each");
}

#[tokio::test]
async fn a_port_that_has_just_come_up_is_no_breach() {
    let now = clock::now();
    clock::simulated::set(now);
    let core = hall(32, FABRIC).await;
    let (manager, mut rounds) = proven(&core).await;
    let port = *manager.tables.lock().unwrap().keys().next().unwrap();
    manager.tables.lock().unwrap().insert(port, vec![0xffff]);
    manager.inactive.lock().unwrap().insert(port);
    clock::simulated::set(now.plus(seconds(60)));
    rounds.run(&core).await;
    assert!(breaches(&core).await.is_empty());
    assert_eq!(manager.changes.load(Ordering::Relaxed), 1);
    manager.inactive.lock().unwrap().clear();
    // A check reads some of the ports. All are read again before the next proof, after ten minutes.
    for minute in 2..10 {
        clock::simulated::set(now.plus(minutes(minute)));
        rounds.run(&core).await;
        if !breaches(&core).await.is_empty() {
            break;
        }
    }
    assert_eq!(breaches(&core).await.len(), 2, "open and cut off");
    assert_eq!(manager.changes.load(Ordering::Relaxed), 2, "repaired at once");
}

#[tokio::test]
async fn a_change_does_not_hide_the_foreign_file_that_it_replaces() {
    let core = hall(32, FABRIC).await;
    let (manager, mut rounds) = proven(&core).await;
    *manager.file.lock().unwrap() = Some(b"Default=0x7fff : ALL=full ; %%%".to_vec());
    let record = cluster(&core, "beta").await;
    let mut tx = core.store.write().await.unwrap();
    tx.hall().await.unwrap();
    let state = tx.fabric().await.unwrap().unwrap();
    let mut fabric = Fabric::of_cluster(&mut tx, state, &record.uid).await.unwrap();
    fabric.drop_cluster(&record.uid);
    fabric.changes().store(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    rounds.run(&core).await;
    assert_eq!(manager.changes.load(Ordering::Relaxed), 2);
    let stored = breaches(&core).await;
    let (kind, (_, until)) = stored.first_key_value().unwrap();
    assert_eq!(
        (stored.len(), kind.as_str(), until.is_some()),
        (1, "partition-file", true)
    );
}

#[tokio::test]
async fn the_file_of_an_interrupted_change_is_ours() {
    let now = clock::now();
    clock::simulated::set(now);
    let core = hall(32, FABRIC).await;
    let (manager, _) = proven(&core).await;
    // Another process wanted to write a file without beta, and was killed after that.
    let fabric = Fabric::load(&core.store).await.unwrap().unwrap();
    let mut wanted = fabric.partitions();
    wanted.partitions.pop_last();
    let as_manager: Arc<dyn FabricManager> = manager.clone();
    let written = before_change(&core, &as_manager, &fabric, &wanted).await.unwrap();
    let text = wanted.render().unwrap().into_bytes();
    assert_eq!(written, Some(format!("{} {}", core.replica, digest(&text))));
    *manager.file.lock().unwrap() = Some(text);
    clock::simulated::set(now.plus(seconds(60)));
    restarted(&core, &manager).run(&core).await;
    assert!(breaches(&core).await.is_empty());
    // The next change writes a third file, and knows the file that is in place.
    let closed = before_change(&core, &as_manager, &fabric, &Partitions::default()).await;
    let row = core.store.fabric_check().await.unwrap().unwrap();
    assert_eq!((Some(row.written), Some(row.intended)), (written, closed.unwrap()));
}

#[tokio::test]
async fn what_a_proof_finds_and_repairs_is_a_breach() {
    let now = clock::now();
    clock::simulated::set(now);
    let core = hall(32, FABRIC).await;
    let (manager, mut rounds) = proven(&core).await;
    let port = *manager.tables.lock().unwrap().keys().next().unwrap();
    let mut before = reading(&[]);
    before.tables.read.insert(port, vec![0x8001, 0x8002, 0x7fff]);
    *manager.before.lock().unwrap() = Some(before);
    let proof = now.plus(seconds(600));
    clock::simulated::set(proof);
    rounds.run(&core).await;
    let stored: Vec<_> = breaches(&core).await.into_iter().collect();
    assert_eq!(stored, [("foreign-key".to_owned(), (proof, Some(proof)))]);
}
