//! Where indexes and chunks come from.

use std::fmt;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::digest::{ChunkDigest, ImageDigest};
use crate::store::{ChunkStore, StoreError};

/// What is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// An index.
    Image(ImageDigest),
    /// A packed chunk.
    Chunk(ChunkDigest),
}

impl Object {
    /// Its path below a store's base URL.
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

/// Why something was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No source has it.
    #[error("{0}: no source has it")]
    Missing(Object),
    /// Every source was dropped because of wrong content.
    #[error("{0}: no source is left; each was dropped because it sent wrong data")]
    NoSource(Object),
    /// Tried as often as allowed.
    #[error("{object}: not fetched from {from} in {attempts} attempts: {reason}")]
    Failed {
        /// What.
        object: Object,
        /// The source tried last.
        from: String,
        /// How often in a row without getting ahead.
        attempts: u32,
        /// What went wrong the last time.
        reason: String,
    },
    /// Longer than what it can be.
    #[error("{object} from {from}: longer than {limit} bytes, which is the most it may have")]
    TooLong {
        /// What.
        object: Object,
        /// The source.
        from: String,
        /// The bound, bytes.
        limit: usize,
    },
    /// The folder cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Ended on request.
    #[error("the download was cancelled")]
    Cancelled,
}

impl FetchError {
    /// Whether the same again may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Failed { .. } => true,
            Self::Store(error) => error.retryable(),
            _ => false,
        }
    }
}

/// Bytes being fetched: bounded, kept between fetches.
#[derive(Debug)]
pub struct Frame {
    bytes: Vec<u8>,
    len: usize,
    limit: usize,
}

impl Frame {
    /// Room for up to `limit` bytes, taken as it is needed.
    pub fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            len: 0,
            limit,
        }
    }

    /// Forgets the content, not the room.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The content.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The most it can hold, bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Reads once from `reader`; `Ok(0)` means its end, or that the frame is full.
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

/// What a fetch reports to and is ended by.
#[derive(Debug, Clone, Copy)]
pub struct FetchControl<'a> {
    /// Set to end.
    pub cancel: &'a AtomicBool,
    /// Bytes received.
    pub fetched: &'a AtomicU64,
    /// Downloads that went on where they had broken off.
    pub resumes: &'a AtomicU32,
}

impl FetchControl<'_> {
    /// An error once the fetch shall end.
    pub fn check(&self) -> Result<(), FetchError> {
        if self.cancel.load(Ordering::Relaxed) {
            Err(FetchError::Cancelled)
        } else {
            Ok(())
        }
    }
}

/// How something was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetched {
    /// Which of the source's origins gave it, for [`ChunkSource::reject`].
    pub origin: usize,
    /// Whether it was put together from more than one answer.
    pub resumed: bool,
}

/// Where indexes and chunks come from. What it gives is not trusted: the writer verifies it.
pub trait ChunkSource: Sync {
    /// Fetches the whole of `object` into `frame`, replacing its content, and never more than its limit.
    fn fetch(&self, object: &Object, frame: &mut Frame, control: &FetchControl<'_>) -> Result<Fetched, FetchError>;

    /// What `origin` gave was wrong: it is not asked again. Returns whether any other is left.
    fn reject(&self, origin: usize, reason: &dyn fmt::Display) -> bool;
}

/// Chunks from a store on the same machine.
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
