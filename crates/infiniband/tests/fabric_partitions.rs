//! Partitions: written, read back, compared; and keys that are not given again while a port still has them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rackwright_infiniband::partition::{
    DifferenceKind, HealthItem, HealthState, KeyState, MAX_LINE_BYTES, ManagerOptions, OtherKey, PoolError,
    ReadingNumber, compare, health, parse,
};
use rackwright_infiniband::{Guid, KeyPool, Membership, PKey, Partition, Partitions, Tables};

fn guid(number: u64) -> Guid {
    Guid::new(number).expect("a GUID")
}

fn key(number: u16) -> PKey {
    PKey::new(number).expect("a key")
}

fn two_tenants() -> Partitions {
    let of = |name: &str, number, ports: std::ops::Range<u64>| {
        (key(number), Partition::of_cluster(name, key(number), ports.map(guid)))
    };
    Partitions {
        management: BTreeSet::from([guid(0x99)]),
        partitions: BTreeMap::from([of("acme-1", 0x10, 1..4), of("globex-1", 0x11, 10..12)]),
        ..Partitions::default()
    }
}

fn as_wanted(partitions: &Partitions, ports: impl IntoIterator<Item = Guid>, manager: Guid) -> Tables {
    let mut tables = Tables::default();
    for port in ports {
        let wanted = partitions.wanted(port, port == manager);
        let own = wanted.iter().map(|(key, membership)| key.entry(*membership));
        tables.read.insert(port, own.chain([0]).collect());
    }
    tables
}

#[test]
fn the_file_has_one_port_a_line_and_a_closed_default_partition() {
    let text = two_tenants().render().expect("a file");
    let body: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        body,
        [
            "Default=0x7fff, defmember=limited :",
            "  ALL=limited,",
            "  0x0000000000000099=full,",
            "  SELF=full ;",
            "acme-1=0x0010, indx0, defmember=full :",
            "  0x0000000000000001=full,",
            "  0x0000000000000002=full,",
            "  0x0000000000000003=full ;",
            "globex-1=0x0011, indx0, defmember=full :",
            "  0x000000000000000a=full,",
            "  0x000000000000000b=full ;",
        ]
    );
    assert_eq!(parse(&text), Ok(two_tenants()));
}

#[test]
fn whatever_opensm_would_misread_is_refused() {
    let good = two_tenants().render().expect("a file");
    let long = format!(
        "{good}x=0x20, defmember=full : {}0x7 ;",
        "0x6, ".repeat(MAX_LINE_BYTES / 5)
    );
    for (broken, line, why) in [
        (good.replace("SELF=full ;", "SELF=full"), 6, "a comma is missing"),
        (
            good.replace("ALL=limited", "ALL=full"),
            5,
            "the default partition must be",
        ),
        (good.replace("ALL=limited", "AL=limited"), 3, "is not a port GUID"),
        (good.replace("defmember=full", "defmember=ful"), 6, "unknown flag"),
        (good.replace("indx0", "indx"), 6, "unknown flag"),
        (good.replace("=0x0011", "=0x0010"), 12, "defined twice"),
        (good.replace("=0x0011", "=17"), 10, "is not a P_Key"),
        (good.replace("globex-1", "7globex"), 10, "is not a partition name"),
        (
            good.replace("0x000000000000000a=full,", "0x000000000000000a=full"),
            12,
            "a comma is missing",
        ),
        (
            good.replace("0x0000000000000003=full ;", "0x0000000000000003=full, ;"),
            9,
            "a member is missing",
        ),
        (good.replace("0x0000000000000003", "3"), 9, "is not a port GUID"),
        (
            good.replace("0x0000000000000003", "0x0000000000000002"),
            9,
            "listed twice",
        ),
        (
            good.replace("0x000000000000000b", "0x0000000000000001"),
            12,
            "first in its table",
        ),
        (good.trim_end().trim_end_matches(';').to_owned(), 10, "no ';'"),
        (format!("{good}broken =, : ;;; x"), 13, "is not a P_Key"),
        ("# nothing\n".to_owned(), 1, "no rule for the default"),
        (String::new(), 1, "no rule for the default"),
        (long, 13, "OpenSM cuts lines"),
        (format!("{good}a\0"), 13, "zero byte"),
    ] {
        let error = parse(&broken).expect_err(&broken);
        assert!(error.text.contains(why), "{error} for {why}\n{broken}");
        assert_eq!(error.line, line, "{error}\n{broken}");
    }
}

#[test]
fn partitions_that_cannot_be_told_are_refused() {
    let with = |change: &dyn Fn(&mut Partition)| {
        let mut partitions = two_tenants();
        change(partitions.partitions.get_mut(&key(0x11)).expect("the partition"));
        partitions.render().expect_err("refused").to_string()
    };
    assert!(with(&|p| p.name = "a b".into()).contains("must be 1 to 32"));
    assert!(with(&|p| p.name = "default".into()).contains("default partition"));
    assert!(with(&|p| p.key = PKey::DEFAULT).contains("default partition"));
    assert!(with(&|p| p.key = key(0x12)).contains("listed under"));
    assert!(with(&|p| p.members.clear()).contains("no members"));
    assert!(
        with(&|p| {
            p.members.insert(guid(1), Membership::Full);
        })
        .contains("first in its table")
    );
}

#[test]
fn each_difference_of_a_table_is_told_in_words() {
    let partitions = two_tenants();
    let (manager, ports) = (guid(0x50), [1, 2, 3, 10, 11, 0x50, 0x99, 0x60].map(guid));
    let managers = BTreeSet::from([manager]);
    let right = as_wanted(&partitions, ports, manager);
    assert_eq!(compare(&partitions, &managers, ports, &right), []);

    let mut wrong = right.clone();
    wrong.read.insert(guid(1), vec![0xffff]);
    wrong.read.insert(guid(2), vec![0x7fff, 0x8010]);
    wrong.read.insert(guid(3), vec![0x0010, 0x7fff, 0x8011]);
    wrong.read.remove(&guid(10));
    wrong.unread.insert(guid(10), "timed out".into());
    wrong.read.insert(guid(0x60), vec![0x7fff, 0x8044]);
    let found = compare(&partitions, &managers, ports, &wrong);
    let seen: Vec<(u64, DifferenceKind)> = found.iter().map(|found| (found.port.get(), found.kind)).collect();
    use DifferenceKind::{Foreign, Lacking, NotFirst, NotRead, OpenDefault, TooWeak};
    assert_eq!(
        seen,
        [
            (1, OpenDefault),
            (1, Lacking),
            (2, NotFirst),
            (3, TooWeak),
            (3, Foreign),
            (10, NotRead),
            (0x60, Foreign)
        ]
    );
    let words: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        words[1],
        "port 0x0000000000000001: is not a member of 0x0010 (acme-1), but should be a full member"
    );
    assert_eq!(
        words[2],
        "port 0x0000000000000002: 0x0010 (acme-1) is at index 1 of its table, not at 0"
    );
    assert_eq!(
        words[4],
        "port 0x0000000000000003: is a full member of 0x0011 (globex-1), but should not be a member"
    );
    assert_eq!(found.iter().filter(|found| found.breaks_isolation()).count(), 4);
}

#[test]
fn the_health_page_names_what_does_not_hold() {
    let state = |checks: &[rackwright_infiniband::partition::HealthCheck], item| {
        checks.iter().find(|check| check.item == item).expect("a line").state
    };
    let tables = Tables {
        read: BTreeMap::from([(guid(1), vec![0xffff]), (guid(2), vec![0x7fff])]),
        ..Tables::default()
    };
    let defaults = ManagerOptions::parse("# nothing set\nm_key 0x0000000000000000\nsm_key 0x0000000000000001\n");
    let checks = health(Some(&defaults), &BTreeSet::new(), &tables);
    assert!(
        checks
            .iter()
            .filter(|check| check.item != HealthItem::Enforcement)
            .all(|c| c.state == HealthState::Fails)
    );
    let set = ManagerOptions::parse(
        "m_key 0x1234567812345678\nsm_key 0x99aa\nsa_key 0x77\nm_key_protection_level 2\npart_enforce both\n",
    );
    let checks = health(Some(&set), &BTreeSet::from([guid(1)]), &tables);
    assert!(
        checks.iter().all(|check| check.state == HealthState::Holds),
        "{checks:?}"
    );
    assert!(
        checks
            .iter()
            .all(|check| !check.text.contains("1234") && !check.text.contains("99aa"))
    );
    let off = ManagerOptions::parse("part_enforce off");
    assert_eq!(
        state(&health(Some(&off), &BTreeSet::new(), &tables), HealthItem::Enforcement),
        HealthState::Fails
    );
    let checks = health(None, &BTreeSet::new(), &Tables::default());
    assert!(checks.iter().all(|check| check.state == HealthState::Unknown));
}

#[test]
fn a_key_comes_back_only_after_every_port_was_read_without_it() {
    let ports = |numbers: &[u64]| numbers.iter().map(|number| guid(*number)).collect::<BTreeSet<_>>();
    let mut pool = KeyPool::new(key(0x10), key(0x11)).expect("a range");
    let a = pool.allocate("acme", &ports(&[1, 2])).expect("a key");
    let b = pool.allocate("globex", &ports(&[3])).expect("a key");
    assert_eq!((a, b), (key(0x10), key(0x11)));
    assert_eq!(pool.allocate("acme", &ports(&[4])), Ok(a), "the same owner asks again");
    assert!(matches!(
        pool.allocate("initech", &ports(&[9])),
        Err(PoolError::Exhausted {
            held: 2,
            draining: 0,
            ..
        })
    ));
    assert!(pool.release(a, "globex", ReadingNumber(5)).is_err());
    pool.release(a, "acme", ReadingNumber(5)).expect("its own");
    pool.release(a, "acme", ReadingNumber(9)).expect("twice is no harm");
    assert!(pool.allocate("initech", &ports(&[9])).is_err());

    let reading = |rows: &[(u64, &[u16])]| Tables {
        read: rows.iter().map(|(port, table)| (guid(*port), table.to_vec())).collect(),
        unread: BTreeMap::from([(guid(4), "off".to_owned())]),
    };
    let clean: &[u16] = &[0x7fff];
    assert_eq!(
        pool.observe(ReadingNumber(5), &reading(&[(1, clean), (2, clean), (4, clean)])),
        [],
        "begun too early"
    );
    assert_eq!(
        pool.observe(ReadingNumber(6), &reading(&[(1, clean), (2, &[0x7fff, 0x8010])])),
        []
    );
    assert_eq!(
        pool.observe(ReadingNumber(7), &reading(&[(2, clean), (8, &[0x0010])])),
        [],
        "a port nobody thought of"
    );
    assert_eq!(
        pool.observe(ReadingNumber(8), &reading(&[(8, clean)])),
        [],
        "port 4 is still not read"
    );
    let KeyState::Draining { ports: left, .. } = &pool.taken()[&a] else {
        panic!("not draining")
    };
    assert_eq!(left, &ports(&[4]));
    assert_eq!(pool.observe(ReadingNumber(9), &reading(&[(4, clean)])), [a]);
    assert_eq!(pool.allocate("initech", &ports(&[9])), Ok(a));

    pool.release(b, "globex", ReadingNumber(9)).expect("its own");
    assert_eq!(pool.scrap(guid(3)), [b], "the adapter is gone for good");
    for (first, last) in [(2, 1), (1, 0x7fff)] {
        assert!(KeyPool::new(key(first), key(last)).is_err());
    }
}

#[test]
fn keys_whose_ports_are_not_loaded_are_not_free() {
    let range = (key(1), key(4));
    let held = KeyState::Held {
        owner: "acme".to_owned(),
        ports: [guid(1)].into(),
    };
    let others = BTreeMap::from([(key(3), OtherKey::Held), (key(1), OtherKey::Draining { ports: 2 })]);
    let restore = |others| KeyPool::restore(range, Some(key(2)), BTreeMap::from([(key(2), held.clone())]), others);
    let mut pool = restore(others.clone()).expect("a range");
    assert_eq!(pool.given(), Some(key(2)));
    assert_eq!(pool.allocate("acme", &[guid(2)].into()), Ok(key(2)), "its own key");
    assert_eq!(pool.allocate("globex", &[guid(3)].into()), Ok(key(4)), "3 is taken");
    assert_eq!(
        pool.allocate("initech", &[guid(4)].into()),
        Err(PoolError::Exhausted {
            keys: 4,
            held: 3,
            draining: 1,
            ports: 2,
        })
    );
    assert_eq!(pool.taken().keys().copied().collect::<Vec<_>>(), [key(2), key(4)]);
    assert!(KeyPool::restore((key(2), key(1)), None, BTreeMap::new(), others).is_err());
}

#[derive(Debug, Clone)]
enum Step {
    Take(u8),
    Give(u8),
    Read(Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..6).prop_map(Step::Take),
        (0u8..6).prop_map(Step::Give),
        proptest::collection::vec(0u8..24, 0..24).prop_map(Step::Read),
    ]
}

fn partitions() -> impl Strategy<Value = Partitions> {
    let members = proptest::collection::btree_map(1u64..u64::MAX, any::<bool>(), 1..20);
    let partition = (1u16..0x7fff, "[a-zA-Z][a-z0-9._-]{0,31}", members);
    (
        proptest::collection::vec(partition, 0..5),
        proptest::collection::btree_set(1u64..99, 0..3),
    )
        .prop_map(|(all, management)| {
            let mut partitions = Partitions {
                management: management.into_iter().map(guid).collect(),
                ..Partitions::default()
            };
            for (number, name, members) in all {
                let full = |full| if full { Membership::Full } else { Membership::Limited };
                partitions.partitions.insert(
                    key(number),
                    Partition {
                        name: format!("p{}", &name[..name.len().min(31)]),
                        key: key(number),
                        first: false,
                        members: members.into_iter().map(|(port, is)| (guid(port), full(is))).collect(),
                    },
                );
            }
            partitions
        })
}

proptest! {
    #[test]
    fn what_is_written_is_read_and_no_line_is_long(partitions in partitions()) {
        let text = partitions.render().expect("a file");
        prop_assert!(text.lines().all(|line| line.len() < 120));
        prop_assert_eq!(parse(&text), Ok(partitions));
    }

    #[test]
    fn a_damaged_file_is_refused_or_still_a_sound_one(at in 0usize..2000, byte in any::<u8>(), cut in any::<bool>()) {
        let good = two_tenants().render().expect("a file");
        let mut bytes = good.clone().into_bytes();
        let at = at % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        if let Ok(text) = String::from_utf8(bytes)
            && let Ok(read) = parse(&text)
        {
            prop_assert!(read.check().is_ok());
            prop_assert!(read.render().is_ok());
        }
    }

    /// A fabric in which keys reach and leave tables at any time. No port ever has a key of two owners.
    #[test]
    fn no_key_is_given_while_a_port_may_have_it(steps in proptest::collection::vec(step(), 0..80)) {
        let mut pool = KeyPool::new(key(1), key(3)).expect("a range");
        let mut fabric: BTreeMap<Guid, BTreeMap<PKey, u8>> = (0..24).map(|port| (guid(port + 1), BTreeMap::new())).collect();
        let mut held: BTreeMap<u8, PKey> = BTreeMap::new();
        let mut number = ReadingNumber(0);
        for step in steps {
            match step {
                Step::Take(owner) => {
                    let ports: BTreeSet<Guid> = (0..4).map(|port| guid(u64::from(owner) * 4 + port + 1)).collect();
                    if let Ok(key) = pool.allocate(&owner.to_string(), &ports) {
                        for (port, keys) in &mut fabric {
                            let other = keys.get(&key).filter(|other| **other != owner);
                            prop_assert!(other.is_none(), "port {} has {} of {:?}", port, key, other);
                        }
                        for port in ports {
                            fabric.get_mut(&port).expect("a port").insert(key, owner);
                        }
                        held.insert(owner, key);
                    }
                }
                Step::Give(owner) => {
                    if let Some(key) = held.remove(&owner) {
                        pool.release(key, &owner.to_string(), number).expect("its own");
                    }
                }
                Step::Read(seen) => {
                    number.0 += 1;
                    let mut tables = Tables::default();
                    for port in seen {
                        let port = guid(u64::from(port) + 1);
                        let keys = fabric.get_mut(&port).expect("a port");
                        // The subnet manager removes keys that are no longer held, then the port is read.
                        keys.retain(|key, owner| held.get(owner) == Some(key));
                        tables.read.insert(port, keys.keys().map(|key| key.entry(Membership::Full)).collect());
                    }
                    pool.observe(number, &tables);
                }
            }
        }
    }
}
