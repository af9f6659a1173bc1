//! Effects over Redfish. Every change is read back before it counts.

use std::num::NonZero;
use std::sync::LazyLock;
use std::time::Duration;

use rackwright_ground::bmc::{BmcError, power_of};
use rackwright_ground::clock;
use rackwright_ground::config::BootMethod;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{Bmc, BootTarget, Outcome, Reading};
use rackwright_redfish::{Machine, Persistence, PowerGoal, RedfishError};
use rackwright_store::{Identity, NodeRecord};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{boot_macs, medium, seen_off, seen_on, still_off};
use crate::credentials::AccountOutcome;
use crate::effect_result::{EffectResult, LearnedFact};

/// Machines identified at once, for each core. Each takes some ten requests, and 150 kB meanwhile. 1.5 times as many took
/// the same time for 10,000 machines, and 140 MB more.
const IDENTIFICATIONS_PER_CORE: usize = 1024;

static IDENTIFICATIONS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(IDENTIFICATIONS_PER_CORE * cores()));

/// BMCs contacted at once, for each core, including those being identified. Each takes some 70 kB meanwhile and spends most
/// of the time waiting for the BMC. With 2048, power-ons waited for identifications, and 10,000 machines took 16 s longer.
/// The time in this queue counts as the effect's.
const BMC_CALLS_PER_CORE: usize = 3072;

static BMC_CALLS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(BMC_CALLS_PER_CORE * cores()));

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// The turn to contact a BMC. An operator's power request skips the queue.
pub(super) async fn turn(record: &NodeRecord) -> Option<SemaphorePermit<'static>> {
    if record.node.wanted.power.is_some() {
        return None;
    }
    // The semaphore is never closed. If it were, there would be no queue.
    BMC_CALLS.acquire().await.ok()
}

pub(super) fn failed(core: &Core, record: &NodeRecord, error: &BmcError) -> EffectResult {
    let message = error.description(&record.spec.bmc_address);
    let (code, retryable) = error.code();
    core.metrics.bmc_failed(code, &record.identity.vendor);
    let mut done = EffectResult::with_outcome(Outcome::Failed {
        code: code.to_owned(),
        message: message.clone(),
        retryable,
    });
    done.events
        .extend(error.security_event(&record.id, &message, clock::now()));
    if error.is_refusal() {
        let tried = Box::new(record.spec.clone());
        done.learned = Some(LearnedFact::Account(AccountOutcome::Refused { tried }));
    }
    done.seen(move |readings, now| {
        readings.bmc = Reading::Known {
            value: Bmc::Unreachable(message.clone()),
            at: now,
        }
    })
}

/// Runs `work` with the node's client. A failure ends the session, because the session may be its cause.
macro_rules! through_bmc {
    ($core:expr, $record:expr, |$client:ident| $work:block) => {{
        let (core, record) = ($core, $record);
        core.bmcs.until_open(&record.spec.bmc_address).await;
        let _turn = turn(record).await;
        match core.bmcs.client(record, &core.keys.sealer).await {
            Err(error) => failed(core, record, &error),
            Ok($client) => {
                let result: Result<EffectResult, RedfishError> = async { $work }.await;
                match result {
                    Ok(done) => done,
                    Err(error) => {
                        drop($client);
                        core.bmcs.forget(&record.id).await;
                        failed(core, record, &BmcError::Redfish(error))
                    }
                }
            }
        }
    }};
}
pub(super) use through_bmc;

/// Reads the machine's identity, its MAC addresses and its power.
pub(super) async fn identify(core: &Core, record: &NodeRecord) -> EffectResult {
    // The semaphore is never closed. If it were, all would be identified at once.
    let _turn = IDENTIFICATIONS.acquire().await;
    // Boxed: a waiting effect stays small.
    Box::pin(identify_fresh(core, record)).await
}

async fn identify_fresh(core: &Core, record: &NodeRecord) -> EffectResult {
    through_bmc!(core, record, |client| {
        let Machine { identity, power, macs } = client.machine().await?;
        let power = power_of(&power);
        let uuid = identity.uuid.unwrap_or_default();
        let found = boot_macs::of(record, &client, &uuid, &macs).await?;
        let mut identity = Identity {
            uuid,
            serial: identity.serial.unwrap_or_default(),
            vendor: identity.manufacturer.or(identity.vendor).unwrap_or_default(),
            model: identity.model.unwrap_or_default(),
            macs: found.all,
            boot_option_macs: found.in_options,
            attests_components: client.offers_component_integrity().await?,
        };
        let certificate = client.observed_fingerprint().map(|f| f.to_string());
        if identity.macs.is_empty() {
            let mut done = EffectResult::failed_for_now("no-mac", boot_macs::missing(record, &found.gaps));
            // The UUID is stored: it finds the machine among those that ask to boot and belong to no node.
            identity.macs.clone_from(&record.identity.macs);
            done.learned = Some(LearnedFact::Machine { identity, certificate });
            return Ok(done);
        }
        if let Some(taken) = mac_taken(core, record, &identity.macs).await {
            return Ok(taken);
        }
        let mut done = EffectResult::succeeded().seen(move |readings, now| {
            readings.bmc = Reading::Known {
                value: Bmc::Identified,
                at: now,
            };
            readings.power = Reading::Known { value: power, at: now };
        });
        done.learned = Some(LearnedFact::Machine { identity, certificate });
        Ok(done)
    })
}

/// The failure when one of the MAC addresses belongs to another node.
pub(super) async fn mac_taken(core: &Core, record: &NodeRecord, macs: &[String]) -> Option<EffectResult> {
    for mac in macs {
        if let Ok(Some(other)) = core.store.node_of_mac(mac).await
            && other != record.id
        {
            let message = format!(
                "MAC address {mac} belongs to node {other} already: the same machine was enrolled twice; \
                 `rackwright node delete` one of the two"
            );
            return Some(EffectResult::failed_for_now("mac-taken", message));
        }
    }
    None
}

pub(super) async fn observe_power(core: &Core, record: &NodeRecord) -> EffectResult {
    through_bmc!(core, record, |client| {
        let power = power_of(&client.power().await?);
        Ok(EffectResult::succeeded()
            .seen(move |readings, now| readings.power = Reading::Known { value: power, at: now }))
    })
}

/// Reads that the machine is still off.
pub(super) async fn prove_power_off(core: &Core, record: &NodeRecord) -> EffectResult {
    through_bmc!(core, record, |client| {
        Ok(still_off(power_of(&client.power().await?)))
    })
}

/// Sets the next boot source of the machine, and reads it back.
pub(super) async fn set_boot(core: &Core, record: &NodeRecord, target: BootTarget) -> EffectResult {
    let http = core
        .config
        .boot
        .as_ref()
        .is_some_and(|b| b.method == BootMethod::UefiHttp);
    through_bmc!(core, record, |client| {
        let (redfish, persistence) = match target {
            BootTarget::Network if http => (rackwright_redfish::BootTarget::UefiHttp, Persistence::Once),
            BootTarget::Network => (rackwright_redfish::BootTarget::Pxe, Persistence::Once),
            // The machine's own order has the disk first, so no override is needed, and none can be left behind.
            BootTarget::Disk => (rackwright_redfish::BootTarget::None, Persistence::Disabled),
        };
        medium::before_boot(core, record, &client, target).await?;
        let outcome = client.set_boot(redfish, persistence, None).await?;
        for deviation in &outcome.deviations {
            tracing::info!(
                property = deviation.property,
                seen = deviation.seen,
                "the boot override reads back differently"
            );
        }
        let power = outcome.power.as_ref().map(power_of);
        Ok(EffectResult::succeeded().seen(move |readings, now| {
            // A machine that is not off may start at any moment and use the target up.
            if power.is_none_or(|power| power == rackwright_lifecycle::Power::Off) {
                readings.boot_target = Reading::Known { value: target, at: now };
            }
            if let Some(value) = power {
                readings.power = Reading::Known { value, at: now };
            }
        }))
    })
}

/// Switches the machine on and waits until it reads on.
pub(super) async fn power_on(core: &Core, record: &NodeRecord) -> EffectResult {
    let limit = Duration::from_secs(core.config.policy.bmc_s.into());
    through_bmc!(core, record, |client| {
        let events = match medium::before_power_on(core, record, &client).await? {
            Ok(events) => events,
            Err(done) => return Ok(*done),
        };
        client.set_power(PowerGoal::On).await?;
        client.wait_power(PowerGoal::On, limit).await?;
        let done = EffectResult::succeeded().seen(seen_on);
        Ok(EffectResult { events, ..done })
    })
}

/// Switches the machine off and waits until it reads off.
pub(super) async fn power_off(core: &Core, record: &NodeRecord) -> EffectResult {
    let limit = Duration::from_secs(core.config.policy.bmc_s.into());
    through_bmc!(core, record, |client| {
        client.set_power(PowerGoal::Off).await?;
        client.wait_power(PowerGoal::Off, limit).await?;
        // The power-off stands even if this fails: the medium is ejected before the machine boots from its drive.
        if let Err(error) = medium::eject(core, record, &client).await {
            tracing::warn!(node = record.id.as_str(), %error, "the medium of the last boot is still in the virtual drive");
        }
        Ok(EffectResult::succeeded().seen(seen_off))
    })
}
