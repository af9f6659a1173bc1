//! A cluster in use gets more nodes, or gives some back.

use std::collections::BTreeSet;

use rackwright_ground::core::Core;
use rackwright_ground::hall::{self, HallSnapshot};
use rackwright_lifecycle::{EventKind, NodeId, Timestamp};
use rackwright_placement::ClusterId;
use rackwright_planner::planner::{NamedPlacement, Planner};
use rackwright_site::model::{NodeId as SiteNode, Site};
use rackwright_store::{ClusterRecord, StoreError, WriteTx};

use super::reserve::{self, ReserveError, event, field};
use crate::clusters::Clusters;

/// The wanted size of a cluster.
#[derive(Debug, Clone, Default)]
pub struct SizeRequest {
    /// Nodes in use. `None`: the present number, less those in `leave`.
    pub nodes: Option<u32>,
    /// Spares. `None`: the present number, less those in `leave`.
    pub spares: Option<u32>,
    /// Nodes that leave. More leave if the size requires it.
    pub leave: BTreeSet<NodeId>,
}

/// The changes for a size request.
#[derive(Debug, Clone)]
pub struct ResizePlan {
    /// The placement with the joining nodes. It has the leaving nodes until they are erased.
    pub placement: NamedPlacement,
    /// Nodes and spares that join.
    pub join: BTreeSet<NodeId>,
    /// Nodes and spares that leave.
    pub leave: BTreeSet<NodeId>,
    /// Nodes in use after all changes.
    pub nodes: u32,
    /// Spares after all changes.
    pub spares: u32,
    /// Power reserved until nodes have left, in watts.
    pub watts: f64,
    /// A drawing of the final placement, as text.
    pub picture: String,
}

fn count(names: usize) -> u32 {
    u32::try_from(names).unwrap_or(u32::MAX)
}

/// The changes for a size request in the hall of a snapshot. Nodes that are already leaving count as gone.
///
/// # Errors
/// The fault of the request, or the obstacle.
pub async fn plan(
    snapshot: HallSnapshot,
    record: &ClusterRecord,
    size_request: &SizeRequest,
) -> Result<ResizePlan, ReserveError> {
    let (number, size_request) = (hall::number(&record.uid), size_request.clone());
    let leaving = record.cluster.wanted.leave.clone();
    let planned = snapshot
        .plan(move |site: &Site, planner: &mut Planner<'_>| planned(site, planner, number, &leaving, &size_request));
    planned.await?
}

fn planned(
    site: &Site,
    planner: &mut Planner<'_>,
    cluster: ClusterId,
    leaving: &BTreeSet<NodeId>,
    size_request: &SizeRequest,
) -> Result<ResizePlan, ReserveError> {
    let Some(before) = planner.placement(cluster).cloned() else {
        return Err(ReserveError::Refused("the cluster has no reservation".into()));
    };
    let named = planner.named(&before);
    let stays = |names: &[String]| -> Vec<NodeId> {
        let names = names.iter().map(|name| NodeId::stored(name.as_str()));
        names.filter(|name| !leaving.contains(name)).collect()
    };
    let (in_use, spares) = (stays(&named.nodes), stays(&named.spares));
    if let Some(other) = size_request
        .leave
        .iter()
        .find(|name| !in_use.contains(name) && !spares.contains(name))
    {
        return Err(field(
            "size.leave",
            format!("{other} is not a node of the cluster, or it leaves already"),
        ));
    }
    let is_leaving = |name: &&NodeId| size_request.leave.contains(*name);
    let left = |names: &[NodeId]| count(names.iter().filter(|name| !is_leaving(name)).count());
    let (nodes_now, spares_now) = (left(&in_use), left(&spares));
    let (nodes, spares_wanted) = (
        size_request.nodes.unwrap_or(nodes_now),
        size_request.spares.unwrap_or(spares_now),
    );
    if nodes == 0 {
        return Err(field(
            "size.nodes",
            "at least 1 node must stay; `rackwright cluster release` gives back all nodes".into(),
        ));
    }
    let mut leave = size_request.leave.clone();
    // The nodes that the placement would miss least, then the last spares.
    let surplus = nodes_now.saturating_sub(nodes) as usize;
    let all = planner.release_candidates(cluster, usize::MAX).into_iter();
    let names = all.map(|node| NodeId::stored(&*site.node(node).name));
    let chosen: Vec<NodeId> = names
        .filter(|name| !leaving.contains(name) && !size_request.leave.contains(name))
        .take(surplus)
        .collect();
    leave.extend(chosen);
    let surplus = spares_now.saturating_sub(spares_wanted) as usize;
    let last = spares.iter().rev().filter(|name| !size_request.leave.contains(*name));
    leave.extend(last.take(surplus).cloned());

    let refused = |refused: rackwright_planner::planner::Refused| ReserveError::Refused(refused.to_string());
    let mut join = BTreeSet::new();
    let mut note =
        |joined: Vec<SiteNode>| join.extend(joined.iter().map(|node| NodeId::stored(&*site.node(*node).name)));
    let more = nodes.saturating_sub(nodes_now);
    if more > 0 {
        note(planner.grow(cluster, more).map_err(refused)?.joined);
    }
    let more = spares_wanted.saturating_sub(spares_now);
    if more > 0 {
        note(planner.add_spares(cluster, more).map_err(refused)?.joined);
    }
    let placement = planner.placement(cluster).cloned().unwrap_or(before);
    let named = planner.named(&placement);
    let watts = reserve::watts(site, &named);
    // Checked now, not after the erase: the rest must be able to stand without them.
    let ids: Vec<SiteNode> = leave
        .iter()
        .chain(leaving)
        .filter_map(|name| site.node_named(name.as_str()))
        .collect();
    if !ids.is_empty() {
        planner.shrink(cluster, &ids).map_err(refused)?;
    }
    Ok(ResizePlan {
        picture: planner
            .placement(cluster)
            .map(|after| planner.draw(after))
            .unwrap_or_default(),
        placement: named,
        join,
        leave,
        nodes,
        spares: spares_wanted,
        watts,
    })
}

/// Reserves the changes for a request and marks the leaving nodes. Returns the open change and its cluster. `None`: the
/// cluster or the hall changed meanwhile; the caller reads it again.
///
/// # Errors
/// The fault of the request, or the obstacle.
pub async fn resize(
    core: &Core,
    seen: ClusterRecord,
    size_request: &SizeRequest,
    now: Timestamp,
) -> Result<Option<(WriteTx, ClusterRecord, ResizePlan)>, ReserveError> {
    let snapshot = core.sites.picture(&core.store).await?;
    let planned = plan(snapshot.clone(), &seen, size_request).await?;
    let mut tx = core.store.write().await?;
    match reserve(core, &mut tx, &snapshot, (seen, &planned), now).await {
        Ok(Some(record)) => Ok(Some((tx, record, planned))),
        Ok(None) | Err(ReserveError::Store(StoreError::Conflict { .. } | StoreError::Contended(_))) => Ok(None),
        Err(other) => Err(other),
    }
}

async fn reserve(
    core: &Core,
    tx: &mut WriteTx,
    snapshot: &HallSnapshot,
    (mut record, planned): (ClusterRecord, &ResizePlan),
    now: Timestamp,
) -> Result<Option<ClusterRecord>, ReserveError> {
    let mut row = tx.hall().await?;
    if row.version != snapshot.hall_version {
        return Ok(None);
    }
    for node in &planned.join {
        if !reserve::claim_node(core, tx, node, &record, now).await? {
            return Ok(None);
        }
    }
    if !planned.join.is_empty() {
        reserve::hold_partition(core, tx, &snapshot.site, &mut record, &planned.placement).await?;
        record.placement = reserve::stored(&planned.placement)?;
        record.reserved_watts = planned.watts;
    }
    (record.spec.nodes, record.spec.spares) = (planned.nodes, planned.spares);
    if !planned.leave.is_empty() {
        record.cluster.wanted.leave.extend(planned.leave.iter().cloned());
        record.cluster.wanted.is_leave_cut = false;
    }
    tx.save_cluster(&mut record, now).await?;
    tx.save_hall(&mut row).await?;
    Ok(Some(record))
}

/// Removes the ports of erased nodes from the partition.
///
/// # Errors
/// The database failed, or a concurrent change won.
pub async fn isolate_nodes(
    core: &Core,
    mut record: ClusterRecord,
    nodes: &[NodeId],
    now: Timestamp,
) -> Result<(), ReserveError> {
    let site = core.sites.current(&core.store).await?;
    let (_, site) = site.ok_or(hall::HallError::NoSite)?;
    let mut placement = hall::placement_of(&record)?;
    for names in [&mut placement.nodes, &mut placement.spares] {
        names.retain(|name| !nodes.iter().any(|node| *node == **name));
    }
    let mut tx = core.store.write().await?;
    tx.hall().await?;
    reserve::hold_partition(core, &mut tx, &site, &mut record, &placement).await?;
    record.cluster.wanted.is_leave_cut = true;
    tx.save_cluster(&mut record, now).await?;
    core.commit(tx).await?;
    core.feature::<Clusters>().partitions.notify_one();
    Ok(())
}

/// Removes erased nodes from the cluster and frees their reservations.
///
/// # Errors
/// The database failed, or a concurrent change won.
pub async fn remove_nodes(
    core: &Core,
    mut record: ClusterRecord,
    nodes: &[NodeId],
    now: Timestamp,
) -> Result<(), ReserveError> {
    let snapshot = core.sites.picture(&core.store).await?;
    let (number, left) = (hall::number(&record.uid), nodes.to_vec());
    let shrunk = snapshot.clone().plan(move |site: &Site, planner: &mut Planner<'_>| {
        let ids: Vec<SiteNode> = left.iter().filter_map(|name| site.node_named(name.as_str())).collect();
        let changed = planner.shrink(number, &ids).map_err(|refused| refused.to_string())?;
        Ok::<_, String>(planner.named(&changed.placement))
    });
    let placement = shrunk.await?.map_err(ReserveError::Refused)?;
    let mut tx = core.store.write().await?;
    let mut row = tx.hall().await?;
    if row.version != snapshot.hall_version {
        let (kind, id) = ("hall", String::new());
        return Err(StoreError::Conflict { kind, id }.into());
    }
    for node in nodes {
        tx.remove_cluster_node(node).await?;
        record.cluster.wanted.leave.remove(node);
        record.cluster.wanted.replace.remove(node);
    }
    record.cluster.wanted.is_leave_cut = false;
    reserve::hold_partition(core, &mut tx, &snapshot.site, &mut record, &placement).await?;
    record.placement = reserve::stored(&placement)?;
    record.reserved_watts = reserve::watts(&snapshot.site, &placement);
    tx.save_cluster(&mut record, now).await?;
    tx.save_hall(&mut row).await?;
    let names: Vec<&str> = nodes.iter().map(NodeId::as_str).collect();
    let message = format!("{} are erased and no longer belong to {}", names.join(", "), record.id);
    tx.add_event(&event(&record.id, EventKind::ClusterShrunk, message, now))
        .await?;
    core.commit(tx).await?;
    core.feature::<Clusters>().partitions.notify_one();
    Ok(())
}
