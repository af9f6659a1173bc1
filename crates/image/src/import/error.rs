//! Errors of an import.

use std::io;
use std::path::PathBuf;

use crate::digest::Sha256;
use crate::format::Format;
use crate::index::IndexError;
use crate::store::StoreError;

/// Why an image was not imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file was modified during the import.
    #[error("{} changed during the import: import the file again when it is complete", path.display())]
    Changed {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is not the intended one.
    #[error("the file's SHA-256 is {found}, expected {expected}: the file is damaged or is another file")]
    Sha256 {
        /// Requested digest.
        expected: Sha256,
        /// Digest of the file.
        found: Sha256,
    },
    /// The policy requires a signature.
    #[error("this site accepts only signed images: add a minisign signature by one of the site's trusted keys")]
    SignatureMissing,
    /// The signature is invalid, or by an untrusted key.
    #[error("the signature is not valid: {0}")]
    SignatureInvalid(String),
    /// A trusted key of the policy is malformed.
    #[error("trusted key number {number} of the signature policy is not a minisign public key: {reason}")]
    TrustedKey {
        /// Number of the key, from 1.
        number: usize,
        /// Reason of the failure.
        reason: String,
    },
    /// The file cannot be unpacked.
    #[error("the file cannot be unpacked as {format}: error after {logical_bytes} bytes of disk: {source}")]
    Unpack {
        /// Assumed format.
        format: Format,
        /// Bytes of disk unpacked before the error.
        logical_bytes: u64,
        /// The decoder's error.
        source: io::Error,
    },
    /// The file contains another packed file.
    #[error("the {outer} file contains a file of format {inner}: unpack the file once before the import")]
    Nested {
        /// Format of the file.
        outer: Format,
        /// Format of the content.
        inner: Format,
    },
    /// The disk exceeds the limit.
    #[error("the image is longer than the limit of {limit} bytes of disk")]
    TooLong {
        /// Limit in bytes.
        limit: u64,
    },
    /// The new data exceeds the limit.
    #[error("the image would add more than the limit of {limit} bytes to the store")]
    TooMuchData {
        /// Limit in bytes.
        limit: u64,
    },
    /// The store's disk would be too full. The text states the reason.
    #[error("{0}")]
    NoRoom(String),
    /// The image's size is not valid for an index.
    #[error("{0}: check that the file is the complete image of a whole disk")]
    Index(#[from] IndexError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// zstd or a thread could not be set up, or a chunk could not be packed.
    #[error("cannot pack chunks: {0}")]
    Pack(#[source] io::Error),
    /// The caller cancelled the import.
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

    /// Whether a retry with the same file may succeed.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Changed { .. } | Self::NoRoom(_) | Self::Pack(_) => true,
            Self::Store(error) => error.retryable(),
            _ => false,
        }
    }
}
