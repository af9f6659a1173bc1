//! One look at a node's power, and the changes that it stores.
//!
//! A look does not change a node's state and does not act on its machine. It stores readings and events, and wakes the
//! node.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rackwright_ground::bmc::{self, BmcError, watch_settings};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{Bmc, EventKind, NodeId, Power, Reading, Timestamp, seconds};
use rackwright_nodes::credentials;
use rackwright_nodes::perform::{ipmi_power, power_event, seen_off, seen_on};
use rackwright_redfish::{BmcClient, BmcHints, BmcTarget, RedfishError};
use rackwright_store::{EventRow, NodeRecord, Readings, RestingRow, Scope, Spec, StoreError};

use tokio::sync::Notify;

use super::schedule::{Id, Look};

/// Unanswered looks in a row after which a BMC counts as lost.
const MISSES: u32 = 3;

/// A power reading younger than this many seconds stays valid after an event, because the event may be its cause.
const RECENT_S: i64 = 5;

/// Facts about a node's BMC from the look before.
#[derive(Debug)]
pub(super) struct Known {
    version: i64,
    spec: Spec,
    /// The BMC has reported the identity of its machine.
    is_identified: bool,
    hints: BmcHints,
}

impl Known {
    /// Address and login of the BMC.
    pub(super) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// A client that uses the path from the look before.
    pub(super) fn client(&self, core: &Core, target: BmcTarget) -> Result<BmcClient, RedfishError> {
        BmcClient::for_polling(target, watch_settings(core), &self.hints)
    }

    fn of(record: &NodeRecord) -> Self {
        Self {
            version: record.version,
            spec: record.spec.clone(),
            is_identified: !record.identity.macs.is_empty(),
            hints: BmcHints::default(),
        }
    }
}

/// Result of a look.
#[derive(Debug)]
pub(super) struct LookOutcome {
    pub(super) id: Id,
    pub(super) look: Look,
    pub(super) known: Option<Known>,
    /// The BMC differs from the one at the look before.
    pub(super) is_other_bmc: bool,
}

/// BMC addresses in use. A BMC with several machines gets one request at a time.
#[derive(Debug, Default)]
pub(crate) struct BmcLocks {
    taken: Mutex<HashSet<String>>,
    ended: Notify,
}

/// Longest wait for a turn at one address.
const LOCK_WAIT: Duration = Duration::from_secs(60);

/// A turn at one address; dropping it ends the turn.
pub(crate) struct BmcLock<'a> {
    bmc_locks: &'a BmcLocks,
    address: &'a str,
}

impl BmcLocks {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin<'a>(&'a self, address: &'a str) -> Option<BmcLock<'a>> {
        let is_free = self.lock().insert(address.to_owned());
        is_free.then_some(BmcLock {
            bmc_locks: self,
            address,
        })
    }

    /// Waits for a turn at an address; `None` after the longest wait.
    pub(crate) async fn wait<'a>(&'a self, address: &'a str) -> Option<BmcLock<'a>> {
        let bmc_lock = async {
            loop {
                let mut ended = std::pin::pin!(self.ended.notified());
                ended.as_mut().enable();
                if let Some(bmc_lock) = self.begin(address) {
                    return bmc_lock;
                }
                ended.await;
            }
        };
        tokio::time::timeout(LOCK_WAIT, bmc_lock).await.ok()
    }
}

impl Drop for BmcLock<'_> {
    fn drop(&mut self) {
        self.bmc_locks.lock().remove(self.address);
        self.bmc_locks.ended.notify_waiters();
    }
}

/// Looks at a node once. `silent` is the number of looks in a row that its BMC did not answer.
pub(super) async fn look(
    core: &Core,
    bmc_locks: &BmcLocks,
    row: RestingRow,
    known: Option<Known>,
    silent: u32,
) -> LookOutcome {
    let mut looked = LookOutcome {
        id: row.id.clone(),
        look: Look::Unsettled,
        known: None,
        is_other_bmc: false,
    };
    let before = known.as_ref().map(|known| known.spec.clone());
    match try_look(core, bmc_locks, &row, known, silent).await {
        Ok((look, known)) => {
            looked.look = look;
            looked.is_other_bmc = before.is_some_and(|before| before != known.spec);
            looked.known = Some(known);
        }
        Err(error) => {
            tracing::warn!(
                node = row.id.as_str(),
                %error,
                "a power reading of the node could not be stored; the power is read again"
            );
        }
    }
    looked
}

async fn try_look(
    core: &Core,
    bmc_locks: &BmcLocks,
    row: &RestingRow,
    known: Option<Known>,
    silent: u32,
) -> Result<(Look, Known), StoreError> {
    let mut known = match known {
        Some(known) if known.version == row.version => known,
        before => {
            let fresh = Known::of(&core.store.node(&Scope::Site, &row.id).await?);
            // A new version of the node may still have the same BMC.
            let hints = before.filter(|before| before.spec == fresh.spec).map(|b| b.hints);
            Known {
                hints: hints.unwrap_or_default(),
                ..fresh
            }
        }
    };
    if core.running_steps.is_running(&row.id) || known.version != row.version {
        // The runner works on the node, and its readings are better.
        return Ok((Look::Unsettled, known));
    }
    let seen = {
        let Some(_bmc_lock) = bmc_locks.begin(&known.spec.bmc_address) else {
            return Ok((Look::Unsettled, known));
        };
        ask(core, &row.id, &known).await
    };
    let now = clock::now();
    let seen = match seen {
        Ok((power, hints)) => {
            known.hints = hints;
            Seen::Power(power)
        }
        Err(error) => {
            known.hints = BmcHints::default();
            credentials::store_refusal(core, &row.id, &known.spec, &error).await?;
            let (code, is_retryable) = error.code();
            let message = error.description(&known.spec.bmc_address);
            Seen::Failure {
                code,
                is_final: !is_retryable,
                security: error.security_event(&row.id, &message, now),
                message,
            }
        }
    };
    let look = match &seen {
        Seen::Power(Power::Changing) => Look::Unsettled,
        Seen::Power(power) if row.readings.power.last() != Some(power) => Look::Changed,
        Seen::Power(_) => Look::Same,
        Seen::Failure { is_final: true, .. } => Look::Refused,
        Seen::Failure { .. } => Look::Silent,
    };
    if let Some(power_update) = power_update(row, &known, seen, silent, now) {
        store_update(core, row, power_update, now).await?;
    }
    Ok((look, known))
}

/// Reads the power from the BMC: one request if a path is known. No session stays open.
async fn ask(core: &Core, node: &NodeId, known: &Known) -> Result<(Power, BmcHints), BmcError> {
    if bmc::is_ipmi(&known.spec) {
        let client = bmc::ipmi(node, &known.spec, &core.keys.sealer, &core.ipmi)?.for_polling();
        return Ok((ipmi_power(client.power().await?), BmcHints::default()));
    }
    let target = bmc::target(node, &known.spec, &core.keys.sealer)?;
    let client = known.client(core, target)?;
    let power = client.power().await;
    let hints = client.hints().await;
    if let Err(error) = client.close().await {
        tracing::debug!(node = node.as_str(), %error, "a BMC session could not be closed; it will time out");
    }
    Ok((bmc::power_of(&power?), hints))
}

/// Answer of a BMC, or the failure.
#[derive(Debug, Clone)]
enum Seen {
    Power(Power),
    Failure {
        message: String,
        code: &'static str,
        /// A retry does not help.
        is_final: bool,
        security: Option<EventRow>,
    },
}

/// The changes that a look stores.
#[derive(Debug, Clone, PartialEq)]
struct PowerUpdate {
    readings: Readings,
    events: Vec<EventRow>,
    /// The kind of failure that made the BMC count as lost.
    lost_by: Option<&'static str>,
}

/// The changes after a look; mostly none. A BMC counts as lost after `MISSES` unanswered looks in a row or one refusal.
/// One event reports the loss, and one the return.
fn power_update(row: &RestingRow, known: &Known, seen: Seen, silent: u32, now: Timestamp) -> Option<PowerUpdate> {
    let mut readings = row.readings.clone();
    let (mut events, mut lost_by) = (Vec::new(), None);
    let was_lost = matches!(readings.bmc.last(), Some(Bmc::Unreachable(_)));
    match seen {
        Seen::Power(power) => {
            if was_lost {
                readings.bmc = if known.is_identified {
                    Reading::Known {
                        value: Bmc::Identified,
                        at: now,
                    }
                } else {
                    Reading::Unknown { since: now }
                };
                events.push(event(
                    row,
                    EventKind::BmcBack,
                    format!("the BMC of {} answers again", row.id),
                    now,
                ));
            }
            if row.readings.power.last() != Some(&power) {
                match power {
                    Power::On => seen_on(&mut readings, now),
                    Power::Off => seen_off(&mut readings, now),
                    Power::Changing => {}
                }
                events.extend(unexpected_power_event(row, &readings, now));
            }
        }
        Seen::Failure {
            message,
            code,
            is_final,
            security,
        } => {
            if !was_lost && (is_final || silent + 1 >= MISSES) {
                lost_by = Some(code);
                events.extend(security);
                events.push(event(row, EventKind::BmcLost, message.clone(), now));
                readings.bmc = Reading::Known {
                    value: Bmc::Unreachable(message),
                    at: now,
                };
            }
        }
    }
    (readings != row.readings).then_some(PowerUpdate {
        readings,
        events,
        lost_by,
    })
}

/// An event for a power change that Rackwright did not cause.
fn unexpected_power_event(row: &RestingRow, readings: &Readings, now: Timestamp) -> Option<EventRow> {
    let mut event = power_event(&row.id, &row.readings.power, &readings.power, now)?;
    if row.readings.power.last().is_some() {
        event.message.push_str(", and no operation requested this");
        event.attributes.insert("asked".into(), "false".into());
    }
    Some(event)
}

fn event(row: &RestingRow, kind: EventKind, message: String, now: Timestamp) -> EventRow {
    EventRow {
        at: now,
        kind,
        target: format!("nodes/{}", row.id),
        message,
        ..EventRow::default()
    }
}

/// Marks the power of a node in use as unknown after an event, so that the next step looks first. A recent reading
/// stays, and so does the power during an effect. Returns false if the node does not exist.
pub(super) async fn mark_power_unknown(core: &Core, node: &NodeId) -> Result<bool, StoreError> {
    let mut tx = core.store.write().await?;
    let record = match tx.node(node).await {
        Err(StoreError::NotFound { .. }) => return Ok(false),
        other => other?,
    };
    let now = clock::now();
    let is_old = matches!(&record.readings.power, Reading::Known { at, .. } if now.since(*at) >= seconds(RECENT_S));
    if record.node.state.is_at_rest() || !is_old || tx.open_effect(node).await?.is_some() {
        return Ok(true);
    }
    let readings = Readings {
        power: Reading::Unknown { since: now },
        ..record.readings
    };
    tx.save_readings(node, &readings, now).await?;
    core.commit(tx).await?;
    core.notify_due(node);
    Ok(true)
}

/// Stores the changes, unless the node or its readings have changed or an effect has begun since the look's row was
/// read.
async fn store_update(
    core: &Core,
    row: &RestingRow,
    power_update: PowerUpdate,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    let record = match tx.node(&row.id).await {
        Err(StoreError::NotFound { .. }) => return Ok(()),
        other => other?,
    };
    let is_as_before = (record.version, record.hold.session) == (row.version, row.session)
        && record.readings == row.readings
        && tx.open_effect(&row.id).await?.is_none();
    if !is_as_before {
        return Ok(());
    }
    tx.save_readings(&row.id, &power_update.readings, now).await?;
    for event in &power_update.events {
        tracing::info!(node = row.id.as_str(), kind = %event.kind, message = event.message, "seen");
        tx.add_event(event).await?;
    }
    let is_off =
        power_update.readings.power != row.readings.power && power_update.readings.power.last() == Some(&Power::Off);
    if is_off {
        // The machine is off, so the connection of its agent is stale.
        tx.disconnect_agent(&row.id, row.session, now).await?;
    }
    core.commit(tx).await?;
    if let Some(code) = power_update.lost_by {
        core.metrics.bmc_failed(code, &record.identity.vendor);
    }
    core.notify_due(&row.id);
    Ok(())
}

#[cfg(test)]
mod tests;
