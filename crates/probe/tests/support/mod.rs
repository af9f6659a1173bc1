//! A healthy GPU node as a folder: two GPUs and two adapters, each pair below a bridge of its own; two drives; two memory
//! modules. And the fake library of its driver.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, dead_code)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rackwright_health::facts::Facts;
use rackwright_health::passive::{Finding, Rules, State};
use tempfile::TempDir;

/// Places of the devices, below `sys/devices`.
const DEVICES: [(&str, &str, &str, &str); 8] = [
    // Path, class, vendor, device.
    ("pci0000:15/0000:15:01.0", "0x060400", "0x8086", "0x352a"),
    ("pci0000:15/0000:15:01.0/0000:1b:00.0", "0x030200", "0x10de", "0x2330"),
    ("pci0000:15/0000:15:01.0/0000:18:00.0", "0x020700", "0x15b3", "0x1021"),
    ("pci0000:37/0000:37:01.0", "0x060400", "0x8086", "0x352a"),
    ("pci0000:37/0000:37:01.0/0000:43:00.0", "0x030200", "0x10de", "0x2330"),
    ("pci0000:37/0000:37:01.0/0000:40:00.0", "0x020700", "0x15b3", "0x1021"),
    ("pci0000:37/0000:37:02.0/0000:41:00.0", "0x010802", "0x144d", "0xa80a"),
    ("pci0000:37/0000:37:02.0/0000:42:00.0", "0x010802", "0x144d", "0xa80a"),
];

/// A node, which a test changes.
pub struct Node {
    pub root: TempDir,
    nvml: Vec<String>,
}

impl Node {
    pub fn healthy() -> Self {
        let root = tempfile::tempdir().unwrap();
        let node = Self {
            root,
            nvml: vec!["- count 2".to_owned()],
        };
        for (path, class, vendor, device) in DEVICES {
            node.device(path, class, vendor, device);
        }
        for (name, pci, guid) in [("mlx5_0", "0000:18:00.0", "1c2e"), ("mlx5_1", "0000:40:00.0", "1c3e")] {
            node.port(name, pci, guid);
        }
        for (name, pci, serial) in [
            ("nvme0", "0000:41:00.0", "S64FNN0T1"),
            ("nvme1", "0000:42:00.0", "S64FNN0T2"),
        ] {
            node.drive(name, pci, serial);
        }
        for (dimm, label) in [
            ("dimm0", "CPU_SrcID#0_MC#0_Chan#0_DIMM#0"),
            ("dimm1", "CPU_SrcID#0_MC#0_Chan#1_DIMM#0"),
        ] {
            for (file, text) in [("dimm_label", label), ("dimm_ce_count", "0"), ("dimm_ue_count", "0")] {
                node.write(&format!("sys/devices/system/edac/mc/mc0/{dimm}/{file}"), text);
            }
        }
        node.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
        node.write("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
        node.write("sys/kernel/iommu_groups/0/type", "identity\n");
        node.write("proc/uptime", "95.12 1020.31\n");
        node.write(
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max locked memory         unlimited            unlimited            bytes     \n",
        );
        node.write("dev/kmsg", "6,1,0,-;Linux version 6.8.0-45-generic\n");
        node
    }

    fn device(&self, path: &str, class: &str, vendor: &str, device: &str) {
        let address = path.rsplit('/').next().unwrap();
        let folder = format!("sys/devices/{path}");
        let numa = if path.starts_with("pci0000:15") { "0" } else { "1" };
        let (speed, width) = match class {
            "0x010802" => ("16.0 GT/s PCIe", "4"),
            _ => ("32.0 GT/s PCIe", "16"),
        };
        for (file, text) in [
            ("class", class),
            ("vendor", vendor),
            ("device", device),
            ("numa_node", numa),
            ("current_link_speed", speed),
            ("max_link_speed", speed),
            ("current_link_width", width),
            ("max_link_width", width),
            ("aer_dev_correctable", "RxErr 0\nTOTAL_ERR_COR 0\n"),
            ("aer_dev_nonfatal", "Undefined 0\nTOTAL_ERR_NONFATAL 0\n"),
            ("aer_dev_fatal", "Undefined 0\nTOTAL_ERR_FATAL 0\n"),
        ] {
            self.write(&format!("{folder}/{file}"), text);
        }
        fs::write(self.at(&format!("{folder}/config")), config(0x5000, 0)).unwrap();
        let links = self.at("sys/bus/pci/devices");
        fs::create_dir_all(&links).unwrap();
        symlink(format!("../../../devices/{path}"), links.join(address)).unwrap();
    }

    fn port(&self, name: &str, pci: &str, guid: &str) {
        let folder = format!("sys/class/infiniband/{name}");
        for (file, text) in [
            ("node_guid", "b83f:d203:00aa:1c2e"),
            ("fw_ver", "28.39.1002"),
            ("board_id", "MT_0000000838"),
            ("ports/1/gids/0", &format!("fe80:0000:0000:0000:b83f:d203:00aa:{guid}")),
            ("ports/1/state", "4: ACTIVE"),
            ("ports/1/phys_state", "5: LinkUp"),
            ("ports/1/rate", "400 Gb/sec (4X NDR)"),
            ("ports/1/link_layer", "InfiniBand"),
            ("ports/1/counters/symbol_error", "0"),
            ("ports/1/counters/link_downed", "1"),
            ("ports/1/counters/link_error_recovery", "0"),
            ("ports/1/counters/excessive_buffer_overrun_errors", "0"),
            ("ports/1/counters/local_link_integrity_errors", "0"),
        ] {
            self.write(&format!("{folder}/{file}"), text);
        }
        symlink(
            format!("../../../bus/pci/devices/{pci}"),
            self.at(&folder).join("device"),
        )
        .unwrap();
    }

    fn drive(&self, name: &str, pci: &str, serial: &str) {
        let folder = format!("sys/class/nvme/{name}");
        for (file, text) in [
            ("serial", serial),
            ("model", "SAMSUNG MZWLR3T8HCLS"),
            ("firmware_rev", "MPP92B5Q"),
            ("state", "live"),
            ("transport", "pcie"),
        ] {
            self.write(&format!("{folder}/{file}"), text);
        }
        symlink(
            format!("../../../bus/pci/devices/{pci}"),
            self.at(&folder).join("device"),
        )
        .unwrap();
        self.smart(name, 0, 0, 3);
    }

    /// The SMART log of a drive.
    pub fn smart(&self, name: &str, warning: u8, media_errors: u64, used: u8) {
        let mut page = [0; 512];
        page[0] = warning;
        page[1..3].copy_from_slice(&310_u16.to_le_bytes());
        (page[3], page[5]) = (100, used);
        page[160..168].copy_from_slice(&media_errors.to_le_bytes());
        fs::create_dir_all(self.at("dev")).unwrap();
        fs::write(self.at(&format!("dev/{name}")), page).unwrap();
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A file of a PCI device.
    pub fn pci(&self, address: &str, file: &str, text: &str) {
        let folder = fs::canonicalize(self.at("sys/bus/pci/devices").join(address)).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }

    /// The configuration space of a PCI device.
    pub fn config(&self, address: &str, control: u16, access: u16) {
        let folder = fs::canonicalize(self.at("sys/bus/pci/devices").join(address)).unwrap();
        fs::write(folder.join("config"), config(control, access)).unwrap();
    }

    /// A line of the kernel's log.
    pub fn log(&self, line: &str) {
        let path = self.at("dev/kmsg");
        let before = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{before}3,900,81234567,-;{line}\n")).unwrap();
    }

    /// A line of the fake library's file.
    pub fn nvml(&mut self, line: &str) {
        self.nvml.insert(0, line.to_owned());
    }

    /// The whole program on this node.
    pub fn probe(&self, library: &str, deadline_ms: u32) -> Facts {
        let script = self.at("nvml-script");
        fs::write(&script, self.nvml.join("\n")).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_rackwright-probe"))
            .args(["run", "--root", self.root.path().to_str().unwrap(), "--nvml", library])
            .args(["--deadline-ms", &deadline_ms.to_string()])
            .env("FAKE_NVML", script)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Facts::parse(&String::from_utf8_lossy(&output.stdout)).unwrap()
    }
}

/// PCI Express with a device control register, and access control with a control register.
fn config(control: u16, access: u16) -> Vec<u8> {
    let mut config = vec![0; 4096];
    (config[0x06], config[0x34]) = (0x10, 0x60);
    config[0x60..0x62].copy_from_slice(&[0x10, 0x00]);
    config[0x68..0x6a].copy_from_slice(&control.to_le_bytes());
    config[0x100..0x104].copy_from_slice(&(0x000d_u32 | 1 << 16).to_le_bytes());
    config[0x106..0x108].copy_from_slice(&access.to_le_bytes());
    config
}

/// Compiles the fake library into a folder.
pub fn fake_nvml(folder: &Path) -> String {
    let library = folder.join("libnvidia-ml.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nvml.c");
    let compiled = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .output()
        .expect("cc compiles the fake library; `make deps` installs it");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    library.to_str().unwrap().to_owned()
}

pub fn findings(facts: &Facts) -> Vec<Finding> {
    Rules::embedded().unwrap().judge(facts)
}

pub fn finding(facts: &Facts, check: &str) -> Finding {
    findings(facts)
        .into_iter()
        .find(|finding| finding.check == check)
        .unwrap()
}

/// `check: state` of each check that did not pass.
pub fn not_passed(facts: &Facts) -> Vec<String> {
    let all = findings(facts)
        .into_iter()
        .filter(|finding| finding.state != State::Passed);
    all.map(|finding| format!("{}: {:?} {}", finding.check, finding.state, finding.detail()))
        .collect()
}
