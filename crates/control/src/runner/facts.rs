//! Facts for a decision: the stored readings, the attempts of the present state, and who is connected.

use rackwright_lifecycle::{Facts, Timestamp};
use rackwright_store::{EffectRow, NodeRecord, Permit, StoreError};

use super::admission;
use crate::core::Core;

/// What is known of a node.
#[derive(Debug)]
pub struct Gathered {
    /// For `decide`.
    pub facts: Facts,
    /// What the node has a place in or stands in line for.
    pub permits: Vec<Permit>,
}

/// The facts of one node now, of which `rows` are the tries of its present state.
///
/// # Errors
/// The database failed.
pub async fn gather(
    core: &Core,
    record: &NodeRecord,
    rows: &[EffectRow],
    now: Timestamp,
) -> Result<Gathered, StoreError> {
    let since = record.node.since;
    let (permits, waited_us) = if core.config.limits.is_empty() {
        (Vec::new(), 0)
    } else {
        let permits = core.store.permits(&record.id).await?;
        (permits, core.store.in_line_us(&record.id, since).await?)
    };
    let waits_us = admission::asked_at(&permits).map_or(0, |at| now.since(at.max(since)).max(0));
    let readings = &record.readings;
    let facts = Facts {
        bmc: readings.bmc.clone(),
        power: readings.power.clone(),
        boot_target: readings.boot_target.clone(),
        agent: core.agents.presence(record, now),
        inventory: readings.inventory.clone(),
        attempts: rows.iter().map(|r| r.attempt.clone()).collect(),
        in_line_us: waited_us.saturating_add(waits_us),
    };
    Ok(Gathered { facts, permits })
}
