//! A real machine with a BMC that uses only IPMI: inspected, deployed, handed over, released, without Redfish.

use rackwright_lab::{self as lab, Lab, LabConfig, PowerState};
use rackwright_tests::site::{BOOT, Settings, Site, texts};
use serde_json::Value;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIuYzq4nUyLlUaqFvB2HIBhzCLYmfEdFIDbJgV9Z0pYx customer";

#[test]
fn a_machine_is_deployed_through_ipmi_alone() {
    lab::run_test("a_machine_is_deployed_through_ipmi_alone", async |namespace| {
        let dir = namespace.state_dir().join("site");
        let config = LabConfig {
            memory_mb: 768,
            ..LabConfig::default()
        };
        let lab = Lab::start(&namespace, config).await.expect("the lab starts");
        let machine = lab.machine(0);
        machine.bmc_dead(true).await.expect("the Redfish service ends");
        let bmc = machine.start_ipmi().await.expect("ipmi_sim starts");
        let site = Site::start(&dir, &Settings::default()).await;
        let password = dir.join("bmc.password");
        std::fs::write(&password, bmc.password()).expect("the password file can be written");
        let file = password.display().to_string();

        let without = bmc.address().split("&mac").next().expect("an address").to_owned();
        let refused = site.try_cli([
            "node",
            "enroll",
            "n1",
            "--bmc",
            &without,
            "--user",
            "admin",
            "--password-file",
            &file,
        ]);
        let error = texts(&refused).1;
        assert!(
            !refused.status.success() && error.contains("which MAC addresses its machine boots from"),
            "{error}"
        );
        site.cli([
            "node",
            "enroll",
            "n1",
            "--bmc",
            bmc.address(),
            "--user",
            "admin",
            "--password-file",
            &file,
        ]);
        let state = site.until("n1", &["available", "failed"], BOOT).await;
        assert_eq!(state, "available", "{}", site.reason("n1"));
        assert_eq!(machine.view().power, PowerState::Off, "an available node is off");
        let node = site.json(["node", "get", "n1"]);
        assert_eq!(node["status"]["macs"][0], machine.mac(), "{node}");
        let probed = probed(&site, &file, bmc.address());
        assert_eq!(probed["uuid"], machine.uuid(), "{probed}");

        site.add_image("tiny", "tiny.raw.zst");
        site.cli(["node", "deploy", "n1", "--image", "tiny", "--ssh-key", KEY]);
        let state = site.until("n1", &["active", "failed"], BOOT).await;
        assert_eq!(state, "active", "{}", site.reason("n1"));
        // IPMI cannot report the accounts that a customer left on the BMC: an operator allows that for this node.
        let refused = site.try_cli(["node", "release", "n1", "--yes", "--wait"]);
        assert!(!refused.status.success(), "{:?}", texts(&refused));
        assert_eq!(site.state("n1"), "quarantined");
        let reason = site.reason("n1");
        assert!(reason.contains("rackwright.bmc-state=unknown-allowed"), "{reason}");
        site.cli(["node", "label", "n1", "rackwright.bmc-state=unknown-allowed"]);
        site.cli(["node", "readmit", "n1", "--yes", "--wait"]);
        assert_eq!(site.state("n1"), "available");
        assert_eq!(machine.view().power, PowerState::Off);

        let log = std::fs::read_to_string(dir.join("rackwrightd.log")).expect("the daemon has a log");
        assert!(
            !log.contains(bmc.password()),
            "the BMC's password is in the daemon's log"
        );
        site.stop().await;
        lab.stop().await.expect("the lab ends");
    });
}

/// The output for the operator.
fn probed(site: &Site, password: &str, address: &str) -> Value {
    let probed: Value = site.json(["bmc", "probe", address, "--user", "admin", "--password-file", password]);
    let outcome = |name: &str| {
        let all = probed["findings"].as_array().expect("there are findings");
        let found = all.iter().find(|one| one["capability"] == name);
        found.map(|one| one["outcome"].clone()).unwrap_or_default()
    };
    for (capability, wanted) in [
        ("power", "pass"),
        ("boot override", "pass"),
        ("serial console", "pass"),
        ("event log", "pass"),
        ("Ethernet addresses", "pass"),
        ("sensors", "not offered"),
    ] {
        assert_eq!(outcome(capability), wanted, "{capability}: {probed}");
    }
    assert_eq!(
        probed["missing_for_deploy"].as_array().map(Vec::len),
        Some(0),
        "{probed}"
    );
    probed
}
