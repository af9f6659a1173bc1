//! Imports an image: from a file in one of five formats to chunks and an index.
//!
//! The file is read twice through one open handle. The first pass compares its SHA-256 and verifies its signature; a file
//! that fails is never passed to a decoder. The second pass unpacks the file, cuts the disk into chunks and stores the
//! chunks. If the file changed during the passes, the import is refused. The image becomes visible in the store with its
//! index, which is stored last.

mod decode;
mod error;
mod pipeline;
mod verification;

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::digest::{ImageDigest, Sha256};
use crate::format::Format;
use crate::index::Index;
use crate::store::{ChunkStore, StoreHold};

pub use error::ImportError;
pub use verification::{SignaturePolicy, SignedBy};

/// Source and conditions of an import.
#[derive(Debug, Clone)]
pub struct ImportRequest<'a> {
    /// Path of the file.
    pub source: &'a Path,
    /// Format of the file. `None`: detected from its first bytes.
    pub format: Option<Format>,
    /// Required SHA-256 of the file.
    pub expected_sha256: Option<Sha256>,
    /// Content of a minisign signature file for the source. A given signature must verify under any policy.
    pub signature: Option<&'a str>,
    /// The trusted signers, and whether a signature is required.
    pub policy: &'a SignaturePolicy,
    /// Limits on the cost of a hostile file.
    pub limits: ImportLimits,
    /// zstd level of the stored chunks, 1 to 19.
    pub level: i32,
    /// Threads that hash and pack. 0: one per core, at most eight.
    pub threads: usize,
    /// Called before each new chunk is stored.
    pub space_check: SpaceCheck<'a>,
}

/// Checks whether the store's disk has room for this number of further bytes. The error is a sentence with the reason.
#[derive(Clone, Copy)]
pub struct SpaceCheck<'a>(pub &'a (dyn Fn(u64) -> Result<(), String> + Sync));

impl SpaceCheck<'_> {
    /// Allows any number of bytes.
    pub const UNBOUNDED: Self = Self(&|_| Ok(()));
}

impl std::fmt::Debug for SpaceCheck<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SpaceCheck")
    }
}

/// Default zstd level of chunks. An image is packed once and unpacked a thousand times. For the files of a Debian system,
/// level 9 gives smaller chunks than lower levels, which unpack equally fast. Levels from 12 on save less than 1 % more.
pub const LEVEL: i32 = 9;

impl<'a> ImportRequest<'a> {
    /// Imports `source` with the default level and limits, without a required digest or signature.
    pub fn new(source: &'a Path, policy: &'a SignaturePolicy) -> Self {
        Self {
            source,
            format: None,
            expected_sha256: None,
            signature: None,
            policy,
            limits: ImportLimits::default(),
            level: LEVEL,
            threads: 0,
            space_check: SpaceCheck::UNBOUNDED,
        }
    }
}

/// Limits on unpacking: a file of a few KiB can claim to be a disk of many TiB.
#[derive(Debug, Clone, Copy)]
pub struct ImportLimits {
    /// Largest disk, in bytes.
    pub max_logical_bytes: u64,
    /// Largest amount of new data in the store, in bytes.
    pub max_new_bytes: u64,
    /// Largest memory of an xz or zstd decoder, in bytes; rounded down to a power of two for zstd.
    pub max_decoder_bytes: u64,
}

impl Default for ImportLimits {
    /// 1 TiB of disk, 256 GiB of store, 256 MiB of decoder (`xz -9` needs 65 MiB, `zstd --long=27` 128 MiB).
    fn default() -> Self {
        Self {
            max_logical_bytes: 1 << 40,
            max_new_bytes: 256 << 30,
            max_decoder_bytes: 256 << 20,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportStep {
    /// Reads the file for its digest and signature.
    Verifying,
    /// Unpacks, cuts, packs and stores.
    Storing,
}

#[derive(Debug, Clone, Copy)]
pub struct ImportProgress {
    /// Current step.
    pub step: ImportStep,
    /// Bytes of the file read in this step.
    pub source_bytes: u64,
    /// Size of the file in bytes.
    pub source_bytes_total: u64,
    /// Bytes of disk unpacked so far.
    pub logical_bytes: u64,
}

/// An imported image.
#[derive(Debug)]
pub struct Imported {
    /// Digest that names the image.
    pub digest: ImageDigest,
    /// Size of the disk in bytes.
    pub logical_size: u64,
    /// Bytes of the disk in data chunks.
    pub data_bytes: u64,
    /// Number of data chunks, repetitions included.
    pub data_chunks: u64,
    /// Number of zero chunks; they are not stored.
    pub zero_chunks: u64,
    /// Number of chunks that are new in the store.
    pub new_chunks: u64,
    /// Packed size of the new chunks in bytes.
    pub new_bytes: u64,
    /// Packed size of all data chunks in bytes, repetitions included. A machine fetches this many bytes.
    pub packed_bytes: u64,
    /// Format of the file.
    pub source_format: Format,
    /// Size of the file in bytes.
    pub source_bytes: u64,
    /// SHA-256 of the file.
    pub source_sha256: Sha256,
    /// The signer, if a signature was given.
    pub signed_by: Option<SignedBy>,
    /// Keeps the image's chunks from being collected as unused. Drop it after the image version is recorded.
    pub hold: StoreHold,
}

/// Imports an image into `store`. The caller's thread calls `progress` a few times a second. Set `cancel` to stop early.
pub fn import(
    request: &ImportRequest<'_>,
    store: &ChunkStore,
    progress: &dyn Fn(ImportProgress),
    cancel: &AtomicBool,
) -> Result<Imported, ImportError> {
    let path = request.source;
    let reading = |source| ImportError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(reading)?;
    let before = file.metadata().map_err(reading)?;
    let context = Context {
        request,
        store,
        progress,
        cancel,
        source_bytes: before.len(),
    };
    let verification = verification::check(&context, &file)?;
    let hold = store.hold()?;
    let format = match request.format {
        Some(format) => format,
        None => decode::detect(&file).map_err(reading)?,
    };
    let stored = pipeline::store_chunks(&context, &file, format, &hold)?;
    if changed(&before, &file.metadata().map_err(reading)?) {
        return Err(ImportError::Changed { path: path.to_owned() });
    }
    let index = Index::new(stored.logical_size, format, verification.sha256, stored.data)?;
    context.check_cancel()?;
    let digest = store.put_index(&hold, &index)?;
    Ok(Imported {
        digest,
        logical_size: index.logical_size(),
        data_bytes: index.data_bytes(),
        data_chunks: index.data().len() as u64,
        zero_chunks: u64::from(index.chunk_count()) - index.data().len() as u64,
        new_chunks: stored.new_chunks,
        new_bytes: stored.new_bytes,
        packed_bytes: stored.packed_bytes,
        source_format: format,
        source_bytes: before.len(),
        source_sha256: verification.sha256,
        signed_by: verification.signed_by,
        hold,
    })
}

/// Whether a file was modified between the two metadata readings.
fn changed(before: &Metadata, after: &Metadata) -> bool {
    let fingerprint = |m: &Metadata| (m.len(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
    fingerprint(before) != fingerprint(after)
}

/// State shared by all steps.
struct Context<'a> {
    request: &'a ImportRequest<'a>,
    store: &'a ChunkStore,
    progress: &'a dyn Fn(ImportProgress),
    cancel: &'a AtomicBool,
    source_bytes: u64,
}

impl Context<'_> {
    fn check_cancel(&self) -> Result<(), ImportError> {
        if self.cancel.load(Ordering::Relaxed) {
            Err(ImportError::Cancelled)
        } else {
            Ok(())
        }
    }

    fn report(&self, step: ImportStep, source_bytes: u64, logical_bytes: u64) {
        (self.progress)(ImportProgress {
            step,
            source_bytes: source_bytes.min(self.source_bytes),
            source_bytes_total: self.source_bytes,
            logical_bytes,
        });
    }
}
