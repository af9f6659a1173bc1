//! Clusters from nothing to hand-over and back, with a real OpenSM: `make demo-cluster` must succeed.
//!
//! The demo itself compares the tables of the fabric's ports with the expected ones of each cluster.

use std::process::{Command, Stdio};

use rackwright_tests::site::program;

#[test]
fn two_customers_get_isolated_clusters_though_a_drive_and_a_cable_break() {
    let output = Command::new(program("rackwright-demo-cluster"))
        .stdin(Stdio::null())
        .output()
        .expect("the demo can be started");
    let told = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{why}");
    for words in [
        // The replacements depend on which node is lost first.
        "replaced gpu-006: failed: write-image failed 2 times",
        "replaced gpu-068: cable c0516 is broken",
        // The tests between the nodes find one more.
        "replaced gpu-072: network: cable c0584: node gpu-072 mlx5_4 to leaf-su3-r2 port 8",
        "48 nodes passed, slowest",
        "32 nodes passed, slowest",
        "both clusters are their customers'",
        "alpha is degraded",
        "port-absent missing",
        "alpha is ready",
        "clusters/alpha: the breach and its end are reported",
        "clusters/beta: the breach and its end are reported",
        "beta reimage-cluster done",
        "beta release-cluster done",
    ] {
        assert!(told.contains(words), "the demo does not say {words:?}:\n{told}");
    }
    let isolated = told
        .matches("each cluster's ports have its key, and nobody else has it")
        .count();
    assert_eq!(isolated, 3, "twice with both clusters and once with one:\n{told}");
}
