//! Parts of a system: processors, memory modules and drives.

use super::view;

view!(
    /// A processor: CPU, GPU or other accelerator (`#Processor`).
    Processor
);

impl Processor {
    pub fn id(&self) -> String {
        self.0.id()
    }

    /// `ProcessorType`: `CPU`, `GPU`, `FPGA`, …
    pub fn kind(&self) -> Option<String> {
        self.0.fact(&["ProcessorType"])
    }

    pub fn manufacturer(&self) -> Option<String> {
        self.0.fact(&["Manufacturer"])
    }

    pub fn model(&self) -> Option<String> {
        self.0.fact(&["Model"])
    }

    /// `SerialNumber`.
    pub fn serial(&self) -> Option<String> {
        self.0.fact(&["SerialNumber"])
    }

    /// `TotalCores`.
    pub fn cores(&self) -> Option<u64> {
        self.0.whole(&["TotalCores"])
    }

    /// `TotalThreads`.
    pub fn threads(&self) -> Option<u64> {
        self.0.whole(&["TotalThreads"])
    }

    /// Whether the socket is filled.
    pub fn is_present(&self) -> bool {
        is_present(&self.0)
    }
}

view!(
    /// A memory module (`#Memory`).
    Memory
);

impl Memory {
    pub fn id(&self) -> String {
        self.0.id()
    }

    pub fn capacity_mib(&self) -> Option<u64> {
        self.0.whole(&["CapacityMiB"])
    }

    /// `MemoryDeviceType`: `DDR5`, `HBM3`, …
    pub fn kind(&self) -> Option<String> {
        self.0
            .fact(&["MemoryDeviceType"])
            .or_else(|| self.0.fact(&["MemoryType"]))
    }

    pub fn manufacturer(&self) -> Option<String> {
        self.0.fact(&["Manufacturer"])
    }

    pub fn part_number(&self) -> Option<String> {
        self.0.fact(&["PartNumber"])
    }

    /// `SerialNumber`.
    pub fn serial(&self) -> Option<String> {
        self.0.fact(&["SerialNumber"])
    }

    /// `DeviceLocator`, or else the label of the slot.
    pub fn locator(&self) -> Option<String> {
        self.0
            .fact(&["DeviceLocator"])
            .or_else(|| self.0.fact(&["Location", "PartLocation", "ServiceLabel"]))
    }

    /// `OperatingSpeedMhz`.
    pub fn speed_mhz(&self) -> Option<u64> {
        self.0.whole(&["OperatingSpeedMhz"])
    }

    /// Whether the slot is filled.
    pub fn is_present(&self) -> bool {
        is_present(&self.0) && self.capacity_mib() != Some(0)
    }
}

view!(
    /// A drive (`#Drive`).
    Drive
);

impl Drive {
    pub fn id(&self) -> String {
        self.0.id()
    }

    pub fn capacity_bytes(&self) -> Option<u64> {
        self.0.whole(&["CapacityBytes"])
    }

    pub fn manufacturer(&self) -> Option<String> {
        self.0.fact(&["Manufacturer"])
    }

    pub fn model(&self) -> Option<String> {
        self.0.fact(&["Model"])
    }

    /// `SerialNumber`.
    pub fn serial(&self) -> Option<String> {
        self.0.fact(&["SerialNumber"])
    }

    /// `MediaType`: `SSD`, `HDD`.
    pub fn media(&self) -> Option<String> {
        self.0.fact(&["MediaType"])
    }

    /// `Protocol`: `NVMe`, `SATA`, `SAS`.
    pub fn protocol(&self) -> Option<String> {
        self.0.fact(&["Protocol"])
    }

    /// Whether the bay is filled.
    pub fn is_present(&self) -> bool {
        is_present(&self.0)
    }
}

/// `Status.State` other than `Absent`; HPE's installed drives have no state.
fn is_present(resource: &crate::resource::Resource) -> bool {
    resource
        .text(&["Status", "State"])
        .is_none_or(|state| !state.eq_ignore_ascii_case("absent"))
}
