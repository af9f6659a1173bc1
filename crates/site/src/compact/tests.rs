//! Tests of folding: an item in compact notation stands for exactly the items that were folded into it.

use proptest::prelude::*;

use super::*;
use crate::file::expand_pattern;

/// A node: name, rack, BMC address, rack unit and GUID.
type Object = (String, String, String, u32, u64);

fn row((name, rack, address, unit, guid): &Object) -> Row<u8> {
    Row {
        comments: vec![format!("node {name:?}")],
        fields: vec![
            Field::new("- name: ", Value::Name(name.clone())),
            Field::new("  rack: ", Value::Shared(rack.clone())),
            Field::new(
                "  bmc: ",
                Value::Filled {
                    text: address.clone(),
                    template: template(address, name, rack),
                    is_own: true,
                },
            ),
            Field::new("  unit: ", Value::Number(*unit)),
            Field::new("  guid: ", Value::Guid(*guid)),
        ],
        tag: 7,
    }
}

fn folded(objects: &[Object]) -> Vec<Item<u8>> {
    let mut items = Vec::new();
    let mut folder = Folder::default();
    for object in objects {
        folder.push(row(object), |item| items.push(item));
    }
    folder.finish(|item| items.push(item));
    items
}

fn unquoted(yaml: &str) -> String {
    yaml.trim_matches('"').to_owned()
}

/// The objects for which an item stands, by the rules of the reader of site files.
fn objects(item: &Item<u8>) -> Vec<Object> {
    let value = |at: usize| unquoted(&item.lines[at].1);
    let names = expand_pattern(&value(0)).unwrap();
    assert_eq!(names.len(), item.count);
    let (racks, addresses) = (expand_pattern(&value(1)).unwrap(), expand_pattern(&value(2)).unwrap());
    assert!(
        addresses.len() == names.len() || value(2).contains("{name}"),
        "{item:?}"
    );
    let units: Vec<u32> = value(3)
        .trim_matches(['[', ']'])
        .split(", ")
        .map(|n| n.parse().unwrap())
        .collect();
    let guid = value(4);
    let (base, step) = guid.split_once('+').unwrap_or((&guid, "0x0"));
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    for count in [racks.len(), addresses.len(), units.len()] {
        assert!(names.len().is_multiple_of(count), "{item:?}");
    }
    let object = |(i, name): (usize, &String)| {
        let rack = racks[i % racks.len()].clone();
        let address = addresses[i % addresses.len()]
            .replace("{name}", name)
            .replace("{rack}", &rack);
        let unit = units[i % units.len()];
        (name.clone(), rack, address, unit, hex(base) + hex(step) * i as u64)
    };
    names.iter().enumerate().map(object).collect()
}

/// The values of the folded items, one line for each item.
fn folded_lines(objects: &[Object]) -> Vec<String> {
    let line = |item: Item<u8>| {
        let values: Vec<String> = item.lines.into_iter().map(|(_, value)| value).collect();
        values.join(" ")
    };
    folded(objects).into_iter().map(line).collect()
}

fn object(name: &str, rack: &str, address: &str, unit: u32, guid: u64) -> Object {
    (name.to_owned(), rack.to_owned(), address.to_owned(), unit, guid)
}

/// Nodes in this number of racks, four in each.
fn nodes_in_racks(racks: u64) -> Vec<Object> {
    let node = |n: u64| {
        let (rack, place) = (n / 4 + 1, n % 4);
        let name = format!("gpu-{:03}", n + 1);
        let address = format!("https://10.0.{rack}.{}", place + 10);
        let rack = format!("r{rack}");
        (
            name,
            rack,
            address,
            u32::try_from(place * 10 + 1).unwrap(),
            0x100 + n * 0x10,
        )
    };
    (0..racks * 4).map(node).collect()
}

#[test]
fn nodes_in_racks_become_one_item() {
    let wanted = "gpu-[001-020] r[1-5]*4 https://10.0.[1-5].[10-13] [1, 11, 21, 31] 0x0000000000000100+0x10";
    assert_eq!(folded_lines(&nodes_in_racks(5)), [wanted]);
    let item = &folded(&nodes_in_racks(5))[0];
    assert_eq!(
        (item.count, item.comments.as_slice()),
        (20, &["node \"gpu-[001-020]\"".to_owned()][..])
    );
}

#[test]
fn an_irregular_node_stays_single_and_its_neighbours_are_folded() {
    let mut nodes = nodes_in_racks(5);
    nodes[9].4 = 0xabcd;
    assert_eq!(
        folded_lines(&nodes),
        [
            "gpu-[001-008] r[1-2]*4 https://10.0.[1-2].[10-13] [1, 11, 21, 31] 0x0000000000000100+0x10",
            "gpu-009 r3 https://10.0.3.10 1 0x0000000000000180",
            "gpu-010 r3 https://10.0.3.11 11 0x000000000000abcd",
            "gpu-[011-012] r3 https://10.0.3.[12-13] [21, 31] 0x00000000000001a0+0x10",
            "gpu-[013-020] r[4-5]*4 https://10.0.[4-5].[10-13] [1, 11, 21, 31] 0x00000000000001c0+0x10",
        ]
    );
}

#[test]
fn a_name_inside_another_value_becomes_a_placeholder() {
    assert_eq!(template("pdu-r1-A/2", "gpu-1", "r1"), "pdu-{rack}-A/2");
    assert_eq!(template("pdu-r12-A/2", "gpu-1", "r1"), "pdu-r12-A/2");
    assert_eq!(template("https://gpu-1.bmc", "gpu-1", "r1"), "https://{name}.bmc");
    assert_eq!(template("r1-gpu-1.x", "gpu-1", "r1"), "{rack}-{name}.x");
    assert_eq!(template("a{b}", "b", "a"), "a{b}");
    let node = |n: u64| {
        let (name, rack) = (format!("r{n}-gpu"), format!("r{n}"));
        let address = format!("https://{name}.bmc");
        (name, rack, address, 1, n)
    };
    let nodes: Vec<Object> = (1..=3).map(node).collect();
    assert_eq!(
        folded_lines(&nodes),
        ["r[1-3]-gpu r[1-3] https://{name}.bmc 1 0x0000000000000001+0x1"]
    );
}

#[test]
fn items_without_consecutive_numbers_or_with_one_address_stay_single() {
    let two = [
        object("gpu-2", "r1", "https://a", 1, 5),
        object("gpu-10", "r1", "https://b", 1, 6),
    ];
    assert_eq!(folded(&two).len(), 2);
    let twins = [
        object("gpu-2", "r1", "https://10.0.0.1", 1, 5),
        object("gpu-3", "r1", "https://10.0.0.1", 1, 6),
    ];
    assert_eq!(folded(&twins).len(), 2, "two nodes with one address stay visible");
}

#[test]
fn brackets_in_the_source_are_not_read_as_patterns() {
    let with_brackets = [
        object("gpu-1", "r[1]", "https://gpu-1", 1, 5),
        object("gpu-2", "r[2]", "https://gpu-2", 1, 6),
    ];
    assert_eq!(folded(&with_brackets).len(), 2);
    let twins = [
        object("gpu-1", "r1", "https://[a]", 1, 5),
        object("gpu-2", "r1", "https://[a]", 1, 6),
    ];
    assert_eq!(folded(&twins).len(), 2, "two nodes with one address stay visible");
}

#[test]
fn a_list_of_names_becomes_patterns() {
    let named = |names: &[&str]| patterns(names.iter().copied());
    let wanted = |list: &[(&str, usize)]| -> Vec<(String, usize)> {
        list.iter()
            .map(|(pattern, count)| ((*pattern).to_owned(), *count))
            .collect()
    };
    assert!(named(&[]).is_empty());
    assert_eq!(named(&["gpu-7"]), wanted(&[("gpu-7", 1)]));
    assert_eq!(
        named(&["gpu-09", "gpu-10", "gpu-11", "gpu-20", "a-1", "b-1"]),
        wanted(&[("gpu-[09-11]", 3), ("gpu-20", 1), ("[a,b]-1", 2)])
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// For any items: the folded items stand for the same items in the same order.
    #[test]
    fn folded_items_expand_to_the_original_items(
        shape in (1u64..4, 1u64..5, 1u64..6, 0usize..3),
        start in 0u64..120,
        edits in proptest::collection::vec((0usize..60, 0u8..7, 0u64..40), 0..6),
    ) {
        let (rows, racks, places, style) = shape;
        let mut objects: Vec<Object> = Vec::new();
        for n in 0..rows * racks * places {
            let (row, rack, place) = (n / (racks * places), n / places % racks, n % places);
            let letter = char::from(b'A' + row as u8);
            let rack = format!("{letter}{:02}", rack + start);
            let name = match style {
                0 => format!("gpu-{:03}", start + n),
                1 => format!("gpu-{}", start + n),
                _ => format!("{rack}-n{place}"),
            };
            let address = match style {
                0 => format!("https://{name}"),
                1 => format!("https://10.{row}.{rack}.{}", place * 3),
                _ => format!("https://x-{name}-{rack}.net"),
            };
            objects.push((name, rack, address, (place * 7 + 1) as u32, (n + 1) * 0x40));
        }
        for (at, what, value) in edits {
            let at = at % objects.len();
            match what {
                0 => { objects.remove(at); }
                1 => objects[at].1 = format!("A{value:02}"),
                2 => objects[at].2 = format!("https://10.0.0.{value}"),
                3 => objects[at].3 = value as u32,
                4 => objects[at].4 = value,
                5 => objects[at].0 = format!("gpu-{value:03}"),
                _ => { let other = (at + 1) % objects.len(); objects.swap(at, other); }
            }
            if objects.is_empty() { break; }
        }
        let items = folded(&objects);
        let expanded: Vec<Object> = items.iter().flat_map(super::tests::objects).collect();
        prop_assert_eq!(expanded, objects);
    }
}
