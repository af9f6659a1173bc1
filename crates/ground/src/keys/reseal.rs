//! Reseals secrets that are under another key than the sealing one. Each batch is one change, and the remaining secrets are
//! found by their header: a process that is killed in the middle has nothing to remember.

use rackwright_identity::{SealError, Sealer, seal_header};
use rackwright_lifecycle::{NodeId, OperationId};
use rackwright_store::{ClusterRecord, NodeRecord, SealedColumn, SealedSecret, StoreError};

use crate::bmc::bmc_password_purpose;
use crate::clock;
use crate::core::Core;
use crate::deployment_keys::deployment_key_purpose;
use crate::keys::purposes::factory_password_purpose;
use crate::keys::purposes::login_purpose;
use crate::keys::purposes::secrets_purpose;
use crate::user_data;

/// The result of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResealCounts {
    /// Resealed rows, or secrets in columns.
    pub resealed: u64,
    /// Secrets that cannot be opened. The log names them.
    pub failed: u64,
}

impl ResealCounts {
    /// Counts one secret, and returns whether it has to be stored.
    fn note(&mut self, resealed: Result<bool, SealError>) -> bool {
        match resealed {
            Ok(is_new) => {
                self.resealed += u64::from(is_new);
                is_new
            }
            Err(error) => {
                tracing::error!(%error, "a secret cannot be sealed again");
                self.failed += 1;
                false
            }
        }
    }
}

/// Reseals everything that needs it, `batch` rows in one change.
pub async fn all(core: &Core, batch: i64) -> Result<ResealCounts, StoreError> {
    let mut done = ResealCounts::default();
    let Some(header) = seal_header(&core.keys.sealer.seals_with()) else {
        return Ok(done);
    };
    nodes(core, &header, batch, &mut done).await?;
    clusters(core, &header, batch, &mut done).await?;
    for column in SealedColumn::ALL {
        secrets(core, column, &header, batch, &mut done).await?;
    }
    Ok(done)
}

async fn nodes(core: &Core, header: &[u8], batch: i64, done: &mut ResealCounts) -> Result<(), StoreError> {
    let mut after = String::new();
    loop {
        let found = core.store.nodes_to_reseal(header, &after, batch).await?;
        let Some(last) = found.last() else { return Ok(()) };
        last.as_str().clone_into(&mut after);
        let mut tx = core.store.write().await?;
        for id in &found {
            let mut record = match tx.node(id).await {
                Err(StoreError::NotFound { .. }) => continue,
                other => other?,
            };
            if done.note(reseal_node(&core.keys.sealer, &mut record)) {
                tx.save_node(&mut record, clock::now()).await?;
            }
        }
        core.commit(tx).await?;
    }
}

/// Returns whether a secret of the node was resealed.
fn reseal_node(sealer: &Sealer, record: &mut NodeRecord) -> Result<bool, SealError> {
    let purpose = bmc_password_purpose(&record.id);
    let pending = record
        .spec
        .account
        .pending
        .as_mut()
        .map(|pending| &mut pending.password);
    let mut is_new = false;
    for sealed in std::iter::once(&mut record.spec.bmc_password).chain(pending) {
        is_new |= reseal(sealer, sealed, &purpose)?;
    }
    Ok(is_new)
}

fn reseal(sealer: &Sealer, sealed: &mut Vec<u8>, purpose: &str) -> Result<bool, SealError> {
    let new = sealer.reseal(sealed, purpose)?;
    Ok(new.map(|new| *sealed = new).is_some())
}

async fn clusters(core: &Core, header: &[u8], batch: i64, done: &mut ResealCounts) -> Result<(), StoreError> {
    let mut after = String::new();
    loop {
        let found = core.store.clusters_to_reseal(header, &after, batch).await?;
        let Some(last) = found.last() else { return Ok(()) };
        last.as_str().clone_into(&mut after);
        let mut tx = core.store.write().await?;
        for id in &found {
            let mut record = match tx.cluster(id).await {
                Err(StoreError::NotFound { .. }) => continue,
                other => other?,
            };
            if done.note(reseal_cluster(&core.keys.sealer, &mut record)) {
                tx.save_cluster(&mut record, clock::now()).await?;
            }
        }
        core.commit(tx).await?;
    }
}

fn reseal_cluster(sealer: &Sealer, record: &mut ClusterRecord) -> Result<bool, SealError> {
    let former = record.former.as_mut().map(|former| &mut former.spec);
    let mut is_new = false;
    for spec in std::iter::once(&mut record.spec).chain(former) {
        if let Some(data) = &mut spec.user_data {
            let purpose = user_data::cluster_purpose(&record.id, &record.uid, data.build);
            is_new |= reseal(sealer, &mut data.sealed, &purpose)?;
        }
    }
    Ok(is_new)
}

async fn secrets(
    core: &Core,
    column: SealedColumn,
    header: &[u8],
    batch: i64,
    done: &mut ResealCounts,
) -> Result<(), StoreError> {
    // Secrets that cannot be opened stay at the front of the search.
    let mut skip = 0;
    loop {
        let mut tx = core.store.write().await?;
        let found = tx.to_reseal(column, header, skip, batch).await?;
        if found.is_empty() {
            return Ok(());
        }
        for mut secret in found {
            let purpose = purpose(column, &secret);
            if done.note(reseal(&core.keys.sealer, &mut secret.sealed, &purpose)) {
                tx.put_sealed(column, &secret).await?;
            } else {
                skip += 1;
            }
        }
        core.commit(tx).await?;
    }
}

/// The purpose to which a secret in a column is bound.
fn purpose(column: SealedColumn, secret: &SealedSecret) -> String {
    let key = |place: usize| secret.key.get(place).map_or("", String::as_str);
    let deployment = || {
        (
            NodeId::stored(key(0)),
            key(1).parse().unwrap_or(0),
            key(2).parse().unwrap_or(0),
        )
    };
    let deployment_key = |what: &str| {
        let (node, generation, deployment) = deployment();
        deployment_key_purpose(what, &node, generation, deployment)
    };
    match column {
        SealedColumn::HostKey => deployment_key("host"),
        SealedColumn::ProvisionKey => deployment_key("provision"),
        SealedColumn::UserData => {
            let (node, generation, deployment) = deployment();
            user_data::node_purpose(&node, generation, deployment)
        }
        SealedColumn::FactoryPassword => factory_password_purpose(key(0)),
        SealedColumn::DiscoverySecrets => secrets_purpose(&OperationId::stored(key(0))),
        SealedColumn::DiscoveryLogin => login_purpose(&OperationId::stored(key(0)), key(1)),
        SealedColumn::SiteKey => key(0).to_owned(),
    }
}
