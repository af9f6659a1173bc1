//! The evidence in an erase certificate beside the drive: memory, sizes, hidden areas, uncovered drives.

use rackwright_api::v1;
use rackwright_ground::clock;
use rackwright_ground::text::{SENTENCE_MAX, cut};
use rackwright_identity::EVIDENCE_MAX;
use rackwright_lifecycle::{PowerLoss, Timestamp};

use super::uefi_variables;

/// Most hidden areas of one drive that are named.
const AREAS_MAX: usize = 16;

/// A time in RFC 3339.
fn time(at: Timestamp) -> String {
    prost_types::Timestamp::from(clock::system_time(at)).to_string()
}

/// The line about the machine's memory.
fn memory(loss: PowerLoss) -> String {
    let seconds = loss.to.since(loss.from) / 1_000_000;
    format!(
        "memory: powered off for {seconds} s, read from the BMC at {} and at {}",
        time(loss.from),
        time(loss.to)
    )
}

/// The line about the machine's TPM.
fn tpm(clear: v1::TpmClear) -> String {
    let words = match clear {
        v1::TpmClear::Cleared => "cleared",
        v1::TpmClear::NoTpm => "none found",
        v1::TpmClear::Unspecified => "not cleared",
    };
    format!("TPM: {words}")
}

/// The lines of one drive's certificate, at most [`EVIDENCE_MAX`].
pub(super) fn of_drive(
    drive: &v1::DriveErase,
    loss: PowerLoss,
    report: &v1::EraseDrivesResult,
    uncovered: &[String],
) -> Vec<String> {
    let mut lines = vec![memory(loss), tpm(report.tpm())];
    lines.extend(report.new_uefi_variables.iter().flat_map(uefi_variables::lines));
    if drive.native_bytes > 0 {
        lines.push(format!("native capacity: {} bytes", drive.native_bytes));
    }
    lines.extend(
        drive
            .hidden_areas
            .iter()
            .take(AREAS_MAX)
            .map(|area| cut(area, SENTENCE_MAX)),
    );
    lines.extend(
        uncovered
            .iter()
            .map(|words| cut(&format!("not erased: {words}"), SENTENCE_MAX)),
    );
    lines.extend(report.excluded.iter().map(|device| {
        let words = format!(
            "left out: {} ({} bytes): {}",
            device.name, device.size_bytes, device.reason
        );
        cut(&words, SENTENCE_MAX)
    }));
    lines.truncate(EVIDENCE_MAX);
    lines
}
