//! Faults while machines boot and agents work, and the control plane's reactions.

use std::path::Path;
use std::sync::Arc;

use rackwright_sim::fleet::{BootFiles, BootMethod, BootSource, Fleet, FleetConfig, ImageData, Phase, Script};
use rackwright_sim::install_crypto;

use super::{Plane, Seen, TEST_LIMIT, image};

/// A fault of the script, and the number of boots that a machine with this fault needs in the test.
type Case = (&'static str, u32);

/// A machine for each case. Their time is fast, so that the pauses of firmware and ramdisk are short.
fn with_faults(cases: &[Case]) -> FleetConfig {
    let line = |(node, (fault, _)): (usize, &Case)| format!("  - {{nodes: [{node}], {fault}}}\n");
    let yaml: String = cases.iter().enumerate().map(line).collect();
    let faults = Script::parse("faults.yaml", &format!("faults:\n{yaml}"), cases.len());
    FleetConfig {
        nodes: cases.len(),
        speed: 20.0,
        faults: faults.unwrap_or_else(|error| panic!("{error}")),
        ..FleetConfig::default()
    }
}

fn check(fleet: &Fleet, cases: &[Case]) {
    for (index, (fault, boots)) in cases.iter().enumerate() {
        let node = fleet.node(index);
        assert!(node.faults_triggered() > 0, "{fault} did not strike");
        assert_eq!(node.view().boots, *boots, "boots with {fault}");
    }
}

async fn end(plane: Plane, fleet: Fleet) {
    // Stopped first: the control plane logs out of each BMC.
    plane.site.stop().await;
    fleet.stop().await;
}

/// Machines that are inspected and then imaged despite their faults.
async fn imaged(cases: &[Case], config: FleetConfig) {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    let file = image(dir.path()).display().to_string();
    plane.site.cli(["image", "add", "disk", "--file", &file]);
    for index in 0..cases.len() {
        let id = fleet.node(index).name();
        plane.site.cli(["node", "deploy", &id, "--image", "disk"]);
    }
    for (index, (fault, _)) in cases.iter().enumerate() {
        let node = fleet.node(index);
        let state = plane
            .site
            .until(&node.name(), &["rebooting", "failed"], TEST_LIMIT)
            .await;
        assert_eq!(state, "rebooting", "{fault}: {}", plane.site.reason(&node.name()));
        node.wait_for(|view| view.phase == Phase::Up(BootSource::Disk)).await;
    }
    check(&fleet, cases);
    end(plane, fleet).await;
}

/// Firmware repeats a request or begins its boot order anew; in both cases one boot is enough for the inspection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_inspected_though_boot_requests_fail() {
    install_crypto();
    let cases: [Case; 5] = [
        ("fault: dhcp-lost, at: 1", 1),
        ("fault: dhcp-lost, lost: answer, at: 2", 1),
        ("fault: dhcp-lost, probability: 0.6", 1),
        ("fault: boot-http-error, path: /boot/v1/script, at: 1", 1),
        (
            "fault: boot-http-error, path: /boot/v1/script, lost: answer, at: 1, times: 2",
            1,
        ),
    ];
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let fleet = plane.machines(with_faults(&cases), Arc::new(Seen::default())).await;
    check(&fleet, &cases);
    end(plane, fleet).await;
}

/// Firmware's own part of the boot: the first stage by TFTP, iPXE's DHCP, the script, kernel and ramdisk by HTTP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simulated_firmware_boots_from_its_first_message_despite_lost_packets() {
    install_crypto();
    let cases: [Case; 5] = [
        ("fault: bmc-slow, delay_s: 0.1, at: 1", 1),
        ("fault: tftp-lost, at: 1, times: 2", 1),
        ("fault: tftp-lost, lost: answer, at: 3, times: 2", 1),
        ("fault: boot-http-error, path: /boot/v1/files, at: 1", 1),
        ("fault: boot-http-error, path: /boot/v1/files, lost: answer, at: 2", 1),
    ];
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let config = FleetConfig {
        boot_method: BootMethod::Pxe,
        boot_files: BootFiles::Fetch,
        ..with_faults(&cases)
    };
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    check(&fleet, &cases);
    for index in 0..cases.len() {
        let mac = fleet.node(index).mac();
        for stage in [
            "PXE firmware UEFI x86-64",
            "snponly.efi by TFTP: 110000 bytes",
            "vmlinuz",
            "initrd",
        ] {
            plane.site.until_traced(&mac, stage, TEST_LIMIT).await;
        }
    }
    end(plane, fleet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_boots_its_first_stage_by_http() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start_with(dir.path(), "uefi-http", "").await;
    let config = FleetConfig {
        boot_method: BootMethod::Pxe,
        ..FleetConfig::default()
    };
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    let mac = fleet.node(0).mac();
    for stage in ["HTTP firmware UEFI HTTP x86-64", "ipxe.efi by HTTP", "iPXE script"] {
        plane.site.until_traced(&mac, stage, TEST_LIMIT).await;
    }
    end(plane, fleet).await;
}

/// One boot for the inspection, one for the image and one into it, and one more if the agent did not come back. A machine
/// that resets itself after its agent's registration looks like a second machine: that boot does not count either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_imaged_although_agents_and_connections_fail() {
    let cases: [Case; 5] = [
        ("fault: agent-crash, during: write, at: 1", 3),
        ("fault: agent-crash, during: write, then: stays-dead, at: 1", 4),
        ("fault: agent-crash, during: write, then: panics, at: 1", 5),
        ("fault: agent-crash, during: heartbeat, at: 2", 3),
        ("fault: image-cut, after_bytes: 1000, at: 1, times: 2", 3),
    ];
    imaged(&cases, with_faults(&cases)).await;
}

/// The whole image is transferred over the network, and the transfer resumes after a broken connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_imaged_by_a_transfer_of_the_whole_image() {
    let cases: [Case; 2] = [
        ("fault: image-cut, after_bytes: 300000, at: 1, times: 4", 3),
        ("fault: agent-crash, during: write, at: 1", 3),
    ];
    let config = FleetConfig {
        image_data: ImageData::Fetch,
        ..with_faults(&cases)
    };
    imaged(&cases, config).await;
}

/// Replaces the content of each file below a folder.
fn corrupt_chunks(folder: &Path) -> usize {
    let mut done = 0;
    for entry in std::fs::read_dir(folder).expect("the folder can be read").flatten() {
        if entry.path().is_dir() {
            done += corrupt_chunks(&entry.path());
        } else {
            std::fs::write(entry.path(), "no chunk").expect("the file can be written");
            done += 1;
        }
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_does_not_boot_an_image_with_wrong_chunks() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let config = FleetConfig {
        image_data: ImageData::Fetch,
        ..FleetConfig::default()
    };
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    let file = image(dir.path()).display().to_string();
    plane.site.cli(["image", "add", "disk", "--file", &file]);
    assert!(corrupt_chunks(&dir.path().join("data/images/chunks")) > 0);
    let id = fleet.node(0).name();
    plane.site.cli(["node", "deploy", &id, "--image", "disk"]);
    plane.site.until(&id, &["failed"], TEST_LIMIT).await;
    let reason = plane.site.reason(&id);
    assert!(reason.contains("chunk"), "{reason}");
    assert!(fleet.node(0).installed().is_none());
    end(plane, fleet).await;
}

/// A silence that ends before the control plane misses the agent costs nothing; a longer one costs another boot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_imaged_though_their_agents_fall_silent() {
    let cases: [Case; 2] = [
        ("fault: heartbeat-lost, lasts_s: 40, at: 2", 3),
        ("fault: heartbeat-lost, lasts_s: 1200, at: 2", 4),
    ];
    imaged(&cases, with_faults(&cases)).await;
}

/// A drive with an unreported erase is erased again, and only then is the machine given out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_erased_though_their_agents_crash() {
    install_crypto();
    let cases: [Case; 2] = [
        ("fault: agent-crash, during: erase, at: 1", 4),
        ("fault: agent-crash, during: erase, then: stays-dead, at: 1", 5),
    ];
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let fleet = plane.machines(with_faults(&cases), Arc::new(Seen::default())).await;
    let file = image(dir.path()).display().to_string();
    plane.site.cli(["image", "add", "disk", "--file", &file]);
    let nodes = [fleet.node(0), fleet.node(1)];
    for node in &nodes {
        plane.site.cli(["node", "deploy", &node.name(), "--image", "disk"]);
    }
    for node in &nodes {
        plane.site.until(&node.name(), &["rebooting"], TEST_LIMIT).await;
        // Released before, a machine does not boot from its disk.
        node.wait_for(|view| view.phase == Phase::Up(BootSource::Disk)).await;
        plane.site.cli(["node", "release", "--yes", &node.name()]);
    }
    for node in &nodes {
        plane.site.until(&node.name(), &["available"], TEST_LIMIT).await;
        assert!(node.installed().is_none(), "{}", node.name());
    }
    check(&fleet, &cases);
    end(plane, fleet).await;
}

/// A permanent fault ends with a reason that names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_that_cannot_be_imaged_fail_with_the_reason() {
    install_crypto();
    let cases: [Case; 2] = [
        ("fault: write-errors, at: 1", 2),
        ("fault: image-cut, after_bytes: 1000", 2),
    ];
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let fleet = plane.machines(with_faults(&cases), Arc::new(Seen::default())).await;
    let file = image(dir.path()).display().to_string();
    plane.site.cli(["image", "add", "disk", "--file", &file]);
    for index in 0..cases.len() {
        plane
            .site
            .cli(["node", "deploy", &fleet.node(index).name(), "--image", "disk"]);
    }
    for (index, word) in ["Input/output error", "not fetched"].into_iter().enumerate() {
        let id = fleet.node(index).name();
        plane.site.until(&id, &["failed"], TEST_LIMIT).await;
        let reason = plane.site.reason(&id);
        assert!(reason.contains(word), "{reason}");
        assert!(fleet.node(index).installed().is_none());
    }
    check(&fleet, &cases);
    end(plane, fleet).await;
}
