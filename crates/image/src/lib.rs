//! Operating system images: imported once, stored as verified chunks, written to drives.
//!
//! An image is cut into chunks of 4 MiB. Chunks that hold only zeros are not stored; every other chunk is one zstd
//! frame, named by the BLAKE3 digest of its *uncompressed* bytes. An [`Index`] lists the chunks; the digest of the
//! index's canonical bytes names the image version. `docs/image-format.md` describes the bytes.
//!
//! - [`import`] imports raw, zstd, gzip, xz and qcow2 files into a [`ChunkStore`].
//! - [`serve`] decides on the answer to an HTTP request for an object in the store.
//! - [`writer`] fetches an image and writes it to a drive in parallel. It verifies every chunk before writing it and stays
//!   within a memory budget.
//!
//! The crate uses no async runtime and no database. Only [`mod@direct`] contains `unsafe` code.
#![deny(unsafe_code)]

pub mod codec;
pub mod digest;
// Memory shared with the kernel, io_uring and ioctls. Each block states why it is sound.
#[allow(unsafe_code)]
pub(crate) mod direct;
pub mod format;
#[doc(hidden)]
pub mod fuzzing;
pub mod import;
pub mod index;
mod qcow2;
pub mod serve;
pub mod store;
pub mod writer;

pub use digest::{ChunkDigest, DigestParseError, ImageDigest, Sha256};
pub use format::Format;
pub use import::{
    ImportError, ImportLimits, ImportProgress, ImportRequest, Imported, LEVEL, SignaturePolicy, SpaceCheck, import,
};
pub use index::{CHUNK_SIZE, DataChunk, Index, IndexError};
pub use store::{ChunkStore, GcReport, StoreError};
pub use writer::{Options, Progress, WriteError, Written, ZeroPolicy, write_image};
