//! Gives a node to a cluster: the claim of `DeployNode`, with the cluster in it.

use rackwright_api::v1;
use rackwright_ground::core::Core;
use rackwright_ground::deployment_keys::new_keys;
use rackwright_ground::intent;
use rackwright_lifecycle::ClusterClaim;
use rackwright_store::{DeploymentKeys, NodeRecord};

/// Writes another build of its cluster to a node, exactly as `deployment` describes it. Returns generation, deployment and
/// keys. `None`: the node's state does not allow it now.
///
/// # Errors
/// The fault of the deployment, in a sentence.
pub fn rewrite(
    core: &Core,
    record: &mut NodeRecord,
    deployment: &v1::Deployment,
    digest: &str,
    build: u32,
) -> Result<Option<(u64, u32, DeploymentKeys)>, String> {
    let image = intent::Image {
        name: deployment.image.clone(),
        digest: digest.to_owned(),
    };
    let Some((generation, number)) = intent::rewrite(record, deployment, image) else {
        return Ok(None);
    };
    let keys = new_keys(core, &record.id, (generation, number), &deployment.user_data).map_err(|e| e.to_string())?;
    if let Some(cluster_claim) = record.node.claim.as_mut().and_then(|claim| claim.cluster.as_mut()) {
        cluster_claim.build = build;
    }
    if let Some(claim) = &record.node.claim {
        rackwright_nodes::perform::seed_files(core, record, claim, &keys)?;
    }
    Ok(Some((generation, number, keys)))
}

/// Claims a node for a cluster. Returns generation, deployment and keys. `None`: the node is not free.
///
/// # Errors
/// The fault of the deployment, in a sentence.
pub fn take(
    core: &Core,
    record: &mut NodeRecord,
    deployment: &v1::Deployment,
    digest: &str,
    cluster_claim: ClusterClaim,
) -> Result<Option<(u64, u32, DeploymentKeys)>, String> {
    let wanted = &record.node.wanted;
    if !intent::is_free(record) || wanted.hold.is_some() || wanted.condemn.is_some() {
        return Ok(None);
    }
    let image = intent::Image {
        name: deployment.image.clone(),
        digest: digest.to_owned(),
    };
    let claimed = intent::deploy(record, deployment, image);
    let (generation, number) = claimed.map_err(|e| e.to_string())?;
    let keys = new_keys(core, &record.id, (generation, number), &deployment.user_data).map_err(|e| e.to_string())?;
    if let Some(claim) = &mut record.node.claim {
        claim.cluster = Some(cluster_claim);
    }
    if let Some(claim) = &record.node.claim {
        rackwright_nodes::perform::seed_files(core, record, claim, &keys)?;
    }
    Ok(Some((generation, number, keys)))
}
