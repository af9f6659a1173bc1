//! The reservation of a cluster: everything in one change, or nothing.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::hall::managed::needs;
use rackwright_ground::hall::{self, HallError, HallSnapshot};
use rackwright_ground::text::counted;
use rackwright_ground::user_data;
use rackwright_infiniband::Guid;
use rackwright_lifecycle::cluster::{Obstacle, Swap, has_failed};
use rackwright_lifecycle::{ClusterClaim, ClusterId, CustomerId, EventKind, NodeId, Timestamp};
use rackwright_placement::{Bandwidth, CustomerId as PlacedCustomer, Request, SkuId as PlacedSku};
use rackwright_planner::planner::{NamedPlacement, Planner, Refused};
use rackwright_site::model::{Site, SkuId};
use rackwright_store::{ClusterRecord, ClusterSpec, EventRow, FabricRow, Replaced, StoreError, WriteTx};

use super::partitions::{self, Fabric, loaded, unreadable};
use super::site_ports;
use crate::clusters::Clusters;
use crate::clusters::node_claims;

/// Tries against concurrent reservations.
pub const TRIES: usize = 8;

/// A requested cluster.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its id. Another cluster may use it after a deletion.
    pub id: ClusterId,
    /// Its unique id, which is never reused.
    pub uid: String,
    pub customer: CustomerId,
    /// Size and image of the cluster.
    pub spec: ClusterSpec,
}

/// The place of a planned cluster.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The placement, by names.
    pub placement: NamedPlacement,
    /// A drawing of it, as text.
    pub picture: String,
    /// Reserved power, in watts.
    pub watts: f64,
}

/// Why nothing was reserved.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// A field of the request is wrong.
    #[error("{field}: {fault}")]
    Field { field: &'static str, fault: String },
    /// There is no place for the cluster; a sentence.
    #[error("{0}")]
    Refused(String),
    /// The hall cannot be read.
    #[error(transparent)]
    Hall(#[from] HallError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ReserveError> for ApiError {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::Field { field, fault } => Self::invalid(field, fault),
            ReserveError::Refused(why) => Self::precondition(
                "site",
                why,
                "`rackwright cluster plan -f FILE` tries other requests and reserves nothing",
            ),
            ReserveError::Hall(error) => error.into(),
            ReserveError::Store(error) => error.into(),
        }
    }
}

pub(super) fn field(field: &'static str, fault: String) -> ReserveError {
    ReserveError::Field { field, fault }
}

/// The request in the planner's form.
fn request(site: &Site, requested: &Asked) -> Result<Request, ReserveError> {
    let known = |names: Vec<&str>| names.into_iter().take(20).collect::<Vec<_>>().join(", ");
    let customer = site.customer_named(requested.customer.as_str()).ok_or_else(|| {
        let names = known(site.customers.iter().map(|one| &*one.name).collect());
        field(
            "spec.customer",
            format!("the site has no customer {:?}; it has {names}", requested.customer),
        )
    })?;
    let sku = site
        .skus
        .iter()
        .position(|sku| *sku.name == *requested.spec.sku)
        .map(SkuId::of);
    let sku = sku.ok_or_else(|| {
        let names = known(site.skus.iter().map(|one| &*one.name).collect());
        field(
            "spec.sku",
            format!("the site has no SKU {:?}; it has {names}", requested.spec.sku),
        )
    })?;
    let bandwidth = Bandwidth::parse(&requested.spec.bandwidth).ok_or_else(|| {
        let fault = format!(
            "{:?} is not non-blocking, best-effort or a ratio such as 2:1",
            requested.spec.bandwidth
        );
        field("spec.bandwidth", fault)
    })?;
    if requested.spec.nodes == 0 {
        return Err(field("spec.nodes", "must be at least 1".into()));
    }
    let (number, customer) = (hall::number(&requested.uid), PlacedCustomer(customer.0));
    Ok(Request {
        spares: requested.spec.spares,
        bandwidth,
        ..Request::plain(number, customer, PlacedSku(sku.0), requested.spec.nodes)
    })
}

pub(super) fn watts(site: &Site, placement: &NamedPlacement) -> f64 {
    let nodes = placement.nodes.iter().chain(&placement.spares);
    let known = nodes.filter_map(|name| site.node_named(name));
    known.map(|id| site.sku_of(id).power.max_watts).sum()
}

/// The site's nodes of the SKU that are not available, and the links that are broken, in words; empty: none.
fn unavailable_text(
    site: &Site,
    nodes_out: &BTreeSet<rackwright_site::model::NodeId>,
    links: usize,
    sku: &str,
    without_manager: &BTreeMap<String, BTreeSet<rackwright_site::model::NodeId>>,
) -> String {
    let of_sku = nodes_out.iter().filter(|id| *site.sku_of(**id).name == *sku);
    let mut reason = match of_sku.count() {
        0 => String::new(),
        1 => format!("; 1 node of {sku} is not enrolled, not available or in use"),
        n => format!("; {n} nodes of {sku} are not enrolled, not available or in use"),
    };
    for (fabric, nodes) in without_manager {
        let nodes = nodes.iter().filter(|id| *site.sku_of(**id).name == *sku).count();
        if nodes > 0 {
            let nodes = counted(nodes, "node");
            reason.push_str(&format!("; {nodes} of {sku} cannot be used: {}", needs(fabric)));
        }
    }
    let links = match links {
        0 => return reason,
        1 => "1 link between switches is".to_owned(),
        _ => format!("{links} links between switches are"),
    };
    reason.push_str(&format!(
        "; {links} out of order; `rackwright fabric faults` lists them"
    ));
    reason
}

/// Plans a cluster in the hall of a snapshot.
///
/// # Errors
/// The fault of the request, or the obstacle.
pub async fn plan(snapshot: HallSnapshot, requested: &Asked) -> Result<Planned, ReserveError> {
    let (requested, out, links) = (requested.clone(), snapshot.out.clone(), snapshot.broken.len());
    let without_manager = snapshot.without_manager.clone();
    let planned = snapshot.plan(move |site: &Site, planner: &mut Planner<'_>| {
        let request = request(site, &requested)?;
        let placement = planner.place(request).map_err(|refused| {
            ReserveError::Refused(format!(
                "{refused}{}",
                unavailable_text(site, &out, links, &requested.spec.sku, &without_manager)
            ))
        })?;
        let named = planner.named(&placement);
        Ok(Planned {
            picture: planner.draw(&placement),
            watts: watts(site, &named),
            placement: named,
        })
    });
    planned.await?
}

/// The deployment for the cluster's nodes.
///
/// # Errors
/// Its user data cannot be opened.
pub fn deployment(core: &Core, cluster: &ClusterRecord) -> Result<v1::Deployment, ReserveError> {
    let spec = &cluster.spec;
    let user_data = user_data::of_spec(&core.keys.sealer, cluster, spec);
    Ok(v1::Deployment {
        image: spec.image_name.clone(),
        hostname: String::new(),
        ssh_authorized_keys: spec.ssh_authorized_keys.clone(),
        user_data: user_data.map_err(|error| ReserveError::Refused(error.to_string()))?,
        root_drive: spec.root_drive.clone(),
        verify_whole_disk: spec.verify_whole_disk,
        customer: cluster.customer.to_string(),
        has_user_data: false,
    })
}

/// Gives a free node to a cluster. Returns false if it is no longer free.
///
/// # Errors
/// The database failed, or the deployment cannot be made.
pub async fn claim_node(
    core: &Core,
    tx: &mut WriteTx,
    node: &NodeId,
    cluster: &ClusterRecord,
    now: Timestamp,
) -> Result<bool, ReserveError> {
    let mut record = match tx.node(node).await {
        Err(StoreError::NotFound { .. }) => return Ok(false),
        other => other?,
    };
    // The outcome of the update decides whether the machine works.
    if tx.firmware_update(node).await?.is_some() {
        return Ok(false);
    }
    let cluster_claim = ClusterClaim {
        cluster: cluster.id.clone(),
        let_go: None,
        build: cluster.cluster.build,
    };
    let wanted = deployment(core, cluster)?;
    let taken = node_claims::take(core, &mut record, &wanted, &cluster.spec.image_digest, cluster_claim);
    let Some((generation, number, keys)) = taken.map_err(|fault| field("spec.deployment", fault))? else {
        return Ok(false);
    };
    tx.save_node(&mut record, now).await?;
    tx.put_deployment_keys(node, generation, number, &keys).await?;
    tx.add_cluster_node(&cluster.id, node).await?;
    Ok(true)
}

/// The keys of one cluster before a change of its partition, with the hall locked. `None`: no fabric manager is configured.
pub(super) async fn fabric_of(core: &Core, tx: &mut WriteTx, uid: &str) -> Result<Option<Fabric>, ReserveError> {
    let Some(settings) = &core.config.fabric else {
        return Ok(None);
    };
    let state = match loaded(tx.fabric().await)?.filter(|state| state.wanted > 0) {
        Some(state) => state,
        // Until the first key is given, the settings determine the range of keys.
        None => {
            let (first, last) = settings.keys().map_err(unreadable)?;
            FabricRow {
                first_key: first.number(),
                last_key: last.number(),
                ..FabricRow::default()
            }
        }
    };
    Ok(Some(Fabric::of_cluster(tx, state, uid).await?))
}

/// Makes the ports of a placement the ports of the cluster's partition, with the hall locked.
pub(super) async fn hold_partition(
    core: &Core,
    tx: &mut WriteTx,
    site: &Site,
    record: &mut ClusterRecord,
    placement: &NamedPlacement,
) -> Result<(), ReserveError> {
    let Some(fabric) = fabric_of(core, tx, &record.uid).await? else {
        return Ok(());
    };
    let nodes = placement.nodes.iter().chain(&placement.spares);
    let ports = partitions::ports(site, nodes).map_err(ReserveError::Refused)?;
    hold_ports(fabric, tx, site, record, ports).await
}

/// Makes these ports the ports of the cluster's partition, with the hall locked.
pub(super) async fn hold_ports(
    mut fabric: Fabric,
    tx: &mut WriteTx,
    site: &Site,
    record: &mut ClusterRecord,
    ports: BTreeSet<Guid>,
) -> Result<(), ReserveError> {
    let present = fabric.ports_of(&record.uid);
    site_ports::note_new(record, site, present, &ports)?;
    let held = fabric.hold(&record.id, &record.uid, ports);
    let (key, version) = held.map_err(|e| ReserveError::Refused(e.to_string()))?;
    record.partition = Some(key.number());
    record.partitions_version = version;
    Ok(fabric.changes().store(tx).await?)
}

pub(super) fn stored(placement: &NamedPlacement) -> Result<String, ReserveError> {
    let text = serde_json::to_string(placement);
    text.map_err(|e| HallError::Broken(format!("a placement cannot be written: {e}")).into())
}

/// Reserves everything within `tx`, which must be fresh. `None`: the hall differs from the snapshot, or a node is no longer
/// free. The caller plans again.
async fn reserve(
    core: &Core,
    tx: &mut WriteTx,
    snapshot: &HallSnapshot,
    planned: &Planned,
    mut record: ClusterRecord,
    now: Timestamp,
) -> Result<Option<ClusterRecord>, ReserveError> {
    let mut row = tx.hall().await?;
    if row.version != snapshot.hall_version {
        return Ok(None);
    }
    hold_partition(core, tx, &snapshot.site, &mut record, &planned.placement).await?;
    record.placement = stored(&planned.placement)?;
    record.reserved_watts = planned.watts;
    tx.insert_cluster(&record).await?;
    // All changes lock nodes in the same order, so that they cannot deadlock.
    let names: BTreeSet<&String> = planned
        .placement
        .nodes
        .iter()
        .chain(&planned.placement.spares)
        .collect();
    for node in names {
        if !claim_node(core, tx, &NodeId::stored(node.as_str()), &record, now).await? {
            return Ok(None);
        }
    }
    tx.save_hall(&mut row).await?;
    Ok(Some(record))
}

/// Plans and reserves a cluster. Returns the open change and the cluster in it.
///
/// # Errors
/// The fault of the request, or the obstacle.
pub async fn create(
    core: &Core,
    requested: &Asked,
    lease_end: Option<Timestamp>,
    labels: std::collections::BTreeMap<String, String>,
    now: Timestamp,
) -> Result<(WriteTx, ClusterRecord), ReserveError> {
    for _ in 0..TRIES {
        let snapshot = core.sites.picture(&core.store).await?;
        let planned = plan(snapshot.clone(), requested).await?;
        let (id, uid, customer) = (requested.id.clone(), requested.uid.clone(), requested.customer.clone());
        let mut record = ClusterRecord::new(id, uid, customer, requested.spec.clone(), now);
        record.cluster.lease_end = lease_end;
        record.labels.clone_from(&labels);
        let mut tx = core.store.write().await?;
        match reserve(core, &mut tx, &snapshot, &planned, record, now).await {
            Ok(Some(record)) => return Ok((tx, record)),
            Ok(None) | Err(ReserveError::Store(StoreError::Conflict { .. } | StoreError::Contended(_))) => {}
            Err(other) => return Err(other),
        }
    }
    Err(contended())
}

/// The refusal after concurrent reservations won `TRIES` times.
#[must_use]
pub fn contended() -> ReserveError {
    ReserveError::Refused(format!(
        "other requests reserved nodes of the hall at the same time, {TRIES} times in a row; try again"
    ))
}

/// Puts another node in the place of a lost one. The nodes `out` are lost or faulty too: a spare among them replaces no
/// node. An obstacle is stored with the cluster.
///
/// # Errors
/// The database failed, or a concurrent change won.
pub async fn replace(
    core: &Core,
    mut record: ClusterRecord,
    node: &NodeId,
    reason: &str,
    out: &BTreeSet<NodeId>,
) -> Result<(), ReserveError> {
    let is_spare = hall::placement_of(&record)?.spares.iter().any(|spare| *node == **spare);
    let snapshot = core.sites.picture(&core.store).await?;
    let (number, bad) = (hall::number(&record.uid), node.to_owned());
    // A spare that leaves replaces no node.
    let unusable: BTreeSet<NodeId> = record.cluster.wanted.leave.union(out).cloned().collect();
    let found = snapshot.clone().plan(move |site: &Site, planner: &mut Planner<'_>| {
        let bad = site
            .node_named(bad.as_str())
            .ok_or_else(|| (Obstacle::Site, format!("the site has no node {bad} any more")))?;
        let avoid = unusable.iter().filter_map(|name| site.node_named(name.as_str()));
        let avoid: Vec<_> = avoid.filter(|other| *other != bad).collect();
        let swap = planner
            .replace(number, bad, &avoid)
            .map_err(|refused| (obstacle(&refused), refused.to_string()))?;
        let by = NodeId::stored(&*site.node(swap.by).name);
        Ok::<_, (Obstacle, String)>((planner.named(&swap.placement), by, swap.was_spare))
    });
    let now = clock::now();
    match found.await? {
        Ok((placement, by, was_spare)) => {
            let change = Exchange {
                placement,
                by,
                was_spare,
                node,
                is_spare,
                reason,
            };
            exchange(core, &snapshot, record, &change, now).await
        }
        Err((obstacle, refused)) => {
            let former = record.swap.as_ref();
            let is_new = former.is_none_or(|swap| !swap.is_repeated_by(node, obstacle));
            record.swap = Some(Swap {
                at: now,
                refused: refused.clone(),
                lost: node.to_owned(),
                obstacle,
            });
            let mut tx = core.store.write().await?;
            tx.save_cluster(&mut record, now).await?;
            if is_new {
                let place = place_of(node, is_spare);
                let message = format!("no node can take the place of {place} in {}: {refused}", record.id);
                tx.add_event(&event(&record.id, EventKind::ClusterNoReplacement, message, now))
                    .await?;
            }
            core.commit(tx).await?;
            Ok(())
        }
    }
}

/// A lost node, and whether it is a spare, as words.
fn place_of(node: &NodeId, is_spare: bool) -> String {
    let spare = if is_spare { "the spare " } else { "" };
    format!("{spare}{node}")
}

/// The kind of obstacle of a refused replacement.
fn obstacle(refused: &Refused) -> Obstacle {
    match refused {
        Refused::Placement(_) => Obstacle::Placement,
        Refused::Budgets { .. } | Refused::Change { .. } => Obstacle::Budgets,
    }
}

/// The exchange of one node for another.
struct Exchange<'a> {
    placement: NamedPlacement,
    by: NodeId,
    was_spare: bool,
    node: &'a NodeId,
    is_spare: bool,
    reason: &'a str,
}

async fn exchange(
    core: &Core,
    snapshot: &HallSnapshot,
    mut record: ClusterRecord,
    change: &Exchange<'_>,
    now: Timestamp,
) -> Result<(), ReserveError> {
    let Exchange {
        placement,
        by,
        was_spare,
        node,
        is_spare,
        reason,
    } = change;
    let again = || StoreError::Conflict {
        kind: "hall",
        id: String::new(),
    };
    let mut tx = core.store.write().await?;
    let mut row = tx.hall().await?;
    if row.version != snapshot.hall_version {
        return Err(again().into());
    }
    for name in BTreeSet::from([*node, by]) {
        if name == *node {
            let why = format!("replaced in cluster {}: {reason}", record.id);
            let failed = evict(&mut tx, node, &why, now).await?;
            if let Some(rollout) = &mut record.cluster.rollout {
                let is_again = rollout.again.remove(*node);
                rollout.failed += u32::from(failed == Some(record.cluster.build) && !is_again);
            }
        } else if !was_spare && !claim_node(core, &mut tx, by, &record, now).await? {
            return Err(again().into());
        }
    }
    hold_partition(core, &mut tx, &snapshot.site, &mut record, placement).await?;
    record.placement = stored(placement)?;
    record.reserved_watts = watts(&snapshot.site, placement);
    record.swap = None;
    record.cluster.wanted.replace.remove(*node);
    record.replaced.push(Replaced {
        node: (*node).to_owned(),
        by: by.clone(),
        at: now,
        why: (*reason).to_owned(),
    });
    tx.save_cluster(&mut record, now).await?;
    tx.save_hall(&mut row).await?;
    let (by_words, place) = (place_of(by, *was_spare), place_of(node, *is_spare));
    let message = format!("{by_words} takes the place of {place} in {}: {reason}", record.id);
    tx.add_event(&event(&record.id, EventKind::ClusterReplaced, message, now))
        .await?;
    if *was_spare {
        tx.add_event(&fewer_spares(&record, placement.spares.len(), by, now))
            .await?;
    }
    core.commit(tx).await?;
    for due in [*node, by] {
        core.notify_due(due);
    }
    core.feature::<Clusters>().partitions.notify_one();
    Ok(())
}

/// The event that a spare is in use now, and that no other spare has taken its place. The message advises the site's
/// operators; the text for the customer is made of the attributes.
fn fewer_spares(record: &ClusterRecord, left: usize, by: &NodeId, now: Timestamp) -> EventRow {
    let (id, wanted) = (&record.id, record.spec.spares);
    let have = counted(left, "spare");
    let message = format!(
        "{id} has {have} left and was requested with {wanted}: {by} is in use now; `rackwright cluster resize {id} --spares \
         {wanted}` reserves another spare"
    );
    let counts = [("spares", left.to_string()), ("requested_spares", wanted.to_string())];
    EventRow {
        attributes: counts.map(|(name, count)| (name.to_owned(), count)).into(),
        ..event(id, EventKind::ClusterFewerSpares, message, now)
    }
}

/// Takes a node out of its cluster and out of service: it is erased before its next claim. Returns the build of the cluster
/// with which it failed, if it failed.
async fn evict(tx: &mut WriteTx, node: &NodeId, why: &str, now: Timestamp) -> Result<Option<u32>, StoreError> {
    let mut record = match tx.node(node).await {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        other => other?,
    };
    let has_failed = has_failed(&record.node);
    let cluster_claim = record.node.claim.as_mut().and_then(|claim| claim.cluster.take());
    if rackwright_lifecycle::Edge::Condemned
        .target(record.node.state)
        .is_some()
    {
        record.node.wanted.condemn = Some(why.to_owned());
    } else if let Some(claim) = &mut record.node.claim {
        // An operator holds the node: it is erased when the hold ends.
        claim.release_requested = true;
    }
    tx.save_node(&mut record, now).await?;
    tx.remove_cluster_node(node).await?;
    Ok(cluster_claim
        .filter(|_| has_failed)
        .map(|cluster_claim| cluster_claim.build))
}

/// An event about a cluster.
#[must_use]
pub fn event(cluster: &ClusterId, kind: EventKind, message: String, at: Timestamp) -> EventRow {
    EventRow {
        at,
        kind,
        target: format!("clusters/{cluster}"),
        message,
        ..EventRow::default()
    }
}
