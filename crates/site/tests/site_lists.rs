//! Lists of values in a site file: an item that stands for several has one value for all, or values in turn.

#![allow(clippy::unwrap_used)]

use std::fmt::Debug;

use rackwright_site::file::{Source, check};
use rackwright_site::model::Site;

const SITE: &str = "site: {name: s}
rooms: [{name: h}]
racks: [{name: 'r[1-4]', room: h, units: [42, 48], weight_limit_kg: [1 t, 1100, 1200, 1300], liquid: [false, true]}]
outlet_layouts: [{name: o, outlets: [{name: '[1-4]', amps: [16, 32]}]}, {name: q, outlets: [{name: '[1-4]'}]}]
power:
- {name: 'u[1-2]', kind: utility, feed: [A, B], watts: [20 kW, 30 kW]}
- {name: m, kind: panel, parent: u1, volts: 415, amps: 63, phases: 3}
- {name: 'b[1-3]', kind: circuit, parent: m, volts: 240, amps: [16, 20, 32], phases: 1, phase: [L1, L2, L3]}
- {name: 'p[1-2]', kind: rack-pdu, parent: 'u[1-2]', rack: r1, watts: 10 kW, outlets: [o, q], measured_watts: [1 kW, 2 kW]}
cooling_units: [{name: 'c[1-2]', kind: crah, room: h, watts: [10 kW, 20 kW]}]
skus:
- name: k[1-2]
  power: {max_watts: 1 kW}
  psus: {count: 2, watts: 1 kW, needed: 1}
  height_units: [1, 2]
  gpus: [4, 8]
  hcas: [mlx5_0]
nodes:
- name: n[1-4]
  sku: [k1, k2]
  rack: r1
  unit: [1, 5, 9, 13]
  psus: ['p1/[1-4]', 'p2/[1-4]']
  guids: {mlx5_0: [0xa0, 0xb7, 0xc9, 0xd0]}
switches: [{name: 's[1-4]', role: [leaf, spine], ports: [2, 4, 6, 8], guid: [0x1, 0x2, 0x3, 0x5]}]
";

fn site() -> Site {
    let source = Source {
        name: "site.yaml",
        text: SITE,
    };
    let checked = check(&[source]);
    assert!(checked.findings.list.is_empty(), "{:#?}", checked.findings.list);
    checked.site.unwrap()
}

/// What a list of items has, each as text.
fn each<T, V: Debug>(items: &[T], value: impl Fn(&T) -> V) -> Vec<String> {
    items.iter().map(|item| format!("{:?}", value(item))).collect()
}

#[test]
fn the_items_of_places_and_power_get_their_values_in_turn() {
    let site = site();
    assert_eq!(each(&site.racks, |rack| rack.units), ["42", "48", "42", "48"]);
    let limits = each(&site.racks, |rack| rack.weight_limit_kg.unwrap());
    assert_eq!(limits, ["1000.0", "1100.0", "1200.0", "1300.0"]);
    assert_eq!(
        each(&site.racks, |rack| rack.liquid),
        ["false", "true", "false", "true"]
    );
    let amps = each(&site.layouts[0].outlets, |outlet| outlet.amps.unwrap());
    assert_eq!(amps, ["16.0", "32.0", "16.0", "32.0"]);
    assert_eq!(each(&site.cooling_units, |unit| unit.watts), ["10000.0", "20000.0"]);
    let domain = |name: &str| site.domains.iter().find(|domain| *domain.name == *name).unwrap();
    let feeds = ["u1", "u2", "p1", "p2"].map(|name| &*site.feeds[domain(name).feed.unwrap().index()]);
    assert_eq!(feeds, ["A", "B", "A", "B"]);
    let ratings = ["u1", "u2"].map(|name| format!("{:?}", domain(name).rating));
    assert_eq!(ratings, ["Watts(20000.0)", "Watts(30000.0)"]);
    assert_eq!(
        ["b1", "b2", "b3"].map(|name| domain(name).phase.name()),
        ["L1", "L2", "L3"]
    );
    let ratings = ["b1", "b2", "b3"].map(|name| format!("{:?}", domain(name).rating));
    for (rating, amps) in ratings.iter().zip(["16.0", "20.0", "32.0"]) {
        assert!(rating.contains(&format!("amps: {amps}")), "{rating}");
    }
    let layouts = ["p1", "p2"].map(|name| &*site.layouts[domain(name).layout.unwrap().index()].name);
    assert_eq!(layouts, ["o", "q"]);
    assert_eq!(
        ["p1", "p2"].map(|name| domain(name).measured_watts),
        [Some(1000.0), Some(2000.0)]
    );
}

#[test]
fn skus_nodes_and_switches_get_their_values_in_turn() {
    let site = site();
    assert_eq!(
        each(&site.skus, |sku| (sku.height_units, sku.gpus)),
        ["(1, 4)", "(2, 8)"]
    );
    let skus: Vec<&str> = site.node_ids().map(|node| &*site.sku_of(node).name).collect();
    assert_eq!(skus, ["k1", "k2", "k1", "k2"]);
    let guids: Vec<Option<u64>> = site
        .nodes
        .iter()
        .flat_map(|node| node.port_guids.iter().copied())
        .collect();
    assert_eq!(guids, [Some(0xa0), Some(0xb7), Some(0xc9), Some(0xd0)]);
    let switches = each(&site.switches, |switch| {
        (switch.role.name(), switch.ports, switch.guid.unwrap())
    });
    assert_eq!(
        switches,
        [
            "(\"leaf\", 2, 1)",
            "(\"spine\", 4, 2)",
            "(\"leaf\", 6, 3)",
            "(\"spine\", 8, 5)"
        ]
    );
}

#[test]
fn a_list_that_does_not_fit_is_one_finding() {
    for (from, to, what) in [
        (
            "units: [42, 48]",
            "units: [42, 48, 42]",
            "3 values cannot be distributed over 4 items",
        ),
        ("units: [42, 48]", "units: [42, tall]", "`tall` is not a whole number"),
        ("feed: [A, B]", "feed: [A, b]", "`b` is not a capital letter"),
        ("kind: utility", "kind: [utility, panel]", "this must be a single value"),
        (
            "max_watts: 1 kW",
            "max_watts: [1 kW, 2 kW]",
            "this must be a single value",
        ),
        (
            "sku: [k1, k2]",
            "sku: [k1, k2, k1]",
            "3 values cannot be distributed over 4 items",
        ),
        ("sku: [k1, k2]", "sku: [k1, k3]", "there is no SKU named `k3`"),
        ("0xa0, 0xb7, ", "0xa0, ", "3 GUIDs are listed for 4 devices"),
        ("0xa0, 0xb7", "0xa0, 0xa0", "GUID 0x00000000000000a0 is given twice"),
        ("0x1, 0x2", "0x1, one", "`one` is not a GUID"),
        (
            "outlets: [o, q]",
            "outlets: [o, x]",
            "there is no outlet layout named `x`",
        ),
        (
            "phase: [L1, L2, L3]",
            "phase: [L1, L2]",
            "2 values cannot be distributed over 3 items",
        ),
    ] {
        assert!(SITE.contains(from), "{from}");
        let text = SITE.replacen(from, to, 1);
        let source = Source {
            name: "site.yaml",
            text: &text,
        };
        let findings = check(&[source]).findings;
        let whats: Vec<&str> = findings.list.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(whats, [what], "{from} -> {to}");
    }
}
