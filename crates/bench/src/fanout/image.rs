//! The image of a run. Each of its chunks begins with noise and ends with zeros, so that its frame is about as long as the
//! noise: the links of a computer with few cores carry frames at a rate at which it can also unpack and hash the chunks.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rackwright_image::{CHUNK_SIZE, ChunkStore, ImageDigest, ImportRequest, SignaturePolicy, import};
use serde::{Deserialize, Serialize};

/// What an image contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    pub chunks: u32,
    /// Bytes of noise at the beginning of each chunk.
    pub noise: u32,
}

impl Content {
    pub fn bytes(&self) -> u64 {
        u64::from(self.chunks) * CHUNK_SIZE as u64
    }

    /// The noise of a chunk.
    pub fn noise_of(&self, chunk: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.noise as usize];
        let mut hasher = blake3::Hasher::new();
        hasher.update(&chunk.to_le_bytes());
        hasher.finalize_xof().fill(&mut bytes);
        bytes
    }
}

/// An image in a store.
#[derive(Debug)]
pub struct Image {
    pub content: Content,
    pub digest: ImageDigest,
    pub store: ChunkStore,
    /// Bytes of all frames.
    pub frame_bytes: u64,
    /// The noise of all chunks in one file, for programs that know no frames.
    pub noise: PathBuf,
}

impl Image {
    /// Makes the image in a folder that does not exist yet.
    pub fn new(folder: &Path, content: Content) -> io::Result<Arc<Self>> {
        fs::create_dir_all(folder)?;
        let (raw, noise) = (folder.join("raw"), folder.join("noise"));
        let (disk, only_noise) = (File::create(&raw)?, File::create(&noise)?);
        disk.set_len(content.bytes())?;
        for chunk in 0..content.chunks {
            let bytes = content.noise_of(chunk);
            disk.write_all_at(&bytes, u64::from(chunk) * CHUNK_SIZE as u64)?;
            only_noise.write_all_at(&bytes, u64::from(chunk) * u64::from(content.noise))?;
        }
        let store = ChunkStore::open(folder.join("store")).map_err(io::Error::other)?;
        let policy = SignaturePolicy::default();
        let mut request = ImportRequest::new(&raw, &policy);
        // Noise does not become shorter.
        request.level = 1;
        let imported = import(&request, &store, &|_| {}, &AtomicBool::new(false)).map_err(io::Error::other)?;
        fs::remove_file(&raw)?;
        let index = store.index(&imported.digest).map_err(io::Error::other)?;
        let lengths = index
            .data()
            .iter()
            .map(|chunk| fs::metadata(store.chunk_path(&chunk.digest)));
        let lengths = lengths.collect::<io::Result<Vec<_>>>()?;
        Ok(Arc::new(Self {
            content,
            digest: imported.digest,
            frame_bytes: lengths.iter().map(fs::Metadata::len).sum(),
            store,
            noise,
        }))
    }
}
