//! A simulated cluster gets another image until it comes to rest: every decision is carried out, node by node.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::chart::State as NodeState;
use crate::ids::NodeId;
use crate::time::Timestamp;

const NOW: Timestamp = Timestamp(1_000_000_000_000);

fn lost(state: NodeState, reason: &str) -> Standing {
    let reason = reason.to_owned();
    Standing::Lost(Loss { state, reason })
}

/// A simulated cluster.
struct Play {
    cluster: Cluster,
    members: Vec<Member>,
    swap: Option<Swap>,
    /// True for a build that fails on a node.
    bad: fn(&str, u32) -> bool,
    /// Nodes available as replacements.
    free: u32,
    /// Most nodes that were out of use at once.
    most_away: usize,
    /// Most leaves with nodes under way at once.
    leaves_at_once: usize,
    writes: BTreeMap<NodeId, u32>,
    stopped: Option<String>,
    replaced: u32,
}

fn rollout(max_unavailable: u32, by_leaf: bool) -> Rollout {
    Rollout {
        max_unavailable,
        by_leaf,
        max_failures: 0,
        failed: 0,
        again: BTreeSet::new(),
        roll_back: false,
        is_back: false,
        stopped: None,
    }
}

impl Play {
    fn new(nodes: u32, of_a_leaf: u32, rollout: Rollout) -> Self {
        let member = |n: u32| Member {
            node: NodeId::stored(format!("n{n:02}")),
            standing: Standing::HandedOver,
            build: 1,
            is_new: false,
            is_writable: true,
            is_failed: false,
            leaf: n / of_a_leaf,
            impaired: None,
        };
        Self {
            cluster: Cluster {
                state: State::Ready,
                since: NOW,
                wanted: Wanted::default(),
                lease_end: None,
                notices: 0,
                build: 2,
                rollout: Some(rollout),
            },
            members: (0..nodes).map(member).collect(),
            swap: None,
            bad: |_, _| false,
            free: 0,
            most_away: 0,
            leaves_at_once: 0,
            writes: BTreeMap::new(),
            stopped: None,
            replaced: 0,
        }
    }

    fn facts(&self) -> Facts {
        Facts {
            members: self.members.clone(),
            partition: Partition::Proven,
            other_ports: None,
            swap: self.swap.clone(),
            network: Network::Off,
        }
    }

    /// Runs until the cluster comes to rest; returns its last wait.
    fn run(&mut self) -> Wait {
        for _ in 0..10_000 {
            let away = |member: &&Member| member.standing != Standing::HandedOver;
            self.most_away = self.most_away.max(self.members.iter().filter(away).count());
            let coming = self.members.iter().filter(|member| member.standing == Standing::Coming);
            let leaves: BTreeSet<u32> = coming
                .filter(|member| !member.is_new)
                .map(|member| member.leaf)
                .collect();
            self.leaves_at_once = self.leaves_at_once.max(leaves.len());
            match decide(&self.cluster, &self.facts(), NOW) {
                Decision::Wait { why, .. } if !self.a_node_comes_on() => return why,
                Decision::Wait { .. } => {}
                Decision::Move { edge, .. } => {
                    self.cluster.state = edge.target(self.cluster.state).unwrap();
                    if edge == Edge::Restored {
                        self.cluster.rollout = None;
                    }
                }
                Decision::Act(effect) => self.act(effect),
            }
        }
        panic!("it does not come to rest: {:?}", self.members);
    }

    /// The first node under way arrives or fails.
    fn a_node_comes_on(&mut self) -> bool {
        let Some(member) = self.members.iter_mut().find(|m| m.standing == Standing::Coming) else {
            return false;
        };
        let fails = (self.bad)(member.node.as_str(), member.build);
        member.standing = match (fails, member.is_new) {
            (true, _) => lost(NodeState::Failed, "it does not boot"),
            (false, true) => Standing::Checked,
            (false, false) => Standing::HandedOver,
        };
        member.is_writable = member.standing != Standing::Checked;
        member.is_failed = fails;
        true
    }

    fn act(&mut self, effect: Effect) {
        let build = self.cluster.build;
        match effect {
            Effect::Reimage(nodes) => {
                for member in self.members.iter_mut().filter(|m| nodes.contains(&m.node)) {
                    let again = self.cluster.rollout.as_mut().unwrap().again.remove(&member.node);
                    assert!(member.is_writable && (again || member.build != build), "{member:?}");
                    *self.writes.entry(member.node.clone()).or_default() += 1;
                    (member.build, member.standing, member.is_writable) = (build, Standing::Coming, false);
                    member.is_failed = false;
                }
            }
            Effect::LetHandOver(nodes) => {
                for member in self.members.iter_mut().filter(|m| nodes.contains(&m.node)) {
                    assert_eq!(member.standing, Standing::Checked);
                    (member.standing, member.is_new, member.is_writable) = (Standing::HandedOver, false, true);
                }
            }
            Effect::StopRollout(why) => {
                self.stopped = Some(why.clone());
                self.cluster.rollout.as_mut().unwrap().stopped = Some(why);
            }
            Effect::RollBack(why) => {
                self.stopped = Some(why);
                self.cluster.build = 1;
                let rollout = self.cluster.rollout.as_mut().unwrap();
                (rollout.is_back, rollout.failed) = (true, 0);
            }
            Effect::Replace { node, .. } if self.free > 0 => {
                self.free -= 1;
                self.replaced += 1;
                let member = self.members.iter_mut().find(|m| m.node == node).unwrap();
                if member.build == build && member.is_failed {
                    self.cluster.rollout.as_mut().unwrap().failed += 1;
                }
                *member = Member {
                    node: NodeId::stored(format!("{node}-by")),
                    standing: Standing::Coming,
                    build,
                    is_new: true,
                    is_writable: false,
                    is_failed: false,
                    leaf: member.leaf,
                    impaired: None,
                };
            }
            Effect::Replace { node, .. } => {
                self.swap = Some(Swap {
                    at: NOW,
                    refused: "no node is free".to_owned(),
                    lost: node,
                    obstacle: Obstacle::Placement,
                });
            }
            other => panic!("{other:?}"),
        }
    }

    fn builds(&self) -> BTreeSet<u32> {
        self.members.iter().map(|member| member.build).collect()
    }
}

#[test]
fn every_node_gets_the_image_once_and_no_more_are_away_than_may_be() {
    for nodes in [1, 3, 8, 17] {
        for max in [1, 2, 5, 100] {
            for by_leaf in [true, false] {
                let mut play = Play::new(nodes, 4, rollout(max, by_leaf));
                assert_eq!(play.run(), Wait::Rest);
                assert_eq!((play.cluster.state, play.builds()), (State::Ready, [2].into()));
                assert!(play.most_away <= max as usize, "{nodes} {max}: {}", play.most_away);
                assert!(play.writes.values().all(|writes| *writes == 1), "{:?}", play.writes);
                assert_eq!(play.writes.len(), nodes as usize);
                if by_leaf {
                    assert!(play.leaves_at_once <= 1, "{nodes} {max}");
                }
            }
        }
    }
}

#[test]
fn a_bad_image_stops_at_the_first_failure_too_many() {
    for borne in [0, 1, 3] {
        let mut play = Play::new(
            16,
            4,
            Rollout {
                max_failures: borne,
                ..rollout(1, true)
            },
        );
        play.bad = |_, build| build == 2;
        play.free = 100;
        let why = play.run();
        assert!(matches!(why, Wait::ReimageStopped { .. }), "{why:?}");
        assert!(play.stopped.as_ref().unwrap().contains("allowed: n"));
        let touched = play.writes.len() as u32 + play.replaced;
        assert!(touched <= 2 * (borne + 1), "{borne}: {touched}");
        assert_eq!(play.cluster.state, State::Reimaging);
        // An operator mends the fault and resumes the rollout.
        play.bad = |_, _| false;
        let lost = play.members.iter().filter(|member| member.standing.is_out());
        let again: BTreeSet<NodeId> = lost.map(|member| member.node.clone()).collect();
        assert!(!again.is_empty());
        let rollout = play.cluster.rollout.as_mut().unwrap();
        (rollout.stopped, rollout.failed, rollout.again) = (None, 0, again);
        assert_eq!(play.run(), Wait::Rest);
        assert_eq!((play.cluster.state, play.builds()), (State::Ready, [2].into()));
        assert!(play.writes.values().all(|writes| *writes <= 2), "{:?}", play.writes);
    }
}

#[test]
fn a_bad_image_is_rolled_back_and_only_where_it_was_written() {
    let mut play = Play::new(
        16,
        4,
        Rollout {
            roll_back: true,
            ..rollout(4, true)
        },
    );
    play.bad = |_, build| build == 2;
    assert_eq!(play.run(), Wait::Rest);
    assert_eq!((play.cluster.state, play.builds()), (State::Ready, [1].into()));
    assert_eq!(play.writes.len(), 4, "{:?}", play.writes);
    assert!(play.writes.values().all(|writes| *writes <= 2), "{:?}", play.writes);
    assert!(play.most_away <= 4);
}

#[test]
fn failures_within_bounds_are_replaced_and_the_rollout_continues() {
    let mut play = Play::new(
        8,
        4,
        Rollout {
            max_failures: 1,
            ..rollout(1, true)
        },
    );
    play.bad = |node, _| node == "n01";
    play.free = 1;
    assert_eq!(play.run(), Wait::Rest);
    assert_eq!(
        (play.cluster.state, play.builds(), play.replaced),
        (State::Ready, [2].into(), 1)
    );
    // Without a replacement, all other nodes are done where there is room.
    let mut play = Play::new(
        8,
        4,
        Rollout {
            max_failures: 1,
            ..rollout(2, true)
        },
    );
    play.bad = |node, _| node == "n01";
    let why = play.run();
    assert!(
        matches!(&why, Wait::Replacement { lost, .. } if lost == "n01"),
        "{why:?}"
    );
    assert_eq!(play.writes.len(), 8);
}

#[test]
fn nodes_join_and_leave_a_cluster_in_use() {
    let mut play = Play::new(4, 4, rollout(1, true));
    play.cluster.rollout = None;
    play.cluster.build = 1;
    play.members.push(Member {
        node: "new".into(),
        standing: Standing::Coming,
        build: 1,
        is_new: true,
        is_writable: false,
        is_failed: false,
        leaf: 1,
        impaired: None,
    });
    play.cluster.wanted.leave.insert("n00".into());
    let cluster = &mut play.cluster;
    cluster.state = match decide(
        cluster,
        &Facts {
            members: play.members.clone(),
            partition: Partition::Proven,
            other_ports: None,
            swap: None,
            network: Network::Off,
        },
        NOW,
    ) {
        Decision::Move {
            edge: Edge::Resized,
            reason,
        } => {
            assert_eq!(reason, "nodes that join: 1, that leave: 1");
            State::Resizing
        }
        other => panic!("{other:?}"),
    };
    // A leaving node is erased at once, while the rest goes on.
    let release = Decision::Act(Effect::ReleaseNodes(vec!["n00".into()]));
    assert_eq!(decide(&play.cluster, &play.facts(), NOW), release);
    play.members[0].standing = Standing::Leaving;
    let coming = Wait::Nodes { coming: 1, of: 4 };
    assert!(matches!(decide(&play.cluster, &play.facts(), NOW), Decision::Wait { why, .. } if why == coming));
    play.members[4].standing = Standing::Checked;
    assert_eq!(
        decide(&play.cluster, &play.facts(), NOW),
        Decision::Act(Effect::LetHandOver(vec!["new".into()]))
    );
    play.members[4].standing = Standing::HandedOver;
    let erase = Wait::Erase { nodes: 1 };
    assert!(matches!(decide(&play.cluster, &play.facts(), NOW), Decision::Wait { why, .. } if why == erase));
    play.members[0].standing = Standing::Freed;
    // The node's ports leave the partition, with proof, before the node is free for others.
    let cut = Decision::Act(Effect::IsolateNodes(vec!["n00".into()]));
    assert_eq!(decide(&play.cluster, &play.facts(), NOW), cut);
    play.cluster.wanted.is_leave_cut = true;
    let mut pending = play.facts();
    pending.partition = Partition::Pending;
    assert!(matches!(decide(&play.cluster, &pending, NOW), Decision::Wait { .. }));
    let part = Decision::Act(Effect::RemoveNodes(vec!["n00".into()]));
    assert_eq!(decide(&play.cluster, &play.facts(), NOW), part);
    play.members.remove(0);
    play.cluster.wanted.leave.clear();
    assert!(matches!(
        decide(&play.cluster, &play.facts(), NOW),
        Decision::Move {
            edge: Edge::Restored,
            ..
        }
    ));
}

#[test]
fn a_held_or_later_failed_node_does_not_count_against_the_image() {
    let rollout = Rollout {
        roll_back: true,
        ..rollout(1, true)
    };
    for free in [0, 1] {
        let mut play = Play::new(8, 4, rollout.clone());
        play.free = free;
        play.members[0].build = 2;
        play.members[0].standing = lost(NodeState::Maintenance, "a fan");
        play.members[0].is_writable = false;
        let why = play.run();
        assert_eq!((play.stopped.clone(), play.replaced), (None, free), "{why:?}");
        if free == 1 {
            assert_eq!((why, play.builds()), (Wait::Rest, [2].into()));
        }
    }
}

#[test]
fn nodes_that_are_checked_are_handed_over_though_another_finds_no_successor() {
    let mut play = Play::new(4, 4, rollout(1, true));
    play.cluster.rollout = None;
    play.cluster.state = State::Degraded;
    play.members[0].standing = lost(NodeState::Failed, "");
    play.members[1].standing = Standing::Checked;
    play.members[1].is_new = true;
    let why = play.run();
    assert!(
        matches!(&why, Wait::Replacement { lost, .. } if lost == "n00"),
        "{why:?}"
    );
    assert_eq!(play.members[1].standing, Standing::HandedOver);
}
