use super::*;
use crate::chart::State as NodeState;
use crate::decide::Wait as NodeWait;
use crate::node::{Claim, Seat};
use crate::time::{Timestamp, minutes, seconds};

const NOW: Timestamp = Timestamp(1_000_000_000_000);

fn cluster(state: State) -> Cluster {
    Cluster {
        state,
        since: NOW,
        wanted: Wanted::default(),
        lease_end: None,
        notices: 0,
    }
}

fn facts(standings: &[Standing], partition: Partition) -> Facts {
    let member = |(n, standing): (usize, &Standing)| Member {
        node: format!("n{n}"),
        standing: standing.clone(),
    };
    Facts {
        members: standings.iter().enumerate().map(member).collect(),
        partition,
        swap: None,
    }
}

fn edge(decision: &Decision) -> Option<Edge> {
    match decision {
        Decision::Move { edge, .. } => Some(*edge),
        _ => None,
    }
}

const COMING: Standing = Standing::Coming;
const CHECKED: Standing = Standing::Checked;
const ACTIVE: Standing = Standing::HandedOver;

#[test]
fn nothing_is_handed_over_before_every_node_is_checked_and_the_partition_proven() {
    let building = cluster(State::Building);
    let waits = [
        facts(&[CHECKED, COMING], Partition::Proven),
        facts(&[CHECKED, CHECKED], Partition::Pending("port 3 was not read".into())),
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
    assert_eq!(decide(&validating, &all, NOW), Decision::Act(Effect::LetHandOver));
    let some = facts(&[CHECKED, ACTIVE], Partition::Proven);
    assert_eq!(decide(&validating, &some, NOW), Decision::Act(Effect::LetHandOver));
    let done = facts(&[ACTIVE, ACTIVE], Partition::Proven);
    assert_eq!(edge(&decide(&validating, &done, NOW)), Some(Edge::HandedOver));
}

#[test]
fn a_lost_node_is_replaced_and_not_looked_for_without_a_pause() {
    let lost = Standing::Lost("failed: no disk".into());
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
    });
    let until = NOW.plus(seconds(SWAP_PAUSE_S));
    match decide(&cluster(State::Building), &facts, NOW) {
        Decision::Wait { why, until: found } => {
            assert_eq!(found, until);
            assert_eq!(why.to_string(), "a node in place of n1: no free node");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(decide(&cluster(State::Building), &facts, until), replace);
}

#[test]
fn a_node_that_somebody_wants_out_is_replaced() {
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
fn a_cluster_that_is_not_built_in_time_has_failed_and_says_what_it_waited_for() {
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
fn a_release_ends_when_nodes_are_free_and_the_key_is_proven_gone() {
    let mut wanted = cluster(State::Ready);
    wanted.wanted.release = true;
    let held = facts(&[ACTIVE, ACTIVE], Partition::Proven);
    assert_eq!(edge(&decide(&wanted, &held, NOW)), Some(Edge::Released));
    let releasing = cluster(State::Releasing);
    assert_eq!(decide(&releasing, &held, NOW), Decision::Act(Effect::ReleaseNodes));
    for (standings, partition) in [
        ([Standing::Leaving, Standing::Freed], Partition::Gone),
        ([Standing::Freed, Standing::Freed], Partition::Pending(String::new())),
        ([Standing::Freed, Standing::Freed], Partition::Proven),
    ] {
        let decision = decide(&releasing, &facts(&standings, partition), NOW);
        assert!(matches!(decision, Decision::Wait { .. }), "{decision:?}");
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

fn claim(cluster: &str) -> Claim {
    Claim {
        generation: 1,
        deployment: 1,
        image_digest: String::new(),
        image_name: String::new(),
        hostname: String::new(),
        ssh_authorized_keys: Vec::new(),
        user_data: String::new(),
        root_drive: String::new(),
        verify_whole_disk: false,
        release_requested: false,
        handed_over: None,
        customer: String::new(),
        cluster: Some(Seat {
            cluster: cluster.into(),
            let_go: None,
        }),
    }
}

#[test]
fn nodes_stand_by_state_and_claim() {
    let (ours, theirs) = (claim("a"), claim("b"));
    let of = |state, claim, why: &str| standing("a", state, claim, why, "");
    let waits = NodeWait::Cluster.to_string();
    assert_eq!(of(NodeState::Imaging, Some(&ours), ""), Standing::Coming);
    assert_eq!(of(NodeState::Validating, Some(&ours), ""), Standing::Coming);
    assert_eq!(of(NodeState::Validating, Some(&ours), &waits), Standing::Checked);
    assert_eq!(of(NodeState::Active, Some(&ours), ""), Standing::HandedOver);
    assert_eq!(of(NodeState::Active, Some(&theirs), ""), Standing::Freed);
    assert_eq!(of(NodeState::Available, None, ""), Standing::Freed);
    assert_eq!(
        standing("a", NodeState::Failed, Some(&ours), "", "no disk"),
        Standing::Lost("failed: no disk".into())
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
    assert_eq!(of(NodeState::Active, Some(&leaving), ""), Standing::Leaving);
    assert_eq!(of(NodeState::Reclaiming, Some(&leaving), ""), Standing::Leaving);
    assert_eq!(
        of(NodeState::Failed, Some(&leaving), ""),
        Standing::Leaving,
        "about to be erased"
    );
    assert_eq!(
        of(NodeState::Quarantined, Some(&leaving), ""),
        Standing::Freed,
        "an operator's now"
    );
}
