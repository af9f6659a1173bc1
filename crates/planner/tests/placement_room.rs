//! Rooms in which one line of a panel is short after the loss of a feed. Which nodes are left out decides how many fit.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

use std::collections::BTreeSet;

use rackwright_placement::{ClusterId, CustomerId, Request, SkuId};
use rackwright_planner::planner::{Planner, Refused};
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request as Reference, site_file};
use rackwright_site::model::{NodeId, Phase, Site};

const CUSTOMERS: &str = "customers:\n- {name: acme, redundancy: feed-loss}\n- {name: zeta}\n";

fn room(nodes: usize) -> Site {
    let text = site_file(&Reference::new(ReferenceSku::DgxH100, nodes)).unwrap();
    let text = format!("{text}---\n{CUSTOMERS}");
    let name = "site.yaml";
    let checked = check(&[Source { name, text: &text }]);
    checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings.list))
}

fn cluster(number: u64, customer: u32, nodes: u32) -> Request {
    Request::plain(ClusterId(number), CustomerId(customer), SkuId(0), nodes)
}

/// Whether a PSU of the node is on this line.
fn draws_on(site: &Site, node: NodeId, line: Phase) -> bool {
    let mut plugs = site.node(node).psus.iter().flatten();
    plugs.any(|plug| site.outlet(*plug).is_some_and(|outlet| outlet.phase == line))
}

/// 256 nodes on 64 racks. In each rack, three nodes draw on L1, three on L2 and two on L3, and two nodes draw on L1 and
/// L2. After the loss of a feed, the panels carry 187 of the 192 nodes on L1, and as many on L2. So 251 fit if five of
/// the nodes on both lines are left out.
#[test]
fn nodes_on_both_short_lines_are_left_out() {
    let site = room(256);
    let mut planner = Planner::new(&site).unwrap();
    let placement = planner
        .place(cluster(1, 0, 251))
        .unwrap_or_else(|refused| panic!("{refused}"));
    let taken: BTreeSet<u32> = placement.nodes.iter().map(|node| node.0).collect();
    let left_out: Vec<NodeId> = site.node_ids().filter(|node| !taken.contains(&node.0)).collect();
    assert_eq!(left_out.len(), 5);
    for node in left_out {
        assert!(
            draws_on(&site, node, Phase::L1) && draws_on(&site, node, Phase::L2),
            "{node:?}"
        );
    }
    assert_eq!(planner.ledger().reservations().count(), 251);
}

#[test]
fn more_nodes_than_a_line_carries_are_refused_with_proof() {
    let site = room(256);
    let mut planner = Planner::new(&site).unwrap();
    let refused = planner.place(cluster(1, 0, 252)).unwrap_err();
    let Refused::Budgets { nearest, proven, .. } = &refused else {
        panic!("{refused}")
    };
    assert_eq!((*nearest, *proven), (Some(251), true), "{refused}");
    assert!(refused.to_string().ends_with("what fits: 251 nodes"), "{refused}");
    assert_eq!(planner.ledger().reservations().count(), 0, "nothing was taken");
}

/// With nodes out of service and clusters of another customer, the number that a refusal names fits, and one node more
/// does not.
#[test]
fn a_refusal_names_the_most_that_fits() {
    let site = room(128);
    let mut refusals = 0;
    for seed in 0..5_u32 {
        let mut planner = Planner::new(&site).unwrap();
        for node in 0..seed * 3 {
            planner.exclude(NodeId((node * 37 + seed * 11) % 128));
        }
        if seed > 1 {
            planner.place(cluster(9, 1, seed * 5)).unwrap();
        }
        let free = planner.hall().free_nodes(SkuId(0));
        let Err(refused) = planner.place(cluster(1, 0, free)) else {
            continue;
        };
        let Refused::Budgets { nearest, proven, .. } = refused else {
            panic!("seed {seed}: {refused}")
        };
        refusals += 1;
        let most = nearest.unwrap();
        if most + 1 < free {
            assert!(planner.place(cluster(1, 0, most + 1)).is_err(), "seed {seed}");
        }
        planner.place(cluster(1, 0, most)).unwrap();
        assert!(proven || seed > 1, "seed {seed}: {most} of {free}");
    }
    assert!(refusals > 1, "{refusals}");
}
