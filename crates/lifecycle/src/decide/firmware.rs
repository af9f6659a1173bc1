//! Firmware updates: on the way into the pool where the SKU wants them, and on an operator's request. A machine with a
//! customer is updated only while its maintenance window is open.

use super::{Ctx, Decision, Line, Wait};
use crate::effect::Effect;
use crate::facts::{Attempt, Facts, Outcome};
use crate::time::{Timestamp, minutes};

impl Ctx<'_> {
    /// An update that was begun goes on before anything else switches the machine, whatever is wanted by now: an
    /// interrupted flash may leave the machine dead. Two bounds: a machine in use is not updated, and a stuck update ends.
    /// Where the state has a way out, the state gives up; elsewhere the update does.
    pub(super) fn unfinished_update(&self) -> Option<Decision> {
        if !self.facts.firmware.under_way || !self.may_continue() {
            return None;
        }
        if self.failure_edge().is_some() {
            return Some(self.attempt(Effect::UpdateFirmware));
        }
        (!self.has_given_up_update()).then(|| self.retry_forever(Effect::UpdateFirmware))
    }

    fn has_given_up_update(&self) -> bool {
        let failures = self.facts.failures(Effect::UpdateFirmware);
        let is_final = |last: &&Attempt| matches!(&last.outcome, Outcome::Failed { retryable: false, .. });
        failures.len() >= self.policy.tries as usize || failures.last().is_some_and(is_final)
    }

    fn may_continue(&self) -> bool {
        self.node.state.is_unused() || self.may_disturb()
    }

    /// The firmware that the SKU wants is installed, an update succeeded in this state, or the SKU wants none.
    pub(super) fn firmware_of_sku(&self) -> Line<()> {
        if !self.facts.firmware.wanted || self.facts.succeeded(Effect::UpdateFirmware).is_some() {
            return Ok(());
        }
        Err(self.attempt(Effect::UpdateFirmware))
    }

    /// Ok when no firmware update is requested, or it is done or given up, or it is not the time for it; else the update.
    pub(super) fn requested_firmware(&self) -> Line<()> {
        let Some(requested_at) = self.node.wanted.firmware else {
            return Ok(());
        };
        if firmware_outcome(self.facts, requested_at, self.policy.tries as usize).is_some() || !self.may_disturb() {
            return Ok(());
        }
        Err(self.retry_forever(Effect::UpdateFirmware))
    }

    /// How a node at rest waits when a firmware update is wanted and a customer has the node: for its maintenance window.
    pub(super) fn wait_for_window(&self, rest: Decision) -> Decision {
        let is_requested = self.node.wanted.firmware.is_some_and(|requested_at| {
            firmware_outcome(self.facts, requested_at, self.policy.tries as usize).is_none()
        });
        if is_requested && !self.may_disturb() {
            return self.until_window();
        }
        self.wait_for_window_of_begun_update(rest)
    }

    /// How a failed or quarantined node waits. No update is begun there. A begun one of a claimed machine goes on at the
    /// beginning of the maintenance window, and not at the next look at a resting node: the window may be shorter than the
    /// time until then.
    pub(super) fn wait_for_window_of_begun_update(&self, rest: Decision) -> Decision {
        let is_left = self.facts.firmware.under_way && !self.has_given_up_update();
        match is_left && !self.may_disturb() {
            true => self.until_window(),
            false => rest,
        }
    }

    fn until_window(&self) -> Decision {
        let hour = self.now.plus(minutes(60));
        Decision::Wait {
            why: Wait::Window,
            until: self.facts.firmware.opens_at.map_or(hour, |at| at.min(hour)),
        }
    }

    fn may_disturb(&self) -> bool {
        self.node.claim.is_none() || self.facts.firmware.open_until.is_some_and(|until| self.now < until)
    }

    /// Time of this state that went into updates, in microseconds: it does not count against the state's deadline.
    pub(super) fn updating_us(&self) -> i64 {
        let spans = self
            .facts
            .of(Effect::UpdateFirmware)
            .map(|one| one.ended_at.unwrap_or(self.now).since(one.started_at));
        spans.sum()
    }
}

/// How a firmware update requested at `asked` ended: done, or given up with the message of the last failure, after `tries`
/// failures or after one failure that a retry cannot fix. None while it is still in progress.
#[must_use]
pub fn firmware_outcome(facts: &Facts, requested_at: Timestamp, tries: usize) -> Option<Result<(), String>> {
    let mut failed = 0;
    for attempt in facts
        .of(Effect::UpdateFirmware)
        .filter(|a| a.started_at >= requested_at)
    {
        match &attempt.outcome {
            Outcome::Succeeded => return Some(Ok(())),
            Outcome::Failed { message, retryable, .. } => {
                failed += 1;
                if !retryable || failed >= tries {
                    return Some(Err(message.clone()));
                }
            }
            Outcome::Open | Outcome::Interrupted => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::decide;
    use super::*;
    use crate::chart::{Edge, State};
    use crate::facts::{Bmc, Power, Reading};
    use crate::node::{Claim, Evidence, Node, Wanted};
    use crate::policy::Policy;
    use crate::time::seconds;

    const T0: Timestamp = Timestamp(1_000_000_000_000);

    fn at(s: i64) -> Timestamp {
        T0.plus(seconds(s))
    }

    fn node(state: State, is_claimed: bool) -> Node {
        let claim = Claim {
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
            handed_over: Some(1),
            customer: "acme".into(),
            cluster: None,
        };
        Node {
            state,
            since: T0,
            generation: 1,
            claim: is_claimed.then_some(claim),
            wanted: Wanted {
                firmware: Some(at(1)),
                ..Wanted::default()
            },
            evidence: Evidence {
                deployment: Some(1),
                ..Evidence::default()
            },
            doubt: None,
        }
    }

    fn tried(effect: Effect, start: i64, end: i64, outcome: Outcome) -> Attempt {
        Attempt {
            effect,
            started_at: at(start),
            ended_at: Some(at(end)),
            deadline: at(end + 1),
            outcome,
            boot_id: None,
        }
    }

    fn failed(retryable: bool) -> Outcome {
        Outcome::Failed {
            code: "x".into(),
            message: "flash is worn out".into(),
            retryable,
        }
    }

    fn decided(node: &Node, facts: &Facts, s: i64) -> Decision {
        decide(node, facts, &Policy::default(), at(s))
    }

    #[test]
    fn an_unclaimed_machine_is_updated_on_request_and_once() {
        for state in [State::Available, State::Maintenance] {
            let node = node(state, false);
            let mut facts = Facts::default();
            assert_eq!(
                decided(&node, &facts, 2),
                Decision::Act(Effect::UpdateFirmware),
                "{state}"
            );
            facts
                .attempts
                .push(tried(Effect::UpdateFirmware, 2, 9, Outcome::Succeeded));
            assert!(matches!(decided(&node, &facts, 10), Decision::Wait { .. }), "{state}");
        }
        let quarantined = node(State::Quarantined, false);
        assert!(matches!(
            decided(&quarantined, &Facts::default(), 2),
            Decision::Wait { .. }
        ));
    }

    #[test]
    fn a_claimed_machine_waits_for_its_maintenance_window() {
        for state in [State::Active, State::Maintenance] {
            let node = node(state, true);
            let mut facts = Facts::default();
            facts.firmware.opens_at = Some(at(100));
            let waits = Decision::Wait {
                why: Wait::Window,
                until: at(100),
            };
            assert_eq!(decided(&node, &facts, 2), waits, "{state}");
            facts.firmware.open_until = Some(at(200));
            assert_eq!(
                decided(&node, &facts, 100),
                Decision::Act(Effect::UpdateFirmware),
                "{state}"
            );
            assert_eq!(decided(&node, &facts, 200), waits_an_hour_or(&facts, 200), "{state}");
        }
    }

    fn waits_an_hour_or(facts: &Facts, now: i64) -> Decision {
        let hour = at(now + 3600);
        Decision::Wait {
            why: Wait::Window,
            until: facts.firmware.opens_at.map_or(hour, |opens| opens.min(hour)),
        }
    }

    #[test]
    fn a_permanent_failure_ends_the_update_and_the_state() {
        let facts = Facts {
            attempts: vec![tried(Effect::UpdateFirmware, 2, 9, failed(false))],
            ..Facts::default()
        };
        let ended = firmware_outcome(&facts, at(1), 4);
        assert_eq!(ended, Some(Err("flash is worn out".to_owned())));
        assert_eq!(
            firmware_outcome(&facts, at(3), 4),
            None,
            "only attempts since the request"
        );
        let mut inspecting = node(State::Inspecting, false);
        inspecting.evidence = Evidence::default();
        let facts = Facts {
            bmc: Reading::Known {
                value: Bmc::Identified,
                at: at(0),
            },
            firmware: crate::facts::FirmwareFacts {
                wanted: true,
                ..Default::default()
            },
            ..facts
        };
        let Decision::Move { edge, reason } = decided(&inspecting, &facts, 10) else {
            panic!("it gives up");
        };
        assert_eq!((edge, reason.as_str()), (Edge::Failed, "flash is worn out"));
    }

    #[test]
    fn before_available_an_update_precedes_the_agent_and_follows_the_erase() {
        let mut facts = Facts {
            bmc: Reading::Known {
                value: Bmc::Identified,
                at: at(0),
            },
            ..Facts::default()
        };
        let mut inspecting = node(State::Inspecting, false);
        inspecting.evidence = Evidence::default();
        assert_eq!(decided(&inspecting, &facts, 1), Decision::Act(Effect::ObservePower));
        facts.firmware.wanted = true;
        assert_eq!(decided(&inspecting, &facts, 1), Decision::Act(Effect::UpdateFirmware));
        let reclaiming = node(State::Reclaiming, true);
        facts
            .attempts
            .push(tried(Effect::EraseDrives, 2, 5, Outcome::Succeeded));
        assert_eq!(decided(&reclaiming, &facts, 6), Decision::Act(Effect::UpdateFirmware));
        facts
            .attempts
            .push(tried(Effect::UpdateFirmware, 6, 9, Outcome::Succeeded));
        facts.power = Reading::Known {
            value: Power::Off,
            at: at(9),
        };
        let Decision::Move { edge, .. } = decided(&reclaiming, &facts, 10) else {
            panic!("it is erased");
        };
        assert_eq!(edge, Edge::Erased);
    }

    fn begun(attempts: Vec<Attempt>) -> Facts {
        Facts {
            firmware: crate::facts::FirmwareFacts {
                under_way: true,
                ..crate::facts::FirmwareFacts::default()
            },
            attempts,
            ..Facts::default()
        }
    }

    #[test]
    fn a_begun_update_continues_before_any_power_change() {
        let update = Decision::Act(Effect::UpdateFirmware);
        for state in [
            State::Inspecting,
            State::Available,
            State::Allocated,
            State::Imaging,
            State::Reclaiming,
        ] {
            let mut node = node(state, state != State::Inspecting);
            node.wanted.firmware = None;
            assert_eq!(decided(&node, &begun(Vec::new()), 2), update, "{state}");
            assert_ne!(decided(&node, &Facts::default(), 2), update, "{state}");
            let rests = decided(
                &node,
                &begun(vec![tried(Effect::UpdateFirmware, 1, 2, failed(true))]),
                3,
            );
            assert!(
                matches!(
                    rests,
                    Decision::Wait {
                        why: Wait::Retry { .. },
                        ..
                    }
                ),
                "{state}"
            );
        }
        for state in [State::Available, State::Failed, State::Quarantined, State::Maintenance] {
            let mut node = node(state, false);
            node.wanted.firmware = None;
            assert_eq!(decided(&node, &begun(Vec::new()), 2), update, "{state}");
        }
    }

    #[test]
    fn a_begun_update_of_a_claimed_machine_waits_for_its_window() {
        for state in [State::Active, State::Failed, State::Quarantined, State::Maintenance] {
            let mut node = node(state, true);
            node.wanted.firmware = None;
            let mut facts = begun(Vec::new());
            facts.firmware.opens_at = Some(at(100));
            let waits = Decision::Wait {
                why: Wait::Window,
                until: at(100),
            };
            assert_eq!(decided(&node, &facts, 2), waits, "{state}");
            facts.firmware.open_until = Some(at(200));
            assert_eq!(
                decided(&node, &facts, 100),
                Decision::Act(Effect::UpdateFirmware),
                "{state}"
            );
        }
        let validating = decided(&node(State::Validating, true), &begun(Vec::new()), 2);
        assert_ne!(validating, Decision::Act(Effect::UpdateFirmware));
    }

    #[test]
    fn a_failed_or_quarantined_node_waits_for_no_window_without_a_begun_update() {
        for state in [State::Failed, State::Quarantined] {
            let node = node(state, true);
            let mut facts = Facts::default();
            facts.firmware.opens_at = Some(at(100));
            let given_up = begun(vec![tried(Effect::UpdateFirmware, 1, 2, failed(false))]);
            for facts in [facts, given_up] {
                let rests = decided(&node, &facts, 3);
                let is_for_operator = matches!(
                    rests,
                    Decision::Wait {
                        why: Wait::Operator,
                        ..
                    }
                );
                assert!(is_for_operator, "{state}: {rests:?}");
            }
        }
    }

    #[test]
    fn a_begun_update_that_never_ends_is_given_up() {
        let tries = i64::from(Policy::default().tries);
        let failures = |count: i64| {
            let tries = (1..=count).map(|n| tried(Effect::UpdateFirmware, n, n + 1, failed(true)));
            begun(tries.collect())
        };
        let edge = |state, is_claimed| match decided(&node(state, is_claimed), &failures(tries), 900) {
            Decision::Move { edge, .. } => Some(edge),
            _ => None,
        };
        assert_eq!(edge(State::Inspecting, false), Some(Edge::Failed));
        assert_eq!(edge(State::Imaging, true), Some(Edge::Failed));
        assert_eq!(edge(State::Reclaiming, true), Some(Edge::Condemned));
        assert_eq!(edge(State::Available, true), Some(Edge::Claimed));
        let available = node(State::Available, true);
        assert_eq!(
            decided(&available, &failures(tries - 1), 900),
            Decision::Act(Effect::UpdateFirmware)
        );
        let rests = decided(&node(State::Available, false), &failures(tries), 900);
        assert!(matches!(rests, Decision::Wait { why: Wait::Rest, .. }), "{rests:?}");
    }

    #[test]
    fn the_time_of_updates_does_not_count_for_the_state() {
        let mut inspecting = node(State::Inspecting, false);
        inspecting.evidence = Evidence::default();
        let mut facts = Facts {
            attempts: vec![tried(Effect::UpdateFirmware, 0, 10_000, Outcome::Succeeded)],
            ..Facts::default()
        };
        assert_eq!(decided(&inspecting, &facts, 10_001), Decision::Act(Effect::Identify));
        facts.attempts.clear();
        assert!(matches!(
            decided(&inspecting, &facts, 10_001),
            Decision::Move { edge: Edge::Failed, .. }
        ));
    }
}
