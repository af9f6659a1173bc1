//! The hand-over pack: what a customer's team gets with the nodes of their cluster, as the texts of files.
//!
//! A [`Cluster`] goes in, [`PackFile`]s come out, the same for the same whatever the order of its members. Nothing is
//! guessed: what neither the site nor the caller says is in no file. Names are checked against each format they go into;
//! one that a format cannot say is a [`Fault`], all of them told at once, and then there is no pack.
//!
//! `facts` is where each member stands (rack, unit, pod), `groups` what units and pods are; then there is a module for
//! each [`Format`]. [`hostlist`] is Slurm's short form of lists of names.

mod ansible;
mod facts;
mod fault;
mod groups;
pub mod hostlist;
mod kubernetes;
mod names;
mod nccl;
mod partition;
mod power;
mod readme;
mod report;
mod slurm;
mod text;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

pub use fault::{Fault, Format, Refused};

use crate::fabric::{Guid, Membership, PKey};
use crate::model::{NodeId, Site, SkuId};
use crate::power::Ledger;

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Which node of the site.
    pub node: NodeId,
    /// What its system calls itself; a full domain name or its first part.
    pub hostname: String,
    /// Where its system is reached, if known.
    pub address: Option<IpAddr>,
    /// It is not used until another fails.
    pub spare: bool,
}

/// Processors of a class of nodes, as an inspection has counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Processors {
    /// Sockets that hold a processor.
    pub sockets: u16,
    /// Cores of each processor.
    pub cores_per_socket: u16,
    /// Hardware threads of each core.
    pub threads_per_core: u16,
}

/// A port in the cluster's partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PartitionPort {
    /// Whose.
    pub node: NodeId,
    /// Index in the SKU's list of HCAs.
    pub hca: u8,
    /// The port's GUID, as discovered.
    pub guid: Guid,
    /// What it may do.
    pub membership: Membership,
}

/// The cluster's InfiniBand partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionSheet {
    /// Its name.
    pub name: String,
    /// Its key.
    pub key: PKey,
    /// Where the key stands in the tables of its ports, from 0.
    pub index: u16,
    /// All its members.
    pub ports: Vec<PartitionPort>,
}

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is not as it must be.
    Failed,
    /// It was not made.
    Skipped,
    /// It is as it must be.
    Passed,
}

impl Verdict {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Passed => "passed",
        }
    }
}

/// A line of the validation report. Texts may be anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportRow {
    /// What was checked: a node, a pair of nodes, the cluster.
    pub subject: String,
    /// The check.
    pub check: String,
    /// What came of it.
    pub verdict: Verdict,
    /// What was measured, with its unit.
    pub measured: String,
    /// What is wanted, with its unit.
    pub wanted: String,
}

/// A cluster that is handed over.
#[derive(Debug, Clone)]
pub struct Cluster<'a> {
    /// Where it is.
    pub site: &'a Site,
    /// Its name.
    pub name: &'a str,
    /// Whose it is.
    pub customer: &'a str,
    /// Its nodes, in any order.
    pub members: Vec<Member>,
    /// Holds a reservation for each of them. What others have reserved is in no file.
    pub ledger: &'a Ledger,
    /// By class; classes that were not inspected are left out.
    pub processors: BTreeMap<SkuId, Processors>,
    /// Its partition, if the site has given it one.
    pub partition: Option<PartitionSheet>,
    /// What validation has found, in any order.
    pub report: Vec<ReportRow>,
}

/// A file of the pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackFile {
    /// Its path in the pack: `slurm/topology.conf`.
    pub name: String,
    /// Its text, with a line break at its end.
    pub text: String,
}

/// The files of these formats, and a `README.md` that says what each is for. Formats may be named in any order.
///
/// # Errors
/// Members that are no cluster, and names and figures that one of these formats cannot say.
pub fn pack(cluster: &Cluster<'_>, formats: &[Format]) -> Result<Vec<PackFile>, Refused> {
    let mut faults = fault::Faults::default();
    let Some(facts) = facts::Facts::of(cluster, &mut faults) else {
        return Err(faults.refused());
    };
    let mut files = Vec::new();
    for format in Format::ALL.into_iter().filter(|format| formats.contains(format)) {
        faults.format = Some(format);
        files.extend(match format {
            Format::Slurm => slurm::files(&facts, &mut faults),
            Format::Kubernetes => kubernetes::files(&facts, &mut faults),
            Format::Nccl => nccl::files(&facts, &mut faults),
            Format::Ansible => ansible::files(&facts, &mut faults),
            Format::Partition => partition::files(&facts, &mut faults),
            Format::Power => power::files(&facts, &mut faults),
            Format::Report => vec![report::sheet(cluster)],
        });
    }
    if faults.any() {
        return Err(faults.refused());
    }
    files.insert(0, readme::sheet(&facts, &files));
    Ok(files)
}

fn file(name: impl Into<String>, text: String) -> PackFile {
    PackFile {
        name: name.into(),
        text,
    }
}
