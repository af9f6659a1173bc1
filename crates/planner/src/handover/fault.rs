//! Why a pack cannot be written.

use std::fmt;

use serde::Serialize;

/// Maximum number of stored faults. More faults are only counted.
const MAX_FAULTS: usize = 100;

/// A format of the pack: a set of related files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// `slurm/`: topology, node lines, GPUs.
    Slurm,
    /// `kubernetes/`: node labels, a topology for Kueue.
    Kubernetes,
    /// `nccl/`: settings and an order of hosts.
    Nccl,
    /// `ansible/`: an inventory.
    Ansible,
    /// `fabric/`: every port with its leaf, and the partition.
    Partition,
    /// `power.md`: power and cooling.
    Power,
    /// `validation.md`: the results of validation.
    Report,
}

impl Format {
    /// All formats, in the order of the pack.
    pub const ALL: [Self; 7] = [
        Self::Slurm,
        Self::Kubernetes,
        Self::Nccl,
        Self::Ansible,
        Self::Partition,
        Self::Power,
        Self::Report,
    ];

    /// The usual name of the format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Slurm => "Slurm",
            Self::Kubernetes => "Kubernetes",
            Self::Nccl => "NCCL",
            Self::Ansible => "Ansible",
            Self::Partition => "partition sheet",
            Self::Power => "power sheet",
            Self::Report => "validation report",
        }
    }
}

/// A value that a format cannot represent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The format. `None`: the cluster itself is invalid.
    pub format: Option<Format>,
    /// The subject, such as `node gpu-001`.
    pub subject: String,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(format) = self.format {
            write!(f, "{}: ", format.name())?;
        }
        write!(f, "{}: {}", self.subject, self.why)
    }
}

/// Why the pack cannot be written: all faults at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Refused {
    /// The first hundred faults.
    pub faults: Vec<Fault>,
    /// Number of further faults.
    pub left_out: usize,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        f.write_str(&words.join("; "))?;
        match self.left_out {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Collects faults.
#[derive(Debug, Default)]
pub(super) struct Faults {
    found: Vec<Fault>,
    left_out: usize,
    /// The format being written.
    pub(super) format: Option<Format>,
}

impl Faults {
    pub(super) fn add(&mut self, subject: impl fmt::Display, why: impl Into<String>) {
        if self.found.len() == MAX_FAULTS {
            self.left_out += 1;
            return;
        }
        self.found.push(Fault {
            format: self.format,
            // The fault may be in the name itself, so the name is escaped to keep log lines intact.
            subject: subject.to_string().escape_debug().to_string(),
            why: why.into(),
        });
    }

    pub(super) fn any(&self) -> bool {
        !self.found.is_empty()
    }

    pub(super) fn refused(self) -> Refused {
        Refused {
            faults: self.found,
            left_out: self.left_out,
        }
    }
}
