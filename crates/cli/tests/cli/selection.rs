//! Commands for selected nodes: `--filter`, `--state` and `--label` in place of IDs.

use crate::fake::Fake;
use crate::golden::Script;
use crate::program::Program;

#[test]
fn verbs_take_a_selection_in_place_of_ids() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["node", "hold", "--state", "failed", "--reason", "fan 3"]);
    script.run(&program, &["node", "release", "-l", "rack=r1"]);
    assert!(fake.keys("HoldNode").is_empty() && fake.keys("ReleaseNode").is_empty());
    script.run(&program, &["node", "release", "-l", "rack=r1", "--yes"]);
    script.run(&program, &["node", "power", "--state", "failed", "on", "--yes", "-q"]);
    script.run(&program, &["node", "power", "gpu-001", "gpu-002", "on"]);
    script.run(
        &program,
        &["node", "label", "--state", "failed", "row=4", "--yes", "-q"],
    );
    script.run(
        &program,
        &["node", "label", "gpu-001", "nodes/gpu-002", "row=4", "rack-"],
    );
    script.run(&program, &["node", "retry", "--filter", "sku = b200"]);
    script.run(&program, &["node", "retry"]);
    script.run(&program, &["node", "retry", "gpu-003", "--state", "failed"]);
    script.run(&program, &["node", "retry", "--filter", ""]);
    script.run(&program, &["node", "retry", "-l", "rack"]);
    let versioned = ["node", "retry", "-l", "row=4", "--yes", "--resource-version", "7"];
    script.run(&program, &versioned);
    script.check("selection", &program);
    assert!(fake.keys("RetryNode").is_empty());
    let row = |id: &str| {
        fake.state().nodes[id]
            .metadata
            .clone()
            .unwrap()
            .labels
            .get("row")
            .cloned()
    };
    assert_eq!(row("nodes/gpu-003").as_deref(), Some("4"));
}

#[test]
fn all_options_of_a_selection_must_match_and_its_keys_have_the_names_of_the_nodes() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let words = ["node", "retry", "--yes", "--idempotency-key", "mine"];
    let none = program.run(&[&words[..], &["-l", "rack=r1", "-l", "rack=r2"]].concat());
    assert_eq!(none.code, 3, "{none:?}");
    let both = ["--state", "failed", "-l", "rack=r1", "--filter", "sku = h100"];
    let one = program.run(&[&words[..], &both].concat());
    assert_eq!(one.code, 0, "{one:?}");
    assert_eq!(fake.keys("RetryNode"), ["mine.gpu-003"]);
}

#[test]
fn a_selection_asks_once_on_a_terminal() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let hold = ["node", "hold", "--state", "failed", "--reason", "fan"];
    let refused = program.run_on_terminal(&hold, "no\n");
    let question = "To hold: 1 node (gpu-003). Type yes to continue: ";
    assert!(refused.stdout.contains(question), "{refused:?}");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(fake.keys("HoldNode").is_empty());
    let agreed = program.run_on_terminal(&["node", "release", "-l", "rack=r1"], "yes\n");
    assert_eq!(agreed.code, 0, "{agreed:?}");
    assert_eq!(agreed.stdout.matches("Type yes").count(), 1, "{agreed:?}");
    assert!(
        agreed.stdout.contains("by customer: 1 acme, 2 without a customer"),
        "{agreed:?}"
    );
    assert_eq!(fake.keys("ReleaseNode").len(), 3);
}

#[test]
fn an_ac_cycle_of_several_nodes_reports_every_refusal() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    // The fake has no BMCs.
    let cycle = program.run(&["node", "power", "gpu-001", "gpu-002", "ac-cycle", "--wait"]);
    assert_eq!(cycle.code, 1, "{cycle:?}");
    for id in ["gpu-001", "gpu-002"] {
        assert!(cycle.stderr.contains(&format!("cannot AC cycle {id}")), "{cycle:?}");
    }
}
