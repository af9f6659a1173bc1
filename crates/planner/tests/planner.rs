//! From a generated site to its clusters.

// Helpers outside test functions fail a test the same way.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use rackwright_placement::{ClusterId, CustomerId, Request, SkuId};
use rackwright_planner::planner::{Planner, Refused};
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request as Reference, site_file};
use rackwright_site::model::{Redundancy, Site};

/// A site with `nodes` machines and the customers in `customers`.
fn site(nodes: usize, customers: &str) -> Site {
    let mut text = site_file(&Reference::new(ReferenceSku::DgxH100, nodes)).unwrap();
    text.push_str("---\n");
    text.push_str(customers);
    let checked = check(&[Source {
        name: "site.yaml",
        text: &text,
    }]);
    checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings.list))
}

fn cluster(number: u64, customer: u32, nodes: u32) -> Request {
    Request::plain(ClusterId(number), CustomerId(customer), SkuId(0), nodes)
}

const TWO: &str = "customers:\n- {name: acme, redundancy: feed-loss}\n- {name: zeta}\n";

#[test]
fn two_customers_get_clusters_that_share_nothing() {
    let site = site(128, TWO);
    assert_eq!(site.customers[0].redundancy, Redundancy::FeedLoss);
    let mut planner = Planner::new(&site).unwrap();
    let first = planner.place(cluster(1, 0, 48)).unwrap();
    let second = planner.place(cluster(2, 1, 32)).unwrap();
    assert!(first.request.survives_feed_loss && !second.request.survives_feed_loss);
    let nodes: BTreeSet<_> = first.nodes.iter().chain(&second.nodes).collect();
    assert_eq!(nodes.len(), 80);
    for share in &first.units {
        for other in second.units.iter().filter(|other| other.unit == share.unit) {
            assert_eq!(share.links & other.links, 0, "a link of both");
        }
    }
    assert_eq!(planner.ledger().reservations().count(), 80);
    let refused = planner.place(cluster(3, 1, 49)).unwrap_err();
    assert!(matches!(refused, Refused::Placement(_)), "{refused}");
    assert!(refused.to_string().contains("48"), "what would fit: {refused}");
    // There are nodes and links for 48, but not enough power after the loss of a feed, which acme was promised to
    // survive.
    let refused = planner.place(cluster(3, 1, 48)).unwrap_err();
    let Refused::Budgets { why, nearest, .. } = &refused else {
        panic!("{refused}")
    };
    assert!(why.iter().all(|one| one.contains("when feed")), "{why:?}");
    assert_eq!(planner.ledger().reservations().count(), 80, "nothing was taken");
    let nodes = nearest.unwrap();
    assert!(planner.place(cluster(3, 1, nodes + 1)).is_err());
    assert_eq!(planner.place(cluster(3, 1, nodes)).unwrap().nodes.len(), nodes as usize);
}

#[test]
fn three_levels_are_divided_among_the_rails() {
    let site = site(1024, "customers:\n- {name: acme}\n- {name: zeta}\n");
    let planner = Planner::new(&site).unwrap();
    let tree = planner.hall().spec().tree;
    // Four units of a pod share 32 spines with 32 uplinks each: four for each of eight rails.
    assert_eq!((tree.spines, tree.links_per_spine), (32, 1));
    assert_eq!(tree.cores_per_spine * tree.links_per_core, 4);
    let mut planner = Planner::new(&site).unwrap();
    let large = planner.place(cluster(1, 0, 512)).unwrap();
    assert_eq!(large.units.len(), 16);
    assert!(planner.place(cluster(2, 1, 512)).is_ok());
    assert!(planner.place(cluster(3, 1, 1)).is_err());
}

#[test]
fn what_is_one_customers_own_is_left_to_them() {
    let text = site_file(&Reference::new(ReferenceSku::DgxH100, 32)).unwrap();
    let whole = check(&[Source {
        name: "site.yaml",
        text: &text,
    }]);
    let whole = whole.site.unwrap();
    let circuit = whole
        .domains
        .iter()
        .find(|domain| domain.kind.name() == "circuit")
        .unwrap();
    let customers = format!(
        "customers:\n- {{name: acme, dedicated_circuits: true, circuits: [{}]}}\n- {{name: zeta}}\n",
        circuit.name
    );
    let site = site(32, &customers);
    let mut planner = Planner::new(&site).unwrap();
    let refused = planner.place(cluster(1, 1, 32)).unwrap_err();
    assert!(matches!(refused, Refused::Placement(_)), "{refused}");
    assert!(planner.place(cluster(1, 0, 32)).is_ok());
}
