//! Watches the fabric: compares the discovered fabric and the port readings with the site, and keeps the faults.
//!
//! | fault | consequence |
//! |---|---|
//! | a link between switches is down or slow | plans avoid it; clusters that depend on it are named |
//! | a port of a customer's node is down or slow | its cluster is degraded until the fault ends |
//! | a port of a node that is checked and not handed over stays down | the cluster takes another node |
//! | a link of a checked node is sound again | the network test of the node is repeated before the hand-over |
//! | a port GUID answers in several fabrics | the fault names both places; the copy has no key |
//!
//! This module takes no node away from a customer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rackwright_fabric::{FabricError, FabricManager};
use rackwright_ground::clock;
use rackwright_ground::config::fabric::Settings;
use rackwright_ground::core::Core;
use rackwright_ground::hall::{self, HallError};
use rackwright_ground::text::chain;
use rackwright_infiniband::twice::TwiceGuid;
use rackwright_infiniband::{Dump, Fabric as Discovered, Guid};
use rackwright_lifecycle::{ClusterId, Power, Reading, State, Timestamp, Wait, seconds};
use rackwright_planner::cabling;
use rackwright_planner::planner::{NamedPlacement, Planner};
use rackwright_planner::watch::{absent, broken, compare, together, twice};
use rackwright_site::model::{FabricPurpose, NodeId, Site, SwitchId};
use rackwright_store::{ClusterNode, ComparisonRow, FabricRow};

use super::Clusters;
use super::adapters;
use super::faults::{FabricComparison, Watch};
use super::network;
use super::partitions::{absent_ports, loaded};
use super::reconcile::LEASE_S;
use super::reserve::ReserveError;

/// Longest pause before a failed discovery is repeated, in seconds.
const RECHECK_S: i64 = 60;

/// The next comparison of this process.
#[derive(Debug, Default)]
pub struct Schedule {
    next: Timestamp,
    /// The version of the site at the last comparison, or at the first round. Another version is compared at once, because a
    /// fault may agree with the new version.
    site: Option<i64>,
}

/// The input of a comparison. The comparison itself runs on a thread of its own and waits for nothing.
struct ComparisonInput {
    site: Arc<Site>,
    /// `None`: this fabric cannot be discovered.
    discovered: Option<Discovered>,
    /// Port GUIDs that answer in several fabrics.
    twice: Vec<TwiceGuid>,
    /// Ports of members that were missing in the last reading of the fabric.
    absent: BTreeSet<Guid>,
    /// The evaluated reading, as in [`FabricComparison`].
    reading: (u64, Option<Timestamp>),
    cluster_nodes: Vec<ClusterNode>,
    /// Clusters by id, with their placements.
    live: Vec<(ClusterId, NamedPlacement)>,
    /// The fabrics with a manager. Empty: the settings do not name them.
    fabrics: BTreeSet<String>,
}

/// Makes a comparison if it is due.
///
/// # Errors
/// The database failed, or the site cannot be read.
pub async fn run_round(
    core: &Arc<Core>,
    settings: &Settings,
    manager: &Arc<dyn FabricManager>,
    schedule: &mut Schedule,
) -> Result<(), ReserveError> {
    let now = clock::now();
    let known = loaded(core.store.fabric_comparison().await)?.unwrap_or_default();
    let fabric = loaded(core.store.fabric().await)?.unwrap_or_default();
    let version = core.store.site_version().await?;
    let is_other_site = *schedule.site.get_or_insert(version) != version;
    let is_waiting = now < schedule.next || !is_due(core, settings, (&fabric, &known), now).await?;
    if is_waiting && !is_other_site {
        return Ok(());
    }
    let Some((version, site)) = core.sites.current(&core.store).await? else {
        return Ok(());
    };
    // A replica without the lease leaves this version to the replica with the lease.
    schedule.site = Some(version);
    let until = now.plus(seconds(LEASE_S));
    if !core.store.lease_fabric(&core.replica, now, until).await? {
        return Ok(());
    }
    let absent = absent_ports(&core.store).await?;
    let (dump, problem) = match discover(settings, manager).await {
        Ok(dump) => (dump, String::new()),
        Err(error) => (None, chain(&error)),
    };
    let pause = match problem.is_empty() {
        true => i64::from(settings.check_s),
        false => RECHECK_S.min(i64::from(settings.check_s)),
    };
    schedule.next = match pause {
        // Without discovery, only a new port reading makes a comparison due.
        0 => Timestamp::default(),
        pause => clock::now().plus(seconds(pause)),
    };
    if !problem.is_empty() {
        return store(core, None, problem).await;
    }
    if let Some(dump) = &dump {
        let ports = rackwright_fabric::end_ports(&dump.fabric);
        core.feature::<Clusters>().discovered.put(ports);
    }
    let reading = (fabric.absent_changes, fabric.proven_at);
    let (discovered, twice) = dump.map(|dump| (dump.fabric, dump.twice)).unzip();
    let mut input = gather(core, site.clone(), discovered, (absent, reading)).await?;
    input.twice = twice.unwrap_or_default();
    input.fabrics = settings.discovered().map(str::to_owned).collect();
    let found = tokio::task::spawn_blocking(move || compare_with_site(&input, now)).await;
    let found = found.map_err(|e| HallError::Broken(format!("the fabric could not be compared with the site: {e}")))?;
    match found {
        Ok(mut found) => {
            adapters::confirm(core, &settings.adapters, (version, &site), &mut found).await?;
            store(core, Some(found), String::new()).await
        }
        Err(why) => store(core, None, why).await,
    }
}

async fn is_due(
    core: &Core,
    settings: &Settings,
    (fabric, known): (&FabricRow, &ComparisonRow),
    now: Timestamp,
) -> Result<bool, ReserveError> {
    let pace = seconds(settings.check_s.into());
    let is_old = known.checked_at.is_none_or(|at| now.since(at) >= pace);
    if (settings.check_s > 0 && is_old) || fabric.absent_changes != known.compared_changes {
        return Ok(true);
    }
    Ok(fabric.proven_at != known.compared_reading && core.store.has_impaired_nodes().await?)
}

/// `None`: the discovery is switched off, or this manager does not support it.
async fn discover(settings: &Settings, manager: &Arc<dyn FabricManager>) -> Result<Option<Dump>, FabricError> {
    if settings.check_s == 0 {
        return Ok(None);
    }
    match manager.topology().await {
        Ok(dump) => Ok(Some(dump)),
        Err(FabricError::Unsupported(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

async fn gather(
    core: &Core,
    site: Arc<Site>,
    discovered: Option<Discovered>,
    (absent, reading): (BTreeSet<Guid>, (u64, Option<Timestamp>)),
) -> Result<ComparisonInput, ReserveError> {
    let live = hall::live(&core.store).await?;
    let live = live
        .iter()
        .map(|record| Ok((record.id.clone(), hall::placement_of(record)?)));
    Ok(ComparisonInput {
        live: live.collect::<Result<_, HallError>>()?,
        cluster_nodes: core.store.list_cluster_nodes().await?,
        site,
        discovered,
        absent,
        reading,
        fabrics: BTreeSet::new(),
        twice: Vec::new(),
    })
}

/// Whether a switch is of a fabric that the managers discover.
fn is_discovered(site: &Site, fabrics: &BTreeSet<String>, switch: SwitchId) -> bool {
    match site.switch(switch).fabric.map(|fabric| site.fabric(fabric)) {
        None => true,
        // A storage fabric has a subnet manager of its own, and the discovery does not see it.
        Some(fabric) if fabrics.is_empty() => fabric.purpose != FabricPurpose::Storage,
        Some(fabric) => fabrics.contains(&*fabric.name),
    }
}

/// Whether a node's system should run: the node is handed over, or is checked and waits for the other nodes of its cluster.
/// A node that its customer switched off has no links, and this is no fault.
fn is_up(node: &ClusterNode) -> bool {
    let runs = match node.state {
        State::Active => true,
        State::Validating => node.wait == Wait::Cluster,
        _ => false,
    };
    let is_off = matches!(node.power, Reading::Known { value: Power::Off, .. });
    runs && !is_off
}

fn compare_with_site(input: &ComparisonInput, now: Timestamp) -> Result<FabricComparison, String> {
    let site = &*input.site;
    let cluster_nodes: Vec<&ClusterNode> = input.cluster_nodes.iter().filter(|node| is_up(node)).collect();
    let up: BTreeSet<NodeId> = cluster_nodes
        .iter()
        .filter_map(|node| site.node_named(node.node.as_str()))
        .collect();
    let mut ports = input.absent.clone();
    let mut cables = BTreeMap::new();
    let mut seen = input.reading.1.unwrap_or(now);
    if let Some(discovered) = &input.discovered {
        let is_part = |switch| is_discovered(site, &input.fabrics, switch);
        let plan = cabling::plan_of(site, is_part).map_err(|faults| {
            let first = faults.first().map(ToString::to_string).unwrap_or_default();
            format!("the cables of the site do not form a valid fabric: {first}")
        })?;
        cables = compare(site, &plan, discovered, &up)?;
        // A port that the discovery sees is present, even if an older reading lacks it.
        let present = rackwright_fabric::end_ports(discovered);
        ports.retain(|port| !present.contains(port));
        seen = now;
    }
    let mut faults = together(&cables, &absent(site, &ports, &up));
    faults.extend(twice(site, &input.twice));
    let links = broken(&faults);
    let mut counting: BTreeMap<String, BTreeSet<ClusterId>> = BTreeMap::new();
    if !links.is_empty() && !input.live.is_empty() {
        let placements: Vec<NamedPlacement> = input.live.iter().map(|(_, placement)| placement.clone()).collect();
        // A site without room for clusters has no cluster that depends on a link.
        let planner = Planner::new(site).map(|planner| planner.counting_on(&placements, &links));
        for (cable, places) in planner.unwrap_or_default() {
            let ids = places.iter().filter_map(|at| Some(input.live.get(*at)?.0.clone()));
            counting.insert(cable, ids.collect());
        }
    }
    let cluster_of = |node: &&ClusterNode| (node.node.clone(), node.cluster.clone());
    Ok(FabricComparison {
        clusters: cluster_nodes.iter().map(cluster_of).collect(),
        faults,
        counting,
        seen,
        reading: input.reading,
        twice: input.twice.iter().map(|one| one.port).collect(),
    })
}

/// Stores the result, and reports the changes.
async fn store(core: &Arc<Core>, found: Option<FabricComparison>, problem: String) -> Result<(), ReserveError> {
    let now = clock::now();
    let mut tx = core.store.write().await?;
    let mut row = tx.hall().await?;
    let before = Watch::load(&mut tx).await?;
    let mut watch = before.clone();
    if watch.comparison.problem != problem {
        tracing::warn!(problem, "the fabric could not be compared with the site");
    }
    watch.comparison.problem = problem;
    let clusters = found.as_ref().map(|found| found.clusters.clone()).unwrap_or_default();
    let changes = found.map(|found| watch.settle(&found, now)).unwrap_or_default();
    let mended = before
        .impaired
        .keys()
        .filter(|node| !watch.impaired.contains_key(*node));
    let mended = mended.filter_map(|node| Some((clusters.get(node)?.clone(), node.clone())));
    network::test_again(&mut tx, mended.collect(), now).await?;
    for event in changes.events(now) {
        tx.add_event(&event).await?;
    }
    watch.store(&mut tx, &before).await?;
    if changes.links_changed {
        // A new version of the hall: earlier plans may use a link that is now broken.
        tx.save_hall(&mut row).await?;
    }
    core.commit(tx).await?;
    if changes.nodes_changed || changes.links_changed {
        core.store.wake_clusters(now).await?;
        core.clusters_due.notify_one();
    }
    Ok(())
}
