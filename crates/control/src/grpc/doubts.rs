//! Nodes whose records may be older than their machines: what is refused meanwhile, and how an operator settles it.

use rackwright_api::v1;
use rackwright_lifecycle::EventKind;
use rackwright_store::{NodeRecord, Scope};

use super::asked::Asked;
use super::convert;
use crate::api_error::ApiError;
use crate::core::Core;
use crate::intent;

/// Ends the doubt about a node: an operator says that its record holds.
///
/// # Errors
/// It is not doubted.
fn believed(record: &mut NodeRecord, reason: &str) -> Result<(), ApiError> {
    intent::worded("reason", reason)?;
    if record.node.doubt.is_none() {
        let hint = format!("`rackwright node explain {}` says where it stands", record.id);
        return Err(intent::refused(record, "it is not doubted", &hint));
    }
    record.node.believe();
    Ok(())
}

/// Ends the doubt about a node, with an event that says who believes its record and why.
///
/// # Errors
/// It is not doubted, or others changed it at the same time.
pub async fn believe(core: &Core, asked: &Asked<'_>, id: &str, reason: &str) -> Result<v1::Node, ApiError> {
    let mut tx = match asked.begin().await? {
        Ok(tx) => tx,
        Err(former) => return Ok(former),
    };
    let mut record = tx.node(id).await?;
    asked.check_version(&format!("nodes/{id}"), record.version)?;
    believed(&mut record, reason)?;
    tx.save_node(&mut record, asked.now()).await?;
    let message = format!("{} believes the record of {id}: {}", asked.caller().name, reason.trim());
    let event = asked.event(EventKind::SecurityNodeBelieved, &format!("nodes/{id}"), message);
    tx.add_event(&event).await?;
    // A cluster rests while one of its nodes is doubted.
    if let Some(cluster) = core.store.cluster_of_node(id).await? {
        tx.wake_cluster(&cluster, asked.now()).await?;
    }
    let node = convert::node(core, &record, None, asked.now());
    let response = asked.end(tx, node).await?;
    core.is_due(id);
    core.clusters.due.notify_one();
    Ok(response)
}

/// Refuses a cluster with a doubted node: nothing is done to it, and so nothing to the cluster.
///
/// # Errors
/// It has one.
pub async fn cluster(core: &Core, asked: &Asked<'_>, id: &str) -> Result<(), ApiError> {
    let Some(node) = core.store.doubted_node_of(id).await? else {
        return Ok(());
    };
    let subject = format!("clusters/{id}");
    if asked.caller().scope != Scope::Site {
        let message = format!("the site's operators check the nodes of {id} first");
        return Err(ApiError::precondition(subject, message, "ask the site's operators"));
    }
    let hint = format!("`rackwright node explain {node}` says why, `rackwright node believe` settles it");
    Err(ApiError::precondition(
        subject,
        format!("its node {node} is doubted"),
        hint,
    ))
}
