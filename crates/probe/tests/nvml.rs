//! The driver's library: absent, not started, hanging, or with fewer calls than the newest one.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use std::time::{Duration, Instant};

use rackwright_health::passive::State;
use support::{Node, fake_nvml, finding, not_passed};

const GPU_CHECKS: [&str; 4] = ["gpu-presence", "gpu-memory", "gpu-clocks", "gpu-nvlink"];

/// The reason why the GPUs of a node are not proven: the same for all checks of GPUs.
fn not_proven(node: &Node, library: &str, deadline_ms: u32) -> String {
    let facts = node.probe(library, deadline_ms);
    let reasons = GPU_CHECKS.map(|check| match finding(&facts, check).state {
        State::NotProven(why) => why,
        other => panic!("{check}: {other:?}"),
    });
    assert!(reasons.iter().all(|why| *why == reasons[0]), "{reasons:?}");
    reasons[0].clone()
}

#[test]
fn without_the_library_gpus_are_not_proven() {
    let why = not_proven(&Node::healthy(), "libnvidia-ml-absent.so.1", 60_000);
    assert!(why.starts_with("libnvidia-ml-absent.so.1 cannot be loaded: "), "{why}");
}

#[test]
fn a_library_that_does_not_start_is_quoted() {
    let dir = tempfile::tempdir().unwrap();
    let library = fake_nvml(dir.path());
    for (code, words) in [("9", "Driver Not Loaded (NVML error 9)"), ("18", "version mismatch")] {
        let mut node = Node::healthy();
        node.nvml(&format!("- init {code}"));
        let why = not_proven(&node, &library, 60_000);
        assert!(why.contains("does not start") && why.contains(words), "{why}");
    }
}

#[test]
fn a_driver_that_hangs_is_given_up_and_the_other_sections_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let library = fake_nvml(dir.path());
    let mut node = Node::healthy();
    node.nvml("- hang 1");
    let began = Instant::now();
    let why = not_proven(&node, &library, 2000);
    assert!(
        why.contains("did not end within 2000 ms") && why.contains("a driver hangs"),
        "{why}"
    );
    assert!(began.elapsed() < Duration::from_secs(60), "the driver was awaited");
    let facts = node.probe(&library, 2000);
    assert_eq!(not_passed(&facts).len(), GPU_CHECKS.len(), "{:#?}", not_passed(&facts));
}

#[test]
fn values_that_the_driver_does_not_report_prove_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let library = fake_nvml(dir.path());
    for (line, check, words) in [
        ("1 ecc_uncorrected unsupported", "gpu-memory", "0000:43:00.0"),
        ("0 clock_reasons unsupported", "gpu-clocks", "0000:1b:00.0"),
    ] {
        let mut node = Node::healthy();
        node.nvml(line);
        match finding(&node.probe(&library, 60_000), check).state {
            State::NotProven(why) => assert!(why.contains(words), "{why}"),
            other => panic!("{check}: {other:?}"),
        }
    }
}

#[test]
fn an_idle_gpu_may_lower_the_speed_of_its_link() {
    let dir = tempfile::tempdir().unwrap();
    let library = fake_nvml(dir.path());
    let mut node = Node::healthy();
    node.pci("0000:1b:00.0", "current_link_speed", "2.5 GT/s PCIe");
    let link = |node: &Node, library: &str| finding(&node.probe(library, 60_000), "pcie-links");
    assert_eq!(link(&node, &library).state, State::Failed);
    assert!(matches!(
        link(&node, "libnvidia-ml-absent.so.1").state,
        State::NotProven(_)
    ));
    node.nvml("0 pstate 8");
    let idle = link(&node, &library);
    assert_eq!(idle.state, State::Passed);
    assert!(
        idle.measured.contains("1 GPU idle at a lower speed"),
        "{}",
        idle.measured
    );
}

#[test]
fn a_link_of_unknown_speed_is_not_proven_and_one_that_is_down_is_a_fault() {
    let dir = tempfile::tempdir().unwrap();
    let library = fake_nvml(dir.path());
    let node = Node::healthy();
    let links = || finding(&node.probe(&library, 60_000), "pcie-links");
    node.pci("0000:18:00.0", "current_link_speed", "Unknown");
    let why = "the kernel states no width or speed for 0000:18:00.0".to_owned();
    assert_eq!(links().state, State::NotProven(why));
    node.pci("0000:18:00.0", "current_link_width", "0");
    let down = links();
    assert_eq!(down.state, State::Failed);
    assert_eq!(down.faults[0].words, "PCIe link at x0 of unknown speed of x16 32 GT/s");
}

#[test]
fn a_product_without_figures_is_not_proven_and_one_without_nvlink_is_not_asked() {
    let dir = tempfile::tempdir().unwrap();
    let library = fake_nvml(dir.path());
    let links = |name: &str| {
        let mut node = Node::healthy();
        node.nvml(&format!("0 name {name}"));
        node.nvml(&format!("1 name {name}"));
        node.nvml("0 links 0");
        node.nvml("1 links 0");
        finding(&node.probe(&library, 60_000), "gpu-nvlink").state
    };
    assert!(matches!(links("NVIDIA Z9"), State::NotProven(why) if why.contains("NVIDIA Z9")));
    assert!(matches!(links("NVIDIA L40S"), State::NotApplicable(_)));
}

#[test]
fn a_node_without_gpus_and_an_emulated_one_have_nothing_to_prove() {
    let node = Node::healthy();
    for address in ["0000:1b:00.0", "0000:43:00.0"] {
        std::fs::remove_file(node.at("sys/bus/pci/devices").join(address)).unwrap();
    }
    let facts = node.probe("libnvidia-ml-absent.so.1", 60_000);
    for check in GPU_CHECKS {
        assert_eq!(
            finding(&facts, check).state,
            State::NotApplicable("no GPU".into()),
            "{check}"
        );
    }
    for address in ["0000:41:00.0", "0000:42:00.0", "0000:18:00.0", "0000:40:00.0"] {
        node.pci(address, "vendor", "0x1b36");
    }
    let facts = node.probe("libnvidia-ml-absent.so.1", 60_000);
    let links = finding(&facts, "pcie-links");
    assert!(matches!(links.state, State::NotApplicable(_)), "{links:?}");
    assert_eq!(links.measured, "4 emulated devices");
    assert!(matches!(
        finding(&facts, "readiness-acs").state,
        State::NotApplicable(_)
    ));
}

#[test]
fn a_log_that_cannot_be_read_proves_nothing() {
    let node = Node::healthy();
    std::fs::remove_file(node.at("dev/kmsg")).unwrap();
    let log = finding(&node.probe("libnvidia-ml-absent.so.1", 60_000), "kernel-log");
    assert!(
        matches!(&log.state, State::NotProven(why) if why.contains("/dev/kmsg")),
        "{log:?}"
    );
}
