//! The medium with the secret that a BMC delivers to its machine: inserted before a power-on into the agent, and ejected
//! before another system runs on the machine.

use rackwright_ground::clock;
use rackwright_ground::config::identity::BmcRequirement;
use rackwright_ground::core::Core;
use rackwright_ground::text::{SENTENCE_MAX, cut};
use rackwright_lifecycle::{BootTarget, EventKind};
use rackwright_redfish::{BmcClient, MediaKind, RedfishError};
use rackwright_store::{EventRow, NodeRecord};

use crate::agent_boot;
use crate::bmc_secret::{self, INSERTED};
use crate::effect_result::EffectResult;

/// The events of a power-on, or why the machine stays off.
type Ready = Result<Vec<EventRow>, Box<EffectResult>>;

/// Prepares the medium before a power-on, if the settings require a secret: inserts it for a boot into the agent, and
/// ejects it before every other start.
///
/// # Errors
/// The BMC cannot be reached.
pub(super) async fn before_power_on(
    core: &Core,
    record: &NodeRecord,
    client: &BmcClient,
) -> Result<Ready, RedfishError> {
    if !uses_bmc_secret(core, record) {
        return Ok(Ok(Vec::new()));
    }
    let rows = match core.store.attempts(&record.id, record.node.since).await {
        Ok(rows) => rows,
        Err(error) => return Ok(Err(Box::new(EffectResult::unread(&error)))),
    };
    let Some(of) = bmc_secret::boot_of(record, &rows) else {
        eject(core, record, client).await?;
        return Ok(Ok(Vec::new()));
    };
    let why = match bmc_secret::url(core, &record.id, &of) {
        None => {
            Some("this control plane has no boot services; a BMC fetches the medium from their HTTP server".to_owned())
        }
        Some(url) => match client.insert_media(&url, MediaKind::Cd).await {
            Ok(_) => None,
            Err(error) if is_refusal(&error) => Some(refusal_text(&error, &url)),
            Err(error) => return Err(error),
        },
    };
    Ok(note_outcome(core, record, &of.boot, why).await)
}

/// The same for a BMC without virtual media.
pub(super) async fn without_media(core: &Core, record: &NodeRecord, why: &str) -> Ready {
    if !uses_bmc_secret(core, record) {
        return Ok(Vec::new());
    }
    let rows = core.store.attempts(&record.id, record.node.since).await;
    let rows = rows.map_err(|error| Box::new(EffectResult::unread(&error)))?;
    match bmc_secret::boot_of(record, &rows) {
        Some(of) => note_outcome(core, record, &of.boot, Some(why.to_owned())).await,
        None => Ok(Vec::new()),
    }
}

/// Ejects this site's medium after a power-off, and before a boot from the drive.
///
/// # Errors
/// The BMC cannot be reached, or keeps the medium.
pub(super) async fn eject(core: &Core, record: &NodeRecord, client: &BmcClient) -> Result<(), RedfishError> {
    // Also if a TPM was enrolled since the medium was inserted.
    if core.config.identity.of(&record.spec.sku).bmc == BmcRequirement::None {
        return Ok(());
    }
    for slot in client.virtual_media().await? {
        if slot.image().is_some_and(|image| bmc_secret::is_ours(core, &image)) {
            client.eject_media(&slot).await?;
        }
    }
    Ok(())
}

/// Ejects the medium if the next boot is not into the agent.
///
/// # Errors
/// As [`eject`].
pub(super) async fn before_boot(
    core: &Core,
    record: &NodeRecord,
    client: &BmcClient,
    target: BootTarget,
) -> Result<(), RedfishError> {
    match target {
        BootTarget::Disk => eject(core, record, client).await,
        BootTarget::Network => Ok(()),
    }
}

fn uses_bmc_secret(core: &Core, record: &NodeRecord) -> bool {
    core.config.identity.of(&record.spec.sku).asks_bmc(record)
}

/// Whether the BMC answered and rejected the medium: it offers no drive, refuses the image, or shows no medium afterwards.
fn is_refusal(error: &RedfishError) -> bool {
    let is_answer = error
        .status()
        .is_some_and(|status| !matches!(status, 401 | 403 | 429 | 503));
    is_answer
        || matches!(
            error,
            RedfishError::NotOffered { .. } | RedfishError::WaitedTooLong { .. }
        )
}

/// Why a BMC has no medium. The text omits the medium's address, which is a secret.
fn refusal_text(error: &RedfishError, url: &str) -> String {
    cut(&error.to_string().replace(url, "the medium's address"), SENTENCE_MAX)
}

/// Stores whether the BMC has the medium of a boot. A machine that must have the secret stays off without it.
async fn note_outcome(core: &Core, record: &NodeRecord, boot: &str, why: Option<String>) -> Ready {
    let unread = |error| Box::new(EffectResult::unread(&error));
    let id = &record.id;
    let before = core.store.agent_boot(id).await.map_err(unread)?;
    let secret = why.as_deref().unwrap_or(INSERTED);
    if !agent_boot::note_secret(core, id, boot, secret).await.map_err(unread)? {
        let message = format!("this boot of {id} is no longer the present boot; the machine is not switched on for it");
        return Err(Box::new(EffectResult::failed_for_now("no-bmc-secret", message)));
    }
    let Some(why) = why else { return Ok(Vec::new()) };
    let sku = &record.spec.sku;
    if core.config.identity.of(sku).bmc == BmcRequirement::Required {
        let message = format!(
            "the settings require a TPM or a secret of the BMC for SKU {sku}, and the BMC of {id} delivers none: {why}. Let \
             the BMC reach this control plane's boot HTTP, or set identity.bmc_skus for {sku} to preferred and \
             identity.address_only_skus for {sku} to allow if identification by the machine's addresses is enough"
        );
        return Err(Box::new(EffectResult::failed_for_good("no-bmc-secret", message)));
    }
    // One event for a reason, not one for each boot.
    if before.is_some_and(|row| row.bmc_secret == why) {
        return Ok(Vec::new());
    }
    Ok(vec![EventRow {
        at: clock::now(),
        kind: EventKind::SecurityNoBmcSecret,
        target: format!("nodes/{id}"),
        message: format!(
            "{id} has only its TPM, or no proof of its identity at all: its BMC delivers no secret: {why}"
        ),
        ..EventRow::default()
    }])
}
