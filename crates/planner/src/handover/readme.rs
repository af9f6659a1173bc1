//! The purpose of each file of a pack.

use super::facts::Facts;
use super::text::{cell, table};
use super::{PackFile, file, hostlist};

/// The purpose of a file, by name.
fn purpose(name: &str) -> &'static str {
    match name {
        "slurm/topology.conf" => "Slurm: who is near whom, for TopologyPlugin=topology/tree. Beside slurm.conf",
        "slurm/topology.yaml" => "The same for Slurm 25.05 and later, in place of topology.conf",
        "slurm/nodes.conf" => {
            "Slurm: nodes and a partition. `Include nodes.conf` in slurm.conf; its first lines say what else it needs"
        }
        "slurm/gres.conf" => "Slurm: the GPUs' device files. Beside slurm.conf",
        "kubernetes/nodes.yaml" => "Kubernetes: labels of the nodes; its first line says how to apply it",
        "kubernetes/kueue-topology.yaml" => "Kueue: levels for topology-aware scheduling, by those labels",
        "nccl/hostfile" => "MPI: hosts in the order of the fabric",
        "ansible/inventory.yaml" => "Ansible: hosts and groups. `ansible -i inventory.yaml unit_su01 -m ping`",
        "fabric/ports.csv" => "InfiniBand: each port with its GUID, rail and leaf",
        "fabric/partition.md" => "InfiniBand: the cluster's own partition",
        "power.md" => "How each node is fed, what was reserved, what is lost with a feed, where heat goes",
        "validation.md" => "What was checked before hand-over, and what was measured",
        _ => "NCCL: settings and why. `/etc/nccl.conf` of every node",
    }
}

pub(super) fn sheet(facts: &Facts<'_>, files: &[PackFile]) -> PackFile {
    let in_use = hostlist::compress(facts.in_use().map(|cluster_node| cluster_node.host));
    let spares = hostlist::compress(facts.spares().map(|cluster_node| cluster_node.host));
    let gpus: u64 = facts
        .in_use()
        .map(|cluster_node| u64::from(cluster_node.sku.gpus))
        .sum();
    let summary = table(
        &["", "", ""],
        [
            ("site", cell(&facts.site.name), String::new()),
            ("customer", cell(facts.cluster.customer), String::new()),
            ("nodes", facts.in_use().count().to_string(), cell(&in_use)),
            ("spares", facts.spares().count().to_string(), cell(&spares)),
            ("GPUs in use", gpus.to_string(), String::new()),
        ]
        .map(|(what, value, more)| vec![what.to_owned(), value, more]),
    );
    let rows = files
        .iter()
        .map(|file| vec![format!("[{0}]({0})", file.name), purpose(&file.name).to_owned()]);
    let text = format!(
        "# Cluster {}\n\n{summary}\nA *unit* is nodes on the same leaf switches, a *pod* units below the same spines. In a \
         rail-optimised fabric a node is on a leaf for each rail, so its unit is given where a program wants one switch.\n\n{}",
        cell(facts.cluster.name),
        table(&["file", "what for"], rows)
    );
    file("README.md", text)
}
