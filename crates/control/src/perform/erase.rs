//! Judges the report of an erase: certifies it or refuses it.
//!
//! The agent may lie. A certificate is signed only if the recorded lists confirm every drive of the report, if the report
//! names no other drive and leaves no drive out, and if the time by this clock is enough for the bytes that the method
//! moves. One doubt refuses all certificates of the report.

use std::collections::BTreeSet;
use std::time::SystemTime;

use rackwright_api::v1;
use rackwright_identity::EraseRecord;
use rackwright_lifecycle::drives::{
    Difference, DriveList, KnownDrive, ReportedDrive, Source, judge, too_fast, uncovered,
};
use rackwright_lifecycle::{PowerLoss, Timestamp, minutes, power_loss};
use rackwright_store::{EffectRow, NodeRecord, Scope, StoreError};

use super::certify::Erase;
use super::{EffectResult, LearnedFact, evidence};
use crate::agent_boot;
use crate::attestation::BY_TPM;
use crate::clock;
use crate::core::Core;
use crate::drives::{self, DIFFER, DRIVES_MAX};
use crate::text::{NAME_MAX, cut};

/// Tolerated error of an agent's clock.
const CLOCK_TOLERANCE_US: i64 = minutes(5);
/// The code of a report that proves nothing.
const NOT_PROVEN: &str = "erase-not-proven";

/// Judges the report of an erase.
///
/// # Errors
/// The database failed.
pub(super) async fn ended(
    core: &Core,
    effect: &EffectRow,
    erased: &v1::EraseDrivesResult,
) -> Result<EffectResult, StoreError> {
    let now = clock::now();
    if let Err(message) = plausible(effect, erased, now) {
        return Ok(EffectResult::failed(NOT_PROVEN, message, false));
    }
    let Some(loss) = memory_lost(core, effect).await? else {
        let message = "the machine was not seen without power before the erase, so its memory may hold data of the former \
                       customer: it is switched off and erased again";
        return Ok(EffectResult::failed("memory-not-cleared", message, true));
    };
    let record = core.store.node(&Scope::Site, &effect.node_id).await?;
    let inventory = drives::of_node(core, &record.id).await?;
    let is_erased = |drive: &v1::Drive| {
        let mut rows = erased.drives.iter();
        rows.any(|e| e.drive_name == drive.name && e.serial_number == drive.serial_number)
    };
    let (done, left): (Vec<_>, Vec<_>) = inventory.drives.iter().partition(|d| is_erased(d));
    let left: BTreeSet<String> = left.into_iter().map(drives::key).collect();
    if !left.is_empty() {
        let message = format!(
            "drive {} is in the machine and was not erased, because nothing can be written to it: take it out and \
             destroy it, then readmit the node",
            words(&left)
        );
        return Ok(EffectResult::failed("drive-not-erased", message, false));
    }
    let present: BTreeSet<String> = done.into_iter().map(drives::key).collect();
    let gone = record.node.evidence.missing(&present);
    let lists = drives::recorded(core, &record).await?;
    let reported: Vec<ReportedDrive> = erased.drives.iter().map(reported).collect();
    let verdict = judge(&lists, &reported);
    let (gone_lists, explains_all) = lists_without(&gone, &lists, &verdict.differences);
    if !explains_all {
        return Ok(differ(&record, &inventory, erased, &verdict.differences, now));
    }
    if !gone.is_empty() {
        return Ok(missing(gone, gone_lists));
    }
    let elapsed_us = u64::try_from(now.since(effect.attempt.started_at)).unwrap_or(0);
    if let Some(quick) = too_fast(&lists, &reported, elapsed_us).first() {
        let message = format!(
            "{quick}. No certificate is signed: check whether another host answers for the machine, then readmit the node"
        );
        return Ok(EffectResult::failed(NOT_PROVEN, message, false));
    }
    let (identity, attestation) = agent_boot::identity_of(&core.store, effect).await?;
    // The control plane knows that this machine has a TPM.
    if core.config.identity.clear_tpm && identity == BY_TPM && erased.tpm() != v1::TpmClear::Cleared {
        let message = "the drives are erased, but the agent did not clear the TPM, which may hold keys and data of the former \
                       customer. Clear the TPM in the firmware's settings, then readmit the node";
        return Ok(EffectResult::failed("tpm-not-cleared", message, false));
    }
    let uncovered = uncovered(&lists, &reported);
    let erases = erased.drives.iter().zip(&verdict.witnesses);
    let erases: Result<Vec<_>, String> = erases
        .map(|(drive, by)| {
            let evidence = evidence::of_drive(drive, loss, erased, &uncovered);
            proof(core, effect, drive, by, (identity, &attestation), evidence)
        })
        .collect();
    Ok(match erases {
        Ok(erases) => EffectResult {
            erases,
            ..EffectResult::succeeded()
        },
        Err(message) => EffectResult::failed(NOT_PROVEN, message, false),
    })
}

/// When the machine had no power before the boot that erased.
async fn memory_lost(core: &Core, effect: &EffectRow) -> Result<Option<PowerLoss>, StoreError> {
    let rows = core.store.attempts(&effect.node_id, effect.state_since).await?;
    let attempts: Vec<_> = rows.into_iter().map(|row| row.attempt).collect();
    Ok(power_loss(&attempts))
}

fn words(list: &BTreeSet<String>) -> String {
    list.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Checks the report in itself: drives, methods, samples and times.
fn plausible(effect: &EffectRow, erased: &v1::EraseDrivesResult, now: Timestamp) -> Result<(), String> {
    if erased.drives.is_empty() {
        return Err("the agent found no drive to erase, so nothing is proven".into());
    }
    if erased.drives.len() > DRIVES_MAX {
        let count = erased.drives.len();
        return Err(format!(
            "the agent reports {count} drives; at most {DRIVES_MAX} are taken"
        ));
    }
    for drive in &erased.drives {
        let name = cut(&drive.drive_name, NAME_MAX);
        if drive.samples == 0 || drive.sample_bytes == 0 || drive.method() == v1::EraseMethod::Unspecified {
            return Err(format!(
                "drive {name} was reported erased without a method or without samples"
            ));
        }
        let (Some(start), Some(end)) = (timestamp(drive.start_time.as_ref()), timestamp(drive.end_time.as_ref()))
        else {
            return Err(format!(
                "drive {name} was reported erased without a time of its start or its end"
            ));
        };
        let begun = effect.attempt.started_at;
        let is_inside = begun.plus(-CLOCK_TOLERANCE_US) <= start && end <= now.plus(CLOCK_TOLERANCE_US);
        if start > end || !is_inside {
            return Err(format!(
                "drive {name} was reported erased from {} to {}, but the job ran from {} to {}. No certificate is signed: \
                 set the machine's clock and readmit the node",
                start.date(),
                end.date(),
                begun.date(),
                now.date()
            ));
        }
    }
    Ok(())
}

fn timestamp(time: Option<&prost_types::Timestamp>) -> Option<Timestamp> {
    let time = time?;
    let micros = time.seconds.checked_mul(1_000_000)?;
    (0..1_000_000_000)
        .contains(&time.nanos)
        .then(|| Timestamp(micros.saturating_add(i64::from(time.nanos / 1000))))
}

/// A reported drive, and the bytes that its method moves. An overwrite writes a pattern, writes zeros and reads all of it;
/// a discard reads all of it. The drive's own commands move no bytes: only the samples are read, before and after.
fn reported(drive: &v1::DriveErase) -> ReportedDrive {
    let sampled = drive.samples.saturating_mul(drive.sample_bytes).saturating_mul(2);
    let moved_bytes = match drive.method() {
        v1::EraseMethod::Overwrite => drive.size_bytes.saturating_mul(3),
        v1::EraseMethod::DiscardZeroed => drive.size_bytes,
        _ => sampled,
    };
    ReportedDrive {
        name: cut(&drive.drive_name, NAME_MAX),
        serial: cut(&drive.serial_number, NAME_MAX),
        model: cut(&drive.model, NAME_MAX),
        size_bytes: drive.size_bytes,
        moved_bytes,
    }
}

/// The lists without the drives that are gone, and whether these drives explain every difference. A drive that the BMC
/// lists now is not gone, even if the agent lacks it.
fn lists_without(gone: &BTreeSet<String>, lists: &[DriveList], differences: &[Difference]) -> (Vec<DriveList>, bool) {
    let exact = lists.iter().filter(|list| list.source.is_exact());
    let serials: BTreeSet<&String> = exact
        .flat_map(|list| &list.drives)
        .filter(|drive| gone.contains(&drive.key))
        .map(|drive| &drive.serial)
        .collect();
    let is_gone = |serial: &str| serials.iter().any(|gone| gone.trim() == serial.trim());
    let explains_all = differences.iter().all(|difference| match difference {
        Difference::Missing { source, serial, .. } => *source != Source::BmcReclaiming && is_gone(serial),
        _ => false,
    });
    let kept = lists.iter().filter(|list| list.source != Source::Reported);
    let kept = kept.map(|list| {
        let stays = |drive: &&KnownDrive| match list.source.is_exact() {
            true => !gone.contains(&drive.key),
            false => drive.serial.trim().is_empty() || !is_gone(&drive.serial),
        };
        DriveList {
            drives: list.drives.iter().filter(stays).cloned().collect(),
            ..list.clone()
        }
    });
    (kept.collect(), explains_all)
}

/// The failure for a written drive that is gone. It is reported once; the drive is no longer expected.
fn missing(gone: BTreeSet<String>, lists: Vec<DriveList>) -> EffectResult {
    let message = format!(
        "drive {} was in the machine when it was handed over and is missing now: the data on it was not erased. \
         Find the drive; a readmit of the node erases the drives that are present then and no longer expects this drive",
        words(&gone)
    );
    EffectResult {
        learned: Some(LearnedFact::Gone(gone, lists)),
        ..EffectResult::failed("drive-missing", message, false)
    }
}

/// The failure for a report that differs from the record. The reported drives are stored: an operator may accept them.
fn differ(
    record: &NodeRecord,
    inventory: &v1::Inventory,
    erased: &v1::EraseDrivesResult,
    differences: &[Difference],
    now: Timestamp,
) -> EffectResult {
    let mut drives = Vec::new();
    for drive in &erased.drives {
        let listed = inventory.drives.iter().find(|d| d.name == drive.drive_name);
        let as_reported = v1::Drive {
            name: drive.drive_name.clone(),
            serial_number: drive.serial_number.clone(),
            model: drive.model.clone(),
            size_bytes: drive.size_bytes,
            ..listed.cloned().unwrap_or_default()
        };
        drives.push(drives::known(&as_reported));
    }
    let reported = DriveList {
        source: Source::Reported,
        at: now,
        by: String::new(),
        drives,
    };
    EffectResult {
        learned: Some(LearnedFact::Drives(vec![reported])),
        events: vec![drives::differ_event(&record.id, differences, now)],
        ..EffectResult::failed(DIFFER, drives::refusal(&record.id, differences), false)
    }
}

/// The content of one drive's certificate.
fn proof(
    core: &Core,
    effect: &EffectRow,
    drive: &v1::DriveErase,
    witnesses: &BTreeSet<&'static str>,
    (identity, attestation): (&str, &str),
    evidence: Vec<String>,
) -> Result<Erase, String> {
    if witnesses.is_empty() {
        return Err(format!("no source has recorded drive {}", drive.drive_name));
    }
    let id = core.new_id();
    let time = |time: &Option<prost_types::Timestamp>| {
        time.and_then(|time| SystemTime::try_from(time).ok())
            .unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let record = EraseRecord {
        name: format!("nodes/{}/eraseCertificates/{id}", effect.node_id),
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
        witnesses: witnesses.iter().map(|witness| (*witness).to_owned()).collect(),
        identity: identity.to_owned(),
        evidence,
        link: None,
    };
    let erase = Erase {
        id,
        record,
        method: drive.method,
        attestation: attestation.to_owned(),
    };
    // Refuses now, not when it is stored, a certificate that cannot be encoded.
    erase.largest().encode().map_err(|e| e.to_string())?;
    Ok(erase)
}

#[cfg(test)]
#[path = "erase_tests.rs"]
mod tests;
