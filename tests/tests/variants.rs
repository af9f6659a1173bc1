//! Variants: firmware, boot methods and drives in addition to those of `life.rs`, and recoveries from trouble.

use std::time::Instant;

use rackwright_lab::{self as lab, DiskKind, Firmware, Lab, LabConfig, Machine, ResetType};
use rackwright_tests::customer::{customer_key, on_host};
use rackwright_tests::drive::is_empty;
use rackwright_tests::site::{BOOT, POLL, Settings, Site};
use serde_json::Value;

async fn becomes(site: &Site, id: &str, wanted: &str) {
    let state = site.until(id, &[wanted, "failed", "quarantined"], BOOT).await;
    assert_eq!(state, wanted, "{}\n{}", site.reason(id), site.log_tail());
}

fn fields_of(list: &Value, field: &str) -> Vec<String> {
    let rows = list.as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter()
        .map(|row| row[field].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Adds the UEFI variable `Letter`.
const WRITE_LETTER: &str =
    "printf '\\007\\000\\000\\000letter' > /sys/firmware/efi/efivars/Letter-99999999-2222-3333-4444-555555555555";

/// Whether the machine's firmware has the variable `Letter`.
fn has_letter(machine: &Machine) -> bool {
    let variables = machine.uefi_variables().expect("the firmware's variables can be read");
    assert!(variables.iter().any(|name| name == "BootOrder"), "{variables:?}");
    variables.iter().any(|name| name == "Letter")
}

#[test]
fn secure_boot_nvme_and_cloud_init() {
    lab::run_test("secure_boot_nvme_and_cloud_init", async |namespace| {
        let config = LabConfig {
            firmware: Firmware::UefiSecureBoot,
            disk_kind: DiskKind::Nvme,
            memory_mb: 1024,
            tpm: true,
            ..LabConfig::default()
        };
        let settings = Settings {
            loader: "shim-grub",
            // Shim, grub, kernel, ramdisk and command line must equal the served ones before the node is trusted, and the
            // firmware must equal the approved one.
            further: "identity: {tpm: required, measured_boot: required, firmware: hold}\n".to_owned(),
            ..Settings::default()
        };
        let lab = Lab::start(&namespace, config).await.expect("the lab starts");
        let site = Site::start(&namespace.state_dir().join("site"), &settings).await;
        site.enroll("n1", lab.machine(0));
        becomes(&site, "n1", "failed").await;
        let reason = site.reason("n1");
        assert!(reason.contains("no golden values"), "{reason}");
        let approve = ["firmware", "golden", "add", "--from-node", "n1", "--reason", "new"];
        site.cli(approve);
        site.cli(["node", "retry", "n1"]);
        site.until("n1", &["available"], BOOT).await;
        let inventory = site.json(["node", "inventory", "n1"]);
        assert_eq!(inventory["tpm"]["present"], true, "{inventory}");
        assert_eq!(inventory["secure_boot"], true, "{inventory}");
        let explained = site.cli(["node", "explain", "n1"]);
        assert!(
            explained.contains("programs, kernel, ramdisk and command line that were served"),
            "{explained}"
        );
        assert!(explained.contains("approved by"), "{explained}");

        let key = customer_key(site.dir());
        let document = site.dir().join("wishes.yaml");
        std::fs::write(
            &document,
            "#cloud-config\nwrite_files:\n- path: /etc/wish\n  content: granted\n",
        )
        .expect("the user data can be written");
        site.add_image("debian", "debian-cloud-init.raw.zst");
        let public = key.with_extension("pub").display().to_string();
        let user_data = document.display().to_string();
        site.cli([
            "node",
            "deploy",
            "n1",
            "--image",
            "debian",
            "--verify-disk",
            "--ssh-key",
            &public,
            "--user-data",
            &user_data,
            "--hostname",
            "wishful",
        ]);
        becomes(&site, "n1", "active").await;
        assert_eq!(
            on_host(&site, "n1", &key, "cat /etc/wish; hostname"),
            "grantedwishful\n"
        );
        let state = on_host(
            &site,
            "n1",
            &key,
            "od -An -tu1 -j4 /sys/firmware/efi/efivars/SecureBoot-*",
        );
        assert_eq!(state.trim(), "1", "Secure Boot is off in the installed system");
        let keys = on_host(&site, "n1", &key, "cat /root/.ssh/authorized_keys");
        assert_eq!(keys.lines().filter(|l| l.starts_with("ssh-")).count(), 1, "{keys}");

        // The customer's system leaves a letter in the firmware, as a crash dump of its kernel would be left.
        assert_eq!(on_host(&site, "n1", &key, WRITE_LETTER), "");
        assert!(has_letter(lab.machine(0)));
        site.cli(["node", "release", "n1", "--yes"]);
        becomes(&site, "n1", "available").await;
        assert!(!has_letter(lab.machine(0)), "the letter is still in the firmware");
        let certificates = site.json(["node", "certificates", "n1"]);
        let evidence = certificates[0]["evidence"].to_string();
        assert!(evidence.contains("of a former system removed"), "{evidence}");
        assert!(
            fields_of(&certificates, "drive_serial")
                .iter()
                .all(|s| s.starts_with("LAB")),
            "{certificates}"
        );
        // QEMU's NVMe drives format user data, and do not support sanitize.
        assert_eq!(
            fields_of(&certificates, "method"),
            ["ERASE_METHOD_NVME_FORMAT_USER_DATA"],
            "{certificates}"
        );
        lab.stop().await.expect("the lab ends");
    });
}

/// A real controller, as QEMU emulates it: a namespace that is attached to no controller is attached, erased and named.
#[test]
fn a_detached_namespace_is_erased_and_named() {
    lab::run_test("a_detached_namespace_is_erased_and_named", async |namespace| {
        let config = LabConfig {
            firmware: Firmware::Uefi,
            disk_kind: DiskKind::NvmeDetached,
            disk_bytes: 256 << 20,
            ..LabConfig::default()
        };
        let lab = Lab::start(&namespace, config).await.expect("the lab starts");
        let site = Site::start(&namespace.state_dir().join("site"), &Settings::default()).await;
        site.enroll("n1", lab.machine(0));
        becomes(&site, "n1", "available").await;
        let drives = site.json(["node", "inventory", "n1"])["drives"].clone();
        assert_eq!(fields_of(&drives, "name"), ["nvme0n1"], "{drives}");
        site.cli(["node", "power", "n1", "off", "--wait", "--yes"]);
        let hidden = lab.machine(0).detached_path(0).expect("a detached namespace");
        std::fs::write(&hidden, vec![0xA5; 256 << 20]).expect("the namespace can be written");

        site.cli(["node", "hold", "n1", "--reason", "its drives are looked at"]);
        becomes(&site, "n1", "maintenance").await;
        site.cli(["node", "readmit", "n1", "--yes"]);
        let state = site.until("n1", &["quarantined", "available"], BOOT).await;
        assert_eq!(state, "quarantined", "{}", site.log_tail());
        let reason = site.reason("n1");
        assert!(
            reason.contains("number of namespaces 1 recorded"),
            "{reason}\n{}",
            site.log_tail()
        );
        assert!(is_empty(&hidden), "the detached namespace still holds something");

        site.cli(["node", "readmit", "n1", "--yes", "--accept-drives", "--wait"]);
        assert_eq!(
            site.state("n1"),
            "available",
            "{}\n{}",
            site.reason("n1"),
            site.log_tail()
        );
        let certificates = site.json(["node", "certificates", "n1"]);
        let mut drives = fields_of(&certificates, "drive_name");
        drives.sort();
        assert_eq!(drives, ["nvme0n1", "nvme0n2"], "{certificates}");
        let memory = certificates[0]["evidence"][0].as_str().unwrap_or_default();
        assert!(memory.starts_with("memory: powered off for "), "{certificates}");
        lab.stop().await.expect("the lab ends");
    });
}

#[test]
fn http_boot_two_drives_and_a_drive_that_vanishes() {
    lab::run_test("http_boot_two_drives_and_a_drive_that_vanishes", async |namespace| {
        let config = LabConfig {
            firmware: Firmware::Uefi,
            disk_kind: DiskKind::Both,
            disk_bytes: 1 << 30,
            ..LabConfig::default()
        };
        let settings = Settings {
            method: "uefi-http",
            ..Settings::default()
        };
        let lab = Lab::start(&namespace, config).await.expect("the lab starts");
        let site = Site::start(&namespace.state_dir().join("site"), &settings).await;
        site.enroll("n1", lab.machine(0));
        becomes(&site, "n1", "available").await;
        let trace = site.cli(["boot", "trace", lab.machine(0).mac()]);
        assert!(trace.to_ascii_lowercase().contains("http"), "{trace}");

        site.add_image("tiny", "tiny.raw.zst");
        site.cli(["node", "deploy", "n1", "--image", "tiny", "--root-drive", "nvme0n1"]);
        becomes(&site, "n1", "active").await;
        site.cli(["node", "hold", "n1", "--reason", "a fan is changed"]);
        becomes(&site, "n1", "maintenance").await;
        site.cli(["node", "resume", "n1"]);
        becomes(&site, "n1", "active").await;

        // A drive is pulled before the release: its data cannot be erased.
        site.cli(["node", "power", "n1", "off", "--wait", "--yes"]);
        lab.machine(0).remove_disk(0).await.expect("the drive can be pulled");
        site.cli(["node", "release", "n1", "--yes"]);
        let state = site.until("n1", &["quarantined", "available"], BOOT).await;
        assert_eq!(state, "quarantined", "{}", site.log_tail());
        let reason = site.reason("n1");
        assert!(reason.contains("LAB0000"), "{reason}");

        // The drive is not found again. The remaining drives are erased once more, and the node may return to the pool.
        site.cli(["node", "readmit", "n1", "--yes", "--wait"]);
        assert_eq!(
            site.state("n1"),
            "available",
            "{}\n{}",
            site.reason("n1"),
            site.log_tail()
        );
        let disk = lab.machine(0).disk_path(0).expect("one drive is left");
        assert!(is_empty(&disk), "the drive that is left holds something");
        lab.stop().await.expect("the lab ends");
    });
}

/// The facts about a machine that is not enrolled; none while it is not listed.
fn unknown(site: &Site, machine: &Machine) -> Option<Value> {
    let list = site.json(["boot", "unknown"]);
    let mut rows = list.as_array().into_iter().flatten();
    rows.find(|row| row["mac"] == machine.mac()).cloned()
}

async fn until_unknown(site: &Site, machine: &Machine, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + BOOT;
    loop {
        let row = unknown(site, machine);
        match row.clone().filter(&is_wanted) {
            Some(row) => return row,
            None if Instant::now() < deadline => tokio::time::sleep(POLL).await,
            None => panic!("{row:?} after {BOOT:?}\n{}", site.log_tail()),
        }
    }
}

#[test]
fn an_unknown_machine_boots_only_to_report_itself() {
    lab::run_test("an_unknown_machine_boots_only_to_report_itself", async |namespace| {
        let config = LabConfig {
            firmware: Firmware::Bios,
            ..LabConfig::default()
        };
        let lab = Lab::start(&namespace, config).await.expect("the lab starts");
        let settings = Settings {
            boot_unknown: true,
            ..Settings::default()
        };
        let site = Site::start(&namespace.state_dir().join("site"), &settings).await;
        let machine = lab.machine(0);
        machine.reset(ResetType::On).await.expect("it is switched on");
        let row = until_unknown(&site, machine, |row| row["inventory"].is_object()).await;
        let inventory = &row["inventory"];
        assert_eq!(inventory["dmi"]["serial_number"], machine.serial(), "{row}");
        let drives = fields_of(&inventory["drives"], "serial_number");
        assert!(drives.len() == 1 && drives[0].starts_with("LAB"), "{row}");
        let table = site.cli(["boot", "unknown"]);
        assert!(table.contains(machine.serial()), "{table}");
        let trace = site.json(["boot", "trace", machine.mac()]);
        let stages = fields_of(&trace["stages"], "stage");
        assert!(stages.iter().filter(|s| *s == "agent").count() >= 2, "{trace}");
        let target = format!("machines/{}", machine.mac());
        let events = site.cli(["events", "--target", &target, "-o", "json"]);
        assert_eq!(events.matches("boot.unknown-machine-reported").count(), 1, "{events}");
        let nodes = site.json(["node", "list"]);
        assert_eq!(nodes.as_array().map(Vec::len), Some(0), "{nodes}");

        // After its enrolment it is inspected anew: unauthenticated statements do not identify a node.
        site.enroll("n1", machine);
        becomes(&site, "n1", "available").await;
        assert_eq!(unknown(&site, machine), None);
        assert!(machine.view().boots > 1, "it was not booted again");
        lab.stop().await.expect("the lab ends");
    });
}

#[test]
fn an_unknown_machine_is_only_listed_by_default() {
    lab::run_test("an_unknown_machine_is_only_listed_by_default", async |namespace| {
        let config = LabConfig {
            firmware: Firmware::Bios,
            ..LabConfig::default()
        };
        let lab = Lab::start(&namespace, config).await.expect("the lab starts");
        let site = Site::start(&namespace.state_dir().join("site"), &Settings::default()).await;
        let machine = lab.machine(0);
        machine.reset(ResetType::On).await.expect("it is switched on");
        let listed = until_unknown(&site, machine, |_| true).await;
        assert!(listed["inventory"].is_null(), "{listed}");
        // Its firmware repeats its requests and gets no answer.
        let deadline = Instant::now() + BOOT / 4;
        let trace = loop {
            let trace = site.json(["boot", "trace", machine.mac()]);
            if fields_of(&trace["stages"], "stage").len() >= 3 {
                break trace;
            }
            assert!(Instant::now() < deadline, "{trace}\n{}", site.log_tail());
            tokio::time::sleep(POLL).await;
        };
        let stages = fields_of(&trace["stages"], "stage");
        assert!(stages.iter().all(|s| s == "dhcp-discover"), "{trace}");
        lab.stop().await.expect("the lab ends");
    });
}

#[test]
fn a_machine_without_a_tpm_is_known_by_the_medium_that_its_bmc_shows() {
    lab::run_test(
        "a_machine_without_a_tpm_is_known_by_the_medium_that_its_bmc_shows",
        async |namespace| {
            let config = LabConfig {
                firmware: Firmware::Uefi,
                memory_mb: 1024,
                ..LabConfig::default()
            };
            // The kernel for real servers reserves another part of the memory than the installed one.
            let profile = namespace.state_dir().join("profile.yaml");
            let text = include_str!("../../crates/validate/profiles/default.yaml");
            let text = text.replace("memory_tolerance_percent: 1", "memory_tolerance_percent: 5");
            std::fs::write(&profile, text).expect("the profile can be written");
            let settings = Settings {
                further: "identity: {bmc: required}\n".to_owned(),
                profile: Some(profile),
                // The virtual drive is an optical drive at an AHCI controller.
                ramdisk: "generic",
                ..Settings::default()
            };
            let lab = Lab::start(&namespace, config).await.expect("the lab starts");
            let site = Site::start(&namespace.state_dir().join("site"), &settings).await;
            site.enroll("n1", lab.machine(0));
            becomes(&site, "n1", "available").await;
            let identity = |site: &Site| site.json(["node", "get", "n1"])["status"]["identity"].clone();
            assert_eq!(identity(&site), "bmc");
            site.add_image("tiny", "tiny.raw.zst");
            site.cli(["node", "deploy", "n1", "--image", "tiny"]);
            becomes(&site, "n1", "active").await;
            assert_eq!(identity(&site), "bmc");
            let medium = lab.machine(0).view().media;
            assert!(medium.is_none(), "the customer finds a medium of ours: {medium:?}");
            lab.stop().await.expect("the lab ends");
        },
    );
}
