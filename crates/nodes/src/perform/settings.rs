//! Firmware settings over the BMC: written, and read again after a start.

use std::time::Duration;

use rackwright_ground::bmc::BmcError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{EventKind, NodeId, Outcome, SETTINGS_DIFFER};
use rackwright_redfish::{BmcClient, RedfishError};
use rackwright_site::model::{description, is_as_wanted};
use rackwright_store::{EventRow, NodeRecord};

use super::bmc::{failed, through_bmc, turn};
use crate::effect_result::{EffectResult, LearnedFact};
use crate::firmware_settings;
use crate::firmware_settings::WantedCache;

/// Reads the settings and writes those that differ from the wish.
pub(super) async fn apply(core: &Core, record: &NodeRecord) -> EffectResult {
    let wanted = match core.feature::<WantedCache>().of(core, record).await {
        Ok(Some(wanted)) => wanted,
        // No longer wanted since this was decided.
        Ok(None) => return EffectResult::succeeded(),
        Err(error) => return EffectResult::unread(&error),
    };
    through_bmc!(core, record, |client| {
        match firmware_settings::apply(&client, &wanted).await {
            Ok(written) => {
                let mut done = EffectResult::succeeded();
                // Without any write, the waiting values belong to an earlier job.
                if !written.names.is_empty() {
                    tracing::info!(
                        count = written.names.len(),
                        first = written.names.first(),
                        "firmware settings are written"
                    );
                    done.learned = Some(LearnedFact::SettingsJob(written.job));
                }
                Ok(done)
            }
            // Not retryable: the site or the machine has to change first.
            Err(error @ (RedfishError::UnfitSettings { .. } | RedfishError::NotOffered { .. })) => {
                let message = BmcError::Redfish(error).description(&record.spec.bmc_address);
                Ok(EffectResult::failed_for_good("settings-refused", message))
            }
            Err(error) => Err(error),
        }
    })
}

/// Reads the settings after a start, and compares them with the wish.
pub(super) async fn verify(core: &Core, record: &NodeRecord) -> EffectResult {
    let wanted = match core.feature::<WantedCache>().of(core, record).await {
        Ok(Some(wanted)) => wanted,
        Ok(None) => return EffectResult::succeeded(),
        Err(error) => return EffectResult::unread(&error),
    };
    through_bmc!(core, record, |client| {
        let job = followed(core, record, &client).await?;
        let rows = firmware_settings::look(&client, &wanted).await?.rows;
        let mut done = match job {
            // The values after a start count, even if the job reports something else.
            _ if is_as_wanted(&rows) => EffectResult::succeeded(),
            Job::Over => EffectResult::failed_for_now(SETTINGS_DIFFER, description(&rows)),
            Job::Failed(why) => EffectResult::failed_for_now(SETTINGS_DIFFER, why),
            Job::Runs(why) => EffectResult::failed_for_now("settings-job", why),
        };
        if done.outcome == Outcome::Succeeded {
            done.events.push(verified(&record.id, rows.len()));
        }
        done.learned = Some(LearnedFact::Settings(firmware_settings::stored(&rows, true)));
        Ok(done)
    })
}

/// The state of the BMC's job for written settings.
enum Job {
    /// It ended, or there is none.
    Over,
    /// Its message.
    Failed(String),
    /// It runs longer than the wait; the reason.
    Runs(String),
}

/// Waits until the BMC's job has ended. The rest of a try gets half as much time.
async fn followed(core: &Core, record: &NodeRecord, client: &BmcClient) -> Result<Job, RedfishError> {
    if record.spec.settings_job.is_empty() {
        return Ok(Job::Over);
    }
    let limit = Duration::from_secs(core.config.policy.bmc_s.into()) * 2 / 3;
    match client.wait_bios_job(&record.spec.settings_job, limit).await {
        Ok(()) => Ok(Job::Over),
        Err(RedfishError::TaskFailed { state, detail, .. }) => Ok(Job::Failed(format!(
            "the BMC's job for the firmware settings ended as {state}{detail}"
        ))),
        Err(RedfishError::WaitedTooLong { last, .. }) => Ok(Job::Runs(format!(
            "the BMC's job for the firmware settings did not end within {} s: {last}",
            limit.as_secs()
        ))),
        Err(failure) => Err(failure),
    }
}

fn verified(node: &NodeId, count: usize) -> EventRow {
    EventRow {
        at: clock::now(),
        kind: EventKind::NodeSettingsVerified,
        target: format!("nodes/{node}"),
        message: format!("{count} wanted firmware settings of {node} are in force, as read after a start"),
        ..EventRow::default()
    }
}
