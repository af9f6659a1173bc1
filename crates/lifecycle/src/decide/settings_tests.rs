//! A simulated machine on which `decide` works until it leaves its state, for every behaviour of its firmware.

use super::tests::{at, claimed, decide_at, known, node, tried};
use super::*;
use crate::effect::BootTarget;
use crate::facts::Bmc;

/// The behaviour of a machine.
#[derive(Debug, Clone, Copy)]
struct Machine {
    has_settings: bool,
    /// Number of starts after a write until the settings are as wanted; 0: they are from the first.
    starts: u32,
    /// Number (from 1) of the settings conversation that is lost; 0: none.
    lost: usize,
    /// Number of the settings conversation in which this process ends; 0: none.
    killed: usize,
}

#[derive(Debug, Default)]
struct Life {
    boots: u32,
    writes: u32,
    bmc_calls: usize,
    /// Writes that were followed by a start.
    effective: u32,
    written_since_start: bool,
    /// Number of boots when the settings were last verified.
    proven_at_boot: Option<u32>,
    effects: Vec<Effect>,
}

fn outcome(code: &str, retryable: bool) -> Outcome {
    Outcome::Failed {
        code: code.into(),
        message: "bios/Sriov is wanted \"Enabled\" and is \"Disabled\"".into(),
        retryable,
    }
}

impl Life {
    fn does(&mut self, machine: Machine, facts: &mut Facts, effect: Effect, now: i64) -> Outcome {
        self.effects.push(effect);
        match effect {
            Effect::Identify => facts.bmc = known(Bmc::Identified, now),
            Effect::ObservePower => facts.power = known(Power::Off, now),
            Effect::SetBoot(target) => facts.boot_target = known(target, now),
            Effect::PowerOff => {
                facts.power = known(Power::Off, now);
                facts.agent = known(Agent::Absent, now);
            }
            Effect::PowerOn => {
                assert_eq!(facts.boot_target.last(), Some(&BootTarget::Network));
                self.boots += 1;
                self.effective += u32::from(std::mem::take(&mut self.written_since_start));
                facts.power = known(Power::On, now);
                facts.boot_target = Reading::Unknown { since: at(now) };
                let boot_id = format!("b{}", self.boots);
                facts.agent = known(
                    Agent::Present {
                        boot_id,
                        booted_at: at(now),
                    },
                    now,
                );
                facts.inventory = known((), now);
            }
            Effect::EraseDrives | Effect::ReadDrives | Effect::ProvePowerOff => {}
            Effect::ApplySettings | Effect::VerifySettings => return self.bmc_calls(machine, effect),
            other => panic!("{other:?} has no place here"),
        }
        Outcome::Succeeded
    }

    fn bmc_calls(&mut self, machine: Machine, effect: Effect) -> Outcome {
        assert!(
            machine.has_settings,
            "{effect:?} of a machine of which nothing is wanted"
        );
        self.bmc_calls += 1;
        if self.bmc_calls == machine.lost {
            return outcome("bmc-unreachable", true);
        }
        if self.bmc_calls == machine.killed {
            return Outcome::Interrupted;
        }
        let is_so = self.effective >= machine.starts;
        match effect {
            Effect::ApplySettings => {
                self.writes += u32::from(!is_so);
                self.written_since_start |= !is_so;
                Outcome::Succeeded
            }
            _ if is_so => {
                self.proven_at_boot = Some(self.boots);
                Outcome::Succeeded
            }
            _ => outcome(DIFFERS, true),
        }
    }
}

/// Runs until an edge is taken.
fn live(state: State, machine: Machine) -> (Edge, String, Life) {
    live_by(&Policy::default(), state, machine)
}

fn live_by(policy: &Policy, state: State, machine: Machine) -> (Edge, String, Life) {
    let mut node = if state == State::Reclaiming {
        claimed(state)
    } else {
        node(state)
    };
    node.evidence.clean_at = Some(at(-100));
    let (mut facts, mut life, mut now) = (Facts::default(), Life::default(), 0);
    facts.wants_settings = machine.has_settings;
    for _ in 0..200 {
        now += 1;
        match decide(&node, &facts, policy, at(now)) {
            Decision::Act(effect) => {
                let outcome = life.does(machine, &mut facts, effect, now + 1);
                facts.attempts.push(tried(effect, now, now + 1, outcome));
                now += 1;
            }
            Decision::Wait { until, .. } => {
                assert!(until > at(now), "a wait ends in the past");
                now += until.since(at(now)) / 1_000_000;
            }
            Decision::Move { edge, reason } => return (edge, reason, life),
        }
    }
    panic!("{state} with {machine:?} never ends: {:?}", life.effects);
}

fn machines() -> impl Iterator<Item = Machine> {
    let starts = 0..6u32;
    let faults = starts.flat_map(|starts| (0..8usize).map(move |lost| (starts, lost)));
    faults.flat_map(|(starts, lost)| {
        (0..8usize).map(move |killed| Machine {
            has_settings: true,
            starts,
            lost,
            killed,
        })
    })
}

#[test]
fn a_node_needs_a_reading_of_settings_after_the_last_write() {
    let tries = Policy::default().settings_tries;
    for (state, good, bad) in [
        (State::Inspecting, Edge::Inspected, Edge::Failed),
        (State::Reclaiming, Edge::Erased, Edge::Condemned),
    ] {
        // A small budget of tries for one conversation does not limit the starts.
        let both = [2, 4].map(|tries| Policy {
            tries,
            ..Policy::default()
        });
        let all = both
            .iter()
            .flat_map(|policy| machines().map(move |machine| (policy, machine)));
        for (policy, machine) in all {
            let (edge, reason, life) = live_by(policy, state, machine);
            if edge == good {
                assert_eq!(life.proven_at_boot, Some(life.boots), "{machine:?}");
                assert!(!life.written_since_start, "{machine:?}");
                assert_eq!(life.effective, machine.starts, "{machine:?}");
            } else {
                assert_eq!(edge, bad, "{machine:?}");
                assert!(machine.starts >= tries - 1, "{machine:?} was given up: {reason}");
                assert!(
                    reason.contains("bios/Sriov is wanted \"Enabled\" and is \"Disabled\""),
                    "{reason}"
                );
            }
            assert!(life.boots <= tries, "{machine:?}: {} boots", life.boots);
        }
    }
}

#[test]
fn a_machine_is_started_no_more_often_than_its_settings_need() {
    let machine = |has_settings, starts| Machine {
        has_settings,
        starts,
        lost: 0,
        killed: 0,
    };
    for state in [State::Inspecting, State::Reclaiming] {
        let (_, _, nothing) = live(state, machine(false, 5));
        assert_eq!((nothing.boots, nothing.bmc_calls), (1, 0));
        // Settings as wanted, or written before the boot that is made anyway: no further boot, and only two readings as
        // further effects.
        for starts in [0, 1] {
            let (_, _, life) = live(state, machine(true, starts));
            assert_eq!((life.boots, life.bmc_calls, life.writes), (1, 2, starts), "{state}");
            assert_eq!(life.effects.len(), nothing.effects.len() + 2);
        }
        let (_, _, twice) = live(state, machine(true, 2));
        assert_eq!((twice.boots, twice.writes), (2, 2), "{state}");
        if state == State::Reclaiming {
            let erased = twice.effects.iter().position(|e| *e == Effect::EraseDrives);
            let verified = twice.effects.iter().position(|e| *e == Effect::VerifySettings);
            assert!(
                erased < verified,
                "what a customer left is erased whatever its settings are"
            );
            let erases = twice.effects.iter().filter(|e| **e == Effect::EraseDrives).count();
            assert_eq!(erases, 1, "nothing is erased twice for the sake of settings");
        }
    }
}

#[test]
fn impossible_settings_fail_after_the_erase() {
    for (state, edge) in [(State::Inspecting, Edge::Failed), (State::Reclaiming, Edge::Condemned)] {
        let node = if state == State::Reclaiming {
            claimed(state)
        } else {
            node(state)
        };
        let refused = Outcome::Failed {
            code: "settings-refused".into(),
            message: "no such attribute".into(),
            retryable: false,
        };
        let mut facts = Facts {
            wants_settings: true,
            power: known(Power::On, 9),
            attempts: vec![
                tried(Effect::ApplySettings, 1, 2, refused.clone()),
                tried(Effect::PowerOn, 3, 4, Outcome::Succeeded),
                tried(Effect::Identify, 1, 2, Outcome::Succeeded),
                tried(Effect::EraseDrives, 5, 6, Outcome::Succeeded),
                tried(Effect::ReadDrives, 6, 6, Outcome::Succeeded),
            ],
            inventory: known((), 6),
            ..Facts::default()
        };
        // The refusal may be due to a list that only a start renews: one more try after the start.
        assert_eq!(decide_at(&node, &facts, 10), Decision::Act(Effect::VerifySettings));
        facts
            .attempts
            .push(tried(Effect::VerifySettings, 10, 11, outcome(DIFFERS, true)));
        assert_eq!(decide_at(&node, &facts, 12), Decision::Act(Effect::ApplySettings));
        facts.attempts.push(tried(Effect::ApplySettings, 12, 13, refused));
        let decision = decide_at(&node, &facts, 14);
        let wanted = Decision::Move {
            edge,
            reason: "no such attribute".into(),
        };
        assert_eq!(decision, wanted, "{state}");
    }
}

#[test]
fn only_an_unclaimed_clean_node_is_inspected_again_on_request() {
    for (state, has_claim, is_dirty, goes) in [
        (State::Available, false, false, true),
        (State::Failed, false, false, true),
        (State::Failed, false, true, false),
        (State::Failed, true, false, false),
        (State::Maintenance, false, false, false),
        (State::Active, true, false, false),
    ] {
        let mut node = if has_claim { claimed(state) } else { node(state) };
        node.wanted.reinspect = true;
        node.evidence.written_at = is_dirty.then(|| at(-5));
        let edge = match decide_at(&node, &Facts::default(), 1) {
            Decision::Move { edge, .. } => Some(edge),
            _ => None,
        };
        assert_eq!(
            edge == Some(Edge::Reinspect),
            goes,
            "{state} {has_claim} {is_dirty}: {edge:?}"
        );
    }
    // The faster claim wins, and is not disturbed later.
    let mut node = claimed(State::Available);
    node.wanted.reinspect = true;
    assert_eq!(decide_at(&node, &Facts::default(), 1), take_edge(Edge::Claimed));
    let after = crate::outcome::apply(&node, Edge::Claimed, at(2)).unwrap();
    assert!(!after.wanted.reinspect);
}
