//! Breaches of isolation: what is one, and what is reported about it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rackwright_fabric::{PartitionFile, Proof, Reading};
use rackwright_infiniband::{Guid, PKey, Tables};
use rackwright_lifecycle::Timestamp;
use rackwright_store::BreachRow;

use super::breach::{Breach, Finding, Kind, PortKeys, digest, end, judge_file, judge_ports, settle};

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
    let unknown: Vec<u64> = found.iter().map(|finding| finding.unknown).collect();
    assert_eq!(unknown, [1, 1, 0], "port 6 is no cluster's");
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
        fabric: None,
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
fn lines(news: &super::breach::BreachChanges) -> Vec<(String, &str)> {
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
        unknown: 0,
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
    let since = |uid: &str| concerned.clusters[uid].since;
    assert_eq!((since("a"), since("b")), (Some(Timestamp(10)), Some(Timestamp(20))));

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

#[test]
fn a_breach_of_a_version_without_times_of_clusters_is_read() {
    let body = r#"{"text":"1 port is open","ports":1,"named":["0x1"],"clusters":{"a":{"id":"alpha","ports":1}}}"#;
    let row = BreachRow {
        id: "open-default/10".into(),
        kind: "open-default".into(),
        good_at: None,
        since: Timestamp(10),
        seen: Timestamp(10),
        ended_at: None,
        body: body.into(),
    };
    let cluster = &Breach::of_row(row).unwrap().concerned.clusters["a"];
    assert_eq!((cluster.id.as_str(), cluster.ports, cluster.since), ("alpha", 1, None));
}

#[test]
fn ports_whose_cluster_is_unknown_are_noted_from_their_first_reading_on() {
    let ids: BTreeMap<String, String> = [("a".into(), "alpha".into())].into();
    let finding = |clusters: &[(&str, u64)], unknown| Finding {
        kind: Kind::OpenDefault,
        text: "open".into(),
        ports: guids(&[1]),
        clusters: clusters.iter().map(|(uid, n)| ((*uid).to_owned(), *n)).collect(),
        unknown,
    };
    let since = |open: &[Breach], finding: &Finding, now| {
        let changes = settle(open, std::slice::from_ref(finding), &ids, None, Timestamp(now));
        (changes.changed[0].concerned.unknown_since, changes.changed)
    };
    let (first, open) = since(&[], &finding(&[("a", 1)], 0), 10);
    assert_eq!(first, None, "the cluster is known");
    let (later, open) = since(&open, &finding(&[("a", 1)], 1), 20);
    assert_eq!(later, Some(Timestamp(20)));
    assert_eq!(since(&open, &finding(&[], 1), 30).0, Some(Timestamp(20)));
    // A cluster that is released has no customer.
    assert_eq!(since(&[], &finding(&[("gone", 1)], 0), 40).0, Some(Timestamp(40)));
    let stored = Breach::of_row(open[0].to_row().unwrap()).unwrap();
    assert_eq!(stored.concerned.unknown_since, Some(Timestamp(20)));
}
