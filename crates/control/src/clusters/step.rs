//! The steps of one cluster: decide, perform, decide again, until it is at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rackwright_ground::clock;
use rackwright_ground::core::{Core, CrashPoint};
use rackwright_ground::hall::managed::needs;
use rackwright_ground::hall::{HallError, Units};
use rackwright_ground::user_data;
use rackwright_infiniband::Guid;
use rackwright_lifecycle::cluster::{
    Decision, Edge, Effect, Facts, Member, Partition, Standing, State, Wait, decide, member,
};
use rackwright_lifecycle::{ClusterId, EventKind, NodeId, OperationKind, Timestamp, minutes, seconds};
use rackwright_store::{
    ClusterHistoryRow, ClusterRecord, ImpairedNodeRow, NodeRecord, Scope, StoreError, Term, WriteTx,
};
use tokio::task::JoinSet;
use tonic::Code;
use tracing::Instrument as _;

use super::cluster_partitions::ClusterPartitions;
use super::faults::impaired_in_state;
use super::network;
use super::reserve::{self, ReserveError, event};
use super::{resize, rollout, site_ports};
use crate::clusters::Clusters;

/// Clusters leased with one statement, and worked on at once in this process.
const AT_ONCE: usize = 16;
/// Longest pause between checks of the table: the safety net for lost wake-ups.
const IDLE: Duration = Duration::from_secs(10);
/// Conflicts in a row after which a step gives up. The cluster is due again at the end of its lease, or after a change.
const CONFLICTS: usize = 100;
/// Pause after a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Runs until the core stops.
pub async fn run(core: Arc<Core>) {
    let mut steps = JoinSet::new();
    // A version of the site may have been applied while no replica ran steps.
    if core.config.fabric.is_some()
        && let Err(error) = core.store.wake_clusters(clock::now()).await
    {
        tracing::warn!(%error, "clusters could not be woken at the start; each is due within an hour");
    }
    loop {
        let pause = match lease_and_start(&core, &mut steps).await {
            Ok(pause) => pause,
            Err(error) => {
                tracing::error!(%error, "due clusters could not be taken");
                RETRY_PAUSE
            }
        };
        tokio::select! {
            () = core.stop.cancelled() => break,
            () = core.clusters_due.notified() => {}
            Some(ended) = steps.join_next(), if !steps.is_empty() => {
                if let Err(error) = ended { tracing::error!(%error, "a cluster's step panicked"); }
            }
            () = tokio::time::sleep(pause) => {}
        }
    }
    steps.shutdown().await;
    network::ended(&core).await;
}

/// Leases due clusters and begins their steps. Returns the pause until the next check.
pub async fn lease_and_start(core: &Arc<Core>, steps: &mut JoinSet<()>) -> Result<Duration, StoreError> {
    let room = AT_ONCE.saturating_sub(steps.len());
    if room == 0 {
        return Ok(IDLE);
    }
    let now = clock::now();
    let limit = i64::try_from(room).unwrap_or(1);
    let due = core.store.lease_due_clusters(now, core.lease_end(now), limit).await?;
    for cluster in due {
        let span = tracing::info_span!("cluster", cluster = cluster.as_str());
        steps.spawn(steps_of(core.clone(), cluster).instrument(span));
    }
    let next = core.store.next_cluster_due().await?;
    let until = next.map_or(IDLE, |at| {
        Duration::from_micros(u64::try_from(at.since(clock::now())).unwrap_or(0))
    });
    // Clusters that are due now and found no room are leased when a step ends.
    Ok(until.clamp(Duration::from_millis(10), IDLE))
}

/// Steps of a leased cluster, until it is at rest or a step fails.
pub async fn steps_of(core: Arc<Core>, id: ClusterId) {
    core.reach(CrashPoint::Begin).await;
    let mut conflicts = 0;
    loop {
        match step(&core, &id).await {
            Ok(Next::Again) => conflicts = 0,
            Ok(Next::Rest) => return,
            Err(ReserveError::Store(StoreError::Conflict { .. } | StoreError::Contended(_)))
                if conflicts < CONFLICTS =>
            {
                conflicts += 1;
                tokio::task::yield_now().await;
            }
            Err(ReserveError::Store(StoreError::NotFound { .. })) => return,
            Err(error) => {
                // The cluster is due again at the end of its lease, or after a change.
                tracing::error!(%error, "the cluster's step failed");
                tokio::time::sleep(RETRY_PAUSE).await;
                return;
            }
        }
    }
}

/// What follows a step.
pub(crate) enum Next {
    /// Another step, at once.
    Again,
    /// Nothing before the cluster is due again.
    Rest,
}

/// The nodes of a cluster in the form for decisions.
#[must_use]
pub fn members(cluster: &ClusterId, nodes: &[NodeRecord], units: &Units) -> Vec<Member> {
    let of = |record: &NodeRecord| {
        // Nodes that the site does not contain form one more unit.
        let unit = units.get(record.id.as_str()).copied().unwrap_or(u32::MAX);
        member(cluster, &record.id, &record.node, unit, &record.wait, &record.reason)
    };
    nodes.iter().map(of).collect()
}

/// Enters the known link faults of the members.
pub fn impaired(members: &mut [Member], nodes: &[NodeRecord], known: &[ImpairedNodeRow]) {
    let known: BTreeMap<&str, &ImpairedNodeRow> = known.iter().map(|row| (row.node.as_str(), row)).collect();
    for (member, node) in members.iter_mut().zip(nodes) {
        let fault = known.get(node.id.as_str());
        member.impaired = match member.standing {
            Standing::Checked | Standing::HandedOver => fault.map(|fault| impaired_in_state(fault, node.node.since)),
            _ => None,
        };
    }
}

/// The state of the partition, and the new ports that its last reading did not find. Also enters the known link faults of
/// the members.
async fn partition(
    core: &Core,
    record: &ClusterRecord,
    nodes: &[NodeRecord],
    members: &mut [Member],
) -> Result<(Partition, BTreeSet<String>), ReserveError> {
    if record.partition.is_none() {
        return Ok((Partition::None, BTreeSet::new()));
    }
    let partitions = match ClusterPartitions::of_cluster(&core.store, &record.uid).await {
        Ok(partitions) => partitions,
        Err(HallError::Broken(why)) => return Ok((Partition::Faulty(why), BTreeSet::new())),
        Err(other) => return Err(other.into()),
    };
    let partition = partitions.of(&record.uid);
    impaired(members, nodes, &core.store.impaired_nodes_of(&record.id).await?);
    let absent = partition.absent_ports();
    let unread = site_ports::mark_unread(record, absent, members);
    let mut excused = BTreeSet::new();
    if !absent.is_empty()
        && let Some((_, site)) = core.sites.current(&core.store).await?
    {
        let in_use = members.iter().filter(|member| member.standing == Standing::HandedOver);
        let ids = in_use.filter_map(|member| site.node_named(member.node.as_str()));
        let guids = ids.flat_map(|id| site.node(id).port_guids.iter().flatten());
        excused.extend(guids.filter_map(|guid| Guid::new(*guid)));
        let lacking: BTreeSet<Guid> = absent.iter().filter_map(|port| port.parse().ok()).collect();
        let fabric = core.sites.managed.fabric_without(&site, &lacking);
        if let (Some(fabric), Partition::Faulty(why)) = (fabric, partition.fact_excusing(record, &excused)) {
            return Ok((Partition::Faulty(format!("{why}; {}", needs(fabric))), unread));
        }
    }
    Ok((partition.fact_excusing(record, &excused), unread))
}

/// One step: one decision, and its change or its effect.
pub(crate) async fn step(core: &Arc<Core>, id: &ClusterId) -> Result<Next, ReserveError> {
    let mut record = core.store.cluster(&Scope::Site, id).await?;
    let nodes = core.store.nodes_of_cluster(&Scope::Site, id).await?;
    let now = clock::now();
    if let Some(node) = nodes.iter().find(|node| node.node.doubt.is_some()) {
        let node = node.id.clone();
        let until = now.plus(minutes(60));
        core.store.rest_cluster(&record, &Wait::Doubt { node }, until).await?;
        return Ok(Next::Rest);
    }
    let units = match record.cluster.rollout {
        Some(_) => core.sites.units(&core.store).await?,
        None => Arc::default(),
    };
    let mut members = members(id, &nodes, &units);
    let (partition, unread) = partition(core, &record, &nodes, &mut members).await?;
    let facts = Facts {
        partition,
        other_ports: site_ports::other_ports(core, &record).await?,
        swap: record.swap.clone(),
        network: network::fact(core, &record, &network::checked(&members, &nodes), now),
        members,
    };
    match decide(&record.cluster, &facts, now) {
        Decision::Move { edge, reason } => {
            if matches!(edge, Edge::HandedOver | Edge::Restored) {
                // The other ports were read with the key.
                record.cluster.wanted.new_ports.retain(|port, _| unread.contains(port));
            }
            take_edge(core, record, edge, reason, now).await?;
        }
        Decision::Act(effect) => act(core, record, &nodes, effect, now).await?,
        Decision::Wait { why, until } => {
            if matches!(why, Wait::LinkFault { .. }) {
                settle_all_but_links(core, &record, now).await?;
            }
            core.store.rest_cluster(&record, &why, until).await?;
            return Ok(Next::Rest);
        }
    }
    Ok(Next::Again)
}

async fn take_edge(
    core: &Core,
    mut record: ClusterRecord,
    edge: Edge,
    reason: String,
    now: Timestamp,
) -> Result<(), ReserveError> {
    let from = record.cluster.state;
    let Some(to) = edge.target(from) else {
        tracing::error!(%edge, %from, "the state chart of clusters has no such edge (a bug)");
        return Err(ReserveError::Refused(format!(
            "the state chart of clusters has no edge {edge} from {from}"
        )));
    };
    let row = ClusterHistoryRow {
        edge: edge.as_str().to_owned(),
        from,
        to,
        at: now,
        spent_us: now.since(record.cluster.since),
        reason: reason.clone(),
    };
    record.cluster.state = to;
    record.cluster.since = now;
    record.reason.clone_from(&reason);
    record.cluster.wanted.retry = false;
    if matches!(edge, Edge::HandedOver | Edge::Restored) {
        // All nodes are in order: the next search is for another loss.
        record.swap = None;
    }
    let mut tx = core.store.write().await?;
    match edge {
        Edge::Released => {
            record.cluster.wanted.release = false;
            record.cluster.wanted.replace.clear();
            record.cluster.wanted.leave.clear();
            record.cluster.wanted.is_leave_cut = false;
            record.cluster.wanted.new_ports.clear();
            record.cluster.rollout = None;
            user_data::forget_of_cluster(&mut record);
            drop_partition(core, &mut tx, &mut record).await?;
        }
        Edge::Freed => free(core, &mut tx, &mut record, now).await?,
        Edge::Restored if from == State::Reimaging => record.cluster.rollout = None,
        _ => {}
    }
    tx.save_cluster(&mut record, now).await?;
    // This step keeps its lease.
    tx.add_cluster_history(&record.id, edge, &row).await?;
    let because = if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    };
    let message = format!("{} went from {from} to {to}{because}", record.id);
    let mut event_row = event(&record.id, EventKind::Cluster(edge), message, now);
    event_row.attributes = [("from".to_owned(), from.to_string()), ("to".to_owned(), to.to_string())].into();
    tx.add_event(&event_row).await?;
    settle(&mut tx, &record, now).await?;
    core.commit(tx).await?;
    tracing::info!(%edge, %from, %to, reason, "cluster");
    core.feature::<Clusters>().partitions.notify_one();
    Ok(())
}

/// Removes the cluster's key from its ports, while its nodes are erased.
async fn drop_partition(core: &Core, tx: &mut WriteTx, record: &mut ClusterRecord) -> Result<(), ReserveError> {
    if record.partition.is_none() {
        return Ok(());
    }
    tx.hall().await?;
    let Some(mut fabric) = reserve::fabric_of(core, tx, &record.uid).await? else {
        return Ok(());
    };
    record.partitions_version = fabric.drop_cluster(&record.uid);
    Ok(fabric.changes().store(tx).await?)
}

/// Frees everything that the cluster held. Open breaches of isolation do not concern it any more.
async fn free(core: &Core, tx: &mut WriteTx, record: &mut ClusterRecord, now: Timestamp) -> Result<(), ReserveError> {
    let mut row = tx.hall().await?;
    tx.end_usage_breaches_of_cluster(&record.uid, now).await?;
    for node in core.store.nodes_of_cluster(&Scope::Site, &record.id).await? {
        tx.remove_cluster_node(&node.id).await?;
    }
    tx.save_hall(&mut row).await?;
    Ok(())
}

/// Ends the open operations of a cluster that only waits for a link: no operation requested the repair.
async fn settle_all_but_links(core: &Core, record: &ClusterRecord, now: Timestamp) -> Result<(), StoreError> {
    let target = format!("clusters/{}", record.id);
    let filter = vec![Term::is("target", target.as_str()), Term::is("done", "false")];
    let open = core.store.operations(&Scope::Site, &filter, "", 1).await?;
    if open.is_empty() {
        return Ok(());
    }
    let mut tx = core.store.write().await?;
    // A later request has not been considered yet.
    if tx.cluster(&record.id).await?.version != record.version {
        let (kind, id) = ("cluster", record.id.to_string());
        return Err(StoreError::Conflict { kind, id });
    }
    for operation in tx.open_operations(&target).await? {
        if operation.kind != OperationKind::ReleaseCluster {
            tx.end_operation(&operation.id, Code::Ok as i32, "", now).await?;
        }
    }
    core.commit(tx).await
}

/// Ends an operation of the cluster when its goal is reached, or out of reach.
async fn settle(tx: &mut WriteTx, record: &ClusterRecord, now: Timestamp) -> Result<(), StoreError> {
    let state = record.cluster.state;
    for operation in tx.open_operations(&format!("clusters/{}", record.id)).await? {
        let ended = match (operation.kind, state) {
            (OperationKind::ReleaseCluster, State::Released) => Some(Code::Ok),
            (OperationKind::ReleaseCluster, _) => None,
            (_, State::Ready) => Some(Code::Ok),
            (_, State::Failed) => Some(Code::Unavailable),
            (_, State::Releasing) => Some(Code::Aborted),
            _ => None,
        };
        let Some(code) = ended else { continue };
        let message = match code {
            Code::Ok => String::new(),
            Code::Aborted => "the cluster was released".to_owned(),
            _ => record.reason.clone(),
        };
        tx.end_operation(&operation.id, code as i32, &message, now).await?;
    }
    Ok(())
}

async fn act(
    core: &Arc<Core>,
    mut record: ClusterRecord,
    nodes: &[NodeRecord],
    effect: Effect,
    now: Timestamp,
) -> Result<(), ReserveError> {
    match effect {
        Effect::Replace { node, reason } => {
            let members = members(&record.id, nodes, &Units::new()).into_iter();
            let out = members.filter(|member| member.standing.is_out());
            let out = out.map(|member| member.node).collect();
            reserve::replace(core, record, &node, &reason, &out).await
        }
        Effect::TestNetwork => {
            let nodes = network::checked(&members(&record.id, nodes, &Units::new()), nodes);
            network::begin(core, record, nodes, now).await
        }
        Effect::LetHandOver(names) => {
            network::note_skipped(core, &record, now).await?;
            let good: Vec<NodeRecord> = nodes.iter().filter(|node| names.contains(&node.id)).cloned().collect();
            let let_go = |node: &mut NodeRecord| {
                let seen = good.iter().find(|seen| seen.id == node.id);
                // A node that has changed since the decision is judged again.
                if seen.is_none_or(|seen| (seen.node.state, &seen.node.claim) != (node.node.state, &node.node.claim)) {
                    return false;
                }
                let cluster_claim = node.node.claim.as_mut().and_then(|claim| claim.cluster.as_mut());
                cluster_claim
                    .filter(|cluster_claim| cluster_claim.cluster == record.id && cluster_claim.let_go.is_none())
                    .is_some_and(|cluster_claim| cluster_claim.let_go.replace(now).is_none())
            };
            for_each_node(core, &good, now, let_go).await
        }
        Effect::TakePorts => site_ports::take(core, record, now).await,
        Effect::IsolateNodes(gone) => resize::isolate_nodes(core, record, &gone, now).await,
        Effect::RemoveNodes(gone) => resize::remove_nodes(core, record, &gone, now).await,
        Effect::Reimage(batch) => rollout::rewrite(core, record, &batch, now).await,
        Effect::StopRollout(why) => rollout::stop(core, record, why, now).await,
        Effect::RollBack(why) => rollout::roll_back(core, record, why, now).await,
        Effect::ReleaseNodes(names) => {
            let release = |node: &mut NodeRecord| {
                if !names.contains(&node.id) {
                    return false;
                }
                let claim = node.node.claim.as_mut();
                claim.is_some_and(|claim| {
                    let ours = claim
                        .cluster
                        .as_ref()
                        .is_some_and(|cluster_claim| cluster_claim.cluster == record.id);
                    ours && !std::mem::replace(&mut claim.release_requested, true)
                })
            };
            for_each_node(core, nodes, now, release).await
        }
        Effect::Notice { given, lease_end } => {
            record.cluster.notices = given;
            let mut tx = core.store.write().await?;
            tx.save_cluster(&mut record, now).await?;
            let hours = lease_end.since(now) / seconds(3600);
            let message = format!(
                "the lease of {} ends in {hours} h; everything on its nodes is erased then",
                record.id
            );
            tx.add_event(&event(&record.id, EventKind::ClusterLeaseEnds, message, now))
                .await?;
            Ok(core.commit(tx).await?)
        }
    }
}

/// Changes several nodes of a cluster in one change.
async fn for_each_node(
    core: &Core,
    nodes: &[NodeRecord],
    now: Timestamp,
    change: impl Fn(&mut NodeRecord) -> bool,
) -> Result<(), ReserveError> {
    let names: BTreeSet<&NodeId> = nodes.iter().map(|node| &node.id).collect();
    let mut tx = core.store.write().await?;
    let mut changed = Vec::new();
    for name in names {
        let mut record = match tx.node(name).await {
            Err(StoreError::NotFound { .. }) => continue,
            other => other?,
        };
        if change(&mut record) {
            tx.save_node(&mut record, now).await?;
            changed.push(name);
        }
    }
    core.commit(tx).await?;
    for node in changed {
        core.notify_due(node);
    }
    Ok(())
}
