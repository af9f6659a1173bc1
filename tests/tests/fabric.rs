//! A real OpenSM and the tools of infiniband-diags on fabrics that ibsim plays: discovery finds what was planned, faults
//! made at run time are found and named, and the ports' own tables show the partitions. rackwrightd with one fabric that is
//! attacked, and with several fabrics, has modules of its own.
//!
//! ibsim moves no data: this proves tables and topologies, not dropped packets.

#![allow(clippy::disallowed_methods)] // a test may read clocks, and wait for what it started

#[path = "fabric/attacked.rs"]
mod attacked;
#[path = "fabric/managed.rs"]
mod managed;
#[path = "fabric/several.rs"]
mod several;

use std::collections::{BTreeMap, BTreeSet};

use rackwright_fabric::{FabricError, FabricManager as _, OpenSm, Proof, Unshared};
use rackwright_infiniband::check::check;
use rackwright_infiniband::dump::{self, Limits};
use rackwright_infiniband::partition::{DifferenceKind, HealthItem, HealthState, ReadingNumber, compare};
use rackwright_infiniband::structure::Rails;
use rackwright_infiniband::{FaultKind, Guid, KeyPool, Membership, PKey, Partition, Partitions, Structure};
use rackwright_tests::fabric::Lab;

fn key(number: u16) -> PKey {
    PKey::new(number).expect("a key")
}

/// Two tenants of `hosts` hosts each, from the first host on.
fn two_tenants(ports: &BTreeMap<String, Vec<Guid>>, hosts: usize) -> Partitions {
    let of = |number: u16, from: usize| {
        let members = ports.values().skip(from).take(hosts).flatten().copied();
        (
            key(number),
            Partition::of_cluster(format!("tenant-{number:x}"), key(number), members),
        )
    };
    Partitions {
        partitions: BTreeMap::from([of(0x101, 0), of(0x102, hosts)]),
        ..Partitions::default()
    }
}

async fn planned_is_discovered(hosts: u32) {
    let lab = Lab::start(hosts).await;
    let dump = lab.opensm().topology().await.expect("a topology");
    assert_eq!(dump.findings, []);
    assert_eq!(dump.fabric.counts(), lab.plan.fabric().counts());
    let report = check(&lab.plan, &dump.fabric);
    assert_eq!(report.faults, []);
    assert_eq!(report.right, report.cables);
    let shape = Structure::of(&dump.fabric);
    assert_eq!(
        (shape.levels, shape.rails, shape.worst_leaf()),
        (2, Rails::Optimised(8), Some(1.0))
    );
    assert!(shape.is_regular(), "{:?}", shape.oddities);
    // Reading and writing the tool's output gives the same text.
    let again = dump::read(dump.write().as_bytes(), Limits::default()).expect("a dump");
    assert_eq!((again.findings.len(), again.write()), (0, dump.write()));
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fabric_of_16_hosts_is_discovered_as_planned() {
    planned_is_discovered(16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fabric_of_64_hosts_is_discovered_as_planned() {
    planned_is_discovered(64).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_of_two_tenants_are_read_back_from_every_port() {
    let lab = Lab::start(64).await;
    let opensm = lab.opensm();
    let ports = lab.ports(&opensm).await;
    let wanted = two_tenants(&ports, 24);
    let applied = opensm.apply(&wanted, &Unshared).await.expect("applied");
    assert!(applied.changed);
    assert_eq!(
        (applied.reading.tables.read.len(), applied.reading.tables.unread.len()),
        (512, 0)
    );
    assert_eq!((applied.reading.proof, applied.absent.len()), (Proof::Ports, 0));
    for (at, ports) in ports.values().enumerate() {
        for port in ports {
            let table = &applied.reading.tables.read[port];
            let tenant = [Some(0x8101), Some(0x8102), None][(at / 24).min(2)];
            assert_eq!(
                tenant.is_some(),
                table[0] & 0x7fff != 0x7fff && table[0] != 0,
                "{port}: {table:04x?}"
            );
            assert!(tenant.is_none_or(|key| table[0] == key), "{port}: {table:04x?}");
            assert_eq!(
                table.contains(&0xffff),
                applied.reading.managers.contains(port),
                "{port}: {table:04x?}"
            );
        }
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_application_changes_nothing_and_the_health_page_lists_its_checks() {
    let lab = Lab::start(16).await;
    let opensm = lab.opensm();
    let ports = lab.ports(&opensm).await;
    let mut more = two_tenants(&ports, 8);
    assert!(opensm.apply(&more, &Unshared).await.expect("applied").changed);
    // The second application changes nothing; a member that does not exist is reported.
    assert!(!opensm.apply(&more, &Unshared).await.expect("applied").changed);
    let ghost = Guid::new(0x1234).expect("a GUID");
    more.partitions
        .get_mut(&key(0x101))
        .expect("the partition")
        .members
        .insert(ghost, Membership::Full);
    let applied = opensm.apply(&more, &Unshared).await.expect("applied");
    assert_eq!(applied.absent, BTreeSet::from([ghost]));

    let health = opensm.health().await.expect("a health page");
    let state = |item| health.iter().find(|check| check.item == item).expect("a line").state;
    assert_eq!(state(HealthItem::DefaultPartition), HealthState::Holds);
    for item in [HealthItem::MKey, HealthItem::SmKey, HealthItem::SaKey] {
        assert_eq!(state(item), HealthState::Fails, "{item:?} is OpenSM's own");
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_partition_file_never_reaches_opensm_and_an_opened_fabric_is_noticed() {
    let lab = Lab::start(16).await;
    let opensm = lab.opensm();
    let ports = lab.ports(&opensm).await;
    let wanted = two_tenants(&ports, 8);
    opensm.apply(&wanted, &Unshared).await.expect("applied");
    let file = std::fs::read_to_string(lab.partitions_file()).expect("the file");

    let broken = file.replace("SELF=full ;", "SELF=full");
    let error = opensm.apply_text(&broken).await.expect_err("refused");
    assert!(matches!(error, FabricError::Conf(_)), "{error}");
    assert_eq!(std::fs::read_to_string(lab.partitions_file()).expect("the file"), file);
    let reading = opensm.tables().await.expect("tables");
    let all = || ports.values().flatten().copied();
    assert_eq!(compare(&wanted, &reading.managers, all(), &reading.tables), []);

    // The file is broken by hand: OpenSM fails open, which the next reading reports.
    std::fs::write(lab.partitions_file(), "broken =, : ;;; x\n").expect("written");
    lab.sweep_after_hangup().await;
    let reading = opensm.tables().await.expect("tables");
    let found = compare(&wanted, &reading.managers, all(), &reading.tables);
    assert!(
        found.iter().any(|found| found.kind == DifferenceKind::OpenDefault),
        "{found:?}"
    );
    let health = opensm.health().await.expect("a health page");
    assert!(
        health
            .iter()
            .any(|line| line.item == HealthItem::DefaultPartition && line.state == HealthState::Fails)
    );
    // A check between changes sees the foreign file, and confirms the ports, as they are active.
    let some: BTreeSet<Guid> = all().take(16).collect();
    let inspection = opensm.inspect(&some).await.expect("an inspection");
    let held = inspection.files.first().expect("OpenSM has a file");
    assert_eq!(held.content.as_deref(), Some(b"broken =, : ;;; x\n".as_slice()));
    assert!(
        inspection
            .reading
            .tables
            .read
            .values()
            .all(|table| table.contains(&0xffff))
    );
    let confirmed = opensm.confirm(&inspection.reading.tables).await.expect("tables");
    assert_eq!(confirmed.read.keys().copied().collect::<BTreeSet<Guid>>(), some);
    // Applying the wanted partitions closes the fabric again.
    let applied = opensm.apply(&wanted, &Unshared).await.expect("applied");
    assert_eq!(
        compare(&wanted, &applied.reading.managers, all(), &applied.reading.tables),
        []
    );
    // Neither a missing file nor one that is no text stops the repair.
    for damaged in [None, Some(b"\xff\xfe\0")] {
        match damaged {
            None => std::fs::remove_file(lab.partitions_file()).expect("removed"),
            Some(bytes) => std::fs::write(lab.partitions_file(), bytes).expect("written"),
        }
        lab.sweep_after_hangup().await;
        let applied = opensm.apply(&wanted, &Unshared).await.expect("applied");
        assert!(applied.changed && applied.before.is_none());
        assert_eq!(std::fs::read_to_string(lab.partitions_file()).expect("the file"), file);
    }
    // The file is right and the ports are not: OpenSM has read another file in between.
    std::fs::write(lab.partitions_file(), "broken\n").expect("written");
    lab.sweep_after_hangup().await;
    std::fs::write(lab.partitions_file(), &file).expect("written");
    let applied = opensm.apply(&wanted, &Unshared).await.expect("applied");
    let before = applied.before.expect("the ports before the repair");
    assert!(before.tables.read.values().any(|table| table.contains(&0xffff)));
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_opensm_does_not_apply_is_rolled_back() {
    let lab = Lab::start(16).await;
    let opensm = lab.opensm();
    let ports = lab.ports(&opensm).await;
    let wanted = two_tenants(&ports, 4);
    opensm.apply(&wanted, &Unshared).await.expect("applied");
    // A manager with a file that OpenSM does not read: the file is right, but the ports do not change.
    let elsewhere = lab.partitions_file().with_file_name("elsewhere.conf");
    std::fs::copy(lab.partitions_file(), &elsewhere).expect("copied");
    let blind: OpenSm = lab.opensm_with(&elsewhere, std::time::Duration::from_secs(3));
    let before = std::fs::read_to_string(&elsewhere).expect("the file");
    let error = blind
        .apply(&two_tenants(&ports, 8), &Unshared)
        .await
        .expect_err("no effect");
    assert!(matches!(error, FabricError::Mismatch { .. }), "{error}");
    assert!(
        error.to_string().ends_with("the former partitions are restored"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&elsewhere).expect("the file"), before);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_and_swapped_cables_are_found_and_named_at_run_time() {
    let mut lab = Lab::start(64).await;
    let opensm = lab.opensm();
    let checked = async |opensm: &OpenSm, lab: &Lab| {
        let dump = opensm.topology().await.expect("a topology");
        check(&lab.plan, &dump.fabric).faults
    };
    // An uplink of a leaf, cut and restored.
    let up = lab.cable("leaf-su02-r3", 40);
    lab.unlink(&up).await;
    let faults = checked(&opensm, &lab).await;
    assert_eq!(
        faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(),
        [FaultKind::Missing]
    );
    assert_eq!(faults[0].cables, std::slice::from_ref(&up.name));
    assert!(
        faults[0]
            .text
            .starts_with(&format!("cable {}: no link from leaf-su02-r3 port 40", up.name)),
        "{}",
        faults[0]
    );
    lab.relink(&up).await;
    assert_eq!(checked(&opensm, &lab).await, []);

    // Two adapters of different nodes and rails, plugged into each other's leaf.
    let (a, b) = (lab.cable("gpu0003 mlx5_3", 1), lab.cable("gpu0040 mlx5_4", 1));
    lab.swap(&a, &b).await;
    let faults = checked(&opensm, &lab).await;
    assert_eq!(
        faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(),
        [FaultKind::Swapped]
    );
    assert_eq!(faults[0].cables, [a.name.clone(), b.name.clone()]);
    assert!(
        faults[0]
            .text
            .contains("leaf-su01-r3 port 3 should go to HCA 3 of node gpu0003, goes to HCA 4 of node gpu0040"),
        "{}",
        faults[0]
    );

    // An adapter's own cable: the adapter is no longer seen, and the finding names it.
    let own = lab.cable("gpu0010 mlx5_0", 1);
    lab.unlink(&own).await;
    let faults = checked(&opensm, &lab).await;
    assert_eq!(
        faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(),
        [FaultKind::Swapped, FaultKind::Missing]
    );
    assert!(
        faults[1].text.contains("HCA 0 of node gpu0010 is not seen"),
        "{}",
        faults[1]
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_given_again_only_when_no_port_has_it_any_more() {
    let mut lab = Lab::start(16).await;
    let opensm = lab.opensm();
    let ports = lab.ports(&opensm).await;
    let hosts: Vec<BTreeSet<Guid>> = ports.values().map(|ports| ports.iter().copied().collect()).collect();
    let mut pool = KeyPool::new(key(0x200), key(0x200)).expect("a range of one");
    let first = pool.allocate("acme", &hosts[3]).expect("a key");
    let of = |name: &str, key: PKey, ports: &BTreeSet<Guid>| Partitions {
        partitions: BTreeMap::from([(key, Partition::of_cluster(name, key, ports.iter().copied()))]),
        ..Partitions::default()
    };
    let applied = opensm
        .apply(&of("acme", first, &hosts[3]), &Unshared)
        .await
        .expect("applied");
    pool.observe(ReadingNumber(1), &applied.reading.tables);

    // A port of the cluster goes dark before its key is revoked.
    let unplugged = lab.cable("gpu0004 mlx5_6", 1);
    lab.unlink(&unplugged).await;
    pool.release(first, "acme", ReadingNumber(1)).expect("its own");
    let applied = opensm.apply(&Partitions::default(), &Unshared).await.expect("applied");
    assert_eq!(
        pool.observe(ReadingNumber(2), &applied.reading.tables),
        [],
        "one port was not read"
    );
    assert!(pool.allocate("globex", &hosts[5]).is_err());

    // The port comes back, OpenSM removes the key from its table, and a reading shows that.
    lab.relink(&unplugged).await;
    let reading = opensm.tables().await.expect("tables");
    assert_eq!(reading.tables.holders(first).count(), 0);
    assert_eq!(pool.observe(ReadingNumber(3), &reading.tables), [first]);
    assert_eq!(pool.allocate("globex", &hosts[5]), Ok(first));
    lab.stop().await;
}
