//! A checked cluster: each member once, in the order of the fabric, with its known position.

use std::collections::{BTreeMap, BTreeSet};

use super::fault::Faults;
use super::groups::{Groups, Uplink};
use super::{Cluster, Member, hostlist};
use rackwright_site::model::{NodeId, Rack, Room, Site, Sku, SkuId};
use rackwright_site::power::Reservation;

/// A member and its position.
#[derive(Debug)]
pub(super) struct ClusterNode<'a> {
    pub(super) node: NodeId,
    /// The node's name in the site.
    pub(super) name: &'a str,
    pub(super) host: &'a str,
    pub(super) member: &'a Member,
    pub(super) sku_id: SkuId,
    pub(super) sku: &'a Sku,
    pub(super) rack: &'a Rack,
    pub(super) room: &'a Room,
    pub(super) reservation: Reservation,
    /// Index in [`Groups::units`]. `None`: no HCA is connected to a switch.
    pub(super) unit: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) cluster: &'a Cluster<'a>,
    pub(super) site: &'a Site,
    /// Ordered by fabric, pod, unit and name.
    pub(super) cluster_nodes: Vec<ClusterNode<'a>>,
    pub(super) groups: Groups,
}

impl<'a> Facts<'a> {
    /// Checks a cluster. `None`: it is invalid, and the faults give the reasons.
    pub(super) fn of(cluster: &'a Cluster<'a>, faults: &mut Faults) -> Option<Self> {
        check_names(cluster, faults);
        check_members(cluster, faults);
        if faults.any() {
            return None;
        }
        let groups = Groups::of(cluster.site);
        let mut cluster_nodes = Vec::with_capacity(cluster.members.len());
        for member in &cluster.members {
            cluster_nodes.extend(cluster_node(cluster, member, &groups, faults));
        }
        if faults.any() {
            return None;
        }
        cluster_nodes.sort_by_cached_key(|cluster_node| {
            let pod = cluster_node.unit.map(|unit| groups.units[unit].pod);
            let fabric = pod.map(|pod| groups.pods[pod].fabric);
            let (prefix, number, name) = hostlist::natural(cluster_node.host);
            (
                fabric,
                pod,
                cluster_node.unit,
                prefix.to_owned(),
                number,
                name.to_owned(),
            )
        });
        Some(Self {
            cluster,
            site: cluster.site,
            cluster_nodes,
            groups,
        })
    }

    /// The members in use from the start.
    pub(super) fn in_use(&self) -> impl Iterator<Item = &ClusterNode<'a>> {
        self.cluster_nodes
            .iter()
            .filter(|cluster_node| !cluster_node.member.spare)
    }

    /// The spare members.
    pub(super) fn spares(&self) -> impl Iterator<Item = &ClusterNode<'a>> {
        self.cluster_nodes
            .iter()
            .filter(|cluster_node| cluster_node.member.spare)
    }

    /// The cables of a member, in the order of its HCAs, without those to storage.
    pub(super) fn uplinks(&self, cluster_node: &ClusterNode<'_>) -> &[Uplink] {
        &self.groups.uplinks[cluster_node.node.index()]
    }

    /// The cable of one HCA of a member, also to storage.
    pub(super) fn uplink(&self, cluster_node: &ClusterNode<'_>, hca: u8) -> Option<&Uplink> {
        let storage = &self.groups.storage[cluster_node.node.index()];
        let mut links = self.uplinks(cluster_node).iter().chain(storage);
        links.find(|link| link.hca == hca)
    }

    /// Members by SKU.
    pub(super) fn by_sku(&self) -> BTreeMap<SkuId, Vec<&ClusterNode<'a>>> {
        let mut by_sku: BTreeMap<SkuId, Vec<&ClusterNode<'a>>> = BTreeMap::new();
        for cluster_node in &self.cluster_nodes {
            by_sku.entry(cluster_node.sku_id).or_default().push(cluster_node);
        }
        by_sku
    }

    /// The names of the member's unit, its pod if the pod has spines, and its fabric if the fabric has cores: the
    /// switch levels above the member, nearest first.
    pub(super) fn tiers(&self, cluster_node: &ClusterNode<'_>) -> Vec<&str> {
        let Some(unit) = cluster_node.unit.map(|unit| &self.groups.units[unit]) else {
            return Vec::new();
        };
        let pod = &self.groups.pods[unit.pod];
        let fabric = &self.groups.fabrics[pod.fabric];
        let mut tiers = vec![&*unit.name];
        tiers.extend(pod.spines.then_some(&*pod.name));
        tiers.extend(fabric.cores.then_some(&*fabric.name));
        tiers
    }
}

fn check_names(cluster: &Cluster<'_>, faults: &mut Faults) {
    for (subject, name) in [
        ("name of the cluster", cluster.name),
        ("name of the customer", cluster.customer),
    ] {
        if name.trim().is_empty() || name.len() > 253 || name.chars().any(char::is_control) {
            faults.add(subject, "1 to 253 characters without control characters are required");
        }
    }
}

fn check_members(cluster: &Cluster<'_>, faults: &mut Faults) {
    let mut nodes = BTreeSet::new();
    let mut hosts = BTreeSet::new();
    let mut addresses = BTreeSet::new();
    for member in &cluster.members {
        let Some(node) = cluster.site.nodes.get(member.node.index()) else {
            faults.add(format!("node {}", member.node.0), "the site has no such node");
            continue;
        };
        let subject = format!("node {}", node.name);
        if !nodes.insert(member.node) {
            faults.add(&subject, "it is listed twice");
        } else if !hosts.insert(member.hostname.to_ascii_lowercase()) {
            let why = format!(
                "another node has the same host name, `{}`",
                member.hostname.escape_debug()
            );
            faults.add(&subject, why);
        } else if member.address.is_some_and(|address| !addresses.insert(address)) {
            faults.add(&subject, "another node has the same address");
        }
    }
    if cluster.members.iter().all(|member| member.spare) {
        faults.add("cluster", "it has no node in use");
    }
}

fn cluster_node<'a>(
    cluster: &'a Cluster<'a>,
    member: &'a Member,
    groups: &Groups,
    faults: &mut Faults,
) -> Option<ClusterNode<'a>> {
    let (site, id) = (cluster.site, member.node);
    let node = site.node(id);
    let subject = format!("node {}", node.name);
    let unit = groups.unit(id).unwrap_or_else(|units| {
        let why = format!("it is cabled to several scalable units: {}", units.join(", "));
        faults.add(&subject, why);
        None
    });
    let Some(reservation) = cluster.ledger.reservation(id) else {
        faults.add(&subject, "no power is reserved for it");
        return None;
    };
    let rack = site.rack(node.rack);
    Some(ClusterNode {
        node: id,
        name: &node.name,
        host: &member.hostname,
        member,
        sku_id: node.sku,
        sku: site.sku(node.sku),
        rack,
        room: site.room(rack.room),
        reservation: *reservation,
        unit,
    })
}
