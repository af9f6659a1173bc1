//! The whole life of real machines: enrol, inspect, deploy, validate, reimage, release, and available again.

use rackwright_lab::{self as lab, Firmware, Lab, LabConfig, Machine, PowerState};
use rackwright_lifecycle::Effect;
use rackwright_tests::drive::is_empty;
use rackwright_tests::site::{BOOT, Settings, Site, images};
use rackwright_tests::witness::{StartedJobs, begun, tries};

/// A customer's public key without its private half: the key only has to arrive.
const CUSTOMER_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIuYzq4nUyLlUaqFvB2HIBhzCLYmfEdFIDbJgV9Z0pYx customer";

/// With `second`, the machine is imaged a second time.
async fn whole_life(namespace: lab::Namespace, firmware: Firmware, first: &str, second: Option<&str>) {
    let dir = namespace.state_dir().join("site");
    let config = LabConfig {
        firmware,
        memory_mb: 768,
        tpm: firmware.is_uefi(),
        ..LabConfig::default()
    };
    let lab = Lab::start(&namespace, config).await.expect("the lab starts");
    let machine = lab.machine(0);
    assert_eq!(machine.view().power, PowerState::Off);
    let settings = Settings {
        probe: Some(images().join("rackwright-probe")),
        address_only: !firmware.is_uefi(),
        ..Settings::default()
    };
    let site = Site::start(&dir, &settings).await;

    site.enroll("n1", machine);
    site.until("n1", &["available"], BOOT).await;
    assert_eq!(machine.view().power, PowerState::Off, "an available node is off");
    let node = site.json(["node", "inventory", "n1"]);
    let drives = node["drives"].as_array().expect("the inventory has drives");
    assert!(
        drives
            .iter()
            .any(|d| d["serial_number"].as_str().is_some_and(|s| !s.is_empty())),
        "{node}"
    );

    site.add_image(first, &format!("{first}.raw.zst"));
    site.cli(["node", "deploy", "n1", "--image", first, "--ssh-key", CUSTOMER_KEY]);
    let state = site.until("n1", &["active", "failed"], BOOT).await;
    assert_eq!(state, "active", "{}", site.reason("n1"));
    every_check_passed(&site);
    let boot_entry = |entries: Vec<String>| entries.iter().any(|e| e.starts_with("Rackwright"));
    let entries = machine.boot_entries().expect("the firmware's variables can be read");
    assert_eq!(boot_entry(entries.clone()), firmware.is_uefi(), "{entries:?}");

    if let Some(second) = second {
        site.add_image(second, &format!("{second}.raw.zst"));
        site.cli(["node", "reimage", "n1", "--image", second, "--yes"]);
        site.until("n1", &["imaging"], BOOT).await;
        let state = site.until("n1", &["active", "failed"], BOOT).await;
        assert_eq!(state, "active", "{}", site.reason("n1"));
    }
    let writes = 1 + usize::from(second.is_some());

    site.cli(["node", "release", "n1", "--yes", "--wait"]);
    assert_eq!(site.state("n1"), "available");
    let certificates = site.json(["node", "certificates", "n1"]);
    let certificate = &certificates[0];
    let identity = if firmware.is_uefi() { "tpm" } else { "address only" };
    assert_eq!(certificate["identity"], identity, "{certificates}");
    let attestation = certificate["attestation_sha256"].as_str().unwrap_or_default();
    assert_eq!(
        attestation.len(),
        if firmware.is_uefi() { 64 } else { 0 },
        "{certificates}"
    );
    let tpm = if firmware.is_uefi() {
        "TPM: cleared"
    } else {
        "TPM: none found"
    };
    let evidence = certificate["evidence"].as_array();
    assert!(
        evidence.is_some_and(|lines| lines.iter().any(|line| line == tpm)),
        "{certificates}"
    );
    if firmware.is_uefi() {
        let explained = site.cli(["node", "explain", "n1"]);
        assert!(explained.contains("iPXE does not measure"), "{explained}");
    }
    assert_eq!(
        certificate["drive_serial"], drives[0]["serial_number"],
        "{certificates}"
    );
    site.cli(["node", "certificates", "n1", "--verify"]);
    let entries = machine.boot_entries().expect("the firmware's variables can be read");
    assert!(!boot_entry(entries.clone()), "{entries:?}");
    let disk = machine.disk_path(0).expect("the machine has a drive");
    assert!(is_empty(&disk), "the drive holds something after its erase");

    booted_in_order(&site, machine);
    let events = site.cli(["events", "--target", "nodes/n1", "-o", "json"]);
    let written: Vec<&str> = events.lines().filter(|l| l.contains("image.written")).collect();
    assert_eq!(written.len(), writes, "{events}");
    for event in written {
        // The ramdisk's kernel is Debian's, which supports it.
        assert!(event.contains(r#""io_uring":"true""#), "{event}");
    }
    assert_eq!(begun(&site, machine, "n1").await, StartedJobs { writes, erases: 1 });
    for (effect, times) in [(Effect::WriteImage, writes), (Effect::EraseDrives, 1)] {
        assert_eq!(tries(&site, "n1", effect).await.len(), times, "{effect:?}");
    }
    site.stop().await;
    lab.stop().await.expect("the lab ends");
}

/// The checks of hardware that need a GPU, an adapter, a drive or a setting which a machine of the lab may lack.
const NEEDS_PARTS: [&str; 4] = ["gpu-", "readiness-", "pcie-", "infiniband-"];

/// The newest report has every check, and all passed: no check was left out for lack of data to compare. Checks of hardware
/// that the machine lacks state this, with what was read.
fn every_check_passed(site: &Site) {
    let report = &site.json(["node", "reports", "n1"])[0];
    assert_eq!(report["passed"], true, "{report}");
    let checks = report["checks"].as_array().expect("the report has checks");
    let not_passed: Vec<&str> = checks
        .iter()
        .filter(|c| c["verdict"] != "VERDICT_PASS")
        .filter_map(|c| c["id"].as_str())
        .filter(|id| !NEEDS_PARTS.iter().any(|part| id.starts_with(part)))
        .filter(|id| !["nvme-health", "memory-errors"].contains(id))
        .collect();
    assert!(not_passed.is_empty(), "{not_passed:?}: {report}");
    assert!(checks.len() >= 30, "{report}");
    let of = |id: &str| {
        checks
            .iter()
            .find(|check| check["id"] == id)
            .unwrap_or_else(|| panic!("{id}: {report}"))
    };
    for id in ["gpu-presence", "gpu-memory", "gpu-clocks", "gpu-nvlink"] {
        assert_eq!(of(id)["detail"], "no GPU", "{report}");
    }
    for (id, measured) in [
        ("pcie-links", "emulated device"),
        ("readiness-acs", "bridge"),
        ("readiness-iommu", ""),
    ] {
        let found = of(id)["measured"].as_str().unwrap_or_default();
        assert!(
            !found.is_empty() && found.contains(measured) && found != "not read",
            "{id}: {report}"
        );
    }
    let memlock = of("readiness-memlock")["measured"].as_str().unwrap_or_default();
    assert!(memlock == "unlimited" || memlock.ends_with(" bytes"), "{report}");
}

/// The boot trace of the machine runs from its first DHCP packet to its agent, in that order.
fn booted_in_order(site: &Site, machine: &Machine) {
    let trace = site.json(["boot", "trace", machine.mac()]);
    let stages = trace["stages"].as_array().expect("a trace has stages");
    let mut stages = stages.iter().filter_map(|s| s["stage"].as_str());
    // BIOS machines of the lab have iPXE in the network card's ROM, as QEMU supplies it: they fetch no first stage.
    let first_stage = machine.firmware().is_uefi().then_some("tftp");
    let before = ["dhcp-discover", "dhcp-request"].into_iter().chain(first_stage);
    for wanted in before.chain(["script", "kernel", "initrd", "http", "agent"]) {
        assert!(
            stages.any(|stage| stage.starts_with(wanted)),
            "{wanted} is not in its place: {trace}"
        );
    }
}

#[test]
fn a_bios_machine_lives_its_whole_life() {
    lab::run_test("a_bios_machine_lives_its_whole_life", async |namespace| {
        whole_life(namespace, Firmware::Bios, "debian-slim", None).await;
    });
}

#[test]
fn a_uefi_machine_lives_its_whole_life() {
    lab::run_test("a_uefi_machine_lives_its_whole_life", async |namespace| {
        whole_life(namespace, Firmware::Uefi, "debian-slim", Some("tiny")).await;
    });
}
