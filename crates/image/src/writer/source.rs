//! Sources of indexes and chunks.

use std::fmt;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::digest::{ChunkDigest, ImageDigest};
use crate::store::{ChunkStore, StoreError};

/// An object to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// An index.
    Image(ImageDigest),
    /// A packed chunk.
    Chunk(ChunkDigest),
}

impl Object {
    /// Path below a store's base URL.
    pub fn path(&self) -> String {
        match self {
            Object::Image(digest) => format!("/images/{digest}"),
            Object::Chunk(digest) => format!("/chunks/{digest}"),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Image(digest) => write!(f, "image {digest}"),
            Object::Chunk(digest) => write!(f, "chunk {digest}"),
        }
    }
}

/// Why an object was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No source has the object.
    #[error("{0}: no source has it")]
    Missing(Object),
    /// Every source was dropped because it sent wrong content.
    #[error("{0}: no source is left; every source sent wrong data")]
    NoSource(Object),
    /// The maximum number of attempts failed.
    #[error("{object}: not fetched from {from} in {attempts} attempts: {reason}")]
    Failed {
        /// Requested object.
        object: Object,
        /// Last source tried.
        from: String,
        /// Consecutive attempts without progress.
        attempts: u32,
        /// Reason of the last failure.
        reason: String,
    },
    /// The object exceeds its maximum length.
    #[error("{object} from {from}: longer than the limit of {limit} bytes")]
    TooLong {
        /// Requested object.
        object: Object,
        /// Source of the object.
        from: String,
        /// Limit in bytes.
        limit: usize,
    },
    /// The store folder cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The caller cancelled the download.
    #[error("the download was cancelled")]
    Cancelled,
}

impl FetchError {
    /// Whether a retry may succeed.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Failed { .. } => true,
            Self::Store(error) => error.retryable(),
            _ => false,
        }
    }
}

/// A bounded buffer for fetched bytes. Its memory is reused for the next fetch.
#[derive(Debug)]
pub struct Frame {
    bytes: Vec<u8>,
    len: usize,
    limit: usize,
}

impl Frame {
    /// Creates a frame for up to `limit` bytes. Memory is allocated as needed.
    pub fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            len: 0,
            limit,
        }
    }

    /// Removes the content and keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The content.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Maximum content in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Reads once from `reader`. `Ok(0)` means the end of `reader`, or that the frame is full.
    pub fn fill_from(&mut self, reader: &mut dyn Read) -> io::Result<usize> {
        if self.len == self.bytes.len() {
            let room = (self.bytes.len() * 2).max(256 << 10).min(self.limit);
            self.bytes.resize(room, 0);
        }
        let count = reader.read(&mut self.bytes[self.len..])?;
        self.len += count;
        Ok(count)
    }
}

/// Counters of what was fetched. The threads of a download share them.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes fetched.
    pub fetched: AtomicU64,
    /// Downloads that resumed after an interruption.
    pub resumes: AtomicU32,
}

/// Counters and cancellation of a fetch.
#[derive(Debug, Clone, Copy)]
pub struct FetchControl<'a> {
    /// Set it to cancel the fetch.
    pub cancel: &'a AtomicBool,
    /// Received bytes.
    pub fetched: &'a AtomicU64,
    /// Number of resumed downloads.
    pub resumes: &'a AtomicU32,
}

impl FetchControl<'_> {
    /// Returns an error once the fetch is cancelled.
    pub fn check(&self) -> Result<(), FetchError> {
        if self.cancel.load(Ordering::Relaxed) {
            Err(FetchError::Cancelled)
        } else {
            Ok(())
        }
    }
}

/// Details of a completed fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetched {
    /// Origin of the object, for [`ChunkSource::reject`].
    pub origin: usize,
    /// Whether the object was assembled from several answers.
    pub resumed: bool,
}

/// A source of indexes and chunks. It is not trusted: the writer verifies all content.
pub trait ChunkSource: Sync {
    /// Fetches the whole `object` into `frame` and replaces the content of `frame`; never exceeds its limit.
    fn fetch(&self, object: &Object, frame: &mut Frame, control: &FetchControl<'_>) -> Result<Fetched, FetchError>;

    /// Drops `origin`, which sent wrong content. Returns whether another origin is left.
    fn reject(&self, origin: usize, reason: &dyn fmt::Display) -> bool;
}

/// Reads chunks from a store on the same machine.
#[derive(Debug, Clone)]
pub struct DirSource(pub ChunkStore);

impl ChunkSource for DirSource {
    fn fetch(&self, object: &Object, frame: &mut Frame, control: &FetchControl<'_>) -> Result<Fetched, FetchError> {
        control.check()?;
        frame.clear();
        let from = || self.0.root().display().to_string();
        let failed = |error: io::Error| FetchError::Failed {
            object: *object,
            from: from(),
            attempts: 1,
            reason: error.to_string(),
        };
        match object {
            Object::Image(digest) => {
                let bytes = self.0.index_bytes(digest)?;
                while frame.fill_from(&mut &bytes[frame.filled().len()..]).map_err(failed)? > 0 {}
                if frame.filled().len() < bytes.len() {
                    return Err(FetchError::TooLong {
                        object: *object,
                        from: from(),
                        limit: frame.limit(),
                    });
                }
            }
            Object::Chunk(digest) => {
                let (mut file, length) = self.0.open_chunk(digest)?;
                if length > frame.limit() as u64 {
                    return Err(FetchError::TooLong {
                        object: *object,
                        from: from(),
                        limit: frame.limit(),
                    });
                }
                while frame.fill_from(&mut file).map_err(failed)? > 0 {}
            }
        }
        control
            .fetched
            .fetch_add(frame.filled().len() as u64, Ordering::Relaxed);
        Ok(Fetched {
            origin: 0,
            resumed: false,
        })
    }

    fn reject(&self, _origin: usize, reason: &dyn fmt::Display) -> bool {
        tracing::warn!(store = %self.0.root().display(), %reason, "the store holds a wrong chunk");
        false
    }
}
