//! Network tests with the verdicts of the seed.

use std::collections::BTreeMap;

use rackwright_control::clusters::network::Found;
use rackwright_planner::network::Topology;
use rackwright_store::{NetworkTest, NodeRecord};

use super::super::performer::Fake;

/// The result of a test for one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Faulty,
    /// A fault of no single node.
    Blocked,
}

/// All verdicts, stored or not.
#[derive(Debug, Default)]
pub struct Verdicts {
    /// The last one by node and tested deployment.
    pub last: BTreeMap<(String, String), Verdict>,
    /// How often, in a thousand, a node is at fault, and the network.
    pub faulty_of_1000: usize,
    pub blocked_of_1000: usize,
    /// Tests that found a fault.
    pub faults_found: u64,
}

/// Tests the network between nodes.
pub async fn test(fake: &Fake, began: &NetworkTest, nodes: Vec<NodeRecord>) -> Option<Found> {
    fake.pause(1_000, 60_000).await;
    let names: Vec<String> = nodes.into_iter().map(|node| node.id.to_string()).collect();
    let mut found = Found {
        fresh: (0..names.len()).collect(),
        topology: Topology::bare(&names),
        ..Found::default()
    };
    {
        let world = fake.world();
        let (faulty, blocked) = (world.verdicts.faulty_of_1000, world.verdicts.blocked_of_1000);
        // A single node has no peer and is not tested.
        for at in (0..names.len()).filter(|_| names.len() > 1) {
            if fake.chance.of_1000(faulty) {
                found.excluded.insert(at, "a cable is bad, as simulated".to_owned());
            }
        }
        if fake.chance.of_1000(blocked) {
            found.refused = Some("the site is away, as simulated".to_owned());
        }
    }
    fake.pause(1_000, 30_000).await;
    let mut world = fake.world();
    let verdicts = &mut world.verdicts;
    // So many faults have a common cause.
    let is_blocked = found.refused.is_some() || found.excluded.len() * 2 >= names.len().max(1);
    for (at, name) in names.iter().enumerate() {
        let verdict = match (is_blocked, found.excluded.contains_key(&at)) {
            (true, _) => Verdict::Blocked,
            (false, true) => Verdict::Faulty,
            (false, false) => Verdict::Passed,
        };
        let tested = began.members.get(name.as_str()).cloned().unwrap_or_default();
        verdicts.last.insert((name.clone(), tested), verdict);
    }
    verdicts.faults_found += u64::from(is_blocked || !found.excluded.is_empty());
    drop(world);
    Some(found)
}
