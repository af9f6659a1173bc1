//! `rackwright node ...` and `rackwright operation ...`.

use rackwright_api::v1::{Alarm, EraseCertificate, NodeHealth, NodeState, Operation};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::fake::Fake;
use crate::fixtures;
use crate::golden::Script;
use crate::program::Program;

#[test]
fn the_hall_in_one_screen() {
    let fake = Fake::with_nodes();
    fake.state().power.alarms = vec![Alarm {
        name: "alarms/leak cdu/cdu-1".into(),
        subject: "cdu/cdu-1".into(),
        severity: "critical".into(),
        message: "a leak at cdu/cdu-1: tray 2".into(),
        node_count: 4,
        ..Alarm::default()
    }];
    let mut failed = fixtures::failing().remove(1);
    failed.kind = "deploy".into();
    failed.target = "nodes/gpu-001".into();
    failed.end_time = Some(fixtures::ago(3 * 86400));
    let name = "operations/1".to_owned();
    fake.state().operations.insert(name, [failed].into());
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["status"]);
    script.run(&program, &["status", "-o", "name"]);
    // A member of a customer sees neither the control plane nor power nor the fabric.
    fake.refuse("GetControl", Status::permission_denied("only members of the site"));
    script.run(&program, &["status"]);
    fake.refuse("SummarizeFleet", Status::permission_denied("auditors do not see nodes"));
    script.run(&program, &["status"]);
    script.check("status", &program);
    let text = program.run(&["status", "-o", "json"]).stdout;
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["fleet"]["nodes"], 3);
    assert_eq!(value["nodes_to_look_at"][0]["name"], "nodes/gpu-003");
    assert_eq!(value["alarms"][0]["subject"], "cdu/cdu-1");
    assert_eq!(value["failed_operations"].as_array().unwrap().len(), 1);
}

#[test]
fn nodes_as_tables() {
    let fake = Fake::with_nodes();
    fake.state()
        .explanations
        .insert("nodes/gpu-002".into(), fixtures::explanation());
    let mut silent = fixtures::node("gpu-004", NodeState::Available, 7200 + 1800);
    let status = silent.status.as_mut().unwrap();
    status.power = "unknown".into();
    status.set_health(NodeHealth::Unreachable);
    status.health_reason = "no answer in 10 s".into();
    fake.state().nodes.insert(silent.name.clone(), silent);
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["node", "list"]);
    script.run(&program, &["node", "list", "--state", "failed", "-o", "name"]);
    script.run(&program, &["node", "list", "--state", "asleep"]);
    script.run(&program, &["node", "get", "gpu-001"]);
    script.run(&program, &["node", "get", "nodes/gpu-009"]);
    script.run(&program, &["node", "explain", "gpu-002"]);
    script.run(&program, &["node", "describe", "gpu-002"]);
    // Customers get no explanations.
    let refusal = Status::permission_denied("needs a member of the site");
    fake.refuse("ExplainNode", refusal);
    script.run(&program, &["node", "describe", "gpu-001"]);
    script.run(&program, &["node", "inventory", "gpu-001"]);
    script.run(&program, &["node", "inventory", "gpu-003"]);
    script.check("nodes", &program);
}

#[test]
fn nodes_for_programs() {
    let fake = Fake::start();
    let mut node = fixtures::nodes().remove(1);
    node.status.as_mut().unwrap().state_since = Some(fixtures::FIXED);
    fake.state().nodes.insert(node.name.clone(), node);
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["node", "get", "gpu-002", "-o", "json"]);
    script.run(&program, &["node", "list", "-o", "yaml"]);
    script.check("nodes_json", &program);
    let json: serde_json::Value = serde_json::from_str(&program.run(&["node", "list", "-o", "json"]).stdout).unwrap();
    assert_eq!(json[0]["status"]["state"], "NODE_STATE_IMAGING");
}

#[test]
fn lists_are_read_page_by_page() {
    let fake = Fake::start();
    for index in 0..7 {
        let node = fixtures::node(&format!("n{index}"), NodeState::Available, 60);
        fake.state().nodes.insert(node.name.clone(), node);
    }
    fake.state().page_size = 3;
    let program = Program::logged_in(&fake);
    let list = program.run(&["node", "list", "-o", "name"]);
    assert_eq!(list.stdout.lines().count(), 7, "{list:?}");
    assert_eq!(fake.keys("ListNodes").len(), 3);
}

#[test]
fn deploy_and_wait() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let key = program.file("id.pub", "ssh-ed25519 AAAAC3 ann@example\n");
    let data = program.file("user-data", "#cloud-config\n");
    fake.state().scripts.extend([
        fixtures::stepwise(),
        fixtures::quick(),
        fixtures::failing(),
        fixtures::quick(),
    ]);
    let mut script = Script::default();
    script.run(
        &program,
        &[
            "node",
            "deploy",
            "gpu-001",
            "--image",
            "debian",
            "--ssh-key",
            &key,
            "--user-data",
            &data,
            "--verify-disk",
            "--wait",
        ],
    );
    script.run(&program, &["node", "deploy", "gpu-002", "--image", "debian@b3-00"]);
    script.run(&program, &["node", "deploy", "gpu-003", "--image", "debian", "--wait"]);
    script.run(
        &program,
        &[
            "node", "deploy", "gpu-001", "gpu-009", "--image", "debian", "--wait", "--quiet",
        ],
    );
    script.run(
        &program,
        &[
            "node",
            "deploy",
            "gpu-001",
            "gpu-002",
            "--image",
            "debian",
            "--hostname",
            "h",
        ],
    );
    script.run(
        &program,
        &[
            "node",
            "deploy",
            "gpu-001",
            "--image",
            "debian",
            "--ssh-key",
            "no-such-file",
        ],
    );
    script.check("deploy", &program);
    let state = fake.state();
    let (name, deployment) = &state.deployments[0];
    assert_eq!(name, "nodes/gpu-001");
    assert_eq!(deployment.image, "images/debian");
    assert_eq!(deployment.ssh_authorized_keys, ["ssh-ed25519 AAAAC3 ann@example"]);
    assert_eq!(deployment.user_data, "#cloud-config\n");
    assert!(deployment.verify_whole_disk);
    assert_eq!(state.deployments[1].1.image, "images/debian/versions/b3-00");
}

#[test]
fn destructive_commands_need_consent() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["node", "release", "gpu-001", "gpu-002"]);
    script.run(&program, &["node", "reimage", "gpu-001", "--image", "debian"]);
    script.run(&program, &["node", "readmit", "gpu-003"]);
    assert!(fake.keys("ReleaseNode").is_empty() && fake.keys("ReimageNode").is_empty());
    script.run(&program, &["node", "release", "gpu-001", "gpu-002", "--yes", "--wait"]);
    script.run(&program, &["node", "reimage", "gpu-001", "--image", "debian", "--yes"]);
    script.run(&program, &["node", "readmit", "gpu-003", "--yes"]);
    // On hold, and its claim has ended meanwhile: the end of the hold erases it.
    let mut held = fake.state().nodes["nodes/gpu-002"].clone();
    let status = held.status.get_or_insert_default();
    status.set_state(NodeState::Maintenance);
    status.claim.get_or_insert_default().release_requested = true;
    fake.state().nodes.insert(held.name.clone(), held);
    script.run(&program, &["node", "resume", "gpu-002"]);
    assert!(fake.keys("ResumeNode").is_empty());
    script.run(&program, &["node", "resume", "gpu-002", "--yes"]);
    script.check("consent", &program);
}

#[test]
fn acts_on_nodes_in_use_need_consent() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["node", "power", "gpu-001", "off"]);
    script.run(&program, &["node", "power", "gpu-002", "gpu-003", "cycle"]);
    script.run(&program, &["node", "quarantine", "gpu-001", "--reason", "odd"]);
    script.run(&program, &["node", "delete", "gpu-003"]);
    script.run(&program, &["node", "bmc-log", "clear", "gpu-001"]);
    script.run(&program, &["node", "bmc-log", "clear", "gpu-001", "--log", "SEL"]);
    assert!(fake.keys("SetNodePower").is_empty() && fake.keys("QuarantineNode").is_empty());
    assert!(fake.keys("DeleteNode").is_empty());
    // A node without a claim, and a start.
    script.run(&program, &["node", "power", "gpu-003", "off"]);
    script.run(&program, &["node", "power", "gpu-001", "on"]);
    script.run(&program, &["node", "quarantine", "gpu-001", "--reason", "odd", "--yes"]);
    script.check("consent_in_use", &program);
}

#[test]
fn a_doubt_is_shown_and_settled_one_by_one_or_for_all() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    for name in ["nodes/gpu-001", "nodes/gpu-003"] {
        let mut state = fake.state();
        let node = state.nodes.get_mut(name).unwrap();
        node.status.get_or_insert_default().doubt = "the database is older than its machines".into();
    }
    let mut script = Script::default();
    script.run(&program, &["node", "list"]);
    script.run(&program, &["node", "believe", "gpu-001"]);
    script.run(
        &program,
        &["node", "believe", "gpu-001", "--reason", "it was looked at"],
    );
    script.run(&program, &["node", "believe", "--all", "--reason", "nothing happened"]);
    assert_eq!(fake.keys("BelieveNode").len(), 1);
    script.run(
        &program,
        &["node", "believe", "--all", "--reason", "nothing happened", "--yes"],
    );
    script.run(&program, &["node", "believe", "--all", "--reason", "nothing happened"]);
    script.check("believe", &program);
}

#[test]
fn the_other_verbs() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["node", "power", "gpu-001", "cycle", "--wait", "--yes"]);
    // The state changes a moment after the answer.
    script.run(&program, &["node", "hold", "gpu-001", "--reason", "fan 3 is loud"]);
    script.run(&program, &["node", "hold", "gpu-001", "--reason", "fan 3 is loud"]);
    script.run(&program, &["node", "resume", "gpu-001"]);
    script.run(&program, &["node", "quarantine", "gpu-003", "--reason", "drive lies"]);
    script.run(&program, &["node", "retry", "gpu-003"]);
    script.run(&program, &["node", "label", "gpu-001", "row=4", "rack-"]);
    script.run(&program, &["node", "label", "gpu-001", "nonsense"]);
    script.run(
        &program,
        &["node", "update", "gpu-001", "--sku", "b200", "--user", "root"],
    );
    script.run(&program, &["node", "update", "gpu-001"]);
    script.run(&program, &["node", "delete", "gpu-003", "--yes"]);
    script.run(&program, &["node", "delete", "gpu-003", "--yes"]);
    script.check("verbs", &program);
    let state = fake.state();
    let paths: Vec<_> = state
        .updates
        .iter()
        .flat_map(|u| u.update_mask.clone().unwrap().paths)
        .collect();
    assert_eq!(paths, ["metadata.labels", "spec.bmc.username", "spec.sku"]);
}

#[test]
fn enrolment_keeps_the_password_to_itself() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let arguments = [
        "node",
        "enroll",
        "gpu-010",
        "--bmc",
        "https://10.0.0.10",
        "--user",
        "admin",
        "--password-stdin",
        "--label",
        "rack=r9",
        "--sku",
        "h100",
        "--wait",
    ];
    let enrolled = program.run_with_input(&arguments, "hunter2\n");
    assert_eq!(enrolled.code, 0, "{enrolled:?}");
    assert!(!format!("{enrolled:?}").contains("hunter2"));
    let request = fake.state().enrolled[0].clone();
    let spec = request.spec.unwrap();
    assert_eq!(spec.bmc.unwrap().password, "hunter2");
    assert_eq!((spec.sku.as_str(), request.labels["rack"].as_str()), ("h100", "r9"));
    let none = program.run(&[
        "node",
        "enroll",
        "gpu-011",
        "--bmc",
        "https://10.0.0.11",
        "--user",
        "admin",
    ]);
    assert_eq!(none.code, 2, "{none:?}");
}

#[test]
fn a_call_with_a_lost_answer_is_repeated_with_the_same_key() {
    let fake = Fake::with_nodes();
    fake.state().lost_answers.insert("DeployNode", 2);
    let program = Program::logged_in(&fake);
    let deploy = program.run(&["node", "deploy", "gpu-001", "--image", "debian", "--wait"]);
    assert_eq!(deploy.code, 0, "{deploy:?}");
    let keys = fake.keys("DeployNode");
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert_eq!(keys[0], keys[1]);
    assert_eq!(fake.state().operations.len(), 1, "one deployment, not two");
    let again = program.run(&["node", "deploy", "gpu-001", "--image", "debian"]);
    assert_eq!(again.code, 0);
    assert_ne!(fake.keys("DeployNode")[2], keys[0], "another command has another key");
}

#[test]
fn the_key_can_be_given() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    let deploy = program.run(&[
        "node",
        "deploy",
        "gpu-001",
        "--image",
        "debian",
        "--idempotency-key",
        "mine",
    ]);
    assert_eq!(deploy.code, 0, "{deploy:?}");
    assert_eq!(fake.keys("DeployNode"), ["mine"]);
    let release = program.run(&[
        "node",
        "release",
        "gpu-001",
        "gpu-002",
        "--yes",
        "--idempotency-key",
        "mine",
    ]);
    assert_eq!(release.code, 0, "{release:?}");
    assert_eq!(fake.keys("ReleaseNode"), ["mine.gpu-001", "mine.gpu-002"]);
    let long = "x".repeat(65);
    assert_eq!(
        program
            .run(&["node", "retry", "gpu-003", "--idempotency-key", &long])
            .code,
        2
    );
}

#[test]
fn a_server_that_stays_unreachable_is_given_up() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    for _ in 0..20 {
        fake.refuse("GetNode", Status::unavailable("the database is being moved"));
    }
    let get = program.run(&["node", "get", "gpu-001"]);
    assert_eq!(get.code, 6, "{get:?}");
    assert!(get.stderr.contains("the database is being moved"), "{get:?}");
    let tries = fake.keys("GetNode").len();
    assert!((2..=10).contains(&tries), "bounded: {tries}");
}

#[test]
fn labels_are_changed_again_after_a_concurrent_change() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    fake.refuse("UpdateNode", Status::aborted("changed meanwhile"));
    let label = program.run(&["node", "label", "gpu-001", "row=4"]);
    assert_eq!(label.code, 0, "{label:?}");
    let keys = fake.keys("UpdateNode");
    assert_eq!(keys.len(), 2);
    assert_ne!(keys[0], keys[1], "another request has another key");
    fake.refuse("UpdateNode", Status::aborted("changed meanwhile"));
    let label = program.run(&["node", "label", "gpu-001", "row=5", "--resource-version", "7"]);
    assert_eq!(label.code, 4, "{label:?}");
}

#[test]
fn a_restarted_server_does_not_end_a_wait() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    fake.state().scripts.push_back(fixtures::stepwise());
    for _ in 0..3 {
        fake.refuse("WaitOperation", Status::unavailable("restarting"));
    }
    let deploy = program.run(&["node", "deploy", "gpu-001", "--image", "debian", "--wait"]);
    assert_eq!(deploy.code, 0, "{deploy:?}");
}

#[test]
fn waiting_ends_when_its_time_has_passed() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    fake.state().scripts.push_back(fixtures::endless());
    let mut script = Script::default();
    script.run(
        &program,
        &[
            "node",
            "deploy",
            "gpu-001",
            "--image",
            "debian",
            "--wait",
            "--timeout",
            "1s",
        ],
    );
    script.run(
        &program,
        &["node", "deploy", "gpu-001", "--image", "debian", "--timeout", "1s"],
    );
    script.check("wait_timeout", &program);
}

#[test]
fn operations() {
    let fake = Fake::with_nodes();
    let program = Program::logged_in(&fake);
    fake.state()
        .scripts
        .extend([fixtures::stepwise()[3..4].to_vec(), fixtures::failing()[1..].to_vec()]);
    // Done, with the progress that was last stored.
    let progress = fixtures::stepwise()[1].progress.clone();
    let done = Operation {
        progress,
        ..fixtures::quick().remove(1)
    };
    fake.state().scripts.push_back(vec![done]);
    assert_eq!(program.run(&["node", "deploy", "gpu-001", "--image", "debian"]).code, 0);
    assert_eq!(program.run(&["node", "retry", "gpu-003"]).code, 0);
    assert_eq!(program.run(&["node", "resume", "gpu-002"]).code, 0);
    let mut script = Script::default();
    let first = "00000000-0000-4000-8000-000000000001";
    let second = "operations/00000000-0000-4000-8000-000000000002";
    script.run(&program, &["operation", "list"]);
    script.run(&program, &["operation", "list", "--running", "-o", "name"]);
    script.run(&program, &["operation", "get", first]);
    script.run(&program, &["operation", "get", "nothing"]);
    script.run(&program, &["operation", "wait", second]);
    script.run(&program, &["operation", "cancel", first]);
    script.check("operations", &program);
    let wait = program.run(&["operation", "wait", second, "-o", "json"]);
    assert_eq!(wait.code, 7, "{wait:?}");
    let json: serde_json::Value = serde_json::from_str(&wait.stdout).unwrap();
    assert_eq!(json["error"]["code"], Code::FailedPrecondition as i32);
}

#[test]
fn evidence() {
    let fake = Fake::with_nodes();
    fake.state().reports = vec![fixtures::report()];
    let forged = EraseCertificate {
        drive_serial: "S7".into(),
        ..fixtures::certificate("S6")
    };
    fake.state().certificates = vec![fixtures::certificate("S6")];
    let program = Program::logged_in(&fake);
    let key = hex::encode(fixtures::certificate("S6").signer_public_key);
    let mut script = Script::default();
    script.run(&program, &["node", "reports", "gpu-001"]);
    script.run(&program, &["node", "certificates", "gpu-001"]);
    script.run(
        &program,
        &["node", "certificates", "gpu-001", "--verify", "--key", &key],
    );
    fake.state().certificates.push(forged);
    script.run(&program, &["node", "certificates", "gpu-001", "--verify"]);
    script.check("evidence", &program);
}

#[test]
fn a_node_that_refuses_does_not_hold_up_the_others() {
    let fake = Fake::with_nodes();
    let details = ErrorDetails::with_precondition_failure_violation("STATE", "nodes/gpu-001", "gpu-001 is failed");
    fake.refuse(
        "ReleaseNode",
        Status::with_error_details(Code::FailedPrecondition, "gpu-001 is failed", details),
    );
    let program = Program::logged_in(&fake);
    let release = program.run(&["node", "release", "gpu-001", "gpu-002", "--yes", "--wait"]);
    assert_eq!(release.code, 4, "{release:?}");
    assert!(release.stdout.contains("gpu-002 release done"), "{release:?}");
    assert!(release.stderr.contains("cannot release gpu-001"), "{release:?}");
}
