//! Decides what to do about a node now.
//!
//! Level-triggered, pure, total and deterministic: the same node, facts and time give the same decision, and no state is
//! kept between calls. The facts show the progress within a state. Each phase has a file with its checklist; the first
//! unmet line decides.

mod account;
mod agent_boot;
mod bmc_state;
#[cfg(test)]
mod bmc_state_tests;
mod contest;
mod firmware;
mod imaging;
mod inspecting;
mod network;
#[cfg(test)]
mod network_tests;
mod power_loss;
mod rebooting;
mod reclaiming;
mod resting;
mod settings;
#[cfg(test)]
mod settings_tests;
#[cfg(test)]
mod tests;
mod validating;
mod wait;

use crate::chart::{Edge, State};
use crate::effect::{Effect, EffectClass};
use crate::facts::{Agent, Attempt, Facts, Outcome, Power, Reading};
use crate::node::{Doubt, Node};
use crate::policy::Policy;
use crate::time::{Timestamp, minutes, seconds};

pub use agent_boot::expected_boot;
pub use contest::CONTESTED;
pub use firmware::firmware_outcome;
pub use power_loss::{PowerLoss, power_loss};
pub use resting::power_outcome;
pub use settings::DIFFERS;
pub use wait::Wait;

/// The decision about one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing to do before `until`, unless a fact changes.
    Wait {
        /// The reason of the wait.
        why: Wait,
        /// When to decide again.
        until: Timestamp,
    },
    /// Start this effect.
    Act(Effect),
    /// Take this edge.
    Move {
        /// The edge to take.
        edge: Edge,
        /// The reason, as a sentence for the history; empty where the edge's name is enough.
        reason: String,
    },
}

/// The inputs of a checklist.
struct Ctx<'a> {
    node: &'a Node,
    facts: &'a Facts,
    policy: &'a Policy,
    now: Timestamp,
}

/// An unmet checklist line ends the checklist with a decision.
type Line<T> = Result<T, Decision>;

/// Decides about one node.
#[must_use]
pub fn decide(node: &Node, facts: &Facts, policy: &Policy, now: Timestamp) -> Decision {
    let ctx = Ctx {
        node,
        facts,
        policy,
        now,
    };
    if let Some(doubt) = &node.doubt {
        return ctx.doubted(doubt);
    }
    if let Some(decision) = ctx.intent() {
        return decision;
    }
    if let Some(decision) = ctx.overdue() {
        return decision;
    }
    if let Some(open) = facts.open() {
        return Decision::Wait {
            why: Wait::Effect(open.effect),
            until: open.deadline,
        };
    }
    if let Some(decision) = ctx.unfinished_change() {
        return decision;
    }
    if let Some(decision) = ctx.unfinished_update() {
        return decision;
    }
    if let Some(decision) = ctx.contested() {
        return decision;
    }
    let line = match node.state {
        State::Discovered => ctx.discovered(),
        State::Inspecting => ctx.inspecting(),
        State::Available => ctx.available(),
        State::Allocated => Err(take_edge(Edge::Started)),
        State::Imaging => ctx.imaging(),
        State::Rebooting => ctx.rebooting(),
        State::Validating => ctx.validating(),
        State::Active => ctx.active(),
        State::Reclaiming => ctx.reclaiming(),
        State::Failed => ctx.failed(),
        State::Quarantined => ctx.quarantined(),
        State::Maintenance => ctx.maintenance(),
    };
    match line {
        Ok(never) => match never {},
        Err(decision) => decision,
    }
}

/// The outcome that closes an open attempt that its performer can no longer end. None: leave it open.
///
/// An attempt ends at its deadline. A job of the agent also ends when its boot is contested, when the machine was booted
/// again, or when the agent has been away for longer than the grace.
#[must_use]
pub fn forced_outcome(open: &Attempt, facts: &Facts, policy: &Policy, now: Timestamp) -> Option<Outcome> {
    let lost = |message: String| {
        Some(Outcome::Failed {
            code: "agent-lost".into(),
            message,
            retryable: true,
        })
    };
    if now >= open.deadline {
        let message = format!("{} did not end within its time limit", open.effect.as_str());
        return Some(Outcome::Failed {
            code: "deadline".into(),
            message,
            retryable: true,
        });
    }
    if open.effect.class() != EffectClass::Once {
        return None;
    }
    if let Some(contested) = contest::verdict(open, facts) {
        return Some(contested);
    }
    match (&facts.agent, &open.boot_id) {
        (
            Reading::Known {
                value: Agent::Present { boot_id, .. },
                ..
            },
            Some(given),
        ) if boot_id != given => lost(format!(
            "the machine was booted again while {} ran",
            open.effect.as_str()
        )),
        (
            Reading::Known {
                value: Agent::Absent, ..
            },
            _,
        ) => lost(format!(
            "the agent disconnected while {} ran and did not come back",
            open.effect.as_str()
        )),
        (Reading::Unknown { since }, _) if now >= since.plus(policy.agent_grace_us()) => lost(format!(
            "the agent disconnected while {} ran and did not come back",
            open.effect.as_str()
        )),
        _ => None,
    }
}

/// True when a request takes the node out of its state: interruptible work under way should end.
#[must_use]
pub fn is_interrupted(node: &Node) -> bool {
    let policy = Policy::default();
    let facts = Facts::default();
    Ctx {
        node,
        facts: &facts,
        policy: &policy,
        now: node.since,
    }
    .intent()
    .is_some()
}

/// An uninhabited value: every checklist ends in a decision.
enum Never {}

fn take_edge(edge: Edge) -> Decision {
    Decision::Move {
        edge,
        reason: String::new(),
    }
}

fn take_edge_because(edge: Edge, reason: impl Into<String>) -> Decision {
    Decision::Move {
        edge,
        reason: reason.into(),
    }
}

impl Ctx<'_> {
    /// A doubted node is left alone. An operator can set it apart, or have it erased while no customer has it.
    fn doubted(&self, doubt: &Doubt) -> Decision {
        let wanted = &self.node.wanted;
        let open = |edge: Edge| edge.target(self.node.state).is_some();
        if let Some(reason) = wanted.condemn.as_ref().filter(|_| open(Edge::Condemned)) {
            return take_edge_because(Edge::Condemned, reason);
        }
        if wanted.readmit && open(Edge::Readmitted) {
            return take_edge(Edge::Readmitted);
        }
        if let Some(reason) = wanted.hold.as_ref().filter(|_| open(Edge::Held)) {
            return take_edge_because(Edge::Held, reason);
        }
        Decision::Wait {
            why: Wait::Doubt { why: doubt.why.clone() },
            until: self.now.plus(minutes(60)),
        }
    }

    /// Requests of operators and customers come before the work under way.
    fn intent(&self) -> Option<Decision> {
        let wanted = &self.node.wanted;
        let open = |edge: Edge| edge.target(self.node.state).is_some();
        if let Some(reason) = &wanted.condemn
            && open(Edge::Condemned)
        {
            return Some(take_edge_because(Edge::Condemned, reason));
        }
        if let Some(claim) = &self.node.claim
            && claim.release_requested
        {
            if open(Edge::Released) {
                return Some(take_edge(Edge::Released));
            }
            if open(Edge::Unclaimed) {
                return Some(take_edge(Edge::Unclaimed));
            }
        }
        // A node of the pool is erased only while it is doubted, see `doubted`.
        if wanted.readmit && self.node.state != State::Available && open(Edge::Readmitted) {
            return Some(take_edge(Edge::Readmitted));
        }
        if let Some(reason) = &wanted.hold
            && open(Edge::Held)
        {
            return Some(take_edge_because(Edge::Held, reason));
        }
        None
    }

    /// Leaves a state after its deadline.
    fn overdue(&self) -> Option<Decision> {
        let cluster_claim = self.node.claim.as_ref().and_then(|claim| claim.cluster.as_ref());
        // The time in which a node waits for the other nodes of its cluster does not count.
        let let_go = cluster_claim
            .filter(|_| self.node.state == State::Validating)
            .and_then(|cluster_claim| cluster_claim.let_go);
        let since = let_go.map_or(self.node.since, |at| at.max(self.node.since));
        let deadline = self.policy.state_deadline(self.node.state, since)?;
        if self.now < deadline.plus(self.facts.in_line_us + self.updating_us()) || self.waits_for_cluster() {
            return None;
        }
        let minutes = deadline.since(self.node.since) / 60_000_000;
        let cable = self.facts.miscabled.as_deref();
        let last = cable.or(self.facts.last_failure());
        let last = last.unwrap_or("none");
        let reason = format!(
            "{} took longer than {minutes} min; last failure: {last}",
            self.node.state
        );
        // Allocated has no way out: it has no step that can hang.
        self.failure_edge().map(|edge| take_edge_because(edge, reason))
    }

    /// The edge by which the state gives up. An unfinished release leaves data behind, so that node is quarantined, not
    /// merely failed.
    fn failure_edge(&self) -> Option<Edge> {
        let edge = match self.node.state {
            State::Reclaiming => Edge::Condemned,
            _ => Edge::Failed,
        };
        edge.target(self.node.state).map(|_| edge)
    }

    fn give_up(&self, reason: impl Into<String>) -> Decision {
        take_edge_because(self.failure_edge().unwrap_or(Edge::Failed), reason)
    }

    /// Starts `effect`, unless its budget is spent or it has to pause after a failure.
    fn attempt(&self, effect: Effect) -> Decision {
        self.attempt_since(effect, Timestamp::default())
    }

    /// As `attempt`, with a separate budget from `since` on.
    fn attempt_since(&self, effect: Effect, since: Timestamp) -> Decision {
        let mut failures = self.facts.failures(effect);
        failures.retain(|attempt| attempt.started_at >= since);
        let Some(last) = failures.last() else {
            return Decision::Act(effect);
        };
        let Outcome::Failed { message, retryable, .. } = &last.outcome else {
            return Decision::Act(effect);
        };
        if !retryable {
            return self.give_up(message);
        }
        if failures.len() >= self.policy.tries as usize {
            let reason = format!(
                "{} failed {} times; the last: {message}",
                effect.as_str(),
                failures.len()
            );
            return self.give_up(reason);
        }
        self.after_backoff(effect, failures.len(), last, message)
    }

    /// As `attempt`, for states that cannot fail: the tries never end, with ever longer pauses.
    fn retry_forever(&self, effect: Effect) -> Decision {
        let failures = self.facts.failures(effect);
        let Some(last) = failures.last() else {
            return Decision::Act(effect);
        };
        let Outcome::Failed { message, .. } = &last.outcome else {
            return Decision::Act(effect);
        };
        self.after_backoff(effect, failures.len(), last, message)
    }

    fn after_backoff(&self, effect: Effect, failures: usize, last: &Attempt, message: &str) -> Decision {
        let next = last
            .ended_at
            .unwrap_or(last.started_at)
            .plus(self.policy.backoff_us(failures));
        if self.now < next {
            let why = Wait::Retry {
                effect,
                message: message.to_owned(),
            };
            return Decision::Wait { why, until: next };
        }
        Decision::Act(effect)
    }

    /// The power, read at or after `oldest`; else the decision to read it.
    fn power_since(&self, oldest: Timestamp) -> Line<Power> {
        let oldest = oldest.max(self.now.plus(-self.policy.power_age_us()));
        match (self.facts.power.fresh(oldest), &self.facts.power) {
            (Some(Power::Changing), Reading::Known { at, .. }) => {
                let until = at.plus(seconds(1));
                if self.now < until {
                    return Err(Decision::Wait {
                        why: Wait::PowerSettling,
                        until,
                    });
                }
                Err(self.attempt_for_state(Effect::ObservePower))
            }
            (Some(power), _) => Ok(*power),
            (None, _) => Err(self.attempt_for_state(Effect::ObservePower)),
        }
    }

    fn attempt_for_state(&self, effect: Effect) -> Decision {
        if self.failure_edge().is_some() {
            self.attempt(effect)
        } else {
            self.retry_forever(effect)
        }
    }

    /// The machine was seen off at or after `since`; else the decision that leads there.
    fn off_since(&self, since: Timestamp) -> Line<()> {
        match self.facts.power.fresh(since) {
            Some(Power::Off) => Ok(()),
            _ => Err(self.attempt_for_state(Effect::PowerOff)),
        }
    }
}
