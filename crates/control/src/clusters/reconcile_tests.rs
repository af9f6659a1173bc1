use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use rackwright_fabric::{Applied, FabricError, FabricManager, Proof, Reading};
use rackwright_infiniband::partition::HealthCheck;
use rackwright_infiniband::{Dump, Partitions, Tables};
use rackwright_lifecycle::cluster::Partition;
use rackwright_lifecycle::seconds;

use super::partitions::Fabric;
use super::reconcile::Rounds;
use super::tests::{FABRIC, cluster, hall, spec};
use crate::clock;
use crate::core::Core;
use crate::grpc::test_calls::create_cluster;

/// A manager that refuses changes, or makes them at once.
#[derive(Debug, Default)]
struct Manager {
    refuses: AtomicBool,
    changes: AtomicUsize,
}

const NOTHING: FabricError = FabricError::Unsupported("it cannot be read");

#[async_trait]
impl FabricManager for Manager {
    fn name(&self) -> &'static str {
        "a test's"
    }

    async fn topology(&self) -> Result<Dump, FabricError> {
        Err(NOTHING)
    }

    async fn apply(&self, wanted: &Partitions) -> Result<Applied, FabricError> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if self.refuses.load(Ordering::Relaxed) {
            return Err(FabricError::Unsupported("it refuses"));
        }
        let mut tables = Tables::default();
        for (port, keys) in wanted.by_port() {
            let entries = keys.iter().map(|(key, membership)| key.entry(*membership));
            tables.read.insert(port, entries.collect());
        }
        Ok(Applied {
            changed: true,
            absent: BTreeSet::new(),
            reading: Reading {
                tables,
                managers: BTreeSet::new(),
                proof: Proof::Ports,
            },
        })
    }

    async fn tables(&self) -> Result<Reading, FabricError> {
        Err(NOTHING)
    }

    async fn health(&self) -> Result<Vec<HealthCheck>, FabricError> {
        Err(NOTHING)
    }
}

/// The state of the cluster's partition.
async fn fact(core: &Core) -> Partition {
    let fabric = Fabric::parse(&core.store.hall().await.unwrap().fabric).unwrap();
    fabric.fact(&cluster(core, "alpha").await)
}

#[tokio::test]
async fn a_refused_change_is_a_stored_fault_and_is_tried_again_after_a_pause() {
    let core = hall(32, FABRIC).await;
    create_cluster(&core, "1", "alpha", spec("acme", 4)).await.unwrap();
    let manager = std::sync::Arc::new(Manager::default());
    let mut rounds = Rounds::new(core.config.fabric.clone().unwrap(), manager.clone());
    let now = clock::now();
    clock::simulated::set(now);
    manager.refuses.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        rounds.run(&core).await;
    }
    assert_eq!(manager.changes.load(Ordering::Relaxed), 1, "without a pause");
    assert_eq!(fact(&core).await, Partition::Faulty("it refuses".into()));
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
    assert_eq!(fact(&core).await, Partition::Proven);
}
