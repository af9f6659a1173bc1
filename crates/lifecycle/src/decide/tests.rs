#[path = "contest_tests.rs"]
mod contest_tests;

use super::*;
use crate::effect::BootTarget;
use crate::facts::Bmc;
use crate::node::{Claim, Evidence, PowerGoal, PowerRequest, Wanted};
use crate::outcome::apply;

pub(super) const T0: Timestamp = Timestamp(1_000_000_000_000);

pub(super) fn at(s: i64) -> Timestamp {
    T0.plus(seconds(s))
}

pub(super) fn node(state: State) -> Node {
    Node {
        state,
        since: T0,
        generation: 1,
        claim: None,
        wanted: Wanted::default(),
        evidence: Evidence::default(),
        doubt: None,
    }
}

fn claim() -> Claim {
    Claim {
        generation: 1,
        deployment: 1,
        image_digest: "b3-00".into(),
        image_name: "images/debian".into(),
        hostname: "a".into(),
        ssh_authorized_keys: Vec::new(),
        has_user_data: false,
        plain_user_data: String::new(),
        root_drive: String::new(),
        verify_whole_disk: false,
        release_requested: false,
        handed_over: None,
        customer: "".into(),
        cluster: None,
    }
}

pub(super) fn claimed(state: State) -> Node {
    Node {
        claim: Some(claim()),
        ..node(state)
    }
}

pub(super) fn known<T>(value: T, s: i64) -> Reading<T> {
    Reading::Known { value, at: at(s) }
}

pub(super) fn tried(effect: Effect, start: i64, end: i64, outcome: Outcome) -> Attempt {
    let ended_at = (outcome != Outcome::Open).then_some(at(end));
    Attempt {
        effect,
        started_at: at(start),
        ended_at,
        deadline: at(start + 3600),
        outcome,
        boot_id: None,
    }
}

pub(super) fn failed(message: &str, retryable: bool) -> Outcome {
    Outcome::Failed {
        code: "x".into(),
        message: message.into(),
        retryable,
    }
}

fn present(s: i64) -> Reading<Agent> {
    known(
        Agent::Present {
            boot_id: "b1".into(),
            booted_at: at(s),
        },
        s,
    )
}

/// A machine that was switched on at the start of its state. Its agent came a second later.
fn booted() -> Facts {
    Facts {
        agent: present(1),
        power: known(Power::On, 1),
        attempts: vec![
            tried(Effect::PowerOff, -13, -12, Outcome::Succeeded),
            tried(Effect::ProvePowerOff, -1, -1, Outcome::Succeeded),
            tried(Effect::PowerOn, 0, 0, Outcome::Succeeded),
        ],
        ..Facts::default()
    }
}

pub(super) fn decide_at(node: &Node, facts: &Facts, s: i64) -> Decision {
    decide(node, facts, &Policy::default(), at(s))
}

fn edge_of(decision: &Decision) -> Option<Edge> {
    match decision {
        Decision::Move { edge, .. } => Some(*edge),
        _ => None,
    }
}

#[test]
fn a_machine_that_is_off_is_set_to_the_network_switched_on_and_awaited() {
    let node = node(State::Inspecting);
    let mut facts = Facts {
        bmc: known(Bmc::Identified, 0),
        ..Facts::default()
    };
    assert_eq!(decide_at(&node, &facts, 1), Decision::Act(Effect::ObservePower));
    facts.power = known(Power::Off, 1);
    assert_eq!(
        decide_at(&node, &facts, 2),
        Decision::Act(Effect::SetBoot(BootTarget::Network))
    );
    facts.boot_target = known(BootTarget::Network, 2);
    assert_eq!(decide_at(&node, &facts, 3), Decision::Act(Effect::PowerOn));
    facts.attempts.push(tried(Effect::PowerOn, 3, 4, Outcome::Succeeded));
    facts.power = known(Power::On, 4);
    assert!(matches!(
        decide_at(&node, &facts, 5),
        Decision::Wait {
            why: Wait::AgentBoot,
            ..
        }
    ));
    facts.agent = present(20);
    assert!(matches!(
        decide_at(&node, &facts, 21),
        Decision::Wait {
            why: Wait::Inventory,
            ..
        }
    ));
    facts.inventory = known((), 22);
    assert_eq!(decide_at(&node, &facts, 23), Decision::Act(Effect::ReadDrives));
    facts
        .attempts
        .push(tried(Effect::ReadDrives, 23, 23, Outcome::Succeeded));
    assert_eq!(decide_at(&node, &facts, 23), Decision::Act(Effect::PowerOff));
    facts.power = known(Power::Off, 24);
    assert_eq!(edge_of(&decide_at(&node, &facts, 25)), Some(Edge::Inspected));
}

#[test]
fn a_machine_that_runs_something_else_is_switched_off_first() {
    let facts = Facts {
        bmc: known(Bmc::Identified, 0),
        power: known(Power::On, 1),
        ..Facts::default()
    };
    assert_eq!(
        decide_at(&node(State::Inspecting), &facts, 2),
        Decision::Act(Effect::PowerOff)
    );
}

#[test]
fn boots_that_bring_no_agent_are_repeated_and_then_given_up_with_advice() {
    let policy = Policy::default();
    let mut facts = Facts {
        power: known(Power::On, 899),
        ..Facts::default()
    };
    facts.attempts.push(tried(Effect::PowerOn, 0, 0, Outcome::Succeeded));
    let node = claimed(State::Imaging);
    assert_eq!(decide(&node, &facts, &policy, at(901)), Decision::Act(Effect::PowerOff));
    for _ in 0..2 {
        facts.attempts.push(tried(Effect::PowerOn, 0, 0, Outcome::Succeeded));
    }
    let Decision::Move { edge, reason } = decide(&node, &facts, &policy, at(901)) else {
        panic!("must fail")
    };
    assert_eq!(edge, Edge::Failed);
    assert!(reason.contains("boot trace"), "{reason}");
}

#[test]
fn a_permanent_failure_ends_the_state_at_once_with_its_own_message() {
    let mut facts = booted();
    facts.attempts.push(tried(
        Effect::WriteImage,
        2,
        3,
        failed("chunk 7 has the wrong digest", false),
    ));
    let Decision::Move { edge, reason } = decide_at(&claimed(State::Imaging), &facts, 4) else {
        panic!("must fail")
    };
    assert_eq!((edge, reason.as_str()), (Edge::Failed, "chunk 7 has the wrong digest"));
}

#[test]
fn retries_back_off_and_are_bounded() {
    let node = claimed(State::Imaging);
    let mut facts = booted();
    facts
        .attempts
        .push(tried(Effect::WriteImage, 2, 3, failed("cut", true)));
    assert!(matches!(decide_at(&node, &facts, 4), Decision::Wait { why: Wait::Retry { .. }, until } if until == at(5)));
    assert_eq!(decide_at(&node, &facts, 5), Decision::Act(Effect::WriteImage));
    for i in 0..3 {
        facts
            .attempts
            .push(tried(Effect::WriteImage, 10 + i, 11 + i, failed("cut", true)));
    }
    assert_eq!(edge_of(&decide_at(&node, &facts, 900)), Some(Edge::Failed));
}

#[test]
fn our_own_interruption_uses_no_retry() {
    let node = claimed(State::Imaging);
    let mut facts = booted();
    for i in 0..20 {
        facts
            .attempts
            .push(tried(Effect::WriteImage, i, i, Outcome::Interrupted));
    }
    assert_eq!(decide_at(&node, &facts, 30), Decision::Act(Effect::WriteImage));
}

#[test]
fn nothing_is_begun_while_an_effect_is_open() {
    let mut facts = booted();
    facts.attempts.push(tried(Effect::WriteImage, 2, 0, Outcome::Open));
    let decision = decide_at(&claimed(State::Imaging), &facts, 3);
    assert!(matches!(
        decision,
        Decision::Wait {
            why: Wait::Effect(Effect::WriteImage),
            ..
        }
    ));
}

#[test]
fn an_agent_that_is_briefly_lost_is_awaited() {
    let facts = Facts {
        agent: Reading::Unknown { since: at(100) },
        power: known(Power::On, 100),
        ..booted()
    };
    assert!(matches!(
        decide_at(&claimed(State::Imaging), &facts, 110),
        Decision::Wait { why: Wait::AgentReturn, until } if until == at(160)
    ));
}

#[test]
fn rebooting_sees_off_sets_disk_switches_on_and_waits() {
    let node = claimed(State::Rebooting);
    let mut facts = Facts {
        power: known(Power::On, 0),
        agent: present(-20),
        ..Facts::default()
    };
    assert_eq!(decide_at(&node, &facts, 1), Decision::Act(Effect::PowerOff));
    facts.power = known(Power::Off, 2);
    assert_eq!(
        decide_at(&node, &facts, 3),
        Decision::Act(Effect::SetBoot(BootTarget::Disk))
    );
    facts.boot_target = known(BootTarget::Disk, 3);
    assert_eq!(decide_at(&node, &facts, 4), Decision::Act(Effect::PowerOn));
    facts.attempts.push(tried(Effect::PowerOn, 4, 5, Outcome::Succeeded));
    facts.power = known(Power::On, 5);
    assert_eq!(decide_at(&node, &facts, 6), Decision::Act(Effect::AwaitHost));
    facts
        .attempts
        .push(tried(Effect::AwaitHost, 6, 906, failed("no answer", true)));
    assert_eq!(decide_at(&node, &facts, 907), Decision::Act(Effect::PowerOff));
    facts.power = known(Power::Off, 908);
    assert_eq!(
        decide_at(&node, &facts, 909),
        Decision::Act(Effect::SetBoot(BootTarget::Disk))
    );
}

#[test]
fn the_key_is_taken_off_before_the_node_is_handed_over() {
    let node = claimed(State::Validating);
    let mut facts = Facts::default();
    assert_eq!(decide_at(&node, &facts, 1), Decision::Act(Effect::Validate));
    facts.attempts.push(tried(Effect::Validate, 1, 2, Outcome::Succeeded));
    assert_eq!(decide_at(&node, &facts, 3), Decision::Act(Effect::HandOver));
    facts.attempts.push(tried(Effect::HandOver, 3, 4, Outcome::Succeeded));
    assert_eq!(edge_of(&decide_at(&node, &facts, 5)), Some(Edge::Validated));
}

#[test]
fn only_the_inspection_right_after_enrolment_skips_identification() {
    let mut node = node(State::Inspecting);
    let is_identified = |node: &Node, s| {
        let facts = Facts {
            bmc: known(Bmc::Identified, s),
            ..Facts::default()
        };
        decide_at(node, &facts, 1) != Decision::Act(Effect::Identify)
    };
    assert!(is_identified(&node, -5) && !is_identified(&node, -6));
    // The board may have been changed since.
    node.evidence.clean_at = Some(at(-100));
    assert!(is_identified(&node, 0) && !is_identified(&node, -1));
}

#[test]
fn an_inspection_with_drives_that_the_bmc_contradicts_fails_and_names_the_difference() {
    let facts = Facts {
        bmc: known(Bmc::Identified, 0),
        power: known(Power::On, 1),
        inventory: known((), 2),
        attempts: vec![tried(Effect::ReadDrives, 3, 4, failed("vda differs", false))],
        ..Facts::default()
    };
    let decision = decide_at(&node(State::Inspecting), &facts, 5);
    assert_eq!(edge_of(&decision), Some(Edge::Failed));
    assert!(matches!(decision, Decision::Move { reason, .. } if reason == "vda differs"));
}

#[test]
fn every_state_of_the_agent_wants_a_boot_of_its_own() {
    for (state, node) in [
        (State::Reclaiming, claimed(State::Reclaiming)),
        (State::Inspecting, node(State::Inspecting)),
        (State::Imaging, claimed(State::Imaging)),
    ] {
        let mut facts = Facts {
            // The former owner's system pretends to be the agent, and the power reading is from before the state.
            agent: present(5),
            power: known(Power::Off, -1),
            bmc: known(Bmc::Identified, 1),
            ..Facts::default()
        };
        assert_eq!(
            decide_at(&node, &facts, 6),
            Decision::Act(Effect::ObservePower),
            "{state}"
        );
        facts.power = known(Power::On, 6);
        assert_eq!(decide_at(&node, &facts, 7), Decision::Act(Effect::PowerOff), "{state}");
        facts.power = known(Power::Off, 8);
        facts.boot_target = known(BootTarget::Network, 8);
        facts.attempts.push(tried(Effect::PowerOff, -5, -4, Outcome::Succeeded));
        if state == State::Reclaiming {
            assert_eq!(decide_at(&node, &facts, 9), Decision::Act(Effect::ProvePowerOff));
        }
        facts
            .attempts
            .push(tried(Effect::ProvePowerOff, 9, 9, Outcome::Succeeded));
        assert_eq!(decide_at(&node, &facts, 9), Decision::Act(Effect::PowerOn), "{state}");
        facts.attempts.push(tried(Effect::PowerOn, 9, 10, Outcome::Succeeded));
        facts.power = known(Power::On, 10);
        assert!(matches!(
            decide_at(&node, &facts, 11),
            Decision::Wait {
                why: Wait::AgentBoot,
                ..
            }
        ));
        facts.agent = present(20);
        match state {
            State::Reclaiming => {
                assert_eq!(decide_at(&node, &facts, 21), Decision::Act(Effect::ReadDrives));
                facts
                    .attempts
                    .push(tried(Effect::ReadDrives, 21, 21, Outcome::Succeeded));
                assert_eq!(decide_at(&node, &facts, 22), Decision::Act(Effect::EraseDrives));
            }
            State::Imaging => assert_eq!(decide_at(&node, &facts, 21), Decision::Act(Effect::WriteImage)),
            _ => assert!(matches!(
                decide_at(&node, &facts, 21),
                Decision::Wait {
                    why: Wait::Inventory,
                    ..
                }
            )),
        }
    }
}

#[test]
fn a_handed_over_machine_is_checked_again_and_never_overwritten() {
    let mut node = claimed(State::Failed);
    if let Some(claim) = &mut node.claim {
        claim.handed_over = Some(claim.deployment);
    }
    node.wanted.retry = true;
    assert_eq!(edge_of(&decide_at(&node, &Facts::default(), 1)), Some(Edge::Revalidate));
    node.state = State::Validating;
    let mut facts = Facts {
        power: known(Power::Off, 1),
        ..Facts::default()
    };
    assert_eq!(decide_at(&node, &facts, 2), Decision::Act(Effect::PowerOn));
    facts.power = known(Power::On, 3);
    assert_eq!(decide_at(&node, &facts, 4), Decision::Act(Effect::ValidateFromOutside));
}

#[test]
fn a_drive_that_cannot_be_erased_condemns_the_node() {
    let mut facts = Facts {
        agent: present(1),
        ..Facts::default()
    };
    facts
        .attempts
        .push(tried(Effect::EraseDrives, 1, 2, failed("vda: no method", false)));
    assert_eq!(
        edge_of(&decide_at(&node(State::Reclaiming), &facts, 3)),
        Some(Edge::Condemned)
    );
    assert_eq!(
        edge_of(&decide_at(&node(State::Reclaiming), &Facts::default(), 1_000_000)),
        Some(Edge::Condemned),
        "a release that takes too long"
    );
}

#[test]
fn a_release_precedes_open_work() {
    let mut node = claimed(State::Imaging);
    if let Some(c) = &mut node.claim {
        c.release_requested = true;
    }
    let mut facts = booted();
    facts.attempts.push(tried(Effect::WriteImage, 2, 0, Outcome::Open));
    assert_eq!(edge_of(&decide_at(&node, &facts, 3)), Some(Edge::Released));
    node.state = State::Allocated;
    assert_eq!(edge_of(&decide_at(&node, &facts, 3)), Some(Edge::Unclaimed));
}

#[test]
fn an_unclaimed_dirty_node_is_not_inspected_back_into_the_pool() {
    let mut node = node(State::Failed);
    node.wanted.retry = true;
    node.evidence.written_at = Some(at(-10));
    assert!(matches!(
        decide_at(&node, &Facts::default(), 1),
        Decision::Wait {
            why: Wait::Operator,
            ..
        }
    ));
    node.state = State::Inspecting;
    assert_eq!(edge_of(&decide_at(&node, &Facts::default(), 1)), Some(Edge::Failed));
}

#[test]
fn power_is_cycled_through_off_and_then_left_alone() {
    let mut node = node(State::Available);
    node.wanted.power = Some(PowerRequest {
        goal: PowerGoal::Cycle,
        at: at(1),
    });
    let mut facts = Facts {
        power: known(Power::On, 0),
        ..Facts::default()
    };
    assert_eq!(decide_at(&node, &facts, 2), Decision::Act(Effect::PowerOff));
    facts.attempts.push(tried(Effect::PowerOff, 2, 3, Outcome::Succeeded));
    facts.power = known(Power::Off, 3);
    assert_eq!(decide_at(&node, &facts, 4), Decision::Act(Effect::PowerOn));
    facts.attempts.push(tried(Effect::PowerOn, 4, 5, Outcome::Succeeded));
    facts.power = known(Power::On, 5);
    assert!(matches!(
        decide_at(&node, &facts, 6),
        Decision::Wait { why: Wait::Rest, .. }
    ));
}

#[test]
fn an_open_job_is_closed_when_its_machine_was_booted_again() {
    let mut open = tried(Effect::WriteImage, 1, 0, Outcome::Open);
    open.boot_id = Some("b0".into());
    let facts = Facts {
        agent: present(5),
        ..Facts::default()
    };
    let verdict = forced_outcome(&open, &facts, &Policy::default(), at(6));
    assert!(matches!(verdict, Some(Outcome::Failed { retryable: true, .. })));
    open.boot_id = Some("b1".into());
    assert_eq!(forced_outcome(&open, &facts, &Policy::default(), at(6)), None);
}

#[test]
fn every_working_state_has_an_exit_at_its_deadline() {
    for state in State::ALL {
        let Some(deadline) = Policy::default().state_deadline(*state, T0) else {
            continue;
        };
        let decision = decide(&claimed(*state), &Facts::default(), &Policy::default(), deadline);
        assert!(
            edge_of(&decision).is_some(),
            "{state} outlasts its deadline: {decision:?}"
        );
    }
}

#[test]
fn time_in_a_queue_for_permits_does_not_count_for_the_deadline() {
    let node = claimed(State::Imaging);
    let deadline = Policy::default().state_deadline(State::Imaging, T0).unwrap();
    let facts = Facts {
        in_line_us: 1,
        ..Facts::default()
    };
    let decide_at = |now| decide(&node, &facts, &Policy::default(), now);
    assert_eq!(edge_of(&decide_at(deadline)), None);
    assert_eq!(edge_of(&decide_at(deadline.plus(1))), Some(Edge::Failed));
}

proptest::proptest! {
    /// Whatever the facts, a decision to move names an edge of the chart, and a wait ends in the future.
    #[test]
    fn decisions_are_always_possible(
        state in 0..State::ALL.len(),
        flags in 0u32..4096,
        power in 0u8..4,
        steps in proptest::collection::vec((0..Effect::ALL.len(), 0i64..500, 0u8..5), 0..8),
        now in 0i64..200_000,
    ) {
        let mut node = if flags & 1 == 0 { claimed(State::ALL[state]) } else { node(State::ALL[state]) };
        if let Some(c) = &mut node.claim { c.release_requested = flags & 2 != 0; }
        node.wanted.hold = (flags & 4 != 0).then(|| "h".into());
        node.wanted.condemn = (flags & 8 != 0).then(|| "c".into());
        node.wanted.retry = flags & 16 != 0;
        node.wanted.resume = flags & 32 != 0;
        node.wanted.readmit = flags & 64 != 0;
        node.wanted.reinspect = flags & 512 != 0;
        node.evidence.written_at = (flags & 128 != 0).then(|| at(-5));
        let mut facts = Facts::default();
        if flags & 256 != 0 { facts.agent = present(now / 2); }
        facts.wants_settings = flags & 1024 != 0;
        facts.firmware.under_way = flags & 2048 != 0;
        facts.power = match power {
            0 => Reading::Never,
            1 => known(Power::On, now / 2),
            2 => known(Power::Off, now / 2),
            _ => Reading::Unknown { since: at(now / 3) },
        };
        for (effect, start, outcome) in steps {
            let outcome = match outcome {
                0 => Outcome::Succeeded,
                1 => failed("no", true),
                2 => failed("never", false),
                3 => Outcome::Interrupted,
                _ => Outcome::Open,
            };
            facts.attempts.push(tried(Effect::ALL[effect], start, start + 1, outcome));
        }
        match decide_at(&node, &facts, now) {
            Decision::Move { edge, .. } => {
                let after = apply(&node, edge, at(now));
                proptest::prop_assert!(after.is_some(), "{edge} from {}", node.state);
                if after.is_some_and(|n| n.state == State::Available) && edge != Edge::Unclaimed {
                    proptest::prop_assert!(node.evidence.is_untouched() || edge == Edge::Erased);
                }
            }
            Decision::Act(_) => proptest::prop_assert!(facts.open().is_none()),
            Decision::Wait { until, .. } => {
                proptest::prop_assert!(until > at(now) || facts.open().is_some_and(|o| o.deadline == until));
            }
        }
    }
}

#[test]
fn drives_of_a_claim_are_required_until_all_are_erased() {
    let serials = |list: &[&str]| {
        list.iter()
            .map(|s| (*s).to_owned())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let mut node = node(State::Reclaiming);
    node.evidence.drives = serials(&["a", "b"]);
    assert_eq!(node.evidence.missing(&serials(&["a", "c"])), serials(&["b"]));
    assert!(node.evidence.missing(&serials(&["b", "a"])).is_empty());
    let erased = crate::outcome::apply(&node, Edge::Erased, at(1)).expect("the chart has it");
    assert!(erased.evidence.drives.is_empty());
}

#[test]
fn a_node_of_a_cluster_waits_checked_until_it_is_let_go_however_long_that_takes() {
    let mut node = claimed(State::Validating);
    let facts = Facts {
        attempts: vec![tried(Effect::Validate, 1, 2, Outcome::Succeeded)],
        ..Facts::default()
    };
    let cluster_claim = |let_go| {
        Some(crate::ClusterClaim {
            cluster: "c".into(),
            let_go,
            build: 0,
        })
    };
    node.claim.as_mut().unwrap().cluster = cluster_claim(None);
    let late = 600_000;
    for s in [3, late] {
        let decision = decide_at(&node, &facts, s);
        let waits = matches!(decision, Decision::Wait { why: Wait::Cluster, .. });
        assert!(waits, "{decision:?}");
    }
    node.claim.as_mut().unwrap().cluster = cluster_claim(Some(at(late)));
    assert_eq!(decide_at(&node, &facts, late), Decision::Act(Effect::HandOver));
}

#[test]
fn a_doubted_node_takes_only_an_operators_decision() {
    let doubt = crate::Doubt {
        cause: crate::DoubtCause::Restored,
        since: T0,
        why: "the database was restored".into(),
        generation: 0,
    };
    for state in State::ALL {
        for is_claimed in [false, true] {
            let mut node = if is_claimed { claimed(*state) } else { node(*state) };
            node.doubt = Some(doubt.clone());
            if let Some(claim) = &mut node.claim {
                claim.release_requested = true;
            }
            node.wanted.resume = true;
            node.wanted.retry = true;
            node.wanted.reinspect = true;
            for s in [1, 900_000] {
                let decision = decide_at(&node, &Facts::default(), s);
                let waits = matches!(&decision, Decision::Wait { why: Wait::Doubt { .. }, until } if *until > at(s));
                assert!(waits, "{state}, claimed: {is_claimed}: {decision:?}");
            }
            node.wanted.readmit = true;
            let decision = decide_at(&node, &Facts::default(), 1);
            let is_let_in = matches!(
                decision,
                Decision::Move {
                    edge: Edge::Readmitted,
                    ..
                }
            );
            assert_eq!(
                is_let_in,
                Edge::Readmitted.target(*state).is_some(),
                "{state}: {decision:?}"
            );
        }
    }
}

#[test]
fn readmission_ends_a_doubt_and_raises_the_generation_above_the_machines() {
    let mut node = node(State::Available);
    node.doubt = Some(crate::Doubt {
        cause: crate::DoubtCause::Generation,
        since: T0,
        why: String::new(),
        generation: 50,
    });
    let erased = crate::outcome::apply(&node, Edge::Readmitted, at(1)).expect("the chart has it");
    assert_eq!(erased.doubt, None);
    assert!(erased.generation > 50, "{}", erased.generation);
    node.doubt = None;
    node.wanted.readmit = true;
    let decision = decide_at(&node, &Facts::default(), 1);
    assert!(
        !matches!(decision, Decision::Move { .. }),
        "a node of the pool is not erased: {decision:?}"
    );
}
