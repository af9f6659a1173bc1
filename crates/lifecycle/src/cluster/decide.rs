//! What to do about a cluster now. Level-triggered, pure, total and deterministic, as of nodes.

use std::fmt;

use super::chart::{Edge, State};
use super::facts::{Cluster, Facts, Partition, Standing};
use crate::time::{Timestamp, minutes, seconds};

/// A cluster that is not built after so long has failed, in minutes.
pub const BUILD_DEADLINE_MIN: i64 = 24 * 60;
/// A search for another node that found none is made again after so long, in seconds.
pub const SWAP_PAUSE_S: i64 = 60;
/// So long before the end of a lease notice of it is given, in seconds: a week, a day, an hour.
pub const NOTICES_S: [i64; 3] = [7 * 24 * 3600, 24 * 3600, 3600];
/// A cluster with nothing to do is looked at again after so long, in seconds.
const LOOK_S: i64 = 3600;

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing to do before `until`, unless something changes.
    Wait {
        /// For what.
        why: Wait,
        /// Look again then.
        until: Timestamp,
    },
    /// Do this.
    Act(Effect),
    /// Take this edge.
    Move {
        /// The edge.
        edge: Edge,
        /// Why; empty where the edge's name says it.
        reason: String,
    },
}

/// What can be done for a cluster. Each is one change of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Put another node in the place of this one.
    Replace {
        /// The node.
        node: String,
        /// Why.
        reason: String,
    },
    /// Let every node that was checked be handed over.
    LetHandOver,
    /// Have every node erased and freed.
    ReleaseNodes,
    /// Say that the lease ends.
    Notice {
        /// Notices given with this one.
        given: usize,
        /// When it ends.
        lease_end: Timestamp,
    },
}

/// Why nothing is done at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// At rest.
    Rest,
    /// For nodes that are imaged and checked.
    Nodes {
        /// So many are on their way.
        coming: usize,
        /// Of so many.
        of: usize,
    },
    /// For the partition to be proven, or to be proven gone.
    Partition(String),
    /// For a node to take the place of one that is lost.
    Node {
        /// The lost one.
        lost: String,
        /// What is in the way.
        refused: String,
    },
    /// For nodes to be handed over.
    HandOver(usize),
    /// For nodes to be erased.
    Erase(usize),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rest => Ok(()),
            Self::Nodes { coming, of } => write!(f, "{coming} of {of} nodes to be imaged and checked"),
            Self::Partition(fault) if fault.is_empty() => f.write_str("the fabric manager"),
            Self::Partition(fault) => write!(f, "the fabric manager: {fault}"),
            Self::Node { lost, refused } => write!(f, "a node in place of {lost}: {refused}"),
            Self::HandOver(nodes) => write!(f, "{nodes} nodes to be handed over"),
            Self::Erase(nodes) => write!(f, "{nodes} nodes to be erased"),
        }
    }
}

fn go(edge: Edge, reason: impl Into<String>) -> Decision {
    let reason = reason.into();
    Decision::Move { edge, reason }
}

/// Decides.
#[must_use]
pub fn decide(cluster: &Cluster, facts: &Facts, now: Timestamp) -> Decision {
    let ctx = Ctx { cluster, facts, now };
    if let Some(decision) = ctx.ending() {
        return decision;
    }
    match cluster.state {
        State::Reserved => go(Edge::Started, ""),
        State::Building => ctx.building(),
        State::Validating => ctx.validating(),
        State::Ready => ctx.ready(),
        State::Degraded => ctx.degraded(),
        State::Releasing => ctx.releasing(),
        State::Released => ctx.rest(),
        State::Failed if cluster.wanted.retry => go(Edge::Retried, ""),
        State::Failed => ctx.rest(),
    }
}

struct Ctx<'a> {
    cluster: &'a Cluster,
    facts: &'a Facts,
    now: Timestamp,
}

impl Ctx<'_> {
    /// A release, by somebody's word or by the lease's end, and the notices before that.
    fn ending(&self) -> Option<Decision> {
        Edge::Released.target(self.cluster.state)?;
        if self.cluster.wanted.release {
            return Some(go(Edge::Released, ""));
        }
        let end = self.cluster.lease_end?;
        if end <= self.now {
            return Some(go(Edge::Released, "its lease has ended"));
        }
        let due = NOTICES_S
            .iter()
            .filter(|before| self.now >= end.plus(seconds(-**before)));
        let given = due.count();
        (given > self.cluster.notices).then_some(Decision::Act(Effect::Notice { given, lease_end: end }))
    }

    fn count(&self, is_so: impl Fn(&Standing) -> bool) -> usize {
        self.facts
            .members
            .iter()
            .filter(|member| is_so(&member.standing))
            .count()
    }

    /// The first node that is not in order, or that somebody wants replaced, and why.
    fn out_of_order(&self) -> Option<(String, String)> {
        self.facts.members.iter().find_map(|member| {
            let why = match &member.standing {
                Standing::Lost(why) => why.clone(),
                Standing::Freed | Standing::Leaving => "it was taken out of the cluster".to_owned(),
                _ => self.cluster.wanted.replace.get(&member.node)?.clone(),
            };
            Some((member.node.clone(), why))
        })
    }

    /// Replaces a node that is not in order, unless the last search was just made.
    fn replace(&self) -> Option<Decision> {
        let (node, reason) = self.out_of_order()?;
        if let Some(swap) = &self.facts.swap {
            let next = swap.at.plus(seconds(SWAP_PAUSE_S));
            if self.now < next {
                let refused = swap.refused.clone();
                return Some(self.wait(Wait::Node { lost: node, refused }, next));
            }
        }
        Some(Decision::Act(Effect::Replace { node, reason }))
    }

    /// Nodes on their way, then the partition.
    fn missing(&self) -> Option<Decision> {
        let coming = self.count(|standing| *standing == Standing::Coming);
        if coming > 0 {
            let of = self.facts.members.len();
            return Some(self.look_again(Wait::Nodes { coming, of }));
        }
        match &self.facts.partition {
            Partition::None | Partition::Proven => None,
            Partition::Pending(fault) => Some(self.look_again(Wait::Partition(fault.clone()))),
            Partition::Gone => Some(self.look_again(Wait::Partition("it has no partition key".to_owned()))),
        }
    }

    fn building(&self) -> Decision {
        if let Some(failed) = self.overdue() {
            return failed;
        }
        let missing = self.replace().or_else(|| self.missing());
        missing.unwrap_or_else(|| go(Edge::Built, ""))
    }

    fn validating(&self) -> Decision {
        if let Some(failed) = self.overdue() {
            return failed;
        }
        if let Some((node, why)) = self.out_of_order() {
            return go(Edge::Rebuilt, format!("{node} is out: {why}"));
        }
        self.missing()
            .or_else(|| self.hand_over())
            .unwrap_or_else(|| go(Edge::HandedOver, ""))
    }

    /// What is between a cluster whose nodes are all checked and one that is its customer's.
    fn hand_over(&self) -> Option<Decision> {
        let checked = self.count(|standing| *standing == Standing::Checked);
        (checked > 0).then_some(Decision::Act(Effect::LetHandOver))
    }

    fn ready(&self) -> Decision {
        match self.out_of_order() {
            Some((node, why)) => go(Edge::Degraded, format!("{node}: {why}")),
            None => self.rest(),
        }
    }

    fn degraded(&self) -> Decision {
        self.replace()
            .or_else(|| self.missing())
            .or_else(|| self.hand_over())
            .unwrap_or_else(|| go(Edge::Restored, ""))
    }

    fn releasing(&self) -> Decision {
        let held = self.count(|standing| !matches!(standing, Standing::Freed | Standing::Leaving));
        if held > 0 {
            return Decision::Act(Effect::ReleaseNodes);
        }
        let leaving = self.count(|standing| *standing == Standing::Leaving);
        if leaving > 0 {
            return self.look_again(Wait::Erase(leaving));
        }
        match &self.facts.partition {
            Partition::None | Partition::Gone => go(Edge::Freed, ""),
            Partition::Pending(fault) => self.look_again(Wait::Partition(fault.clone())),
            Partition::Proven => self.look_again(Wait::Partition(String::new())),
        }
    }

    fn overdue(&self) -> Option<Decision> {
        let deadline = self.cluster.since.plus(minutes(BUILD_DEADLINE_MIN));
        if self.now < deadline {
            return None;
        }
        let missing = match self.replace().or_else(|| self.missing()) {
            Some(Decision::Wait { why, .. }) => format!("; it waited for {why}"),
            _ => String::new(),
        };
        let hours = BUILD_DEADLINE_MIN / 60;
        let reason = format!("{} took longer than {hours} h{missing}", self.cluster.state);
        Some(go(Edge::Failed, reason))
    }

    fn rest(&self) -> Decision {
        self.look_again(Wait::Rest)
    }

    fn look_again(&self, why: Wait) -> Decision {
        self.wait(why, self.now.plus(seconds(LOOK_S)))
    }

    /// Waits, but not past what the lease brings.
    fn wait(&self, why: Wait, until: Timestamp) -> Decision {
        let until = match self.cluster.lease_end {
            Some(end) if Edge::Released.target(self.cluster.state).is_some() => {
                let before = NOTICES_S.get(self.cluster.notices).copied().unwrap_or(0);
                until.min(end.plus(seconds(-before)))
            }
            _ => until,
        };
        Decision::Wait { why, until }
    }
}
