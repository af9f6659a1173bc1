//! Differences on a terminal: questions, live lines, colours.

use rackwright_api::v1::{Node, NodeState, WatchNodesResponse};

use crate::fake::Fake;
use crate::fixtures;
use crate::program::Program;

#[test]
fn destructive_commands_ask_on_a_terminal() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let refused = program.run_on_terminal(&["node", "release", "gpu-001", "gpu-002"], "no\n");
    assert!(
        refused
            .stdout
            .contains("Release gpu-001, gpu-002: all data on the drives is lost."),
        "{refused:?}"
    );
    assert!(refused.stdout.contains("nothing was done"), "{refused:?}");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(fake.keys("ReleaseNode").is_empty());
    let agreed = program.run_on_terminal(&["node", "release", "gpu-001"], "yes\n");
    assert_eq!(agreed.code, 0, "{agreed:?}");
    assert_eq!(fake.keys("ReleaseNode").len(), 1);

    // On hold, and its claim has ended meanwhile: the end of the hold erases it.
    let mut held = fake.state().nodes["nodes/gpu-002"].clone();
    let status = held.status.get_or_insert_default();
    status.set_state(NodeState::Maintenance);
    status.claim.get_or_insert_default().release_requested = true;
    fake.state().nodes.insert(held.name.clone(), held);
    let refused = program.run_on_terminal(&["node", "resume", "gpu-002"], "no\n");
    let question = "The claim ended during the hold. Resume gpu-002: all data on the drives is lost.";
    assert!(refused.stdout.contains(question), "{refused:?}");
    assert!(refused.stdout.contains("nothing was done"), "{refused:?}");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(fake.keys("ResumeNode").is_empty());
    let agreed = program.run_on_terminal(&["node", "resume", "gpu-002"], "yes\n");
    assert_eq!(agreed.code, 0, "{agreed:?}");
    assert_eq!(fake.keys("ResumeNode").len(), 1);
}

#[test]
fn acts_on_nodes_in_use_ask_on_a_terminal() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let refused = program.run_on_terminal(&["node", "power", "gpu-001", "off"], "no\n");
    let question = "To switch off: 1 node in use (gpu-001 of acme). Running work is interrupted.";
    assert!(refused.stdout.contains(question), "{refused:?}");
    assert!(fake.keys("SetNodePower").is_empty());
    let agreed = program.run_on_terminal(&["node", "quarantine", "gpu-001", "--reason", "odd"], "yes\n");
    assert_eq!(agreed.code, 0, "{agreed:?}");
    assert!(
        agreed
            .stdout
            .contains("only an erase (`node readmit`) brings them back."),
        "{agreed:?}"
    );
    let replaced = ["cluster", "replace", "beta", "gpu-002", "--reason", "memory"];
    let refused = program.run_on_terminal(&replaced, "no\n");
    let question = "Replacing gpu-002 of cluster beta destroys all data on the drives of gpu-002.";
    assert!(refused.stdout.contains(question), "{refused:?}");
    assert!(fake.keys("ReplaceClusterNode").is_empty());
}

#[test]
fn waiting_draws_a_bar_and_ends_with_a_line() {
    let fake = Fake::with_nodes();
    fake.state().scripts.push_back(fixtures::stepwise());
    let program = Program::logged_in(&fake);
    let deploy = program.run_on_terminal(&["node", "deploy", "gpu-001", "--image", "debian", "--wait"], "");
    assert_eq!(deploy.code, 0, "{deploy:?}");
    let bar =
        "gpu-001 deploy  [#########-----------]  45%  writing the image, 2.0 GB of 4.0 GB, 500.0 MB/s, 4.0 s left";
    // The line is cut to the terminal's width.
    assert!(deploy.stdout.contains(&bar[..95]), "{deploy:?}");
    assert!(deploy.stdout.contains("\x1b[1A"), "lines are drawn over: {deploy:?}");
    assert!(
        deploy.stdout.trim_end().ends_with("gpu-001 deploy done in 1m 23s"),
        "{deploy:?}"
    );
}

#[test]
fn watching_draws_nodes_and_history() {
    let fake = Fake::start();
    let node = |state: NodeState, since: i64| {
        let mut node: Node = fixtures::node("gpu-001", state, 0);
        node.status.as_mut().unwrap().state_since = Some(fixtures::fixed(since));
        node
    };
    fake.state()
        .nodes
        .insert("nodes/gpu-001".into(), node(NodeState::Validating, 0));
    let active = WatchNodesResponse {
        node: Some(node(NodeState::Active, 5)),
        ..WatchNodesResponse::default()
    };
    fake.state().watches.push_back(vec![active]);
    let program = Program::logged_in(&fake);
    let watch = program.run_on_terminal(&["node", "watch", "gpu-001", "--until", "active"], "");
    assert_eq!(watch.code, 0, "{watch:?}");
    assert!(
        watch.stdout.contains("\x1b[2mNODE\x1b[0m     \x1b[2mSTATE\x1b[0m"),
        "{watch:?}"
    );
    assert!(watch.stdout.contains("\x1b[32mactive\x1b[0m"), "{watch:?}");
    assert!(watch.stdout.contains("validating -> active after 5.0 s"), "{watch:?}");
}
