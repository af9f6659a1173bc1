//! Nodes with records that may be older than their machines: refused calls, and the ways to settle a doubt.

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::intent;
use rackwright_lifecycle::{ClusterId, EventKind, NodeId};
use rackwright_store::Scope;

use super::call::MutatingCall;
use super::convert;

/// Ends the doubt about a node, with an event that names the operator and the reason.
///
/// # Errors
/// The node is not doubted, or was changed at the same time.
pub async fn believe(core: &Core, call: &MutatingCall<'_>, id: &NodeId, reason: &str) -> Result<v1::Node, ApiError> {
    let mut tx = match call.begin().await? {
        Ok(tx) => tx,
        Err(former) => return Ok(former),
    };
    let mut record = tx.node(id).await?;
    call.check_version(&format!("nodes/{id}"), record.version)?;
    intent::end_doubt(&mut record, reason)?;
    tx.save_node(&mut record, call.now()).await?;
    let message = format!("{} believes the record of {id}: {}", call.caller().name, reason.trim());
    let event = call.event(EventKind::SecurityNodeBelieved, &format!("nodes/{id}"), message);
    tx.add_event(&event).await?;
    // A cluster pauses while one of its nodes is doubted.
    if let Some(cluster) = core.store.cluster_of_node(id).await? {
        tx.wake_cluster(&cluster, call.now()).await?;
    }
    let node = convert::node(core, &record, None, call.now());
    let response = call.end(tx, node).await?;
    core.notify_due(id);
    core.clusters_due.notify_one();
    Ok(response)
}

/// Refuses changes of a cluster with a doubted node, because no step of that node runs.
///
/// # Errors
/// The cluster has a doubted node.
pub async fn cluster(core: &Core, call: &MutatingCall<'_>, id: &ClusterId) -> Result<(), ApiError> {
    let Some(node) = core.store.doubted_node_of(id).await? else {
        return Ok(());
    };
    let subject = format!("clusters/{id}");
    if call.caller().scope != Scope::Site {
        let message = format!("the site's operators must check the nodes of {id} first");
        return Err(ApiError::precondition(subject, message, "ask the site's operators"));
    }
    let hint =
        format!("`rackwright node explain {node}` shows the reason, `rackwright node believe` settles the doubt");
    Err(ApiError::precondition(
        subject,
        format!("its node {node} is doubted"),
        hint,
    ))
}
