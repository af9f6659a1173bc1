//! Facts for a decision: the stored readings, the attempts of the present state, and the agent's connection.

use rackwright_ground::core::Core;
use rackwright_lifecycle::{Facts, State, Timestamp};
use rackwright_store::{EffectRow, NodeRecord, Permit, StoreError};

use super::admission;
use crate::agent_boot::LastBoot;
use crate::credentials;
use crate::ethernet::cabling;
use crate::firmware;
use crate::firmware_settings::WantedCache;
use crate::start_rooms::StartRoomsCache;

/// The known state of a node.
#[derive(Debug)]
pub struct GatheredFacts {
    /// For `decide`.
    pub facts: Facts,
    /// Permits that the node holds or queues for.
    pub permits: Vec<Permit>,
}

/// The present facts of one node. `rows` are the attempts of its present state.
pub async fn gather_facts(
    core: &Core,
    record: &NodeRecord,
    rows: &[EffectRow],
    last_boot: &mut LastBoot,
    now: Timestamp,
) -> Result<GatheredFacts, StoreError> {
    let since = record.node.since;
    let (permits, waited_us) = if core.config.limits.is_empty() && !core.feature::<StartRoomsCache>().has_lines() {
        (Vec::new(), 0)
    } else {
        let permits = core.store.permits(&record.id).await?;
        (permits, core.store.in_line_us(&record.id, since).await?)
    };
    let waits_us = admission::asked_at(&permits).map_or(0, |at| now.since(at.max(since)).max(0));
    // Only these two states write and prove settings.
    let may_want = matches!(record.node.state, State::Inspecting | State::Reclaiming);
    let wants_settings = may_want && core.feature::<WantedCache>().of(core, record).await?.is_some();
    let agent = core.agents.presence(record, now);
    let miscabled = cabling::holds(core, record, &agent).await?;
    let readings = &record.readings;
    let facts = Facts {
        bmc: readings.bmc.clone(),
        power: readings.power.clone(),
        boot_target: readings.boot_target.clone(),
        agent,
        miscabled,
        boots: last_boot.facts(&core.store, record, rows).await?,
        inventory: readings.inventory.clone(),
        wants_settings,
        attempts: rows.iter().map(|r| r.attempt.clone()).collect(),
        firmware: firmware::facts(core, record, now).await?,
        bmc_policy: core.config.bmc_state.policy(),
        manages_ports: core.config.ethernet.managed().is_some(),
        network: readings.network.clone(),
        in_line_us: waited_us.saturating_add(waits_us),
        account: credentials::account_of(core, record),
    };
    Ok(GatheredFacts { facts, permits })
}
