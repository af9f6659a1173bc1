//! Faults of a running fabric: reports, ids, and affected nodes.

// Helpers outside test functions fail a test the same way.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use rackwright_infiniband::{Device, Fabric, FabricBuilder, Guid, Plan, Rate, Speed, Width};
use rackwright_planner::cabling::plan;
use rackwright_planner::watch::{Faults, Kind, ReplacedPort, absent, broken, compare, impaired, together};
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::{Cable, NodeId, Port, Site, SwitchRole};

fn site() -> Site {
    let text = site_file(&Request::new(ReferenceSku::DgxH100, 64)).unwrap();
    let name = "site.yaml";
    let checked = check(&[Source { name, text: &text }]);
    checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings.list))
}

const NDR: Rate = Rate {
    width: Width::X4,
    speed: Speed::Ndr,
};

/// The fabric that a discovery would find if each cable had this rate, or no link. Devices without links are missing.
fn seen(plan: &Plan, rate: impl Fn(&str) -> Option<Rate>) -> Fabric {
    let planned = plan.fabric();
    let links: Vec<_> = planned
        .links()
        .filter_map(|(ix, link)| Some((link, rate(plan.cable_name(ix))?)))
        .collect();
    let linked: BTreeSet<_> = links.iter().flat_map(|(l, _)| [l.a.device, l.b.device]).collect();
    let mut builder = FabricBuilder::default();
    let mut ixs = std::collections::BTreeMap::new();
    for (ix, device) in planned.devices().filter(|(ix, _)| linked.contains(ix)) {
        let guid = device.guid;
        let device = Device {
            guid,
            ..Device::new(device.kind, &device.name, device.port_count)
        };
        ixs.insert(ix, builder.device(device));
    }
    for (link, rate) in links {
        let end = |end: rackwright_infiniband::PortRef| rackwright_infiniband::PortRef {
            device: ixs[&end.device],
            ..end
        };
        builder.connect(end(link.a), end(link.b), Some(rate)).unwrap();
    }
    builder.finish()
}

fn of_node(site: &Site, node: NodeId) -> Vec<&Cable> {
    let is = |cable: &&Cable| {
        [cable.a, cable.b]
            .iter()
            .any(|end| matches!(end, Port::Hca { node: at, .. } if *at == node))
    };
    site.cables.iter().filter(is).collect()
}

fn between(site: &Site) -> &Cable {
    let is = |cable: &&Cable| matches!((cable.a, cable.b), (Port::Switch { .. }, Port::Switch { .. }));
    site.cables.iter().find(is).unwrap()
}

fn all(site: &Site) -> BTreeSet<NodeId> {
    site.node_ids().collect()
}

#[test]
fn a_fabric_as_planned_has_no_fault() {
    let site = site();
    let plan = plan(&site).unwrap();
    assert_eq!(
        compare(&site, &plan, &seen(&plan, |_| Some(NDR)), &all(&site)).unwrap(),
        Faults::new()
    );
}

#[test]
fn a_cable_between_switches_that_is_gone_or_slow_is_one_that_nobody_can_count_on() {
    let site = site();
    let plan = plan(&site).unwrap();
    let cable = between(&site);
    let (label, ends) = (
        cable.label.to_string(),
        [cable.a, cable.b].map(|end| site.port_name(end)),
    );
    let half = Rate {
        width: Width::X2,
        ..NDR
    };
    for (rate, what) in [(None, "missing"), (Some(half), "wrong-width")] {
        let found = seen(&plan, |one| if one == label { rate } else { Some(NDR) });
        // This fault does not depend on running nodes.
        let faults = compare(&site, &plan, &found, &BTreeSet::new()).unwrap();
        let (id, fault) = faults.first_key_value().unwrap();
        assert_eq!((faults.len(), id.as_str()), (1, &*format!("cable/{what}/{label}")));
        assert_eq!((fault.kind, fault.what.as_str()), (Kind::Cable, what));
        assert_eq!(
            (&fault.cables, &fault.ends),
            (&vec![label.clone()], &vec![ends.clone()])
        );
        assert_eq!(broken(&faults), [label.clone()].into());
        assert!(impaired(&faults).is_empty(), "no node is on it");
    }
}

#[test]
fn a_port_without_link_is_told_while_its_node_should_run() {
    let site = site();
    let plan = plan(&site).unwrap();
    let node = NodeId(5);
    let name = site.node(node).name.to_string();
    let cables = of_node(&site, node);
    let port = [cables[2].a, cables[2].b]
        .into_iter()
        .find(|end| matches!(end, Port::Hca { .. }))
        .map(|end| site.port_name(end))
        .unwrap();
    let dark = |gone: &[&Cable]| {
        let gone: BTreeSet<String> = gone.iter().map(|cable| cable.label.to_string()).collect();
        seen(&plan, |one| (!gone.contains(one)).then_some(NDR))
    };
    let one = dark(&cables[2..3]);
    assert!(
        compare(&site, &plan, &one, &BTreeSet::new()).unwrap().is_empty(),
        "it may be off"
    );
    let faults = compare(&site, &plan, &one, &all(&site)).unwrap();
    assert_eq!(
        faults.keys().collect::<Vec<_>>(),
        [&format!("port-absent/{port}")],
        "{faults:?}"
    );
    assert_eq!(impaired(&faults).keys().collect::<Vec<_>>(), [&name]);
    assert!(broken(&faults).is_empty());
    // Most of it: the ports, as a reading tells them.
    let most = compare(&site, &plan, &dark(&cables[1..]), &all(&site)).unwrap();
    assert_eq!(most.len(), cables.len() - 1);
    assert!(
        most.keys().all(|id| id.starts_with(&format!("port-absent/{name}/"))),
        "{most:?}"
    );
    // All of it: one fault.
    let whole = compare(&site, &plan, &dark(&cables), &all(&site)).unwrap();
    assert_eq!(whole.keys().collect::<Vec<_>>(), [&format!("port-absent/{name}")]);
    assert_eq!(whole.values().next().unwrap().cables.len(), cables.len());

    // The same from a reading of ports: the same ids, without duplicates.
    let guids: Vec<Guid> = site
        .node(node)
        .port_guids
        .iter()
        .flatten()
        .filter_map(|g| Guid::new(*g))
        .collect();
    let read = absent(&site, &[guids[2]].into(), &all(&site));
    assert_eq!(read.keys().collect::<Vec<_>>(), faults.keys().collect::<Vec<_>>());
    assert_eq!(together(&faults, &read), faults);
    let read = absent(&site, &guids[1..].iter().copied().collect(), &all(&site));
    assert_eq!(read.keys().collect::<Vec<_>>(), most.keys().collect::<Vec<_>>());
    assert_eq!(together(&most, &read), most);
    let read = absent(&site, &guids.iter().copied().collect(), &all(&site));
    assert_eq!(read.keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>());
    assert_eq!(together(&Faults::new(), &read), read);
    assert!(absent(&site, &guids.into_iter().collect(), &BTreeSet::new()).is_empty());
}

/// The planned fabric, where the devices of each pair have each other's GUIDs or names.
fn crossed(plan: &Plan, pairs: &[&str], what: impl Fn(&mut Device, &Device)) -> Fabric {
    let planned = plan.fabric();
    let mut builder = FabricBuilder::default();
    for (_, device) in planned.devices() {
        let mut here = device.clone();
        if let Some(at) = pairs.iter().position(|name| **name == *device.name) {
            let other = planned.devices().find(|(_, other)| *other.name == *pairs[at ^ 1]);
            what(&mut here, other.unwrap().1);
        }
        builder.device(here);
    }
    for (_, link) in planned.links() {
        builder.connect(link.a, link.b, Some(NDR)).unwrap();
    }
    builder.finish()
}

#[test]
fn exchanged_leaves_are_one_fault_that_takes_no_cable_away() {
    let site = site();
    let plan = plan(&site).unwrap();
    let leaves = site.switches.iter().filter(|switch| switch.role == SwitchRole::Leaf);
    let names: Vec<&str> = leaves.map(|switch| &*switch.name).collect();
    let exchanged = |pairs: &[&str]| {
        crossed(&plan, pairs, |device, other| {
            device.guid = other.guid;
            device.name = other.name.clone();
        })
    };
    let faults = compare(&site, &plan, &exchanged(&names[..2]), &all(&site)).unwrap();
    let id = format!("cable/devices-exchanged/{}", names[0]);
    assert_eq!(faults.keys().collect::<Vec<_>>(), [&id], "{faults:?}");
    assert!(broken(&faults).is_empty() && impaired(&faults).is_empty());
    assert!(faults[&id].cables.len() >= 64 && !faults[&id].nodes.is_empty());
    // Not one cable is at the planned leaf, and it is this site all the same.
    assert!(names.len().is_multiple_of(2));
    let faults = compare(&site, &plan, &exchanged(&names), &all(&site)).unwrap();
    assert_eq!(faults.len(), names.len() / 2, "{:?}", faults.keys());
}

/// The planned fabric, where the device of this name has this node GUID and the port GUIDs that follow.
fn with_another(plan: &Plan, name: &str, guid: u64) -> Fabric {
    with_another_at(plan, name, guid, name)
}

/// The same, where the cable of this adapter and the one of `other` are at each other's leaf ports.
fn with_another_at(plan: &Plan, name: &str, guid: u64, other: &str) -> Fabric {
    let planned = plan.fabric();
    let mut builder = FabricBuilder::default();
    let mut at = None;
    for (_, device) in planned.devices() {
        let is_it = *device.name == *name;
        let guid = if is_it { Guid::new(guid) } else { device.guid };
        let ix = builder.device(Device { guid, ..device.clone() });
        at = at.or(is_it.then_some((ix, device.is_adapter(), device.port_count)));
    }
    let mut links: Vec<_> = planned.links().map(|(_, link)| [link.a, link.b]).collect();
    if other != name {
        let far_end = |name: &str| {
            let ix = planned.devices().find(|(_, device)| *device.name == *name).unwrap().0;
            let mut ends = links.iter().enumerate();
            let at = ends.find_map(|(at, ends)| Some((at, ends.iter().position(|end| end.device == ix)?)));
            at.map(|(at, near)| (at, 1 - near)).unwrap()
        };
        let ((a, a_far), (b, b_far)) = (far_end(name), far_end(other));
        (links[a][a_far], links[b][b_far]) = (links[b][b_far], links[a][a_far]);
    }
    for [a, b] in links {
        builder.connect(a, b, Some(NDR)).unwrap();
    }
    let (device, is_adapter, ports) = at.unwrap();
    for port in (1..=ports).filter(|_| is_adapter) {
        let end = rackwright_infiniband::PortRef { device, port };
        builder.port(end).unwrap().guid = Guid::new(guid + u64::from(port));
    }
    builder.finish()
}

#[test]
fn a_replaced_adapter_impairs_its_node_and_the_fault_names_the_port_guid_for_the_site_file() {
    let site = site();
    let plan = plan(&site).unwrap();
    let node = NodeId(5);
    let name = site.node(node).name.to_string();
    let hca = site.sku_of(node).hcas[2].name.to_string();
    let found = with_another(&plan, &format!("{name} {hca}"), 0xabc0);
    let faults = compare(&site, &plan, &found, &all(&site)).unwrap();
    let (id, fault) = faults.first_key_value().unwrap();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(id.starts_with("cable/device-replaced/"), "{id}");
    let former = Guid::new(site.node(node).port_guids[2].unwrap()).unwrap();
    let (there, port) = (Guid::new(0xabc0).unwrap(), Guid::new(0xabc1).unwrap());
    assert!(fault.text.contains(&format!("instead of {former}")), "{}", fault.text);
    assert!(fault.text.contains(&format!("in its place, {there}")), "{}", fault.text);
    let field = format!("; if it was replaced, the site file needs `guids: {{{hca}: {port}}}` of node {name}");
    assert!(fault.text.ends_with(&field), "{}", fault.text);
    assert_eq!(impaired(&faults), [(name.clone(), fault.text.clone())].into());
    assert!(broken(&faults).is_empty());
    let replaced = ReplacedPort {
        node: name,
        hca,
        former,
        port,
        is_in_place: true,
    };
    assert_eq!(fault.replaced, [replaced]);
    // The former port is not in the fabric: the same fault.
    let read = absent(&site, &[former].into(), &all(&site));
    assert_eq!(read.len(), 1);
    assert_eq!(together(&faults, &read), faults);
}

#[test]
fn a_replaced_adapter_at_another_leaf_port_is_not_in_place() {
    let site = site();
    let plan = plan(&site).unwrap();
    let name = |node: NodeId| format!("{} {}", site.node(node).name, site.sku_of(node).hcas[2].name);
    let found = with_another_at(&plan, &name(NodeId(5)), 0xabc0, &name(NodeId(6)));
    let faults = compare(&site, &plan, &found, &all(&site)).unwrap();
    let replaced: Vec<&ReplacedPort> = faults.values().flat_map(|fault| &fault.replaced).collect();
    assert_eq!(replaced.len(), 1, "{faults:?}");
    assert_eq!((replaced[0].port.get(), replaced[0].is_in_place), (0xabc1, false));
}

#[test]
fn a_replaced_switch_impairs_no_node_and_the_fault_names_its_guid_for_the_site_file() {
    let site = site();
    let plan = plan(&site).unwrap();
    let leaf = site.switches.iter().find(|switch| switch.role == SwitchRole::Leaf);
    let leaf = &*leaf.unwrap().name;
    let faults = compare(&site, &plan, &with_another(&plan, leaf, 0xabc0), &all(&site)).unwrap();
    let (_, fault) = faults.first_key_value().unwrap();
    assert_eq!(faults.len(), 1, "{faults:?}");
    let there = Guid::new(0xabc0).unwrap();
    let field = format!("; if it was replaced, the site file needs `guid: {there}` of switch {leaf}");
    assert!(fault.text.ends_with(&field), "{}", fault.text);
    assert!(impaired(&faults).is_empty() && broken(&faults).is_empty());
}

#[test]
fn names_that_a_customer_gives_are_no_faults() {
    let site = site();
    let plan = plan(&site).unwrap();
    let adapters = plan.fabric().devices().filter(|(_, device)| device.is_adapter());
    let names: Vec<&str> = adapters.take(9).map(|(_, device)| &*device.name).collect();
    assert!(
        plan.fabric()
            .devices()
            .all(|(_, device)| !device.is_adapter() || device.guid.is_some())
    );
    let found = crossed(&plan, &[names[0], names[8]], |device, _| {
        device.name = "customer-1 mlx5_0".into()
    });
    assert_eq!(compare(&site, &plan, &found, &all(&site)).unwrap(), Faults::new());
}

#[test]
fn a_slow_port_impairs_its_node() {
    let site = site();
    let plan = plan(&site).unwrap();
    let label = of_node(&site, NodeId(9))[0].label.to_string();
    let slow = Rate {
        speed: Speed::Hdr,
        ..NDR
    };
    let found = seen(&plan, |one| Some(if one == label { slow } else { NDR }));
    let faults = compare(&site, &plan, &found, &BTreeSet::new()).unwrap();
    assert_eq!(
        faults.keys().collect::<Vec<_>>(),
        [&format!("cable/wrong-speed/{label}")]
    );
    let why = impaired(&faults);
    let why = &why[&*site.node(NodeId(9)).name];
    assert!(why.contains("HDR") && why.contains("NDR"), "{why}");
    assert!(broken(&faults).is_empty());
}

#[test]
fn a_switch_that_is_gone_is_one_fault_with_all_nodes_and_all_links_up() {
    let site = site();
    let plan = plan(&site).unwrap();
    let leaf = site
        .switch_ids()
        .find(|id| site.switch(*id).role == SwitchRole::Leaf)
        .unwrap();
    let on = |cable: &&Cable| {
        [cable.a, cable.b]
            .iter()
            .any(|end| matches!(end, Port::Switch { switch, .. } if *switch == leaf))
    };
    let gone: BTreeSet<String> = site.cables.iter().filter(on).map(|c| c.label.to_string()).collect();
    let found = seen(&plan, |one| (!gone.contains(one)).then_some(NDR));
    let cables = compare(&site, &plan, &found, &all(&site)).unwrap();
    let name = &site.switch(leaf).name;
    assert_eq!(
        cables.keys().collect::<Vec<_>>(),
        [&format!("cable/device-missing/{name}")]
    );
    assert_eq!(impaired(&cables).len(), 32);
    assert_eq!(broken(&cables).len(), gone.len() - 32);
    // The ports behind it are not reported again.
    let ports: BTreeSet<Guid> = site
        .nodes
        .iter()
        .filter_map(|node| node.port_guids.first().copied().flatten().and_then(Guid::new))
        .collect();
    let ports = absent(&site, &ports, &all(&site));
    let faults = together(&cables, &ports);
    let others = faults.keys().filter(|id| id.starts_with("port-absent/")).count();
    assert_eq!((ports.len(), others), (64, 32), "those of the other unit are");
}

#[test]
fn a_fabric_that_is_slower_as_a_whole_is_told_once_and_what_is_slower_still_is_told_apart() {
    let site = site();
    let plan = plan(&site).unwrap();
    let label = of_node(&site, NodeId(9))[0].label.to_string();
    let hdr = Rate {
        speed: Speed::Hdr,
        ..NDR
    };
    let narrow = Rate {
        width: Width::X1,
        ..hdr
    };
    let found = seen(&plan, |one| Some(if one == label { narrow } else { hdr }));
    let faults = compare(&site, &plan, &found, &BTreeSet::new()).unwrap();
    let ids: Vec<_> = faults.keys().map(String::as_str).collect();
    assert_eq!(ids, ["cable/rate", &format!("cable/wrong-speed/{label}")]);
    assert!(faults["cable/rate"].text.contains("4xHDR"), "{faults:?}");
    assert_eq!(impaired(&faults).len(), 1);
    assert!(
        broken(&faults).is_empty(),
        "links that run as all others do are no broken ones"
    );
}

#[test]
fn another_fabric_is_no_fault_of_this_one() {
    let site = site();
    let plan = plan(&site).unwrap();
    let nothing = seen(&plan, |_| None);
    let why = compare(&site, &plan, &nothing, &all(&site)).unwrap_err();
    assert!(why.contains("it is another fabric"), "{why}");
}
