//! A folder of chunks and indexes.
//!
//! ```text
//! chunks/ab/<64 hex>.zst   one zstd frame, named by the BLAKE3 of its uncompressed bytes
//! images/b3-<64 hex>       an index, named by its own BLAKE3
//! tmp/                     files being written
//! lock                     see below
//! ```
//!
//! **Visible or not.** Each file is written under `tmp/`, synced, and renamed. An index is put in place only after all its
//! chunks are on disk. So an image exists completely or not at all, even after a power cut or `kill -9`. The next
//! collection removes the leftovers of an interrupted import (chunks without an index, files in `tmp/`).
//!
//! **Import against collection.** An import holds a [`StoreHold`], a shared lock on `lock`. A collection needs the
//! exclusive lock and fails with [`StoreError::Busy`] during an import. The importer keeps the hold until the caller has
//! recorded a reference to the new image, and a collection reads the references *after* it has the lock
//! ([`ChunkStore::begin_gc`]): so no image is removed between its storage and its first reference. The lock is an `flock`,
//! which the kernel releases with the process. Several processes may share a store.

mod gc;

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::codec::{DecodeError, Decoder, MAX_FRAME_BYTES};
use crate::digest::{ChunkDigest, ImageDigest};
use crate::index::{Index, IndexError, MAX_INDEX_BYTES};

pub use gc::{Gc, GcReport};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file system call failed.
    #[error("image store: cannot {action} {}: {source}", path.display())]
    Io {
        /// The failed action.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An import is adding to the store.
    #[error("image store {}: an image is being added; run the garbage collection again later", .0.display())]
    Busy(PathBuf),
    /// The store has no image of this name.
    #[error("image {0} is not in the store")]
    ImageMissing(ImageDigest),
    /// The store has no chunk of this name.
    #[error("chunk {0} is not in the store")]
    ChunkMissing(ChunkDigest),
    /// The index on disk is damaged.
    #[error("image {image} is damaged on disk ({source}): add the image again")]
    ImageDamaged {
        /// Name of the image.
        image: ImageDigest,
        /// The fault in the index.
        source: IndexError,
    },
    /// The chunk on disk is damaged.
    #[error("chunk {chunk} is damaged on disk ({source}): add an image that holds it again")]
    ChunkDamaged {
        /// Name of the chunk.
        chunk: ChunkDigest,
        /// The fault in the chunk.
        source: DecodeError,
    },
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn retryable(&self) -> bool {
        matches!(self, StoreError::Io { .. } | StoreError::Busy(_))
    }
}

/// Prevents collections while it exists. Any number may exist at once.
#[derive(Debug)]
pub struct StoreHold {
    _lock: File,
}

/// Result of storing a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutOutcome {
    /// The chunk was written.
    New,
    /// The chunk already existed.
    Known,
}

/// A folder of chunks and indexes. Cheap to clone; many threads and processes may use it at once.
#[derive(Debug, Clone)]
pub struct ChunkStore {
    root: PathBuf,
}

impl ChunkStore {
    /// Opens the store in `root` and creates missing folders.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let store = Self { root: root.into() };
        for folder in ["images", "tmp", "chunks"] {
            make_dir(&store.root.join(folder))?;
        }
        for byte in 0..=255u8 {
            make_dir(&store.root.join(format!("chunks/{byte:02x}")))?;
        }
        for folder in ["chunks", "."] {
            sync_dir(&store.root.join(folder))?;
        }
        store.lock_file()?;
        Ok(store)
    }

    /// The store's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a chunk, whether or not the chunk exists.
    pub fn chunk_path(&self, digest: &ChunkDigest) -> PathBuf {
        self.root.join(format!("chunks/{:02x}/{digest}.zst", digest.0[0]))
    }

    /// The path of an index, whether or not the index exists.
    pub fn image_path(&self, digest: &ImageDigest) -> PathBuf {
        self.root.join(format!("images/{digest}"))
    }

    fn lock_file(&self) -> Result<File, StoreError> {
        let path = self.root.join("lock");
        let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        opened.map_err(failed("open", &path))
    }

    /// Prevents collections. Waits for a running collection, which takes as long as reading the folder.
    pub fn hold(&self) -> Result<StoreHold, StoreError> {
        let lock = self.lock_file()?;
        lock.lock_shared().map_err(failed("lock", &self.root.join("lock")))?;
        Ok(StoreHold { _lock: lock })
    }

    /// Starts a collection: read the references after this call, then call [`Gc::sweep`]. Returns [`StoreError::Busy`]
    /// while the store is held.
    pub fn begin_gc(&self) -> Result<Gc<'_>, StoreError> {
        let lock = self.lock_file()?;
        match lock.try_lock() {
            Ok(()) => Ok(Gc::new(self, lock)),
            Err(TryLockError::WouldBlock) => Err(StoreError::Busy(self.root.clone())),
            Err(TryLockError::Error(source)) => Err(failed("lock", &self.root.join("lock"))(source)),
        }
    }

    /// Removes every image that is not in `referenced`, and every chunk that no remaining image names. If references can
    /// change concurrently, use [`Self::begin_gc`] and read them under its lock.
    pub fn gc(&self, referenced: &HashSet<ImageDigest>) -> Result<GcReport, StoreError> {
        self.begin_gc()?.sweep(referenced)
    }

    /// Stores a packed chunk and replaces an existing file. The caller holds the store and has verified that `frame`
    /// decodes to `digest`. The file's name is durable only after [`Self::put_index`].
    pub(crate) fn put_chunk(&self, _hold: &StoreHold, digest: &ChunkDigest, frame: &[u8]) -> Result<(), StoreError> {
        self.write_file(&self.chunk_path(digest), frame)
    }

    /// Makes an image visible. The caller holds the store and has stored every chunk of `index`.
    pub(crate) fn put_index(&self, _hold: &StoreHold, index: &Index) -> Result<ImageDigest, StoreError> {
        let mut folders: Vec<u8> = index.data().iter().map(|chunk| chunk.digest.0[0]).collect();
        folders.sort_unstable();
        folders.dedup();
        for byte in folders {
            sync_dir(&self.root.join(format!("chunks/{byte:02x}")))?;
        }
        let bytes = index.encode();
        let digest = ImageDigest::of(&bytes);
        self.write_file(&self.image_path(&digest), &bytes)?;
        sync_dir(&self.root.join("images"))?;
        Ok(digest)
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = self.root.join(format!("tmp/{}-{number}", std::process::id()));
        let written = File::create(&temporary).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_data()
        });
        let placed = written.and_then(|()| fs::rename(&temporary, path));
        placed.map_err(|source| {
            let _ = fs::remove_file(&temporary);
            failed("write", path)(source)
        })
    }

    /// Opens a packed chunk. Also returns its length in bytes.
    pub fn open_chunk(&self, digest: &ChunkDigest) -> Result<(File, u64), StoreError> {
        let path = self.chunk_path(digest);
        let file = File::open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => StoreError::ChunkMissing(*digest),
            _ => failed("open", &path)(source),
        })?;
        let length = file.metadata().map_err(failed("read", &path))?.len();
        Ok((file, length))
    }

    /// Reads a packed chunk into `frame`, without verifying it.
    pub fn read_frame(&self, digest: &ChunkDigest, frame: &mut Vec<u8>) -> Result<(), StoreError> {
        let (file, _) = self.open_chunk(digest)?;
        frame.clear();
        let read = file.take(MAX_FRAME_BYTES as u64 + 1).read_to_end(frame);
        read.map(|_| ()).map_err(failed("read", &self.chunk_path(digest)))
    }

    /// Reads, unpacks and verifies a chunk. `chunk` must have the length of the chunk.
    pub fn read_chunk(
        &self,
        digest: &ChunkDigest,
        decoder: &mut Decoder,
        frame: &mut Vec<u8>,
        chunk: &mut [u8],
    ) -> Result<(), StoreError> {
        self.read_frame(digest, frame)?;
        let decoded = decoder.decode(frame, digest, chunk);
        decoded.map_err(|source| StoreError::ChunkDamaged { chunk: *digest, source })
    }

    /// Returns the bytes of an index, verified against its name.
    pub fn index_bytes(&self, digest: &ImageDigest) -> Result<Vec<u8>, StoreError> {
        let path = self.image_path(digest);
        let file = File::open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => StoreError::ImageMissing(*digest),
            _ => failed("open", &path)(source),
        })?;
        let mut bytes = Vec::new();
        file.take(MAX_INDEX_BYTES as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(failed("read", &path))?;
        let found = ImageDigest::of(&bytes);
        if found != *digest {
            let source = IndexError::Digest {
                expected: *digest,
                found,
            };
            return Err(StoreError::ImageDamaged { image: *digest, source });
        }
        Ok(bytes)
    }

    /// Returns an index, verified and parsed.
    pub fn index(&self, digest: &ImageDigest) -> Result<Index, StoreError> {
        let bytes = self.index_bytes(digest)?;
        Index::parse(&bytes).map_err(|source| StoreError::ImageDamaged { image: *digest, source })
    }

    /// All images in the store, in no particular order.
    pub fn images(&self) -> Result<Vec<ImageDigest>, StoreError> {
        let names = file_names(&self.root.join("images"))?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Bytes of the image's chunks on disk, each counted once. Other images may share them.
    pub fn stored_bytes(&self, digest: &ImageDigest) -> Result<u64, StoreError> {
        let index = self.index(digest)?;
        let chunks: HashSet<ChunkDigest> = index.data().iter().map(|chunk| chunk.digest).collect();
        let mut total = 0;
        for chunk in chunks {
            total += self.open_chunk(&chunk)?.1;
        }
        Ok(total)
    }

    /// Reads and verifies every chunk of an image. The error names the first missing or damaged chunk.
    pub fn verify(&self, digest: &ImageDigest) -> Result<(), StoreError> {
        let index = self.index(digest)?;
        let mut decoder = Decoder::new().map_err(failed("decode", &self.root))?;
        let mut frame = Vec::new();
        let mut chunk = vec![0; crate::index::CHUNK_SIZE];
        for entry in index.data() {
            let length = index.chunk_len(entry.number);
            self.read_chunk(&entry.digest, &mut decoder, &mut frame, &mut chunk[..length])?;
        }
        Ok(())
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}

fn make_dir(path: &Path) -> Result<(), StoreError> {
    fs::create_dir_all(path).map_err(failed("make folder", path))
}

fn sync_dir(path: &Path) -> Result<(), StoreError> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(failed("sync folder", path))
}

/// Names of the files in a folder. Names that are not UTF-8 do not belong to the store and are skipped.
fn file_names(path: &Path) -> Result<Vec<String>, StoreError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(failed("read folder", path))? {
        let entry = entry.map_err(failed("read folder", path))?;
        if let Ok(name) = entry.file_name().into_string() {
            names.push(name);
        }
    }
    Ok(names)
}
