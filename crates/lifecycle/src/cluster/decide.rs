//! Decides what to do about a cluster now. Level-triggered, pure, total and deterministic, as for nodes.

use super::chart::{Edge, State};
use super::facts::{Cluster, Facts, Member, Network, Partition, Standing};
use super::wait::Wait;
use crate::ids::NodeId;
use crate::time::{Timestamp, minutes, seconds};

/// A cluster that is not built within this time has failed, in minutes.
pub const BUILD_DEADLINE_MIN: i64 = 24 * 60;
/// Pause after a search for a replacement node that found none, in seconds.
pub const SWAP_PAUSE_S: i64 = 60;
/// A checked node is replaced before the hand-over when its link to the fabric stays down or slow for this long, in
/// seconds.
pub const LINK_GRACE_S: i64 = 15 * 60;
/// Times of the notices before the end of a lease, in seconds: a week, a day, an hour.
pub const NOTICES_S: [i64; 3] = [7 * 24 * 3600, 24 * 3600, 3600];
/// An idle cluster is looked at again after this time, in seconds.
const RECHECK_S: i64 = 3600;

/// The decision about one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing to do before `until`, unless a fact changes.
    Wait {
        /// The reason of the wait.
        why: Wait,
        /// When to decide again.
        until: Timestamp,
    },
    /// Apply this effect.
    Act(Effect),
    /// Take this edge.
    Move {
        /// The edge to take.
        edge: Edge,
        /// The reason; empty where the edge's name is enough.
        reason: String,
    },
}

/// A change for a cluster. Each is one transaction of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Replace this node by another one.
    Replace {
        /// The node to replace.
        node: NodeId,
        /// The reason, for people.
        reason: String,
    },
    /// Test the network between the checked nodes.
    TestNetwork,
    /// Let these checked nodes be handed over, and no others.
    LetHandOver(Vec<NodeId>),
    /// Erase and free these nodes.
    ReleaseNodes(Vec<NodeId>),
    /// Make the ports that the site has for the cluster's nodes the ports of its partition.
    TakePorts,
    /// Take the ports of these erased nodes out of the partition.
    IsolateNodes(Vec<NodeId>),
    /// Remove these erased nodes from the cluster, and free their power, cooling and links.
    RemoveNodes(Vec<NodeId>),
    /// Write the image of the wanted build to these nodes.
    Reimage(Vec<NodeId>),
    /// Too many nodes failed with the new image: write it to no further node, with the reason.
    StopRollout(String),
    /// Too many nodes failed with the new image: return to the former image, with the reason.
    RollBack(String),
    /// Announce the end of the lease.
    Notice {
        /// Number of notices given, this one included.
        given: usize,
        /// When the lease ends.
        lease_end: Timestamp,
    },
}

pub(super) fn take_edge(edge: Edge, reason: impl Into<String>) -> Decision {
    let reason = reason.into();
    Decision::Move { edge, reason }
}

/// Decides about one cluster.
#[must_use]
pub fn decide(cluster: &Cluster, facts: &Facts, now: Timestamp) -> Decision {
    let ctx = Ctx { cluster, facts, now };
    let first = ctx.release_or_notice().or_else(|| ctx.take_ports());
    if let Some(decision) = first.or_else(|| ctx.release_leaving()) {
        return decision;
    }
    match cluster.state {
        State::Reserved => take_edge(Edge::Started, ""),
        State::Building => ctx.building(),
        State::Validating => ctx.validating(),
        State::Ready => ctx.ready(),
        State::Degraded | State::Resizing => ctx.repairing(),
        State::Reimaging => ctx.reimaging(),
        State::Releasing => ctx.releasing(),
        State::Released => ctx.rest(),
        State::Failed if cluster.wanted.retry => take_edge(Edge::Retried, ""),
        State::Failed => ctx.rest(),
    }
}

pub(super) struct Ctx<'a> {
    pub(super) cluster: &'a Cluster,
    facts: &'a Facts,
    now: Timestamp,
}

impl Ctx<'_> {
    /// The release, on request or at the lease's end, and the notices before that.
    fn release_or_notice(&self) -> Option<Decision> {
        Edge::Released.target(self.cluster.state)?;
        if self.cluster.wanted.release {
            return Some(take_edge(Edge::Released, ""));
        }
        let end = self.cluster.lease_end?;
        if end <= self.now {
            return Some(take_edge(Edge::Released, "its lease has ended"));
        }
        let due = NOTICES_S
            .iter()
            .filter(|before| self.now >= end.plus(seconds(-**before)));
        let given = due.count();
        (given > self.cluster.notices).then_some(Decision::Act(Effect::Notice { given, lease_end: end }))
    }

    /// The change of the partition to other ports of the site. A cluster in order is degraded first, until the ports are
    /// proven.
    fn take_ports(&self) -> Option<Decision> {
        let words = self.facts.other_ports.as_ref()?;
        match self.cluster.state {
            State::Releasing | State::Released => None,
            State::Ready => Some(take_edge(Edge::Degraded, words.clone())),
            _ => Some(Decision::Act(Effect::TakePorts)),
        }
    }

    fn count(&self, is_so: impl Fn(&Standing) -> bool) -> usize {
        self.facts
            .members
            .iter()
            .filter(|member| is_so(&member.standing))
            .count()
    }

    /// The members that stay; a node that is to leave needs no replacement.
    pub(super) fn staying(&self) -> impl Iterator<Item = &Member> {
        let leave = &self.cluster.wanted.leave;
        self.facts
            .members
            .iter()
            .filter(move |member| !leave.contains(&member.node))
    }

    /// Erases the nodes that are to leave, and then removes them from the cluster.
    fn release_leaving(&self) -> Option<Decision> {
        let leave = &self.cluster.wanted.leave;
        let is_its_customers = matches!(
            self.cluster.state,
            State::Building | State::Validating | State::Degraded | State::Resizing | State::Reimaging
        );
        if leave.is_empty() || !is_its_customers {
            return None;
        }
        let leaving = |is_so: fn(&Standing) -> bool| -> Vec<NodeId> {
            let members = self.facts.members.iter();
            let found = members.filter(|member| leave.contains(&member.node) && is_so(&member.standing));
            found.map(|member| member.node.clone()).collect()
        };
        let held = leaving(|standing| !matches!(standing, Standing::Freed | Standing::Leaving));
        if !held.is_empty() {
            return Some(Decision::Act(Effect::ReleaseNodes(held)));
        }
        let freed = leaving(|standing| *standing == Standing::Freed);
        // All leaving nodes together, so that one change returns their reservation.
        if leaving(|_| true).len() != freed.len() {
            return None;
        }
        // A node is free for others only after its ports are proven out of the partition.
        match &self.facts.partition {
            Partition::None => Some(Decision::Act(Effect::RemoveNodes(freed))),
            _ if !self.cluster.wanted.is_leave_cut => Some(Decision::Act(Effect::IsolateNodes(freed))),
            Partition::Proven => Some(Decision::Act(Effect::RemoveNodes(freed))),
            Partition::Pending | Partition::Draining(_) | Partition::Faulty(_) | Partition::Gone => None,
        }
    }

    /// The wait for the nodes that are to leave.
    fn wait_for_leaving(&self) -> Option<Decision> {
        let left = self.cluster.wanted.leave.len();
        (left > 0).then(|| self.recheck(Wait::Erase { nodes: left }))
    }

    /// The first node that is lost or faulty, or is to be replaced on request, and why.
    fn out_of_order(&self) -> Option<(NodeId, String)> {
        self.out_of_order_of(|_| true)
    }

    /// As `out_of_order`, for the members that `is_one` selects.
    pub(super) fn out_of_order_of(&self, is_one: impl Fn(&Member) -> bool) -> Option<(NodeId, String)> {
        self.staying().filter(|member| is_one(member)).find_map(|member| {
            let why = match &member.standing {
                Standing::Lost(loss) => loss.to_string(),
                Standing::Freed | Standing::Leaving => "the node was removed from the cluster".to_owned(),
                Standing::Checked if let Some(why) = overdue_link(member) => why,
                Standing::Checked if self.has_failed(&member.node) => self.network_fault(&member.node),
                _ => self.cluster.wanted.replace.get(&member.node)?.clone(),
            };
            Some((member.node.clone(), why))
        })
    }

    /// The first node in use with a faulty link. The cluster keeps the node: an operator decides about it, knowing its
    /// workload.
    fn impaired(&self) -> Option<(NodeId, String)> {
        let mut members = self.facts.members.iter();
        members.find_map(|member| {
            let impaired = member.impaired.as_ref()?;
            (member.standing == Standing::HandedOver).then(|| (member.node.clone(), impaired.why.clone()))
        })
    }

    fn has_failed(&self, node: &NodeId) -> bool {
        matches!(&self.facts.network, Network::Faulty { nodes, .. } if nodes.contains_key(node))
    }

    fn network_fault(&self, node: &NodeId) -> String {
        let why = match &self.facts.network {
            Network::Faulty { nodes, .. } => nodes.get(node).map_or("", String::as_str),
            _ => "",
        };
        format!("network: {why}")
    }

    /// Replaces a lost or faulty node, unless the last search has just failed.
    pub(super) fn replace(&self) -> Option<Decision> {
        let (node, reason) = self.out_of_order()?;
        Some(self.replace_one(node, reason))
    }

    pub(super) fn replace_one(&self, node: NodeId, reason: String) -> Decision {
        if let Some(swap) = &self.facts.swap {
            let next = swap.at.plus(seconds(SWAP_PAUSE_S));
            if self.now < next {
                let refused = swap.refused.clone();
                return self.wait(Wait::Replacement { lost: node, refused }, next);
            }
        }
        Decision::Act(Effect::Replace { node, reason })
    }

    /// The wait for nodes on their way, then for the partition.
    fn missing(&self) -> Option<Decision> {
        let is_coming = |member: &&Member| member.standing == Standing::Coming;
        let coming = self.staying().filter(is_coming).count();
        if coming > 0 {
            let of = self.staying().count();
            return Some(self.recheck(Wait::Nodes { coming, of }));
        }
        let no_key = "the cluster has no partition key";
        match &self.facts.partition {
            Partition::None | Partition::Proven => None,
            Partition::Pending => Some(self.recheck(Wait::Partition)),
            Partition::Faulty(fault) => Some(self.partition_fault(fault)),
            Partition::Draining(_) | Partition::Gone => Some(self.partition_fault(no_key)),
        }
    }

    fn building(&self) -> Decision {
        if let Some(failed) = self.overdue() {
            return failed;
        }
        let missing = self.replace().or_else(|| self.missing());
        missing.unwrap_or_else(|| take_edge(Edge::Built, ""))
    }

    fn validating(&self) -> Decision {
        if let Some(failed) = self.overdue() {
            return failed;
        }
        if let Some((node, why)) = self.out_of_order() {
            return take_edge(Edge::Rebuilt, format!("{node} has to be replaced: {why}"));
        }
        self.missing()
            .or_else(|| self.hand_over())
            .or_else(|| self.wait_for_leaving())
            .unwrap_or_else(|| take_edge(Edge::HandedOver, ""))
    }

    /// The steps from all nodes checked to the hand-over. A node that the network test found at fault, or did not test,
    /// stays behind.
    fn hand_over(&self) -> Option<Decision> {
        let checked = self.facts.members.iter();
        let checked = checked.filter(|member| member.standing == Standing::Checked);
        let mut good: Vec<NodeId> = checked.map(|member| member.node.clone()).collect();
        if good.is_empty() {
            return None;
        }
        if let Some(network) = self.network() {
            return Some(network);
        }
        if let Network::Faulty { passed, .. } = &self.facts.network {
            good.retain(|node| passed.contains(node));
        }
        (!good.is_empty()).then_some(Decision::Act(Effect::LetHandOver(good)))
    }

    /// The test of the network between the nodes, before the hand-over.
    fn network(&self) -> Option<Decision> {
        match &self.facts.network {
            // `out_of_order` has the faulty nodes. If no node can replace one of them, the nodes that passed are handed
            // over meanwhile.
            Network::Off | Network::Passed | Network::Faulty { .. } => None,
            Network::Untested => Some(Decision::Act(Effect::TestNetwork)),
            Network::Running(until) => Some(self.wait(Wait::NetworkTest, *until)),
            Network::Blocked { again, .. } if *again <= self.now => Some(Decision::Act(Effect::TestNetwork)),
            Network::Blocked { fault, again } => {
                let fault = fault.clone();
                Some(self.wait(Wait::NetworkFault { fault }, *again))
            }
        }
    }

    fn ready(&self) -> Decision {
        if let Some((node, why)) = self.out_of_order().or_else(|| self.impaired()) {
            return take_edge(Edge::Degraded, format!("{node}: {why}"));
        }
        if self.cluster.rollout.is_some() {
            return take_edge(Edge::Reimaged, "");
        }
        let joining = self.staying().filter(|member| member.is_new).count();
        match (joining, self.cluster.wanted.leave.len()) {
            (0, 0) => self.rest(),
            (joining, leaving) => take_edge(
                Edge::Resized,
                format!("nodes that join: {joining}, that leave: {leaving}"),
            ),
        }
    }

    /// A node is missing, or nodes join or leave.
    fn repairing(&self) -> Decision {
        if self.cluster.rollout.is_some() {
            return take_edge(Edge::Reimaged, "");
        }
        self.next_repair()
            .or_else(|| self.wait_for_link())
            .unwrap_or_else(|| take_edge(Edge::Restored, ""))
    }

    /// The next step from a cluster in use to a cluster in order. A node without a replacement holds up no other node: the
    /// checked nodes are handed over meanwhile.
    pub(super) fn next_repair(&self) -> Option<Decision> {
        match (self.replace(), self.next_completion()) {
            (Some(Decision::Wait { .. }), Some(act @ Decision::Act(_))) => Some(act),
            (Some(replace), _) => Some(replace),
            (None, next_completion) => next_completion,
        }
    }

    /// The wait for a link that made the cluster degraded and is still faulty.
    fn wait_for_link(&self) -> Option<Decision> {
        let (node, fault) = self.impaired().filter(|_| self.cluster.state == State::Degraded)?;
        Some(self.recheck(Wait::LinkFault { node, fault }))
    }

    /// The next step from a cluster with all its nodes to a cluster in order.
    pub(super) fn next_completion(&self) -> Option<Decision> {
        self.missing()
            .or_else(|| self.hand_over())
            .or_else(|| self.wait_for_leaving())
    }

    fn releasing(&self) -> Decision {
        let is_held = |member: &&Member| !matches!(member.standing, Standing::Freed | Standing::Leaving);
        let held = self.facts.members.iter().filter(is_held);
        let held: Vec<NodeId> = held.map(|member| member.node.clone()).collect();
        if !held.is_empty() {
            return Decision::Act(Effect::ReleaseNodes(held));
        }
        let leaving = self.count(|standing| *standing == Standing::Leaving);
        if leaving > 0 {
            return self.recheck(Wait::Erase { nodes: leaving });
        }
        match &self.facts.partition {
            Partition::None | Partition::Gone => take_edge(Edge::Freed, ""),
            Partition::Draining(ports) => self.recheck(Wait::PartitionRemoval { ports: *ports }),
            Partition::Faulty(fault) => self.partition_fault(fault),
            Partition::Pending | Partition::Proven => self.recheck(Wait::Partition),
        }
    }

    fn partition_fault(&self, fault: &str) -> Decision {
        let fault = fault.to_owned();
        self.recheck(Wait::PartitionFault { fault })
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
        Some(take_edge(Edge::Failed, reason))
    }

    fn rest(&self) -> Decision {
        self.recheck(Wait::Rest)
    }

    pub(super) fn recheck(&self, why: Wait) -> Decision {
        self.wait(why, self.now.plus(seconds(RECHECK_S)))
    }

    /// Waits until `until`, or until the next event of the lease if that is earlier.
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

/// Why a checked node before its hand-over is unusable: its link has been faulty for longer than a reboot takes.
fn overdue_link(member: &Member) -> Option<String> {
    let impaired = member.impaired.as_ref()?;
    let is_overdue = impaired.seen.since(impaired.since) >= seconds(LINK_GRACE_S);
    is_overdue.then(|| format!("its link to the fabric: {}", impaired.why))
}
