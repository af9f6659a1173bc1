use super::*;
use crate::chart::State as NodeState;
use crate::decide::Wait as NodeWait;
use crate::ids::NodeId;
use crate::node::{Claim, ClusterClaim, Evidence, Node};
use crate::time::{Timestamp, minutes, seconds};

const NOW: Timestamp = Timestamp(1_000_000_000_000);

fn cluster(state: State) -> Cluster {
    Cluster {
        state,
        since: NOW,
        wanted: Wanted::default(),
        lease_end: None,
        notices: 0,
        build: 1,
        rollout: None,
    }
}

fn facts(standings: &[Standing], partition: Partition) -> Facts {
    let member = |(n, standing): (usize, &Standing)| Member {
        node: NodeId::stored(format!("n{n}")),
        standing: standing.clone(),
        build: 1,
        is_new: matches!(standing, Standing::Coming | Standing::Checked),
        is_writable: *standing == Standing::HandedOver,
        is_failed: false,
        leaf: 0,
        impaired: None,
    };
    Facts {
        members: standings.iter().enumerate().map(member).collect(),
        partition,
        other_ports: None,
        swap: None,
        network: Network::Off,
    }
}

fn edge(decision: &Decision) -> Option<Edge> {
    match decision {
        Decision::Move { edge, .. } => Some(*edge),
        _ => None,
    }
}

/// Lets the nodes with these numbers be handed over.
fn let_hand_over(nodes: &[usize]) -> Decision {
    let names = nodes.iter().map(|n| NodeId::stored(format!("n{n}")));
    Decision::Act(Effect::LetHandOver(names.collect()))
}

fn lost(state: NodeState, reason: &str) -> Standing {
    let reason = reason.to_owned();
    Standing::Lost(Loss { state, reason })
}

const COMING: Standing = Standing::Coming;
const CHECKED: Standing = Standing::Checked;
const ACTIVE: Standing = Standing::HandedOver;

#[test]
fn nothing_is_handed_over_before_every_node_is_checked_and_the_partition_proven() {
    let building = cluster(State::Building);
    let waits = [
        facts(&[CHECKED, COMING], Partition::Proven),
        facts(&[CHECKED, CHECKED], Partition::Pending),
        facts(&[CHECKED, CHECKED], Partition::Faulty("port 3 was not read".into())),
        facts(&[CHECKED, CHECKED], Partition::Draining(3)),
        facts(&[CHECKED, CHECKED], Partition::Gone),
    ];
    for facts in &waits {
        for state in [State::Building, State::Validating, State::Degraded] {
            let decision = decide(&cluster(state), facts, NOW);
            assert!(matches!(decision, Decision::Wait { .. }), "{state}: {decision:?}");
        }
    }
    let all = facts(&[CHECKED, CHECKED], Partition::Proven);
    assert_eq!(edge(&decide(&building, &all, NOW)), Some(Edge::Built));
    let validating = cluster(State::Validating);
    assert_eq!(decide(&validating, &all, NOW), let_hand_over(&[0, 1]));
    let some = facts(&[CHECKED, ACTIVE], Partition::Proven);
    assert_eq!(decide(&validating, &some, NOW), let_hand_over(&[0]));
    let done = facts(&[ACTIVE, ACTIVE], Partition::Proven);
    assert_eq!(edge(&decide(&validating, &done, NOW)), Some(Edge::HandedOver));
}

#[test]
fn a_lost_node_is_replaced_and_not_looked_for_without_a_pause() {
    let lost = lost(NodeState::Failed, "no disk");
    let mut facts = facts(&[CHECKED, lost], Partition::Proven);
    let replace = Decision::Act(Effect::Replace {
        node: "n1".into(),
        reason: "failed: no disk".into(),
    });
    for state in [State::Building, State::Degraded] {
        assert_eq!(decide(&cluster(state), &facts, NOW), replace);
    }
    let (ready, validating) = (cluster(State::Ready), cluster(State::Validating));
    assert_eq!(edge(&decide(&ready, &facts, NOW)), Some(Edge::Degraded));
    assert_eq!(edge(&decide(&validating, &facts, NOW)), Some(Edge::Rebuilt));
    facts.swap = Some(Swap {
        at: NOW,
        refused: "no free node".into(),
        lost: "n1".into(),
        obstacle: Obstacle::Placement,
    });
    let until = NOW.plus(seconds(SWAP_PAUSE_S));
    match decide(&cluster(State::Building), &facts, NOW) {
        Decision::Wait { why, until: found } => {
            assert_eq!(found, until);
            let (lost, refused) = ("n1".into(), "no free node".to_owned());
            assert_eq!(why, Wait::Replacement { lost, refused });
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(decide(&cluster(State::Building), &facts, until), replace);
}

#[test]
fn a_node_marked_for_replacement_is_replaced() {
    let mut ready = cluster(State::Ready);
    ready.wanted.replace.insert("n0".into(), "it is slow".into());
    let facts = facts(&[ACTIVE, ACTIVE], Partition::Proven);
    assert_eq!(edge(&decide(&ready, &facts, NOW)), Some(Edge::Degraded));
    ready.state = State::Degraded;
    let decision = decide(&ready, &facts, NOW);
    assert!(
        matches!(&decision, Decision::Act(Effect::Replace { node, .. }) if node == "n0"),
        "{decision:?}"
    );
}

#[test]
fn a_cluster_that_is_not_built_in_time_has_failed_and_names_its_wait() {
    let late = NOW.plus(minutes(BUILD_DEADLINE_MIN));
    let facts = facts(&[CHECKED, COMING], Partition::Proven);
    match decide(&cluster(State::Building), &facts, late) {
        Decision::Move {
            edge: Edge::Failed,
            reason,
        } => {
            assert_eq!(
                reason,
                "building took longer than 24 h; it waited for 1 of 2 nodes to be imaged and checked"
            );
        }
        other => panic!("{other:?}"),
    }
    let mut failed = cluster(State::Failed);
    assert!(matches!(decide(&failed, &facts, late), Decision::Wait { .. }));
    failed.wanted.retry = true;
    assert_eq!(edge(&decide(&failed, &facts, late)), Some(Edge::Retried));
}

#[test]
fn other_ports_of_the_site_degrade_a_cluster_in_order_and_come_before_all_other_work() {
    let mut other = facts(&[ACTIVE, ACTIVE], Partition::Proven);
    other.other_ports = Some("n1: port 7".into());
    let degraded = Decision::Move {
        edge: Edge::Degraded,
        reason: "n1: port 7".into(),
    };
    assert_eq!(decide(&cluster(State::Ready), &other, NOW), degraded);
    let take = Decision::Act(Effect::TakePorts);
    for state in [
        State::Reserved,
        State::Building,
        State::Validating,
        State::Degraded,
        State::Resizing,
        State::Reimaging,
        State::Failed,
    ] {
        assert_eq!(decide(&cluster(state), &other, NOW), take, "{state}");
    }
    let mut leaving = cluster(State::Resizing);
    leaving.wanted.leave.insert("n0".into());
    assert_eq!(decide(&leaving, &other, NOW), take);
    let mut released = cluster(State::Degraded);
    released.wanted.release = true;
    assert_eq!(edge(&decide(&released, &other, NOW)), Some(Edge::Released));
    for state in [State::Releasing, State::Released] {
        assert_ne!(decide(&cluster(state), &other, NOW), take, "{state}");
    }
    // The new ports are to be read before the cluster is in order again.
    let pending = facts(&[ACTIVE, ACTIVE], Partition::Pending);
    let decision = decide(&cluster(State::Degraded), &pending, NOW);
    assert!(
        matches!(
            decision,
            Decision::Wait {
                why: Wait::Partition,
                ..
            }
        ),
        "{decision:?}"
    );
    let proven = facts(&[ACTIVE, ACTIVE], Partition::Proven);
    assert_eq!(
        edge(&decide(&cluster(State::Degraded), &proven, NOW)),
        Some(Edge::Restored)
    );
}

#[test]
fn a_release_ends_when_nodes_are_free_and_the_key_is_proven_gone() {
    let mut wanted = cluster(State::Ready);
    wanted.wanted.release = true;
    let held = facts(&[ACTIVE, ACTIVE], Partition::Proven);
    assert_eq!(edge(&decide(&wanted, &held, NOW)), Some(Edge::Released));
    let releasing = cluster(State::Releasing);
    assert_eq!(
        decide(&releasing, &held, NOW),
        Decision::Act(Effect::ReleaseNodes(vec!["n0".into(), "n1".into()]))
    );
    let fault = || "OpenSM is gone".to_owned();
    for (first, partition, wait) in [
        (Standing::Leaving, Partition::Gone, Wait::Erase { nodes: 1 }),
        (
            Standing::Freed,
            Partition::Draining(2),
            Wait::PartitionRemoval { ports: 2 },
        ),
        (
            Standing::Freed,
            Partition::Faulty(fault()),
            Wait::PartitionFault { fault: fault() },
        ),
        (Standing::Freed, Partition::Proven, Wait::Partition),
    ] {
        let decision = decide(&releasing, &facts(&[first, Standing::Freed], partition), NOW);
        assert!(
            matches!(&decision, Decision::Wait { why, .. } if *why == wait),
            "{decision:?}"
        );
    }
    for partition in [Partition::Gone, Partition::None] {
        let free = facts(&[Standing::Freed, Standing::Freed], partition);
        assert_eq!(edge(&decide(&releasing, &free, NOW)), Some(Edge::Freed));
    }
}

#[test]
fn a_lease_gives_notice_before_it_ends() {
    let mut ready = cluster(State::Ready);
    let facts = facts(&[ACTIVE], Partition::None);
    let end = NOW.plus(seconds(8 * 24 * 3600));
    ready.lease_end = Some(end);
    let mut now = NOW;
    let mut given = Vec::new();
    for _ in 0..1000 {
        match decide(&ready, &facts, now) {
            Decision::Wait { until, .. } => {
                assert!(until > now);
                now = until;
            }
            Decision::Act(Effect::Notice { given: n, lease_end }) => {
                assert_eq!(lease_end, end);
                given.push(end.since(now) / 1_000_000);
                ready.notices = n;
            }
            Decision::Move { edge, reason } => {
                assert_eq!((edge, reason.as_str()), (Edge::Released, "its lease has ended"));
                assert_eq!(now, end);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(given, NOTICES_S);
}

#[test]
fn a_lease_that_ends_soon_gives_one_notice() {
    let mut ready = cluster(State::Ready);
    ready.lease_end = Some(NOW.plus(seconds(600)));
    let facts = facts(&[ACTIVE], Partition::None);
    let decision = decide(&ready, &facts, NOW);
    assert!(
        matches!(decision, Decision::Act(Effect::Notice { given: 3, .. })),
        "{decision:?}"
    );
}

fn claim(cluster: &'static str) -> Claim {
    Claim {
        generation: 1,
        deployment: 1,
        image_digest: String::new(),
        image_name: String::new(),
        hostname: String::new(),
        ssh_authorized_keys: Vec::new(),
        has_user_data: false,
        plain_user_data: String::new(),
        root_drive: String::new(),
        verify_whole_disk: false,
        release_requested: false,
        handed_over: None,
        customer: "".into(),
        cluster: Some(ClusterClaim {
            cluster: cluster.into(),
            let_go: None,
            build: 1,
        }),
    }
}

fn node(state: NodeState, claim: Option<&Claim>) -> Node {
    Node {
        state,
        since: NOW,
        generation: 1,
        claim: claim.cloned(),
        wanted: crate::node::Wanted::default(),
        evidence: Evidence::default(),
        doubt: None,
    }
}

#[test]
fn the_standing_of_a_node_follows_from_state_and_claim() {
    let (ours, theirs) = (claim("a"), claim("b"));
    let of = |state, claim: Option<&Claim>, wait: &NodeWait| standing(&"a".into(), &node(state, claim), wait, "");
    let (rests, waits) = (NodeWait::Rest, NodeWait::Cluster);
    assert_eq!(of(NodeState::Imaging, Some(&ours), &rests), Standing::Coming);
    assert_eq!(of(NodeState::Validating, Some(&ours), &rests), Standing::Coming);
    assert_eq!(of(NodeState::Validating, Some(&ours), &waits), Standing::Checked);
    let mut handed_over = ours.clone();
    handed_over.handed_over = Some(1);
    assert_eq!(of(NodeState::Active, Some(&handed_over), &rests), Standing::HandedOver);
    handed_over.deployment = 2;
    assert_eq!(
        of(NodeState::Active, Some(&handed_over), &rests),
        Standing::Coming,
        "another image is wanted on it"
    );
    let mut retried = node(NodeState::Failed, Some(&handed_over));
    retried.wanted.retry = true;
    assert_eq!(standing(&"a".into(), &retried, &rests, "no disk"), Standing::Coming);
    assert_eq!(of(NodeState::Active, Some(&theirs), &rests), Standing::Freed);
    assert_eq!(of(NodeState::Available, None, &rests), Standing::Freed);
    assert_eq!(
        standing(&"a".into(), &node(NodeState::Failed, Some(&ours)), &rests, "no disk"),
        lost(NodeState::Failed, "no disk")
    );
    let mut let_go = ours.clone();
    let_go.cluster.as_mut().unwrap().let_go = Some(NOW);
    assert_eq!(
        of(NodeState::Validating, Some(&let_go), &waits),
        Standing::Coming,
        "on its way out of our hands"
    );
    let mut leaving = ours.clone();
    leaving.release_requested = true;
    assert_eq!(of(NodeState::Active, Some(&leaving), &rests), Standing::Leaving);
    assert_eq!(of(NodeState::Reclaiming, Some(&leaving), &rests), Standing::Leaving);
    assert_eq!(
        of(NodeState::Failed, Some(&leaving), &rests),
        Standing::Leaving,
        "about to be erased"
    );
    assert_eq!(
        of(NodeState::Quarantined, Some(&leaving), &rests),
        Standing::Freed,
        "an operator's now"
    );
}

#[test]
fn a_broken_link_degrades_a_handed_over_cluster_and_removes_no_node() {
    let mut facts = facts(&[ACTIVE, ACTIVE], Partition::Proven);
    let day = NOW.plus(minutes(24 * 60));
    facts.members[1].impaired = Some(Impaired {
        since: NOW,
        seen: day,
        why: "port of mlx5_3 is down".into(),
    });
    match decide(&cluster(State::Ready), &facts, day) {
        Decision::Move {
            edge: Edge::Degraded,
            reason,
        } => assert_eq!(reason, "n1: port of mlx5_3 is down"),
        other => panic!("{other:?}"),
    }
    match decide(&cluster(State::Degraded), &facts, day) {
        Decision::Wait { why, .. } => {
            let (node, fault) = ("n1".into(), "port of mlx5_3 is down".to_owned());
            assert_eq!(why, Wait::LinkFault { node, fault });
        }
        other => panic!("{other:?}"),
    }
    // Other nodes are built and handed over meanwhile.
    facts.members[0].standing = CHECKED;
    let decision = decide(&cluster(State::Degraded), &facts, day);
    assert_eq!(decision, let_hand_over(&[0]));
    facts.members[0].standing = ACTIVE;
    facts.members[1].impaired = None;
    assert_eq!(
        edge(&decide(&cluster(State::Degraded), &facts, day)),
        Some(Edge::Restored)
    );
}

#[test]
fn a_checked_node_with_a_link_that_stays_down_is_replaced_after_a_grace_time() {
    let mut facts = facts(
        &[CHECKED, CHECKED],
        Partition::Faulty("a port is not in the fabric".into()),
    );
    let impaired = |seen: Timestamp| {
        let why = "port of mlx5_0 is down".to_owned();
        Some(Impaired { since: NOW, seen, why })
    };
    let late = NOW.plus(seconds(LINK_GRACE_S));
    // The last observation counts, not the clock: the next reading may find the link up.
    facts.members[1].impaired = impaired(late.plus(-1));
    for state in [State::Building, State::Validating, State::Degraded] {
        let decision = decide(&cluster(state), &facts, NOW.plus(minutes(60)));
        assert!(matches!(decision, Decision::Wait { .. }), "{state}: {decision:?}");
    }
    facts.members[1].impaired = impaired(late);
    for state in [State::Building, State::Degraded] {
        match decide(&cluster(state), &facts, late) {
            Decision::Act(Effect::Replace { node, reason }) => {
                assert_eq!(node, "n1");
                assert_eq!(reason, "its link to the fabric: port of mlx5_0 is down");
            }
            other => panic!("{state}: {other:?}"),
        }
    }
    let validating = decide(&cluster(State::Validating), &facts, late);
    assert_eq!(edge(&validating), Some(Edge::Rebuilt));
    // A node on its way reboots, and its links go down and up with it.
    facts.members[1].standing = COMING;
    let decision = decide(&cluster(State::Building), &facts, late);
    assert!(matches!(decision, Decision::Wait { .. }), "{decision:?}");
}

#[test]
fn nodes_are_handed_over_only_after_the_network_between_them_was_tested() {
    let mut facts = facts(&[CHECKED, CHECKED], Partition::Proven);
    let test = Decision::Act(Effect::TestNetwork);
    let later = NOW.plus(seconds(600));
    let blocked = Network::Blocked {
        fault: "switch leaf-1".into(),
        again: later,
    };
    for state in [State::Validating, State::Degraded] {
        let cluster = cluster(state);
        facts.network = Network::Untested;
        assert_eq!(decide(&cluster, &facts, NOW), test);
        let fault = "switch leaf-1".to_owned();
        for (network, wait) in [
            (Network::Running(later), Wait::NetworkTest),
            (blocked.clone(), Wait::NetworkFault { fault }),
        ] {
            facts.network = network;
            match decide(&cluster, &facts, NOW) {
                Decision::Wait { why, until } => assert_eq!((why, until), (wait, later)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(decide(&cluster, &facts, later), test, "tried again after its pause");
        facts.network = Network::Passed;
        assert_eq!(decide(&cluster, &facts, NOW), let_hand_over(&[0, 1]));
    }
    facts.members.iter_mut().for_each(|member| member.standing = ACTIVE);
    facts.network = Network::Untested;
    let decision = decide(&cluster(State::Degraded), &facts, NOW);
    assert_eq!(edge(&decision), Some(Edge::Restored), "nothing is left to be tested");
}

#[test]
fn a_node_at_fault_by_the_network_is_replaced_as_a_lost_one_is() {
    let mut facts = facts(&[CHECKED, CHECKED], Partition::Proven);
    facts.network = Network::Faulty {
        nodes: [("n1".into(), "cable c7".to_owned())].into(),
        passed: ["n0".into()].into(),
    };
    assert_eq!(
        edge(&decide(&cluster(State::Validating), &facts, NOW)),
        Some(Edge::Rebuilt)
    );
    let replace = Decision::Act(Effect::Replace {
        node: "n1".into(),
        reason: "network: cable c7".into(),
    });
    for state in [State::Building, State::Degraded] {
        assert_eq!(decide(&cluster(state), &facts, NOW), replace);
    }
    for member in &mut facts.members {
        (member.standing, member.is_new) = (ACTIVE, false);
    }
    let decision = decide(&cluster(State::Ready), &facts, NOW);
    assert!(
        matches!(decision, Decision::Wait { .. }),
        "what was handed over stays: {decision:?}"
    );
}

#[test]
fn a_node_at_fault_without_a_replacement_is_not_handed_over_with_the_others() {
    let mut facts = facts(&[CHECKED, CHECKED, CHECKED, ACTIVE], Partition::Proven);
    facts.network = Network::Faulty {
        nodes: [("n1".into(), "cable c7".to_owned())].into(),
        passed: ["n0".into()].into(),
    };
    facts.swap = Some(Swap {
        at: NOW,
        refused: "no free node".into(),
        lost: "n1".into(),
        obstacle: Obstacle::Placement,
    });
    let degraded = cluster(State::Degraded);
    // n2 was checked after the test: it waits for the next one.
    assert_eq!(decide(&degraded, &facts, NOW), let_hand_over(&[0]));
    facts.members[0].standing = ACTIVE;
    let decision = decide(&degraded, &facts, NOW);
    let is_wait = matches!(&decision, Decision::Wait { why: Wait::Replacement { lost, .. }, .. } if lost == "n1");
    assert!(is_wait, "{decision:?}");
}
