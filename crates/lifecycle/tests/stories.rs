//! Whole stories: one decision after the other on a machine where everything goes wrong, until the node is at rest.

use rackwright_lifecycle::outcome::apply;
use rackwright_lifecycle::{
    Attempt, Claim, Decision, Effect, Evidence, Facts, Node, Outcome, Policy, Power, Reading, State, Timestamp, Wanted,
    decide, seconds,
};

/// The machine's answer to one effect.
type Answer = fn(Effect) -> Outcome;

fn broken(effect: Effect) -> Outcome {
    Outcome::Failed {
        code: "broken".into(),
        message: format!("{} does not work", effect.as_str()),
        retryable: true,
    }
}

/// A working BMC on a machine that never boots.
fn dead_machine(effect: Effect) -> Outcome {
    match effect {
        Effect::PowerOn | Effect::PowerOff | Effect::SetBoot(_) | Effect::ObservePower | Effect::Identify => {
            Outcome::Succeeded
        }
        other => broken(other),
    }
}

fn node(state: State, claim: bool, released: bool) -> Node {
    Node {
        state,
        since: Timestamp::default(),
        generation: 1,
        claim: claim.then(|| Claim {
            generation: 1,
            deployment: 1,
            image_digest: "b3-1".into(),
            image_name: "images/a".into(),
            hostname: "n1".into(),
            ssh_authorized_keys: Vec::new(),
            has_user_data: false,
            plain_user_data: String::new(),
            root_drive: String::new(),
            verify_whole_disk: false,
            release_requested: released,
            handed_over: None,
            customer: "".into(),
            cluster: None,
        }),
        wanted: Wanted::default(),
        evidence: Evidence {
            written_at: claim.then_some(Timestamp(-1)),
            ..Evidence::default()
        },
        doubt: None,
    }
}

fn see(facts: &mut Facts, effect: Effect, now: Timestamp) {
    let mut power = |value| facts.power = Reading::Known { value, at: now };
    match effect {
        Effect::PowerOn => power(Power::On),
        Effect::PowerOff => power(Power::Off),
        Effect::ObservePower => {
            let last = facts.power.last().copied().unwrap_or(Power::On);
            facts.power = Reading::Known { value: last, at: now };
        }
        Effect::SetBoot(target) => facts.boot_target = Reading::Known { value: target, at: now },
        _ => {}
    }
}

/// Runs until the node waits for an operator or rests; returns the state and the number of effects.
fn end_of(mut node: Node, answer: Answer, agent: &Reading<rackwright_lifecycle::Agent>) -> (State, usize) {
    let policy = Policy::default();
    let mut facts = Facts {
        agent: agent.clone(),
        ..Facts::default()
    };
    let (mut now, mut done) = (Timestamp::default(), 0);
    for _ in 0..10_000 {
        now = now.plus(seconds(1));
        match decide(&node, &facts, &policy, now) {
            Decision::Move { edge, .. } => {
                node = apply(&node, edge, now).expect("decide keeps to the chart");
                facts.attempts.clear();
            }
            Decision::Act(effect) => {
                done += 1;
                let outcome = answer(effect);
                if outcome == Outcome::Succeeded {
                    see(&mut facts, effect, now);
                }
                facts.attempts.push(Attempt {
                    effect,
                    started_at: now,
                    ended_at: Some(now),
                    deadline: now.plus(policy.effect_us(effect)),
                    outcome,
                    boot_id: None,
                });
            }
            Decision::Wait { until, .. } => {
                assert!(until > now, "a wait that ends at once in {}", node.state);
                let resting = policy.state_deadline(node.state, node.since).is_none();
                if resting && node.state != State::Discovered {
                    return (node.state, done);
                }
                now = until;
            }
        }
    }
    panic!("no end in sight in {} after {done} effects", node.state);
}

#[test]
fn every_story_on_a_broken_machine_ends_at_rest() {
    let absent = Reading::Known {
        value: rackwright_lifecycle::Agent::Absent,
        at: Timestamp::default(),
    };
    let states = [
        State::Inspecting,
        State::Imaging,
        State::Rebooting,
        State::Validating,
        State::Reclaiming,
        State::Failed,
    ];
    for answer in [broken as Answer, dead_machine] {
        for state in states {
            for (claim, released) in [(false, false), (true, false), (true, true)] {
                if !claim && !matches!(state, State::Inspecting | State::Reclaiming | State::Failed) {
                    continue;
                }
                let (end, done) = end_of(node(state, claim, released), answer, &absent);
                let wanted = if released || state == State::Reclaiming {
                    State::Quarantined
                } else {
                    State::Failed
                };
                assert_eq!(end, wanted, "{state}, claimed {claim}, released {released}");
                assert!(done <= 40, "{done} effects from {state}");
            }
        }
    }
}

#[test]
fn an_erase_that_fails_again_and_again_ends_in_quarantine() {
    fn all_but_the_erase(effect: Effect) -> Outcome {
        match effect {
            Effect::EraseDrives => broken(effect),
            _ => Outcome::Succeeded,
        }
    }
    // The agent counts as one of the right boot from the first decision on.
    let present = Reading::Known {
        value: rackwright_lifecycle::Agent::Present {
            boot_id: "b".into(),
            booted_at: Timestamp(i64::MAX - 1),
        },
        at: Timestamp::default(),
    };
    let (end, done) = end_of(node(State::Reclaiming, true, true), all_but_the_erase, &present);
    assert_eq!(end, State::Quarantined);
    assert!(done <= 12, "{done} effects");
}
