//! cloud-config of customers. It may hold passwords and keys, so it is sealed before it is stored, opened only to make the
//! seed of a deployment, and dropped when it is no longer needed:
//!
//! - of a node's deployment: at the hand-over, and when the claim ends. A later reimage has to bring it again.
//! - of a cluster's build: when the cluster is released, or when no build of the cluster names it. Until then, nodes that
//!   join, are replaced or get another image need it.

use rackwright_identity::{SealError, Sealer};
use rackwright_lifecycle::{ClusterId, EventKind, NodeId, State, cluster};
use rackwright_store::{ClusterRecord, ClusterSpec, EventRow, NodeRecord, SealedUserData, StoreError, WriteTx};
use secrecy::{ExposeSecret as _, SecretString};

use crate::clock;
use crate::core::Core;
use crate::text::counted;

/// Rows sealed in one change.
pub const BATCH: i64 = 50;

/// The purpose to which the sealed user data of a node's deployment are bound.
#[must_use]
pub fn node_purpose(node: &NodeId, generation: u64, deployment: u32) -> String {
    format!("user-data:nodes/{node}:{generation}:{deployment}")
}

/// The purpose to which the sealed user data of a cluster's build are bound.
#[must_use]
pub fn cluster_purpose(cluster: &ClusterId, uid: &str, build: u32) -> String {
    format!("user-data:clusters/{cluster}:{uid}:{build}")
}

/// Seals user data for one deployment of a node. Empty if there are none.
///
/// # Errors
/// The user data are too long.
pub fn seal_for_node(
    sealer: &Sealer,
    text: &str,
    (node, generation, deployment): (&NodeId, u64, u32),
) -> Result<Vec<u8>, SealError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    sealer.seal(&text.into(), &node_purpose(node, generation, deployment))
}

/// Seals user data for one build of a cluster. `None` if there are none.
///
/// # Errors
/// The user data are too long.
pub fn seal_for_cluster(
    sealer: &Sealer,
    text: &str,
    (cluster, uid, build): (&ClusterId, &str, u32),
) -> Result<Option<SealedUserData>, SealError> {
    if text.is_empty() {
        return Ok(None);
    }
    let sealed = sealer.seal(&text.into(), &cluster_purpose(cluster, uid, build))?;
    Ok(Some(SealedUserData { build, sealed }))
}

/// The user data, in the clear, for the cluster's nodes under `spec`. Empty if there are none.
///
/// # Errors
/// The sealing key is missing, or the row was changed outside the daemon.
pub fn of_spec(sealer: &Sealer, record: &ClusterRecord, spec: &ClusterSpec) -> Result<String, SealError> {
    let Some(data) = &spec.user_data else {
        return Ok(spec.plain_user_data.clone());
    };
    let purpose = cluster_purpose(&record.id, &record.uid, data.build);
    let text = sealer.open(&data.sealed, &purpose)?;
    Ok(text.expose_secret().to_owned())
}

/// Drops the user data of a released cluster.
pub fn forget_of_cluster(record: &mut ClusterRecord) {
    let former = record.former.as_mut().map(|former| &mut former.spec);
    for spec in std::iter::once(&mut record.spec).chain(former) {
        spec.user_data = None;
        spec.plain_user_data.clear();
    }
}

/// Seals or drops user data that older versions stored in the clear. If a start is killed in the middle, the next one goes
/// on.
///
/// # Errors
/// The database failed, or the sealing failed.
pub async fn seal_plain_rows(core: &Core) -> Result<(), PlainRowsError> {
    let mut nodes = 0;
    loop {
        let found = core.store.nodes_with_plain_user_data(BATCH).await?;
        if found.is_empty() {
            break;
        }
        let mut tx = core.store.write().await?;
        for id in &found {
            let record = tx.node(id).await?;
            seal_node(core, &mut tx, record).await?;
        }
        nodes += found.len();
        core.commit(tx).await?;
    }
    let mut clusters = 0;
    loop {
        let found = core.store.clusters_with_plain_user_data(BATCH).await?;
        if found.is_empty() {
            break;
        }
        let mut tx = core.store.write().await?;
        for id in &found {
            let record = tx.cluster(id).await?;
            seal_cluster(core, &mut tx, record).await?;
        }
        clusters += found.len();
        core.commit(tx).await?;
    }
    if nodes + clusters == 0 {
        return Ok(());
    }
    core.store.empty_log().await?;
    tracing::info!(
        nodes,
        clusters,
        "user data that was stored in the clear is sealed or dropped"
    );
    let mut tx = core.store.write().await?;
    tx.add_event(&EventRow {
        at: clock::now(),
        kind: EventKind::SecurityUserDataSealed,
        target: "site".into(),
        message: format!(
            "user data of {} and {} was stored in the clear by an older version; it is \
             sealed or dropped now. Earlier backups of the database still contain it",
            counted(nodes, "node"),
            counted(clusters, "cluster")
        ),
        ..EventRow::default()
    })
    .await?;
    Ok(core.commit(tx).await?)
}

/// Why user data stays in the clear.
#[derive(Debug, thiserror::Error)]
pub enum PlainRowsError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The sealing failed.
    #[error(transparent)]
    Seal(#[from] SealError),
}

async fn seal_node(core: &Core, tx: &mut WriteTx, mut record: NodeRecord) -> Result<(), PlainRowsError> {
    let Some(claim) = &mut record.node.claim else {
        return Ok(());
    };
    let text = SecretString::from(std::mem::take(&mut claim.plain_user_data));
    claim.has_user_data = true;
    let (generation, deployment) = (claim.generation, claim.deployment);
    let is_ending = matches!(record.node.state, State::Reclaiming | State::Quarantined);
    if claim.handed_over != Some(deployment) && !is_ending {
        let purpose = node_purpose(&record.id, generation, deployment);
        let sealed = core.keys.sealer.seal(&text, &purpose)?;
        match tx.put_user_data(&record.id, generation, deployment, &sealed).await {
            // Without its keys this deployment gets no seed, so it needs no user data.
            Err(StoreError::NotFound { .. }) => {}
            other => other?,
        }
    }
    Ok(tx.save_node(&mut record, clock::now()).await?)
}

async fn seal_cluster(core: &Core, tx: &mut WriteTx, mut record: ClusterRecord) -> Result<(), PlainRowsError> {
    if matches!(
        record.cluster.state,
        cluster::State::Releasing | cluster::State::Released
    ) {
        forget_of_cluster(&mut record);
        return Ok(tx.save_cluster(&mut record, clock::now()).await?);
    }
    let former = record.former.as_mut().map(|former| (former.build, &mut former.spec));
    for (build, spec) in std::iter::once((record.cluster.build, &mut record.spec)).chain(former) {
        if spec.plain_user_data.is_empty() {
            continue;
        }
        let text = SecretString::from(std::mem::take(&mut spec.plain_user_data));
        let sealed = core
            .keys
            .sealer
            .seal(&text, &cluster_purpose(&record.id, &record.uid, build))?;
        spec.user_data = Some(SealedUserData { build, sealed });
    }
    Ok(tx.save_cluster(&mut record, clock::now()).await?)
}
