//! Why there is no pack.

use std::fmt;

use serde::Serialize;

/// Faults that are kept; the others are only counted.
const MAX_FAULTS: usize = 100;

/// A format of the pack: some files that are of use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// `slurm/`: topology, node lines, GPUs.
    Slurm,
    /// `kubernetes/`: node labels, a topology for Kueue.
    Kubernetes,
    /// `nccl/`: settings, and an order of hosts.
    Nccl,
    /// `ansible/`: an inventory.
    Ansible,
    /// `fabric/`: every port with its leaf, and the partition.
    Partition,
    /// `power.md`: power and cooling.
    Power,
    /// `validation.md`: what was checked.
    Report,
}

impl Format {
    /// All, in the order of the pack.
    pub const ALL: [Self; 7] = [
        Self::Slurm,
        Self::Kubernetes,
        Self::Nccl,
        Self::Ansible,
        Self::Partition,
        Self::Power,
        Self::Report,
    ];

    /// As people call it.
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

/// One thing that cannot be said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The format that cannot say it; `None`: the cluster itself is wrong.
    pub format: Option<Format>,
    /// What it is about: `node gpu-001`.
    pub subject: String,
    /// What is wrong with it.
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

/// Why there is no pack: everything at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Refused {
    /// The first hundred.
    pub faults: Vec<Fault>,
    /// How many more there are.
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

/// Where faults are collected.
#[derive(Debug, Default)]
pub(super) struct Faults {
    found: Vec<Fault>,
    left_out: usize,
    /// The format that is being written.
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
            // What is wrong may be what it is called: nothing of it may break a line of a log.
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
