//! `rackwright node watch`.

use rackwright_api::v1::{Node, NodeState, WatchNodesResponse};

use crate::fake::Fake;
use crate::fixtures;
use crate::golden::Script;
use crate::program::Program;

fn node(id: &str, state: NodeState, since: i64, reason: &str) -> Node {
    let mut node = fixtures::node(id, state, 0);
    let status = node.status.as_mut().unwrap();
    status.state_since = Some(fixtures::fixed(since));
    status.reason = reason.to_owned();
    node
}

fn message(node: Node) -> WatchNodesResponse {
    WatchNodesResponse {
        node: Some(node),
        ..WatchNodesResponse::default()
    }
}

#[test]
fn phases_are_written_one_a_line_until_the_wanted_state() {
    let fake = Fake::start();
    let first = node("gpu-001", NodeState::Allocated, 0, "");
    fake.state().nodes.insert(first.name.clone(), first);
    // The first stream breaks; the second begins with the complete state, which must not be shown twice.
    fake.state().watches.extend([
        vec![message(node("gpu-001", NodeState::Rebooting, 40, ""))],
        vec![
            message(node("gpu-001", NodeState::Validating, 61, "")),
            message(node("gpu-001", NodeState::Active, 65, "")),
        ],
    ]);
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    let watch = script.run(
        &program,
        &["node", "watch", "gpu-001", "--until", "active", "--timeout", "20s"],
    );
    assert_eq!(watch.code, 0, "{watch:?}");
    script.run(
        &program,
        &["node", "watch", "gpu-009", "--until", "active", "--timeout", "20s"],
    );
    script.run(
        &program,
        &["node", "watch", "gpu-001", "--until", "available", "--timeout", "1s"],
    );
    let failed = node("gpu-001", NodeState::Failed, 70, "digest-mismatch: chunk 7");
    fake.state().nodes.insert(failed.name.clone(), failed);
    script.run(&program, &["node", "watch", "--until", "active", "--timeout", "20s"]);
    script.check("watch", &program);
}

#[test]
fn progress_of_an_imaging_node_is_shown() {
    let fake = Fake::start();
    let imaging = node("gpu-001", NodeState::Imaging, 0, "");
    fake.state().nodes.insert(imaging.name.clone(), imaging);
    fake.state().scripts.push_back(fixtures::stepwise()[3..4].to_vec());
    let program = Program::logged_in(&fake);
    assert_eq!(program.run(&["node", "deploy", "gpu-001", "--image", "debian"]).code, 0);
    let mut watch = program.follow(&["node", "watch", "gpu-001"]);
    assert!(watch.line().ends_with("gpu-001  is imaging"));
    let line = watch.line();
    assert!(
        line.contains("[#########-----------]  45%  writing the image, 2.0 GB of 4.0 GB, 500.0 MB/s"),
        "{line}"
    );
}

#[test]
fn changes_are_objects_for_programs() {
    let fake = Fake::start();
    let first = node("gpu-001", NodeState::Active, 0, "");
    fake.state().nodes.insert(first.name.clone(), first);
    fake.state()
        .watches
        .push_back(vec![message(node("gpu-001", NodeState::Imaging, 9, ""))]);
    let program = Program::logged_in(&fake);
    let mut watch = program.follow(&["node", "list", "--watch", "-o", "json"]);
    for state in ["NODE_STATE_ACTIVE", "NODE_STATE_IMAGING"] {
        let line: serde_json::Value = serde_json::from_str(&watch.line()).unwrap();
        assert_eq!(line["node"]["status"]["state"], state);
        assert_eq!(line["deleted"], false);
    }
}
