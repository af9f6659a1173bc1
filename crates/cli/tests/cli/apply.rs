//! `rackwright apply`.

use rackwright_api::v1::{Metadata, NodeState};
use tonic::Status;

use crate::fake::Fake;
use crate::fixtures;
use crate::golden::Script;
use crate::program::Program;

const GOOD: &str = "\
kind: Node
id: gpu-001
bmc: {address: https://bmc-gpu-001, username: admin, password: secret-one}
sku: h100
---
kind: Node
id: gpu-002
bmc:
  address: https://bmc-gpu-002
  username: admin
  password: secret-two
sku: b200
labels:
  rack: r2
---
kind: Node
id: gpu-010
bmc:
  address: https://bmc-gpu-010/base
  username: admin
  password_env: BMC_PASSWORD
labels:
  rack: r9
";

fn fake() -> Fake {
    let fake = Fake::start();
    for id in ["gpu-001", "gpu-002"] {
        let node = fixtures::node(id, NodeState::Available, 190);
        fake.state().nodes.insert(node.name.clone(), node);
    }
    fake
}

#[test]
fn every_fault_of_every_document_is_reported_and_nothing_is_sent() {
    let fake = fake();
    let program = Program::logged_in(&fake);
    let calls = fake.state().calls.len();
    program.file("site/a.yaml", GOOD.replace("password_env: BMC_PASSWORD", "password: x"));
    program.file(
        "site/b.yaml",
        "kind: Node\nid: GPU_1\nbmc:\n  address: 10.0.0.1\n  username: admin\n  pasword: x\n---\nkind: Node\nid: gpu-001\n\
         bmc: {address: https://b, username: u, password: p, password_env: Q}\nlabel: {a: b}\n---\nkind: Rack\n",
    );
    program.file(
        "site/c.yml",
        "kind: Node\nid: gpu-010\nbmc: {address: https://h, username: u, password: p}\n---\nid: [\n",
    );
    program.file("site/ignored.txt", "]");
    let mut script = Script::default();
    script.run(&program, &["apply", "-f", "site"]);
    script.run(&program, &["apply", "-f", "nowhere.yaml"]);
    script.check("apply_faults", &program);
    assert_eq!(
        fake.state().calls.len(),
        calls,
        "nothing is requested and nothing is sent"
    );
}

#[test]
fn new_nodes_are_enrolled_and_changed_ones_updated() {
    let fake = fake();
    let program = Program::logged_in(&fake);
    program.file("nodes.yaml", GOOD);
    let mut script = Script::default();
    let apply = |arguments: &[&str]| {
        let child = program
            .command(arguments)
            .env("BMC_PASSWORD", "secret-three")
            .output()
            .unwrap();
        crate::program::Finished {
            stdout: String::from_utf8(child.stdout).unwrap(),
            stderr: String::from_utf8(child.stderr).unwrap(),
            code: child.status.code().unwrap(),
        }
    };
    let dry = apply(&["apply", "-f", "nodes.yaml", "--dry-run"]);
    script.record("rackwright apply -f nodes.yaml --dry-run", &dry);
    assert!(fake.state().updates.is_empty() && fake.state().enrolled.is_empty());
    let applied = apply(&["apply", "-f", "nodes.yaml", "--wait", "--idempotency-key", "k"]);
    script.record("rackwright apply -f nodes.yaml --wait --idempotency-key k", &applied);
    let json = apply(&["apply", "-f", "nodes.yaml", "--dry-run", "-o", "json"]);
    script.record("rackwright apply -f nodes.yaml --dry-run -o json", &json);
    script.check("apply", &program);
    let state = fake.state();
    assert!(
        !format!("{dry:?}{applied:?}{json:?}").contains("secret-"),
        "passwords are never shown"
    );
    let bmc = state.enrolled[0].spec.clone().unwrap().bmc.unwrap();
    assert_eq!(
        (bmc.address.as_str(), bmc.password.as_str()),
        ("https://bmc-gpu-010/base", "secret-three")
    );
    let update = &state.updates[0];
    assert_eq!(
        update.update_mask.as_ref().unwrap().paths,
        ["spec.sku", "metadata.labels"]
    );
    let mutation = update.mutation.clone().unwrap();
    assert_eq!(
        (mutation.idempotency_key.as_str(), mutation.resource_version.as_str()),
        ("k.gpu-002", "7")
    );
    assert_eq!(state.calls.iter().filter(|(_, key)| key == "k.enroll0").count(), 1);
}

#[test]
fn a_node_changed_meanwhile_is_refused_and_the_rest_is_reported() {
    let fake = fake();
    let program = Program::logged_in(&fake);
    program.file("nodes.yaml", GOOD.split("---\nkind: Node\nid: gpu-010").next().unwrap());
    fake.refuse(
        "UpdateNode",
        Status::aborted("nodes/gpu-002 has version 8 by now, not 7; read it again"),
    );
    let apply = program.run(&["apply", "-f", "nodes.yaml"]);
    assert_eq!(apply.code, 4, "{apply:?}");
    assert!(apply.stdout.contains("gpu-001 unchanged"), "{apply:?}");
    assert!(!apply.stdout.contains("gpu-002"), "{apply:?}");
}

#[test]
fn a_refused_batch_is_printed_with_the_servers_faults() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    let document = "kind: Node\nid: a\nbmc: {address: https://h, username: u, password: p}\n";
    fake.refuse(
        "BatchEnrollNodes",
        Status::invalid_argument("requests[0].spec.sku: no such SKU"),
    );
    let apply = program.run_with_input(&["apply", "-f", "-"], document);
    assert_eq!(apply.code, 2, "{apply:?}");
    assert!(
        apply
            .stderr
            .contains("cannot enrol 1 node: requests[0].spec.sku: no such SKU"),
        "{apply:?}"
    );
    assert_eq!(
        fake.state().nodes.get("nodes/a").map(|node| node.metadata.clone()),
        None::<Option<Metadata>>
    );
}
