use rackwright_lifecycle::cluster::Partition as Fact;
use rackwright_store::{ClusterRecord, PartitionRow, PartitionRows};

use super::*;
use crate::clusters::cluster_partitions::ClusterPartitions;

fn guid(n: u64) -> Guid {
    Guid::new(n).unwrap()
}

fn key(n: u16) -> PKey {
    PKey::new(n).unwrap()
}

fn tables(entries: &[(u64, &[u16])]) -> Tables {
    let mut tables = Tables::default();
    for (port, table) in entries {
        tables.read.insert(guid(*port), table.to_vec());
    }
    tables
}

fn fabric(first: u16, last: u16) -> Fabric {
    let state = FabricRow {
        first_key: first,
        last_key: last,
        ..FabricRow::default()
    };
    Fabric::of_rows(state, Vec::new(), &[]).unwrap()
}

fn rows(fabric: &Fabric) -> Vec<FabricKeyRow> {
    let keys = fabric.pool.taken().iter();
    keys.map(|(key, state)| fabric.row(*key, state)).collect()
}

/// As a step of the cluster reads it.
fn fact(fabric: &Fabric, record: &ClusterRecord) -> Fact {
    let own = rows(fabric).into_iter().filter(|row| row.owner == record.uid);
    let keys = own.map(|row| PartitionRow {
        key: row.key,
        ports: row.ports.len(),
        members: row.members.len(),
        cut_off: row.cut_off.len(),
        owner: row.owner,
        name: row.name,
        released_at: row.released_at,
        absent: row.absent,
    });
    let rows = PartitionRows {
        keys: keys.collect(),
        fabric: fabric.state.clone(),
    };
    let partitions = ClusterPartitions::of_rows(Some(rows)).unwrap();
    partitions.of(&record.uid).fact(record)
}

fn cluster(uid: &str, version: u64) -> ClusterRecord {
    let mut record = rackwright_ground::testing::cluster(uid);
    record.uid = uid.into();
    record.partition = Some(1);
    record.partitions_version = version;
    record
}

/// A fabric with one key, after the release of cluster `a` with the ports 1 and 2: the fabric, the entry of the key in the
/// tables of both ports, and the version without the cluster.
fn fabric_after_a() -> (Fabric, u16, u64) {
    let mut fabric = fabric(1, 1);
    let (given, version) = fabric.hold(&"a".into(), "a", [guid(1), guid(2)].into()).unwrap();
    let entry = given.number() | 0x8000;
    let held = tables(&[(1, &[entry]), (2, &[entry])]);
    fabric.record_proof(version, BTreeSet::new(), Some(&held), Timestamp(1));
    let version = fabric.drop_cluster("a");
    (fabric, entry, version)
}

#[test]
fn a_partition_is_proven_by_its_own_version_and_no_former_one() {
    let mut fabric = fabric(1, 9);
    let (_, first) = fabric.hold(&"a".into(), "a", [guid(1)].into()).unwrap();
    let (_, second) = fabric.hold(&"b".into(), "b", [guid(2)].into()).unwrap();
    fabric.record_proof(first, BTreeSet::new(), None, Timestamp(5));
    assert_eq!(fact(&fabric, &cluster("a", first)), Fact::Proven);
    assert_eq!(fact(&fabric, &cluster("b", second)), Fact::Pending);
    fabric.record_proof(second, [guid(2)].into(), None, Timestamp(6));
    assert_eq!(fact(&fabric, &cluster("a", first)), Fact::Proven);
    let absent = fact(&fabric, &cluster("b", second));
    assert!(
        matches!(&absent, Fact::Faulty(why) if why.contains("1 of the cluster's 1 ports")),
        "{absent:?}"
    );
    fabric.state.fault = "OpenSM is gone".into();
    assert_eq!(
        fact(&fabric, &cluster("a", first)),
        Fact::Faulty("OpenSM is gone".into())
    );
}

#[test]
fn a_key_is_gone_when_every_port_that_had_it_was_read_without_it_since() {
    let (mut fabric, entry, version) = fabric_after_a();
    assert!(fabric.partitions().partitions.is_empty());
    let record = cluster("a", version);
    assert!(matches!(fact(&fabric, &record), Fact::Draining(_)));
    assert!(
        fabric.hold(&"b".into(), "b", [guid(3)].into()).is_err(),
        "the only key is not free yet"
    );
    // One port still has the key; then one port gives no answer.
    fabric.record_proof(
        version,
        BTreeSet::new(),
        Some(&tables(&[(1, &[entry]), (2, &[])])),
        Timestamp(2),
    );
    assert!(matches!(fact(&fabric, &record), Fact::Draining(_)));
    let mut silent = tables(&[(2, &[])]);
    silent.unread.insert(guid(1), "no answer".into());
    fabric.record_proof(version, BTreeSet::new(), Some(&silent), Timestamp(3));
    assert!(matches!(fact(&fabric, &record), Fact::Draining(_)));
    // The manager's belief frees nothing.
    fabric.record_proof(version, BTreeSet::new(), None, Timestamp(4));
    assert!(fabric.is_draining());
    fabric.record_proof(version, BTreeSet::new(), Some(&tables(&[(1, &[0x7fff])])), Timestamp(5));
    assert_eq!(fact(&fabric, &record), Fact::Gone);
    assert!(fabric.hold(&"b".into(), "b", [guid(3)].into()).is_ok());
}

#[test]
fn a_port_that_is_cut_off_blocks_the_key_for_others_and_not_the_cluster() {
    let (mut fabric, entry, version) = fabric_after_a();
    let record = cluster("a", version);
    fabric.record_proof(version, BTreeSet::new(), Some(&tables(&[(2, &[])])), Timestamp(2));
    assert_eq!(fact(&fabric, &record), Fact::Gone);
    assert!(!fabric.is_draining(), "nothing is to be read again at once");
    assert!(
        fabric.hold(&"b".into(), "b", [guid(3)].into()).is_err(),
        "port 1 may have the key"
    );
    // The port is back with its old key, and is read with all others from time to time.
    fabric.record_proof(version, BTreeSet::new(), Some(&tables(&[(1, &[entry])])), Timestamp(3));
    assert!(fabric.is_draining());
    fabric.record_proof(version, BTreeSet::new(), Some(&tables(&[(1, &[])])), Timestamp(4));
    assert!(fabric.hold(&"b".into(), "b", [guid(3)].into()).is_ok());
}

#[test]
fn a_replaced_port_that_is_gone_keeps_no_key_reserved() {
    let mut fabric = fabric(1, 1);
    let (given, version) = fabric.hold(&"a".into(), "a", [guid(1), guid(2)].into()).unwrap();
    let entry = given.number() | 0x8000;
    let both = tables(&[(1, &[entry]), (2, &[entry])]);
    fabric.record_proof(version, BTreeSet::new(), Some(&both), Timestamp(1));
    // The site has port 3 in place of port 2.
    let site = [guid(1), guid(3)].into();
    let (_, version) = fabric.hold(&"a".into(), "a", site).unwrap();
    let site: BTreeSet<Guid> = [guid(1), guid(3), guid(9)].into();
    // The former port is still in the fabric, or gives no answer.
    let there = tables(&[(1, &[entry]), (2, &[]), (3, &[entry])]);
    assert!(fabric.give_up_replaced(&site, &there).is_empty());
    let mut silent = tables(&[(1, &[entry]), (3, &[entry])]);
    silent.unread.insert(guid(2), "no answer".into());
    assert!(fabric.give_up_replaced(&site, &silent).is_empty());
    let gone = tables(&[(1, &[entry]), (3, &[entry])]);
    // A port that the site still has is only switched off.
    let former = [guid(1), guid(2), guid(3)].into();
    assert!(fabric.give_up_replaced(&former, &gone).is_empty());
    assert_eq!(fabric.give_up_replaced(&site, &gone), [guid(2)].into());
    fabric.record_proof(version, BTreeSet::new(), Some(&gone), Timestamp(2));

    // The cluster's own ports count also if the site has lost them.
    assert!(fabric.give_up_replaced(&BTreeSet::new(), &Tables::default()).is_empty());
    let version = fabric.drop_cluster("a");
    let clean = tables(&[(1, &[]), (3, &[])]);
    fabric.record_proof(version, BTreeSet::new(), Some(&clean), Timestamp(3));
    assert!(!fabric.is_draining());
    assert!(
        fabric.hold(&"b".into(), "b", [guid(9)].into()).is_ok(),
        "the only key is free again"
    );
}

#[test]
fn a_returned_key_is_free_when_its_last_port_is_replaced() {
    let mut fabric = fabric(1, 1);
    let (given, version) = fabric.hold(&"a".into(), "a", [guid(1)].into()).unwrap();
    let entry = given.number() | 0x8000;
    fabric.record_proof(version, BTreeSet::new(), Some(&tables(&[(1, &[entry])])), Timestamp(1));
    let version = fabric.drop_cluster("a");
    let nothing = Tables::default();
    fabric.record_proof(version, BTreeSet::new(), Some(&nothing), Timestamp(2));
    assert!(fabric.hold(&"b".into(), "b", [guid(9)].into()).is_err());
    assert!(fabric.give_up_replaced(&[guid(1)].into(), &nothing).is_empty());
    assert_eq!(fabric.give_up_replaced(&[guid(9)].into(), &nothing), [guid(1)].into());
    assert!(
        fabric.hold(&"b".into(), "b", [guid(9)].into()).is_ok(),
        "the only key is free again"
    );
}

#[test]
fn rows_come_back_as_they_were_and_only_changed_ones_are_written() {
    let mut first = fabric(1, 9);
    first.hold(&"a".into(), "a", [guid(1), guid(2)].into()).unwrap();
    first.drop_cluster("a");
    let (_, version) = first.hold(&"b".into(), "b", [guid(3), guid(4)].into()).unwrap();
    // Port 1 is cut off. Port 2 still has the returned key.
    let seen = tables(&[(2, &[0x8001]), (3, &[0x8002]), (4, &[0x8002])]);
    first.record_proof(version, [guid(3)].into(), Some(&seen), Timestamp(5));
    let written = first.changes();
    assert_eq!((written.keys.len(), written.freed.len()), (2, 0));
    assert_eq!((written.state.given_key, written.state.absent_changes), (Some(2), 1));
    let mut again = Fabric::of_rows(written.state, written.keys, &[]).unwrap();
    assert_eq!((&again.pool, &again.members), (&first.pool, &first.members));
    assert_eq!((&again.absent, &again.cut_off), (&first.absent, &first.cut_off));
    let unchanged = again.changes();
    assert_eq!((unchanged.keys.len(), unchanged.freed.len()), (0, 0));

    // Both ports of the returned key are read without it.
    let clean = tables(&[(1, &[]), (2, &[]), (3, &[0x8002]), (4, &[0x8002])]);
    again.record_proof(version, [guid(3)].into(), Some(&clean), Timestamp(6));
    let freed = again.changes();
    assert_eq!((freed.keys.len(), freed.freed.as_slice()), (0, [key(1)].as_slice()));
    assert_eq!(freed.state.absent_changes, 1, "the same port is absent");
    // The absent port leaves the partition.
    again.hold(&"b".into(), "b", [guid(4)].into()).unwrap();
    let left = again.changes();
    assert_eq!((left.keys.len(), left.state.absent_changes), (1, 2));
    assert!(left.keys[0].absent.is_empty() && left.keys[0].ports.len() == 2);
}

#[test]
fn a_row_that_does_not_parse_is_named() {
    let mut whole = fabric(1, 9);
    whole.hold(&"a".into(), "a", [guid(1)].into()).unwrap();
    let state = whole.changes().state;
    let broken = |change: fn(&mut FabricKeyRow)| {
        let mut keys = rows(&whole);
        change(&mut keys[0]);
        Fabric::of_rows(state.clone(), keys, &[]).unwrap_err().to_string()
    };
    let why = broken(|row| row.members.push("no port".into()));
    assert!(
        why.contains("cannot be read: key 0x0001: \"no port\" is not a GUID"),
        "{why}"
    );
    let why = broken(|row| row.key = 0x8000);
    assert!(why.contains("\"0x8000\" is not a P_Key"), "{why}");
}

#[test]
fn a_port_that_leads_to_storage_is_in_no_partition() {
    use rackwright_site::file::{Source, check};
    let text = "site: {name: s}
rooms: [{name: h}]
racks: [{name: r, room: h}]
skus: [{name: k, power: {max_watts: 1 kW}, psus: {count: 1, watts: 1 kW, needed: 1}, height_units: 1, hcas: [c0, s0]}]
nodes: [{name: n, sku: k, rack: r, unit: 1, guids: {c0: 0xa1, s0: 0xa2}}]
fabrics: [{name: disks, purpose: storage}]
switches: [{name: leaf, role: leaf, ports: 8}, {name: disk, role: leaf, ports: 8, fabric: disks}]
cables: [{label: c, a: n/c0, b: leaf/1}, {label: s, a: n/s0, b: disk/1}]
";
    let of = |text: &str| {
        let checked = check(&[Source { name: "s.yaml", text }]);
        let site = checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings.list));
        ports(&site, ["n".to_owned()].iter())
    };
    assert_eq!(of(text), Ok([guid(0xa1)].into()));
    // Neither does it need a GUID.
    assert_eq!(of(&text.replace(", s0: 0xa2", "")), Ok([guid(0xa1)].into()));
    assert_eq!(
        of(&text.replace(", purpose: storage", "")),
        Ok([guid(0xa1), guid(0xa2)].into())
    );
    let why = of(&text.replace("c0: 0xa1, ", "")).unwrap_err();
    assert!(why.starts_with("the site file lacks port GUIDs of 1 node, n "), "{why}");
}

#[test]
fn partition_names_are_valid_for_opensm() {
    for name in ["a", "0-9", &"x".repeat(63)] {
        let mut fabric = fabric(0x7ffe, 0x7ffe);
        fabric.hold(&ClusterId::stored(name), name, [guid(1)].into()).unwrap();
        fabric.partitions().check().unwrap();
    }
}
