//! The purpose of each file of a pack.

use super::facts::Facts;
use super::text::{cell, table};
use super::{PackFile, file, hostlist};

/// The purpose of a file, by name.
fn purpose(name: &str) -> &'static str {
    match name {
        "slurm/topology.conf" => "Slurm: the network topology for TopologyPlugin=topology/tree. Beside slurm.conf",
        "slurm/topology.yaml" => "The same for Slurm 25.05 and later, instead of topology.conf",
        "slurm/nodes.conf" => {
            "Slurm: nodes and a partition. `Include nodes.conf` in slurm.conf; its first lines list further \
             requirements"
        }
        "slurm/gres.conf" => "Slurm: the GPUs' device files. Beside slurm.conf",
        "kubernetes/nodes.yaml" => "Kubernetes: labels of the nodes; the first line of the file shows how to apply it",
        "kubernetes/kueue-topology.yaml" => "Kueue: levels for topology-aware scheduling, by those labels",
        "nccl/hostfile" => "MPI: hosts in the order of the fabric",
        "ansible/inventory.yaml" => "Ansible: hosts and groups. `ansible -i inventory.yaml unit_su01 -m ping`",
        "fabric/ports.csv" => "InfiniBand: each port with its GUID, rail and leaf",
        "fabric/partition.md" => "InfiniBand: the cluster's own partition",
        "power.md" => "Power paths of each node, reserved power, effect of the loss of a feed, heat",
        "validation.md" => "Checks and measurements before hand-over",
        _ => "NCCL: settings with reasons. `/etc/nccl.conf` of every node",
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
         rail-optimised fabric a node is on a leaf for each rail, so the files name its unit where a program expects \
         one switch.\n\n{}",
        cell(facts.cluster.name),
        table(&["file", "purpose"], rows)
    );
    file("README.md", text)
}
