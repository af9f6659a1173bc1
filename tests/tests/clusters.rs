//! Clusters from nothing to hand-over and back, with a real OpenSM: `make demo-cluster` must succeed.
//!
//! The demo itself compares the tables of the fabric's ports with the expected ones of each cluster, and ends with an error
//! if a fault of the fabric or a breach of isolation is open that the demo did not intend.

use std::process::{Command, Stdio};

use rackwright_tests::site::program;

/// The words between two texts.
#[track_caller]
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).map(|(_, rest)| rest);
    let words = rest.and_then(|rest| rest.split_once(after)).map(|(words, _)| words);
    words.unwrap_or_else(|| panic!("no {before:?} with {after:?} behind in:\n{text}"))
}

#[test]
fn two_customers_get_isolated_clusters_though_a_drive_and_a_cable_break() {
    let output = Command::new(program("rackwright-demo-cluster"))
        .stdin(Stdio::null())
        .output()
        .expect("the demo can be started");
    let output_text = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output_text}\n{why}");
    // Placement chooses the nodes.
    let broken = between(&output_text, "a drive of ", " is broken");
    let slow = between(&output_text, "and a cable of ", " carries");
    let cable = between(&output_text, "\n== Cable ", " at ");
    let uncabled = between(&output_text, &format!("\n== Cable {cable} at "), " ");
    let new_port = between(&output_text, "is replaced: its port has GUID ", " ");
    let expected = [
        "leaf-su4-r7 has 1 of 2 cables to spine-16: unit su04 gives 31 of 32 non-blocking nodes".to_owned(),
        "storage (4 nodes, storage)".to_owned(),
        format!("replaced {broken}: failed: write-image failed 2 times"),
        format!("replaced {uncabled}: cable {cable} is broken"),
        // The tests between the nodes find one more.
        format!("replaced {slow}: network: cable c"),
        format!(": node {slow} mlx5_4 to leaf-su"),
        "48 nodes passed, slowest".to_owned(),
        "32 nodes passed, slowest".to_owned(),
        "both customers have their clusters".to_owned(),
        "alpha is degraded".to_owned(),
        "port-absent missing".to_owned(),
        "alpha is ready".to_owned(),
        "clusters/alpha: the breach and its end are reported".to_owned(),
        "clusters/beta: the breach and its end are reported".to_owned(),
        format!("the site file needs `guids: {{mlx5_5: {new_port}}}` of node "),
        "the proof: partitions of version ".to_owned(),
        format!("port {new_port} has key 0x"),
        "beta reimage-cluster done".to_owned(),
        "beta release-cluster done".to_owned(),
        "no fault of the fabric is unintended, and no breach of isolation is open".to_owned(),
    ];
    for words in expected {
        assert!(
            output_text.contains(&words),
            "the demo does not print {words:?}:\n{output_text}"
        );
    }
    let warnings = output_text.matches(": warning: ").count();
    assert_eq!(
        warnings, 1,
        "the check of the site warns of the absent cable alone:\n{output_text}"
    );
    // The last two: states as the API names them, and links at another speed than the site's.
    for wrong in ["beside the one with the most nodes", "_STATE_", "links run at"] {
        assert!(
            !output_text.contains(wrong),
            "the demo prints {wrong:?}:\n{output_text}"
        );
    }
    let isolated = output_text
        .matches("each cluster's ports have its key, and no other port has it")
        .count();
    assert_eq!(
        isolated, 4,
        "three times with both clusters and once with one:\n{output_text}"
    );
    let storage = "the storage fabric: 8 ports read, none has a key";
    assert_eq!(output_text.matches(storage).count(), isolated, "{output_text}");
}
