//! The network test between real machines of a cluster before its hand-over: by TCP over their virtual cables.

use std::process::Command;
use std::time::{Duration, Instant};

use rackwright_lab::{self as lab, Firmware, Lab, LabConfig, Machine};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_tests::site::{BOOT, Settings, Site, images};
use serde_json::Value;

const NODES: [&str; 3] = ["gpu-1", "gpu-2", "gpu-3"];

fn status(site: &Site, cluster: &str) -> Value {
    site.json(["cluster", "get", cluster])["status"].clone()
}

/// Waits until `found` returns a value from the cluster's status.
async fn until<T>(site: &Site, cluster: &str, what: &str, found: impl Fn(&Value) -> Option<T>) -> T {
    let deadline = Instant::now() + 2 * BOOT;
    loop {
        let status = status(site, cluster);
        if let Some(found) = found(&status) {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: {status:#}\n{}", site.log_tail());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn create(site: &Site, cluster: &str) {
    let wants = [
        "--customer",
        "acme",
        "--sku",
        "dgx-h100",
        "--nodes",
        "3",
        "--image",
        "tiny",
        "--bandwidth",
        "best-effort",
    ];
    site.cli(["cluster", "create", cluster].into_iter().chain(wants));
}

/// Enrols the machine as a node of the site's SKU.
fn enroll(site: &Site, node: &str, machine: &Machine) {
    let password = site.dir().join(format!("{node}.password"));
    std::fs::write(&password, machine.bmc().password()).expect("the password file can be written");
    let bmc = machine.bmc();
    let file = password.display().to_string();
    let account = [
        "--bmc",
        &bmc.url,
        "--user",
        &bmc.user,
        "--password-file",
        &file,
        "--sku",
        "dgx-h100",
    ];
    site.cli(["node", "enroll", node].into_iter().chain(account));
}

/// Slows the traffic to a machine down, like a bad cable.
fn slow_down(tap: &str) {
    let slow = [
        "qdisc", "add", "dev", tap, "root", "tbf", "rate", "80mbit", "burst", "256kb", "latency", "50ms",
    ];
    let status = Command::new("tc").args(slow).status();
    assert!(status.expect("tc of iproute2 runs").success());
}

#[test]
fn machines_are_tested_with_each_other_and_one_with_a_slow_cable_is_found() {
    lab::run_test(
        "machines_are_tested_with_each_other_and_one_with_a_slow_cable_is_found",
        async |namespace| {
            let config = LabConfig {
                machines: NODES.len(),
                firmware: Firmware::Bios,
                ..LabConfig::default()
            };
            let lab = Lab::start(&namespace, config).await.expect("the lab starts");
            let settings = Settings {
                traffic: Some(images().join("rackwright-traffic")),
                ..Settings::default()
            };
            let dir = namespace.state_dir().join("site");
            let site = Site::start(&dir, &settings).await;
            let mut request = Request::new(ReferenceSku::DgxH100, 4);
            request.customers = vec![("acme".into(), rackwright_site::model::Redundancy::None, false)];
            let file = dir.join("site.yaml");
            std::fs::write(&file, site_file(&request).expect("a site")).expect("the site file");
            site.cli(["site", "apply", &file.display().to_string(), "--yes"]);
            for (at, node) in NODES.iter().enumerate() {
                enroll(&site, node, lab.machine(at));
            }
            for node in NODES {
                site.until(node, &["available"], BOOT).await;
            }
            site.add_image("tiny", "tiny.raw.zst");

            create(&site, "alpha");
            let is_ready = |status: &Value| (status["state"] == "CLUSTER_STATE_READY").then(|| status.clone());
            let ready = until(&site, "alpha", "alpha is ready", is_ready).await;
            let network = ready["network"].as_str().expect("words").to_owned();
            assert!(network.starts_with("3 nodes passed, slowest gpu-"), "{network}");
            site.cli(["cluster", "pack", "alpha", &dir.join("pack").display().to_string()]);
            let report = std::fs::read_to_string(dir.join("pack/validation.md")).expect("the pack has a report");
            for words in [
                "network-pairs",
                "TCP between nodes by their addresses",
                "3 tests, 0 bad",
                "network-all-nodes",
            ] {
                assert!(report.contains(words), "{words:?} is not in\n{report}");
            }
            println!("{report}");

            site.cli(["cluster", "release", "alpha", "--yes", "--wait"]);
            slow_down("tap1");
            create(&site, "beta");
            // There is no fourth machine as a replacement.
            let waits = |status: &Value| (status["waiting_kind"] == "replacement").then(|| status.clone());
            let waiting = until(&site, "beta", "beta waits for another node", waits).await;
            let words = waiting["waiting_for"].as_str().expect("words");
            assert!(words.starts_with("a replacement for node gpu-2: "), "{words}");
            let network = waiting["network"].as_str().expect("words");
            let words = "1 of 3 nodes at fault: gpu-2: node gpu-2: its network interface or the cable to it; ";
            assert!(network.starts_with(words), "{network}");
            println!("{network}");
            let events = site.cli(["events", "--target", "clusters/beta"]);
            assert!(events.contains("cluster.network-fault"), "{events}");
            site.stop().await;
            lab.stop().await.expect("the lab ends");
        },
    );
}
