//! Watches the fabric: compares the discovered fabric and the port readings with the site, and keeps the faults.
//!
//! | fault | consequence |
//! |---|---|
//! | a link between switches is down or slow | plans avoid it; clusters that depend on it are named |
//! | a port of a customer's node is down or slow | its cluster is degraded until that is over |
//! | a port of a node that is checked and not handed over stays down | the cluster takes another node |
//!
//! Nothing here takes a node away from a customer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rackwright_fabric::{FabricError, FabricManager};
use rackwright_infiniband::{Dump, Fabric as Discovered, Guid};
use rackwright_lifecycle::{Power, Reading, State, Timestamp, Wait, seconds};
use rackwright_planner::cabling;
use rackwright_planner::planner::{NamedPlacement, Planner};
use rackwright_planner::watch::{absent, broken, compare, together};
use rackwright_site::model::{NodeId, Site};
use rackwright_store::ClusterNode;

use super::faults::FabricComparison;
use super::manager::Settings;
use super::partitions::Fabric;
use super::reconcile::LEASE_S;
use super::reserve::{self, ReserveError};
use crate::clock;
use crate::core::Core;
use crate::hall::{self, HallError};
use crate::text::chain;

/// Longest pause before a failed discovery is repeated, in seconds.
const AGAIN_S: i64 = 60;

/// The next comparison of this process.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    next: Timestamp,
}

/// The input of a comparison, which runs apart from all waits.
struct FabricReading {
    site: Arc<Site>,
    /// `None`: this fabric cannot be discovered.
    discovered: Option<Discovered>,
    /// Ports of members that were missing in the last reading of the fabric, and the time of that reading.
    absent: BTreeSet<Guid>,
    read_at: Option<Timestamp>,
    seated: Vec<ClusterNode>,
    /// Clusters by id, with their placements.
    live: Vec<(String, NamedPlacement)>,
}

/// Makes a comparison if it is due.
pub(super) async fn run_round(
    core: &Arc<Core>,
    settings: &Settings,
    manager: &Arc<dyn FabricManager>,
    last: &mut Schedule,
) -> Result<(), ReserveError> {
    let now = clock::now();
    let Some(fabric) = reserve::fabric(core, &core.store.hall().await?.fabric)? else {
        return Ok(());
    };
    if now < last.next || !is_due(settings, &fabric, now) {
        return Ok(());
    }
    let Some((_, site)) = core.sites.current(&core.store).await? else {
        return Ok(());
    };
    let until = now.plus(seconds(LEASE_S));
    if !core.store.lease_fabric(&core.replica, now, until).await? {
        return Ok(());
    }
    let (discovered, problem) = match discover(settings, manager).await {
        Ok(dump) => (dump.map(|dump| dump.fabric), String::new()),
        Err(error) => (None, chain(&error)),
    };
    let pause = match problem.is_empty() {
        true => i64::from(settings.check_s),
        false => AGAIN_S.min(i64::from(settings.check_s)),
    };
    last.next = match pause {
        // Without discovery, only a new port reading makes a comparison due.
        0 => Timestamp::default(),
        pause => clock::now().plus(seconds(pause)),
    };
    if !problem.is_empty() {
        return store(core, None, problem).await;
    }
    let look = look(core, site, discovered, &fabric).await?;
    let found = tokio::task::spawn_blocking(move || find(&look, now)).await;
    let found = found.map_err(|e| HallError::Broken(format!("the fabric could not be compared with the site: {e}")))?;
    match found {
        Ok(found) => store(core, Some(found), String::new()).await,
        Err(why) => store(core, None, why).await,
    }
}

fn is_due(settings: &Settings, fabric: &Fabric, now: Timestamp) -> bool {
    let watch = &fabric.watch;
    let pace = seconds(settings.check_s.into());
    let is_old = watch.checked_at.is_none_or(|at| now.since(at) >= pace);
    let is_read_again = !watch.impaired.is_empty() && fabric.proven_at != watch.read_at;
    (settings.check_s > 0 && is_old) || fabric.absent() != &watch.absent || is_read_again
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

async fn look(
    core: &Core,
    site: Arc<Site>,
    discovered: Option<Discovered>,
    fabric: &Fabric,
) -> Result<FabricReading, ReserveError> {
    let live = hall::live(&core.store).await?;
    let live = live
        .iter()
        .map(|record| Ok((record.id.clone(), hall::placement_of(record)?)));
    Ok(FabricReading {
        live: live.collect::<Result<_, HallError>>()?,
        seated: core.store.list_cluster_nodes().await?,
        site,
        discovered,
        absent: fabric.absent().clone(),
        read_at: fabric.proven_at,
    })
}

/// Whether a node's system should run: handed over, or checked and waiting for the others. A node that its customer
/// switched off has no links, which is not a fault.
fn is_up(node: &ClusterNode) -> bool {
    let runs = match node.state {
        State::Active => true,
        State::Validating => node.wait == Wait::Cluster,
        _ => false,
    };
    let is_off = matches!(node.power, Reading::Known { value: Power::Off, .. });
    runs && !is_off
}

fn find(look: &FabricReading, now: Timestamp) -> Result<FabricComparison, String> {
    let site = &*look.site;
    let seated: Vec<&ClusterNode> = look.seated.iter().filter(|node| is_up(node)).collect();
    let up: BTreeSet<NodeId> = seated.iter().filter_map(|node| site.node_named(&node.node)).collect();
    let mut ports = look.absent.clone();
    let mut cables = BTreeMap::new();
    let mut seen = look.read_at.unwrap_or(now);
    if let Some(discovered) = &look.discovered {
        let plan = cabling::plan(site).map_err(|faults| {
            let first = faults.first().map(ToString::to_string).unwrap_or_default();
            format!("the cables of the site do not form a valid fabric: {first}")
        })?;
        cables = compare(site, &plan, discovered, &up)?;
        // A port that is there now is not absent, whatever an older reading said.
        let there = rackwright_fabric::end_ports(discovered);
        ports.retain(|port| !there.contains(port));
        seen = now;
    }
    let faults = together(&cables, &absent(site, &ports, &up));
    let links = broken(&faults);
    let mut counting: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    if !links.is_empty() && !look.live.is_empty() {
        let placements: Vec<NamedPlacement> = look.live.iter().map(|(_, placement)| placement.clone()).collect();
        // A site without room for clusters has no cluster that depends on a link.
        let planner = Planner::new(site).and_then(|planner| planner.counting_on(&placements, &links));
        for (cable, places) in planner.unwrap_or_default() {
            let ids = places.iter().filter_map(|at| Some(look.live.get(*at)?.0.clone()));
            counting.insert(cable, ids.collect());
        }
    }
    let of = |node: &&ClusterNode| (node.node.clone(), node.cluster.clone());
    Ok(FabricComparison {
        clusters: seated.iter().map(of).collect(),
        faults,
        counting,
        seen,
        absent: (look.absent.clone(), look.read_at),
    })
}

/// Stores the result, and reports the changes.
async fn store(core: &Arc<Core>, found: Option<FabricComparison>, problem: String) -> Result<(), ReserveError> {
    let now = clock::now();
    let mut tx = core.store.write().await?;
    let mut row = tx.hall().await?;
    let Some(mut fabric) = reserve::fabric(core, &row.fabric)? else {
        return Ok(());
    };
    let watch = &mut fabric.watch;
    if watch.problem != problem {
        tracing::warn!(problem, "the fabric could not be compared with the site");
    }
    watch.problem = problem;
    let news = found.map(|found| watch.settle(&found, now)).unwrap_or_default();
    for event in news.events(now) {
        tx.add_event(&event).await?;
    }
    row.fabric = reserve::text(&fabric)?;
    if news.links_changed {
        // A new version of the hall: earlier plans may use a link that is now broken.
        tx.save_hall(&mut row).await?;
    } else {
        tx.put_fabric(&row.fabric).await?;
    }
    core.commit(tx).await?;
    if news.nodes_changed || news.links_changed {
        core.store.wake_clusters(now).await?;
        core.clusters.due.notify_one();
    }
    Ok(())
}
