//! Performs the decisions: the I/O of each effect.

mod agent_job;
mod bmc;
mod bmc_state;
mod boot_macs;
pub mod certify;
mod drives;
mod erase;
mod evidence;
mod firmware;
mod host;
mod ipmi;
mod medium;
mod network;
mod settings;
mod uefi;

use std::collections::BTreeSet;
use std::pin::Pin;

use rackwright_lifecycle::bmc_state::uefi::Baseline;
use rackwright_lifecycle::drives::DriveList;
use rackwright_lifecycle::{Agent, Bmc, Effect, EventKind, NodeId, Outcome, Power, Reading, Timestamp};
use rackwright_store::{
    BmcStateRow, EventRow, Identity, NodeRecord, Proof, Readings, SettingsRead, StoreError, WriteTx,
};
use tokio::sync::Notify;

use crate::core::Core;
use crate::credentials::{self, AccountOutcome};
use crate::intent::known_macs;

pub(crate) use agent_job::job_ended;
pub use agent_job::{cancel_job, cancel_job_at, seed_files, send_job};
#[cfg(test)]
pub(crate) use drives::recorded as drives_recorded;
pub use host::{login_to, thresholds};
pub(crate) use ipmi::power_of as ipmi_power;

type Change = Box<dyn Fn(&mut Readings, Timestamp) + Send + Sync>;

/// The result of an effect, stored in one transaction.
pub struct EffectResult {
    /// The outcome of the attempt.
    pub outcome: Outcome,
    /// Observed readings.
    pub readings: Option<Change>,
    /// Facts learned about the machine.
    pub learned: Option<LearnedFact>,
    /// Proofs to store: kind, id, message.
    pub proofs: Vec<(Proof, String, Vec<u8>)>,
    /// Erases to certify in the same transaction.
    pub erases: Vec<certify::Erase>,
    /// Events in addition to those of outcome and readings.
    pub events: Vec<EventRow>,
}

/// Facts about a machine beside its readings.
#[derive(Debug)]
pub enum LearnedFact {
    /// The identity that its BMC reports.
    Machine {
        /// UUID, serial number, vendor, model and MAC addresses.
        identity: Identity,
        /// The fingerprint of the BMC's certificate, to pin if none was given.
        certificate: Option<String>,
    },
    /// The outcome for the BMC account.
    Account(AccountOutcome),
    /// Missing drives, and the recorded lists without them. The failure is reported once; the drives are no longer
    /// expected.
    Gone(BTreeSet<String>, Vec<DriveList>),
    /// Lists of its drives. Each replaces the former list of its source.
    Drives(Vec<DriveList>),
    /// The addresses of the BMC's job that applies written settings; empty: the BMC made no job.
    SettingsJob(Vec<String>),
    /// Foreign entries on its BMC with their outcome, and the new baseline of boot options and Secure Boot.
    BmcState(BmcStateRow, Option<Box<Baseline>>),
    /// The state of firmware settings, as read after a start.
    Settings(SettingsRead),
}

impl LearnedFact {
    /// Stores it in the change that ends the effect.
    ///
    /// # Errors
    /// The database failed, or a MAC address belongs to another node.
    pub async fn store(&self, tx: &mut WriteTx, record: &mut NodeRecord, now: Timestamp) -> Result<(), StoreError> {
        let mut next = record.clone();
        match self {
            Self::Machine { identity, certificate } => {
                next.identity.clone_from(identity);
                if !identity.macs.is_empty() {
                    // An operator may have given an address since the BMC was read.
                    next.identity.macs = known_macs(&identity.macs, &record.spec.boot_macs, &[]);
                }
                tx.put_macs(&record.id, &next.identity.macs).await?;
                if let Some(written_at) = tx.take_unerased(&next.identity.macs).await? {
                    let before = next.node.evidence.written_at;
                    next.node.evidence.written_at = before.max(Some(written_at));
                }
                if let (true, Some(seen)) = (next.spec.bmc_certificate.is_empty(), certificate) {
                    next.spec.bmc_certificate.clone_from(seen);
                }
            }
            Self::Settings(seen) => {
                tx.put_node_settings(&record.id, seen, now).await?;
            }
            Self::SettingsJob(places) => next.spec.settings_job.clone_from(places),
            Self::Account(news) => news.apply(&mut next.spec, now),
            Self::BmcState(state, baseline) => {
                tx.put_bmc_state(&record.id, state).await?;
                if let Some(baseline) = baseline {
                    tx.put_uefi_baseline(&record.id, baseline).await?;
                }
            }
            Self::Gone(drives, lists) => {
                next.node.evidence.drives.retain(|d| !drives.contains(d));
                put_lists(tx, &record.id, lists).await?;
            }
            Self::Drives(lists) => put_lists(tx, &record.id, lists).await?,
        }
        if next != *record {
            tx.save_node(&mut next, now).await?;
            *record = next;
        }
        Ok(())
    }
}

async fn put_lists(tx: &mut WriteTx, node: &NodeId, lists: &[DriveList]) -> Result<(), StoreError> {
    for list in lists {
        tx.put_drive_list(node, list).await?;
    }
    Ok(())
}

impl EffectResult {
    /// Performed and verified.
    #[must_use]
    pub fn succeeded() -> Self {
        Self::with_outcome(Outcome::Succeeded)
    }

    /// Ended with that outcome, without readings.
    #[must_use]
    pub fn with_outcome(outcome: Outcome) -> Self {
        Self {
            outcome,
            readings: None,
            learned: None,
            proofs: Vec::new(),
            erases: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Failed.
    #[must_use]
    pub fn failed(code: &str, message: impl Into<String>, retryable: bool) -> Self {
        Self::with_outcome(Outcome::Failed {
            code: code.to_owned(),
            message: message.into(),
            retryable,
        })
    }

    /// A needed row could not be read. If the database is away, that does not count as a try of the machine.
    #[must_use]
    pub fn unread(error: &StoreError) -> Self {
        if error.is_retryable() {
            tracing::warn!(%error, "interrupted: the database does not answer");
            return Self::with_outcome(Outcome::Interrupted);
        }
        Self::failed("store", error.to_string(), true)
    }

    /// Adds observed readings.
    #[must_use]
    pub fn seen(mut self, change: impl Fn(&mut Readings, Timestamp) + Send + Sync + 'static) -> Self {
        self.readings = Some(Box::new(change));
        self
    }
}

/// Notes that the machine reads on.
pub fn seen_on(readings: &mut Readings, now: Timestamp) {
    readings.power = Reading::Known {
        value: Power::On,
        at: now,
    };
}

/// Notes that the machine reads off: all its software has ended, including the agent.
pub fn seen_off(readings: &mut Readings, now: Timestamp) {
    readings.power = Reading::Known {
        value: Power::Off,
        at: now,
    };
    readings.agent = Reading::Known {
        value: Agent::Absent,
        at: now,
    };
}

/// Notes that the BMC has answered, if one of these effects succeeded: an earlier failure is over.
pub fn seen_answering(readings: &mut Readings, effect: Effect, outcome: &Outcome, now: Timestamp) {
    use Effect::{Identify, ObservePower, PowerOff, PowerOn, ProvePowerOff, SetBoot};
    let is_answer = matches!(
        effect,
        Identify | ObservePower | PowerOn | PowerOff | ProvePowerOff | SetBoot(_)
    );
    let was_silent = matches!(readings.bmc.last(), Some(Bmc::Unreachable(_)));
    if is_answer && was_silent && *outcome == Outcome::Succeeded {
        readings.bmc = Reading::Known {
            value: Bmc::Identified,
            at: now,
        };
    }
}

/// The result of a reading that has to be off.
pub fn still_off(power: Power) -> EffectResult {
    if power == Power::Off {
        return EffectResult::succeeded().seen(seen_off);
    }
    let message = "the machine is no longer off, so its memory may still hold former data; it is switched off again";
    EffectResult::failed("not-off", message, true).seen(move |readings, now| {
        readings.power = Reading::Known { value: power, at: now };
    })
}

/// A running effect. Boxed: it is by far the largest future of a step, and most steps perform none.
pub type EffectFuture<'a> = Pin<Box<dyn Future<Output = EffectResult> + Send + 'a>>;

/// Performs the effects that this process can end itself: the hardware, or a test's substitute.
pub trait Performer: Send + Sync {
    /// Performs one effect. The caller limits its time.
    fn perform<'a>(
        &'a self,
        core: &'a Core,
        record: &'a NodeRecord,
        effect: Effect,
        nudge: &'a Notify,
    ) -> EffectFuture<'a>;
}

/// BMCs over Redfish or IPMI, installed systems over SSH.
#[derive(Debug, Clone, Copy)]
pub struct Hardware;

impl Performer for Hardware {
    fn perform<'a>(
        &'a self,
        core: &'a Core,
        record: &'a NodeRecord,
        effect: Effect,
        nudge: &'a Notify,
    ) -> EffectFuture<'a> {
        if let Some(doing) = ipmi::perform(core, record, effect) {
            return doing;
        }
        match effect {
            Effect::Identify => Box::pin(bmc::identify(core, record)),
            Effect::ObservePower => Box::pin(bmc::observe_power(core, record)),
            Effect::SetBoot(target) => Box::pin(bmc::set_boot(core, record, target)),
            Effect::PowerOn => Box::pin(bmc::power_on(core, record)),
            Effect::PowerOff => Box::pin(bmc::power_off(core, record)),
            Effect::ProvePowerOff => Box::pin(bmc::prove_power_off(core, record)),
            Effect::AwaitHost => Box::pin(host::await_host(core, record, nudge)),
            Effect::Validate => Box::pin(host::validate(core, record, nudge)),
            Effect::ValidateFromOutside => Box::pin(host::validate_from_outside(core, record, nudge)),
            Effect::UpdateFirmware => Box::pin(firmware::update(core, record)),
            Effect::HandOver => Box::pin(host::hand_over(core, record)),
            Effect::ApplySettings => Box::pin(settings::apply(core, record)),
            Effect::ReadDrives => Box::pin(drives::read(core, record)),
            Effect::ReadBmcState => Box::pin(bmc_state::read(core, record)),
            Effect::CleanBmc => Box::pin(bmc_state::clean(core, record)),
            Effect::VerifySettings => Box::pin(settings::verify(core, record)),
            Effect::SetNetwork(network) => Box::pin(network::set(core, record, network)),
            Effect::ChangePassword => Box::pin(credentials::change(core, record)),
            Effect::WriteImage | Effect::EraseDrives => {
                let message = format!("{} is a job of the agent", effect.as_str());
                Box::pin(std::future::ready(EffectResult::failed("bug", message, false)))
            }
        }
    }
}

/// Performs an effect with the configured performer.
pub async fn perform(core: &Core, record: &NodeRecord, effect: Effect, nudge: &Notify) -> EffectResult {
    if effect == Effect::PowerOn {
        core.consoles.note_power_on(&record.id, crate::clock::now());
    }
    core.performer.perform(core, record, effect, nudge).await
}

/// The event of a power reading that differs from the former one, or is known again after a power command.
pub fn power_event(node: &NodeId, before: &Reading<Power>, after: &Reading<Power>, now: Timestamp) -> Option<EventRow> {
    let power = after.last().filter(|power| before.last() != Some(power))?;
    let (kind, word) = match power {
        Power::On => (EventKind::PowerOn, "on"),
        Power::Off => (EventKind::PowerOff, "off"),
        Power::Changing => return None,
    };
    Some(EventRow {
        at: now,
        kind,
        target: format!("nodes/{node}"),
        message: format!("{node} is {word}"),
        ..EventRow::default()
    })
}
