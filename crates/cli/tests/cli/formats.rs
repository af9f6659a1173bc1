//! The formats of lists: the order of rows, wide tables, parts of the JSON.

use rackwright_api::v1::NodeState;

use crate::fake::Fake;
use crate::fixtures;
use crate::golden::Script;
use crate::program::Program;

#[test]
fn lists_are_sorted_by_a_column() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let ids = |by: &[&str]| {
        let list = program.run(&[&["node", "list", "-o", "name"][..], by].concat());
        assert_eq!(list.code, 0, "{list:?}");
        let ids: Vec<_> = list
            .stdout
            .lines()
            .map(|name| name.trim_start_matches("nodes/gpu-00"))
            .collect();
        ids.join(" ")
    };
    assert_eq!(ids(&["--sort-by", "since"]), "3 1 2", "the oldest first");
    assert_eq!(ids(&["--sort-by", "-since"]), "2 1 3");
    assert_eq!(ids(&["--sort-by", "since", "--reverse"]), "2 1 3");
    assert_eq!(ids(&["--sort-by", "state"]), "1 3 2");
    assert_eq!(ids(&["--sort-by=customer"]), "1 2 3", "those without a customer last");
    assert_eq!(ids(&["--sort-by", "-waits-for"]), "2 3 1");
    let mut script = Script::default();
    script.run(&program, &["node", "list", "--sort-by", "colour"]);
    script.run(&program, &["cluster", "list", "--sort-by", "colour"]);
    script.check("sort_by", &program);
    for wrong in [&["--reverse"][..], &["--watch", "--sort-by", "since"]] {
        let refused = program.run(&[&["node", "list"][..], wrong].concat());
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains("--sort-by"), "{refused:?}");
    }
}

#[test]
fn all_pages_are_sorted_together() {
    let fake = Fake::start();
    for index in 0..7 {
        let node = fixtures::node(&format!("n{index}"), NodeState::Available, 60 * (index + 1));
        fake.state().nodes.insert(node.name.clone(), node);
    }
    fake.state().page_size = 3;
    let program = Program::logged_in(&fake);
    let list = program.run(&["node", "list", "-o", "name", "--sort-by", "since"]);
    let first = list.stdout.lines().next();
    assert_eq!(first, Some("nodes/n6"), "{list:?}");
}

#[test]
fn wide_tables_have_all_columns_and_whole_lines() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["node", "list", "-o", "wide"]);
    script.check("wide", &program);
    let cut = program.run_on_terminal(&["node", "list"], "");
    assert!(cut.stdout.contains('\u{2026}'), "{cut:?}");
    let whole = program.run_on_terminal(&["node", "list", "-o", "wide"], "");
    assert!(!whole.stdout.contains('\u{2026}'), "{whole:?}");
    assert!(whole.stdout.contains("the agent to write the image"), "{whole:?}");
}

#[test]
fn a_path_shows_parts_of_the_json() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["node", "list", "-o", "jsonpath=$[*].name"]);
    script.run(&program, &["node", "get", "gpu-001", "-o", "jsonpath=$.status.macs"]);
    let failed = "jsonpath=$[?@.status.state == 'NODE_STATE_FAILED'].spec.sku";
    script.run(&program, &["node", "list", "-o", failed]);
    script.run(&program, &["node", "list", "-o", "jsonpath=$.nothing"]);
    script.check("jsonpath", &program);
    let wrong = program.run(&["node", "list", "-o", "jsonpath=name"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.stderr.contains("has a fault at character 1: "), "{wrong:?}");
    let unknown = program.run(&["node", "list", "-o", "xml"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.stderr.contains("jsonpath="), "{unknown:?}");
}
