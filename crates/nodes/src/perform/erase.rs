//! Judges the report of an erase: certifies it or refuses it.
//!
//! The agent may lie. A certificate is signed only if the recorded lists confirm every drive of the report, if the report
//! names no other drive and leaves no drive out, and if the time by this clock is enough for the bytes that the method
//! moves. One doubt refuses all certificates of the report.

use std::collections::BTreeSet;
use std::time::SystemTime;

use rackwright_api::v1;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::text::{NAME_MAX, cut};
use rackwright_identity::EraseRecord;
use rackwright_lifecycle::drives::{
    Difference, DriveList, KnownDrive, ReportedDrive, Source, judge, too_fast, uncovered,
};
use rackwright_lifecycle::{NodeId, PowerLoss, Timestamp, minutes, power_loss};
use rackwright_store::{EffectRow, EventRow, NodeRecord, Scope, StoreError};

use super::{evidence, uefi_variables};
use crate::agent_boot;
use crate::attestation::BY_TPM;
use crate::drives::{self, DIFFER, DRIVES_MAX};
use crate::effect_result::{EffectResult, Erase, LearnedFact};

/// Tolerated error of an agent's clock.
const CLOCK_TOLERANCE_US: i64 = minutes(5);
/// The failure code of a report that proves nothing.
const NOT_PROVEN: &str = "erase-not-proven";

/// Judges the report of an erase: the result has the erases to certify, or the failure.
pub(super) async fn judge_report(
    core: &Core,
    effect: &EffectRow,
    report: &v1::EraseDrivesResult,
) -> Result<EffectResult, StoreError> {
    let now = clock::now();
    if let Err(message) = check_report(effect, report, now) {
        return Ok(EffectResult::failed_for_good(NOT_PROVEN, message));
    }
    let Some(loss) = power_loss_before(core, effect).await? else {
        let message = "the machine was not seen without power before the erase, so its memory may hold data of the former \
                       customer: it is switched off and erased again";
        return Ok(EffectResult::failed_for_now("memory-not-cleared", message));
    };
    let record = core.store.node(&Scope::Site, &effect.node_id).await?;
    let inventory = drives::of_node(core, &record.id).await?;
    let (erased, left) = keys_by_erase(&inventory, report);
    if !left.is_empty() {
        return Ok(not_erased(&left));
    }
    let gone = record.node.evidence.missing(&erased);
    let lists = drives::recorded(core, &record).await?;
    let reported: Vec<ReportedDrive> = report.drives.iter().map(reported_drive).collect();
    let verdict = judge(&lists, &reported);
    let gone_serials = serials_of(&gone, &lists);
    if !explain_all(&gone_serials, &verdict.differences) {
        return Ok(differ(&record, &inventory, report, &verdict.differences, now));
    }
    if !gone.is_empty() {
        let lists = lists_without(&gone, &gone_serials, &lists);
        return Ok(missing(gone, lists));
    }
    let elapsed_us = u64::try_from(now.since(effect.attempt.started_at)).unwrap_or(0);
    if let Some(quick) = too_fast(&lists, &reported, elapsed_us).first() {
        let message = format!(
            "{quick}. No certificate is signed: check whether another host answers for the machine, then readmit the node"
        );
        return Ok(EffectResult::failed_for_good(NOT_PROVEN, message));
    }
    let (identity, attestation) = agent_boot::identity_of(&core.store, effect).await?;
    // A machine that its TPM identified has a TPM, whatever the report says.
    if core.config.identity.clear_tpm && identity == BY_TPM && report.tpm() != v1::TpmClear::Cleared {
        let message = "the drives are erased, but the agent did not clear the TPM, which may hold keys and data of the former \
                       customer. Clear the TPM in the firmware's settings, then readmit the node";
        return Ok(EffectResult::failed_for_good("tpm-not-cleared", message));
    }
    if report.new_uefi_variables.is_none() && uefi_variables::recorded(core, &record).await?.is_some() {
        let message = "the drives are erased, but the agent did not compare the UEFI variables with those of the inspection, \
                       so data of the former customer may be in them: readmit the node, which erases it again";
        return Ok(EffectResult::failed_for_good("uefi-variables", message));
    }
    let uncovered_drives = uncovered(&lists, &reported);
    let drives = report.drives.iter().zip(&verdict.witnesses);
    let erases: Result<Vec<_>, String> = drives
        .map(|(drive, witnesses)| {
            let evidence = evidence::of_drive(drive, loss, report, &uncovered_drives);
            erase_to_certify(core, effect, drive, witnesses, (identity, &attestation), evidence)
        })
        .collect();
    Ok(match erases {
        Ok(erases) => EffectResult {
            erases,
            events: new_variables(&record.id, report, now),
            ..EffectResult::succeeded()
        },
        Err(message) => EffectResult::failed_for_good(NOT_PROVEN, message),
    })
}

/// The event about UEFI variables that were added since the inspection, if there are any.
fn new_variables(node: &NodeId, report: &v1::EraseDrivesResult, now: Timestamp) -> Vec<EventRow> {
    let new = report.new_uefi_variables.as_ref();
    new.and_then(|new| uefi_variables::event(node, new, now))
        .into_iter()
        .collect()
}

/// The time without power before the boot that erased.
async fn power_loss_before(core: &Core, effect: &EffectRow) -> Result<Option<PowerLoss>, StoreError> {
    let rows = core.store.attempts(&effect.node_id, effect.state_since).await?;
    let attempts: Vec<_> = rows.into_iter().map(|row| row.attempt).collect();
    Ok(power_loss(&attempts))
}

/// The keys of the inventory's drives: of those that the report erased, and of those that it left out.
fn keys_by_erase(inventory: &v1::Inventory, report: &v1::EraseDrivesResult) -> (BTreeSet<String>, BTreeSet<String>) {
    let is_erased = |drive: &v1::Drive| {
        let mut reported = report.drives.iter();
        reported.any(|reported| reported.drive_name == drive.name && reported.serial_number == drive.serial_number)
    };
    let (erased, left): (Vec<_>, Vec<_>) = inventory.drives.iter().partition(|drive| is_erased(drive));
    let keys = |list: Vec<&v1::Drive>| -> BTreeSet<String> { list.into_iter().map(drives::key).collect() };
    (keys(erased), keys(left))
}

/// The failure for drives of the machine that the report left out.
fn not_erased(left: &BTreeSet<String>) -> EffectResult {
    let message = format!(
        "drive {} is in the machine and was not erased, because nothing can be written to it: take it out and \
         destroy it, then readmit the node",
        in_words(left)
    );
    EffectResult::failed_for_good("drive-not-erased", message)
}

fn in_words(list: &BTreeSet<String>) -> String {
    list.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Checks the report alone, without the record of the drives: their number, methods, samples and times. The error is the
/// failure's message.
fn check_report(effect: &EffectRow, report: &v1::EraseDrivesResult, now: Timestamp) -> Result<(), String> {
    if report.drives.is_empty() {
        return Err("the agent found no drive to erase, so nothing is proven".into());
    }
    if report.drives.len() > DRIVES_MAX {
        let count = report.drives.len();
        return Err(format!(
            "the agent reports {count} drives; at most {DRIVES_MAX} are taken"
        ));
    }
    for drive in &report.drives {
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

/// The time in microseconds; `None` if it is missing or malformed.
fn timestamp(time: Option<&prost_types::Timestamp>) -> Option<Timestamp> {
    let time = time?;
    let micros = time.seconds.checked_mul(1_000_000)?;
    (0..1_000_000_000)
        .contains(&time.nanos)
        .then(|| Timestamp(micros.saturating_add(i64::from(time.nanos / 1000))))
}

/// A reported drive, and the bytes that its method moves. An overwrite writes a pattern, writes zeros and reads the whole
/// drive; a discard reads the whole drive. The drive's own commands move no bytes: only the samples are read, before and
/// after.
fn reported_drive(drive: &v1::DriveErase) -> ReportedDrive {
    let sampled_bytes = drive.samples.saturating_mul(drive.sample_bytes).saturating_mul(2);
    let moved_bytes = match drive.method() {
        v1::EraseMethod::Overwrite => drive.size_bytes.saturating_mul(3),
        v1::EraseMethod::DiscardZeroed => drive.size_bytes,
        _ => sampled_bytes,
    };
    ReportedDrive {
        name: cut(&drive.drive_name, NAME_MAX),
        serial: cut(&drive.serial_number, NAME_MAX),
        model: cut(&drive.model, NAME_MAX),
        size_bytes: drive.size_bytes,
        moved_bytes,
    }
}

/// The serial numbers of drives with these keys, as the exact lists record them.
fn serials_of<'a>(keys: &BTreeSet<String>, lists: &'a [DriveList]) -> BTreeSet<&'a str> {
    let exact = lists.iter().filter(|list| list.source.is_exact());
    exact
        .flat_map(|list| &list.drives)
        .filter(|drive| keys.contains(&drive.key))
        .map(|drive| drive.serial.trim())
        .collect()
}

/// Whether the gone drives explain every difference. A drive that the BMC lists now is not gone, even if the agent lacks
/// it.
fn explain_all(gone_serials: &BTreeSet<&str>, differences: &[Difference]) -> bool {
    differences.iter().all(|difference| match difference {
        Difference::Missing { source, serial, .. } => {
            *source != Source::BmcReclaiming && gone_serials.contains(serial.trim())
        }
        _ => false,
    })
}

/// The recorded lists without the gone drives, and without the list of an earlier refused report. Entries of the BMC have no
/// key, so their serial numbers decide; an entry without a serial number stays.
fn lists_without(gone: &BTreeSet<String>, gone_serials: &BTreeSet<&str>, lists: &[DriveList]) -> Vec<DriveList> {
    let kept = lists.iter().filter(|list| list.source != Source::Reported);
    kept.map(|list| {
        let stays = |drive: &&KnownDrive| {
            let serial = drive.serial.trim();
            match list.source.is_exact() {
                true => !gone.contains(&drive.key),
                false => serial.is_empty() || !gone_serials.contains(serial),
            }
        };
        DriveList {
            drives: list.drives.iter().filter(stays).cloned().collect(),
            ..list.clone()
        }
    })
    .collect()
}

/// The failure for gone drives that may hold written data. It is reported once: later erases do not expect these drives.
fn missing(gone: BTreeSet<String>, lists: Vec<DriveList>) -> EffectResult {
    let message = format!(
        "drive {} was in the machine when it was handed over and is missing now: the data on it was not erased. \
         Find the drive; a readmit of the node erases the drives that are present then and no longer expects this drive",
        in_words(&gone)
    );
    EffectResult {
        learned: Some(LearnedFact::Gone(gone, lists)),
        ..EffectResult::failed_for_good("drive-missing", message)
    }
}

/// The failure for a report that differs from the record. The reported drives are stored: an operator may accept them.
fn differ(
    record: &NodeRecord,
    inventory: &v1::Inventory,
    report: &v1::EraseDrivesResult,
    differences: &[Difference],
    now: Timestamp,
) -> EffectResult {
    let mut drives = Vec::new();
    for drive in &report.drives {
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
        ..EffectResult::failed_for_good(DIFFER, drives::refusal(&record.id, differences))
    }
}

/// The erase of one drive, with the content of its certificate. The error is the failure's message.
fn erase_to_certify(
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
    let system_time = |time: &Option<prost_types::Timestamp>| {
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
        start_time: system_time(&drive.start_time),
        end_time: system_time(&drive.end_time),
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
    // A certificate that cannot be encoded is refused now, before it is stored.
    erase.largest().encode().map_err(|e| e.to_string())?;
    Ok(erase)
}

#[cfg(test)]
#[path = "erase_tests.rs"]
mod tests;
