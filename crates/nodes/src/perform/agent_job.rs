//! Effects that only the agent performs: a job has the effect's id as its operation id, and the agent's report ends the
//! effect.

use std::collections::BTreeMap;

use rackwright_api::v1;
use rackwright_api::v1::control_message::Message as Control;
use rackwright_api::v1::job::Work;
use rackwright_api::v1::job_report::Result as JobResult;
use rackwright_ground::agents::AdmittedAgent;
use rackwright_ground::agents::Session;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::deployment_keys::deployment_key_purpose;
use rackwright_ground::text::{CODE_MAX, SENTENCE_MAX, cut};
use rackwright_ground::user_data;
use rackwright_lifecycle::{Claim, Effect, EventKind, NodeId, Outcome};
use rackwright_spread as spread;
use rackwright_store::{AgentSession, DeploymentKeys, EffectRow, EventRow, NodeRecord, Scope, StoreError};
use secrecy::ExposeSecret as _;

use super::{erase, uefi_variables};
use crate::effect_result::EffectResult;
use crate::runner::finish_effect;

/// Label of the UEFI boot entry that an image write sets.
const BOOT_ENTRY: &str = "Rackwright";

/// Sends a job to the agent if this replica has its connection. If it has not, or the send fails, the agent's next hello or
/// the deadline decides. If the job cannot be made, the effect fails with the reason.
pub async fn send_job(core: &Core, node: &NodeId, effect: &EffectRow) {
    // Read after the effect was stored: a replica that got the connection since then sends the job.
    let record = match core.store.node(&Scope::Site, node).await {
        Ok(record) => record,
        Err(error) => return note_send_failure(core, node, &error),
    };
    if record.node.doubt.is_some() {
        // The job may be older than the present data of the machine.
        return;
    }
    // Only to the boot and the generation for which the job was stored.
    let is_its_boot = |session: &Session| {
        session.of.generation == effect.generation && effect.attempt.boot_id.as_ref() == Some(&session.boot_id)
    };
    let Some(session) = core.agents.held(&record).filter(is_its_boot) else {
        return;
    };
    let job = match job(core, &record, effect, &session.of).await {
        Ok(job) => job,
        Err(JobBuildError::Unread(error)) if error.is_retryable() => return note_send_failure(core, node, &error),
        Err(unmade) => {
            let done = EffectResult::failed_for_good("job", unmade.to_string());
            if let Err(error) = finish_effect(core, effect, &done).await {
                tracing::error!(node = node.as_str(), %error, "a job could not be prepared, and its effect could not be ended");
            }
            return;
        }
    };
    let message = v1::ControlMessage {
        message: Some(Control::Job(job)),
    };
    if session.sender.try_send(Box::new(message)).is_err() {
        tracing::warn!(node = node.as_str(), effect = %effect.id, "the agent accepts no messages; its connection is closed");
        session.end.cancel();
    }
}

/// Ends the connection because the job's input cannot be read now: the agent gets the job when it connects again.
fn note_send_failure(core: &Core, node: &NodeId, error: &StoreError) {
    tracing::warn!(node = node.as_str(), %error, "a job waits for the agent's next connection");
    if let Some(session) = core.agents.session(node) {
        session.end.cancel();
    }
}

/// Why a job was not made.
#[derive(Debug, thiserror::Error)]
enum JobBuildError {
    /// Its input is wrong.
    #[error("{0}")]
    Wrong(String),
    /// Its input could not be read.
    #[error(transparent)]
    Unread(#[from] StoreError),
}

impl From<String> for JobBuildError {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

/// Asks the agent to end a job, if this process has its connection.
pub async fn cancel_job(core: &Core, node: &NodeId, effect: &str) {
    if let Some(session) = core.agents.session(node) {
        cancel_job_at(&session, effect);
    }
}

/// The same over a session that may have ended just now.
pub fn cancel_job_at(session: &Session, effect: &str) {
    let cancel = v1::CancelJob {
        operation: effect.to_owned(),
    };
    let _ = session.sender.try_send(Box::new(v1::ControlMessage {
        message: Some(Control::Cancel(cancel)),
    }));
}

async fn job(
    core: &Core,
    record: &NodeRecord,
    effect: &EffectRow,
    of: &AgentSession,
) -> Result<v1::Job, JobBuildError> {
    let work = match effect.attempt.effect {
        Effect::WriteImage => Work::WriteImage(write_image(core, record, effect, of).await?),
        Effect::EraseDrives => Work::EraseDrives(v1::EraseDrives {
            drives: Vec::new(),
            samples: 0,
            clear_boot_entries: true,
            clear_tpm: core.config.identity.clear_tpm,
            recorded_uefi_variables: uefi_variables::recorded(core, record).await?,
        }),
        other => return Err(format!("{} is not a job of the agent", other.as_str()).into()),
    };
    let left_us = effect.attempt.deadline.since(clock::now()).max(1_000_000);
    Ok(v1::Job {
        operation: effect.id.clone(),
        claim_generation: effect.generation,
        deadline_s: u32::try_from(left_us / 1_000_000).unwrap_or(u32::MAX),
        work: Some(work),
    })
}

async fn write_image(
    core: &Core,
    record: &NodeRecord,
    effect: &EffectRow,
    of: &AgentSession,
) -> Result<v1::WriteImage, JobBuildError> {
    let claim = record
        .node
        .claim
        .as_ref()
        .ok_or_else(|| "the node has no claim".to_owned())?;
    let times = (clock::now(), effect.attempt.deadline);
    let peers = spread::peers(core, (&record.id, of), claim, times).unwrap_or_else(|error| {
        tracing::warn!(node = record.id.as_str(), %error, "the agent gets no ticket, and writes without other agents");
        None
    });
    Ok(v1::WriteImage {
        store_urls: core.config.store_urls.clone(),
        image_digest: claim.image_digest.clone(),
        root_drive: claim.root_drive.clone(),
        seed: Some(v1::Seed {
            files: seed(core, record, claim).await?.into_iter().collect(),
        }),
        verify_whole_disk: claim.verify_whole_disk,
        memory_budget_bytes: 0,
        boot_entry_label: BOOT_ENTRY.to_owned(),
        peers,
    })
}

async fn seed(core: &Core, record: &NodeRecord, claim: &Claim) -> Result<BTreeMap<String, Vec<u8>>, JobBuildError> {
    let keys = core
        .store
        .deployment_keys(&record.id, claim.generation, claim.deployment)
        .await?;
    Ok(seed_files(core, record, claim, &keys)?)
}

/// The seed of a deployment. A call for a deployment also makes it, and drops it, to report wrong host names, keys or user
/// data at once.
///
/// # Errors
/// A value that no seed can hold, in words.
pub fn seed_files(
    core: &Core,
    record: &NodeRecord,
    claim: &Claim,
    keys: &DeploymentKeys,
) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let purpose = deployment_key_purpose("host", &record.id, claim.generation, claim.deployment);
    let host_private_key = core
        .keys
        .sealer
        .open(&keys.host_private, &purpose)
        .map_err(|e| e.to_string())?;
    let user_data = match keys.user_data.as_slice() {
        [] => claim.plain_user_data.clone(),
        sealed => {
            let purpose = user_data::node_purpose(&record.id, claim.generation, claim.deployment);
            let opened = core.keys.sealer.open(sealed, &purpose).map_err(|e| e.to_string())?;
            opened.expose_secret().to_owned()
        }
    };
    let spec = rackwright_validate::SeedSpec {
        instance_id: format!("{}-{}-{}", record.uid, claim.generation, claim.deployment),
        hostname: claim.hostname.clone(),
        provisioning_public_key: keys.provision_public.clone(),
        customer_keys: claim.ssh_authorized_keys.clone(),
        host_public_key: keys.host_public.clone(),
        host_private_key,
        image_digest: claim.image_digest.clone(),
        generation: claim.generation,
        macs: record.identity.macs.clone(),
        user_data: (!user_data.is_empty()).then_some(user_data),
    };
    rackwright_validate::seed(&spec).map_err(|e| e.to_string())
}

/// Handles the report of a job. It counts only for an open job, and only from the boot and the generation that got the job.
pub(crate) async fn job_ended(
    core: &Core,
    admitted_agent: &AdmittedAgent,
    report: &v1::JobReport,
) -> Result<(), StoreError> {
    let node = &admitted_agent.node;
    if report.state() == v1::JobState::Running {
        if let Some(progress) = report.progress.clone() {
            core.agents.set_progress(node, &report.operation, progress);
        }
        return Ok(());
    }
    let Some(effect) = core.store.effect(&report.operation).await? else {
        return Ok(());
    };
    let belongs_to_session = effect.node_id == *node
        && effect.generation == admitted_agent.of.generation
        && effect.attempt.boot_id.as_ref() == Some(&admitted_agent.boot_id);
    if !belongs_to_session || effect.attempt.outcome != Outcome::Open {
        return Ok(());
    }
    let done = match (report.state(), effect.attempt.effect, &report.result) {
        (v1::JobState::Succeeded, Effect::EraseDrives, Some(JobResult::EraseDrives(erased))) => {
            erase::judge_report(core, &effect, erased).await?
        }
        (v1::JobState::Succeeded, Effect::WriteImage, Some(JobResult::WriteImage(written))) => EffectResult {
            events: vec![written_event(node, written, &remarks(report))],
            ..EffectResult::succeeded()
        },
        (v1::JobState::Succeeded, requested, _) => {
            let message = format!("the agent reported success without a result of {}", requested.as_str());
            EffectResult::failed_for_good("no-result", message)
        }
        _ => {
            let error = report.error.clone().unwrap_or_default();
            EffectResult::with_outcome(Outcome::Failed {
                code: error.code,
                message: error.message,
                retryable: error.retryable,
            })
        }
    };
    finish_effect(core, &effect, &bounded(done)).await
}

/// Limits the agent's text, and the drive names in events, to a length that can be stored and shown.
fn bounded(mut done: EffectResult) -> EffectResult {
    if let Outcome::Failed { code, message, .. } = &mut done.outcome {
        *code = cut(code, CODE_MAX);
        *message = cut(message, SENTENCE_MAX);
    }
    for event in &mut done.events {
        event.message = cut(&event.message, SENTENCE_MAX);
    }
    done
}

/// What did not go as planned: the agent adds this to its last step.
fn remarks(report: &v1::JobReport) -> String {
    let step = report.progress.as_ref().map(|progress| progress.step.as_str());
    let remarks = step.and_then(|step| step.strip_prefix("done; "));
    cut(remarks.unwrap_or_default(), SENTENCE_MAX)
}

fn written_event(node: &NodeId, written: &v1::WriteImageResult, remarks: &str) -> EventRow {
    EventRow {
        at: clock::now(),
        kind: EventKind::ImageWritten,
        target: format!("nodes/{node}"),
        message: format!(
            "{} ({}) was written in {:.1} s",
            written.drive_name, written.drive_serial, written.duration_s
        ),
        attributes: [
            ("logical_bytes".to_owned(), written.logical_bytes.to_string()),
            ("fetched_bytes".to_owned(), written.fetched_bytes.to_string()),
            ("written_bytes".to_owned(), written.written_bytes.to_string()),
            ("zeros_skipped".to_owned(), written.zeros_skipped.to_string()),
            (
                "verified_whole_disk".to_owned(),
                written.verified_whole_disk.to_string(),
            ),
            ("resumed_downloads".to_owned(), written.resumed_downloads.to_string()),
            ("io_uring".to_owned(), written.io_uring.to_string()),
            ("duration_s".to_owned(), format!("{:.3}", written.duration_s)),
            (
                "chunks_from_servers".to_owned(),
                written.chunks_from_servers.to_string(),
            ),
            ("chunks_from_rack".to_owned(), written.chunks_from_rack.to_string()),
            (
                "chunks_from_other_racks".to_owned(),
                written.chunks_from_other_racks.to_string(),
            ),
            ("chunks_served".to_owned(), written.chunks_served.to_string()),
            ("remarks".to_owned(), remarks.to_owned()),
        ]
        .into(),
        ..EventRow::default()
    }
}

#[cfg(test)]
mod tests {
    use rackwright_lifecycle::{Attempt, State, Timestamp};

    use rackwright_ground::testing;

    use super::*;

    #[tokio::test]
    async fn agent_text_is_cut_to_one_line() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", State::Imaging, Some("b3-1"))).await;
        let row = EffectRow {
            id: "e1".into(),
            node_id: "n1".into(),
            state_since: Timestamp(1),
            number: 1,
            generation: 0,
            owner: core.replica.clone(),
            attempt: Attempt {
                effect: Effect::WriteImage,
                started_at: Timestamp(1),
                ended_at: None,
                deadline: Timestamp(2),
                outcome: Outcome::Open,
                boot_id: Some("b1".into()),
            },
        };
        let mut tx = core.store.write().await.unwrap();
        tx.begin_effect(&row).await.unwrap();
        tx.commit().await.unwrap();
        let error = v1::JobError {
            code: "x\n".repeat(10_000),
            message: "gone\u{1b}[2J".repeat(10_000),
            retryable: true,
        };
        let report = v1::JobReport {
            operation: "e1".into(),
            state: v1::JobState::Failed.into(),
            error: Some(error),
            ..v1::JobReport::default()
        };
        let admitted_agent = |generation, boot_id: &str| AdmittedAgent {
            node: "n1".into(),
            number: 1,
            of: AgentSession {
                generation,
                boot: "boot".into(),
            },
            boot_id: boot_id.into(),
        };
        for other in [admitted_agent(0, "b0"), admitted_agent(1, "b1")] {
            job_ended(&core, &other, &report).await.unwrap();
            let effect = core.store.effect("e1").await.unwrap().unwrap();
            assert_eq!(
                effect.attempt.outcome,
                Outcome::Open,
                "{other:?} has another boot or another claim"
            );
        }
        job_ended(&core, &admitted_agent(0, "b1"), &report).await.unwrap();
        let ended = core.store.effect("e1").await.unwrap().unwrap().attempt.outcome;
        let Outcome::Failed { code, message, .. } = ended else {
            panic!("{ended:?}")
        };
        let events = core.store.events(&Scope::Site, 0, "nodes/n1", 10).await.unwrap();
        for text in [&code, &message, &events[0].message, &events[0].attributes["code"]] {
            assert!(
                text.len() <= SENTENCE_MAX && !text.contains(char::is_control),
                "{text:?}"
            );
        }
        assert!(code.len() <= CODE_MAX && message.starts_with("gone"), "{code:?}");
    }
}
