//! What can go wrong while an image is written, with codes that programs may rely on.

use std::io;
use std::path::PathBuf;

use crate::codec::DecodeError;
use crate::digest::{ChunkDigest, ImageDigest};
use crate::index::IndexError;

use super::source::FetchError;

/// Why an image is not on the drive. After any of these the drive has no partition table, unless nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// No such drive, or it has gone.
    #[error("drive {}: not there: {source}", path.display())]
    DiskMissing {
        /// The drive.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// A folder, a terminal, ...
    #[error("{} is neither a block device nor a regular file", path.display())]
    NotADisk {
        /// The path.
        path: PathBuf,
    },
    /// Mounted, or part of an array.
    #[error("drive {}: in use (mounted, or part of an array or a mapping): release it first", path.display())]
    DiskBusy {
        /// The drive.
        path: PathBuf,
    },
    /// The image does not fit.
    #[error("drive {}: {size} bytes are too few for the image's {needed}", path.display())]
    DiskTooSmall {
        /// The drive.
        path: PathBuf,
        /// Its size, bytes.
        size: u64,
        /// The image's size, bytes.
        needed: u64,
    },
    /// The index is not the one asked for, or none at all.
    #[error("image {image}: {source}")]
    Index {
        /// The image.
        image: ImageDigest,
        /// What is wrong.
        source: IndexError,
    },
    /// Every source gave other bytes than the index asks for. They were not written.
    #[error("chunk {chunk} (number {number}): {source}; no source is left that has it right")]
    Chunk {
        /// The chunk.
        chunk: ChunkDigest,
        /// Its place.
        number: u32,
        /// What is wrong.
        source: DecodeError,
    },
    /// Index or chunk could not be fetched.
    #[error(transparent)]
    Download(#[from] FetchError),
    /// The drive refuses a write.
    #[error("drive {}: writing near byte {offset}: {source}", path.display())]
    Write {
        /// The drive.
        path: PathBuf,
        /// Where, about: with several writes in flight it is the last one begun.
        offset: u64,
        /// What the kernel says.
        source: io::Error,
    },
    /// What was written did not get to the medium.
    #[error("drive {}: flushing what was written: {source}", path.display())]
    Flush {
        /// The drive.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The drive refuses a read.
    #[error("drive {}: reading back at byte {offset}: {source}", path.display())]
    Read {
        /// The drive.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What the kernel says.
        source: io::Error,
    },
    /// The drive gives back other bytes than were written.
    #[error("drive {}: byte {offset} and on reads back other data than was written: replace the drive", path.display())]
    ReadBack {
        /// The drive.
        path: PathBuf,
        /// Where the chunk begins that differs.
        offset: u64,
    },
    /// Not even one buffer fits.
    #[error("the memory budget of {budget} bytes is too small: this image needs {needed} at least")]
    MemoryBudget {
        /// What was allowed, bytes.
        budget: u64,
        /// What is needed, bytes.
        needed: u64,
    },
    /// Memory, threads or the decoder.
    #[error("cannot set up {what}: {source}")]
    Setup {
        /// What was wanted.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// Ended on request.
    #[error("writing the image was cancelled")]
    Cancelled,
}

impl WriteError {
    /// A stable code, as in `JobError.code` of the agent's API.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DiskMissing { .. } | Self::NotADisk { .. } => "disk-missing",
            Self::DiskBusy { .. } => "disk-busy",
            Self::DiskTooSmall { .. } => "disk-too-small",
            Self::Index {
                source: IndexError::Digest { .. },
                ..
            }
            | Self::Chunk { .. } => "digest-mismatch",
            Self::Index { .. } => "image-invalid",
            Self::Download(FetchError::Cancelled) | Self::Cancelled => "cancelled",
            Self::Download(_) => "download-failed",
            Self::Write { .. } | Self::Flush { .. } => "write-failed",
            Self::Read { .. } => "read-failed",
            Self::ReadBack { .. } => "verify-failed",
            Self::MemoryBudget { .. } => "memory-budget",
            Self::Setup { .. } => "internal",
        }
    }

    /// Whether the same again may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Download(error) => error.retryable(),
            Self::DiskBusy { .. } | Self::Setup { .. } => true,
            _ => false,
        }
    }
}
