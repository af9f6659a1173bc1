//! One look at a node's power, and what it changes about what is stored.
//!
//! A look never moves a node and never acts on its machine: it stores what was seen, tells it, and wakes the node.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rackwright_lifecycle::{Bmc, EventKind, Power, Reading, Timestamp, seconds};
use rackwright_redfish::{BmcClient, BmcTarget, RedfishError, Shortcut};
use rackwright_store::{EventRow, NodeRecord, Readings, RestingRow, Scope, Spec, StoreError};

use tokio::sync::Notify;

use super::schedule::{Id, Look};
use crate::bmc::{self, BmcError, watch_settings};
use crate::clock;
use crate::core::Core;
use crate::credentials;
use crate::perform::{ipmi_power, power_event, seen_off, seen_on};

/// Looks in a row that a BMC may leave unanswered before it counts as lost.
const MISSES: u32 = 3;

/// What was seen of the power since then is not doubted because of an event: the event may be about that.
const DOUBT_S: i64 = 5;

/// What is known of a node's BMC from the look before.
#[derive(Debug)]
pub(super) struct Known {
    version: i64,
    spec: Spec,
    /// It has told who its machine is.
    is_identified: bool,
    shortcut: Shortcut,
}

impl Known {
    /// How to get into the BMC.
    pub(super) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// One that enters by the way that was found.
    pub(super) fn client(&self, core: &Core, target: BmcTarget) -> Result<BmcClient, RedfishError> {
        BmcClient::sparing(target, watch_settings(core), &self.shortcut)
    }

    fn of(record: &NodeRecord) -> Self {
        Self {
            version: record.version,
            spec: record.spec.clone(),
            is_identified: !record.identity.macs.is_empty(),
            shortcut: Shortcut::default(),
        }
    }
}

/// What came of a look.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) id: Id,
    pub(super) look: Look,
    pub(super) known: Option<Known>,
    /// The BMC is another than at the look before.
    pub(super) is_other_bmc: bool,
}

/// BMCs that are being looked at: one that has several machines is asked about one at a time.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    taken: Mutex<HashSet<String>>,
    ended: Notify,
}

/// Whoever waits for a turn at one address waits no longer than this.
const TURN: Duration = Duration::from_secs(60);

/// Ends a turn when dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    address: &'a str,
}

impl Turns {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin<'a>(&'a self, address: &'a str) -> Option<Turn<'a>> {
        let is_free = self.lock().insert(address.to_owned());
        is_free.then_some(Turn { turns: self, address })
    }

    /// Waits until nobody else asks at that address, but not for ever.
    pub(crate) async fn wait<'a>(&'a self, address: &'a str) -> Option<Turn<'a>> {
        let turn = async {
            loop {
                let mut ended = std::pin::pin!(self.ended.notified());
                ended.as_mut().enable();
                if let Some(turn) = self.begin(address) {
                    return turn;
                }
                ended.await;
            }
        };
        tokio::time::timeout(TURN, turn).await.ok()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.lock().remove(self.address);
        self.turns.ended.notify_waiters();
    }
}

/// Looks at a node once, after `silent` looks in a row that its BMC left unanswered.
pub(super) async fn look(core: &Core, turns: &Turns, row: RestingRow, known: Option<Known>, silent: u32) -> Looked {
    let mut looked = Looked {
        id: row.id.as_str().into(),
        look: Look::Unsettled,
        known: None,
        is_other_bmc: false,
    };
    let before = known.as_ref().map(|known| known.spec.clone());
    match try_look(core, turns, &row, known, silent).await {
        Ok((look, known)) => {
            looked.look = look;
            looked.is_other_bmc = before.is_some_and(|before| before != known.spec);
            looked.known = Some(known);
        }
        Err(error) => {
            tracing::warn!(node = row.id, %error, "what was seen of the node's power is not stored; it is looked at again");
        }
    }
    looked
}

async fn try_look(
    core: &Core,
    turns: &Turns,
    row: &RestingRow,
    known: Option<Known>,
    silent: u32,
) -> Result<(Look, Known), StoreError> {
    let mut known = match known {
        Some(known) if known.version == row.version => known,
        before => {
            let fresh = Known::of(&core.store.node(&Scope::Site, &row.id).await?);
            // A new version of the node is not always another BMC.
            let shortcut = before.filter(|before| before.spec == fresh.spec).map(|b| b.shortcut);
            Known {
                shortcut: shortcut.unwrap_or_default(),
                ..fresh
            }
        }
    };
    if core.runs.has(&row.id) || known.version != row.version {
        // Who works on the node knows better.
        return Ok((Look::Unsettled, known));
    }
    let seen = {
        let Some(_turn) = turns.begin(&known.spec.bmc_address) else {
            return Ok((Look::Unsettled, known));
        };
        ask(core, &row.id, &known).await
    };
    let now = clock::now();
    let seen = match seen {
        Ok((power, shortcut)) => {
            known.shortcut = shortcut;
            Seen::Power(power)
        }
        Err(error) => {
            known.shortcut = Shortcut::default();
            credentials::store_refusal(core, &row.id, &known.spec, &error).await?;
            let (code, is_retryable) = error.code();
            let message = error.told(&known.spec.bmc_address);
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
    if let Some(news) = news(row, &known, seen, silent, now) {
        keep(core, row, news, now).await?;
    }
    Ok((look, known))
}

/// Asks the BMC. One request where it was asked before; nothing is left open.
async fn ask(core: &Core, node: &str, known: &Known) -> Result<(Power, Shortcut), BmcError> {
    if bmc::is_ipmi(&known.spec) {
        let client = bmc::ipmi(node, &known.spec, &core.keys.sealer, &core.ipmi)?.sparing();
        return Ok((ipmi_power(client.power().await?), Shortcut::default()));
    }
    let target = bmc::target(node, &known.spec, &core.keys.sealer)?;
    let client = known.client(core, target)?;
    let power = client.power().await;
    let shortcut = client.shortcut().await;
    if let Err(error) = client.close().await {
        tracing::debug!(node, %error, "a BMC session could not be closed; it will time out");
    }
    Ok((bmc::power_of(&power?), shortcut))
}

/// What a BMC answered, or did not.
#[derive(Debug, Clone)]
enum Seen {
    Power(Power),
    Failure {
        message: String,
        code: &'static str,
        /// Trying again does not help.
        is_final: bool,
        security: Option<EventRow>,
    },
}

/// What a look changes about what is stored.
#[derive(Debug, Clone, PartialEq)]
struct News {
    readings: Readings,
    events: Vec<EventRow>,
    /// The kind of failure by which the BMC was lost.
    lost_by: Option<&'static str>,
}

/// Nothing, mostly. A BMC counts as lost when it has left `MISSES` looks in a row unanswered, or refuses us; that it is
/// lost, or back, is told once.
fn news(row: &RestingRow, known: &Known, seen: Seen, silent: u32, now: Timestamp) -> Option<News> {
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
                events.extend(unasked(row, &readings, now));
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
    (readings != row.readings).then_some(News {
        readings,
        events,
        lost_by,
    })
}

/// That the power is another than it was, which nothing of ours has done.
fn unasked(row: &RestingRow, readings: &Readings, now: Timestamp) -> Option<EventRow> {
    let mut event = power_event(&row.id, &row.readings.power, &readings.power, now)?;
    if row.readings.power.last().is_some() {
        event.message.push_str(", and nobody asked for that here");
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

/// A node that somebody works with may have another power than it is known to have: that is marked as not known, and
/// whoever decides what comes next looks first. What was seen a moment ago, or is being changed, is left alone. False when
/// there is no such node.
pub(super) async fn doubt(core: &Core, node: &str) -> Result<bool, StoreError> {
    let mut tx = core.store.write().await?;
    let record = match tx.node(node).await {
        Err(StoreError::NotFound { .. }) => return Ok(false),
        other => other?,
    };
    let now = clock::now();
    let is_old = matches!(&record.readings.power, Reading::Known { at, .. } if now.since(*at) >= seconds(DOUBT_S));
    if record.node.state.is_at_rest() || !is_old || tx.open_effect(node).await?.is_some() {
        return Ok(true);
    }
    let readings = Readings {
        power: Reading::Unknown { since: now },
        ..record.readings
    };
    tx.save_readings(node, &readings, now).await?;
    core.commit(tx).await?;
    core.is_due(node);
    Ok(true)
}

/// Stores news of a node as it was before the look, and nothing when anybody has changed it, or begun something with it,
/// since.
async fn keep(core: &Core, row: &RestingRow, news: News, now: Timestamp) -> Result<(), StoreError> {
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
    tx.save_readings(&row.id, &news.readings, now).await?;
    for event in &news.events {
        tracing::info!(node = row.id, kind = %event.kind, message = event.message, "seen");
        tx.add_event(event).await?;
    }
    let is_off = news.readings.power != row.readings.power && news.readings.power.last() == Some(&Power::Off);
    if is_off {
        // Whoever has the connection of its agent has that of a machine that is gone.
        tx.release_agent(&row.id, row.session, now).await?;
    }
    core.commit(tx).await?;
    if let Some(code) = news.lost_by {
        core.metrics.bmc_failed(code, &record.identity.vendor);
    }
    core.is_due(&row.id);
    Ok(())
}

#[cfg(test)]
mod tests;
