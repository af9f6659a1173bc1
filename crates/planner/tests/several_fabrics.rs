//! Sites of several fabrics: independent ones, storage beside compute, rails apart, and generated halls.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod irregular_common;
#[path = "../../placement/tests/placement_common/mod.rs"]
mod placement_common;

use irregular_common::{read, sound};
use placement_common::judge;
use rackwright_infiniband::check::check;
use rackwright_placement::{Bandwidth, ClusterId, CustomerId, Placement, Request, SkuId};
use rackwright_planner::cabling::{plan, plan_of};
use rackwright_planner::hall::{hall, irregularities};
use rackwright_planner::planner::Planner;
use rackwright_site::generate::{ReferenceSku, Request as Reference, site_file};
use rackwright_site::model::{FabricPurpose, Site, SwitchId};

/// Racks with power for one node each, and the nodes.
const NODES: &str = "site: {name: lab}
rooms: [{name: hall}]
racks: [{name: 'r[01-11]', room: hall}]
outlet_layouts: [{name: c19-4, outlets: [{name: '[1-4]', phase: [L1, L2, L3, L1], amps: 16}]}]
power:
- {name: utility-a, kind: utility, feed: A, watts: 6 MW}
- {name: utility-b, kind: utility, feed: B, watts: 6 MW}
- {name: 'pdu-a-r[01-11]', kind: rack-pdu, parent: utility-a, rack: 'r[01-11]',
   volts: 415, amps: 32, phases: 3, outlets: c19-4}
- {name: 'pdu-b-r[01-11]', kind: rack-pdu, parent: utility-b, rack: 'r[01-11]',
   volts: 415, amps: 32, phases: 3, outlets: c19-4}
skus:
- name: gpu
  power: {typical_watts: 5600, max_watts: 10.2 kW}
  psus: {count: 6, watts: 3300, needed: 4}
  height_units: 8
  hcas: [mlx5_0, mlx5_1, mlx5_2]
- {name: store, power: {max_watts: 1 kW}, psus: {count: 2, watts: 1000, needed: 1}, height_units: 2, hcas: [mlx5_0]}
nodes:
- name: '[a1,a2,a3,a4,b1,b2,b3,b4,b5,b6]'
  sku: gpu
  rack: 'r[01-10]'
  unit: 3
  psus: ['pdu-a-{rack}/1', 'pdu-a-{rack}/2', 'pdu-a-{rack}/3', 'pdu-b-{rack}/1', 'pdu-b-{rack}/2', 'pdu-b-{rack}/3']
- {name: store, sku: store, rack: r11, unit: 3, psus: ['pdu-a-{rack}/1', 'pdu-b-{rack}/1']}
customers: [{name: acme}]
";

/// Two compute fabrics that number their units alike: one of two units of two nodes, one of two units of three nodes. All
/// nodes have a cable to storage.
const HALLS: &str = "fabrics: [{name: east}, {name: west}, {name: disks, purpose: storage}]
switches:
- {name: 'e-leaf-[1-2]-[0-1]', role: leaf, ports: 8, rail: [0, 1], scalable_unit: [1, 1, 2, 2], fabric: east}
- {name: 'e-spine-[1-2]', role: spine, ports: 8}
- {name: 'w-leaf-[1-2]-[0-1]', role: leaf, ports: 8, rail: [0, 1], scalable_unit: [1, 1, 2, 2], fabric: west}
- {name: 'w-spine-[1-3]', role: spine, ports: 8}
- {name: d-leaf, role: leaf, ports: 16, scalable_unit: 1, fabric: disks}
cables:
- {label: 'ea[1-2]', a: 'a[1-2]/mlx5_0', b: 'e-leaf-1-0/[1-2]'}
- {label: 'eb[1-2]', a: 'a[1-2]/mlx5_1', b: 'e-leaf-1-1/[1-2]'}
- {label: 'ec[1-2]', a: 'a[3-4]/mlx5_0', b: 'e-leaf-2-0/[1-2]'}
- {label: 'ed[1-2]', a: 'a[3-4]/mlx5_1', b: 'e-leaf-2-1/[1-2]'}
- {label: 'eu[1-4]', a: 'e-leaf-[1-2]-[0-1]/7', b: 'e-spine-1/[1-4]'}
- {label: 'ev[1-4]', a: 'e-leaf-[1-2]-[0-1]/8', b: 'e-spine-2/[1-4]'}
- {label: 'wa[1-3]', a: 'b[1-3]/mlx5_0', b: 'w-leaf-1-0/[1-3]'}
- {label: 'wb[1-3]', a: 'b[1-3]/mlx5_1', b: 'w-leaf-1-1/[1-3]'}
- {label: 'wc[1-3]', a: 'b[4-6]/mlx5_0', b: 'w-leaf-2-0/[1-3]'}
- {label: 'wd[1-3]', a: 'b[4-6]/mlx5_1', b: 'w-leaf-2-1/[1-3]'}
- {label: 'wu[1-4]', a: 'w-leaf-[1-2]-[0-1]/6', b: 'w-spine-1/[1-4]'}
- {label: 'wv[1-4]', a: 'w-leaf-[1-2]-[0-1]/7', b: 'w-spine-2/[1-4]'}
- {label: 'ww[1-4]', a: 'w-leaf-[1-2]-[0-1]/8', b: 'w-spine-3/[1-4]'}
- {label: 'da[1-4]', a: 'a[1-4]/mlx5_2', b: 'd-leaf/[1-4]'}
- {label: 'db[1-6]', a: 'b[1-6]/mlx5_2', b: 'd-leaf/[5-10]'}
- {label: dc, a: store/mlx5_0, b: d-leaf/11}
";

/// Two rails, each a fabric with one spine, and two units of two nodes.
const RAILS: &str = "fabrics: [{name: 'rail-[0-1]'}]
switches:
- {name: 'leaf-[1-2]-[0-1]', role: leaf, ports: 8, rail: [0, 1], scalable_unit: [1, 1, 2, 2], fabric: [rail-0, rail-1]}
- {name: 'spine-[0-1]', role: spine, ports: 8}
cables:
- {label: 'a[1-2]', a: 'a[1-2]/mlx5_0', b: 'leaf-1-0/[1-2]'}
- {label: 'b[1-2]', a: 'a[1-2]/mlx5_1', b: 'leaf-1-1/[1-2]'}
- {label: 'c[1-2]', a: 'a[3-4]/mlx5_0', b: 'leaf-2-0/[1-2]'}
- {label: 'd[1-2]', a: 'a[3-4]/mlx5_1', b: 'leaf-2-1/[1-2]'}
- {label: 'u[1-4]', a: 'leaf-[1-2]-0/[7-8]', b: 'spine-0/[1-4]'}
- {label: 'v[1-4]', a: 'leaf-[1-2]-1/[7-8]', b: 'spine-1/[1-4]'}
";

fn wish(number: u64, nodes: u32) -> Request {
    Request::plain(ClusterId(number), CustomerId(0), SkuId(0), nodes)
}

fn words(site: &Site) -> Vec<String> {
    irregularities(site).iter().map(ToString::to_string).collect()
}

fn names(site: &Site, placement: &Placement) -> Vec<String> {
    let names = placement
        .nodes
        .iter()
        .map(|node| site.nodes[node.at()].name.to_string());
    names.collect()
}

#[test]
fn the_plan_of_a_fabric_has_no_part_of_another_fabric() {
    let site = read(&format!("{NODES}{HALLS}"));
    let compute = |switch: SwitchId| site.purpose_of(switch) != Some(FabricPurpose::Storage);
    let of = |name: &'static str| {
        let site = &site;
        move |switch: SwitchId| {
            let fabric = site.switch(switch).fabric;
            fabric.is_some_and(|fabric| *site.fabric(fabric).name == *name)
        }
    };
    let [all, compute, disks, east] = [
        plan(&site),
        plan_of(&site, compute),
        plan_of(&site, of("disks")),
        plan_of(&site, of("east")),
    ]
    .map(Result::unwrap);
    for (plan, cables) in [(&all, 51), (&compute, 40), (&disks, 11), (&east, 16)] {
        let report = check(plan, plan.fabric());
        assert_eq!((report.cables, report.right), (cables, cables), "{:#?}", report.faults);
        assert!(report.is_clean(), "{:#?}", report.faults);
    }
    // A dump of one fabric lacks the others.
    assert!(!check(&all, east.fabric()).is_clean());
    let node = site.node_named("a1").unwrap();
    let hcas: Vec<&str> = site.compute_ports(node).map(|(hca, _)| &*hca.name).collect();
    assert_eq!(hcas, ["mlx5_0", "mlx5_1"]);
}

/// A planner from the stored names is the same.
fn restores(site: &Site, planner: &Planner<'_>) {
    let clusters = planner.hall().clusters();
    let named: Vec<_> = clusters.values().map(|placement| planner.named(placement)).collect();
    let again = Planner::restore_named(site, &named).unwrap();
    assert_eq!(again.hall().clusters(), clusters);
}

#[test]
fn a_cluster_is_in_one_of_two_fabrics_that_number_their_units_alike() {
    let site = read(&format!("{NODES}{HALLS}"));
    assert_eq!(words(&site), Vec::<String>::new());
    let spec = hall(&site);
    let pods: Vec<(&str, usize)> = spec.pods.iter().map(|pod| (&*pod.name, pod.units.len())).collect();
    assert_eq!(pods, [("pod 1 of west", 2), ("pod 1 of east", 2)]);
    assert_eq!((spec.tree.spines, spec.more_fabrics[0].tree.spines), (3, 2));
    let unit_of = |name: &str| spec.nodes[site.node_named(name).unwrap().index()].unit;
    assert_eq!(unit_of("store"), None);
    assert!(unit_of("a1").is_some() && unit_of("a1") != unit_of("b1"));

    let mut planner = Planner::new(&site).unwrap();
    let refused = planner.place(wish(1, 7)).unwrap_err().to_string();
    let why = "a cluster is in one fabric, and no fabric has more than 6 free nodes of gpu; 7 are requested";
    assert!(refused.starts_with(why), "{refused}");
    let west = planner.place(wish(1, 6)).unwrap();
    assert_eq!(names(&site, &west), ["b1", "b2", "b3", "b4", "b5", "b6"]);
    assert!(planner.draw(&west).contains("pod 1 of west"));
    let east = planner.place(wish(2, 4)).unwrap();
    assert_eq!(names(&site, &east), ["a1", "a2", "a3", "a4"]);
    assert!(planner.named(&east).uplinks.iter().all(|one| one.cables.len() == 2));
    sound(&planner, &site);
    restores(&site, &planner);
}

/// The halls with another cable, or without one.
fn halls_with(changes: &[(&str, &str)]) -> Site {
    let mut halls = HALLS.to_owned();
    for (cable, instead) in changes {
        assert_eq!(halls.matches(cable).count(), 1, "{cable}");
        halls = halls.replace(cable, instead);
    }
    read(&format!("{NODES}{halls}"))
}

#[test]
fn a_node_that_lacks_a_rail_is_in_no_non_blocking_cluster_of_its_fabric() {
    let site = halls_with(&[(
        "'wd[1-3]', a: 'b[4-6]/mlx5_1', b: 'w-leaf-2-1/[1-3]'",
        "'wd[1-2]', a: 'b[4-5]/mlx5_1', b: 'w-leaf-2-1/[1-2]'",
    )]);
    // The HCA for storage is no rail of the unit.
    assert_eq!(
        words(&site),
        [
            "node b6 has no cable to w-leaf-2-1: the node has 1 of 2 rails and joins no non-blocking cluster, so unit su02 \
             of west gives 2 of 3 non-blocking nodes"
        ]
    );
    let mut planner = Planner::new(&site).unwrap();
    let refused = planner.place(wish(1, 6)).unwrap_err().to_string();
    let why =
        "a cluster is in one fabric, and no fabric has more than 5 free nodes of gpu with all rails; 6 are requested";
    assert!(refused.starts_with(why), "{refused}");
    let slower = Request {
        bandwidth: Bandwidth::Ratio { down: 2, up: 1 },
        ..wish(2, 6)
    };
    let placed = planner.place(slower).unwrap();
    assert_eq!(names(&site, &placed), ["b1", "b2", "b3", "b4", "b5", "b6"]);
    planner.release(ClusterId(2)).unwrap();
    let whole = planner.place(wish(1, 5)).unwrap();
    assert_eq!(names(&site, &whole), ["b1", "b2", "b3", "b4", "b5"]);
    sound(&planner, &site);
}

#[test]
fn a_node_with_cables_to_storage_alone_is_left_out_with_a_warning_and_a_storage_server_without() {
    let site = halls_with(&[
        (
            "'wa[1-3]', a: 'b[1-3]/mlx5_0', b: 'w-leaf-1-0/[1-3]'",
            "'wa[2-3]', a: 'b[2-3]/mlx5_0', b: 'w-leaf-1-0/[2-3]'",
        ),
        (
            "'wb[1-3]', a: 'b[1-3]/mlx5_1', b: 'w-leaf-1-1/[1-3]'",
            "'wb[2-3]', a: 'b[2-3]/mlx5_1', b: 'w-leaf-1-1/[2-3]'",
        ),
    ]);
    let words = words(&site);
    let expected =
        "node b1 is cabled to a storage fabric alone: it is left out, and 9 of 10 nodes of gpu can be placed";
    assert!(words.iter().any(|one| one == expected), "{words:#?}");
    assert!(words.iter().all(|one| !one.contains("store ")), "{words:#?}");
}

#[test]
fn an_absent_uplink_costs_nothing_where_the_unit_is_alone_in_its_fabric() {
    let site = halls_with(&[
        ("- {label: 'ec[1-2]', a: 'a[3-4]/mlx5_0', b: 'e-leaf-2-0/[1-2]'}\n", ""),
        ("- {label: 'ed[1-2]', a: 'a[3-4]/mlx5_1', b: 'e-leaf-2-1/[1-2]'}\n", ""),
        (
            "- {label: 'ev[1-4]', a: 'e-leaf-[1-2]-[0-1]/8', b: 'e-spine-2/[1-4]'}",
            "- {label: 'ev[1-2]', a: 'e-leaf-2-[0-1]/8', b: 'e-spine-2/[1-2]'}\n\
             - {label: ev3, a: e-leaf-1-1/8, b: e-spine-2/3}",
        ),
    ]);
    let cost = ": this costs no node, because the unit is alone in its fabric";
    let words = words(&site);
    let is_uplink = |one: &&String| one.starts_with("e-leaf-1-0 ") && one.ends_with(cost);
    assert_eq!(words.iter().filter(is_uplink).count(), 1, "{words:#?}");
    assert!(words.iter().all(|one| !one.contains("non-blocking")), "{words:#?}");
}

#[test]
fn without_names_the_smaller_fabric_is_left_out_and_the_remedy_is_named() {
    let named = HALLS.find("switches:").unwrap();
    let halls = HALLS[named..]
        .replace(", fabric: east", "")
        .replace(", fabric: west", "");
    let site = read(&format!(
        "{NODES}{}",
        halls
            .replace(", fabric: disks", "")
            .replace("scalable_unit: [1, 1, 2, 2]", "pod: 1")
    ));
    let found = irregularities(&site);
    let beside = found
        .iter()
        .find(|one| one.what.starts_with("e-leaf-1-0 and "))
        .unwrap();
    assert!(beside.cost.ends_with("with its 4 nodes"), "{beside}");
    assert!(beside.fix.contains("`fabrics`"), "{}", beside.fix);
    let mut planner = Planner::new(&site).unwrap();
    assert_eq!(planner.place(wish(1, 6)).unwrap().nodes.len(), 6);
    assert!(planner.place(wish(2, 1)).is_err());
}

#[test]
fn rails_that_are_fabrics_of_their_own_are_used_together() {
    let site = read(&format!("{NODES}{RAILS}"));
    // Only the nodes without a cable are reported.
    let reported = words(&site);
    assert!(
        reported.iter().all(|one| one.contains("has no cable to a leaf")),
        "{reported:#?}"
    );
    assert_eq!(reported.len(), 7);
    let spec = hall(&site);
    assert_eq!(
        (spec.pods.len(), spec.pods[0].units.len(), spec.more_fabrics.len()),
        (1, 2, 0)
    );
    let mut planner = Planner::new(&site).unwrap();
    let placed = planner.place(wish(1, 4)).unwrap();
    let uplinks = planner.named(&placed).uplinks;
    assert_eq!(uplinks[0].leaves, ["leaf-1-0", "leaf-1-1"]);
    assert_eq!(uplinks[0].cables, ["spine-0", "spine-0#2"]);
    assert_eq!(judge(planner.hall()), Vec::<String>::new());
    restores(&site, &planner);
}

#[test]
fn generated_halls_beyond_three_levels_use_every_fabric() {
    // The second fabric has three levels with fewer cores, or two levels.
    for more in [300, 128] {
        let text = site_file(&Reference::new(ReferenceSku::DgxH100, 8192 + more)).unwrap();
        let site = read(&format!("{text}---\ncustomers:\n- {{name: acme}}\n"));
        assert_eq!(words(&site), Vec::<String>::new());
        let mut planner = Planner::new(&site).unwrap();
        let refused = planner.place(wish(1, 8193)).unwrap_err().to_string();
        assert!(refused.starts_with("a cluster is in one fabric, "), "{refused}");
        let first = planner.place(wish(1, 8192)).unwrap();
        assert!(names(&site, &first).iter().all(|name| &**name <= "gpu-8192"));
        let second = planner.place(wish(2, more as u32)).unwrap();
        assert_eq!(second.nodes.len(), more);
        assert_eq!(second.cores.is_empty(), more == 128);
        let spine = &planner.named(&second).uplinks[0].cables[0];
        assert!(spine.starts_with("f2-spine-"), "{spine}");
        restores(&site, &planner);
    }
}
