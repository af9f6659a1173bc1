//! What can go wrong while an image is taken in.

use std::io;
use std::path::PathBuf;

use crate::digest::Sha256;
use crate::format::Format;
use crate::index::IndexError;
use crate::store::StoreError;

/// Why an image was not taken in.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Somebody wrote to the file while it was read.
    #[error("{} changed while it was read: give it again when it is complete", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Another file than was meant.
    #[error("the file's SHA-256 is {found} in place of {expected}: it is damaged or another file")]
    Sha256 {
        /// What was asked for.
        expected: Sha256,
        /// What it is.
        found: Sha256,
    },
    /// The policy asks for a signature.
    #[error("this site takes only signed images: give a minisign signature by one of its trusted keys")]
    SignatureMissing,
    /// The signature does not hold.
    #[error("the signature is not valid: {0}")]
    SignatureInvalid(String),
    /// A key of the policy cannot be read.
    #[error("trusted key number {number} of the signature policy is not a minisign public key: {reason}")]
    TrustedKey {
        /// Which, from one.
        number: usize,
        /// Why not.
        reason: String,
    },
    /// The file does not unpack.
    #[error("the file does not unpack as {format} after {logical_bytes} bytes of disk: {source}")]
    Unpack {
        /// What it was taken for.
        format: Format,
        /// How far it went.
        logical_bytes: u64,
        /// What is wrong.
        source: io::Error,
    },
    /// A packed file in a packed file.
    #[error("what the {outer} file holds is itself {inner}: unpack it once first")]
    Nested {
        /// The file's format.
        outer: Format,
        /// What is inside.
        inner: Format,
    },
    /// Larger than the limit.
    #[error("the image is longer than the limit of {limit} bytes of disk")]
    TooLong {
        /// The limit, bytes.
        limit: u64,
    },
    /// More data than the limit.
    #[error("the image would add more than the limit of {limit} bytes to the store")]
    TooMuchData {
        /// The limit, bytes.
        limit: u64,
    },
    /// The store's disk has to keep some room.
    #[error("{0}")]
    NoRoom(String),
    /// No disk has this size.
    #[error("{0}: is it the image of a whole disk, and complete?")]
    Index(#[from] IndexError),
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// zstd or a thread could not be set up, or a chunk could not be packed.
    #[error("cannot pack chunks: {0}")]
    Pack(#[source] io::Error),
    /// Ended on request.
    #[error("the import was cancelled")]
    Cancelled,
}

impl ImportError {
    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Read { .. } => "source-unreadable",
            Self::Changed { .. } => "source-changed",
            Self::Sha256 { .. } => "digest-mismatch",
            Self::SignatureMissing => "signature-missing",
            Self::SignatureInvalid(_) => "signature-invalid",
            Self::TrustedKey { .. } => "policy-invalid",
            Self::Unpack { .. } | Self::Nested { .. } | Self::Index(_) => "source-invalid",
            Self::TooLong { .. } | Self::TooMuchData { .. } => "too-large",
            Self::NoRoom(_) => "no-room",
            Self::Store(_) => "store-failed",
            Self::Pack(_) => "internal",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the same file may be taken if tried again.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Changed { .. } | Self::NoRoom(_) | Self::Pack(_) => true,
            Self::Store(error) => error.retryable(),
            _ => false,
        }
    }
}
