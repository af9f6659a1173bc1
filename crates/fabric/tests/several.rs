//! The managers of several fabrics as one, with scripted managers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rackwright_fabric::{
    Applied, FabricError, FabricManager, Fence, Inspection, ManagerFault, Managers, Master, Proof, Reading, Unshared,
};
use rackwright_infiniband::partition::{HealthCheck, HealthItem, HealthState};
use rackwright_infiniband::{Device, DeviceKind, Dump, Fabric, Guid, PKey, Partition, Partitions, PortRef, Tables};

/// A fabric with some ports.
#[derive(Debug)]
struct Scripted {
    ports: BTreeSet<Guid>,
    fault: Mutex<Option<ManagerFault>>,
    /// The requested ports of each inspection.
    inspected: Mutex<Vec<BTreeSet<Guid>>>,
    is_unsupported: bool,
    fails: bool,
    /// The partitions of the last change.
    partitions: Mutex<Partitions>,
    /// The source of its tables. A record is empty.
    proof: Proof,
    /// The entry in the table of each port.
    entry: u16,
}

fn guid(number: u64) -> Guid {
    Guid::new(number).expect("a GUID")
}

fn guids(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<Guid> {
    numbers.into_iter().map(guid).collect()
}

impl Scripted {
    fn new(numbers: impl IntoIterator<Item = u64>) -> Self {
        Self {
            ports: guids(numbers),
            fault: Mutex::default(),
            inspected: Mutex::default(),
            is_unsupported: false,
            fails: false,
            partitions: Mutex::default(),
            proof: Proof::Ports,
            entry: 0x7fff,
        }
    }

    fn reading(&self, ports: &BTreeSet<Guid>) -> Reading {
        let mut tables = Tables::default();
        for port in ports {
            match self.ports.contains(port) {
                true => {
                    let table = match self.proof {
                        Proof::Ports => vec![self.entry],
                        Proof::Manager => Vec::new(),
                    };
                    tables.read.insert(*port, table);
                }
                false => {
                    tables.unread.insert(*port, "no such port".into());
                }
            }
        }
        Reading {
            tables,
            managers: self.ports.first().copied().into_iter().collect(),
            proof: self.proof,
        }
    }
}

#[async_trait]
impl FabricManager for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn topology(&self) -> Result<Dump, FabricError> {
        if self.is_unsupported {
            return Err(FabricError::Unsupported("no tools"));
        }
        let mut builder = rackwright_infiniband::FabricBuilder::default();
        let mut device = |kind, name: &str, number| {
            let mut device = Device::new(kind, name, 2);
            device.guid = Some(guid(number));
            builder.device(device)
        };
        let (near, far) = (
            device(DeviceKind::Switch, "leaf", 0x1000 + self.ports.len() as u64),
            device(DeviceKind::ChannelAdapter, "node mlx5_0", 0x2000),
        );
        // The adapter has a port in each fabric.
        let number = if self.ports.contains(&guid(1)) { 1 } else { 2 };
        let ends = [near, far].map(|device| PortRef { device, port: number });
        builder.connect(ends[0], ends[1], None).expect("a link");
        let mut dump = Dump::default();
        dump.fabric = builder.finish();
        Ok(dump)
    }

    async fn apply(&self, wanted: &Partitions, _: &dyn Fence) -> Result<Applied, FabricError> {
        if self.fails {
            return Err(FabricError::NoManager("OpenSM does not run".into()));
        }
        let members = wanted
            .partitions
            .values()
            .flat_map(|partition| partition.members.keys());
        let members: BTreeSet<Guid> = members.copied().collect();
        *self.partitions.lock().expect("no thread panicked") = wanted.clone();
        Ok(Applied {
            changed: self.ports.contains(&guid(1)),
            before: Some(self.reading(&guids([1]))),
            absent: members.difference(&self.ports).copied().collect(),
            reading: self.reading(&self.ports),
        })
    }

    async fn tables(&self) -> Result<Reading, FabricError> {
        Ok(self.reading(&self.ports))
    }

    async fn inspect(&self, ports: &BTreeSet<Guid>) -> Result<Inspection, FabricError> {
        if self.fails {
            return Err(FabricError::NoManager("OpenSM does not run".into()));
        }
        self.inspected.lock().expect("no thread panicked").push(ports.clone());
        Ok(Inspection {
            files: Vec::new(),
            manager: self.fault.lock().expect("no thread panicked").clone(),
            reading: self.reading(ports),
            problem: None,
        })
    }

    async fn confirm(&self, unexpected: &Tables) -> Result<Tables, FabricError> {
        let ports: BTreeSet<Guid> = unexpected.read.keys().copied().collect();
        let mut tables = self.reading(&ports).tables;
        tables.unread.clear();
        Ok(tables)
    }

    async fn health(&self) -> Result<Vec<HealthCheck>, FabricError> {
        Ok(vec![HealthCheck {
            item: HealthItem::MKey,
            state: HealthState::Holds,
            text: "a key is set".into(),
        }])
    }
}

fn together(managers: &[(&str, &Arc<Scripted>)]) -> Managers {
    let named = managers.iter();
    Managers::new(named.map(|(fabric, manager)| ((*fabric).to_owned(), Arc::clone(*manager) as Arc<dyn FabricManager>)))
}

fn asked(manager: &Scripted) -> Vec<BTreeSet<Guid>> {
    std::mem::take(&mut *manager.inspected.lock().expect("no thread panicked"))
}

#[tokio::test]
async fn a_port_is_absent_only_if_no_fabric_has_it() {
    let (east, west) = (Arc::new(Scripted::new(1..=4)), Arc::new(Scripted::new(5..=8)));
    let managers = together(&[("east", &east), ("west", &west)]);
    let key = PKey::new(0x101).expect("a key");
    let partition = Partition::of_cluster("alpha", key, [guid(2), guid(6), guid(99)]);
    let wanted = Partitions {
        partitions: BTreeMap::from([(key, partition)]),
        ..Partitions::default()
    };
    let applied = managers.apply(&wanted, &Unshared).await.expect("applied");
    assert_eq!((applied.changed, applied.absent), (true, guids([99])));
    assert_eq!(applied.reading.tables.read.len(), 8);
    assert_eq!(applied.reading.managers, guids([1, 5]));
}

/// A customer has written the GUID of a port of another fabric into an adapter.
#[tokio::test]
async fn a_forged_guid_gets_no_key_in_another_fabric_and_hides_no_key() {
    let (east, west) = (Arc::new(Scripted::new(1..=4)), Arc::new(Scripted::new(3..=8)));
    let managers = together(&[("east", &east), ("west", &west)]);
    let key = PKey::new(0x101).expect("a key");
    let partition = Partition::of_cluster("alpha", key, [guid(3), guid(50), guid(99)]);
    let wanted = Partitions {
        partitions: BTreeMap::from([(key, partition)]),
        fabric_of: BTreeMap::from([(guid(3), "east".into()), (guid(50), "without a manager".into())]),
        ..Partitions::default()
    };
    let applied = managers.apply(&wanted, &Unshared).await.expect("applied");
    let given = |manager: &Scripted| {
        let partitions = manager.partitions.lock().expect("no thread panicked");
        let members = partitions.partitions.values().flat_map(|one| one.members.keys());
        members.copied().collect::<BTreeSet<Guid>>()
    };
    assert_eq!((given(&east), given(&west)), (guids([3, 99]), guids([99])));
    assert_eq!(applied.absent, guids([50, 99]));

    // The true port in east, the forged one in west: both are read, and their keys are joined.
    let of = |entry| {
        Arc::new(Scripted {
            entry,
            ..Scripted::new([1])
        })
    };
    for [in_east, in_west] in [[0x7fff, 0x8101], [0x8101, 0x7fff]] {
        let (east, west) = (of(in_east), of(in_west));
        let managers = together(&[("east", &east), ("west", &west)]);
        for _ in 0..2 {
            let found = managers.inspect(&guids([1])).await.expect("an inspection");
            assert_eq!(found.reading.tables.read[&guid(1)], [in_east, in_west]);
        }
    }
}

#[tokio::test]
async fn a_port_is_read_in_its_own_fabric_and_an_unknown_one_in_every_fabric() {
    let (east, west) = (Arc::new(Scripted::new(1..=4)), Arc::new(Scripted::new(5..=8)));
    let managers = together(&[("east", &east), ("west", &west)]);
    let found = managers.inspect(&guids([1, 2, 5, 99])).await.expect("an inspection");
    let tables = found.reading.tables;
    assert_eq!(tables.read.into_keys().collect::<BTreeSet<Guid>>(), guids([1, 2, 5]));
    assert_eq!(tables.unread.into_keys().collect::<BTreeSet<Guid>>(), guids([99]));
    assert_eq!(
        (asked(&east), asked(&west)),
        (vec![guids([1, 2, 5, 99])], vec![guids([1, 2, 5, 99])])
    );
    managers.inspect(&guids([1, 5, 99])).await.expect("an inspection");
    assert_eq!(
        (asked(&east), asked(&west)),
        (vec![guids([1, 99])], vec![guids([5, 99])])
    );
    // The subnet manager of a fabric without a requested port is looked for too.
    managers.inspect(&guids([1])).await.expect("an inspection");
    assert_eq!((asked(&east), asked(&west)), (vec![guids([1])], vec![guids([5])]));
    // Without requested ports only files are read.
    managers.inspect(&BTreeSet::new()).await.expect("an inspection");
    assert_eq!(
        (asked(&east), asked(&west)),
        (vec![BTreeSet::new()], vec![BTreeSet::new()])
    );
}

#[tokio::test]
async fn faults_and_errors_name_the_fabric() {
    let east = Arc::new(Scripted::new(1..=4));
    let west = Arc::new(Scripted {
        fails: true,
        ..Scripted::new(5..=8)
    });
    let managers = together(&[("east", &east), ("west", &west)]);
    let error = managers
        .apply(&Partitions::default(), &Unshared)
        .await
        .expect_err("one fails");
    assert!(
        matches!(&error, FabricError::OfFabric { fabric, .. } if fabric == "west"),
        "{error:?}"
    );
    assert_eq!(error.to_string(), "fabric west");
    let repaired = error.repaired().expect("the tables that east repaired");
    assert!(repaired.tables.read.contains_key(&guid(1)), "{repaired:?}");
    let found = managers.inspect(&guids([1, 5])).await.expect("east can be inspected");
    assert!(found.reading.tables.read.contains_key(&guid(1)), "{found:?}");
    let problem = found.problem.expect("west cannot be inspected");
    assert!(
        problem.starts_with("fabric west: ") && problem.contains("OpenSM does not run"),
        "{problem}"
    );
    let west = Arc::new(Scripted::new(5..=8));
    let managers = together(&[("east", &east), ("west", &west)]);
    let set = |manager: &Scripted, fault| *manager.fault.lock().expect("no thread panicked") = Some(fault);
    set(&west, ManagerFault::Absent("no subnet manager answers".into()));
    let found = managers.inspect(&guids([1, 5])).await.expect("an inspection");
    let words = "fabric west: no subnet manager answers".to_owned();
    assert_eq!(found.manager, Some(ManagerFault::Absent(words)));
    assert_eq!(found.reading.tables.read.len(), 2, "the ports are read all the same");
    let master = Master {
        port: guid(7),
        priority: 15,
    };
    set(&east, ManagerFault::Foreign { master, fabric: None });
    let found = managers.inspect(&guids([1, 5])).await.expect("an inspection");
    let fabric = Some("east".to_owned());
    assert_eq!(found.manager, Some(ManagerFault::Foreign { master, fabric }));
    assert_eq!(found.problem.as_deref(), Some("fabric west: no subnet manager answers"));
    let health = managers.health().await.expect("checks");
    let texts: Vec<&str> = health.iter().map(|check| check.text.as_str()).collect();
    assert_eq!(texts, ["fabric east: a key is set", "fabric west: a key is set"]);
}

/// A manager's record of a port of another fabric does not hide the table of the port.
#[tokio::test]
async fn a_table_of_a_port_counts_more_than_a_record() {
    let east = Arc::new(Scripted::new(1..=4));
    let west = Arc::new(Scripted {
        proof: Proof::Manager,
        ..Scripted::new(1..=4)
    });
    for order in [[("a", &east), ("b", &west)], [("a", &west), ("b", &east)]] {
        let managers = together(&order);
        let found = managers.inspect(&guids([1])).await.expect("an inspection");
        assert_eq!(found.reading.tables.read[&guid(1)], [0x7fff]);
    }
}

#[tokio::test]
async fn unexpected_tables_are_confirmed_by_the_fabric_of_the_port() {
    let (east, west) = (Arc::new(Scripted::new(1..=4)), Arc::new(Scripted::new(5..=8)));
    let managers = together(&[("east", &east), ("west", &west)]);
    let mut unexpected = Tables::default();
    for port in guids([1, 5, 99]) {
        unexpected.read.insert(port, vec![0xffff]);
    }
    let confirmed = managers.confirm(&unexpected).await.expect("tables");
    assert_eq!(confirmed.read.into_keys().collect::<BTreeSet<Guid>>(), guids([1, 5]));
}

#[tokio::test]
async fn a_discovery_joins_the_fabrics_that_can_be_discovered() {
    let (east, west) = (Arc::new(Scripted::new(1..=4)), Arc::new(Scripted::new(5..=6)));
    let counts = |fabric: &Fabric| {
        (
            fabric.counts().switches,
            fabric.counts().adapters,
            fabric.counts().links,
        )
    };
    let both = together(&[("east", &east), ("west", &west)]);
    let found = both.topology().await.expect("a topology").fabric;
    assert_eq!(counts(&found), (2, 1, 2), "an adapter in both fabrics is one device");
    let mute = Arc::new(Scripted {
        is_unsupported: true,
        ..Scripted::new(7..=8)
    });
    let one = together(&[("east", &east), ("north", &mute)]);
    assert_eq!(counts(&one.topology().await.expect("a topology").fabric), (1, 1, 1));
    let none = together(&[("north", &mute)]);
    assert!(matches!(none.topology().await, Err(FabricError::Unsupported(_))));
}
