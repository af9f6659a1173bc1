//! Does what was decided: the I/O behind each effect.

mod agent_job;
mod bmc;
mod bmc_state;
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
use rackwright_lifecycle::{Agent, Bmc, Effect, EventKind, Outcome, Power, Reading, Timestamp};
use rackwright_store::{
    BmcStateRow, EventRow, Identity, NodeRecord, Proof, Readings, SettingsRead, StoreError, WriteTx,
};
use tokio::sync::Notify;

use crate::core::Core;
use crate::credentials::{self, AccountNews};

pub(crate) use agent_job::job_ended;
pub use agent_job::{cancel_job, cancel_job_at, seed_files, send_job};
#[cfg(test)]
pub(crate) use drives::recorded as drives_recorded;
pub use host::{login_to, thresholds};
pub(crate) use ipmi::power_of as ipmi_power;

type Change = Box<dyn Fn(&mut Readings, Timestamp) + Send + Sync>;

/// How an effect went: stored in one transaction.
pub struct Done {
    /// How it ended.
    pub outcome: Outcome,
    /// What was seen.
    pub readings: Option<Change>,
    /// What was learned of the machine.
    pub learned: Option<Learned>,
    /// Proof to keep: kind, id, message.
    pub proofs: Vec<(Proof, String, Vec<u8>)>,
    /// Erases to certify.
    pub erases: Vec<certify::Erase>,
    /// Further events.
    pub events: Vec<EventRow>,
}

/// What was learned of the machine beside its readings.
#[derive(Debug)]
pub enum Learned {
    /// Who its BMC says it is.
    Machine {
        /// Identity.
        identity: Identity,
        /// The certificate's fingerprint that was seen, to be kept when none was given.
        certificate: Option<String>,
    },
    /// What became of the account by which its BMC is entered.
    Account(AccountNews),
    /// Drives that are gone, and the recorded lists without them. The failure says so once; the drives are waited for no
    /// longer.
    Gone(BTreeSet<String>, Vec<DriveList>),
    /// Lists of its drives, each in place of its source's former list.
    Drives(Vec<DriveList>),
    /// Where the BMC tells of the job that makes written settings count; empty: it made none of them.
    SettingsJob(Vec<String>),
    /// What was foreign on its BMC, what came of it, and what its boot options and Secure Boot are held against from now on.
    BmcState(BmcStateRow, Option<Box<Baseline>>),
    /// How settings of the firmware stand, as read after a start.
    Settings(SettingsRead),
}

impl Learned {
    /// Stores it in the change that ends the effect.
    ///
    /// # Errors
    /// The database failed, or a MAC address belongs to another node.
    pub async fn store(&self, tx: &mut WriteTx, record: &mut NodeRecord, now: Timestamp) -> Result<(), StoreError> {
        let mut next = record.clone();
        match self {
            Self::Machine { identity, certificate } => {
                tx.put_macs(&record.id, &identity.macs).await?;
                if let Some(written_at) = tx.take_unerased(&identity.macs).await? {
                    let before = next.node.evidence.written_at;
                    next.node.evidence.written_at = before.max(Some(written_at));
                }
                next.identity.clone_from(identity);
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

async fn put_lists(tx: &mut WriteTx, node: &str, lists: &[DriveList]) -> Result<(), StoreError> {
    for list in lists {
        tx.put_drive_list(node, list).await?;
    }
    Ok(())
}

impl Done {
    /// Done and verified.
    #[must_use]
    pub fn succeeded() -> Self {
        Self::failed_as(Outcome::Succeeded)
    }

    /// Ended with that outcome and nothing seen.
    #[must_use]
    pub fn failed_as(outcome: Outcome) -> Self {
        Self {
            outcome,
            readings: None,
            learned: None,
            proofs: Vec::new(),
            erases: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Not done.
    #[must_use]
    pub fn failed(code: &str, message: impl Into<String>, retryable: bool) -> Self {
        Self::failed_as(Outcome::Failed {
            code: code.to_owned(),
            message: message.into(),
            retryable,
        })
    }

    /// What it needs to know could not be read. While the database is away that is not the machine's fault, and no try.
    #[must_use]
    pub fn unread(error: &StoreError) -> Self {
        if error.is_retryable() {
            tracing::warn!(%error, "broken off: the database does not answer");
            return Self::failed_as(Outcome::Interrupted);
        }
        Self::failed("store", error.to_string(), true)
    }

    /// With what was seen.
    #[must_use]
    pub fn seen(mut self, change: impl Fn(&mut Readings, Timestamp) + Send + Sync + 'static) -> Self {
        self.readings = Some(Box::new(change));
        self
    }
}

/// The machine was seen on.
pub fn seen_on(readings: &mut Readings, now: Timestamp) {
    readings.power = Reading::Known {
        value: Power::On,
        at: now,
    };
}

/// The machine was seen off: whatever ran is gone, the agent with it.
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

/// A success of one of these effects is an answer of the BMC: a failure that was noted before is over.
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

/// Ends a reading that must say off.
pub fn still_off(power: Power) -> Done {
    if power == Power::Off {
        return Done::succeeded().seen(seen_off);
    }
    let message =
        "the machine is not off any more, so its memory may hold what it held before; it is switched off again";
    Done::failed("not-off", message, true).seen(move |readings, now| {
        readings.power = Reading::Known { value: power, at: now };
    })
}

/// An effect under way. Boxed: it is by far the largest future of a step, and most steps perform nothing.
pub type Doing<'a> = Pin<Box<dyn Future<Output = Done> + Send + 'a>>;

/// Who does the effects that this process can end itself: the hardware, or what a test puts in its place.
pub trait Performer: Send + Sync {
    /// Does one. The caller bounds its time.
    fn perform<'a>(&'a self, core: &'a Core, record: &'a NodeRecord, effect: Effect, nudge: &'a Notify) -> Doing<'a>;
}

/// BMCs by Redfish or IPMI, installed systems by SSH.
#[derive(Debug, Clone, Copy)]
pub struct Hardware;

impl Performer for Hardware {
    fn perform<'a>(&'a self, core: &'a Core, record: &'a NodeRecord, effect: Effect, nudge: &'a Notify) -> Doing<'a> {
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
                let message = format!("{} is the agent's to do", effect.as_str());
                Box::pin(std::future::ready(Done::failed("bug", message, false)))
            }
        }
    }
}

/// Does an effect.
pub async fn perform(core: &Core, record: &NodeRecord, effect: Effect, nudge: &Notify) -> Done {
    if effect == Effect::PowerOn {
        core.consoles.powers_on(&record.id, crate::clock::now());
    }
    core.performer.perform(core, record, effect, nudge).await
}

/// The event of a power that differs from the former reading, or is known again after we changed it.
pub fn power_event(node: &str, before: &Reading<Power>, after: &Reading<Power>, now: Timestamp) -> Option<EventRow> {
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
