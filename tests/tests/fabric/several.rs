//! Two fabrics, each with an OpenSM of its own, under one control.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rackwright_fabric::{FabricError, FabricManager, ManagerFault, Managers, Proof, Unshared};
use rackwright_infiniband::partition::compare;
use rackwright_infiniband::{Guid, Partition, Partitions};
use rackwright_tests::fabric::Lab;

use super::key;

const HOSTS: u32 = 16;

/// The fabric of each port.
fn cabled<'a>(fabric: &str, ports: &'a BTreeSet<Guid>) -> impl Iterator<Item = (Guid, Box<str>)> + use<'a> {
    let fabric: Box<str> = fabric.into();
    ports.iter().map(move |port| (*port, fabric.clone()))
}

/// The ports of all hosts of a fabric.
async fn ports(lab: &Lab) -> BTreeSet<Guid> {
    lab.ports(&lab.opensm()).await.into_values().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fabric_gets_its_partitions_from_its_own_opensm() {
    let (east, mut west) = tokio::join!(Lab::start(HOSTS), Lab::second(HOSTS));
    let (of_east, of_west) = tokio::join!(ports(&east), ports(&west));
    assert!(of_east.is_disjoint(&of_west) && of_east.len() == of_west.len());
    let managers = Managers::new([
        ("east".to_owned(), Arc::new(east.opensm()) as Arc<dyn FabricManager>),
        ("west".to_owned(), Arc::new(west.opensm())),
    ]);

    // One cluster in each fabric.
    let of = |number: u16, ports: &BTreeSet<Guid>| {
        let members = ports.iter().copied().take(64);
        let partition = Partition::of_cluster(format!("cluster-{number:x}"), key(number), members);
        (key(number), partition)
    };
    let wanted = Partitions {
        partitions: BTreeMap::from([of(0x101, &of_east), of(0x102, &of_west)]),
        fabric_of: cabled("east", &of_east).chain(cabled("west", &of_west)).collect(),
        ..Partitions::default()
    };
    let applied = managers.apply(&wanted, &Unshared).await.expect("applied");
    assert!(applied.changed);
    assert_eq!((applied.absent, applied.reading.proof), (BTreeSet::new(), Proof::Ports));
    let all: BTreeSet<Guid> = of_east.union(&of_west).copied().collect();
    let tables = &applied.reading.tables;
    assert_eq!((tables.read.len(), tables.unread.len()), (all.len(), 0));
    assert_eq!(
        compare(&wanted, &applied.reading.managers, all.iter().copied(), tables),
        []
    );
    assert_eq!(applied.reading.managers.len(), 2, "a subnet manager for each fabric");
    for (key, own) in [(0x8101, &of_east), (0x8102, &of_west)] {
        let holders = tables.read.iter().filter(|(_, table)| table.contains(&key));
        let holders: BTreeSet<Guid> = holders.map(|(port, _)| *port).collect();
        assert!(holders.len() == 64 && holders.is_subset(own), "{key:04x}: {holders:?}");
    }
    assert!(!managers.apply(&wanted, &Unshared).await.expect("applied").changed);

    // One discovery has both fabrics.
    let found = managers.topology().await.expect("a topology").fabric.counts();
    let (one, other) = (east.plan.fabric().counts(), west.plan.fabric().counts());
    assert_eq!(
        (found.switches, found.adapters, found.links),
        (
            one.switches + other.switches,
            one.adapters + other.adapters,
            one.links + other.links
        )
    );

    // A check reads ports of both, and sees a foreign file of one.
    std::fs::write(west.partitions_file(), "Default=0x7fff : ALL=full ;\n").expect("a file");
    let some: BTreeSet<Guid> = of_east.iter().take(4).chain(of_west.iter().take(4)).copied().collect();
    let inspection = managers.inspect(&some).await.expect("an inspection");
    let read: BTreeSet<Guid> = inspection.reading.tables.read.keys().copied().collect();
    assert_eq!((read, inspection.manager), (some.clone(), None));
    assert_eq!(inspection.files.len(), 2);
    assert_ne!(inspection.files[0].content, inspection.files[1].content);
    assert!(
        managers.apply(&wanted, &Unshared).await.expect("applied").changed,
        "the file is mended"
    );

    a_forged_guid_gets_no_key(&managers, &mut west, &wanted, *of_east.first().expect("a port")).await;

    // Without the OpenSM of one fabric, ports of the other fabric are still read and changed.
    west.kill_opensm().await;
    let inspection = managers.inspect(&some).await.expect("an inspection");
    let Some(ManagerFault::Absent(why)) = &inspection.manager else {
        panic!("{:?}", inspection.manager);
    };
    assert!(why.starts_with("fabric west: "), "{why}");
    let without = Partitions::default();
    let error = managers
        .apply(&without, &Unshared)
        .await
        .expect_err("one fabric has no manager");
    assert!(
        matches!(&error, FabricError::OfFabric { fabric, .. } if fabric == "west"),
        "{error:?}"
    );
    let tables = east.opensm().tables().await.expect("tables").tables;
    assert_eq!(
        tables.holders(key(0x101)).count(),
        0,
        "the fabric with a manager is changed"
    );
    east.stop().await;
    west.stop().await;
}

/// A customer of west writes the GUID of a port of east into an adapter, and does not get the key of that port.
async fn a_forged_guid_gets_no_key(managers: &Managers, west: &mut Lab, wanted: &Partitions, forged: Guid) {
    let adapters = west.plan.fabric().devices().filter(|(_, device)| device.is_adapter());
    // The first adapter is that of OpenSM.
    let adapter = adapters
        .map(|(_, device)| device.name.to_string())
        .nth(9)
        .expect("an adapter");
    west.replace_adapter(&adapter, forged).await;
    let applied = managers.apply(wanted, &Unshared).await.expect("applied");
    let in_west = west.opensm().tables().await.expect("tables").tables;
    let keys: Vec<u16> = in_west.read[&forged]
        .iter()
        .copied()
        .filter(|entry| *entry != 0)
        .collect();
    assert_eq!(keys, [0x7fff]);
    let key_of_east = 0x8101;
    assert!(
        applied.reading.tables.read[&forged].contains(&key_of_east),
        "the true port keeps its key"
    );
    let found = managers.topology().await.expect("a topology").twice;
    let places: Vec<(Guid, Vec<&str>)> = found
        .iter()
        .map(|one| (one.port, one.places.iter().map(|place| &*place.fabric).collect()))
        .collect();
    assert_eq!(places, [(forged, vec!["east", "west"])]);
}
