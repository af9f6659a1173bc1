//! What only the agent does: jobs are sent with the effect's id as their operation id, and its reports end them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::UNIX_EPOCH;

use prost::Message as _;
use rackwright_api::v1;
use rackwright_api::v1::control_message::Message as Control;
use rackwright_api::v1::job::Work;
use rackwright_api::v1::job_report::Result as JobResult;
use rackwright_identity::EraseRecord;
use rackwright_lifecycle::{Claim, Effect, Outcome};
use rackwright_store::{DeploymentKeys, EffectRow, EventRow, NodeRecord, Proof, Scope, StoreError};

use super::{Done, Learned};
use crate::clock;
use crate::core::Core;
use crate::drives;
use crate::grpc::nodes::deployment_key_purpose;
use crate::runner::finish_effect;
use crate::text::{CODE_MAX, SENTENCE_MAX, cut};

/// Label of the UEFI boot entry we set.
const BOOT_ENTRY: &str = "Rackwright";

/// Sends a job to the agent, if its connection is ours. If it is not, or the agent cannot be told, its next hello or the
/// deadline decides; if the job cannot be made, the effect fails with the reason.
pub async fn send_job(core: &Core, node: &str, effect: &EffectRow) {
    // Read after the effect was written down: whoever got the connection since sends it there.
    let record = match core.store.node(&Scope::Site, node).await {
        Ok(record) => record,
        Err(error) => return later(core, node, &error),
    };
    let Some(session) = core.agents.held(&record) else {
        return;
    };
    let job = match job(core, &record, effect).await {
        Ok(job) => job,
        Err(Unmade::Unread(error)) if error.is_retryable() => return later(core, node, &error),
        Err(unmade) => {
            let done = Done::failed("job", unmade.to_string(), false);
            if let Err(error) = finish_effect(core, effect, &done).await {
                tracing::error!(node, %error, "a job that could not be made could not be ended");
            }
            return;
        }
    };
    let message = v1::ControlMessage {
        message: Some(Control::Job(job)),
    };
    if session.sender.try_send(Box::new(message)).is_err() {
        tracing::warn!(node, effect = %effect.id, "the agent takes no messages; its connection is ended");
        session.end.cancel();
    }
}

/// What the job is made of cannot be read now: the agent is to come again for it.
fn later(core: &Core, node: &str, error: &StoreError) {
    tracing::warn!(node, %error, "a job waits for the agent's next connection");
    if let Some(session) = core.agents.session(node) {
        session.end.cancel();
    }
}

/// Why a job could not be made.
#[derive(Debug, thiserror::Error)]
enum Unmade {
    /// It is made of what cannot be.
    #[error("{0}")]
    Wrong(String),
    /// What it is made of could not be read.
    #[error(transparent)]
    Unread(#[from] StoreError),
}

impl From<String> for Unmade {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

/// Tells the agent to end a job, if it is there.
pub async fn cancel_job(core: &Core, node: &str, effect: &str) {
    if let Some(session) = core.agents.session(node) {
        let cancel = v1::CancelJob {
            operation: effect.to_owned(),
        };
        let _ = session.sender.try_send(Box::new(v1::ControlMessage {
            message: Some(Control::Cancel(cancel)),
        }));
    }
}

async fn job(core: &Core, record: &NodeRecord, effect: &EffectRow) -> Result<v1::Job, Unmade> {
    let work = match effect.attempt.effect {
        Effect::WriteImage => Work::WriteImage(write_image(core, record).await?),
        Effect::EraseDrives => Work::EraseDrives(v1::EraseDrives {
            drives: Vec::new(),
            samples: 0,
            clear_boot_entries: true,
        }),
        other => return Err(format!("{} is not the agent's to do", other.as_str()).into()),
    };
    let left_us = effect.attempt.deadline.since(clock::now()).max(1_000_000);
    Ok(v1::Job {
        operation: effect.id.clone(),
        claim_generation: effect.generation,
        deadline_s: u32::try_from(left_us / 1_000_000).unwrap_or(u32::MAX),
        work: Some(work),
    })
}

async fn write_image(core: &Core, record: &NodeRecord) -> Result<v1::WriteImage, Unmade> {
    let claim = record
        .node
        .claim
        .as_ref()
        .ok_or_else(|| "the node has no claim".to_owned())?;
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
    })
}

async fn seed(core: &Core, record: &NodeRecord, claim: &Claim) -> Result<BTreeMap<String, Vec<u8>>, Unmade> {
    let keys = core
        .store
        .deployment_keys(&record.id, claim.generation, claim.deployment)
        .await?;
    Ok(seed_files(core, record, claim, &keys)?)
}

/// The seed of a deployment. Also made, and thrown away, when the deployment is asked for: what is wrong with its host
/// name, keys or user data is said then.
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
        user_data: (!claim.user_data.is_empty()).then(|| claim.user_data.clone()),
    };
    rackwright_validate::seed(&spec).map_err(|e| e.to_string())
}

/// Takes a job's report. Reports of jobs that are not open are old news.
///
/// # Errors
/// The database failed.
pub async fn job_ended(core: &Core, node: &str, report: &v1::JobReport) -> Result<(), StoreError> {
    if report.state() == v1::JobState::Running {
        if let Some(progress) = report.progress.clone() {
            core.agents.set_progress(node, &report.operation, progress);
        }
        return Ok(());
    }
    let Some(effect) = core.store.effect(&report.operation).await? else {
        return Ok(());
    };
    if effect.node_id != node || effect.attempt.outcome != Outcome::Open {
        return Ok(());
    }
    let done = match (report.state(), effect.attempt.effect, &report.result) {
        (v1::JobState::Succeeded, Effect::EraseDrives, Some(JobResult::EraseDrives(erased))) => {
            erase_ended(core, &effect, erased).await?
        }
        (v1::JobState::Succeeded, Effect::WriteImage, Some(JobResult::WriteImage(written))) => Done {
            events: vec![written_event(node, written)],
            ..Done::succeeded()
        },
        (v1::JobState::Succeeded, asked, _) => {
            let message = format!("the agent reported success without a result of {}", asked.as_str());
            Done::failed("no-result", message, false)
        }
        _ => {
            let error = report.error.clone().unwrap_or_default();
            Done::failed(&error.code, error.message, error.retryable)
        }
    };
    finish_effect(core, &effect, &bounded(done)).await
}

/// What the agent said, and the names of drives that are told on, at a length that can be kept and shown.
fn bounded(mut done: Done) -> Done {
    if let Outcome::Failed { code, message, .. } = &mut done.outcome {
        *code = cut(code, CODE_MAX);
        *message = cut(message, SENTENCE_MAX);
    }
    for event in &mut done.events {
        event.message = cut(&event.message, SENTENCE_MAX);
    }
    done
}

fn written_event(node: &str, written: &v1::WriteImageResult) -> EventRow {
    EventRow {
        at: clock::now(),
        kind: "image.written".into(),
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
        ]
        .into(),
        ..EventRow::default()
    }
}

/// Erased is only what is proven so, and done only when no drive that may hold something is left out.
async fn erase_ended(core: &Core, effect: &EffectRow, erased: &v1::EraseDrivesResult) -> Result<Done, StoreError> {
    let proofs = match erase_proofs(core, effect, erased) {
        Ok(proofs) => proofs,
        Err(message) => return Ok(Done::failed("erase-not-proven", message, false)),
    };
    let record = core.store.node(&Scope::Site, &effect.node_id).await?;
    let inventory = drives::of_node(core, &record.id).await?;
    let is_erased = |drive: &v1::Drive| {
        let mut rows = erased.drives.iter();
        rows.any(|e| e.drive_name == drive.name && e.serial_number == drive.serial_number)
    };
    let (done, left): (Vec<_>, Vec<_>) = drives::fixed(&inventory).partition(|d| is_erased(d));
    let left: BTreeSet<String> = left.into_iter().map(drives::key).collect();
    let present: BTreeSet<String> = done.into_iter().map(drives::key).chain(left.clone()).collect();
    let gone = record.node.evidence.missing(&present);
    let mut end = match (left.is_empty(), gone.is_empty()) {
        (true, true) => Done::succeeded(),
        (false, _) => {
            let message = format!(
                "drive {} is in the machine and was not erased, because nothing can be written to it: take it out and \
                 destroy it, then readmit the node",
                words(&left)
            );
            Done::failed("drive-not-erased", message, false)
        }
        (true, false) => {
            let message = format!(
                "drive {} was in the machine when it was given away and is missing now: what is on it was not erased. \
                 Find it; readmitting the node erases what is there then and asks no more for it",
                words(&gone)
            );
            Done {
                learned: Some(Learned::Gone(gone)),
                ..Done::failed("drive-missing", message, false)
            }
        }
    };
    end.proofs = proofs;
    Ok(end)
}

fn words(list: &BTreeSet<String>) -> String {
    list.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

type Proofs = Vec<(Proof, String, Vec<u8>)>;

/// A signed certificate per drive. A drive without samples, or none at all, proves nothing.
fn erase_proofs(core: &Core, effect: &EffectRow, erased: &v1::EraseDrivesResult) -> Result<Proofs, String> {
    if erased.drives.is_empty() {
        return Err("the agent found no drive to erase, so nothing is proven".into());
    }
    erased
        .drives
        .iter()
        .map(|drive| erase_proof(core, effect, drive))
        .collect()
}

fn erase_proof(core: &Core, effect: &EffectRow, drive: &v1::DriveErase) -> Result<(Proof, String, Vec<u8>), String> {
    if drive.samples == 0 || drive.method() == v1::EraseMethod::Unspecified {
        return Err(format!(
            "drive {} was reported erased without a method or without samples",
            drive.drive_name
        ));
    }
    let id = core.new_id();
    let name = format!("nodes/{}/eraseCertificates/{id}", effect.node_id);
    let time = |t: &Option<prost_types::Timestamp>| {
        t.and_then(|t| std::time::SystemTime::try_from(t).ok())
            .unwrap_or(UNIX_EPOCH)
    };
    let record = EraseRecord {
        name: name.clone(),
        node: format!("nodes/{}", effect.node_id),
        claim_generation: effect.generation,
        operation: format!("operations/{}", effect.id),
        drive_name: drive.drive_name.clone(),
        drive_model: drive.model.clone(),
        drive_serial: drive.serial_number.clone(),
        drive_bytes: drive.size_bytes,
        method: drive.method().as_str_name().to_owned(),
        start_time: time(&drive.start_time),
        end_time: time(&drive.end_time),
        samples: drive.samples,
        sample_bytes: drive.sample_bytes,
        rejected_methods: drive.rejected_methods.clone(),
    };
    let payload = record.encode().map_err(|e| e.to_string())?;
    let certificate = v1::EraseCertificate {
        name,
        node: record.node,
        claim_generation: record.claim_generation,
        operation: record.operation,
        drive_name: record.drive_name,
        drive_model: record.drive_model,
        drive_serial: record.drive_serial,
        drive_bytes: record.drive_bytes,
        method: drive.method,
        start_time: drive.start_time,
        end_time: drive.end_time,
        samples: record.samples,
        sample_bytes: record.sample_bytes,
        rejected_methods: record.rejected_methods,
        signature: core.keys.signer.sign(&payload),
        signed_payload: payload,
        signer_public_key: core.keys.signer.public_key().to_vec(),
    };
    Ok((Proof::EraseCertificate, id, certificate.encode_to_vec()))
}

#[cfg(test)]
mod tests {
    use rackwright_lifecycle::{Attempt, State, Timestamp};

    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn what_an_agent_says_is_kept_short_and_in_one_line() {
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
                boot_id: None,
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
        job_ended(&core, "n1", &report).await.unwrap();
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
