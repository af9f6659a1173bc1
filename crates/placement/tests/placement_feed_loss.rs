//! Clusters that survive the loss of a feed, in rooms in which it matters which nodes are left out.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod placement_common;

use std::collections::BTreeSet;

use placement_common::feed_loss::{feed_loss_hall, feed_loss_request, room};
use placement_common::judge;
use rackwright_placement::*;

/// Nodes with three of six supplies on the scarce feed.
const ODD: [u32; 5] = [3, 40, 77, 130, 201];

/// 256 nodes on three feeds, two supplies on each. After the loss of feed 1, feed 0 carries 5 kW of such a node. It
/// carries 7.5 kW of a node with three supplies on feed 0 and one on feed 2. Feed 0 has room for 251 of the usual nodes;
/// with the five odd ones, for 249.
fn hall() -> Hall {
    let wiring = |node: u32| {
        if ODD.contains(&node) {
            vec![3, 2, 1]
        } else {
            vec![2, 2, 2]
        }
    };
    let wiring: Vec<Vec<usize>> = (0..256).map(wiring).collect();
    Hall::new(room(8, 32, 4, &[1_257_500, 2_560_000, 2_560_000], &wiring)).unwrap()
}

fn wish(nodes: u32) -> Request {
    let mut wish = Request::plain(ClusterId(1), CustomerId(1), SkuId(0), nodes);
    wish.survives_feed_loss = true;
    wish
}

#[test]
fn nodes_that_cost_most_of_the_scarce_feed_are_left_out() {
    let mut hall = hall();
    let placement = plan(&hall, &wish(251)).unwrap_or_else(|refusal| panic!("{refusal}"));
    let nodes: BTreeSet<u32> = placement.nodes.iter().map(|node| node.0).collect();
    let left_out: Vec<u32> = (0..256).filter(|node| !nodes.contains(node)).collect();
    assert_eq!(left_out, ODD);
    hall.take(&placement).unwrap();
    assert_eq!(judge(&hall), Vec::<String>::new());
}

#[test]
fn one_node_more_is_refused_with_proof() {
    let refusal = plan(&hall(), &wish(252)).unwrap_err();
    assert_eq!(refusal.constraint, Constraint::FeedLoss(DomainId(0)), "{refusal}");
    assert_eq!((refusal.leaves, refusal.proven), (251, true), "{refusal}");
    assert_eq!(refusal.nearest[0].request.nodes, 251, "{refusal}");
    let mut unprotected = wish(252);
    unprotected.survives_feed_loss = false;
    assert!(plan(&hall(), &unprotected).is_ok());
}

/// In each room, the number that a refusal names fits and is as large as can be.
#[test]
fn what_fits_is_the_most_that_fits() {
    let (mut refused, mut several_units) = (0, 0);
    for seed in 0..600 {
        let (mut hall, mut dice) = feed_loss_hall(seed);
        let wish = feed_loss_request(&mut dice, &hall, 100);
        let most = match plan(&hall, &wish) {
            Ok(placement) => {
                several_units += u32::from(placement.units.len() > 1);
                hall.take(&placement).unwrap();
                assert_eq!(judge(&hall), Vec::<String>::new(), "seed {seed}");
                continue;
            }
            Err(refusal) => {
                assert!(refusal.proven, "seed {seed}: {refusal}");
                let fewer = refusal.nearest.iter().map(|nearest| nearest.request.nodes);
                fewer.filter(|&nodes| nodes < wish.nodes).max().unwrap_or(0)
            }
        };
        refused += 1;
        let larger = Request {
            nodes: most + 1,
            ..wish.clone()
        };
        let by_size = wish.nodes == most + 1 || plan(&hall, &larger).is_err();
        assert!(by_size, "seed {seed}: {} nodes fit, {most} were named", most + 1);
    }
    assert!(refused > 100 && several_units > 100, "{refused} {several_units}");
}
