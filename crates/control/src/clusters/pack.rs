//! The hand-over pack of a cluster, made from its stored state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rackwright_api::v1;
use rackwright_ground::core::Core;
use rackwright_ground::hall;
use rackwright_ground::stored;
use rackwright_infiniband::{Guid, Membership, PKey};
use rackwright_lifecycle::NodeId;
use rackwright_lifecycle::cluster::State;
use rackwright_planner::handover::{
    Cluster, Format, Member, PackFile, PartitionPort, PartitionSheet, Processors, ReportRow, Verdict, pack,
};
use rackwright_planner::planner::Planner;
use rackwright_site::model::{NodeId as SiteNode, Site, SkuId};
use rackwright_store::{ClusterRecord, NodeRecord, StoreError};

use super::cluster_partitions::ClusterPartitions;
use super::network;
use super::reserve::ReserveError;

/// Formats that have to be able to write each node's name. A cluster without a partition has no partition sheet.
fn formats(has_partition: bool) -> Vec<Format> {
    let all = Format::ALL.into_iter();
    all.filter(|format| has_partition || *format != Format::Partition)
        .collect()
}

/// The results of a node's own last checks, as rows of the pack's report.
fn rows(node: &NodeId, report: &v1::Report) -> Vec<ReportRow> {
    let row = |check: &v1::Check| ReportRow {
        subject: node.to_string(),
        check: check.id.clone(),
        verdict: match check.verdict() {
            v1::Verdict::Pass => Verdict::Passed,
            v1::Verdict::Fail => Verdict::Failed,
            v1::Verdict::NotApplicable | v1::Verdict::Unspecified => Verdict::Skipped,
        },
        measured: check.measured.clone(),
        wanted: check.threshold.clone(),
    };
    report.checks.iter().map(row).collect()
}

/// The processors that the inspection counted. `None`: they are not all alike.
fn processors(inventory: &v1::Inventory) -> Option<Processors> {
    let first = inventory.cpus.first()?;
    let alike = |cpu: &&v1::Cpu| cpu.cores == first.cores && cpu.threads == first.threads;
    if first.cores == 0 || !inventory.cpus.iter().all(|cpu| alike(&cpu)) {
        return None;
    }
    Some(Processors {
        sockets: u16::try_from(inventory.cpus.len()).ok()?,
        cores_per_socket: u16::try_from(first.cores).ok()?,
        threads_per_core: u16::try_from(first.threads / first.cores).ok()?,
    })
}

/// The partition and the place of its key in the tables of the ports: for a cluster, the first place.
fn partition_sheet(
    site: &Site,
    record: &ClusterRecord,
    name: Option<String>,
    nodes: &[SiteNode],
) -> Result<Option<PartitionSheet>, ReserveError> {
    let (Some(number), Some(name)) = (record.partition, name) else {
        return Ok(None);
    };
    let key = PKey::new(number).ok_or_else(|| StoreError::Corrupt {
        what: "partition key of cluster",
        id: record.id.to_string(),
        source: format!("{number:#06x} is not the key of a partition").into(),
    })?;
    let mut ports = Vec::new();
    for node in nodes {
        for (hca, guid) in site.node(*node).port_guids.iter().enumerate() {
            if let Some(guid) = guid.and_then(Guid::new)
                && !site.is_storage_port(*node, hca)
            {
                ports.push(PartitionPort {
                    node: *node,
                    hca: u8::try_from(hca).unwrap_or(u8::MAX),
                    guid,
                    membership: Membership::Full,
                });
            }
        }
    }
    Ok(Some(PartitionSheet {
        name,
        key,
        index: 0,
        ports,
    }))
}

/// The name of the cluster's partition at the fabric manager. `None`: the cluster has no partition, or its release has given
/// the key back.
async fn partition_name(core: &Core, record: &ClusterRecord) -> Result<Option<String>, ReserveError> {
    if record.partition.is_none() {
        return Ok(None);
    }
    let partitions = ClusterPartitions::of_cluster(&core.store, &record.uid).await?;
    match partitions.of(&record.uid).name() {
        "" if record.cluster.state == State::Releasing => Ok(None),
        "" => Err(ReserveError::Refused(format!(
            "cluster {} no longer holds the key of its partition, so a hand-over pack would lack the partition",
            record.id
        ))),
        name => Ok(Some(name.to_owned())),
    }
}

/// The nodes of the cluster in the site, each with its address.
fn members(
    site: &Site,
    nodes: Vec<(String, Option<IpAddr>)>,
    spares: &BTreeSet<String>,
) -> Result<Vec<Member>, ReserveError> {
    let member = |(hostname, address): (String, Option<IpAddr>)| match site.node_named(&hostname) {
        Some(node) => Ok(Member {
            node,
            spare: spares.contains(&hostname),
            hostname,
            address,
        }),
        None => Err(ReserveError::Refused(format!(
            "the site does not name {hostname}, a node of the cluster, so a hand-over pack would lack the node"
        ))),
    };
    nodes.into_iter().map(member).collect()
}

/// Makes the pack.
///
/// # Errors
/// The site no longer fits the cluster, stored data does not parse, or a format cannot write one of the cluster's names.
pub async fn make(core: &Core, record: &ClusterRecord, nodes: &[NodeRecord]) -> Result<Vec<PackFile>, ReserveError> {
    let placement = hall::placement_of(record)?;
    let spares: BTreeSet<String> = placement.spares.into_iter().collect();
    let (mut reports, mut counted) = (Vec::new(), BTreeMap::new());
    let newest = core.store.newest_reports(&record.id).await?;
    for node in nodes {
        let body = newest.get(&node.id);
        let report: Option<v1::Report> = body
            .map(|body| stored::message("report", node.id.as_str(), body))
            .transpose()?;
        reports.extend(report.iter().flat_map(|report| rows(&node.id, report)));
        if counted.is_empty()
            && let Some(bytes) = core.store.inventory(&node.id).await?
            && let Some(found) = processors(&stored::message("inventory", node.id.as_str(), &bytes)?)
        {
            // A cluster has nodes of one SKU.
            counted.insert(record.spec.sku.clone(), found);
        }
    }
    reports.extend(network::report(&record.id, record.network.as_ref()));
    let partition_name = partition_name(core, record).await?;
    let mut named: Vec<(String, Option<IpAddr>)> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let address = match node.address.as_str() {
            "" => None,
            text => Some(stored::parsed("address of node", node.id.as_str(), text)?),
        };
        named.push((node.id.to_string(), address));
    }
    let snapshot = core.sites.picture(&core.store).await?;
    let record = record.clone();
    let made = snapshot.plan(move |site: &Site, planner: &mut Planner<'_>| {
        let members = members(site, named, &spares)?;
        let ids: Vec<SiteNode> = members.iter().map(|member| member.node).collect();
        let sku = |name: &String| site.skus.iter().position(|sku| *sku.name == **name).map(SkuId::of);
        let partition = partition_sheet(site, &record, partition_name, &ids)?;
        let formats = formats(partition.is_some());
        let cluster = Cluster {
            site,
            name: record.id.as_str(),
            customer: record.customer.as_str(),
            members,
            ledger: planner.ledger(),
            processors: counted
                .iter()
                .filter_map(|(name, found)| Some((sku(name)?, *found)))
                .collect(),
            partition,
            report: reports,
        };
        pack(&cluster, &formats).map_err(|refused| ReserveError::Refused(refused.to_string()))
    });
    made.await?
}
