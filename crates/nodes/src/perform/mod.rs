//! Performs the decisions: the I/O of each effect.

mod agent_job;
mod bmc;
mod bmc_state;
mod boot_macs;
mod carried;
pub mod certify;
pub(crate) mod drives;
mod erase;
mod evidence;
mod firmware;
mod host;
mod ipmi;
mod medium;
mod network;
mod settings;
mod uefi;
mod uefi_variables;

use std::pin::Pin;
use std::sync::Arc;

use rackwright_ground::config::Config;
use rackwright_ground::core::Core;
use rackwright_ground::features::FeatureState;
use rackwright_lifecycle::{Agent, Bmc, Effect, EventKind, NodeId, Outcome, Power, Reading, Timestamp};
use rackwright_store::{EventRow, Identity, NodeRecord, Readings};
use tokio::sync::Notify;

use crate::console::Consoles;
use crate::credentials;
use crate::effect_result::EffectResult;

pub(crate) use agent_job::job_ended;
pub use agent_job::{cancel_job, cancel_job_at, seed_files, send_job};
pub use carried::carried_program;
pub use host::{login_to, thresholds};
pub use ipmi::power_of as ipmi_power;

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

/// Notes that the BMC has answered, if one of these effects succeeded: an earlier failure is over. Only [`Effect::Identify`]
/// makes a machine identified for the first time: without an `identity` the BMC has to be read.
pub fn seen_answering(readings: &mut Readings, identity: &Identity, effect: Effect, outcome: &Outcome, now: Timestamp) {
    use Effect::{Identify, ObservePower, PowerOff, PowerOn, ProvePowerOff, SetBoot};
    let is_answer = matches!(
        effect,
        Identify | ObservePower | PowerOn | PowerOff | ProvePowerOff | SetBoot(_)
    );
    let was_silent = matches!(readings.bmc.last(), Some(Bmc::Unreachable(_)));
    if is_answer && was_silent && *outcome == Outcome::Succeeded {
        readings.bmc = match identity.macs.is_empty() {
            true => Reading::Unknown { since: now },
            false => Reading::Known {
                value: Bmc::Identified,
                at: now,
            },
        };
    }
}

/// The result of a reading that has to be off.
pub fn still_off(power: Power) -> EffectResult {
    if power == Power::Off {
        return EffectResult::succeeded().seen(seen_off);
    }
    let message = "the machine is no longer off, so its memory may still hold former data; it is switched off again";
    EffectResult::failed_for_now("not-off", message).seen(move |readings, now| {
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

/// The performer of this process: the hardware, unless a test has put another one in its place.
pub struct ActivePerformer(pub Arc<dyn Performer>);

impl FeatureState for ActivePerformer {
    fn new(_: &Config) -> Self {
        Self(Arc::new(Hardware))
    }
}

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
                Box::pin(std::future::ready(EffectResult::failed_for_good("bug", message)))
            }
        }
    }
}

/// Performs an effect with the configured performer.
pub async fn perform(core: &Core, record: &NodeRecord, effect: Effect, nudge: &Notify) -> EffectResult {
    if effect == Effect::PowerOn {
        core.feature::<Consoles>()
            .note_power_on(&record.id, rackwright_ground::clock::now());
    }
    let performer = &core.feature::<ActivePerformer>().0;
    performer.perform(core, record, effect, nudge).await
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
