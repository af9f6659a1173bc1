use super::tests::{at, claimed, decide_at, failed, known, node, tried};
use super::*;
use crate::effect::{BootTarget, Network};

fn facts(power: Power, network: Reading<Network>) -> Facts {
    Facts {
        power: known(power, 1),
        manages_ports: true,
        network,
        ..Facts::default()
    }
}

const fn moves(network: Network) -> Decision {
    Decision::Act(Effect::SetNetwork(network))
}

fn handed_over(state: State) -> Node {
    let mut node = claimed(state);
    let claim = node.claim.as_mut().unwrap();
    claim.handed_over = Some(claim.deployment);
    node.evidence.deployment = Some(claim.deployment);
    node
}

fn edge_of(decision: &Decision) -> Option<Edge> {
    match decision {
        Decision::Move { edge, .. } => Some(*edge),
        _ => None,
    }
}

#[test]
fn no_machine_boots_into_the_agent_before_its_ports_were_read_in_provisioning() {
    for state in [State::Imaging, State::Reclaiming] {
        let node = claimed(state);
        // A reading from before the state began does not count.
        for network in [
            Reading::Never,
            Reading::Unknown { since: Timestamp(1) },
            Reading::Known {
                value: Network::Provisioning,
                at: node.since.plus(-1),
            },
            known(Network::Customer, 1),
        ] {
            let decision = decide_at(&node, &facts(Power::Off, network.clone()), 2);
            assert_eq!(decision, moves(Network::Provisioning), "{state} {network:?}");
        }
        let proven = facts(Power::Off, known(Network::Provisioning, 1));
        let boots = Decision::Act(Effect::SetBoot(BootTarget::Network));
        assert_eq!(decide_at(&node, &proven, 2), boots);
        // A site without managed ports has no port steps.
        let mut unmanaged = facts(Power::Off, Reading::Never);
        unmanaged.manages_ports = false;
        assert_eq!(decide_at(&node, &unmanaged, 2), boots);
    }
}

#[test]
fn no_image_is_written_after_a_port_was_read_elsewhere() {
    let node = claimed(State::Imaging);
    let mut facts = facts(Power::On, known(Network::Provisioning, 1));
    facts.agent = known(
        Agent::Present {
            boot_id: "b".into(),
            booted_at: at(5),
        },
        5,
    );
    facts.attempts.push(tried(Effect::PowerOn, 2, 3, Outcome::Succeeded));
    assert_eq!(decide_at(&node, &facts, 6), Decision::Act(Effect::WriteImage));
    facts.network = Reading::Unknown { since: Timestamp(6) };
    assert_eq!(decide_at(&node, &facts, 7), moves(Network::Provisioning));
}

#[test]
fn a_machine_with_a_misplaced_cable_is_neither_written_nor_booted_from_disk() {
    let node = claimed(State::Imaging);
    let mut facts = facts(Power::On, known(Network::Provisioning, 1));
    facts.agent = known(
        Agent::Present {
            boot_id: "b".into(),
            booted_at: at(5),
        },
        5,
    );
    facts.attempts.push(tried(Effect::PowerOn, 2, 3, Outcome::Succeeded));
    let right = facts.clone();
    let why = "eth0 is on leaf-1/swp2".to_owned();
    facts.miscabled = Some(why.clone());
    let waits = |decision: &Decision| match decision {
        Decision::Wait {
            why: Wait::Cable { why },
            ..
        } => why.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(waits(&decide_at(&node, &facts, 6)), why);
    assert_eq!(decide_at(&node, &right, 6), Decision::Act(Effect::WriteImage));
    // The card was heard only after the write began.
    let written = tried(Effect::WriteImage, 6, 7, Outcome::Succeeded);
    facts.attempts.push(written.clone());
    assert_eq!(waits(&decide_at(&node, &facts, 8)), why);
    match decide_at(&node, &facts, 10_000_000) {
        Decision::Move { reason, .. } => assert!(reason.ends_with(&why), "{reason}"),
        other => panic!("{other:?}"),
    }
    facts.miscabled = None;
    assert_eq!(edge_of(&decide_at(&node, &facts, 9)), Some(Edge::Written));
}

#[test]
fn a_port_that_is_not_moved_holds_the_node_with_the_failures_message() {
    let node = claimed(State::Imaging);
    let mut facts = facts(Power::Off, known(Network::Customer, 1));
    for s in 0..20 {
        let kept = failed("switch leaf-1, port p3: it is kept", true);
        let move_to = Effect::SetNetwork(Network::Provisioning);
        facts.attempts.push(tried(move_to, 2 + s, 2 + s, kept));
    }
    // The move is tried again as long as the state lasts, however often it fails.
    let decision = decide_at(&node, &facts, 23);
    let Decision::Wait { why, .. } = decision else {
        panic!("{decision:?}")
    };
    assert!(why.to_string().contains("switch leaf-1, port p3"), "{why}");
    let late = decide_at(&node, &facts, 10_000_000);
    assert_eq!(edge_of(&late), Some(Edge::Failed));
}

#[test]
fn a_node_is_handed_over_only_with_its_ports_in_the_customers_network() {
    let node = claimed(State::Validating);
    let mut facts = facts(Power::On, known(Network::Provisioning, 1));
    facts.attempts.push(tried(Effect::Validate, 2, 3, Outcome::Succeeded));
    assert_eq!(decide_at(&node, &facts, 4), Decision::Act(Effect::HandOver));
    facts.network = known(Network::Customer, 1);
    assert_eq!(decide_at(&node, &facts, 4), moves(Network::Provisioning));
    facts.network = known(Network::Provisioning, 1);
    facts.attempts.push(tried(Effect::HandOver, 4, 5, Outcome::Succeeded));
    assert_eq!(decide_at(&node, &facts, 6), moves(Network::Customer));
    let refused = failed("switch leaf-1 did not answer", true);
    facts
        .attempts
        .push(tried(Effect::SetNetwork(Network::Customer), 6, 7, refused));
    assert!(matches!(
        decide_at(&node, &facts, 7),
        Decision::Wait {
            why: Wait::Retry { .. },
            ..
        }
    ));
    facts.network = known(Network::Customer, 8);
    assert_eq!(edge_of(&decide_at(&node, &facts, 9)), Some(Edge::Validated));
}

#[test]
fn a_released_machine_leaves_its_customer_before_it_is_switched_off() {
    let node = claimed(State::Reclaiming);
    let mut facts = facts(Power::On, known(Network::Customer, 0));
    assert_eq!(decide_at(&node, &facts, 2), moves(Network::Quarantine));
    let away = Effect::SetNetwork(Network::Quarantine);
    facts.attempts.push(tried(away, 2, 3, Outcome::Interrupted));
    assert_eq!(decide_at(&node, &facts, 4), moves(Network::Quarantine));
    // The machine is switched off, whether the switch refuses or obeys.
    for outcome in [failed("no answer", true), Outcome::Succeeded] {
        let mut facts = facts.clone();
        facts.attempts.push(tried(away, 4, 5, outcome));
        assert_eq!(decide_at(&node, &facts, 6), Decision::Act(Effect::PowerOff));
        facts.power = known(Power::Off, 7);
        assert_eq!(decide_at(&node, &facts, 8), moves(Network::Provisioning));
    }
}

#[test]
fn a_port_of_a_node_at_rest_that_was_read_elsewhere_is_moved_back() {
    let lost = Reading::Unknown { since: Timestamp(1) };
    for (node, network) in [
        (handed_over(State::Active), Network::Customer),
        (handed_over(State::Failed), Network::Customer),
        (handed_over(State::Maintenance), Network::Customer),
        (claimed(State::Failed), Network::Provisioning),
        (node(State::Available), Network::Provisioning),
        (claimed(State::Quarantined), Network::Quarantine),
    ] {
        assert_eq!(
            decide_at(&node, &facts(Power::On, lost.clone()), 2),
            moves(network),
            "{}",
            node.state
        );
        let proven = facts(Power::On, known(network, 0));
        assert!(matches!(decide_at(&node, &proven, 2), Decision::Wait { .. }));
    }
    // The hand-over was before the control plane set ports: the node keeps its network.
    let former = decide_at(&handed_over(State::Active), &facts(Power::On, Reading::Never), 2);
    assert!(matches!(former, Decision::Wait { why: Wait::Rest, .. }), "{former:?}");
}
