//! Kubernetes: node labels, and a topology for Kueue.
//!
//! The keys and their origins: `topology.kubernetes.io/region` and `/zone` (Kubernetes, well-known labels);
//! `fabric.topograph.run/tier-N` (NVIDIA Topograph from 1.0; 0 is nearest to the node) and
//! `network.topology.nvidia.com/leaf`, `/spine`, `/core` (Topograph before 1.0); `cloud.provider.com/topology-block`
//! and `-rack` (from examples of Kueue and KAI that many setups use). The remaining keys are Rackwright's own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::facts::{ClusterNode, Facts};
use super::fault::Faults;
use super::text::yaml;
use super::{PackFile, file, names};

/// Topograph's old names of the tiers, nearest first.
const FORMER_TIERS: [&str; 3] = ["leaf", "spine", "core"];

pub(super) fn files(facts: &Facts<'_>, faults: &mut Faults) -> Vec<PackFile> {
    let mut files = vec![file("kubernetes/nodes.yaml", nodes(facts, faults))];
    files.extend(kueue(facts, faults).map(|text| file("kubernetes/kueue-topology.yaml", text)));
    files
}

fn nodes(facts: &Facts<'_>, faults: &mut Faults) -> String {
    let mut text = String::from(
        "# kubectl apply --server-side --field-manager=rackwright -f nodes.yaml, when all nodes have joined:\n\
         # otherwise an empty Node is created for a node that has not joined.\n",
    );
    for cluster_node in &facts.cluster_nodes {
        let subject = format!("node {}", cluster_node.name);
        // The kubelet's default name for its node.
        let name = cluster_node.host.to_ascii_lowercase();
        if let Err(why) = names::subdomain(&name) {
            faults.add(
                &subject,
                format!("host name `{}`: {why}", cluster_node.host.escape_debug()),
            );
        }
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {}\n  labels:\n",
            yaml(&name)
        );
        for (key, value) in labels(facts, cluster_node, faults) {
            if let Err(why) = names::label_value(&value) {
                faults.add(&subject, format!("label {key}, `{}`: {why}", value.escape_debug()));
            }
            let _ = writeln!(text, "    {key}: {}", yaml(&value));
        }
    }
    text
}

fn labels(facts: &Facts<'_>, cluster_node: &ClusterNode<'_>, faults: &mut Faults) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    let mut put = |key: &str, value: &str| _ = labels.insert(key.to_owned(), value.to_owned());
    put("topology.kubernetes.io/region", &facts.site.name);
    put("topology.kubernetes.io/zone", &cluster_node.room.name);
    put("cloud.provider.com/topology-rack", &cluster_node.rack.name);
    put("rackwright/cluster", facts.cluster.name);
    put("rackwright/node", cluster_node.name);
    put("rackwright/rack", &cluster_node.rack.name);
    put("rackwright/sku", &cluster_node.sku.name);
    put(
        "rackwright/spare",
        if cluster_node.member.spare { "true" } else { "false" },
    );
    let tiers = facts.tiers(cluster_node);
    for (tier, name) in tiers.iter().enumerate() {
        put(&format!("fabric.topograph.run/tier-{tier}"), name);
        if let Some(former) = FORMER_TIERS.get(tier) {
            put(&format!("network.topology.nvidia.com/{former}"), name);
        }
    }
    if let Some(unit) = tiers.first() {
        put("cloud.provider.com/topology-block", unit);
        put("rackwright/unit", unit);
    }
    if let Some(pod) = tiers.get(1) {
        put("rackwright/pod", pod);
    }
    for link in facts.uplinks(cluster_node) {
        let Some(hca) = cluster_node.sku.hcas.get(usize::from(link.hca)) else {
            continue;
        };
        let (key, leaf) = (
            format!("rackwright/rail-{}", hca.rail),
            &facts.site.switch(link.leaf).name,
        );
        match labels.insert(key, leaf.to_string()) {
            Some(other) if *other != **leaf => faults.add(
                format!("node {}", cluster_node.name),
                format!(
                    "rail {} is on leaves {other} and {leaf}, but a label names only one",
                    hca.rail
                ),
            ),
            _ => {}
        }
    }
    labels
}

/// The levels that all nodes have. `None`: a node is not connected.
fn kueue(facts: &Facts<'_>, faults: &mut Faults) -> Option<String> {
    let levels = facts
        .cluster_nodes
        .iter()
        .map(|cluster_node| facts.tiers(cluster_node).len())
        .min()?;
    if levels == 0 {
        return None;
    }
    let name = facts.cluster.name.to_ascii_lowercase();
    if let Err(why) = names::subdomain(&name) {
        faults.add("name of the cluster", why);
    }
    let mut text = format!(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata:\n  name: {}\nspec:\n  levels:\n",
        yaml(&name)
    );
    for tier in (0..levels).rev() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  - nodeLabel: fabric.topograph.run/tier-{tier}");
    }
    text.push_str("  - nodeLabel: kubernetes.io/hostname\n");
    Some(text)
}
