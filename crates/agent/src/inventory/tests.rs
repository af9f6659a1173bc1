//! A fixture machine with two GPUs and an HCA, an empty tree, and the machine that runs the tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::drives::block::BlockDrives;
use crate::drives::file::FileDrives;

fn put(base: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = base.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

const CPUINFO: &str = "processor\t: 0\nphysical id\t: 0\ncore id\t\t: 0\nmodel name\t: Xeon 8480C\nmicrocode\t: 0x2b0004b1\ncpu MHz\t\t: 2000.5\n\n\
processor\t: 1\nphysical id\t: 0\ncore id\t\t: 0\nmodel name\t: Xeon 8480C\n\n\
processor\t: 2\nphysical id\t: 1\ncore id\t\t: 0\nmodel name\t: Xeon 8480C\nmicrocode\t: 0x2b0004b1\n\n";

const PROC: &[(&str, &str)] = &[
    ("cpuinfo", CPUINFO),
    ("meminfo", "MemTotal:       2113439764 kB\nMemFree: 1 kB\n"),
    ("sys/kernel/osrelease", "6.1.0-41-amd64\n"),
];

const SYS: &[(&str, &str)] = &[
    ("class/dmi/id/product_uuid", "AABBCCDD-0011-2233-4455-66778899AABB\n"),
    ("class/dmi/id/sys_vendor", "Supermicro\n"),
    ("class/dmi/id/bios_version", "2.1\n"),
    ("devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3800000\n"),
    ("devices/system/node/node0/cpulist", "0-1\n"),
    (
        "devices/system/node/node0/meminfo",
        "Node 0 MemTotal:       1048576 kB\n",
    ),
    ("devices/system/node/node10/cpulist", "2\n"),
    ("devices/system/node/node2/cpulist", "\n"),
    ("bus/pci/devices/0000:1b:00.0/vendor", "0x10de\n"),
    ("bus/pci/devices/0000:1b:00.0/device", "0x2330\n"),
    ("bus/pci/devices/0000:1b:00.0/class", "0x030200\n"),
    ("bus/pci/devices/0000:1b:00.0/current_link_speed", "32.0 GT/s PCIe\n"),
    ("bus/pci/devices/0000:1b:00.0/current_link_width", "16\n"),
    ("bus/pci/devices/0000:1b:00.0/max_link_speed", "32.0 GT/s PCIe\n"),
    ("bus/pci/devices/0000:1b:00.0/max_link_width", "16\n"),
    ("bus/pci/devices/0000:1b:00.0/numa_node", "0\n"),
    ("bus/pci/devices/0000:05:00.0/vendor", "0x1002\n"),
    ("bus/pci/devices/0000:05:00.0/device", "0x74a1\n"),
    ("bus/pci/devices/0000:05:00.0/class", "0x120000\n"),
    ("bus/pci/devices/0000:05:00.0/current_link_speed", "Unknown\n"),
    ("bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n"),
    ("bus/pci/devices/0000:00:1f.0/class", "0x060100\n"),
    ("bus/pci/drivers/nvidia/x", ""),
    (
        "devices/pci0000:15/0000:17:00.0/infiniband/mlx5_0/node_guid",
        "946d:ae03:0011:2233\n",
    ),
    (
        "devices/pci0000:15/0000:17:00.0/infiniband/mlx5_0/fw_ver",
        "28.39.1002\n",
    ),
    (
        "devices/pci0000:15/0000:17:00.0/infiniband/mlx5_0/board_id",
        "MT_0000000838\n",
    ),
    (
        "devices/pci0000:15/0000:17:00.0/infiniband/mlx5_0/ports/1/state",
        "4: ACTIVE\n",
    ),
    (
        "devices/pci0000:15/0000:17:00.0/infiniband/mlx5_0/ports/1/phys_state",
        "5: LinkUp\n",
    ),
    (
        "devices/pci0000:15/0000:17:00.0/infiniband/mlx5_0/ports/1/rate",
        "400 Gb/sec (4X NDR)\n",
    ),
    (
        "devices/pci0000:15/0000:17:00.0/infiniband/mlx5_0/ports/1/lid",
        "0x1a\n",
    ),
    (
        "devices/pci0000:15/0000:17:00.0/infiniband/mlx5_0/ports/1/link_layer",
        "InfiniBand\n",
    ),
    (
        "devices/pci0000:15/0000:17:00.0/infiniband/mlx5_0/ports/1/gids/0",
        "fe80:0000:0000:0000:946d:ae03:0011:2234\n",
    ),
    (
        "devices/pci0000:00/0000:00:03.0/virtio0/net/eth9/address",
        "52:54:00:AA:BB:CC\n",
    ),
    ("devices/pci0000:00/0000:00:03.0/virtio0/net/eth9/type", "1\n"),
    ("devices/pci0000:00/0000:00:03.0/virtio0/net/eth9/carrier", "1\n"),
    ("devices/pci0000:00/0000:00:03.0/virtio0/net/eth9/speed", "-1\n"),
    ("devices/virtual/net/lo/type", "772\n"),
    ("class/tpm/tpm0/tpm_version_major", "2\n"),
];

/// A node with a GPU of each kind, an HCA and a virtio NIC.
fn gpu_node() -> Inventory {
    let dir = tempfile::tempdir().unwrap();
    let root = SysRoot::below(dir.path());
    put(&root.proc, PROC);
    put(&root.sys, SYS);
    let sys = &root.sys;
    for folder in ["class/infiniband", "class/net"] {
        fs::create_dir_all(sys.join(folder)).unwrap();
    }
    symlink(
        sys.join("devices/pci0000:15/0000:17:00.0/infiniband/mlx5_0"),
        sys.join("class/infiniband/mlx5_0"),
    )
    .unwrap();
    symlink(
        sys.join("devices/pci0000:00/0000:00:03.0/virtio0/net/eth9"),
        sys.join("class/net/eth9"),
    )
    .unwrap();
    symlink(
        "../..",
        sys.join("devices/pci0000:00/0000:00:03.0/virtio0/net/eth9/device"),
    )
    .unwrap();
    symlink(sys.join("devices/virtual/net/lo"), sys.join("class/net/lo")).unwrap();
    symlink("../../drivers/nvidia", sys.join("bus/pci/devices/0000:1b:00.0/driver")).unwrap();
    read(&root, &FileDrives::default())
}

#[test]
fn system_processors_and_memory() {
    let inventory = gpu_node();
    let dmi = inventory.dmi.unwrap();
    assert_eq!(
        (dmi.uuid.as_str(), dmi.system_vendor.as_str()),
        ("aabbccdd-0011-2233-4455-66778899aabb", "Supermicro")
    );
    let cpus: Vec<_> = inventory
        .cpus
        .iter()
        .map(|c| (c.socket, c.cores, c.threads, c.max_mhz))
        .collect();
    assert_eq!(cpus, [(0, 1, 2, 3800), (1, 1, 1, 0)]);
    let nodes: Vec<_> = inventory
        .numa_nodes
        .iter()
        .map(|n| (n.id, n.cpu_list.as_str(), n.memory_bytes))
        .collect();
    assert_eq!(nodes, [(0, "0-1", 1 << 30), (2, "", 0), (10, "2", 0)]);
    assert_eq!(inventory.memory_bytes, 2_113_439_764 * 1024);
    assert_eq!(inventory.tpm.unwrap().major_version, 2);
    assert_eq!(
        (inventory.boot_mode.as_str(), inventory.kernel_release.as_str()),
        ("bios", "6.1.0-41-amd64")
    );
    assert_eq!(inventory.firmware_versions.get("bios").map(String::as_str), Some("2.1"));
    assert_eq!(
        inventory.firmware_versions.get("hca mlx5_0").map(String::as_str),
        Some("28.39.1002")
    );
}

#[test]
fn gpus_and_links() {
    let inventory = gpu_node();
    let gpus: Vec<_> = inventory
        .gpus
        .iter()
        .map(|g| (g.pci_address.as_str(), g.model.as_str()))
        .collect();
    assert_eq!(
        gpus,
        [("0000:05:00.0", "Instinct MI300X"), ("0000:1b:00.0", "H100 SXM5 80GB")]
    );
    let h100 = inventory
        .pci_devices
        .iter()
        .find(|d| d.address == "0000:1b:00.0")
        .unwrap();
    assert_eq!(
        (h100.link_speed.as_str(), h100.link_width, h100.driver.as_str()),
        ("32.0 GT/s PCIe", 16, "nvidia")
    );
    assert_eq!(
        (
            inventory.pci_devices[1].link_speed.as_str(),
            inventory.pci_devices[1].numa_node
        ),
        ("", -1)
    );
}

#[test]
fn adapters_and_interfaces() {
    let inventory = gpu_node();
    let [hca] = &inventory.hcas[..] else {
        panic!("{:?}", inventory.hcas)
    };
    assert_eq!(
        (hca.pci_address.as_str(), hca.node_guid.as_str()),
        ("0000:17:00.0", "946d:ae03:0011:2233")
    );
    let port = &hca.ports[0];
    assert_eq!(
        (port.state.as_str(), port.physical_state.as_str(), port.lid),
        ("ACTIVE", "LinkUp", 26)
    );
    assert_eq!(port.port_guid, "946d:ae03:0011:2234");
    let [nic] = &inventory.nics[..] else {
        panic!("{:?}", inventory.nics)
    };
    assert_eq!(
        (nic.name.as_str(), nic.mac.as_str(), nic.speed_mbps),
        ("eth9", "52:54:00:aa:bb:cc", 0)
    );
    assert_eq!((nic.pci_address.as_str(), nic.link_up), ("0000:00:03.0", true));
}

#[test]
fn an_empty_tree_reads_as_an_empty_inventory() {
    let dir = tempfile::tempdir().unwrap();
    let root = SysRoot::below(dir.path());
    let inventory = read(&root, &BlockDrives::new(root.clone()));
    assert!(inventory.cpus.is_empty() && inventory.drives.is_empty() && inventory.nics.is_empty());
    assert_eq!(inventory.boot_mode, "bios");
}

#[test]
fn this_machine() {
    let root = SysRoot::real();
    // Drives are listed but not opened: a test must not touch the drives of its own machine.
    let listed = crate::drives::sysfs::list(&root);
    let inventory = read(&root, &FileDrives::default());
    assert!(inventory.memory_bytes > 0 && !inventory.cpus.is_empty() && !inventory.kernel_release.is_empty());
    assert!(
        inventory
            .cpus
            .iter()
            .all(|cpu| cpu.threads >= cpu.cores && cpu.cores > 0)
    );
    assert!(listed.iter().all(|facts| facts.drive.size_bytes > 0));
}
