//! Named fabrics: storage beside compute, rails that are fabrics of their own, and generated halls of several fabrics.

#![allow(clippy::unwrap_used)]

use rackwright_site::file::{Checked, Source, check};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::{Action, FabricPurpose, Site, diff};

/// Two rails apart, each with a spine, and a storage leaf. The fabric of the spines follows from their cables.
const SITE: &str = "site: {name: s}
rooms: [{name: h}]
racks: [{name: r, room: h}]
skus: [{name: k, power: {max_watts: 1 kW}, psus: {count: 1, watts: 1 kW, needed: 1}, height_units: 1, hcas: [c0, c1, s0]}]
nodes: [{name: 'n[1-2]', sku: k, rack: r, unit: [1, 2]}]
fabrics:
- {name: 'rail-[0-1]'}
- {name: storage, purpose: storage}
switches:
- {name: 'leaf-[0-1]', role: leaf, ports: 8, rail: [0, 1], scalable_unit: 1, fabric: 'rail-[0-1]'}
- {name: 'spine-[0-1]', role: spine, ports: 8}
- {name: stor, role: leaf, ports: 8, fabric: storage}
- {name: spare, role: leaf, ports: 8}
cables:
- {label: 'a[1-2]', a: 'n[1-2]/c0', b: 'leaf-0/[1-2]'}
- {label: 'b[1-2]', a: 'n[1-2]/c1', b: 'leaf-1/[1-2]'}
- {label: 's[1-2]', a: 'n[1-2]/s0', b: 'stor/[1-2]'}
- {label: 'u[0-1]', a: 'leaf-[0-1]/8', b: 'spine-[0-1]/1'}
";

fn read(text: &str) -> Checked {
    let name = "site.yaml";
    check(&[Source { name, text }])
}

fn site(text: &str) -> Site {
    let Checked { site, findings } = read(text);
    assert!(findings.list.is_empty(), "{:#?}", findings.list);
    site.unwrap()
}

/// The only finding of a site with one text replaced.
fn finding(from: &str, to: &str) -> String {
    assert!(SITE.contains(from), "{from}");
    let findings = read(&SITE.replace(from, to)).findings;
    let found: Vec<String> = findings
        .list
        .iter()
        .map(|one| format!("{}: {} | {}", one.path, one.what, one.fix))
        .collect();
    assert_eq!(found.len(), 1, "{found:#?}");
    found.concat()
}

fn fabric_of<'a>(site: &'a Site, switch: &str) -> Option<&'a str> {
    let switch = site.switch(site.switch_named(switch).unwrap());
    switch.fabric.map(|fabric| &*site.fabric(fabric).name)
}

#[test]
fn a_switch_has_the_fabric_of_the_switches_that_it_is_connected_to() {
    let site = site(SITE);
    let names = ["leaf-0", "leaf-1", "spine-0", "spine-1", "stor", "spare"];
    let fabrics = names.map(|name| fabric_of(&site, name));
    let expected = [
        Some("rail-0"),
        Some("rail-1"),
        Some("rail-0"),
        Some("rail-1"),
        Some("storage"),
        None,
    ];
    assert_eq!(fabrics, expected);
    let purpose = |name: &str| site.purpose_of(site.switch_named(name).unwrap());
    assert_eq!(purpose("spine-1"), Some(FabricPurpose::Compute));
    assert_eq!(purpose("stor"), Some(FabricPurpose::Storage));
    assert_eq!(purpose("spare"), None);
    // The name at the spine is as good as the name at the leaf.
    let text = SITE.replace(", fabric: 'rail-[0-1]'", "");
    let text = text.replace("role: spine, ports: 8", "role: spine, ports: 8, fabric: 'rail-[0-1]'");
    assert_eq!(self::site(&text).switches, site.switches);
}

#[test]
fn mistakes_about_fabrics_are_named() {
    assert_eq!(
        finding("b: 'spine-[0-1]/1'", "b: 'spine-1/[1-2]'"),
        "cables[3].b: cable u1 connects the fabrics rail-0 and rail-1 | correct the cable, or `fabric` of its switches"
    );
    assert_eq!(
        finding("fabric: storage}", "fabric: storag}"),
        "switches[2].fabric: there is no fabric named `storag` | did you mean `storage`?"
    );
    assert_eq!(
        finding("- {name: storage, purpose: storage}", "- {name: [storage, spare]}"),
        "fabrics[1].name: this must be a single value | "
    );
    assert_eq!(
        finding("- {name: storage,", "- {name: old}\n- {name: storage,"),
        "fabrics[1].name: no switch is of the fabric old | write `fabric` at one of its switches, or remove it"
    );
    let words = finding("purpose: storage", "purpose: disks");
    assert!(
        words.starts_with("fabrics[1].purpose: ") && words.contains("compute"),
        "{words}"
    );
}

#[test]
fn the_summary_and_the_differences_name_fabrics() {
    let site = site(SITE);
    let words = site.summary().to_string();
    let line = words.lines().find(|line| line.starts_with("fabrics")).unwrap();
    assert_eq!(
        line,
        "fabrics    rail-0 (2 nodes), rail-1 (2 nodes), storage (2 nodes, storage)"
    );
    let counts: Vec<usize> = site.summary().fabrics.iter().map(|one| one.switches).collect();
    assert_eq!(counts, [2, 2, 1]);

    let other = self::site(&SITE.replace(
        "name: spare, role: leaf, ports: 8",
        "name: spare, role: leaf, ports: 8, fabric: storage",
    ));
    let changes = diff(&site, &other);
    assert_eq!(changes.len(), 1, "{changes:?}");
    let Action::Changed(fields) = &changes[0].action else {
        panic!("{changes:?}")
    };
    assert_eq!(
        (&*changes[0].name, fields[0].field, &*fields[0].to),
        ("spare", "fabric", "storage")
    );
    let unnamed = self::site(
        &SITE
            .replace("- {name: storage, purpose: storage}\n", "")
            .replace(", fabric: storage", ""),
    );
    let changes = diff(&unnamed, &site);
    let kinds: Vec<(&str, &str)> = changes.iter().map(|one| (one.kind, &*one.name)).collect();
    assert_eq!(kinds, [("fabric", "storage"), ("switch", "stor")]);
}

#[test]
fn a_generated_hall_beyond_three_levels_names_its_fabrics() {
    let text = site_file(&Request::new(ReferenceSku::DgxH100, 8200)).unwrap();
    let site = site(&text);
    assert!(site.switches.iter().all(|switch| switch.fabric.is_some()));
    let fabrics = site.summary().fabrics;
    let fabrics: Vec<(&str, usize)> = fabrics.iter().map(|one| (&*one.fabric, one.nodes)).collect();
    assert_eq!(fabrics, [("f1", 8192), ("f2", 8)]);
    let one = site_file(&Request::new(ReferenceSku::DgxH100, 8192)).unwrap();
    assert!(!one.contains("fabric"), "a single fabric needs no name");
}
