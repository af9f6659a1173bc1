//! Answers of placement, case by case: positions of clusters, reasons for refusals, and the picture.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod placement_common;

use placement_common::sku;
use rackwright_placement::*;

/// Two pods of two units of four nodes, racks of two nodes on strips A and B, and a CDU for each unit.
fn spec() -> HallSpec {
    let mut spec = HallSpec {
        tree: Tree {
            spines: 4,
            links_per_spine: 1,
            cores_per_spine: 2,
            links_per_core: 1,
        },
        skus: vec![sku("dgx", 10_000, 2)],
        ..HallSpec::default()
    };
    for side in ["A", "B"] {
        spec.domains.push(DomainSpec {
            name: format!("feed {side}"),
            capacity_w: 200_000,
            feed: true,
            ..DomainSpec::default()
        });
    }
    for pod in 0..2 {
        let units = (0..2).map(|u| format!("su{pod}{u}")).collect();
        spec.pods.push(PodSpec {
            name: format!("pod{pod}"),
            units,
        });
    }
    for node in 0..16u32 {
        if node % 4 == 0 {
            spec.cooling.push(CoolingSpec {
                name: format!("cdu{}", node / 4),
                capacity_w: 40_000,
                other_w: 0,
            });
        }
        if node % 2 == 0 {
            for feed in 0..2 {
                spec.domains.push(DomainSpec {
                    name: format!("strip {}{}", node / 2, ["A", "B"][feed]),
                    parent: Some(DomainId(feed as u32)),
                    capacity_w: 20_000,
                    circuit: true,
                    ..DomainSpec::default()
                });
            }
            spec.labels.push(LabelSpec {
                kind: LabelKind(0),
                name: format!("rack {}", node / 2),
            });
        }
        let strip = spec.domains.len() as u32 - 2;
        spec.nodes.push(NodeSpec {
            name: format!("n{node}"),
            unit: Some(UnitId(node / 4)),
            sku: SkuId(0),
            psus: [strip, strip, strip + 1, strip + 1].map(DomainId).to_vec(),
            cooling: vec![(CoolingId(node / 4), 10_000)],
            labels: vec![LabelId(node / 2)],
            excluded: false,
            impaired: false,
        });
    }
    spec
}

fn wish(cluster: u64, nodes: u32) -> Request {
    Request::plain(ClusterId(cluster), CustomerId(cluster as u32), SkuId(0), nodes)
}

fn take(hall: &mut Hall, request: &Request) -> Placement {
    let placement = plan(hall, request).unwrap();
    hall.take(&placement).unwrap();
    placement
}

fn counts(placement: &Placement) -> Vec<(u32, u32, u32)> {
    let of = |u: &UnitShare| (u.unit.0, u.hosts.count_ones(), u.links.count_ones());
    placement.units.iter().map(of).collect()
}

#[test]
fn small_clusters_share_a_unit_and_leave_the_others_whole() {
    let mut hall = Hall::new(spec()).unwrap();
    assert_eq!(counts(&take(&mut hall, &wish(1, 2))), [(0, 2, 0)]);
    assert_eq!(
        counts(&take(&mut hall, &wish(2, 2))),
        [(0, 2, 0)],
        "the broken unit first"
    );
    let eight = take(&mut hall, &wish(3, 8));
    assert_eq!(counts(&eight), [(2, 4, 4), (3, 4, 4)], "a whole pod");
    assert!(eight.cores.is_empty());
    assert_eq!(hall.node_status(NodeId(0)), Some(NodeStatus::Held(ClusterId(1))));
    assert!(hall.commit(ClusterId(1)) && !hall.commit(ClusterId(9)));
    assert_eq!(hall.node_status(NodeId(0)), Some(NodeStatus::Taken(ClusterId(1))));
    assert_eq!(hall.node_status(NodeId(16)), None);
}

#[test]
fn over_pods_the_links_above_the_spines_are_taken_too() {
    let mut hall = Hall::new(spec()).unwrap();
    let all = take(&mut hall, &wish(1, 12));
    assert_eq!(all.units.len(), 3);
    // Two units are in one pod and one is in the other, which can use only one link at each spine.
    let links: Vec<_> = all.cores.iter().map(|c| (c.spine, c.links.count_ones())).collect();
    assert_eq!(links, [(0, 1), (1, 1), (2, 1), (3, 1), (0, 1), (1, 1), (2, 1), (3, 1)]);
    assert_eq!(hall.free(ClusterId(1)), Some(all));
    assert_eq!(hall.free(ClusterId(1)), None);
    assert_eq!(hall.free_nodes(SkuId(0)), 16);
}

#[test]
fn a_node_that_is_held_out_stays_out() {
    let mut hall = Hall::new(spec()).unwrap();
    take(&mut hall, &wish(1, 4));
    assert!(hall.exclude(NodeId(1)) && hall.exclude(NodeId(5)) && !hall.exclude(NodeId(99)));
    assert_eq!(hall.node_status(NodeId(5)), Some(NodeStatus::Excluded));
    hall.free(ClusterId(1));
    assert_eq!(hall.node_status(NodeId(1)), Some(NodeStatus::Excluded));
    let refusal = plan(&hall, &wish(2, 16)).unwrap_err();
    assert_eq!(
        (refusal.constraint.clone(), refusal.leaves, refusal.asked),
        (Constraint::Nodes, 14, 16)
    );
    assert_eq!(
        refusal.to_string(),
        "14 nodes of dgx are free, 16 are requested; 2 nodes are out of service; what fits: 14 nodes"
    );
    assert!(hall.restore(NodeId(1)));
    assert_eq!(hall.node_status(NodeId(1)), Some(NodeStatus::Free));
}

#[test]
fn the_loss_of_a_feed_is_survived_where_that_is_promised() {
    let mut given = spec();
    // Each strip carries half of its rack and a little more.
    for domain in &mut given.domains[2..] {
        domain.capacity_w = 14_000;
    }
    let hall = Hall::new(given).unwrap();
    assert!(plan(&hall, &wish(1, 16)).is_ok());
    let mut promised = wish(1, 16);
    promised.survives_feed_loss = true;
    let refusal = plan(&hall, &promised).unwrap_err();
    assert!(matches!(refusal.constraint, Constraint::FeedLoss(_)), "{refusal}");
    assert_eq!((refusal.leaves, refusal.proven), (8, true), "one node of each rack");
    let changes: Vec<_> = refusal.nearest.iter().map(|n| n.change.as_str()).collect();
    assert_eq!(
        changes,
        ["8 nodes", "all of them without protection against the loss of a feed"]
    );
    promised.nodes = 8;
    let placement = plan(&hall, &promised).unwrap();
    let strip = placement.power.iter().find(|p| p.domain == DomainId(2)).unwrap();
    assert_eq!((strip.watts, strip.worst_w), (5_000, 10_000));
}

/// A cluster without the promise must not endanger a cluster with it.
#[test]
fn a_promise_binds_those_who_come_later() {
    let mut given = spec();
    for domain in &mut given.domains[2..] {
        domain.capacity_w = 14_000;
    }
    let mut hall = Hall::new(given).unwrap();
    let mut promised = wish(1, 8);
    promised.survives_feed_loss = true;
    take(&mut hall, &promised);
    let refusal = plan(&hall, &wish(2, 1)).unwrap_err();
    assert!(matches!(refusal.constraint, Constraint::FeedLoss(_)), "{refusal}");
}

#[test]
fn supplies_that_do_not_live_through_it_are_told() {
    let mut given = spec();
    given.skus[0].psus_needed = 3;
    let hall = Hall::new(given).unwrap();
    let mut promised = wish(1, 1);
    promised.survives_feed_loss = true;
    let refusal = plan(&hall, &promised).unwrap_err();
    assert_eq!((refusal.constraint, refusal.leaves), (Constraint::Supplies, 0));
}

#[test]
fn circuits_of_ones_own_are_nobody_elses() {
    let mut hall = Hall::new(spec()).unwrap();
    let mut alone = wish(1, 3);
    alone.own_circuits = true;
    take(&mut hall, &alone);
    let refusal = plan(&hall, &wish(2, 13)).unwrap_err();
    assert_eq!(
        (refusal.constraint.clone(), refusal.leaves),
        (Constraint::Dedication, 12),
        "{refusal}"
    );
    let mut same = wish(3, 13);
    same.customer = CustomerId(1);
    assert!(plan(&hall, &same).is_ok(), "the customer itself may come");
    take(&mut hall, &wish(2, 1));
    let mut late = wish(4, 11);
    late.own_circuits = true;
    let refusal = plan(&hall, &late).unwrap_err();
    assert_eq!(
        refusal.nearest.last().unwrap().change,
        "all of them on shared circuits and cooling units"
    );
}

#[test]
fn heat_and_contracts_are_budgets_too() {
    let mut given = spec();
    given.cooling[1].capacity_w = 25_000;
    given.cooling[2].capacity_w = 15_000;
    given.contracts.insert(CustomerId(5), 42_000);
    let hall = Hall::new(given).unwrap();
    let refusal = plan(&hall, &wish(1, 14)).unwrap_err();
    assert_eq!(
        (refusal.constraint.clone(), refusal.leaves),
        (Constraint::Cooling(CoolingId(2)), 11),
        "{refusal}"
    );
    let refusal = plan(&hall, &wish(5, 5)).unwrap_err();
    assert_eq!(
        (refusal.constraint.clone(), refusal.leaves, refusal.short_w),
        (Constraint::Contract, 4, 8_000)
    );
    assert_eq!(refusal.nearest[0].request.nodes, 4);
}

#[test]
fn clusters_stand_where_they_are_told() {
    let mut hall = Hall::new(spec()).unwrap();
    let first = take(&mut hall, &wish(1, 1));
    let mut near = wish(2, 1);
    near.affinity.near.push((ClusterId(1), LabelKind(0)));
    assert_eq!(
        plan(&hall, &near).unwrap().nodes,
        [NodeId(1)],
        "the other node of its rack"
    );
    let mut apart = wish(3, 3);
    apart.affinity.apart.push((ClusterId(1), LabelKind(0)));
    let apart = plan(&hall, &apart).unwrap();
    assert!(!apart.nodes.contains(&NodeId(1)) && first.nodes == [NodeId(0)]);
    let mut spread = wish(4, 8);
    spread.affinity.spread.push((LabelKind(0), 1));
    assert_eq!(plan(&hall, &spread).unwrap().units.len(), 4);
    spread.nodes = 9;
    let refusal = plan(&hall, &spread).unwrap_err();
    assert_eq!((refusal.constraint, refusal.leaves), (Constraint::Spread, 8));
    let mut unknown = wish(5, 1);
    unknown.affinity.near.push((ClusterId(77), LabelKind(0)));
    assert_eq!(
        plan(&hall, &unknown).unwrap_err().constraint,
        Constraint::Cluster(ClusterId(77))
    );
}

#[test]
fn links_in_the_way_are_told_with_what_would_do() {
    let mut hall = Hall::new(spec()).unwrap();
    for unit in 0..4 {
        assert!(hall.set_broken_uplinks(UnitId(unit), 0b1110));
    }
    let refusal = plan(&hall, &wish(1, 8)).unwrap_err();
    assert_eq!(refusal.constraint, Constraint::Links);
    assert_eq!(
        refusal.to_string(),
        "there are enough nodes, but no units with enough free links for 8 nodes; at most 5 were found together; what \
         fits: 5 nodes, or all of them at 2:1 oversubscription"
    );
    assert!(hall.set_broken_uplinks(UnitId(0), 0));
    assert_eq!(hall.free_uplinks(UnitId(0)), 0b1111);
}

#[test]
fn what_makes_no_sense_is_refused_at_once() {
    let mut hall = Hall::new(spec()).unwrap();
    take(&mut hall, &wish(1, 1));
    assert_eq!(plan(&hall, &wish(2, 0)).unwrap_err().constraint, Constraint::Empty);
    assert_eq!(
        plan(&hall, &wish(1, 1)).unwrap_err().constraint,
        Constraint::Cluster(ClusterId(1))
    );
    let mut strange = wish(2, 1);
    strange.sku = SkuId(7);
    assert_eq!(plan(&hall, &strange).unwrap_err().constraint, Constraint::Nodes);
    assert!(find(&hall, &strange, STEPS).is_none());
}

#[test]
fn every_fault_of_a_description_is_told() {
    let mut given = spec();
    given.nodes[3].unit = Some(UnitId(9));
    given.nodes[4].psus = vec![DomainId(500)];
    given.domains[5].parent = Some(DomainId(400));
    let faults = Hall::new(given).unwrap_err();
    let reported: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        reported,
        [
            "strip 1B names power domain 400, but there are only 18",
            "n3 names unit 9, but there are only 4",
            "n4 names power domain 500, but there are only 18",
        ]
    );
    let mut given = spec();
    given.domains[0].parent = Some(DomainId(2));
    given.nodes[0].psus.clear();
    given.tree.spines = 200;
    let faults = Hall::new(given).unwrap_err();
    assert!(faults.contains(&HallFault::Cycle("feed A".to_owned())));
    assert!(faults.contains(&HallFault::Unpowered("n0".to_owned())));
    assert!(faults.iter().any(|f| matches!(
        f,
        HallFault::TooMany {
            kind: "uplinks",
            count: 200,
            ..
        }
    )));
}

#[test]
fn the_picture_shows_pods_and_units() {
    let mut hall = Hall::new(spec()).unwrap();
    take(&mut hall, &wish(1, 3));
    assert!(hall.exclude(NodeId(4)));
    let mut request = wish(2, 9);
    request.spares = 1;
    let placement = plan(&hall, &request).unwrap();
    let picture = draw(&hall, &placement);
    assert_eq!(picture, PICTURE, "\n{picture}");
}

const PICTURE: &str = "\
9 nodes and 1 spare in 3 units of 2 pods
pod0: 2 links to cores above 2 spines on each rail
  su00       xxx.
  su01       -##.  2 nodes, uplinks 0-1
pod1: 2 links to cores above 2 spines on each rail
  su10       ####  4 nodes, uplinks 0-3
  su11       ###s  4 nodes, uplinks 0-3
# node  s spare  . free  x taken  - out of service
";
