//! GPUs by PCI id. The ramdisk loads no GPU driver. The table names the models of supported machines, from the PCI ID
//! database (pci-ids.ucw.cz). A GPU outside the table has an empty model.

use rackwright_api::v1::{Gpu, PciDevice};

const NVIDIA: u32 = 0x10DE;
const AMD: u32 = 0x1002;
/// VGA controller, 3D controller, other display controller, processing accelerator (AMD Instinct).
const CLASSES: [u32; 4] = [0x0300, 0x0302, 0x0380, 0x1200];

const MODELS: [(u32, u32, &str); 30] = [
    (NVIDIA, 0x1DB1, "Tesla V100 SXM2 16GB"),
    (NVIDIA, 0x1DB5, "Tesla V100 SXM2 32GB"),
    (NVIDIA, 0x1DB6, "Tesla V100 PCIe 32GB"),
    (NVIDIA, 0x1EB8, "Tesla T4"),
    (NVIDIA, 0x20B0, "A100 SXM4 40GB"),
    (NVIDIA, 0x20B2, "A100 SXM4 80GB"),
    (NVIDIA, 0x20B5, "A100 PCIe 80GB"),
    (NVIDIA, 0x20F1, "A100 PCIe 40GB"),
    (NVIDIA, 0x20B7, "A30 PCIe"),
    (NVIDIA, 0x2235, "A40"),
    (NVIDIA, 0x2236, "A10"),
    (NVIDIA, 0x26B5, "L40"),
    (NVIDIA, 0x26B9, "L40S"),
    (NVIDIA, 0x27B8, "L4"),
    (NVIDIA, 0x2302, "GH100"),
    (NVIDIA, 0x2321, "H100L 94GB"),
    (NVIDIA, 0x2322, "H800 PCIe"),
    (NVIDIA, 0x2324, "H800"),
    (NVIDIA, 0x2329, "H20"),
    (NVIDIA, 0x2330, "H100 SXM5 80GB"),
    (NVIDIA, 0x2331, "H100 PCIe"),
    (NVIDIA, 0x2335, "H200 SXM 141GB"),
    (NVIDIA, 0x2339, "H100"),
    (NVIDIA, 0x233B, "H200 NVL"),
    (NVIDIA, 0x2342, "GH200 120GB / 480GB"),
    (NVIDIA, 0x2901, "B200"),
    (NVIDIA, 0x2941, "GB200"),
    (NVIDIA, 0x3182, "B300 SXM6 AC"),
    (AMD, 0x740C, "Instinct MI250X/MI250"),
    (AMD, 0x74A1, "Instinct MI300X"),
];

/// The GPUs among the PCI devices.
pub fn gpus(devices: &[PciDevice]) -> Vec<Gpu> {
    let is_gpu =
        |device: &&PciDevice| [NVIDIA, AMD].contains(&device.vendor_id) && CLASSES.contains(&(device.class_code >> 8));
    let gpu = |device: &PciDevice| {
        let known = MODELS
            .iter()
            .find(|(vendor, id, _)| (*vendor, *id) == (device.vendor_id, device.device_id));
        Gpu {
            pci_address: device.address.clone(),
            vendor_id: device.vendor_id,
            device_id: device.device_id,
            model: known.map(|(.., model)| (*model).to_owned()).unwrap_or_default(),
        }
    };
    devices.iter().filter(is_gpu).map(gpu).collect()
}
