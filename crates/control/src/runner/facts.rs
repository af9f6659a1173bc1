//! Facts for a decision: the stored readings, the attempts of the present state, and who is connected.

use rackwright_lifecycle::{Facts, Timestamp};
use rackwright_store::{EffectRow, NodeRecord, StoreError};

use crate::core::Core;

/// The facts of one node now, and the rows its attempts come from.
///
/// # Errors
/// The database failed.
pub async fn gather(core: &Core, record: &NodeRecord, now: Timestamp) -> Result<(Facts, Vec<EffectRow>), StoreError> {
    let rows = core.store.attempts(&record.id, record.node.since).await?;
    let readings = &record.readings;
    let facts = Facts {
        bmc: readings.bmc.clone(),
        power: readings.power.clone(),
        boot_target: readings.boot_target.clone(),
        agent: core.agents.presence(record, now),
        inventory: readings.inventory.clone(),
        attempts: rows.iter().map(|r| r.attempt.clone()).collect(),
    };
    Ok((facts, rows))
}
