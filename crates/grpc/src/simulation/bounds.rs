//! Checks of the limits on shared resources, in runs that have them: never more users than room, and no waiting node while
//! there is room.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_ground::clock;
use rackwright_lifecycle::{Effect, Limits, NodeId, Resource, Timestamp, minutes};
use rackwright_store::{NodeRecord, Store};

use super::chance::Chance;
use super::checks::records;
use super::process::Process;

const LIMITS: &str = "limits: {power_on: {per_circuit: 1, per_rack: 2, at_once: 2, settle_s: 5}, \
                      image: {at_once: 2, per_rack: 1, bandwidth_mb_s: 900, per_node_mb_s: 300}}\n";

/// Settings with the limits in some runs. Most runs have none.
pub fn settings(chance: &Chance) -> &'static str {
    if chance.of_1000(250) { LIMITS } else { "" }
}

/// The place of the `number`-th machine.
pub fn labels(number: usize) -> BTreeMap<String, String> {
    let label = |name: &str, value: usize| (name.to_owned(), value.to_string());
    [label("circuit", number % 2), label("rack", number / 2)].into()
}

/// The nodes that use each resource, or used it just now, according to the stored effects, not the permits.
async fn users(store: &Store, limits: &Limits, now: Timestamp) -> BTreeMap<Resource, (u32, BTreeSet<String>)> {
    let mut users = BTreeMap::<Resource, (u32, BTreeSet<String>)>::new();
    for NodeRecord { id, labels, .. } in records(store).await {
        for effect in [Effect::PowerOn, Effect::WriteImage] {
            let tries = store.tries_of(&id, effect).await.expect("effects can be read");
            for need in limits.needs(effect, &labels) {
                let (room, nodes) = users.entry(need.resource).or_default();
                *room = need.room;
                let is_at_it = |end: Option<Timestamp>| end.is_none_or(|end| end.plus(need.settle_us) > now);
                if tries.iter().any(|row| is_at_it(row.attempt.ended_at)) {
                    nodes.insert(id.to_string());
                }
            }
        }
    }
    users
}

/// Checks after a commit. Also returns whether a node is queued.
pub async fn look(store: &Store, limits: &Limits) -> (Vec<String>, bool) {
    if limits.is_empty() {
        return (Vec::new(), false);
    }
    let users = users(store, limits, clock::now()).await;
    let full = users
        .into_iter()
        .filter(|(_, (room, nodes))| nodes.len() > *room as usize);
    let wrong =
        full.map(|(resource, (room, nodes))| format!("{resource} has room for {room}, and there are {nodes:?}"));
    let counts = store.count_permits(clock::now()).await.expect("permits can be read");
    (wrong.collect(), counts.iter().any(|(.., waiting)| *waiting > 0))
}

/// Whether a node rests in a queue for good reason: the resource is full, or a replica will check the queue soon.
pub async fn is_in_line(store: &Store, node: &str, processes: &[Process]) -> bool {
    let now = clock::now();
    let permits = store.permits(&NodeId::stored(node)).await.expect("permits can be read");
    let Some(permit) = permits.iter().find(|permit| !permit.is_taken) else {
        return false;
    };
    for Process { core, .. } in processes {
        let due = store.next_due(&core.replica).await.expect("the database answers");
        if due.is_some_and(|due| due <= core.lease_end(now)) {
            return true;
        }
    }
    let queue = store.queue(&permit.resource, now).await;
    let queue = queue.expect("permits can be read");
    queue.taken >= queue.room
}

/// Permits that are taken or requested when everything is at rest.
pub async fn violations(store: &Store) -> Vec<String> {
    // A machine that was just switched on frees its place when it has settled.
    let settled = clock::now().plus(minutes(10));
    let counts = store.count_permits(settled).await.expect("permits can be read");
    let violations = counts
        .into_iter()
        .filter(|(_, taken, waiting)| (*taken, *waiting) != (0, 0));
    violations
        .map(|(kind, taken, waiting)| format!("{kind}: {taken} taken for ever, and {waiting} in line"))
        .collect()
}
