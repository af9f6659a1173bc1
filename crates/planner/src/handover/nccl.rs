//! NCCL: settings with their reasons, and an order of hosts that makes neighbours in the fabric neighbours in the
//! rings.
//!
//! The variables are those in NCCL's documentation, "Environment Variables". No comment contains an equals sign,
//! because versions without support for comments skip lines without one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::facts::{ClusterNode, Facts};
use super::fault::Faults;
use super::{PackFile, file, names};
use rackwright_site::model::SwitchId;

pub(super) fn files(facts: &Facts<'_>, faults: &mut Faults) -> Vec<PackFile> {
    let mut files = Vec::new();
    let by_sku = facts.by_sku();
    for cluster_nodes in by_sku.values() {
        let name = match by_sku.len() {
            1 => "nccl/nccl.conf".to_owned(),
            _ => format!("nccl/{}.conf", cluster_nodes[0].sku.name),
        };
        files.push(file(name, conf(facts, cluster_nodes)));
    }
    for cluster_node in facts.in_use() {
        if let Err(why) = names::slurm(cluster_node.host) {
            let why = format!("host name `{}`: {why}", cluster_node.host.escape_debug());
            faults.add(format!("node {}", cluster_node.name), why);
        }
    }
    files.push(file("nccl/hostfile", hostfile(facts)));
    files
}

fn conf(facts: &Facts<'_>, cluster_nodes: &[&ClusterNode<'_>]) -> String {
    let sku = cluster_nodes[0].sku;
    let mut text = format!("# For /etc/nccl.conf of {} nodes.\n", sku.name);
    // One file serves all nodes of the SKU, so an adapter that leads to storage on one of them is left out.
    let is_storage = |at: usize| {
        let mut nodes = cluster_nodes.iter();
        nodes.any(|cluster_node| facts.site.is_storage_port(cluster_node.node, at))
    };
    let hcas = sku.hcas.iter().enumerate().filter(|(at, _)| !is_storage(*at));
    let hcas: Vec<String> = hcas.map(|(_, hca)| format!("{}:1", hca.name)).collect();
    if !hcas.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n# The adapters of the compute fabric, port 1 of each, and no others such as those for storage.\n\
             # The second equals sign selects exact names: without it, mlx5_1 also matches mlx5_10.\n\
             NCCL_IB_HCA=={}\n",
            hcas.join(",")
        );
    }
    text.push_str(if rails_apart(facts, cluster_nodes) {
        "\n# Each rail has its own leaves, and traffic between rails passes spines: a ring stays on one rail.\n\
         # NVLink moves data to the GPU of the other rail before it is sent.\n\
         NCCL_CROSS_NIC=0\n"
    } else {
        "\n# NCCL_CROSS_NIC is not set, so NCCL decides: adapters of a node share leaves.\n"
    });
    match facts.cluster.partition.as_ref().map(|sheet| (sheet.key, sheet.index)) {
        Some((key, 0)) => {
            let _ = write!(
                text,
                "\n# NCCL_IB_PKEY is an index in the port's table, not a key. It stays at its default, 0: this entry \
                 is {key}.\n"
            );
        }
        Some((key, index)) => {
            let _ = write!(
                text,
                "\n# An index in the port's table, not a key: this entry is {key}.\nNCCL_IB_PKEY={index}\n"
            );
        }
        None => {}
    }
    text
}

/// Whether each node has its HCAs on different leaves.
fn rails_apart(facts: &Facts<'_>, cluster_nodes: &[&ClusterNode<'_>]) -> bool {
    cluster_nodes.iter().all(|cluster_node| {
        let links = facts.uplinks(cluster_node);
        let leaves: BTreeSet<SwitchId> = links.iter().map(|link| link.leaf).collect();
        links.len() > 1 && leaves.len() == links.len()
    })
}

fn hostfile(facts: &Facts<'_>) -> String {
    let mut text = String::from(
        "# For mpirun --hostfile, ranks by slot: nodes of a unit are listed together, so a ring leaves a unit only \
         once.\n",
    );
    for cluster_node in facts.in_use() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} slots={}", cluster_node.host, cluster_node.sku.gpus.max(1));
    }
    text
}
