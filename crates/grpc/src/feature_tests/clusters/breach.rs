//! Breaches of isolation that a scripted fabric manager shows: what is stored and reported.

mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rackwright_api::v1;
use rackwright_control::clusters::breach::digest;
use rackwright_control::clusters::partitions::Fabric;
use rackwright_control::clusters::reconcile::Rounds;
use rackwright_control::testing::before_change;
use rackwright_fabric::{
    Applied, FabricError, FabricManager, Fence, Inspection, ManagerFault, Master, PartitionFile, Proof, Reading,
};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_infiniband::partition::HealthCheck;
use rackwright_infiniband::{Device, DeviceKind, Dump, FabricBuilder, Guid, Partitions, PortRef, Tables};
use rackwright_lifecycle::cluster::State;
use rackwright_lifecycle::{State as NodeState, Timestamp, minutes, seconds};
use rackwright_store::{AuditFilter, Scope};

use super::{FABRIC, check, cluster, hall, names, prove, put, spec, step};
use crate::test_calls::create_cluster;

const NOTHING: FabricError = FabricError::Unsupported("it cannot be read");

/// A manager with a file and ports that tests change.
#[derive(Debug, Default)]
struct Scripted {
    refuses: AtomicBool,
    changes: AtomicUsize,
    file: Mutex<Option<Vec<u8>>>,
    tables: Mutex<BTreeMap<Guid, Vec<u16>>>,
    fault: Mutex<Option<ManagerFault>>,
    /// Ports that have just come up.
    inactive: Mutex<BTreeSet<Guid>>,
    /// What the next change finds and repairs.
    before: Mutex<Option<Reading>>,
    /// The port of an adapter, the only one that a discovery finds. `None`: nothing is discovered.
    discovered: Mutex<Option<Guid>>,
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
        let Some(guid) = *self.discovered.lock().unwrap() else {
            return Err(NOTHING);
        };
        let mut builder = FabricBuilder::default();
        let [switch, adapter] = [
            (DeviceKind::Switch, "leaf"),
            (DeviceKind::ChannelAdapter, "stranger mlx5_0"),
        ]
        .map(|(kind, name)| builder.device(Device::new(kind, name, 1)))
        .map(|device| PortRef { device, port: 1 });
        builder.connect(switch, adapter, None).unwrap();
        builder.port(adapter).unwrap().guid = Some(guid);
        Ok(Dump::of(builder.finish()))
    }

    async fn apply(&self, wanted: &Partitions, _: &dyn Fence) -> Result<Applied, FabricError> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if self.refuses.load(Ordering::Relaxed) {
            let source = FabricError::NoManager("it is away".into());
            let before = self.before.lock().unwrap().take();
            return Err(match before {
                None => source,
                Some(before) => FabricError::OfFabric {
                    fabric: "west".into(),
                    source: Box::new(source),
                    before: Some(Box::new(before)),
                },
            });
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
            files: vec![PartitionFile {
                path: PathBuf::from("/p.conf"),
                fabric: None,
                content,
                is_protected: true,
                owner: "user 0, mode 0644".into(),
            }],
            manager: self.fault.lock().unwrap().clone().filter(|_| !ports.is_empty()),
            reading: self.reading(ports),
            problem: None,
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
    let shown = crate::fabric::faults(&core.store).await.unwrap().breaches;
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
async fn a_dead_subnet_manager_is_an_alarm_for_operators_and_hides_no_change_of_its_file() {
    let now = clock::now();
    clock::simulated::set(now);
    let core = hall(32, FABRIC).await;
    let (manager, mut rounds) = proven(&core).await;
    let (first, later, last) = (now.plus(seconds(60)), now.plus(seconds(120)), now.plus(seconds(180)));
    let why = "no subnet manager answers; ports keep their keys";
    *manager.fault.lock().unwrap() = Some(ManagerFault::Absent(why.into()));
    manager.refuses.store(true, Ordering::Relaxed);
    clock::simulated::set(first);
    rounds.run(&core).await;
    let dead = ("no-manager".to_owned(), (first, None));
    assert_eq!(breaches(&core).await, [dead.clone()].into());
    let shown = crate::fabric::faults(&core.store).await.unwrap();
    assert_eq!(
        (shown.isolation_problem.as_str(), shown.breaches[0].text.as_str()),
        (why, why)
    );
    assert_eq!(shown.breaches[0].good_time, clock::to_proto(now));

    // The change that failed meanwhile is no reason to trust another file.
    *manager.file.lock().unwrap() = Some(b"Default=0x7fff : ALL=full ;".to_vec());
    clock::simulated::set(later);
    rounds.run(&core).await;
    let changed = ("partition-file".to_owned(), (later, None));
    assert_eq!(breaches(&core).await, [dead, changed].into());

    *manager.fault.lock().unwrap() = None;
    manager.refuses.store(false, Ordering::Relaxed);
    clock::simulated::set(last);
    rounds.run(&core).await;
    let until: Vec<_> = breaches(&core).await.into_values().map(|(_, until)| until).collect();
    assert_eq!(until, [Some(last), Some(last)]);
    let all = core.store.events(&Scope::Site, 0, "fabric", 1000).await.unwrap();
    let begun = all.iter().find(|event| event.message.starts_with(why)).unwrap();
    assert!(
        begun
            .message
            .ends_with("; start OpenSM; rackwrightd reads every port then"),
        "{}",
        begun.message
    );
    assert!(events(&core, &Scope::Customer("acme".into()), "").await.is_empty());
    let audit = core.store.audit(&AuditFilter::default(), 0, 1000).await.unwrap();
    let records = audit.iter().filter(|row| row.method == "local/fabric-breach").count();
    assert_eq!(records, 4, "a begin and an end of each");
}

#[tokio::test]
async fn a_foreign_master_is_named_with_its_port_beside_the_ports_that_it_opens() {
    let now = clock::now();
    clock::simulated::set(now);
    let core = hall(32, FABRIC).await;
    let (manager, mut rounds) = proven(&core).await;
    let master = Master {
        port: Guid::new(9).unwrap(),
        priority: 14,
    };
    *manager.fault.lock().unwrap() = Some(ManagerFault::Foreign { master, fabric: None });
    for table in manager.tables.lock().unwrap().values_mut() {
        *table = vec![0xffff];
    }
    manager.refuses.store(true, Ordering::Relaxed);
    let first = now.plus(seconds(60));
    clock::simulated::set(first);
    rounds.run(&core).await;
    let open = ["cut-off", "foreign-manager", "open-default"].map(|kind| (kind.to_owned(), (first, None)));
    assert_eq!(breaches(&core).await, open.into());
    let begun = core.store.events(&Scope::Site, 0, "fabric", 1000).await.unwrap();
    let words = "the subnet manager at port 0x0000000000000009 (priority 14) is the master";
    let begun = begun.iter().find(|event| event.message.starts_with(words)).unwrap();
    assert!(
        begun.message.contains("; stop the other subnet manager; "),
        "{}",
        begun.message
    );
    // The pause before the next try is check_s at most, and the other manager is stopped meanwhile.
    *manager.fault.lock().unwrap() = None;
    manager.refuses.store(false, Ordering::Relaxed);
    let last = first.plus(seconds(60));
    clock::simulated::set(last);
    rounds.run(&core).await;
    let ended = breaches(&core)
        .await
        .into_values()
        .all(|(_, until)| until == Some(last));
    assert!(ended);
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
    assert_eq!(written, Some(format!("{} {} /p.conf", core.replica, digest(&text))));
    *manager.file.lock().unwrap() = Some(text);
    clock::simulated::set(now.plus(seconds(60)));
    restarted(&core, &manager).run(&core).await;
    assert!(breaches(&core).await.is_empty());
    // The next change writes a third file, and knows the file that is in place.
    let closed = before_change(&core, &as_manager, &fabric, &Partitions::default()).await;
    let row = core.store.fabric_check().await.unwrap().unwrap();
    assert_eq!((Some(row.written), Some(row.intended)), (written, closed.unwrap()));
}

/// With several fabrics: the manager of one is away, and ports of the others can be read.
#[tokio::test]
async fn while_one_manager_is_away_the_ports_of_the_others_are_read_in_turn() {
    let now = clock::now();
    clock::simulated::set(now);
    let core = hall(128, FABRIC).await;
    let (manager, mut rounds) = proven(&core).await;
    let (_, site) = core.sites.current(&core.store).await.unwrap().unwrap();
    let guids = site.node_ids().flat_map(|node| site.compute_ports(node));
    let all: BTreeSet<Guid> = guids.filter_map(|(_, guid)| Guid::new(guid?)).collect();
    manager.refuses.store(true, Ordering::Relaxed);
    *manager.fault.lock().unwrap() = Some(ManagerFault::Absent("west is away".into()));
    for port in &all {
        manager
            .tables
            .lock()
            .unwrap()
            .entry(*port)
            .or_insert_with(|| vec![0x7fff]);
    }
    // Both ports have the key of a cluster. The first check reads 512 of the 1,024 ports, because it sees a breach.
    let in_clusters = manager.file.lock().unwrap().clone().expect("a file");
    let in_clusters = String::from_utf8(in_clusters).unwrap();
    let others: Vec<Guid> = all
        .into_iter()
        .filter(|port| !in_clusters.contains(&port.to_string()))
        .collect();
    let (near, far) = (others[300], *others.last().unwrap());
    for port in [near, far] {
        manager.tables.lock().unwrap().insert(port, vec![0x8001, 0x7fff]);
    }
    let mut positions = BTreeSet::new();
    let mut seen = Vec::new();
    for minute in 1..=20 {
        clock::simulated::set(now.plus(minutes(minute)));
        rounds.run(&core).await;
        positions.insert(core.store.fabric_check().await.unwrap().unwrap().last_port);
        let shown = crate::fabric::faults(&core.store).await.unwrap().breaches;
        let keys = shown.iter().find(|breach| breach.kind == "foreign-key");
        seen.push(keys.map_or(0, |breach| breach.ports));
    }
    assert_eq!((seen.first(), seen.last()), (Some(&1), Some(&2)), "{seen:?}");
    assert!(positions.len() > 4, "the checks read the same ports: {positions:?}");
}

#[tokio::test]
async fn a_port_that_the_site_does_not_have_is_read_once_it_is_discovered() {
    let now = clock::now();
    clock::simulated::set(now);
    let core = hall(32, FABRIC).await;
    let (manager, mut rounds) = proven(&core).await;
    // An adapter that the site does not have has the key of alpha, and the partition file is right.
    let stranger = Guid::new(0x5752_a6a7).unwrap();
    *manager.discovered.lock().unwrap() = Some(stranger);
    manager.tables.lock().unwrap().insert(stranger, vec![0x8001, 0x7fff]);
    manager.refuses.store(true, Ordering::Relaxed);
    let mut checks = 0;
    // The next proof is due after ten minutes.
    while breaches(&core).await.is_empty() && checks < 9 {
        checks += 1;
        clock::simulated::set(now.plus(minutes(checks)));
        rounds.run(&core).await;
    }
    let shown = crate::fabric::faults(&core.store).await.unwrap().breaches;
    let words = format!("have a partition key that they must not have, {stranger} is the first");
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(shown[0].text.contains(&words), "{}", shown[0].text);
    assert_eq!(
        (shown[0].kind.as_str(), shown[0].ports, shown[0].clusters.clone()),
        ("foreign-key", 1, vec!["clusters/alpha".to_owned()])
    );
    // A check reads 64 of the 257 ports in turn.
    assert!(checks <= 5, "{checks}");
}

/// The next change finds a port that has a key of another cluster beside its own.
fn with_foreign_key(manager: &Scripted) {
    let port = *manager.tables.lock().unwrap().keys().next().unwrap();
    let read = BTreeMap::from([(port, vec![0x8001, 0x8002, 0x7fff])]);
    *manager.before.lock().unwrap() = Some(Reading {
        tables: Tables {
            read,
            ..Tables::default()
        },
        managers: BTreeSet::new(),
        proof: Proof::Ports,
    });
}

#[tokio::test]
async fn what_a_proof_finds_and_repairs_is_a_breach() {
    let now = clock::now();
    clock::simulated::set(now);
    let core = hall(32, FABRIC).await;
    let (manager, mut rounds) = proven(&core).await;
    with_foreign_key(&manager);
    let proof = now.plus(seconds(600));
    clock::simulated::set(proof);
    rounds.run(&core).await;
    let stored: Vec<_> = breaches(&core).await.into_iter().collect();
    assert_eq!(stored, [("foreign-key".to_owned(), (proof, Some(proof)))]);
}

/// With several fabrics: the change of one fails after the change of another has repaired ports.
#[tokio::test]
async fn what_a_failed_change_has_repaired_is_a_breach_until_the_next_proof() {
    let now = clock::now();
    clock::simulated::set(now);
    let core = hall(32, FABRIC).await;
    let (manager, mut rounds) = proven(&core).await;
    with_foreign_key(&manager);
    manager.refuses.store(true, Ordering::Relaxed);
    let (failed, proof) = (now.plus(seconds(600)), now.plus(seconds(660)));
    clock::simulated::set(failed);
    rounds.run(&core).await;
    let stored: Vec<_> = breaches(&core).await.into_iter().collect();
    assert_eq!(stored, [("foreign-key".to_owned(), (failed, None))]);
    manager.refuses.store(false, Ordering::Relaxed);
    clock::simulated::set(proof);
    rounds.run(&core).await;
    let stored: Vec<_> = breaches(&core).await.into_iter().collect();
    assert_eq!(stored, [("foreign-key".to_owned(), (failed, Some(proof)))]);
}
