//! Taking an image in: from a file in one of five formats to chunks and an index.
//!
//! The file is read twice through one open handle. First its SHA-256 is compared and its signature verified; a file
//! that fails is never handed to a decoder. Then it is unpacked, cut, and stored. A file that changed in between is
//! refused. Until the index is in place, nothing of the image is visible in the store.

mod authentic;
mod decode;
mod error;
mod pipeline;

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::digest::{ImageDigest, Sha256};
use crate::format::Format;
use crate::index::Index;
use crate::store::{ChunkStore, StoreHold};

pub use authentic::{SignaturePolicy, SignedBy};
pub use error::ImportError;

/// What to take in, and on which terms.
#[derive(Debug, Clone)]
pub struct ImportRequest<'a> {
    /// The file.
    pub source: &'a Path,
    /// Its format; told by its first bytes when not given.
    pub format: Option<Format>,
    /// SHA-256 the file must have.
    pub expected_sha256: Option<Sha256>,
    /// The text of a minisign signature file over the file. When given it must verify, whatever the policy.
    pub signature: Option<&'a str>,
    /// Whose signatures count, and whether one is needed.
    pub policy: &'a SignaturePolicy,
    /// What a hostile file may cost at most.
    pub limits: ImportLimits,
    /// zstd level of the stored chunks, 1 to 19.
    pub level: i32,
    /// Threads that hash and pack; 0: one per core, eight at most.
    pub threads: usize,
    /// Asked before each new chunk whether the disk has room for it.
    pub room: Room<'a>,
}

/// Tells whether the store's disk has room for so many more bytes. An error is a sentence that says why not.
#[derive(Clone, Copy)]
pub struct Room<'a>(pub &'a (dyn Fn(u64) -> Result<(), String> + Sync));

impl Room<'_> {
    /// Room without a bound.
    pub const UNBOUNDED: Self = Self(&|_| Ok(()));
}

impl std::fmt::Debug for Room<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Room")
    }
}

/// zstd level of chunks unless another one is asked for. An image is packed once and fetched and unpacked a thousand times:
/// of a Debian's files 9 is smaller than lower levels and unpacks no slower; 12 and more are smaller by less than a hundredth.
pub const LEVEL: i32 = 9;

impl<'a> ImportRequest<'a> {
    /// Takes `source` with the usual level, the default limits, and no digest or signature given.
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
            room: Room::UNBOUNDED,
        }
    }
}

/// Bounds on what is unpacked: a file of some KiB can claim to be a disk of many TiB.
#[derive(Debug, Clone, Copy)]
pub struct ImportLimits {
    /// Longest disk, bytes.
    pub max_logical_bytes: u64,
    /// Most bytes added to the store.
    pub max_new_bytes: u64,
    /// Most memory an xz or zstd decoder may take, bytes; rounded down to a power of two for zstd.
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

/// What an import is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportStep {
    /// Reading the file for its digest and signature.
    Verifying,
    /// Unpacking, cutting, packing, storing.
    Storing,
}

/// How far an import is.
#[derive(Debug, Clone, Copy)]
pub struct ImportProgress {
    /// What is going on.
    pub step: ImportStep,
    /// Bytes of the file read in this step.
    pub source_bytes: u64,
    /// Bytes of the file.
    pub source_bytes_total: u64,
    /// Bytes of disk unpacked so far.
    pub logical_bytes: u64,
}

/// An image that is now in the store.
#[derive(Debug)]
pub struct Imported {
    /// Its name.
    pub digest: ImageDigest,
    /// Bytes of the disk.
    pub logical_size: u64,
    /// Bytes of the disk that lie in chunks with data.
    pub data_bytes: u64,
    /// Chunks with data, repetitions counted.
    pub data_chunks: u64,
    /// Chunks that are all zero and not stored.
    pub zero_chunks: u64,
    /// Chunks that were not in the store before.
    pub new_chunks: u64,
    /// Packed bytes of these.
    pub new_bytes: u64,
    /// Packed bytes of all data chunks, repetitions counted: what a machine fetches.
    pub packed_bytes: u64,
    /// Format of the file.
    pub source_format: Format,
    /// Bytes of the file.
    pub source_bytes: u64,
    /// SHA-256 of the file.
    pub source_sha256: Sha256,
    /// Who signed it, when a signature was given.
    pub signed_by: Option<SignedBy>,
    /// Keeps the image from being collected: drop it after the image's name is recorded.
    pub hold: StoreHold,
}

/// Takes an image into `store`. `progress` is called a few times a second, from this thread; set `cancel` to end early.
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
    let authentic = authentic::check(&context, &file)?;
    let hold = store.hold()?;
    let format = match request.format {
        Some(format) => format,
        None => decode::detect(&file).map_err(reading)?,
    };
    let stored = pipeline::store_chunks(&context, &file, format, &hold)?;
    if changed(&before, &file.metadata().map_err(reading)?) {
        return Err(ImportError::Changed { path: path.to_owned() });
    }
    let index = Index::new(stored.logical_size, format, authentic.sha256, stored.data)?;
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
        source_sha256: authentic.sha256,
        signed_by: authentic.signed_by,
        hold,
    })
}

/// Whether a file was written to between two looks at it.
fn changed(before: &Metadata, after: &Metadata) -> bool {
    let look = |m: &Metadata| (m.len(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
    look(before) != look(after)
}

/// What every step needs.
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
