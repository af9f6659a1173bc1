//! A subnet manager and the ports of its fabric. Both survive the replicas: a replica that is killed in the middle of a
//! change leaves the fabric between two states.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use rackwright_fabric::{Applied, FabricError, FabricManager, Fence, Inspection, Proof, Reading};
use rackwright_infiniband::partition::HealthCheck;
use rackwright_infiniband::{Dump, Guid, Membership, PKey, Partitions, Tables};

use super::super::performer::{Fake, Fault};

/// The name of the call in which a replica works on the fabric.
pub const CALL: &str = "fabric";

/// The ports, each with the keys in its table besides the default one.
#[derive(Debug, Default)]
pub struct PhysicalFabric {
    tables: BTreeMap<Guid, BTreeSet<PKey>>,
    /// How often, in a thousand, a change is interrupted in the middle.
    pub torn_of_1000: usize,
    /// How often, in a thousand, the manager takes minutes to begin a change. A change ends within the lease of 15 minutes.
    pub slow_of_1000: usize,
}

impl PhysicalFabric {
    pub fn add(&mut self, port: Guid) {
        self.tables.insert(port, BTreeSet::new());
    }

    /// The keys in a port's table.
    pub fn keys(&self, port: Guid) -> BTreeSet<PKey> {
        self.tables.get(&port).cloned().unwrap_or_default()
    }

    /// The ports with this key.
    pub fn holders(&self, key: PKey) -> Vec<Guid> {
        let holds = self.tables.iter().filter(|(_, keys)| keys.contains(&key));
        holds.map(|(port, _)| *port).collect()
    }

    /// The ports with any key.
    pub fn members(&self) -> Vec<Guid> {
        let members = self.tables.iter().filter(|(_, keys)| !keys.is_empty());
        members.map(|(port, _)| *port).collect()
    }

    /// Sets a port's keys. Returns whether they were others.
    fn set(&mut self, port: Guid, keys: BTreeSet<PKey>) -> bool {
        let former = self.tables.insert(port, keys.clone());
        former != Some(keys)
    }

    fn read(&self) -> Tables {
        let table = |keys: &BTreeSet<PKey>| -> Vec<u16> {
            let own = keys.iter().map(|key| key.entry(Membership::Full));
            own.chain([PKey::DEFAULT.entry(Membership::Limited)]).collect()
        };
        Tables {
            read: self.tables.iter().map(|(port, keys)| (*port, table(keys))).collect(),
            ..Tables::default()
        }
    }
}

/// The subnet manager, as one replica reaches it.
#[derive(Debug)]
pub struct Manager {
    pub fake: Fake,
}

const UNREADABLE: FabricError = FabricError::Unsupported("the simulated fabric cannot be discovered");

#[async_trait]
impl FabricManager for Manager {
    fn name(&self) -> &'static str {
        "a simulated subnet manager"
    }

    async fn topology(&self) -> Result<Dump, FabricError> {
        Err(UNREADABLE)
    }

    async fn apply(&self, wanted: &Partitions, fence: &dyn Fence) -> Result<Applied, FabricError> {
        wanted.check()?;
        let (fake, fault) = (&self.fake, self.fake.fault());
        let slow_of_1000 = fake.world().fabric.slow_of_1000;
        let is_slow = fake.chance.of_1000(slow_of_1000);
        fake.pause(50, if is_slow { 600_000 } else { 3_000 }).await;
        if fault == Some(Fault::Before) {
            return Err(FabricError::NoManager(
                "the subnet manager is away, as simulated".into(),
            ));
        }
        let by_port = wanted.by_port();
        let ports: Vec<Guid> = fake.world().fabric.tables.keys().copied().collect();
        let (middle, is_torn) = {
            let torn_of_1000 = fake.world().fabric.torn_of_1000;
            (fake.chance.below(ports.len()), fake.chance.of_1000(torn_of_1000))
        };
        let fenced = FabricError::Fenced;
        fence.check().await.map_err(fenced)?;
        let mut changed = false;
        for (at, port) in ports.iter().enumerate() {
            if at == middle {
                fake.pause(0, 4_000).await;
                fence.check().await.map_err(fenced)?;
                if is_torn {
                    return Err(FabricError::NoSweep(Duration::from_secs(300)));
                }
            }
            let keys = by_port.get(port).map(|keys| keys.keys().copied().collect());
            changed |= fake.world().fabric.set(*port, keys.unwrap_or_default());
        }
        fake.pause(0, 2_000).await;
        if fault == Some(Fault::After) {
            return Err(FabricError::NoSweep(Duration::from_secs(300)));
        }
        let absent = by_port.keys().filter(|port| !ports.contains(port)).copied().collect();
        Ok(Applied {
            changed,
            before: None,
            absent,
            reading: self.reading(),
        })
    }

    async fn tables(&self) -> Result<Reading, FabricError> {
        Ok(self.reading())
    }

    async fn inspect(&self, ports: &BTreeSet<Guid>) -> Result<Inspection, FabricError> {
        let mut reading = self.reading();
        reading.tables.read.retain(|port, _| ports.contains(port));
        Ok(Inspection {
            files: Vec::new(),
            manager: None,
            reading,
            problem: None,
        })
    }

    async fn confirm(&self, unexpected: &Tables) -> Result<Tables, FabricError> {
        Ok(unexpected.clone())
    }

    async fn health(&self) -> Result<Vec<HealthCheck>, FabricError> {
        Err(UNREADABLE)
    }
}

impl Manager {
    fn reading(&self) -> Reading {
        Reading {
            tables: self.fake.world().fabric.read(),
            managers: BTreeSet::new(),
            proof: Proof::Ports,
        }
    }
}
