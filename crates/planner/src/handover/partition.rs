//! The partition, and every port with its leaf.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{ClusterNode, Facts};
use super::fault::Faults;
use super::text::{cell, csv, table};
use super::{PackFile, PartitionPort, PartitionSheet, file};
use rackwright_infiniband::Guid;
use rackwright_site::model::NodeId;

type Ports<'a> = BTreeMap<(NodeId, u8), &'a PartitionPort>;

pub(super) fn files(facts: &Facts<'_>, faults: &mut Faults) -> Vec<PackFile> {
    let sheet = facts.cluster.partition.as_ref();
    let ports = sheet.map_or_else(Ports::new, |sheet| checked(facts, sheet, faults));
    let mut files = vec![file("fabric/ports.csv", ports_csv(facts, &ports))];
    files.extend(sheet.map(|sheet| file("fabric/partition.md", partition_md(facts, sheet))));
    files
}

/// Checks that the partition has exactly the ports of the cluster.
fn checked<'a>(facts: &Facts<'_>, sheet: &'a PartitionSheet, faults: &mut Faults) -> Ports<'a> {
    let mut ports = Ports::new();
    let mut guids = BTreeSet::new();
    let cluster_nodes: BTreeMap<NodeId, &ClusterNode<'_>> = facts
        .cluster_nodes
        .iter()
        .map(|cluster_node| (cluster_node.node, cluster_node))
        .collect();
    for port in &sheet.ports {
        let Some(cluster_node) = cluster_nodes.get(&port.node) else {
            faults.add(
                format!("port {}", port.guid),
                "it is in the partition, but belongs to no node of the cluster",
            );
            continue;
        };
        let Some(hca) = cluster_node.sku.hcas.get(usize::from(port.hca)) else {
            let why = format!("the partition has a port of its HCA {}, which does not exist", port.hca);
            faults.add(format!("node {}", cluster_node.name), why);
            continue;
        };
        let subject = format!("node {}, {}", cluster_node.name, hca.name);
        let planned = facts
            .site
            .node(port.node)
            .port_guids
            .get(usize::from(port.hca))
            .copied()
            .flatten();
        if let Some(planned) = planned.and_then(Guid::new).filter(|planned| *planned != port.guid) {
            let why = format!("port {} is in the partition, but the site has {planned}", port.guid);
            faults.add(&subject, why);
        }
        if !guids.insert(port.guid) || ports.insert((port.node, port.hca), port).is_some() {
            faults.add(&subject, format!("it or port {} is in the partition twice", port.guid));
        }
    }
    for cluster_node in &facts.cluster_nodes {
        for (at, hca) in cluster_node.sku.hcas.iter().enumerate() {
            // A storage fabric has partitions of its own.
            if facts.site.is_storage_port(cluster_node.node, at) {
                continue;
            }
            let known = u8::try_from(at).is_ok_and(|at| ports.contains_key(&(cluster_node.node, at)));
            if !known {
                let subject = format!("node {}, {}", cluster_node.name, hca.name);
                faults.add(subject, "it is not in the partition");
            }
        }
    }
    ports
}

fn ports_csv(facts: &Facts<'_>, ports: &Ports<'_>) -> String {
    let mut lines = vec!["host,hca,rail,guid,membership,leaf,leaf_port".to_owned()];
    for cluster_node in &facts.cluster_nodes {
        for (at, hca) in (0..=u8::MAX).zip(&cluster_node.sku.hcas) {
            let port = ports.get(&(cluster_node.node, at));
            let planned = facts
                .site
                .node(cluster_node.node)
                .port_guids
                .get(usize::from(at))
                .copied()
                .flatten();
            let guid = port.map(|port| port.guid).or_else(|| planned.and_then(Guid::new));
            let link = facts.uplink(cluster_node, at);
            let fields = [
                cluster_node.host.to_owned(),
                hca.name.to_string(),
                hca.rail.to_string(),
                guid.map(|guid| guid.to_string()).unwrap_or_default(),
                port.map(|port| port.membership.word().to_owned()).unwrap_or_default(),
                link.map(|link| facts.site.switch(link.leaf).name.to_string())
                    .unwrap_or_default(),
                link.map(|link| link.port.to_string()).unwrap_or_default(),
            ];
            lines.push(fields.map(|field| csv(&field)).join(","));
        }
    }
    lines.join("\n") + "\n"
}

fn partition_md(facts: &Facts<'_>, sheet: &PartitionSheet) -> String {
    let mut entries: BTreeMap<String, usize> = BTreeMap::new();
    for port in &sheet.ports {
        *entries
            .entry(format!(
                "{:#06x}, {}",
                sheet.key.entry(port.membership),
                port.membership.word()
            ))
            .or_default() += 1;
    }
    let entries = entries.into_iter().map(|(entry, ports)| vec![entry, ports.to_string()]);
    let compute = |cluster_node| facts.site.compute_ports(cluster_node).map(|(hca, _)| &*hca.name).next();
    let mut nodes = facts.cluster_nodes.iter();
    let hca = nodes
        .find_map(|cluster_node| compute(cluster_node.node))
        .unwrap_or("mlx5_0");
    format!(
        "# Partition\n\n{}\n{}\nThe first bit of an entry marks full membership; the rest is the key. Full members \
         communicate with all members, limited members only with full members. All ports are in \
         [ports.csv](ports.csv). On a node,\n\n    cat /sys/class/infiniband/{hca}/ports/1/pkeys/{}\n\nshows the entry. \
         The table also has the default partition, 0x7fff: nodes are limited members of it.\n",
        table(
            &["name", "P_Key", "index in the ports' tables"],
            [vec![cell(&sheet.name), sheet.key.to_string(), sheet.index.to_string()]]
        ),
        table(&["entry", "ports"], entries),
        sheet.index
    )
}
