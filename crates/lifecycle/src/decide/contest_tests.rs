//! Tests: which boot brings the agent, when the agent is believed, and the effect of two machines in one boot.

use super::*;

#[test]
fn the_boot_that_brings_the_agent_is_the_last_power_on_and_nothing_ends_it() {
    let on = |outcome| tried(Effect::PowerOn, 2, 3, outcome);
    let boot = |attempts: &[Attempt], power| expected_boot(State::Imaging, attempts.iter(), &known(power, 9));
    let (good, open) = (on(Outcome::Succeeded), on(Outcome::Open));
    assert_eq!(boot(std::slice::from_ref(&good), Power::On), Some(0));
    assert_eq!(boot(&[good.clone(), open], Power::Changing), Some(1));
    let write = tried(Effect::WriteImage, 4, 5, Outcome::Succeeded);
    assert_eq!(boot(&[good.clone(), write.clone()], Power::On), Some(0));
    assert_eq!(
        boot(std::slice::from_ref(&good), Power::Off),
        None,
        "it is known to be off"
    );
    assert_eq!(boot(&[write], Power::On), None, "it was not switched on");
    for ended in [failed("no answer", true), Outcome::Interrupted] {
        assert_eq!(boot(&[on(ended)], Power::On), None);
    }
    for effect in [Effect::PowerOff, Effect::UpdateFirmware] {
        for outcome in [Outcome::Open, Outcome::Succeeded, failed("no answer", true)] {
            assert_eq!(boot(&[good.clone(), tried(effect, 4, 5, outcome)], Power::On), None);
        }
    }
    for state in State::ALL {
        let attempts = [good.clone()];
        let found = expected_boot(*state, attempts.iter(), &known(Power::On, 9));
        assert_eq!(found.is_some(), state.boots_agent(), "{state}");
    }
}

#[test]
fn a_contested_boot_ends_the_job_and_the_power_and_a_second_one_quarantines() {
    let what = "02:00 at 10.0.0.5 registered, and then 02:00 at 10.0.0.6";
    for state in [State::Reclaiming, State::Imaging, State::Inspecting] {
        let node = if state == State::Inspecting {
            node(state)
        } else {
            claimed(state)
        };
        let mut facts = Facts {
            bmc: known(Bmc::Identified, 1),
            ..booted()
        };
        facts.inventory = known((), 3);
        facts.boots.contests = 1;
        facts.boots.contested = Some((at(5), what.into()));
        let mut open = tried(Effect::WriteImage, 4, 0, Outcome::Open);
        open.boot_id = Some("b1".into());
        let verdict = forced_outcome(&open, &facts, &Policy::default(), at(6));
        assert!(
            matches!(&verdict, Some(Outcome::Failed { code, message, retryable: true }) if code == CONTESTED && message == what),
            "{verdict:?}"
        );
        // A report from before the contest does not count either.
        facts
            .attempts
            .push(tried(Effect::EraseDrives, 2, 3, Outcome::Succeeded));
        facts.attempts.push(tried(Effect::WriteImage, 2, 3, Outcome::Succeeded));
        assert_eq!(decide_at(&node, &facts, 6), Decision::Act(Effect::PowerOff), "{state}");
        facts.attempts.push(tried(Effect::PowerOff, 6, 7, Outcome::Succeeded));
        facts.power = known(Power::Off, 7);
        facts.agent = known(Agent::Absent, 7);
        facts.boot_target = known(BootTarget::Network, 8);
        if state == State::Reclaiming {
            let waits = decide_at(&node, &facts, 9);
            assert!(
                matches!(
                    waits,
                    Decision::Wait {
                        why: Wait::PowerLoss,
                        ..
                    }
                ),
                "{waits:?}"
            );
        }
        facts
            .attempts
            .push(tried(Effect::ProvePowerOff, 9, 9, Outcome::Succeeded));
        assert_eq!(decide_at(&node, &facts, 9), Decision::Act(Effect::PowerOn), "{state}");
        facts.attempts.push(tried(Effect::PowerOn, 9, 10, Outcome::Succeeded));
        facts.power = known(Power::On, 10);
        let waits = decide_at(&node, &facts, 11);
        assert!(
            matches!(
                waits,
                Decision::Wait {
                    why: Wait::AgentBoot,
                    ..
                }
            ),
            "{state}: {waits:?}"
        );
        facts.boots.contests = 2;
        facts.boots.contested = Some((at(12), what.into()));
        let Decision::Move { edge, reason } = decide_at(&node, &facts, 13) else {
            panic!("{state} is left")
        };
        assert_eq!(edge, Edge::Condemned);
        assert!(reason.contains(what) && reason.contains("switches"), "{reason}");
    }
}

#[test]
fn an_agent_is_refused_before_the_nodes_own_machine_could_have_booted() {
    for (state, effect) in [
        (State::Imaging, Effect::WriteImage),
        (State::Reclaiming, Effect::ReadDrives),
    ] {
        let mut facts = booted();
        facts.boots.usual_us = 90_000_000;
        let early = decide_at(&claimed(state), &facts, 2);
        assert!(
            matches!(early, Decision::Wait { why: Wait::SecondMachine, until } if until == at(90)),
            "{early:?}"
        );
        assert_eq!(decide_at(&claimed(state), &facts, 90), Decision::Act(effect));
    }
    let mut facts = Facts {
        bmc: known(Bmc::Identified, 1),
        inventory: known((), 2),
        ..booted()
    };
    facts.boots.usual_us = 90_000_000;
    let early = decide_at(&node(State::Inspecting), &facts, 3);
    assert!(
        matches!(
            early,
            Decision::Wait {
                why: Wait::SecondMachine,
                ..
            }
        ),
        "{early:?}"
    );
    assert_eq!(
        decide_at(&node(State::Inspecting), &facts, 91),
        Decision::Act(Effect::ReadDrives)
    );
    // A BMC's list of drives that was compared before a contest is read again.
    facts
        .attempts
        .push(tried(Effect::ReadDrives, 91, 92, Outcome::Succeeded));
    facts.inventory = known((), 200);
    assert_eq!(
        decide_at(&node(State::Inspecting), &facts, 201),
        Decision::Act(Effect::PowerOff)
    );
    facts.boots.contests = 1;
    facts.boots.contested = Some((at(150), "two machines".into()));
    facts
        .attempts
        .push(tried(Effect::PowerOff, 151, 152, Outcome::Succeeded));
    facts
        .attempts
        .push(tried(Effect::PowerOn, 153, 154, Outcome::Succeeded));
    facts.agent = present(190);
    facts.power = known(Power::On, 190);
    assert_eq!(
        decide_at(&node(State::Inspecting), &facts, 300),
        Decision::Act(Effect::ReadDrives)
    );
    // At most the time that a boot may take.
    assert_eq!(
        Policy::default().agent_quiet_us(i64::MAX),
        Policy::default().agent_boot_us()
    );
}

#[test]
fn a_machine_that_does_not_prove_itself_is_cycled_once_and_fails_its_inspection_or_is_quarantined() {
    let what = "no TPM answered";
    for (state, end) in [
        (State::Inspecting, Edge::Failed),
        (State::Imaging, Edge::Condemned),
        (State::Reclaiming, Edge::Condemned),
    ] {
        let node = if state == State::Inspecting {
            node(state)
        } else {
            claimed(state)
        };
        let mut facts = Facts {
            bmc: known(Bmc::Identified, 1),
            ..booted()
        };
        facts.boots.contests = 1;
        facts.boots.contested = Some((at(5), what.into()));
        facts.boots.is_unproven = true;
        assert_eq!(decide_at(&node, &facts, 6), Decision::Act(Effect::PowerOff), "{state}");
        facts.boots.contests = 2;
        let Decision::Move { edge, reason } = decide_at(&node, &facts, 13) else {
            panic!("{state} is left")
        };
        assert_eq!(edge, end, "{state}");
        assert!(reason.contains(what) && reason.contains("identity"), "{reason}");
    }
}
