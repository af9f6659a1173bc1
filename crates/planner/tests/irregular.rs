//! Sites with one irregularity each: placement leaves out the part, and a warning names the part and the cost.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod irregular_common;
#[path = "../../placement/tests/placement_common/mod.rs"]
mod placement_common;

use std::collections::BTreeSet;

use irregular_common::{read, sound};
use placement_common::{Dice, seed};
use rackwright_placement::{Bandwidth, ClusterId, CustomerId, Placement, Request, SkuId};
use rackwright_planner::hall::{Culprit, hall_node, irregularities, site_node};
use rackwright_planner::planner::Planner;
use rackwright_site::file::Source;
use rackwright_site::finding::Findings;
use rackwright_site::generate::{ReferenceSku, Request as Reference, site_file};
use rackwright_site::model::{NodeId, Port, Site, SwitchId, SwitchRole};

/// A generated site with one customer, and further sections.
fn text(nodes: usize, more: &str) -> String {
    let text = site_file(&Reference::new(ReferenceSku::DgxH100, nodes)).unwrap();
    format!("{text}---\ncustomers:\n- {{name: acme}}\n{more}")
}

fn site(nodes: usize) -> Site {
    read(&text(nodes, ""))
}

fn findings(text: &str) -> Findings {
    let name = "site.yaml";
    rackwright_planner::check(&[Source { name, text }]).findings
}

fn wish(number: u64, nodes: u32) -> Request {
    Request::plain(ClusterId(number), CustomerId(0), SkuId(0), nodes)
}

fn words(site: &Site) -> Vec<String> {
    irregularities(site).iter().map(ToString::to_string).collect()
}

fn nodes_of(placement: &Placement) -> BTreeSet<NodeId> {
    placement.nodes.iter().map(|node| site_node(*node)).collect()
}

/// All nodes but these get a cluster together, and a cluster of one node more is refused.
fn all_but(site: &Site, out: &[NodeId]) {
    let mut planner = Planner::new(site).unwrap();
    let (all, rest) = (site.nodes.len(), site.nodes.len() - out.len());
    let refused = planner.place(wish(1, rest as u32 + 1)).unwrap_err().to_string();
    let named = format!("{} nodes of the hall are left out", out.len());
    assert!(refused.contains(&named), "{refused}");
    let placed = planner.place(wish(1, rest as u32)).unwrap();
    let expected: BTreeSet<NodeId> = site.node_ids().filter(|node| !out.contains(node)).collect();
    assert_eq!((nodes_of(&placed), expected.len()), (expected, all - out.len()));
    sound(&planner, site);
    // A planner from the stored names is the same, and the node stays out of it.
    let again = Planner::restore_named(site, &[planner.named(&placed)]).unwrap();
    assert_eq!(again.placement(ClusterId(1)), Some(&placed));
    for node in out {
        assert!(!again.hall().is_free(hall_node(*node)));
    }
}

/// Removes all cables of a node.
fn uncable(site: &mut Site, node: NodeId) {
    let of_node = |port: Port| matches!(port, Port::Hca { node: other, .. } if other == node);
    site.cables.retain(|cable| !of_node(cable.a) && !of_node(cable.b));
}

/// Removes the first cable between two switches.
fn cut(site: &mut Site, low: &str, high: &str) {
    let ends = [low, high].map(|name| site.switch_named(name).unwrap());
    let is = |port: Port, of: SwitchId| matches!(port, Port::Switch { switch, .. } if switch == of);
    let [a, b] = ends;
    let mut cables = site.cables.iter();
    let at = cables.position(|one| is(one.a, a) && is(one.b, b) || is(one.a, b) && is(one.b, a));
    site.cables.remove(at.unwrap());
}

#[test]
fn a_regular_site_has_no_irregularity() {
    for nodes in [1, 32, 33, 96, 129, 300] {
        let site = site(nodes);
        assert_eq!(words(&site), Vec::<String>::new(), "{nodes} nodes");
        let spec = rackwright_planner::hall::hall(&site);
        assert!(spec.absent_uplinks.is_empty() && spec.absent_cores.is_empty());
        assert!(spec.nodes.iter().all(|node| node.unit.is_some()));
    }
}

#[test]
fn a_delivered_node_without_cables_is_left_out() {
    let mut site = site(96);
    let node = site.node_named("gpu-07").unwrap();
    uncable(&mut site, node);
    let found = irregularities(&site);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].culprit, Culprit::Node(node));
    assert_eq!(
        found[0].to_string(),
        "node gpu-07 has no cable to a leaf: it is left out, and 95 of 96 nodes of dgx-h100 can be placed"
    );
    all_but(&site, &[node]);
}

#[test]
fn validate_warns_at_the_line_of_a_node_without_cables() {
    let more = "nodes:\n- name: late-[1-5]\n  sku: dgx-h100\n  rack: net-r1\n  psus: [~, ~, ~, ~, ~, ~]\n";
    let text = text(96, more);
    let found = findings(&text);
    let warning = found.list.iter().find(|one| one.what.contains("late-")).unwrap();
    let line = text.lines().position(|line| line.contains("late-[1-5]")).unwrap() + 1;
    assert_eq!((warning.line as usize, warning.column), (line, 9));
    assert_eq!(warning.path, "nodes[0].name");
    assert_eq!(
        warning.what,
        "5 nodes (late-[1-5]) have no cable to a leaf: they are left out, and 96 of 101 nodes of dgx-h100 can be placed"
    );
    assert_eq!(findings(&self::text(96, "")).warnings, 0);
}

/// A site with 1,000 nodes of one item on one leaf.
const THOUSAND: &str = "site: {name: lab}
rooms:
- name: hall
racks:
- {name: r1, room: hall}
power:
- {name: utility, kind: utility, feed: A, watts: 1 MW}
- {name: circuit, kind: circuit, parent: utility, watts: 1 MW}
- name: shelf
  kind: power-shelf
  parent: circuit
  rack: r1
  watts: 1 MW
  outlets: [{name: 1}]
skus:
- {name: gpu, power: {max_watts: 500}, psus: {count: 2, watts: 500, needed: 1}, height_units: 1, hcas: [mlx5_0]}
nodes:
- name: gpu-[0001-1000]
  sku: gpu
  rack: r1
  psus: [~, ~]
switches:
- {name: leaf, role: leaf, ports: 1000}
cables:
- {label: 'c[0001-1000]', a: 'gpu-[0001-1000]/mlx5_0', b: 'leaf/[1-1000]'}
";

#[test]
fn a_thousand_nodes_without_psus_are_one_line() {
    let found = findings(THOUSAND);
    assert_eq!((found.errors, found.warnings), (0, 1), "{:#?}", found.list);
    let warning = &found.list[0];
    let line = THOUSAND.lines().position(|line| line == "  psus: [~, ~]").unwrap() + 1;
    assert_eq!((warning.line as usize, warning.path.as_str()), (line, "nodes[0].psus"));
    assert_eq!(
        (warning.what.as_str(), warning.fix.as_str()),
        (
            "1,000 nodes (gpu-[0001-1000]) have no PSU plugged in: \
             they are left out, and 0 of 1000 nodes of gpu can be placed",
            "plug in the PSUs, and write their outlets in `psus`"
        )
    );
}

#[test]
fn nodes_of_one_item_with_different_faults_are_one_line_for_each_fault() {
    let cut = (
        "[0001-1000]', a: 'gpu-[0001-1000]/",
        "[0001-0998]', a: 'gpu-[0001-0998]/",
    );
    let text = THOUSAND.replace(cut.0, cut.1).replace("leaf/[1-1000]", "leaf/[1-998]");
    let found = findings(&text);
    let whats: Vec<&str> = found.list.iter().map(|one| one.what.as_str()).collect();
    let cost = "they are left out, and 0 of 1000 nodes of gpu can be placed";
    assert_eq!(
        whats,
        [
            format!("2 nodes (gpu-[0999-1000]) have no cable to a leaf: {cost}"),
            format!("998 nodes (gpu-[0001-0998]) have no PSU plugged in: {cost}"),
        ]
    );
}

#[test]
fn a_node_cabled_to_two_units_is_left_out_and_not_the_units() {
    let mut site = site(96);
    let (first, other) = (site.node_named("gpu-01").unwrap(), site.node_named("gpu-33").unwrap());
    // Two crossed cables on the first rail.
    let at = |site: &Site, of: NodeId| {
        let is = |port: Port| matches!(port, Port::Hca { node, hca: 0 } if node == of);
        site.cables.iter().position(|cable| is(cable.a)).unwrap()
    };
    let (a, b) = (at(&site, first), at(&site, other));
    (site.cables[a].b, site.cables[b].b) = (site.cables[b].b, site.cables[a].b);
    let words = words(&site);
    assert_eq!(words.len(), 2, "{words:?}");
    assert!(
        words[0].starts_with("node gpu-01 is cabled to units su01 and su02: "),
        "{words:?}"
    );
    all_but(&site, &[first, other]);
}

#[test]
fn a_node_that_lacks_one_cable_is_named_with_its_rails() {
    let mut site = site(96);
    let node = site.node_named("gpu-07").unwrap();
    let is = |port: Port| matches!(port, Port::Hca { node: other, hca: 3 } if other == node);
    let at = site.cables.iter().position(|cable| is(cable.a)).unwrap();
    site.cables.remove(at);
    assert_eq!(
        words(&site),
        [
            "node gpu-07 has no cable to leaf-su1-r3: the node has 7 of 8 rails and joins no non-blocking cluster, so \
          unit su01 gives 31 of 32 non-blocking nodes"
        ]
    );
    only_for_others(&site, &[node]);
}

/// The cables of two HCAs of a node, exchanged at the leaves.
fn exchange(site: &mut Site, node: NodeId, hcas: [u8; 2]) {
    let at = hcas.map(|of| {
        let is = |port: Port| matches!(port, Port::Hca { node: other, hca } if other == node && hca == of);
        site.cables.iter().position(|cable| is(cable.a)).unwrap()
    });
    let [a, b] = at.map(|at| site.cables[at].b);
    (site.cables[at[0]].b, site.cables[at[1]].b) = (b, a);
}

#[test]
fn a_node_with_exchanged_rails_is_named_with_both_rails() {
    let mut site = site(96);
    let node = site.node_named("gpu-40").unwrap();
    exchange(&mut site, node, [3, 5]);
    let hca = site.sku_of(node).hcas[3].name.to_string();
    let found = irregularities(&site);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].culprit, found[0].field), (Culprit::Node(node), "name"));
    assert_eq!(
        found[0].to_string(),
        format!(
            "node gpu-40 has HCA {hca} of rail 3 at leaf-su2-r5 of rail 5, and 1 more HCA at the leaf of another rail: \
             the node joins no non-blocking cluster, so unit su02 gives 31 of 32 non-blocking nodes"
        )
    );
    only_for_others(&site, &[node]);
    // With an absent uplink beside it, the unit gives what both leave: the spare uplink is no loss.
    cut(&mut site, "leaf-su2-r3", "spine-05");
    let both = words(&site);
    assert_eq!(both.len(), 2, "{both:?}");
    let gives = "unit su02 gives 31 of 32 non-blocking nodes";
    assert!(both.iter().all(|one| one.ends_with(gives)), "{both:?}");
}

#[test]
fn a_single_unit_says_what_it_gives() {
    let mut site = site(32);
    let node = site.node_named("gpu-07").unwrap();
    exchange(&mut site, node, [0, 1]);
    let words = words(&site);
    assert_eq!(words.len(), 1, "{words:?}");
    assert!(
        words[0].ends_with("unit su01 gives 31 of 32 non-blocking nodes"),
        "{words:?}"
    );
}

/// Whole units of nodes with exchanged rails, in a file: the warning is at the line of the nodes.
#[test]
fn validate_warns_at_the_line_of_nodes_with_exchanged_rails() {
    let regular = text(96, "");
    // The leaves of unit 1 have the rails of each other.
    let exchanged = regular.replacen("rail: [0, 1, 2", "rail: [1, 0, 2", 1);
    assert_ne!(regular, exchanged);
    let found = findings(&exchanged);
    let warning = found
        .list
        .iter()
        .find(|one| one.what.contains("of rail 0 at "))
        .unwrap();
    assert_eq!(found.errors, 0, "{:?}", found.list);
    assert!(
        warning.path.starts_with("nodes[") && warning.path.ends_with(".name"),
        "{warning:?}"
    );
    assert!(
        warning.what.starts_with("32 nodes (gpu-[01-32]) have HCA ")
            && warning.what.contains(" at leaf-su1-r0 of rail 1"),
        "{warning:?}"
    );
    assert!(
        warning.what.contains("unit su01 gives 0 of 32 non-blocking nodes"),
        "{warning:?}"
    );
}

/// The other nodes get a non-blocking cluster together. These nodes get clusters that are not non-blocking, and clusters
/// of one node.
fn only_for_others(site: &Site, impaired: &[NodeId]) {
    let (all, out) = (site.nodes.len() as u32, impaired.len() as u32);
    let mut planner = Planner::new(site).unwrap();
    let refused = planner.place(wish(1, all)).unwrap_err().to_string();
    let left = format!(
        "nodes that lack a rail or have exchanged rails do not join a non-blocking cluster: {} free nodes of dgx-h100 \
         remain, {all} are requested; what fits: {} nodes, or all of them at 2:1 oversubscription",
        all - out,
        all - out
    );
    assert_eq!(refused, left);
    let placed = planner.place(wish(1, all - out)).unwrap();
    assert!(nodes_of(&placed).is_disjoint(&impaired.iter().copied().collect()));
    sound(&planner, site);
    // Only these nodes are free.
    let single = planner.place(wish(2, 1)).unwrap();
    assert!(impaired.contains(&site_node(single.nodes[0])));
    sound(&planner, site);
    for cluster in [1, 2] {
        planner.release(ClusterId(cluster)).unwrap();
    }
    for bandwidth in ["2:1", "best-effort"] {
        let bandwidth = Bandwidth::parse(bandwidth).unwrap();
        let placed = planner.place(Request {
            bandwidth,
            ..wish(3, all)
        });
        assert_eq!(placed.unwrap().nodes.len() as u32, all);
        sound(&planner, site);
        planner.release(ClusterId(3)).unwrap();
    }
}

#[test]
fn a_cluster_keeps_a_node_that_lost_a_rail_and_gets_no_other_one() {
    let whole = site(96);
    let mut planner = Planner::new(&whole).unwrap();
    let placed = planner.place(wish(1, 40)).unwrap();
    let stored = planner.named(&placed);
    let mut site = site(96);
    let kept = site_node(placed.nodes[0]);
    let free = site.node_ids().find(|node| !nodes_of(&placed).contains(node)).unwrap();
    for node in [kept, free] {
        exchange(&mut site, node, [0, 1]);
    }
    let mut planner = Planner::restore_named(&site, &[stored]).unwrap();
    assert_eq!(planner.placement(ClusterId(1)).unwrap().nodes, placed.nodes);
    let grown = planner.grow(ClusterId(1), 55).unwrap();
    let nodes = nodes_of(&grown.placement);
    assert!(nodes.contains(&kept) && !nodes.contains(&free));
    let refused = planner.grow(ClusterId(1), 1).unwrap_err().to_string();
    assert!(
        refused.contains("exchanged rails do not join a non-blocking cluster"),
        "{refused}"
    );
    // A replaced node leaves room for no impaired one either.
    let by = planner
        .replace(ClusterId(1), site_node(placed.nodes[1]), &[])
        .unwrap_err();
    assert!(by.to_string().contains("exchanged rails"), "{by}");
}

#[test]
fn a_node_without_plugged_psus_is_left_out() {
    let mut site = site(96);
    let none = site.node_named("gpu-40").unwrap();
    let few = site.node_named("gpu-41").unwrap();
    site.nodes[none.index()].psus.fill(None);
    site.nodes[few.index()].psus[3..].fill(None);
    let found = irregularities(&site);
    let culprits: Vec<Culprit> = found.iter().map(|one| one.culprit).collect();
    assert_eq!(culprits, [Culprit::Node(none), Culprit::Node(few)]);
    assert_eq!(
        words(&site),
        [
            "node gpu-40 has no PSU plugged in: \
             it is left out, and 94 of 96 nodes of dgx-h100 can be placed",
            "node gpu-41 has 3 PSUs plugged in, but needs 4: \
             it is left out, and 94 of 96 nodes of dgx-h100 can be placed",
        ]
    );
    all_but(&site, &[none, few]);
}

#[test]
fn a_site_without_power_says_so_once() {
    let mut site = site(33);
    site.domains.clear();
    for node in &mut site.nodes {
        node.psus = Box::default();
    }
    let words = words(&site);
    assert_eq!(words.len(), 1, "{words:?}");
    assert!(
        words[0].contains("no power") && words[0].contains("no cluster can be placed"),
        "{words:?}"
    );
}

#[test]
fn an_absent_uplink_costs_one_node_of_its_unit() {
    let mut site = site(96);
    cut(&mut site, "leaf-su2-r3", "spine-05");
    let found = irregularities(&site);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        found[0].culprit,
        Culprit::Switch(site.switch_named("leaf-su2-r3").unwrap())
    );
    assert_eq!(
        found[0].to_string(),
        "leaf-su2-r3 has 1 of 2 cables to spine-05: unit su02 gives 31 of 32 non-blocking nodes"
    );
    let mut planner = Planner::new(&site).unwrap();
    assert!(planner.place(wish(1, 96)).is_err(), "the unit lacks an uplink");
    let placed = planner.place(wish(1, 95)).unwrap();
    assert_eq!(placed.nodes.len(), 95);
    sound(&planner, &site);
    // The other units have all their links.
    planner.release(ClusterId(1)).unwrap();
    assert!(planner.place(wish(2, 64)).is_ok());
    sound(&planner, &site);
}

#[test]
fn an_absent_spine_costs_the_units_of_its_leaves() {
    let mut site = site(96);
    let spine = site.switch_named("spine-03").unwrap();
    let leaf = site.switch_named("leaf-su3-r0").unwrap();
    let is = |port: Port, of: SwitchId| matches!(port, Port::Switch { switch, .. } if switch == of);
    site.cables.retain(|cable| !(is(cable.a, leaf) && is(cable.b, spine)));
    assert_eq!(
        words(&site),
        ["leaf-su3-r0 has no cable to spine-03: unit su03 gives 30 of 32 non-blocking nodes"]
    );
    let mut planner = Planner::new(&site).unwrap();
    assert!(planner.place(wish(1, 95)).is_err());
    assert!(planner.place(wish(1, 94)).is_ok());
    sound(&planner, &site);
}

#[test]
fn an_absent_core_cable_costs_links_between_pods() {
    let mut site = site(300);
    cut(&mut site, "spine-p02-03", "core-g03-01");
    let words = words(&site);
    assert_eq!(words.len(), 1, "{words:?}");
    assert!(words[0].starts_with("spine-p02-03 has "), "{words:?}");
    assert!(words[0].contains(" cables to core-g03-01: pod 2 keeps "), "{words:?}");
    let mut planner = Planner::new(&site).unwrap();
    let placed = planner.place(wish(1, 150)).unwrap();
    assert!(!placed.cores.is_empty());
    sound(&planner, &site);
}

#[test]
fn a_pod_without_cables_to_cores_takes_clusters_of_its_own() {
    let mut site = site(300);
    let of = |site: &Site, port: Port, part: &str| site.port_name(port).starts_with(part);
    let cables = std::mem::take(&mut site.cables);
    site.cables = cables
        .into_iter()
        .filter(|cable| !(of(&site, cable.a, "spine-p03") && of(&site, cable.b, "core")))
        .collect();
    let words = words(&site);
    assert_eq!(words.len(), 1, "{words:?}");
    assert!(words[0].starts_with("leaf-su09-r0 "), "{words:?}");
    assert!(
        words[0].ends_with(": no cluster spans this fabric and another one"),
        "{words:?}"
    );
    let mut planner = Planner::new(&site).unwrap();
    assert!(planner.place(wish(1, 257)).is_err());
    assert_eq!(planner.place(wish(1, 256)).unwrap().units.len(), 8);
    assert_eq!(planner.place(wish(2, 44)).unwrap().units.len(), 2);
    sound(&planner, &site);
}

/// Whatever cables between switches are absent: clusters are placed, have only links that are there, and route every
/// traffic pattern on them.
#[test]
fn asymmetric_fabrics_carry_what_is_placed_on_them() {
    let mut dice = Dice::new(seed());
    let (mut placed, mut spanning) = (0, 0);
    for round in 0..8 {
        let nodes = if round % 4 == 3 { 300 } else { 96 };
        let mut site = site(nodes);
        for _ in 0..dice.roll(1, nodes as u64 / 5) {
            let is_switch = |port: Port| matches!(port, Port::Switch { .. });
            let between: Vec<usize> = (0..site.cables.len())
                .filter(|at| is_switch(site.cables[*at].a) && is_switch(site.cables[*at].b))
                .collect();
            let at = between[dice.next() as usize % between.len()];
            site.cables.remove(at);
        }
        assert!(!words(&site).is_empty());
        let mut planner = Planner::new(&site).unwrap();
        for number in 1..6 {
            let _ = planner.place(wish(number, dice.roll(1, 50) as u32));
        }
        let clusters = planner.hall().clusters();
        placed += clusters.len();
        spanning += clusters.values().filter(|placement| placement.units.len() > 1).count();
        sound(&planner, &site);
    }
    assert!(
        placed >= 8 && spanning >= 3,
        "{placed} clusters, {spanning} in several units"
    );
}

#[test]
fn a_spare_leaf_costs_nothing() {
    let more =
        "switches:\n- {name: leaf-9, role: leaf, ports: 64}\ncables:\n- {label: x1, a: leaf-9/1, b: spine-01/64}\n";
    let text = text(96, more);
    let site = read(&text);
    assert_eq!(
        words(&site),
        ["leaf-9 is a leaf without nodes: the leaf is left out, which costs no node"]
    );
    let found = findings(&text);
    assert_eq!((found.errors, found.warnings), (0, 1), "{:?}", found.list);
    let mut planner = Planner::new(&site).unwrap();
    assert_eq!(planner.place(wish(1, 96)).unwrap().nodes.len(), 96);
    sound(&planner, &site);
}

/// The indented block below the heading in the manual.
fn small_site() -> String {
    let (_, rest) = include_str!("../../../docs/site.md")
        .split_once("## A small site")
        .unwrap();
    let lines = rest.lines().skip_while(|line| !line.starts_with("    "));
    let lines = lines.map_while(|line| line.strip_prefix("    "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_small_site_of_the_manual_takes_a_cluster() {
    let text = format!("{}---\ncustomers:\n- {{name: acme}}\n", small_site());
    let site = read(&text);
    assert_eq!(words(&site), Vec::<String>::new());
    let mut planner = Planner::new(&site).unwrap();
    let placed = planner.place(wish(1, 2)).unwrap();
    assert_eq!((placed.units.len(), placed.nodes.len()), (1, 2));
    assert_eq!(planner.hall().spec().pods[0].units, ["leaf-1"]);
    let again = Planner::restore_named(&site, &[planner.named(&placed)]).unwrap();
    assert_eq!(again.placement(ClusterId(1)), Some(&placed));
}

#[test]
fn leaves_without_a_scalable_unit_share_the_unit_of_their_nodes() {
    // No leaf says its unit: the leaves with the same nodes are one.
    let mut site = site(96);
    let regular = rackwright_planner::hall::hall(&site);
    for switch in &mut site.switches {
        switch.scalable_unit = None;
    }
    assert_eq!(words(&site), Vec::<String>::new());
    let spec = rackwright_planner::hall::hall(&site);
    assert_eq!(spec.tree, regular.tree);
    let units: Vec<_> = spec.nodes.iter().map(|node| node.unit).collect();
    assert_eq!(units, regular.nodes.iter().map(|node| node.unit).collect::<Vec<_>>());
    // One leaf does not say: the unit of the nodes is known from the other leaves.
    let mut site = self::site(96);
    let leaf = site.switch_named("leaf-su2-r5").unwrap();
    site.switches[leaf.index()].scalable_unit = None;
    assert_eq!(words(&site), Vec::<String>::new());
    assert_eq!(
        rackwright_planner::hall::hall(&site).pods[0].units,
        ["su01", "su02", "su03"]
    );
}

/// Two storage leaves and a spine; each GPU node has a further HCA there, and four storage nodes have both of theirs.
const STORAGE: &str = "skus:
- {name: store, power: {max_watts: 1 kW}, psus: {count: 2, watts: 1000, needed: 1}, height_units: 2, hcas: [mlx5_0, mlx5_1]}
nodes:
- {name: 'store-[1-4]', sku: store, rack: net-r1, psus: [~, ~]}
switches:
- {name: 'stor-leaf-[1-2]', role: leaf, ports: 64}
- {name: stor-spine-1, role: spine, ports: 64}
cables:
- {label: 's[01-48]', a: 'gpu-[01-48]/mlx5_7', b: 'stor-leaf-1/[1-48]'}
- {label: 's[49-96]', a: 'gpu-[49-96]/mlx5_7', b: 'stor-leaf-2/[1-48]'}
- {label: 't[1-4]', a: 'store-[1-4]/mlx5_0', b: 'stor-leaf-1/[49-52]'}
- {label: 't[5-8]', a: 'store-[1-4]/mlx5_1', b: 'stor-leaf-2/[49-52]'}
- {label: 'u[1-4]', a: 'stor-leaf-1/[61-64]', b: 'stor-spine-1/[1-4]'}
- {label: 'u[5-8]', a: 'stor-leaf-2/[61-64]', b: 'stor-spine-1/[5-8]'}
";

#[test]
fn a_storage_fabric_beside_the_compute_fabric_is_left_out() {
    for unit in [
        "",
        ", scalable_unit: 1",
        ", scalable_unit: 99",
        ", scalable_unit: [98, 99], pod: 7",
    ] {
        let more = STORAGE.replace("role: leaf, ports: 64", &format!("role: leaf, ports: 64{unit}"));
        let site = read(&text(96, &more).replace("mlx5_11]", "mlx5_11, mlx5_7]"));
        let words = words(&site);
        let about = |part: &str| words.iter().filter(|one| one.contains(part)).count();
        assert!(about("stor-leaf-1") >= 1 && about("gpu-") == 0, "{unit}: {words:#?}");
        let mut planner = Planner::new(&site).unwrap();
        let placed = planner
            .place(wish(1, 96))
            .unwrap_or_else(|refused| panic!("{unit}: {refused}"));
        assert_eq!(placed.nodes.len(), 96);
        sound(&planner, &site);
        // The storage nodes are out of the hall.
        let store = site.node_named("store-1").unwrap();
        assert!(!planner.hall().is_free(hall_node(store)), "{unit}");
    }
}

#[test]
fn a_cable_that_no_fat_tree_has_is_left_out() {
    let more =
        "switches:\n- {name: leaf-9, role: leaf, ports: 64}\ncables:\n- {label: odd, a: leaf-9/1, b: leaf-su1-r0/31}\n";
    let site = read(&text(30, more));
    let words = words(&site);
    assert!(
        words.iter().any(|one| one.starts_with("cable odd connects ")),
        "{words:?}"
    );
    let mut planner = Planner::new(&site).unwrap();
    assert_eq!(planner.place(wish(1, 30)).unwrap().nodes.len(), 30);
    let leaves = site.switches.iter().filter(|switch| switch.role == SwitchRole::Leaf);
    assert_eq!(leaves.count(), 9);
}
