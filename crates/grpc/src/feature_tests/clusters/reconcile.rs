use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rackwright_control::clusters::cluster_partitions::ClusterPartitions;
use rackwright_control::clusters::partitions::Fabric;
use rackwright_control::clusters::reconcile::Rounds;
use rackwright_fabric::{Applied, FabricError, FabricManager, Fence, Inspection, Proof, Reading};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_infiniband::partition::HealthCheck;
use rackwright_infiniband::{Dump, Guid, Partitions, Tables};
use rackwright_lifecycle::cluster::{Partition, State, Wait};
use rackwright_lifecycle::seconds;

use super::{FABRIC, check, cluster, hall, names, prove, spec, step};
use crate::test_calls::{create_cluster, release_cluster};

/// A manager that refuses changes, or makes them at once.
#[derive(Debug, Default)]
struct Manager {
    refuses: AtomicBool,
    changes: AtomicUsize,
    /// Seconds that the process stands still in the next change.
    stalls_s: AtomicI64,
    /// What the fence says after that.
    refused: Mutex<Option<String>>,
    /// The change fails after that with an error that does not name the fence.
    fails_late: AtomicBool,
    /// Clusters that are created during the next change.
    meanwhile: Mutex<Vec<(Arc<Core>, &'static str)>>,
}

const UNREADABLE: FabricError = FabricError::Unsupported("it cannot be read");

#[async_trait]
impl FabricManager for Manager {
    fn name(&self) -> &'static str {
        "a test's"
    }

    async fn topology(&self) -> Result<Dump, FabricError> {
        Err(UNREADABLE)
    }

    async fn apply(&self, wanted: &Partitions, fence: &dyn Fence) -> Result<Applied, FabricError> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if self.refuses.load(Ordering::Relaxed) {
            return Err(FabricError::Unsupported("it refuses"));
        }
        let stalled = self.stalls_s.swap(0, Ordering::Relaxed);
        if stalled > 0 {
            clock::simulated::set(clock::now().plus(seconds(stalled)));
            *self.refused.lock().unwrap() = fence.check().await.err();
        }
        if self.fails_late.load(Ordering::Relaxed) {
            return Err(FabricError::Unsupported("the rollback failed"));
        }
        let meanwhile = std::mem::take(&mut *self.meanwhile.lock().unwrap());
        for (core, id) in meanwhile {
            create_cluster(&core, id, id, spec("bolt", 4)).await.unwrap();
        }
        let mut tables = Tables::default();
        for (port, keys) in wanted.by_port() {
            let entries = keys.iter().map(|(key, membership)| key.entry(*membership));
            tables.read.insert(port, entries.collect());
        }
        Ok(Applied {
            changed: true,
            before: None,
            absent: BTreeSet::new(),
            reading: Reading {
                tables,
                managers: BTreeSet::new(),
                proof: Proof::Ports,
            },
        })
    }

    async fn tables(&self) -> Result<Reading, FabricError> {
        Err(UNREADABLE)
    }

    async fn inspect(&self, _: &BTreeSet<Guid>) -> Result<Inspection, FabricError> {
        Err(UNREADABLE)
    }

    async fn confirm(&self, _: &Tables) -> Result<Tables, FabricError> {
        Err(UNREADABLE)
    }

    async fn health(&self) -> Result<Vec<HealthCheck>, FabricError> {
        Err(UNREADABLE)
    }
}

/// The state of a cluster's partition.
async fn fact(core: &Core, id: &str) -> Partition {
    let record = cluster(core, id).await;
    let partitions = ClusterPartitions::of_cluster(&core.store, &record.uid).await.unwrap();
    partitions.of(&record.uid).fact(&record)
}

#[tokio::test]
async fn a_refused_change_is_a_stored_fault_and_is_tried_again_after_a_pause() {
    let core = hall(32, FABRIC).await;
    create_cluster(&core, "1", "alpha", spec("acme", 4)).await.unwrap();
    let manager = Arc::new(Manager::default());
    let mut rounds = Rounds::new(core.config.fabric.clone().unwrap(), manager.clone());
    let now = clock::now();
    clock::simulated::set(now);
    manager.refuses.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        rounds.run(&core).await;
    }
    assert_eq!(manager.changes.load(Ordering::Relaxed), 1, "without a pause");
    assert_eq!(fact(&core, "alpha").await, Partition::Faulty("it refuses".into()));
    clock::simulated::set(now.plus(seconds(60)));
    manager.refuses.store(false, Ordering::Relaxed);
    for _ in 0..3 {
        rounds.run(&core).await;
    }
    assert_eq!(
        manager.changes.load(Ordering::Relaxed),
        2,
        "a proven state is left alone"
    );
    assert_eq!(fact(&core, "alpha").await, Partition::Proven);
}

#[tokio::test]
async fn a_replica_that_stood_still_past_its_lease_neither_writes_nor_counts_its_reading() {
    let core = hall(32, FABRIC).await;
    create_cluster(&core, "1", "alpha", spec("acme", 4)).await.unwrap();
    let manager = Arc::new(Manager::default());
    let mut rounds = Rounds::new(core.config.fabric.clone().unwrap(), manager.clone());
    clock::simulated::set(clock::now());
    // Within its lease of 15 minutes.
    manager.stalls_s.store(890, Ordering::Relaxed);
    rounds.run(&core).await;
    assert_eq!(*manager.refused.lock().unwrap(), None);
    assert_eq!(fact(&core, "alpha").await, Partition::Proven);

    create_cluster(&core, "2", "beta", spec("bolt", 4)).await.unwrap();
    manager.stalls_s.store(901, Ordering::Relaxed);
    rounds.run(&core).await;
    let why = manager.refused.lock().unwrap().take().unwrap();
    assert_eq!(
        why,
        format!("the lease of replica {} for the fabric is over", core.replica)
    );
    assert_eq!(fact(&core, "beta").await, Partition::Pending);
    let stored = core.store.fabric().await.unwrap().unwrap();
    assert_eq!((stored.fault.as_str(), stored.reading), ("", 1));
    // The fence refused a rollback: another replica has the state of the fabric to tell.
    manager.stalls_s.store(901, Ordering::Relaxed);
    manager.fails_late.store(true, Ordering::Relaxed);
    rounds.run(&core).await;
    assert_eq!(core.store.fabric().await.unwrap().unwrap().fault, "");
    manager.fails_late.store(false, Ordering::Relaxed);
    // No other replica has the lease, so this one takes it again.
    rounds.run(&core).await;
    assert_eq!(fact(&core, "beta").await, Partition::Proven);
}

/// Stores a port that does not parse with the key of a cluster.
async fn corrupt_row(core: &Core, id: &str) {
    let owner = cluster(core, id).await.uid;
    let mut tx = core.store.write().await.unwrap();
    tx.hall().await.unwrap();
    let mut keys = tx.fabric_keys_of(&owner).await.unwrap();
    let key = &mut keys[0];
    for ports in [&mut key.ports, &mut key.members, &mut key.absent] {
        ports.push("no port".into());
    }
    tx.put_fabric_key(key).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_step_reads_the_partition_of_its_own_cluster_and_names_one_that_does_not_parse() {
    let core = hall(32, FABRIC).await;
    for id in ["alpha", "beta"] {
        create_cluster(&core, id, id, spec("bolt", 4)).await.unwrap();
        step(&core, id).await;
        for node in names(&core, id).await {
            check(&core, &node).await;
        }
    }
    prove(&core).await;
    corrupt_row(&core, "beta").await;
    assert_eq!(step(&core, "alpha").await, State::Validating);
    assert_eq!(step(&core, "beta").await, State::Building);
    let why = "the stored state of the fabric cannot be read: key 0x0002: \"no port\" is not a GUID";
    let wait = cluster(&core, "beta").await.wait;
    let is_named = matches!(&wait, Wait::PartitionFault { fault } if fault.starts_with(why));
    assert!(is_named, "{wait:?}");
    let whole = Fabric::load(&core.store).await.unwrap_err().to_string();
    assert!(whole.starts_with(why), "{whole}");
    // A change of alpha's partition reads no other either.
    release_cluster(&core, "r", "alpha").await.unwrap();
    assert_eq!(step(&core, "alpha").await, State::Releasing);
    assert!(matches!(fact(&core, "alpha").await, Partition::Draining(_)));
}

#[tokio::test]
async fn a_partition_that_is_requested_while_another_is_set_up_is_neither_lost_nor_proven_with_it() {
    let core = hall(32, FABRIC).await;
    create_cluster(&core, "1", "alpha", spec("acme", 4)).await.unwrap();
    let manager = Arc::new(Manager::default());
    manager.meanwhile.lock().unwrap().push(((*core).clone(), "beta"));
    let mut rounds = Rounds::new(core.config.fabric.clone().unwrap(), manager.clone());
    rounds.run(&core).await;
    assert_eq!(fact(&core, "alpha").await, Partition::Proven);
    assert_eq!(fact(&core, "beta").await, Partition::Pending);
    let stored = core.store.fabric().await.unwrap().unwrap();
    assert_eq!((stored.wanted, stored.applied, stored.reading), (2, 1, 1));
    rounds.run(&core).await;
    assert_eq!(manager.changes.load(Ordering::Relaxed), 2);
    assert_eq!(fact(&core, "beta").await, Partition::Proven);
}
