//! `rackwright apply -f` against the real daemon: the content of a file takes effect once, and only where it differs.

use std::path::Path;

use rackwright_api::v1;
use rackwright_lab as lab;
use rackwright_tests::site::{Site, texts};

use crate::client::{Api, events, node, start};
use crate::mutations::tally;

const NODES: &str = "\
kind: Node
id: a1
bmc: {address: \"https://10.77.0.1:9\", username: admin, password: secret-of-a1}
labels: {rack: r1}
---
kind: Node
id: a2
bmc:
  address: https://10.77.0.1:9
  username: admin
  password: secret-of-a2
labels: {rack: r1}
";

/// Three faults: an invalid id, an unknown field, and a BMC without a password.
const FAULTY: &str = "\
kind: Node
id: Not_An_Id
bmc: {address: \"https://10.77.0.1:9\", username: admin, password: x}
---
kind: Node
id: a3
colour: red
bmc:
  address: https://10.77.0.1:9
  username: admin
";

#[test]
fn a_file_is_applied_once_and_only_what_changed_is_sent() {
    lab::run_test(
        "apply::a_file_is_applied_once_and_only_what_changed_is_sent",
        async |namespace| {
            let (_lab, site, api) = start(&namespace).await;
            let file = namespace.state_dir().join("nodes.yaml");
            std::fs::write(&file, FAULTY).expect("the file can be written");
            faults_are_named_and_nothing_is_applied(&site, &api, &file).await;

            std::fs::write(&file, NODES).expect("the file can be written");
            let printed = apply(&site, &file);
            let lines: Vec<&str> = printed.lines().collect();
            let enrolled = |i: usize, id: &str| lines[i].starts_with(&format!("{id} enrolled, operation "));
            assert!(lines.len() == 2 && enrolled(0, "a1") && enrolled(1, "a2"), "{printed}");
            for id in ["a1", "a2"] {
                let is = described(&api, id).await;
                assert_eq!(is, ("default".into(), "admin".into(), "r1".into()), "{id}");
            }

            let (before, before_requests) = (tally(&site).await, requests(&api).await);
            assert_eq!(apply(&site, &file), "a1 unchanged\na2 unchanged\n");
            assert_eq!(tally(&site).await, before, "nothing new was requested");
            assert_eq!(requests(&api).await, before_requests, "something was requested");

            let changed = NODES
                .replacen("rack: r1", "rack: r2", 2)
                .replacen("rack: r2", "rack: r1", 1);
            std::fs::write(&file, changed).expect("the file can be written");
            assert_eq!(apply(&site, &file), "a1 unchanged\na2 changed: labels rack=r2\n");
            assert_eq!(described(&api, "a1").await.2, "r1");
            assert_eq!(described(&api, "a2").await.2, "r2");
            let more = requests(&api).await.split_off(before_requests.len());
            let [change] = &more[..] else {
                panic!("one change was requested: {more:?}");
            };
            assert_eq!(change.target, "nodes/a2", "{change:?}");
            assert_eq!(apply(&site, &file), "a1 unchanged\na2 unchanged\n");
        },
    );
}

async fn faults_are_named_and_nothing_is_applied(site: &Site, api: &Api, file: &Path) {
    let output = try_apply(site, file);
    let (_, errors) = texts(&output);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    let file = file.display();
    for place in ["2:5: `Not_An_Id`", "7:1: `colour`", "9:3: the password"] {
        assert!(
            errors.contains(&format!("{file}:{place}")),
            "{place:?} is not in:\n{errors}"
        );
    }
    assert_eq!(tally(site).await.0, 0, "something was enrolled");
    assert!(requests(api).await.is_empty(), "something was requested");
}

fn try_apply(site: &Site, file: &Path) -> std::process::Output {
    site.try_cli(["apply".as_ref(), "-f".as_ref(), file.as_os_str()])
}

fn apply(site: &Site, file: &Path) -> String {
    let output = try_apply(site, file);
    let (printed, errors) = texts(&output);
    assert!(output.status.success(), "{printed}{errors}");
    assert!(
        !format!("{printed}{errors}").contains("secret-of"),
        "a password is shown"
    );
    printed
}

/// SKU, BMC user and rack of a node.
async fn described(api: &Api, id: &str) -> (String, String, String) {
    let node = node(api, id).await;
    let spec = node.spec.unwrap_or_default();
    let labels = node.metadata.unwrap_or_default().labels;
    let rack = labels.get("rack").cloned().unwrap_or_default();
    (spec.sku, spec.bmc.unwrap_or_default().username, rack)
}

/// The operators' requests, oldest first.
async fn requests(api: &Api) -> Vec<v1::Event> {
    let mut events = events(api, 0).await;
    events.retain(|e| e.kind == "requested");
    events
}
