//! What can be at fault in a node.

use std::fmt;

/// The kind of a component. The order is that of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Gpu,
    /// The memory of a GPU, which is replaced with its GPU.
    GpuMemory,
    /// A link between a GPU and another GPU or an NVLink switch.
    NvLink,
    /// An NVLink switch.
    NvSwitch,
    /// An InfiniBand or RoCE adapter.
    Hca,
    /// The cable of an adapter's port, with the transceivers.
    Cable,
    /// An NVMe drive.
    Nvme,
    /// A memory module of the host.
    MemoryModule,
    /// A processor.
    Cpu,
    /// A PCIe slot with what is plugged into it.
    Slot,
    /// The installed system: drivers and settings.
    System,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Gpu,
        Self::GpuMemory,
        Self::NvLink,
        Self::NvSwitch,
        Self::Hca,
        Self::Cable,
        Self::Nvme,
        Self::MemoryModule,
        Self::Cpu,
        Self::Slot,
        Self::System,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpu => "gpu",
            Self::GpuMemory => "gpu-memory",
            Self::NvLink => "nvlink",
            Self::NvSwitch => "nvswitch",
            Self::Hca => "hca",
            Self::Cable => "cable",
            Self::Nvme => "nvme",
            Self::MemoryModule => "memory-module",
            Self::Cpu => "cpu",
            Self::Slot => "slot",
            Self::System => "system",
        })
    }
}

/// A component of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Component {
    pub kind: Kind,
    /// What identifies it on its node: a serial number, a GUID or, if neither is known, a place such as a PCI address.
    pub id: String,
}

impl Component {
    /// A component.
    #[must_use]
    pub fn new(kind: Kind, id: impl Into<String>) -> Self {
        Self { kind, id: id.into() }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id.as_str() {
            "" => write!(f, "{}", self.kind),
            id => write!(f, "{} {id}", self.kind),
        }
    }
}
