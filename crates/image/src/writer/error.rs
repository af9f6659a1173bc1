//! Errors of writing an image, with codes for programs.

use std::io;
use std::path::PathBuf;

use crate::codec::DecodeError;
use crate::digest::{ChunkDigest, ImageDigest};
use crate::index::IndexError;

use super::source::FetchError;

/// Why an image is not on the drive. After each of these errors the drive has no partition table, unless nothing was
/// written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The drive does not exist, or has disappeared.
    #[error("drive {}: not found: {source}", path.display())]
    DiskMissing {
        /// Path of the drive.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The drive exists and cannot be opened.
    #[error("drive {}: it exists and cannot be opened: {source}; check the drive and its cable, or replace it", path.display())]
    DiskNotOpened {
        /// Path of the drive.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The target is a folder, a terminal, or another special file.
    #[error("{} is neither a block device nor a regular file", path.display())]
    NotADisk {
        /// Path of the target.
        path: PathBuf,
    },
    /// The drive is mounted, or part of an array or a mapping.
    #[error("drive {}: in use (mounted, or part of an array or a mapping): release it first", path.display())]
    DiskBusy {
        /// Path of the drive.
        path: PathBuf,
    },
    /// The image is larger than the drive.
    #[error("drive {}: the drive has {size} bytes, and the image needs {needed}", path.display())]
    DiskTooSmall {
        /// Path of the drive.
        path: PathBuf,
        /// Size of the drive in bytes.
        size: u64,
        /// Size of the image in bytes.
        needed: u64,
    },
    /// The received index is invalid, or not the requested one.
    #[error("image {image}: {source}")]
    Index {
        /// Name of the image.
        image: ImageDigest,
        /// The fault in the index.
        source: IndexError,
    },
    /// Every source sent wrong bytes for this chunk. They were not written.
    #[error("chunk {chunk} (number {number}): {source}; no source has valid data for this chunk")]
    Chunk {
        /// Name of the chunk.
        chunk: ChunkDigest,
        /// Position of the chunk.
        number: u32,
        /// The fault in the bytes.
        source: DecodeError,
    },
    /// An index or a chunk could not be fetched.
    #[error(transparent)]
    Download(#[from] FetchError),
    /// A download with other agents ended, and chunks are missing.
    #[error("the download ended without {missing} of the image's {chunks} chunks with data")]
    Incomplete {
        /// Number of chunks that did not come.
        missing: usize,
        /// Number of chunks with data.
        chunks: usize,
    },
    /// The drive refuses a write.
    #[error("drive {}: writing near byte {offset}: {source}", path.display())]
    Write {
        /// Path of the drive.
        path: PathBuf,
        /// Approximate offset in bytes: with several writes in flight, the offset of the last started write.
        offset: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The written data did not reach the medium.
    #[error("drive {}: flushing the written data: {source}", path.display())]
    Flush {
        /// Path of the drive.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The drive refuses a read.
    #[error("drive {}: reading back at byte {offset}: {source}", path.display())]
    Read {
        /// Path of the drive.
        path: PathBuf,
        /// Offset in bytes.
        offset: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The drive returns other bytes than were written.
    #[error("drive {}: from byte {offset}, the data read back differ from the written data: replace the drive", path.display())]
    ReadBack {
        /// Path of the drive.
        path: PathBuf,
        /// Offset of the chunk that differs, in bytes.
        offset: u64,
    },
    /// The budget is too small for a single buffer.
    #[error("the memory budget of {budget} bytes is too small: this image needs at least {needed}")]
    MemoryBudget {
        /// Allowed memory in bytes.
        budget: u64,
        /// Required memory in bytes.
        needed: u64,
    },
    /// Memory, a thread or the decoder could not be set up.
    #[error("cannot set up {what}: {source}")]
    Setup {
        /// The missing resource.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The caller cancelled the write.
    #[error("writing the image was cancelled")]
    Cancelled,
}

impl WriteError {
    /// A stable code, the same as `JobError.code` in the agent's API.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DiskMissing { .. } | Self::NotADisk { .. } => "disk-missing",
            Self::DiskNotOpened { .. } => "disk-open-failed",
            Self::DiskBusy { .. } => "disk-busy",
            Self::DiskTooSmall { .. } => "disk-too-small",
            Self::Index {
                source: IndexError::Digest { .. },
                ..
            }
            | Self::Chunk { .. } => "digest-mismatch",
            Self::Index { .. } => "image-invalid",
            Self::Download(FetchError::Cancelled) | Self::Cancelled => "cancelled",
            Self::Download(_) | Self::Incomplete { .. } => "download-failed",
            Self::Write { .. } | Self::Flush { .. } => "write-failed",
            Self::Read { .. } => "read-failed",
            Self::ReadBack { .. } => "verify-failed",
            Self::MemoryBudget { .. } => "memory-budget",
            Self::Setup { .. } => "internal",
        }
    }

    /// Whether a retry may succeed.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Download(error) => error.retryable(),
            Self::DiskBusy { .. } | Self::Setup { .. } | Self::Incomplete { .. } => true,
            _ => false,
        }
    }
}
