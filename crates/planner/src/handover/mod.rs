//! The hand-over pack: the files that the customer's team gets with the nodes of its cluster, as text.
//!
//! The input is a [`Cluster`], the output [`PackFile`]s. The order of the members has no effect. Nothing is guessed: a
//! value unknown to both the site and the caller appears in no file. Names are checked against each format. A name that
//! a format cannot represent is a [`Fault`]. All faults are reported at once, and then no pack is written.
//!
//! `facts` has the position of each member (rack, unit, pod), `groups` defines units and pods, and each [`Format`] has
//! its own module. [`hostlist`] is Slurm's compact form of name lists.

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

use rackwright_infiniband::{Guid, Membership, PKey};
use rackwright_site::model::{NodeId, Site, SkuId};
use rackwright_site::power::Ledger;

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Member {
    /// The node in the site.
    pub node: NodeId,
    /// The host name of the node's system: a full domain name or its first label.
    pub hostname: String,
    /// The address of the node's system, if known.
    pub address: Option<IpAddr>,
    /// Whether the node is unused until another fails.
    pub spare: bool,
}

/// The processors of a SKU, as counted by an inspection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Processors {
    /// Number of occupied sockets.
    pub sockets: u16,
    /// Number of cores per processor.
    pub cores_per_socket: u16,
    /// Number of hardware threads per core.
    pub threads_per_core: u16,
}

/// A port in the cluster's partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PartitionPort {
    /// The node of the port.
    pub node: NodeId,
    /// Index in the SKU's list of HCAs.
    pub hca: u8,
    /// The port's GUID, as discovered.
    pub guid: Guid,
    /// The port's membership.
    pub membership: Membership,
}

/// The cluster's InfiniBand partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionSheet {
    /// The partition's name.
    pub name: String,
    /// The partition's key.
    pub key: PKey,
    /// The key's index in the tables of its ports, from 0.
    pub index: u16,
    /// The ports of all members.
    pub ports: Vec<PartitionPort>,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The check failed.
    Failed,
    /// The check was not run.
    Skipped,
    /// The check passed.
    Passed,
}

impl Verdict {
    /// The name in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Passed => "passed",
        }
    }
}

/// A row of the validation report. The texts are unrestricted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportRow {
    /// The subject: a node, a pair of nodes, the cluster.
    pub subject: String,
    /// The name of the check.
    pub check: String,
    /// The result.
    pub verdict: Verdict,
    /// The measured value with its unit.
    pub measured: String,
    /// The required value with its unit.
    pub wanted: String,
}

/// A cluster to hand over.
#[derive(Debug, Clone)]
pub struct Cluster<'a> {
    /// The site of the cluster.
    pub site: &'a Site,
    /// The cluster's name.
    pub name: &'a str,
    /// The cluster's customer.
    pub customer: &'a str,
    /// The cluster's nodes, in any order.
    pub members: Vec<Member>,
    /// Must have a reservation for each member. Reservations of other customers appear in no file.
    pub ledger: &'a Ledger,
    /// By SKU. SKUs that were not inspected are missing.
    pub processors: BTreeMap<SkuId, Processors>,
    /// The cluster's partition, if the site has given it one.
    pub partition: Option<PartitionSheet>,
    /// The results of validation, in any order.
    pub report: Vec<ReportRow>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackFile {
    /// The path in the pack, such as `slurm/topology.conf`.
    pub name: String,
    /// The text, with a line break at the end.
    pub text: String,
}

/// Writes the files of these formats, and a `README.md` with the purpose of each. The formats may be in any order.
///
/// # Errors
/// The members are not a valid cluster, or one of these formats cannot represent a name or a number.
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
