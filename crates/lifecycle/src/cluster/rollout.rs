//! Writes another image to the nodes of a cluster in use, some at a time.

use super::Edge;
use super::decide::{Ctx, Decision, Effect, take_edge};
use super::facts::{Member, Rollout, Standing};
use super::wait::Wait;
use crate::ids::NodeId;

impl Ctx<'_> {
    pub(super) fn reimaging(&self) -> Decision {
        let Some(rollout) = &self.cluster.rollout else {
            // The rollout is complete or was cancelled.
            return self.next_repair().unwrap_or_else(|| take_edge(Edge::Restored, ""));
        };
        // Nodes that another image cannot repair. A missing replacement does not hold up the other nodes.
        let broken = self.out_of_order_of(|member| self.needs_replacement(member));
        if let Some(replace) = broken.map(|(node, why)| self.replace_one(node, why))
            && matches!(replace, Decision::Act(_))
        {
            return replace;
        }
        self.too_many_failed(rollout)
            .or_else(|| self.next_batch(rollout))
            .unwrap_or_else(|| self.finish_rollout())
    }

    /// True for a node that can only be replaced.
    fn needs_replacement(&self, member: &Member) -> bool {
        let is_requested = self.cluster.wanted.replace.contains_key(&member.node);
        let can_be_written = self.has_old_image(member) && member.is_writable;
        is_requested || (member.standing.is_out() && !can_be_written && !self.failed_with_new_image(member))
    }

    fn has_old_image(&self, member: &Member) -> bool {
        let again = self.cluster.rollout.as_ref().map(|rollout| &rollout.again);
        let is_again = again.is_some_and(|again| again.contains(&member.node)) && member.standing.is_out();
        is_again || member.build != self.cluster.build
    }

    /// True for a node that failed with the new image. A later failure, or a removal from service by an operator, does not
    /// count.
    fn failed_with_new_image(&self, member: &Member) -> bool {
        !self.has_old_image(member) && member.is_failed && member.standing.is_out()
    }

    /// Nodes that failed with the new image.
    fn failed(&self) -> Vec<&Member> {
        self.staying()
            .filter(|member| self.failed_with_new_image(member))
            .collect()
    }

    fn too_many_failed(&self, rollout: &Rollout) -> Option<Decision> {
        if let Some(stopped) = &rollout.stopped {
            let reason = stopped.clone();
            return Some(self.recheck(Wait::ReimageStopped { reason }));
        }
        let failed = self.failed();
        let (failures, allowed) = (failed.len() + rollout.failed as usize, rollout.max_failures as usize);
        let last = failed.last().filter(|_| failures > allowed)?;
        let because = match &last.standing {
            Standing::Lost(loss) => format!(" ({loss})"),
            _ => String::new(),
        };
        let nodes = if failures == 1 { "node" } else { "nodes" };
        let why = format!(
            "{failures} {nodes} failed with the new image, {allowed} allowed: {}{because}",
            last.node
        );
        Some(Decision::Act(match rollout.roll_back && !rollout.is_back {
            true => Effect::RollBack(why),
            false => Effect::StopRollout(why),
        }))
    }

    /// The nodes to write to now. None: no node at the moment.
    fn next_batch(&self, rollout: &Rollout) -> Option<Decision> {
        let is_away = |member: &&Member| member.standing != Standing::HandedOver;
        let away = self.staying().filter(is_away).count();
        let room = (rollout.max_unavailable.max(1) as usize).saturating_sub(away);
        let mut old: Vec<&Member> = self
            .staying()
            .filter(|member| self.has_old_image(member) && member.is_writable)
            .collect();
        old.sort_by_key(|member| (member.leaf, &member.node));
        // A node that is out of use already takes no room.
        let (lost, served): (Vec<&Member>, Vec<&Member>) = old.into_iter().partition(is_away);
        let leaf = match rollout.by_leaf {
            false => None,
            true => self.active_leaf().or(served.first().map(|member| member.leaf)),
        };
        let served = served
            .into_iter()
            .filter(|member| leaf.is_none_or(|leaf| member.leaf == leaf))
            .take(room);
        let batch: Vec<NodeId> = lost
            .into_iter()
            .chain(served)
            .map(|member| member.node.clone())
            .collect();
        (!batch.is_empty()).then_some(Decision::Act(Effect::Reimage(batch)))
    }

    /// The leaf with a node that is getting the new image.
    fn active_leaf(&self) -> Option<u32> {
        let is_at_work =
            |member: &&Member| !self.has_old_image(member) && member.standing == Standing::Coming && !member.is_new;
        self.staying().find(is_at_work).map(|member| member.leaf)
    }

    /// The decision when nothing can be written now: all is done, nodes are under way, or failed nodes take up the room.
    fn finish_rollout(&self) -> Decision {
        let is_done = |member: &&Member| !self.has_old_image(member) && member.standing == Standing::HandedOver;
        let (done, of) = (self.staying().filter(is_done).count(), self.staying().count());
        let failed = self.failed().len();
        let wait = || self.recheck(Wait::Reimage { done, of, failed });
        if self.staying().any(|member| member.standing == Standing::Coming) {
            return wait();
        }
        self.next_repair().unwrap_or_else(|| match done == of {
            true => take_edge(Edge::Restored, ""),
            false => wait(),
        })
    }
}
