//! The requests and mishaps of a seed.

use rackwright_lifecycle::minutes;

use super::super::BEGIN;
use super::super::chance::Chance;
use super::super::world::{PlannedEvent, World};
use super::requests::{PlannedRequest, RequestKind};
use super::{CUSTOMERS, Play};
use crate::test_calls::NodeRequest;

const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];
/// By which an operator takes a node from its cluster, or disturbs it.
const LOSSES: [NodeRequest; 4] = [
    NodeRequest::Quarantine,
    NodeRequest::Hold,
    NodeRequest::PowerOff,
    NodeRequest::PowerCycle,
];

/// Plans the life of each cluster, and what happens to machines meanwhile.
pub fn plan(play: &mut Play, world: &mut World, ids: &[String], chance: &Chance) {
    for cluster in NAMES.iter().take(1 + chance.below(3)) {
        life(play, cluster, chance);
    }
    for id in ids {
        if chance.of_1000(200) {
            let at = BEGIN.plus(minutes(10)).plus(chance.millis(0, 5_400_000));
            let (request, key) = (LOSSES[chance.below(LOSSES.len())], format!("{id}-mishap"));
            world.at(at, id, PlannedEvent::Request { request, key });
        }
        if chance.of_1000(300) {
            let at = BEGIN.plus(minutes(5)).plus(chance.millis(0, 5_400_000));
            world.at(at, id, PlannedEvent::BriefFailure);
        }
        if chance.of_1000(300) {
            let at = BEGIN.plus(minutes(5)).plus(chance.millis(0, 5_400_000));
            world.at(at, id, PlannedEvent::Move);
        }
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(1)
}

/// Plans a cluster's creation, its changes, and sometimes its release.
fn life(play: &mut Play, cluster: &str, chance: &Chance) {
    let mut number = 0;
    let mut plan = |at, kind| {
        number += 1;
        let planned = PlannedRequest {
            cluster: cluster.to_owned(),
            kind,
            key: format!("{cluster}-{number}"),
        };
        play.at(at, planned);
    };
    let mut at = BEGIN.plus(minutes(6)).plus(chance.millis(0, 1_800_000));
    let (nodes, spares) = (count(1 + chance.below(4)), count(chance.below(2)));
    let create = RequestKind::Create {
        customer: CUSTOMERS[chance.below(CUSTOMERS.len())],
        nodes,
        spares,
    };
    plan(at, create);
    for _ in 0..chance.below(5) {
        at = at.plus(chance.millis(10_000, 1_500_000));
        let (nodes, spares) = (count(1 + chance.below(4)), count(chance.below(2)));
        let kind = match chance.below(7) {
            0 => RequestKind::Resize {
                nodes: Some(nodes),
                spares: None,
            },
            1 => RequestKind::Resize {
                nodes: None,
                spares: Some(spares),
            },
            2 => RequestKind::Leave(None),
            3 => RequestKind::Retry,
            4 => RequestKind::Lose(LOSSES[chance.below(LOSSES.len())]),
            _ => RequestKind::Replace(None),
        };
        plan(at, kind);
    }
    if chance.of_1000(600) {
        at = at.plus(chance.millis(0, 2_400_000));
        plan(at, RequestKind::Release);
    }
}
