use super::tests::{claimed, decide_at, failed, known, node, tried};
use super::*;
use crate::effect::BootTarget;
use crate::facts::{Bmc, BmcPolicy};

fn off(policy: BmcPolicy) -> Facts {
    Facts {
        power: known(Power::Off, 1),
        bmc_policy: policy,
        ..Facts::default()
    }
}

fn edge_of(decision: &Decision) -> Option<Edge> {
    match decision {
        Decision::Move { edge, .. } => Some(*edge),
        _ => None,
    }
}

#[test]
fn a_bmc_is_cleaned_after_power_off_and_before_the_boot_into_the_agent() {
    let node = claimed(State::Reclaiming);
    let mut facts = Facts {
        power: known(Power::On, 1),
        ..off(BmcPolicy::Clean)
    };
    assert_eq!(decide_at(&node, &facts, 2), Decision::Act(Effect::PowerOff));
    facts.power = known(Power::Off, 3);
    assert_eq!(decide_at(&node, &facts, 4), Decision::Act(Effect::CleanBmc));
    facts.attempts.push(tried(Effect::CleanBmc, 4, 5, failed("503", true)));
    assert_eq!(decide_at(&node, &facts, 10), Decision::Act(Effect::CleanBmc));
    facts.attempts.push(tried(Effect::CleanBmc, 10, 11, Outcome::Succeeded));
    let network = Decision::Act(Effect::SetBoot(BootTarget::Network));
    assert_eq!(decide_at(&node, &facts, 12), network);
    // Where the site only wants reports, nothing is removed.
    assert_eq!(decide_at(&node, &off(BmcPolicy::Report), 12), network);
}

#[test]
fn a_bmc_with_foreign_parts_that_stay_quarantines_the_node_before_it_is_booted() {
    let mut facts = off(BmcPolicy::Clean);
    let node = claimed(State::Reclaiming);
    facts
        .attempts
        .push(tried(Effect::CleanBmc, 2, 3, failed("it hides its accounts", false)));
    let decision = decide_at(&node, &facts, 4);
    assert_eq!(edge_of(&decision), Some(Edge::Condemned));
    assert!(matches!(decision, Decision::Move { reason, .. } if reason == "it hides its accounts"));
    let mut facts = off(BmcPolicy::Clean);
    for s in 1..=4 {
        let again = failed("it came back", true);
        facts.attempts.push(tried(Effect::CleanBmc, 10 * s, 10 * s + 1, again));
    }
    assert_eq!(edge_of(&decide_at(&node, &facts, 200)), Some(Edge::Condemned));
}

#[test]
fn a_node_becomes_available_only_with_a_reading_after_the_machine_ran_last() {
    let node = claimed(State::Reclaiming);
    let mut facts = Facts {
        power: known(Power::Off, 40),
        attempts: vec![
            tried(Effect::CleanBmc, 1, 2, Outcome::Succeeded),
            tried(Effect::PowerOn, 3, 4, Outcome::Succeeded),
            tried(Effect::EraseDrives, 10, 30, Outcome::Succeeded),
            tried(Effect::PowerOff, 35, 40, Outcome::Succeeded),
        ],
        ..off(BmcPolicy::Clean)
    };
    facts.power = known(Power::Off, 40);
    assert_eq!(decide_at(&node, &facts, 41), Decision::Act(Effect::CleanBmc));
    facts
        .attempts
        .push(tried(Effect::CleanBmc, 41, 42, failed("evil is back", false)));
    assert_eq!(edge_of(&decide_at(&node, &facts, 43)), Some(Edge::Condemned));
    facts.attempts.pop();
    facts.attempts.push(tried(Effect::CleanBmc, 41, 42, Outcome::Succeeded));
    assert_eq!(edge_of(&decide_at(&node, &facts, 43)), Some(Edge::Erased));
    // The control plane has made a new account since: the foreign accounts must be judged anew.
    facts
        .attempts
        .push(tried(Effect::ChangePassword, 44, 45, Outcome::Succeeded));
    assert_eq!(decide_at(&node, &facts, 46), Decision::Act(Effect::CleanBmc));
    facts.bmc_policy = BmcPolicy::None;
    assert_eq!(edge_of(&decide_at(&node, &facts, 46)), Some(Edge::Erased));
}

#[test]
fn an_inspection_reports_and_removes_nothing_and_a_reading_that_fails_holds_nothing_up() {
    let node = node(State::Inspecting);
    let mut facts = Facts {
        bmc: known(Bmc::Identified, 0),
        ..off(BmcPolicy::Clean)
    };
    // The machine runs first: at a start its firmware reports boot options to the BMC.
    let network = Decision::Act(Effect::SetBoot(BootTarget::Network));
    assert_eq!(decide_at(&node, &facts, 2), network);
    facts.inventory = known((), 5);
    facts.power = known(Power::Off, 6);
    facts.attempts = vec![
        tried(Effect::PowerOn, 3, 4, Outcome::Succeeded),
        tried(Effect::ReadDrives, 5, 5, Outcome::Succeeded),
        tried(Effect::PowerOff, 5, 6, Outcome::Succeeded),
    ];
    assert_eq!(decide_at(&node, &facts, 7), Decision::Act(Effect::ReadBmcState));
    facts
        .attempts
        .push(tried(Effect::ReadBmcState, 7, 8, Outcome::Interrupted));
    assert_eq!(decide_at(&node, &facts, 9), Decision::Act(Effect::ReadBmcState));
    facts
        .attempts
        .push(tried(Effect::ReadBmcState, 9, 10, failed("500", true)));
    assert_eq!(edge_of(&decide_at(&node, &facts, 11)), Some(Edge::Inspected));
}
