//! Another build on the nodes of a cluster: its choice, and the steps that bring it to the nodes.

use std::collections::BTreeSet;

use rackwright_ground::core::Core;
use rackwright_lifecycle::cluster::{Member, Rollout};
use rackwright_lifecycle::{EventKind, NodeId, OperationKind, Timestamp};
use rackwright_store::{ClusterRecord, ClusterSpec, FormerSpec, StoreError, WriteTx};
use tonic::Code;

use super::reserve::{self, ReserveError, event, field};
use crate::clusters::node_claims;

/// Sets the build of `spec` as the wanted one for all nodes.
pub fn begin(record: &mut ClusterRecord, spec: &ClusterSpec, rollout: Rollout) {
    let former = FormerSpec {
        build: record.cluster.build,
        spec: record.spec.clone(),
    };
    let newest = record.former.as_ref().map_or(0, |former| former.build);
    record.cluster.build = former.build.max(newest) + 1;
    // An unfinished rollout is no build to go back to: its former build stays. During a rollback, the present build is one.
    let current = record.cluster.rollout.as_ref().filter(|rollout| !rollout.is_back);
    if current.is_none() || record.former.is_none() {
        record.former = Some(former);
    }
    record.spec.take_build(spec);
    record.cluster.rollout = Some(rollout);
}

/// Continues a stopped rollout. Failed nodes are tried again.
pub fn resume(record: &mut ClusterRecord, members: &[Member], wanted: Option<Rollout>) {
    let (build, Some(rollout)) = (record.cluster.build, &mut record.cluster.rollout) else {
        return;
    };
    let is_failed = |member: &&Member| member.build == build && member.is_failed && member.standing.is_out();
    let failed = members.iter().filter(is_failed);
    let again = failed.map(|member| member.node.clone()).collect();
    *rollout = Rollout {
        is_back: rollout.is_back,
        stopped: None,
        failed: 0,
        again,
        ..wanted.unwrap_or_else(|| rollout.clone())
    };
    record.reason.clear();
}

/// Sets the former build as the wanted one. Returns false if there is none.
pub fn swap_builds(record: &mut ClusterRecord, rollout: Rollout) -> bool {
    let Some(former) = record.former.take() else {
        return false;
    };
    record.former = Some(FormerSpec {
        build: record.cluster.build,
        spec: record.spec.clone(),
    });
    record.cluster.build = former.build;
    record.spec.take_build(&former.spec);
    record.cluster.rollout = Some(Rollout {
        is_back: true,
        ..rollout
    });
    true
}

/// Writes the wanted build to nodes of a cluster. Busy nodes get it in a later turn.
///
/// # Errors
/// The database failed, or a concurrent change won.
pub async fn rewrite(
    core: &Core,
    mut record: ClusterRecord,
    nodes: &[NodeId],
    now: Timestamp,
) -> Result<(), ReserveError> {
    let wanted = reserve::deployment(core, &record)?;
    let names: BTreeSet<&NodeId> = nodes.iter().collect();
    let mut tx = core.store.write().await?;
    let mut written_to = BTreeSet::new();
    for name in &names {
        let mut node = match tx.node(name).await {
            Err(StoreError::NotFound { .. }) => continue,
            other => other?,
        };
        let digest = &record.spec.image_digest;
        let written = node_claims::rewrite(core, &mut node, &wanted, digest, record.cluster.build);
        let Some((generation, number, keys)) = written.map_err(|fault| field("deployment", fault))? else {
            continue;
        };
        tx.save_node(&mut node, now).await?;
        tx.put_deployment_keys(name, generation, number, &keys).await?;
        written_to.insert(*name);
    }
    if written_to.is_empty() {
        // The nodes have changed since they were read.
        let names: Vec<&str> = nodes.iter().map(NodeId::as_str).collect();
        let (kind, id) = ("node", names.join(", "));
        return Err(StoreError::Conflict { kind, id }.into());
    }
    // Each written node has used its one try. A conflict with another change of the cluster undoes all of this.
    if let Some(rollout) = &mut record.cluster.rollout {
        rollout.again.retain(|name| !written_to.contains(name));
    }
    tx.save_cluster(&mut record, now).await?;
    let listed: Vec<&str> = written_to.iter().map(|id| id.as_str()).collect();
    let message = format!("{} gets another image on {}", record.id, listed.join(", "));
    tx.add_event(&event(&record.id, EventKind::ClusterReimaging, message, now))
        .await?;
    core.commit(tx).await?;
    for name in written_to {
        core.notify_due(name);
    }
    Ok(())
}

/// Stops the rollout: no further node gets the new build.
///
/// # Errors
/// The database failed, or a concurrent change won.
pub async fn stop(core: &Core, mut record: ClusterRecord, why: String, now: Timestamp) -> Result<(), ReserveError> {
    let mut tx = core.store.write().await?;
    if let Some(rollout) = &mut record.cluster.rollout {
        rollout.stopped = Some(why.clone());
    }
    record.reason.clone_from(&why);
    tx.save_cluster(&mut record, now).await?;
    let message = format!("the reimage of {} stopped: {why}", record.id);
    end(&mut tx, &record, &message, now).await?;
    tx.add_event(&event(&record.id, EventKind::ClusterReimageStopped, message, now))
        .await?;
    Ok(core.commit(tx).await?)
}

/// Starts a rollback to the former build.
///
/// # Errors
/// The database failed, or a concurrent change won.
pub async fn roll_back(
    core: &Core,
    mut record: ClusterRecord,
    why: String,
    now: Timestamp,
) -> Result<(), ReserveError> {
    let Some(rollout) = record.cluster.rollout.clone() else {
        return Ok(());
    };
    let failed = 0;
    if !swap_builds(&mut record, Rollout { failed, ..rollout }) {
        return stop(core, record, why, now).await;
    }
    let mut tx = core.store.write().await?;
    tx.save_cluster(&mut record, now).await?;
    let message = format!("{} goes back to its former image: {why}", record.id);
    end(&mut tx, &record, &message, now).await?;
    tx.add_event(&event(&record.id, EventKind::ClusterRolledBack, message, now))
        .await?;
    Ok(core.commit(tx).await?)
}

/// Ends the operation of the new image with the error that the image is not on the nodes.
async fn end(tx: &mut WriteTx, record: &ClusterRecord, message: &str, now: Timestamp) -> Result<(), StoreError> {
    for operation in tx.open_operations(&format!("clusters/{}", record.id)).await? {
        if matches!(
            operation.kind,
            OperationKind::ReimageCluster | OperationKind::RollBackCluster
        ) {
            tx.end_operation(&operation.id, Code::Aborted as i32, message, now)
                .await?;
        }
    }
    Ok(())
}
