use std::collections::HashSet;
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn addresses(list: &[&str]) -> Vec<String> {
    let ranges = Ranges::parse(&texts(list), 1000).unwrap();
    let all: Vec<String> = (0..ranges.len()).map(|i| ranges.nth(i).unwrap().to_string()).collect();
    assert_eq!(ranges.nth(ranges.len()), None);
    all
}

#[test]
fn ranges_are_addresses_in_order_and_each_once() {
    assert_eq!(addresses(&["10.0.0.0/30"]), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(addresses(&["10.0.0.4/31"]), ["10.0.0.4", "10.0.0.5"]);
    assert_eq!(addresses(&["10.0.0.9/32", "10.0.0.9"]), ["10.0.0.9"]);
    assert_eq!(
        addresses(&["fd00::10-fd00::11", "10.0.0.254-10.0.1.0", "10.0.0.3-4", "10.0.0.4"]),
        [
            "10.0.0.3",
            "10.0.0.4",
            "10.0.0.254",
            "10.0.0.255",
            "10.0.1.0",
            "fd00::10",
            "fd00::11"
        ]
    );
    assert_eq!(addresses(&["fd00::/127"]), ["fd00::", "fd00::1"]);
    assert_eq!(
        addresses(&["::ffff:10.0.0.1"]),
        ["10.0.0.1"],
        "a mapped address is the one it maps"
    );
    assert_eq!(Ranges::parse(&texts(&["10.1.0.0/16"]), 65_536).unwrap().len(), 65_534);
}

#[test]
fn ranges_that_are_too_many_or_none_are_refused_by_place() {
    for (list, index, words) in [
        (
            vec!["10.0.0.0/8"],
            0,
            "holds 16777214 addresses, but a discovery covers at most 1000",
        ),
        (vec!["2000::/4"], 0, "at most 1000"),
        (vec!["10.0.0.0/23", "10.0.2.0/23"], 1, "1020 addresses together"),
        (vec!["10.0.0.1", "10.0.0.5/22"], 1, "the network is 10.0.0.0/22"),
        (vec!["bmc-7"], 0, "is neither an address nor a range"),
        (vec!["10.0.0.0/33"], 0, "1 to 32"),
        (vec!["10.0.0.0/0"], 0, "1 to 32"),
        (vec!["10.0.0.9-10.0.0.3"], 0, "before the beginning"),
        (vec!["10.0.0.9-fd00::1"], 0, "other address family"),
        (vec!["239.255.255.250"], 0, "not an address of a machine"),
        (vec!["ff02::c"], 0, "not an address of a machine"),
        (vec!["0.0.0.0"], 0, "not an address of a machine"),
    ] {
        let faults = Ranges::parse(&texts(&list), 1000).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].index, index, "{faults:?}");
        assert!(faults[0].what.contains(words), "{faults:?}");
    }
    assert_eq!(Ranges::parse(&texts(&["x", "10.0.0.1", "y"]), 10).unwrap_err().len(), 2);
}

proptest! {
    #[test]
    fn a_range_holds_what_it_lists(first in any::<u32>(), count in 0_u32..300, other in any::<u32>()) {
        let first = first.clamp(1 << 24, 0xd000_0000);
        let last = first + count;
        let (from, to) = (std::net::Ipv4Addr::from(first), std::net::Ipv4Addr::from(last));
        let ranges = Ranges::parse(&[format!("{from}-{to}")], 1000).unwrap();
        prop_assert_eq!(ranges.len(), u64::from(count) + 1);
        for place in 0..ranges.len() {
            prop_assert!(ranges.contains(ranges.nth(place).unwrap()));
        }
        let stranger = IpAddr::from(std::net::Ipv4Addr::from(other));
        prop_assert_eq!(ranges.contains(stranger), (first..=last).contains(&other));
    }

    #[test]
    fn no_text_breaks_the_readers(text in "[ -~\\n]{0,200}", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Ranges::parse(std::slice::from_ref(&text), 100);
        let _ = parse_leases(&text);
        let _ = parse_targets(&text);
        let _ = parse_answer(&bytes);
        let _ = node_name(&text, &NameSource::default());
    }
}

/// A machine that is unique by its number.
fn machine(number: u32, address: &str) -> Seen {
    Seen {
        address: address.to_owned(),
        service_uuid: format!("5e7b1ce0-0000-4000-8000-{number:012x}"),
        uuid: format!("1de17171-0000-4000-8000-{number:012x}"),
        manufacturer: "Maker".into(),
        serial: format!("SN{number:06}"),
        macs: vec![format!(
            "00:16:3e:00:{:02x}:{:02x}",
            (number >> 8) & 0xff,
            number & 0xff
        )],
    }
}

fn node(id: &str, of: &Seen) -> KnownNode {
    KnownNode {
        id: id.to_owned(),
        address: of.address.clone(),
        uuid: of.uuid.clone(),
        manufacturer: of.manufacturer.clone(),
        serial: of.serial.clone(),
        macs: of.macs.clone(),
    }
}

fn at(of: &Seen, address: &str) -> Seen {
    Seen {
        address: address.to_owned(),
        ..of.clone()
    }
}

fn plainly(seen: &[Seen], known: &[KnownNode]) -> Vec<Judgement> {
    judge(seen, known, &HashSet::new())
}

fn conflict(judgement: &Judgement) -> &str {
    match judgement {
        Judgement::Conflict { why } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_machine_by_two_addresses_is_one_and_a_node_is_found_again() {
    let a = machine(1, "https://10.0.0.1");
    let b = machine(2, "https://10.0.0.2");
    let also_a = at(&a, "https://[fd00::1]");
    let seen = [a.clone(), b.clone(), also_a];
    assert_eq!(
        plainly(&seen, &[]),
        [Judgement::New, Judgement::New, Judgement::SameAs { first: 0 }]
    );
    let known = Judgement::Known { node: "n1".into() };
    assert_eq!(plainly(&seen[..1], &[node("n1", &a)]), std::slice::from_ref(&known));
    // The known address answers, so the node has two addresses and has not moved.
    assert_eq!(plainly(&seen, &[node("n1", &a)])[0], known);
    let moved = Judgement::Moved {
        node: "n1".into(),
        from: "https://10.9.9.9".into(),
    };
    let away = node("n1", &at(&a, "https://10.9.9.9"));
    assert_eq!(plainly(&seen[..1], std::slice::from_ref(&away)), [moved]);
    let answers = HashSet::from(["https://10.9.9.9".to_owned()]);
    assert_eq!(judge(&seen[..1], &[away], &answers), [known]);
}

#[test]
fn machines_that_say_they_are_one_are_conflicts() {
    let a = machine(1, "https://10.0.0.1");
    let mut clone = machine(2, "https://10.0.0.2");
    clone.uuid.clone_from(&a.uuid);
    let judged = plainly(&[a.clone(), clone.clone()], &[]);
    for one in &judged {
        let why = conflict(one);
        assert!(
            why.contains("https://10.0.0.1") && why.contains("https://10.0.0.2"),
            "{why}"
        );
    }
    assert!(conflict(&plainly(&[clone], &[node("n1", &a)])[0]).contains("node n1"));
    // Another board behind a node's address.
    let other = at(&machine(3, ""), &a.address);
    assert!(conflict(&plainly(&[other], &[node("n1", &a)])[0]).contains("another machine"));
    // Two nodes swapped their addresses.
    let b = machine(2, "https://10.0.0.2");
    let swapped = [at(&a, &b.address), at(&b, &a.address)];
    let nodes = [node("n1", &a), node("n2", &b)];
    for one in plainly(&swapped, &nodes) {
        assert!(conflict(&one).contains("is known by this address"));
    }
    // Enrolled twice.
    let twice = [node("n1", &at(&a, "https://a")), node("n2", &at(&a, "https://b"))];
    assert!(conflict(&plainly(&[a], &twice)[0]).contains("n1, n2"));
}

#[test]
fn what_is_not_read_is_not_taken_for_a_difference() {
    let a = machine(1, "https://10.0.0.1");
    let locked = Seen {
        address: a.address.clone(),
        service_uuid: a.service_uuid.clone(),
        ..Seen::default()
    };
    let known = Judgement::Known { node: "n1".into() };
    assert_eq!(
        plainly(std::slice::from_ref(&locked), &[node("n1", &a)]),
        std::slice::from_ref(&known)
    );
    assert_eq!(plainly(std::slice::from_ref(&locked), &[]), [Judgement::New]);
    // A node that was never read.
    let fresh = KnownNode {
        id: "n1".into(),
        address: a.address.clone(),
        ..KnownNode::default()
    };
    assert_eq!(
        plainly(std::slice::from_ref(&a), &[fresh]),
        std::slice::from_ref(&known)
    );
    // A new network adapter, in place.
    let mut mended = a.clone();
    mended.macs = vec!["00:16:3e:ff:ff:01".into()];
    assert_eq!(plainly(&[mended], &[node("n1", &a)]), [known]);
    // The second address needs a login. The service's UUID identifies the machine.
    let second = at(&locked, "https://10.0.0.2");
    assert_eq!(plainly(&[a, second], &[])[1], Judgement::SameAs { first: 0 });
}

fn plainly_placeholder(uuid: &str, serial: &str, mac: &str) -> Vec<Judgement> {
    let seen: Vec<Seen> = (0..3)
        .map(|n| Seen {
            address: format!("https://10.0.0.{n}"),
            uuid: uuid.to_owned(),
            serial: serial.to_owned(),
            macs: vec![mac.to_owned()],
            ..Seen::default()
        })
        .collect();
    plainly(&seen, &[])
}

#[test]
fn placeholders_make_no_machines_one() {
    for (uuid, serial, mac) in [
        ("00000000-0000-0000-0000-000000000000", "To be filled by O.E.M.", ""),
        (
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "0123456789",
            "ff:ff:ff:ff:ff:ff",
        ),
        (
            "03000200-0400-0500-0006-000700080009",
            "Default string",
            "be:3a:f2:b6:05:9f",
        ),
        ("not a uuid", "N/A", "b0:3a:f2:b6:05:9f"),
        ("", "000000", "01:00:5e:00:00:01"),
    ] {
        let judged = plainly_placeholder(uuid, serial, mac);
        assert!(
            judged.iter().all(|one| *one == Judgement::New),
            "{uuid} {serial} {mac}: {judged:?}"
        );
    }
    // A service UUID shared by many boards is a default of the manufacturer.
    let seen: Vec<Seen> = (0..9)
        .map(|n| Seen {
            address: format!("https://10.0.0.{n}"),
            service_uuid: "5e7b1ce0-0000-4000-8000-000000000001".into(),
            ..Seen::default()
        })
        .collect();
    assert!(plainly(&seen, &[]).iter().all(|one| *one == Judgement::New));
}

#[test]
fn one_uuid_on_thousands_of_boards_is_told_in_no_time() {
    let seen: Vec<Seen> = (0..20_000)
        .map(|n| Seen {
            uuid: "1de17171-0000-4000-8000-000000000001".into(),
            ..machine(n, &format!("https://10.0.{}.{}", n >> 8, n & 0xff))
        })
        .collect();
    let judged = plainly(&seen, &[]);
    assert!(
        conflict(&judged[0]).contains("20000 different machines"),
        "{:?}",
        judged[0]
    );
    assert!(judged.iter().all(|one| matches!(one, Judgement::Conflict { .. })));
}

/// Machines with one or more addresses. Some are enrolled, some of these at other addresses, and some are clones.
#[derive(Debug, Clone)]
struct World {
    seen: Vec<(u32, Seen)>,
    known: Vec<KnownNode>,
    cloned: HashSet<u32>,
}

fn world() -> impl Strategy<Value = World> {
    let one = (1_usize..4, 0_u8..4, any::<bool>(), 0_u8..12);
    proptest::collection::vec(one, 1..12).prop_map(|machines| {
        let mut world = World {
            seen: Vec::new(),
            known: Vec::new(),
            cloned: HashSet::new(),
        };
        let mut address = 0;
        for (number, (count, blanks, is_known, clone)) in (0_u32..).zip(machines) {
            let mut base = machine(number, "");
            match blanks {
                1 => base.serial = "Default string".into(),
                2 => base.macs.clear(),
                3 => base.service_uuid.clear(),
                _ => {}
            }
            for _ in 0..count {
                address += 1;
                world
                    .seen
                    .push((number, at(&base, &format!("https://10.0.0.{address:03}"))));
            }
            if is_known {
                let first = world.seen[world.seen.len() - count].1.clone();
                world.known.push(node(&format!("n{number}"), &first));
            }
            if clone == 0 {
                address += 1;
                let mut other = machine(1000 + number, &format!("https://10.0.0.{address:03}"));
                other.uuid.clone_from(&base.uuid);
                world.seen.push((1000 + number, other));
                world.cloned.extend([number, 1000 + number]);
            }
        }
        world
    })
}

proptest! {
    #[test]
    fn each_machine_is_one_entry_whatever_the_order(world in world(), seed in any::<u64>()) {
        let seen: Vec<Seen> = world.seen.iter().map(|(_, seen)| seen.clone()).collect();
        let judged = plainly(&seen, &world.known);
        prop_assert_eq!(judged.len(), seen.len());
        let mut entries = std::collections::HashMap::<u32, u32>::new();
        for ((number, _), judgement) in world.seen.iter().zip(&judged) {
            let is_conflict = matches!(judgement, Judgement::Conflict { .. });
            prop_assert_eq!(is_conflict, world.cloned.contains(number), "{:?}", judgement);
            if !is_conflict && !matches!(judgement, Judgement::SameAs { .. }) {
                *entries.entry(*number).or_default() += 1;
                let is_node = world.known.iter().any(|node| node.id == format!("n{number}"));
                let is_known = matches!(judgement, Judgement::Known { .. });
                prop_assert_eq!(is_node, is_known, "{:?}", judgement);
            }
        }
        prop_assert!(entries.values().all(|count| *count == 1));
        // In another order with other first entries, each address gets the same kind of result.
        let mut order: Vec<usize> = (0..seen.len()).collect();
        order.sort_by_key(|at| (u64::try_from(*at).unwrap() ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let shuffled: Vec<Seen> = order.iter().map(|at| seen[*at].clone()).collect();
        let mut known = world.known.clone();
        known.reverse();
        let again = plainly(&shuffled, &known);
        for (place, at) in order.iter().enumerate() {
            match (&again[place], &judged[*at]) {
                (Judgement::Conflict { why: a }, Judgement::Conflict { why: b }) => prop_assert_eq!(a, b),
                (Judgement::SameAs { .. }, other) | (other, Judgement::SameAs { .. }) => {
                    let is_conflict = matches!(other, Judgement::Conflict { .. });
                    prop_assert!(!is_conflict);
                }
                (a, b) => prop_assert_eq!(a, b),
            }
        }
    }

    #[test]
    fn what_was_enrolled_is_known_afterwards(world in world()) {
        let seen: Vec<Seen> = world.seen.iter().map(|(_, seen)| seen.clone()).collect();
        let mut known = world.known.clone();
        for (one, judgement) in seen.iter().zip(plainly(&seen, &known)) {
            if judgement == Judgement::New {
                known.push(node(&format!("new-{}", one.address), one));
            }
        }
        for judgement in plainly(&seen, &known) {
            prop_assert!(judgement != Judgement::New, "{:?}", judgement);
            let has_moved = matches!(judgement, Judgement::Moved { .. });
            prop_assert!(!has_moved);
        }
    }
}

#[test]
fn lease_files_of_three_servers_are_read() {
    let isc = "# The format of this file is documented in the dhcpd.leases(5) manual page.\nauthoring-byte-order little-endian;\n\n\
               lease 10.0.0.7 {\n  starts 4 2026/10/01 10:00:00;\n  binding state active;\n  next binding state free;\n  \
               hardware ethernet 00:16:3E:00:00:07;\n  client-hostname \"bmc-7\";\n}\n\
               lease 10.0.0.8 {\n  binding state active;\n  hardware ethernet 00:16:3e:00:00:08;\n}\n\
               lease 10.0.0.8 {\n  binding state free;\n  hardware ethernet 00:16:3e:00:00:08;\n}\n";
    let found = parse_leases(isc).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].mac.as_str(), found[0].host_name.as_str()),
        ("00:16:3e:00:00:07", "bmc-7")
    );
    let kea = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context,pool_id\n\
               10.0.0.7,00:16:3e:00:00:07,01:00:16:3e:00:00:07,4000,1727784000,1,0,0,bmc-7.,0,,0\n\
               10.0.0.9,00:16:3e:00:00:09,,4000,1727784000,1,0,0,,1,,0\n\
               10.0.0.7,00:16:3e:00:00:07,,4000,1727788000,1,0,0,bmc-7.,0,,0\n";
    let found = parse_leases(kea).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].address.to_string().as_str(), found[0].host_name.as_str()),
        ("10.0.0.7", "bmc-7")
    );
    let dnsmasq = "1727788000 00:16:3e:00:00:07 10.0.0.7 bmc-7 01:00:16:3e:00:00:07\n\
                   0 00:16:3e:00:00:08 10.0.0.8 * *\nduid 00:01:00:01\n1727788000 12345 fd00::7 bmc-7 00:01\n";
    let found = parse_leases(dnsmasq).unwrap();
    let shown: Vec<String> = found
        .iter()
        .map(|l| format!("{} {} {}", l.address, l.mac, l.host_name))
        .collect();
    assert_eq!(
        shown,
        [
            "10.0.0.7 00:16:3e:00:00:07 bmc-7",
            "10.0.0.8 00:16:3e:00:00:08 ",
            "fd00::7  bmc-7"
        ]
    );
    assert_eq!(parse_leases(""), Ok(Vec::new()));
    assert_eq!(parse_leases("hello\n"), Err(LeaseFault::Unknown));
    let many: String = (0..66_000_u32)
        .map(|n| format!("0 x {} * *\n", std::net::Ipv4Addr::from(n + (1 << 24))))
        .collect();
    assert_eq!(parse_leases(&many), Err(LeaseFault::TooMany));
}

#[test]
fn ssdp_answers_of_redfish_services_are_read_and_others_left() {
    let good = "HTTP/1.1 200 OK\r\nCACHE-CONTROL:max-age=1800\r\nST: urn:dmtf-org:service:redfish-rest:1:14\r\n\
                USN:uuid:92384634-2938-2342-8820-489239905423::urn:dmtf-org:service:redfish-rest:1:14\r\n\
                AL: https://10.0.0.5/redfish/v1/\r\nEXT:\r\n\r\n";
    let answer = parse_answer(good.as_bytes()).unwrap();
    assert_eq!(answer.location, "https://10.0.0.5/redfish/v1/");
    assert_eq!(answer.uuid, "92384634-2938-2342-8820-489239905423");
    for bad in [
        good.replace("200 OK", "404 Not Found"),
        good.replace("redfish-rest:1:14\r\nUSN", "redfish-rest:10\r\nUSN"),
        good.replace("https://", "file://"),
        good.replace("AL:", "LOCATION:"),
        good.replace("10.0.0.5", &"1".repeat(600)),
        "M-SEARCH * HTTP/1.1\r\n\r\n".to_owned(),
        String::new(),
    ] {
        assert_eq!(parse_answer(bad.as_bytes()), None, "{bad}");
    }
    assert!(search("239.255.255.250".parse().unwrap(), 3).contains("HOST: 239.255.255.250:1900\r\n"));
    assert!(search("ff02::c".parse().unwrap(), 3).contains("HOST: [ff02::c]:1900\r\n"));
}

#[test]
fn names_are_made_by_template() {
    let source = NameSource {
        serial: "S1-ABC 7",
        rack: "R01",
        unit: "12",
        site: "gpu-001",
        host: "10.0.0.5",
        ..NameSource::default()
    };
    let made = |template| node_name(template, &source);
    assert_eq!(made(""), Ok("gpu-001".into()));
    assert_eq!(made("{serial}"), Ok("s1-abc-7".into()));
    assert_eq!(made("gpu-{rack}-u{unit}"), Ok("gpu-r01-u12".into()));
    assert_eq!(made("{address}"), Ok("10-0-0-5".into()));
    assert!(made("{colour}").unwrap_err().contains("none of serial"));
    assert!(made("{serial").unwrap_err().contains("not closed"));
    assert!(made("{uuid}").unwrap_err().contains("not known"));
    assert!(made("---").is_err());
    let nameless = NameSource {
        serial: "To be filled by O.E.M.",
        ..NameSource::default()
    };
    assert!(node_name("", &nameless).unwrap_err().contains("no serial number"));
}

#[test]
fn tables_are_read_whole_or_every_fault_is_told_with_line_and_column() {
    let good = "Address,User,Password,rack,unit,labels,name\n10.0.0.5,admin,\" p,w \",r1,U12,row=3;pod=a,gpu-1\n\n10.0.0.6:8443,,,,,,\n";
    let rows = parse_targets(good).unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (rows[0].password.as_str(), rows[0].unit, rows[0].labels["pod"].as_str()),
        (" p,w ", 12, "a")
    );
    assert_eq!((rows[1].line, rows[1].address.as_str()), (4, "10.0.0.6:8443"));
    let bad = "address,user,password,unit,credential\n10.0.0.5,admin,,99x,\n,a,b,1,\n10.0.0.5,a,b,,c\n10.0.0.7,,,,,extra\nadmin:hunter2@h,,,,\n";
    let reported: Vec<String> = parse_targets(bad)
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        reported,
        [
            "line 2, column unit: \"99x\" is not a rack unit from 1 to 100",
            "line 2, column user: user and password go together: give both or none",
            "line 3, column address: the address is missing",
            "line 4, column address: 10.0.0.5 is already in line 2",
            "line 4, column user: give user and password, or a credential, not both",
            "line 5, column 6: the row has more cells than the header has columns",
            "line 6, column address: an address must not contain a user, a password or spaces",
            "line 6, column address: the address is missing",
        ]
    );
    for (text, words) in [
        ("", "empty"),
        ("address,colour\n", "\"colour\" is not a column"),
        ("user,password\n", "the column is missing"),
        ("address,address\n", "twice"),
        ("address\n\"10.0.0.5\n", "not closed"),
    ] {
        let faults = parse_targets(text).unwrap_err();
        assert!(faults[0].to_string().contains(words), "{faults:?}");
    }
}
