//! An Ansible inventory: the facts of each node, and groups by rack, leaf, unit, pod and SKU.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::facts::{ClusterNode, Facts};
use super::fault::Faults;
use super::text::yaml;
use super::{PackFile, file, names};

/// Groups by name: a description, and the hosts in the order of the fabric.
type Groups<'a> = BTreeMap<String, (String, Vec<&'a str>)>;

pub(super) fn files(facts: &Facts<'_>, faults: &mut Faults) -> Vec<PackFile> {
    let groups = groups(facts, faults);
    for cluster_node in &facts.cluster_nodes {
        let why = if let Err(why) = names::slurm(cluster_node.host) {
            why
        } else if groups.contains_key(cluster_node.host) || cluster_node.host == "ungrouped" {
            "this is the name of a group"
        } else {
            continue;
        };
        let why = format!("host name `{}`: {why}", cluster_node.host.escape_debug());
        faults.add(format!("node {}", cluster_node.name), why);
    }
    let mut text = String::from("all:\n  hosts:\n");
    // Writing to a string cannot fail.
    for cluster_node in &facts.cluster_nodes {
        let _ = writeln!(text, "    {}:", yaml(cluster_node.host));
        for (key, value) in variables(facts, cluster_node) {
            let _ = writeln!(text, "      {key}: {value}");
        }
    }
    text.push_str("  children:\n");
    for (group, (_, hosts)) in &groups {
        let _ = writeln!(text, "    {group}:\n      hosts:");
        for host in hosts {
            let _ = writeln!(text, "        {}: {{}}", yaml(host));
        }
    }
    vec![file("ansible/inventory.yaml", text)]
}

/// The variables of a host, as YAML.
fn variables(facts: &Facts<'_>, cluster_node: &ClusterNode<'_>) -> Vec<(&'static str, String)> {
    let mut variables = Vec::new();
    if let Some(address) = cluster_node.member.address {
        variables.push(("ansible_host", yaml(&address.to_string())));
    }
    let hcas: Vec<String> = cluster_node.sku.hcas.iter().map(|hca| yaml(&hca.name)).collect();
    variables.extend([
        ("rackwright_node", yaml(cluster_node.name)),
        ("rackwright_sku", yaml(&cluster_node.sku.name)),
        ("rackwright_room", yaml(&cluster_node.room.name)),
        ("rackwright_rack", yaml(&cluster_node.rack.name)),
    ]);
    let unit = facts.site.node(cluster_node.node).unit;
    if unit > 0 {
        variables.push(("rackwright_rack_unit", unit.to_string()));
    }
    let tiers = facts.tiers(cluster_node);
    let keys = ["rackwright_unit", "rackwright_pod"];
    variables.extend(keys.into_iter().zip(tiers).map(|(key, name)| (key, yaml(name))));
    variables.extend([
        ("rackwright_gpus", cluster_node.sku.gpus.to_string()),
        ("rackwright_hcas", format!("[{}]", hcas.join(", "))),
        ("rackwright_spare", cluster_node.member.spare.to_string()),
    ]);
    variables
}

fn groups<'a>(facts: &'a Facts<'_>, faults: &mut Faults) -> Groups<'a> {
    let mut groups = Groups::new();
    let mut put = |kind: &str, name: &str, host: &'a str| {
        let group = names::group(kind, name);
        let (first, hosts) = groups
            .entry(group.clone())
            .or_insert_with(|| (name.to_owned(), Vec::new()));
        if first != name {
            let why = format!("`{}` has the same group name, {group}", first.escape_debug());
            faults.add(format!("{kind} {name}"), why);
        }
        hosts.push(host);
    };
    for cluster_node in &facts.cluster_nodes {
        put("cluster", facts.cluster.name, cluster_node.host);
        put(
            "nodes",
            if cluster_node.member.spare { "spare" } else { "in_use" },
            cluster_node.host,
        );
        put("sku", &cluster_node.sku.name, cluster_node.host);
        put("rack", &cluster_node.rack.name, cluster_node.host);
        for (kind, name) in ["unit", "pod"].into_iter().zip(facts.tiers(cluster_node)) {
            put(kind, name, cluster_node.host);
        }
        let mut leaves: Vec<_> = facts.uplinks(cluster_node).iter().map(|link| link.leaf).collect();
        leaves.sort_unstable();
        leaves.dedup();
        for leaf in leaves {
            put("leaf", &facts.site.switch(leaf).name, cluster_node.host);
        }
    }
    groups
}
