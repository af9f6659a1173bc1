//! The WriteImage job: chooses the drive, writes the image, fits its partition table to the drive, adds the seed, and sets
//! the boot entry.
//!
//! After a failure the drive is untouched if it was not chosen yet. Later it has no partition table (the writer and this
//! module zero both ends), so that a half-written system never boots. A boot entry that cannot be set is not a failure:
//! firmware finds the loader by its default path, or boots the disk through the BMC's override. The last progress text
//! reports it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use rackwright_api::v1::{JobError, WriteImage, WriteImageResult};
use thiserror::Error;

use super::control::JobControl;
use super::job_error;
use super::writer::{Credentials, ImageWriter, WriteRequest, WriteSummary};
use crate::disk::gpt::{Gpt, GptError, random_guid};
use crate::disk::seed::{self, SEED_BYTES, SEED_LABEL, SeedError};
use crate::drives::{DriveError, DriveFacts, Drives, choose};
use crate::efi::{self, vars::EfiVars};
use crate::ioctl;
use crate::sharing::PeerSetup;

/// Extra space for the partition table and alignment.
const TABLE_ROOM_BYTES: u64 = 2 << 20;
/// Bytes zeroed at both ends of a drive with an unusable image.
const ENDS_BYTES: u64 = 1 << 20;
/// File in the seed with the claim generation.
const MARKER: &str = "rackwright/image";
const DEFAULT_LABEL: &str = "installed system";

/// Why the disk could not be completed after the image was written.
#[derive(Debug, Error)]
pub enum FinishError {
    /// The partition table could not be fitted.
    #[error(transparent)]
    Table(#[from] GptError),
    /// The seed is invalid.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The drive could not be read or written.
    #[error("finishing drive {drive}: {source}")]
    Io {
        /// Name of the drive.
        drive: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl FinishError {
    /// The error for the report.
    pub fn job_error(&self, drive: &str) -> JobError {
        let code = match self {
            Self::Table(GptError::TooSmall { .. }) => "disk-too-small",
            Self::Table(GptError::Unsupported { .. } | GptError::Full) => "unsupported-partition-table",
            Self::Seed(_) => "seed-invalid",
            Self::Table(GptError::Io(_)) | Self::Io { .. } => "write-failed",
        };
        job_error(code, format!("drive {drive}: {self}"), code == "write-failed")
    }
}

/// The resources of the job.
pub struct Tools<'a> {
    /// The machine's drives.
    pub drives: &'a dyn Drives,
    /// Writes the image.
    pub writer: &'a dyn ImageWriter,
    /// The boot variables; `None` on machines that did not boot by UEFI.
    pub efivars: Option<EfiVars>,
    /// For a job with peers.
    pub peers: Option<PeerSetup>,
}

/// Runs the job.
///
/// # Errors
/// The error for the report.
pub fn write(
    tools: &Tools<'_>,
    job: &WriteImage,
    generation: u64,
    credentials: Credentials,
    control: &JobControl,
) -> Result<WriteImageResult, JobError> {
    let begun = Instant::now();
    let files = seed_files(job, generation);
    seed::check(&files).map_err(|error| FinishError::from(error).job_error("any"))?;
    let request = WriteRequest {
        store_urls: job.store_urls.clone(),
        image_digest: job.image_digest.clone(),
        verify_whole_disk: job.verify_whole_disk,
        memory_budget_bytes: job.memory_budget_bytes,
        credentials,
        peers: tools.peers.clone(),
    };
    control.step("fetching the index", 0);
    let logical = tools
        .writer
        .logical_bytes(&request, control)
        .map_err(|error| stop_error_or(control, error))?;
    let needed = logical.saturating_add(SEED_BYTES + TABLE_ROOM_BYTES);
    let drives = tools.drives.list();
    let facts = choose(&drives, &job.root_drive, needed).map_err(drive_error)?;
    control.step(format!("writing to {}", facts.drive.name), logical);
    let summary = tools
        .writer
        .write(&request, &facts.node, control)
        .map_err(|error| stop_error_or(control, error))?;
    control.step("partition table and seed", 0);
    let finished = control.check().map_err(|stop| stop.error("writing")).and_then(|()| {
        let finished = tools.writer.finish(facts, &files);
        finished.map_err(|error| error.job_error(&facts.drive.name))
    });
    if finished.is_err() {
        // The original error is reported; a further failure here has no remedy.
        let _ = tools.writer.invalidate(facts);
    }
    finished?;
    control.step("boot entry", 0);
    let label = if job.boot_entry_label.is_empty() {
        DEFAULT_LABEL
    } else {
        &job.boot_entry_label
    };
    let entry = set_boot_entry(tools.efivars.as_ref(), facts, label);
    control.step("done", 0);
    control.add_remark(&entry.unwrap_or_else(|why| format!("boot entry not set: {why}")));
    for remark in &summary.remarks {
        control.add_remark(remark);
    }
    Ok(result(facts, &summary, begun))
}

fn result(facts: &DriveFacts, summary: &WriteSummary, begun: Instant) -> WriteImageResult {
    WriteImageResult {
        drive_name: facts.drive.name.clone(),
        drive_serial: facts.drive.serial_number.clone(),
        logical_bytes: summary.logical_bytes,
        fetched_bytes: summary.fetched_bytes,
        written_bytes: summary.written_bytes,
        zeros_skipped: summary.zeros_skipped,
        verified_whole_disk: summary.verified_whole_disk,
        duration_s: begun.elapsed().as_secs_f64(),
        resumed_downloads: summary.resumed_downloads,
        io_uring: summary.io_uring,
        chunks_from_servers: summary.chunks_from_servers,
        chunks_from_rack: summary.chunks_from_rack,
        chunks_from_other_racks: summary.chunks_from_other_racks,
        chunks_served: summary.chunks_served,
    }
}

/// A stopped writer reports "cancelled" for any reason; the control has the real reason.
fn stop_error_or(control: &JobControl, error: JobError) -> JobError {
    match control.stopped() {
        Some(stop) if error.code == "cancelled" => stop.error("writing the image"),
        _ => error,
    }
}

fn drive_error(error: DriveError) -> JobError {
    let code = match error {
        DriveError::Missing { .. } => "disk-missing",
        DriveError::Io { .. } => "disk-open-failed",
        DriveError::TooSmall { .. } => "disk-too-small",
    };
    job_error(code, error.to_string(), false)
}

/// The files of the seed. Adds the generation to the marker, where the agent will look for it.
fn seed_files(job: &WriteImage, generation: u64) -> BTreeMap<String, Vec<u8>> {
    let job_files = job.seed.as_ref().map(|seed| seed.files.clone()).unwrap_or_default();
    let mut files: BTreeMap<String, Vec<u8>> = job_files.into_iter().collect();
    let marker = files
        .entry(MARKER.to_owned())
        .or_insert_with(|| format!("digest={}\n", job.image_digest).into_bytes());
    if !marker
        .split(|byte| *byte == b'\n')
        .any(|line| line.starts_with(b"generation="))
    {
        if marker.last().is_some_and(|last| *last != b'\n') {
            marker.push(b'\n');
        }
        marker.extend_from_slice(format!("generation={generation}\n").as_bytes());
    }
    files
}

/// Fits the partition table to the drive and writes the seed. When it returns, both are on the medium.
///
/// # Errors
/// [`FinishError`]
pub fn finish(facts: &DriveFacts, files: &BTreeMap<String, Vec<u8>>) -> Result<(), FinishError> {
    let io = |source| FinishError::Io {
        drive: facts.drive.name.clone(),
        source,
    };
    let mut disk = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&facts.node)
        .map_err(io)?;
    // The image was written past the page cache.
    let _ = ioctl::drop_cache(&disk);
    let size = disk.seek(SeekFrom::End(0)).map_err(io)?;
    let sector_bytes = facts.drive.logical_block_bytes.max(512);
    let mut gpt = Gpt::read(&disk, u64::from(sector_bytes))?;
    let guid = random_guid().map_err(io)?;
    let partition = gpt.fit(size, SEED_BYTES, guid, SEED_LABEL)?;
    let volume_id = u32::from_le_bytes([guid[0], guid[1], guid[2], guid[3]]);
    // FAT supports blocks of 512 to 4096 bytes, and so do drives.
    let content = seed::build(files, u16::try_from(sector_bytes).unwrap_or(4096), volume_id)?;
    disk.write_all_at(&content, gpt.extent(&partition).0).map_err(io)?;
    gpt.write(&disk).map_err(io)?;
    disk.sync_all().map_err(io)?;
    // The partitions are not used here, and the next boot reads them again.
    let _ = ioctl::reread_partitions(&disk);
    Ok(())
}

pub(super) fn zero_ends(node: &Path) -> io::Result<()> {
    let mut disk = OpenOptions::new().write(true).open(node)?;
    let size = disk.seek(SeekFrom::End(0))?;
    let zeros = vec![0; usize::try_from(ENDS_BYTES.min(size)).unwrap_or(0)];
    disk.write_all_at(&zeros, 0)?;
    disk.write_all_at(&zeros, size - zeros.len() as u64)?;
    disk.sync_all()
}

/// Returns a description of the entry, or the reason why none was set.
fn set_boot_entry(efivars: Option<&EfiVars>, facts: &DriveFacts, label: &str) -> Result<String, String> {
    let Some(efivars) = efivars else {
        return Ok("no boot entry: this machine booted by BIOS".into());
    };
    let disk = File::open(&facts.node).map_err(|error| error.to_string())?;
    let gpt =
        Gpt::read(&disk, u64::from(facts.drive.logical_block_bytes.max(512))).map_err(|error| error.to_string())?;
    let loader = efi::find_loader(&disk, &gpt).map_err(|error| format!("EFI system partition: {error}"))?;
    let loader = loader.ok_or("the image has no EFI loader")?;
    let number = efivars
        .set_boot_entry(label, &loader)
        .map_err(|error| error.to_string())?;
    Ok(format!(
        "Boot{number:04X} starts {} on partition {}",
        loader.path, loader.partition.number
    ))
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
