//! Data that an erase may miss: hidden areas of drives, drives visible only to the BMC or the agent, and memory. Each test
//! plays a customer who leaves data there and releases the machine.

use rackwright_sim::fleet::{Concealed, FleetConfig};
use serde_json::Value;

use super::erase::{TEST_LIMIT, Target};

/// Bytes of the simulated machine's drive.
const BYTES: u64 = 100_000_000_000 - 100_000_000_000 % 4096;
const STICK: u64 = 16 << 30;

fn machines(nodes: usize) -> FleetConfig {
    FleetConfig {
        nodes,
        ..FleetConfig::default()
    }
}

fn evidence(certificate: &Value) -> Vec<&str> {
    let lines = certificate["evidence"].as_array().into_iter().flatten();
    lines.filter_map(Value::as_str).collect()
}

fn has(certificate: &Value, words: &str) -> bool {
    evidence(certificate).iter().any(|line| line.contains(words))
}

/// A detached namespace is attached and erased, and stays for an operator's inspection; one that cannot be attached prevents
/// the certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hidden_namespace_is_erased_or_the_node_is_quarantined() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target::start(dir.path(), machines(2), |_, _| {}).await;
    let hidden: Vec<_> = [true, false]
        .into_iter()
        .enumerate()
        .map(|(index, opens)| {
            target
                .fleet
                .node(index)
                .detach_namespace(STICK, opens)
                .expect("a drive")
        })
        .collect();
    assert!(hidden.iter().all(|namespace| namespace.holds_data()));

    assert_eq!(target.erased_by(0, &["release"]), "quarantined");
    target
        .is_refused(0, &["number of namespaces 1 recorded by the inspection", "2 reported"])
        .await;
    assert!(!hidden[0].holds_data(), "the hidden namespace was not erased");
    target.is_erased(0, &["readmit", "--accept-drives"]);
    let certificates = target.certificates(0);
    assert_eq!(certificates.len(), 2, "{certificates:?}");

    assert_eq!(target.erased_by(1, &["release"]), "quarantined");
    let words = format!("detached namespace 2 of {STICK} bytes");
    target
        .is_refused(1, &[&words, "could not be opened", "remove and destroy the drive"])
        .await;
    assert!(hidden[1].holds_data());
    target.end().await;
}

/// A host protected area is opened and erased with the drive, and the certificate records that; one that cannot be opened
/// prevents the certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drive_that_was_shrunk_is_erased_whole_or_the_node_is_quarantined() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target::start(dir.path(), machines(2), |_, _| {}).await;
    let shown_bytes = BYTES / 2 - BYTES / 2 % 4096;
    for (index, opens) in [(0, true), (1, false)] {
        let drive = &target.fleet.node(index).drives().all()[0].clone();
        drive.fill_with_data();
        drive.conceal(Concealed::Shrunk { shown_bytes, opens });
    }
    assert_eq!(
        target.erased_by(0, &["release"]),
        "available",
        "{}",
        target.site.reason(&target.fleet.node(0).name())
    );
    let certificates = target.certificates(0);
    assert_eq!(certificates.len(), 1, "{certificates:?}");
    let area = format!("host protected area of {} bytes: opened", BYTES - shown_bytes);
    for words in [&area, &format!("native capacity: {BYTES} bytes")] {
        assert!(has(&certificates[0], words), "{words}: {certificates:?}");
    }
    let size = certificates[0]["drive_bytes"].to_string();
    assert_eq!(size.trim_matches('"'), BYTES.to_string(), "{certificates:?}");
    assert!(has(&certificates[0], "left out: sr0"), "{certificates:?}");
    assert!(!target.fleet.node(0).drives().all()[0].holds_data());

    assert_eq!(target.erased_by(1, &["release"]), "quarantined");
    target
        .is_refused(1, &["host protected area of", "could not be opened"])
        .await;
    target.end().await;
}

/// A stick left in the machine is erased like every drive. No record lists it, so an operator must inspect the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_usb_stick_that_was_left_in_is_erased_and_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target::start(dir.path(), machines(1), |_, _| {}).await;
    let stick = target.fleet.node(0).plug_stick("STICK-1", STICK);
    assert_eq!(target.erased_by(0, &["release"]), "quarantined");
    target
        .is_refused(
            0,
            &["drive sda (serial number STICK-1): reported, not recorded by the inspection"],
        )
        .await;
    assert!(!stick.holds_data(), "the stick was not erased");
    target.is_erased(0, &["readmit", "--accept-drives"]);
    let certificates = target.certificates(0);
    assert!(
        certificates.iter().any(|c| c["drive_serial"] == "STICK-1"),
        "{certificates:?}"
    );
    target.end().await;
}

/// A drive behind a RAID controller, with and without a serial number in the BMC's list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drive_that_only_the_bmc_lists_sends_the_node_to_quarantine() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target::start(dir.path(), machines(2), |_, _| {}).await;
    for (index, serial) in [(0, "BEHIND-RAID-1"), (1, "")] {
        target.fleet.node(index).list_drive(serial, 4_000_787_030_016);
        assert_eq!(target.erased_by(index, &["release"]), "quarantined", "{serial:?}");
        let named = match serial {
            "" => "drive 1 (no serial number) of 4000787030016 bytes",
            _ => "drive 1 (serial number BEHIND-RAID-1) of 4000787030016 bytes",
        };
        target
            .is_refused(
                index,
                &[named, "recorded by the BMC", "not reported", "RAID controller"],
            )
            .await;
    }
    // The operator's decision is on the certificate.
    target.is_erased(0, &["readmit", "--accept-drives"]);
    let certificates = target.certificates(0);
    assert!(
        certificates
            .iter()
            .all(|c| has(c, "not erased: drive 1 (serial number BEHIND-RAID-1)")),
        "{certificates:?}"
    );
    target.end().await;
}

/// Memory of host and GPUs keeps its data while the machine has power: a certificate needs two readings of the BMC that
/// report off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_never_reads_as_off_is_not_erased_and_a_certificate_states_the_time_without_power() {
    let dir = tempfile::tempdir().expect("a folder");
    let policy = ", power_off_s: 2, bmc_s: 8";
    let target = Target::start_with(dir.path(), machines(2), policy, |_, _| {}).await;
    let id = target.fleet.node(1).name();
    target.fleet.node(1).report_power_on(true);
    target.site.cli(["node", "release", "--yes", &id]);

    target.is_erased(0, &["release"]);
    let certificates = target.certificates(0);
    assert_eq!(certificates.len(), 1, "{certificates:?}");
    let memory = evidence(&certificates[0])[0];
    let seconds = memory
        .strip_prefix("memory: powered off for ")
        .and_then(|rest| rest.split_once(" s, read from the BMC"));
    let seconds: u64 = seconds
        .and_then(|(seconds, _)| seconds.parse().ok())
        .expect("a time without power");
    assert!(seconds >= 2, "{memory}");
    target
        .site
        .cli(["node", "certificates", "--verify", &target.fleet.node(0).name()]);

    assert_eq!(
        target.site.until(&id, &["available", "quarantined"], TEST_LIMIT).await,
        "quarantined"
    );
    let reason = target.site.reason(&id);
    assert!(reason.contains("power-off failed"), "{reason}");
    assert_eq!(target.certificates(1), [] as [Value; 0]);
    assert!(target.fleet.node(1).installed().is_some(), "nothing was erased");
    target.end().await;
}
