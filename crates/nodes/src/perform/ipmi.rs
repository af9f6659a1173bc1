//! Effects over IPMI. Every change is read back before it counts.
//!
//! Such a BMC reports nothing about network cards, and little about the machine: the MAC addresses come from the BMC
//! address, and the rest from the agent's inventory.

use std::time::Duration;

use rackwright_ground::bmc::{self, BmcError};
use rackwright_ground::config::BootMethod;
use rackwright_ground::core::Core;
use rackwright_ground::intent::known_macs;
use rackwright_ipmi::{BootDevice, Ipmi, IpmiError, Persistence, Power as Seen, PowerAction};
use rackwright_lifecycle::{Bmc, BootTarget, Effect, Power, Reading};
use rackwright_store::{Identity, NodeRecord};

use super::bmc::{failed, mac_taken};
use super::{EffectFuture, medium, seen_off, seen_on, still_off};
use crate::effect_result::{EffectResult, LearnedFact};

/// The effect on a node with an IPMI BMC. `None`: the node has another BMC, or the effect needs none.
pub(super) fn perform<'a>(core: &'a Core, record: &'a NodeRecord, effect: Effect) -> Option<EffectFuture<'a>> {
    if !bmc::is_ipmi(&record.spec) {
        return None;
    }
    Some(match effect {
        Effect::Identify => Box::pin(run_ipmi(core, record, identify(core, record))),
        Effect::ObservePower => Box::pin(run_ipmi(core, record, observe_power(core, record))),
        Effect::SetBoot(target) => Box::pin(run_ipmi(core, record, set_boot(core, record, target))),
        Effect::PowerOn => Box::pin(power_on(core, record)),
        Effect::PowerOff => Box::pin(run_ipmi(core, record, set_power(core, record, Seen::Off))),
        Effect::ProvePowerOff => Box::pin(run_ipmi(core, record, prove_power_off(core, record))),
        // Such a BMC lists no drives.
        Effect::ReadBmcState | Effect::CleanBmc => Box::pin(std::future::ready(super::bmc_state::hidden(core, record))),
        Effect::ReadDrives => Box::pin(super::drives::recorded(core, record, Vec::new())),
        _ => return None,
    })
}

/// Why such a BMC delivers no secret to its machine.
const NO_MEDIA: &str = "a BMC over IPMI has no virtual media";

async fn power_on(core: &Core, record: &NodeRecord) -> EffectResult {
    match medium::without_media(core, record, NO_MEDIA).await {
        Ok(events) => {
            let mut done = run_ipmi(core, record, set_power(core, record, Seen::On)).await;
            done.events.extend(events);
            done
        }
        Err(done) => *done,
    }
}

async fn run_ipmi(
    core: &Core,
    record: &NodeRecord,
    doing: impl Future<Output = Result<EffectResult, BmcError>>,
) -> EffectResult {
    match doing.await {
        Ok(done) => done,
        Err(error) => failed(core, record, &error),
    }
}

fn client(core: &Core, record: &NodeRecord) -> Result<Ipmi, BmcError> {
    bmc::ipmi(&record.id, &record.spec, &core.keys.sealer, &core.ipmi)
}

/// Converts a power state of IPMI for the stored readings.
#[must_use]
pub fn power_of(seen: Seen) -> Power {
    match seen {
        Seen::On => Power::On,
        Seen::Off => Power::Off,
    }
}

async fn identify(core: &Core, record: &NodeRecord) -> Result<EffectResult, BmcError> {
    let client = client(core, record)?;
    let macs = known_macs(client.address().macs(), &record.spec.boot_macs, &[]);
    if macs.is_empty() {
        let message = format!(
            "BMC {} does not report over IPMI which MAC addresses the machine boots from: add them to its address, \
             `rackwright node update {} --bmc '{}?mac=52:54:00:12:34:56'` (the machine's own)",
            client.address(),
            record.id,
            client.address(),
        );
        return Ok(EffectResult::failed_for_good("no-mac", message));
    }
    if let Some(taken) = mac_taken(core, record, &macs).await {
        return Ok(taken);
    }
    let power = power_of(client.power().await?);
    let identity = identity_of(&client, macs).await?;
    let mut done = EffectResult::succeeded().seen(move |readings, now| {
        readings.bmc = Reading::Known {
            value: Bmc::Identified,
            at: now,
        };
        readings.power = Reading::Known { value: power, at: now };
    });
    done.learned = Some(LearnedFact::Machine {
        identity,
        certificate: None,
    });
    Ok(done)
}

async fn identity_of(client: &Ipmi, macs: Vec<String>) -> Result<Identity, IpmiError> {
    let (controller, fru) = (client.controller().await?, client.fru().await?);
    Ok(Identity {
        uuid: client.guid().await?.unwrap_or_default(),
        serial: fru.serial.unwrap_or_default(),
        vendor: fru.manufacturer.or(controller.manufacturer).unwrap_or_default(),
        model: fru.product.or(controller.product).unwrap_or_default(),
        macs,
        boot_option_macs: Vec::new(),
        attests_components: false,
    })
}

async fn observe_power(core: &Core, record: &NodeRecord) -> Result<EffectResult, BmcError> {
    let power = power_of(client(core, record)?.power().await?);
    Ok(EffectResult::succeeded().seen(move |readings, now| readings.power = Reading::Known { value: power, at: now }))
}

async fn prove_power_off(core: &Core, record: &NodeRecord) -> Result<EffectResult, BmcError> {
    Ok(still_off(power_of(client(core, record)?.power().await?)))
}

async fn set_boot(core: &Core, record: &NodeRecord, target: BootTarget) -> Result<EffectResult, BmcError> {
    let is_http = core
        .config
        .boot
        .as_ref()
        .is_some_and(|b| b.method == BootMethod::UefiHttp);
    let client = client(core, record)?;
    let device = match target {
        BootTarget::Network if is_http => {
            let message = format!(
                "BMC {} uses IPMI, which has no UEFI HTTP boot: set boot.method to pxe, or set the BMC's https:// \
                 address",
                client.address()
            );
            return Ok(EffectResult::failed_for_good("no-http-boot", message));
        }
        BootTarget::Network => BootDevice::Pxe,
        // The machine's own order has the disk first, so no override is needed, and none can be left behind.
        BootTarget::Disk => BootDevice::None,
    };
    let outcome = client.set_boot(device, Persistence::Once).await?;
    for deviation in outcome.deviations {
        tracing::info!(
            node = record.id.as_str(),
            deviation,
            "the boot flags read back differently"
        );
    }
    Ok(EffectResult::succeeded()
        .seen(move |readings, now| readings.boot_target = Reading::Known { value: target, at: now }))
}

async fn set_power(core: &Core, record: &NodeRecord, wanted: Seen) -> Result<EffectResult, BmcError> {
    let limit = Duration::from_secs(core.config.policy.bmc_s.into());
    let (action, seen): (_, fn(&mut _, _)) = match wanted {
        Seen::On => (PowerAction::On, seen_on),
        Seen::Off => (PowerAction::Off, seen_off),
    };
    client(core, record)?.set_power(wanted, action, limit).await?;
    Ok(EffectResult::succeeded().seen(seen))
}

#[cfg(test)]
mod tests {
    use rackwright_ground::bmc::bmc_password_purpose;
    use rackwright_ground::testing;
    use rackwright_lifecycle::{Outcome, State};
    use secrecy::SecretString;

    use super::*;

    async fn failure(address: &str, further: &str, effect: Effect) -> (String, String, bool) {
        let core = testing::core_with(further).await;
        let mut record = testing::node("n1", State::Available, None);
        record.spec.bmc_address = address.to_owned();
        record.spec.bmc_username = "admin".to_owned();
        let password = SecretString::from("a-password-of-21-byte");
        let sealed = core.keys.sealer.seal(&password, &bmc_password_purpose(&"n1".into()));
        record.spec.bmc_password = sealed.unwrap();
        let done = perform(&core, &record, effect).expect("it is IPMI's").await;
        match done.outcome {
            Outcome::Failed {
                code,
                message,
                retryable,
            } => (code, message, retryable),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn unsendable_commands_are_not_retried() {
        let (code, message, retryable) = failure("ipmi://127.0.0.1:9", "", Effect::PowerOn).await;
        assert_eq!((code.as_str(), retryable), ("bmc-credential", false));
        assert!(
            message.contains("longer than 20 bytes") && !message.contains("a-password"),
            "{message}"
        );
        let (code, message, _) = failure("ipmi://127.0.0.1:0", "", Effect::Identify).await;
        assert_eq!(code, "bmc-refused");
        assert!(message.contains("port 0"), "{message}");
    }

    #[tokio::test]
    async fn effects_of_other_bmcs_and_other_kinds_are_declined() {
        let core = testing::core().await;
        let mut record = testing::node("n1", State::Available, None);
        record.spec.bmc_address = "https://bmc".to_owned();
        assert!(perform(&core, &record, Effect::PowerOn).is_none());
        record.spec.bmc_address = "ipmi://bmc".to_owned();
        assert!(perform(&core, &record, Effect::Validate).is_none());
        assert!(perform(&core, &record, Effect::PowerOn).is_some());
        let refused = bmc::target(&"n1".into(), &record.spec, &core.keys.sealer).unwrap_err();
        assert_eq!(refused.code(), ("bmc-no-redfish", false));
    }
}
