//! Recorded faults on a healthy node, each named to its component by the whole path: files and the driver's library, the
//! program, its output, the verdicts.
//!
//! `log_faults.txt` has the lines of logs, and their sources.

#![allow(clippy::unwrap_used)]

mod support;

use rackwright_health::passive::{PASSIVE_CHECKS, State};
use support::{Node, fake_nvml, finding, findings, not_passed};

/// A change of the healthy node.
type Change = fn(&mut Node);

/// Name, change, check, component.
const FAULTS: &[(&str, Change, &str, &str)] = &[
    // PCIe.
    (
        "a GPU's link lost lanes",
        |n| n.pci("0000:1b:00.0", "current_link_width", "8"),
        "pcie-links",
        "gpu 1650523000000",
    ),
    (
        "an adapter's link is slow",
        |n| n.pci("0000:18:00.0", "current_link_speed", "16.0 GT/s PCIe"),
        "pcie-links",
        "hca 0xb83fd20300aa1c2e",
    ),
    (
        "a drive's link lost lanes",
        |n| n.pci("0000:42:00.0", "current_link_width", "2"),
        "pcie-links",
        "nvme S64FNN0T2",
    ),
    (
        "a GPU counts fatal errors",
        |n| n.pci("0000:43:00.0", "aer_dev_fatal", "DLP 1\nTOTAL_ERR_FATAL 1\n"),
        "pcie-errors",
        "gpu 1650523000001",
    ),
    (
        "a bridge counts errors",
        |n| n.pci("0000:37:01.0", "aer_dev_nonfatal", "TLP 7\nTOTAL_ERR_NONFATAL 7\n"),
        "pcie-errors",
        "slot 0000:37:01.0",
    ),
    // Counters and states.
    (
        "a memory module counts errors",
        |n| n.write("sys/devices/system/edac/mc/mc0/dimm0/dimm_ue_count", "2"),
        "memory-errors",
        "memory-module CPU_SrcID#0_MC#0_Chan#0_DIMM#0",
    ),
    (
        "a drive is degraded",
        |n| n.smart("nvme0", 0x04, 0, 3),
        "nvme-health",
        "nvme S64FNN0T1",
    ),
    (
        "a drive has media errors",
        |n| n.smart("nvme1", 0, 12, 3),
        "nvme-health",
        "nvme S64FNN0T2",
    ),
    (
        "a drive is worn out",
        |n| n.smart("nvme1", 0, 0, 104),
        "nvme-health",
        "nvme S64FNN0T2",
    ),
    (
        "a port is down",
        |n| {
            n.write("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
            n.write("sys/class/infiniband/mlx5_1/ports/1/phys_state", "2: Polling");
        },
        "infiniband-ports",
        "cable 0xb83fd20300aa1c3e",
    ),
    (
        "a port is not initialised",
        |n| n.write("sys/class/infiniband/mlx5_0/ports/1/state", "2: INIT"),
        "infiniband-ports",
        "hca 0xb83fd20300aa1c2e",
    ),
    (
        "a port runs at a lower rate",
        |n| n.write("sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (2X NDR)"),
        "infiniband-ports",
        "cable 0xb83fd20300aa1c2e",
    ),
    (
        "a port counts symbol errors",
        |n| n.write("sys/class/infiniband/mlx5_1/ports/1/counters/symbol_error", "65535"),
        "infiniband-ports",
        "cable 0xb83fd20300aa1c3e",
    ),
    (
        "a link goes down again and again",
        |n| n.write("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "9"),
        "infiniband-ports",
        "cable 0xb83fd20300aa1c2e",
    ),
    // The driver's library.
    (
        "a GPU is not listed",
        |n| n.nvml("- count 1"),
        "gpu-presence",
        "gpu 0000:43:00.0",
    ),
    (
        "a GPU is lost",
        |n| n.nvml("1 lost 1"),
        "gpu-presence",
        "gpu 0000:43:00.0",
    ),
    (
        "memory errors",
        |n| n.nvml("0 ecc_uncorrected 3"),
        "gpu-memory",
        "gpu-memory 1650523000000",
    ),
    (
        "a pending remapping",
        |n| n.nvml("1 remap_pending 1"),
        "gpu-memory",
        "gpu-memory 1650523000001",
    ),
    (
        "a failed remapping",
        |n| n.nvml("1 remap_failed 1"),
        "gpu-memory",
        "gpu-memory 1650523000001",
    ),
    (
        "the spare rows are used up",
        |n| n.nvml("0 remap_uncorrected 512"),
        "gpu-memory",
        "gpu-memory 1650523000000",
    ),
    (
        "a GPU is too hot",
        |n| n.nvml("0 clock_reasons 0x40"),
        "gpu-clocks",
        "gpu 1650523000000",
    ),
    (
        "the power supply brakes",
        |n| n.nvml("1 clock_reasons 0x80"),
        "gpu-clocks",
        "system power supply",
    ),
    (
        "a power limit is set",
        |n| n.nvml("1 power_limit 500000"),
        "gpu-clocks",
        "gpu 1650523000001",
    ),
    (
        "an NVLink is down",
        |n| n.nvml("0 link_7 0"),
        "gpu-nvlink",
        "nvlink 1650523000000 link 7",
    ),
    (
        "an NVLink counts errors",
        |n| n.nvml("1 errors_17 42"),
        "gpu-nvlink",
        "nvlink 1650523000001 link 17",
    ),
    (
        "a GPU has too few links",
        |n| n.nvml("1 links 12"),
        "gpu-nvlink",
        "gpu 1650523000001",
    ),
];

/// Lines of the kernel's log: name, component, line.
const LOG_FAULTS: &str = include_str!("log_faults.txt");

/// Settings: name, change, check, words of the remedy.
const SETTINGS: &[(&str, Change, &str, &str)] = &[
    (
        "translation by the IOMMU",
        |n| n.write("sys/kernel/iommu_groups/3/type", "DMA-FQ\n"),
        "readiness-iommu",
        "iommu=pt",
    ),
    (
        "redirects of a bridge",
        |n| n.config("0000:15:01.0", 0x5000, 0x001d),
        "readiness-acs",
        "setpci -s 0000:15:01.0 ECAP_ACS+6.w",
    ),
    (
        "small read requests",
        |n| n.config("0000:40:00.0", 0x2000, 0),
        "readiness-read-request",
        "setpci -s 0000:40:00.0 CAP_EXP+8.w",
    ),
    (
        "little locked memory",
        |n| {
            n.write(
                "proc/self/limits",
                "Max locked memory         8388608              8388608              bytes\n",
            )
        },
        "readiness-memlock",
        "memlock unlimited",
    ),
    (
        "a slow governor",
        |n| n.write("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave"),
        "readiness-governor",
        "cpupower frequency-set -g performance",
    ),
    (
        "a GPU without a near adapter",
        |n| n.pci("0000:40:00.0", "numa_node", "0"),
        "readiness-numa",
        "compare the slots",
    ),
];

#[test]
fn a_healthy_node_passes_every_check() {
    let dir = tempfile::tempdir().unwrap();
    let facts = Node::healthy().probe(&fake_nvml(dir.path()), 60_000);
    assert!(not_passed(&facts).is_empty(), "{:#?}", not_passed(&facts));
    let checks: Vec<&str> = findings(&facts).iter().map(|finding| finding.check).collect();
    assert_eq!(checks, PASSIVE_CHECKS);
}

/// What a node with a fault is wrongly judged as. `None`: only the wanted component is named, in the wanted check.
fn wrong(node: &Node, library: &str, check: &str, component: &str) -> Option<String> {
    let facts = node.probe(library, 60_000);
    let found = findings(&facts);
    let failed = found.iter().filter(|finding| finding.state == State::Failed);
    let faults: Vec<_> = failed
        .flat_map(|finding| finding.faults.iter().map(|fault| (finding.check, fault)))
        .collect();
    assert!(
        faults
            .iter()
            .all(|(_, fault)| !fault.remedy.is_empty() && !fault.words.is_empty())
    );
    let named: Vec<String> = faults
        .iter()
        .map(|(check, fault)| format!("{check} {}", fault.component))
        .collect();
    let wanted = format!("{check} {component}");
    (named != [wanted.as_str()]).then(|| format!("{named:?} instead of {wanted}: {:?}", not_passed(&facts)))
}

#[test]
fn every_recorded_fault_is_named_to_its_component() {
    let dir = tempfile::tempdir().unwrap();
    let library = fake_nvml(dir.path());
    let mut all = Vec::new();
    for (name, change, check, component) in FAULTS {
        let mut node = Node::healthy();
        change(&mut node);
        all.push((*name, wrong(&node, &library, check, component)));
    }
    let lines = LOG_FAULTS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let mut fields = line.splitn(3, " | ");
        let mut field = || fields.next().unwrap();
        let (name, component, line) = (field(), field(), field());
        let node = Node::healthy();
        node.log(line);
        all.push((name, wrong(&node, &library, "kernel-log", component)));
    }
    assert!(all.len() >= 40, "{}", all.len());
    let wrong: Vec<_> = all.into_iter().filter(|(_, wrong)| wrong.is_some()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_setting_that_is_not_ready_fails_with_its_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let library = fake_nvml(dir.path());
    for (name, change, check, remedy) in SETTINGS {
        let mut node = Node::healthy();
        change(&mut node);
        let facts = node.probe(&library, 60_000);
        assert_eq!(not_passed(&facts).len(), 1, "{name}: {:?}", not_passed(&facts));
        let found = finding(&facts, check);
        assert!(found.detail().contains(remedy), "{name}: {found:?}");
    }
}

#[test]
fn lines_of_programs_and_harmless_lines_speak_against_no_component() {
    let dir = tempfile::tempdir().unwrap();
    let library = fake_nvml(dir.path());
    let node = Node::healthy();
    for line in [
        "NVRM: Xid (PCI:0000:1b:00): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC2",
        "NVRM: Xid (PCI:0000:1b:00): 13, pid=2519562, name=python3, Graphics Exception: ChID 000c, Class 0000cbc0",
        "NVRM: Xid (PCI:0000:43:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x00000000)",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Non-fatal, Link 55 Minion Link DLREQ interrupt",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Severity 1 Engine instance 55 Sub-engine instance 00",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1 offset:0x0 grain:32)",
        "mce: [Hardware Error]: Machine check events logged",
        "pcieport 0000:15:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2)",
        "nvme nvme0: 32/0/0 default/read/poll queues",
    ] {
        node.log(line);
    }
    let facts = node.probe(&library, 60_000);
    assert!(not_passed(&facts).is_empty(), "{:#?}", not_passed(&facts));
    assert!(finding(&facts, "kernel-log").measured.contains("2 of programs"));
}
