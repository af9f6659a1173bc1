//! Slurm: `topology.conf` and `topology.yaml` for topology/tree, node and partition lines, `gres.conf`.
//!
//! Slurm allows each node below one switch only (topology.conf(5)). A node of a rail-optimised fabric is below as many
//! leaves as it has rails, so its unit takes the place of a switch.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{ClusterNode, Facts};
use super::fault::Faults;
use super::hostlist::compress;
use super::text::yaml;
use super::{PackFile, file, names};

/// `RealMemory` of a node, in percent of the SKU's memory. Every validated node has this much. Slurm drains a node that has
/// less than its `RealMemory` (slurm.conf(5)).
const MEMORY_PERCENT: u64 = 95;

/// The children of a switch in the topology.
enum Children {
    Nodes(String),
    Switches(String),
}

pub(super) fn files(facts: &Facts<'_>, faults: &mut Faults) -> Vec<PackFile> {
    for cluster_node in &facts.cluster_nodes {
        let subject = format!("node {}", cluster_node.name);
        if let Err(why) = names::slurm(cluster_node.host) {
            faults.add(
                &subject,
                format!("host name `{}`: {why}", cluster_node.host.escape_debug()),
            );
        }
        if cluster_node.unit.is_none() {
            faults.add(
                &subject,
                "it has no cable to a switch, so it has no place in the topology",
            );
        }
    }
    if let Err(why) = names::slurm(facts.cluster.name) {
        faults.add("name of the cluster", why);
    }
    let tree = tree(facts);
    let mut files = vec![
        file("slurm/topology.conf", topology_conf(&tree)),
        file("slurm/topology.yaml", topology_yaml(facts, &tree)),
        file("slurm/nodes.conf", nodes_conf(facts)),
    ];
    files.extend(gres_conf(facts).map(|text| file("slurm/gres.conf", text)));
    files
}

/// The lines of the topology, from the bottom up: the units of the cluster; their pods, if a pod has several of these
/// units; their fabrics, if a fabric has several of these pods.
fn tree(facts: &Facts<'_>) -> Vec<(String, Children)> {
    let groups = &facts.groups;
    let mut units: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for cluster_node in &facts.cluster_nodes {
        units
            .entry(cluster_node.unit.unwrap_or(usize::MAX))
            .or_default()
            .push(cluster_node.host);
    }
    units.remove(&usize::MAX);
    let mut pods: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for unit in units.keys().map(|unit| &groups.units[*unit]) {
        pods.entry(unit.pod).or_default().push(&unit.name);
    }
    let mut fabrics: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for pod in pods.keys().map(|pod| &groups.pods[*pod]) {
        fabrics.entry(pod.fabric).or_default().push(&pod.name);
    }
    let joined = fabrics.values().any(|pods| pods.len() > 1);
    let mut lines = Vec::new();
    for (unit, hosts) in units {
        let name = groups.units[unit].name.clone();
        lines.push((name, Children::Nodes(compress(hosts))));
    }
    if joined || pods.values().any(|units| units.len() > 1) {
        for (pod, units) in pods {
            lines.push((groups.pods[pod].name.clone(), Children::Switches(compress(units))));
        }
    }
    if joined {
        for (fabric, pods) in fabrics {
            lines.push((groups.fabrics[fabric].name.clone(), Children::Switches(compress(pods))));
        }
    }
    lines
}

fn topology_conf(tree: &[(String, Children)]) -> String {
    let mut text = String::from(
        "# For slurm.conf with TopologyPlugin=topology/tree. A unit is all leaves that its nodes are on, one for each rail.\n",
    );
    for (name, below) in tree {
        text += &match below {
            Children::Nodes(nodes) => format!("SwitchName={name} Nodes={nodes}\n"),
            Children::Switches(switches) => format!("SwitchName={name} Switches={switches}\n"),
        };
    }
    text
}

fn topology_yaml(facts: &Facts<'_>, tree: &[(String, Children)]) -> String {
    let mut text = format!(
        "# The same as topology.conf, for Slurm 25.05 and later. If this file exists, Slurm ignores topology.conf.\n\
         - topology: {}\n  cluster_default: true\n  tree:\n    switches:\n",
        yaml(facts.cluster.name)
    );
    for (name, below) in tree {
        let (key, list) = match below {
            Children::Nodes(nodes) => ("nodes", nodes),
            Children::Switches(switches) => ("children", switches),
        };
        text += &format!("    - switch: {}\n      {key}: {}\n", yaml(name), yaml(list));
    }
    text
}

fn nodes_conf(facts: &Facts<'_>) -> String {
    let mut text = String::from(
        "# To be included in slurm.conf, which also needs GresTypes=gpu, SelectType=select/cons_tres and\n\
         # TopologyPlugin=topology/tree.\n",
    );
    let unknown: BTreeSet<&str> = facts
        .cluster_nodes
        .iter()
        .filter(|cluster_node| !facts.cluster.processors.contains_key(&cluster_node.sku_id))
        .map(|cluster_node| &*cluster_node.sku.name)
        .collect();
    for sku in unknown {
        text += &format!(
            "# The cores of {sku} are unknown here; Slurm assumes one for each socket. Add the output of `slurmd -C` \
             on a node.\n"
        );
    }
    let mut addresses = facts
        .cluster_nodes
        .iter()
        .filter_map(|cluster_node| cluster_node.member.address);
    if addresses.any(|address| address.is_ipv6()) {
        text.push_str("# For IPv6 addresses slurm.conf needs CommunicationParameters=EnableIPv6.\n");
    }
    for (_, cluster_nodes) in facts.by_sku() {
        let hardware = hardware(facts, cluster_nodes[0]);
        let (with, without): (Vec<&ClusterNode<'_>>, Vec<_>) = cluster_nodes
            .into_iter()
            .partition(|cluster_node| cluster_node.member.address.is_some());
        for cluster_node in with {
            let address = cluster_node
                .member
                .address
                .map(|address| address.to_string())
                .unwrap_or_default();
            text += &format!("NodeName={} NodeAddr={address}{hardware}\n", cluster_node.host);
        }
        if !without.is_empty() {
            let hosts = compress(without.iter().map(|cluster_node| cluster_node.host));
            text += &format!("NodeName={hosts}{hardware}\n");
        }
    }
    let hosts = compress(facts.in_use().map(|cluster_node| cluster_node.host));
    text += &format!(
        "PartitionName={} Nodes={hosts} Default=YES State=UP\n",
        facts.cluster.name
    );
    let spares = compress(facts.spares().map(|cluster_node| cluster_node.host));
    if !spares.is_empty() {
        text += &format!("# Spares are in no partition: {spares}\n");
    }
    text
}

/// The hardware in a node's line, such as ` Sockets=2 RealMemory=1992294 Gres=gpu:8`. Unknown parts are left out.
fn hardware(facts: &Facts<'_>, cluster_node: &ClusterNode<'_>) -> String {
    let part = |name: &str| cluster_node.sku.inventory.get(name).copied().filter(|count| *count > 0);
    let mut words = match (facts.cluster.processors.get(&cluster_node.sku_id), part("cpu")) {
        (Some(known), _) => format!(
            " Sockets={} CoresPerSocket={} ThreadsPerCore={}",
            known.sockets, known.cores_per_socket, known.threads_per_core
        ),
        (None, Some(sockets)) => format!(" Sockets={sockets}"),
        (None, None) => String::new(),
    };
    if let Some(memory_gib) = part("memory_gib") {
        let memory_mib = u64::from(memory_gib) * 1024 * MEMORY_PERCENT / 100;
        words += &format!(" RealMemory={memory_mib}");
    }
    if cluster_node.sku.gpus > 0 {
        words += &format!(" Gres=gpu:{}", cluster_node.sku.gpus);
    }
    words
}

/// `None`: no member has GPUs.
fn gres_conf(facts: &Facts<'_>) -> Option<String> {
    let mut text = String::from(
        "# Device files of NVIDIA's driver. A slurmd with NVML can find them automatically: AutoDetect=nvml.\n",
    );
    let mut any = false;
    for (_, cluster_nodes) in facts.by_sku() {
        let hosts = compress(cluster_nodes.iter().map(|cluster_node| cluster_node.host));
        let devices = match cluster_nodes[0].sku.gpus {
            0 => continue,
            1 => "/dev/nvidia0".to_owned(),
            gpus => format!("/dev/nvidia[0-{}]", gpus - 1),
        };
        any = true;
        text += &format!("NodeName={hosts} Name=gpu File={devices}\n");
    }
    any.then_some(text)
}
