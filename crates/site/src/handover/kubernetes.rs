//! Kubernetes: node labels, and a topology for Kueue.
//!
//! The keys and their origins: `topology.kubernetes.io/region` and `/zone` (Kubernetes, well-known labels);
//! `fabric.topograph.run/tier-N` (NVIDIA Topograph from 1.0; 0 is nearest to the node) and
//! `network.topology.nvidia.com/leaf`, `/spine`, `/core` (Topograph before 1.0); `cloud.provider.com/topology-block`
//! and `-rack` (from examples of Kueue and KAI that many setups use). The remaining keys are Rackwright's own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::facts::{Facts, Seat};
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
         # for one that has not, an empty Node would be made.\n",
    );
    for seat in &facts.seats {
        let subject = format!("node {}", seat.name);
        // The kubelet's default name for its node.
        let name = seat.host.to_ascii_lowercase();
        if let Err(why) = names::subdomain(&name) {
            faults.add(&subject, format!("host name `{}`: {why}", seat.host.escape_debug()));
        }
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {}\n  labels:\n",
            yaml(&name)
        );
        for (key, value) in labels(facts, seat, faults) {
            if let Err(why) = names::label_value(&value) {
                faults.add(&subject, format!("label {key}, `{}`: {why}", value.escape_debug()));
            }
            let _ = writeln!(text, "    {key}: {}", yaml(&value));
        }
    }
    text
}

fn labels(facts: &Facts<'_>, seat: &Seat<'_>, faults: &mut Faults) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    let mut put = |key: &str, value: &str| _ = labels.insert(key.to_owned(), value.to_owned());
    put("topology.kubernetes.io/region", &facts.site.name);
    put("topology.kubernetes.io/zone", &seat.room.name);
    put("cloud.provider.com/topology-rack", &seat.rack.name);
    put("rackwright/cluster", facts.cluster.name);
    put("rackwright/node", seat.name);
    put("rackwright/rack", &seat.rack.name);
    put("rackwright/sku", &seat.sku.name);
    put("rackwright/spare", if seat.member.spare { "true" } else { "false" });
    let tiers = facts.tiers(seat);
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
    for link in facts.uplinks(seat) {
        let Some(hca) = seat.sku.hcas.get(usize::from(link.hca)) else {
            continue;
        };
        let (key, leaf) = (
            format!("rackwright/rail-{}", hca.rail),
            &facts.site.switch(link.leaf).name,
        );
        match labels.insert(key, leaf.to_string()) {
            Some(other) if *other != **leaf => faults.add(
                format!("node {}", seat.name),
                format!(
                    "rail {} is on leaves {other} and {leaf}, and a label names one",
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
    let levels = facts.seats.iter().map(|seat| facts.tiers(seat).len()).min()?;
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
