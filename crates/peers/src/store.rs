//! The frames that an agent keeps in memory to serve them to other agents.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rackwright_fanout::{Bits, Chunk, Kept, Shelf, memory_for_peers};
use rackwright_image::Index;
use rackwright_image::codec::MAX_FRAME_BYTES;
use tokio::sync::Notify;

use crate::frame::VerifiedFrame;

/// Verified frames of one image, within a limit of memory.
pub struct FrameStore {
    limit: u64,
    chunks: u32,
    inner: Mutex<Inner>,
    changed: Notify,
}

struct Inner {
    shelf: Shelf,
    frames: HashMap<Chunk, Arc<Vec<u8>>>,
}

impl FrameStore {
    /// An empty store for the chunks of an image. Its frames and the frames that are being sent take at most a quarter of
    /// the available memory. `at_once` frames may be sent at once, also after the store has dropped them; a store with room
    /// for the whole image drops none. The store keeps nothing if the quarter holds neither 64 frames nor the whole image.
    #[must_use]
    pub fn new(index: &Index, available_bytes: u64, at_once: usize) -> Self {
        let frame = MAX_FRAME_BYTES as u64;
        // An image has at most 2^24 chunks.
        let chunks = index.data().len() as u32;
        let part = memory_for_peers(available_bytes, frame, chunks);
        let drops_none = part >= u64::from(chunks) * frame;
        let limit = if drops_none {
            part
        } else {
            part.saturating_sub(at_once as u64 * frame)
        };
        Self {
            limit,
            chunks,
            inner: Mutex::new(Inner {
                shelf: Shelf::new(chunks, limit),
                frames: HashMap::new(),
            }),
            changed: Notify::new(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a frame if there is room for it, or if it is rarer than frames that can be dropped. `seen` returns how many
    /// peers have a chunk. Returns whether the frame is kept.
    pub fn offer(&self, frame: VerifiedFrame, seen: impl Fn(Chunk) -> u16) -> bool {
        let VerifiedFrame { chunk, mut bytes } = frame;
        let Ok(size) = u32::try_from(bytes.len()) else {
            return false;
        };
        {
            let mut inner = self.inner();
            let Kept::Yes(dropped) = inner.shelf.offer(chunk, size, seen) else {
                return false;
            };
            for old in dropped {
                inner.frames.remove(&old);
            }
            // The limit counts the bytes of frames, so unused capacity is given back.
            bytes.shrink_to_fit();
            inner.frames.entry(chunk).or_insert_with(|| Arc::new(bytes));
        }
        self.changed.notify_one();
        true
    }

    /// The frame of a chunk, if it is kept.
    #[must_use]
    pub fn get(&self, chunk: Chunk) -> Option<Arc<Vec<u8>>> {
        self.inner().frames.get(&chunk).cloned()
    }

    /// The chunks with a kept frame.
    #[must_use]
    pub fn held(&self) -> Bits {
        self.inner().shelf.held().clone()
    }

    /// Number of chunks with data in the image.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Bytes of all kept frames.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inner().shelf.bytes()
    }

    /// Limit of these bytes; 0 for an agent that has too little memory to serve other agents.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit
    }

    /// Completes after a further frame was kept.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use rackwright_image::index::CHUNK_SIZE;
    use rackwright_image::{ChunkDigest, DataChunk, Format, Sha256};

    use super::*;

    fn index(chunks: u32) -> Index {
        let data = (0..chunks).map(|number| DataChunk {
            number,
            digest: ChunkDigest::of(&number.to_le_bytes()),
        });
        let size = u64::from(chunks) * CHUNK_SIZE as u64;
        Index::new(size, Format::Raw, Sha256([0; 32]), data.collect()).unwrap()
    }

    fn frame(chunk: u32, bytes: usize) -> VerifiedFrame {
        VerifiedFrame {
            chunk: Chunk(chunk),
            bytes: vec![chunk as u8; bytes],
        }
    }

    /// Memory of which a quarter holds this number of the largest frames.
    fn available(frames: u64) -> u64 {
        frames * 4 * MAX_FRAME_BYTES as u64
    }

    #[test]
    fn a_quarter_of_the_memory_is_taken_with_what_is_sent() {
        let store = FrameStore::new(&index(100), available(64), 4);
        assert_eq!(store.limit_bytes(), 60 * MAX_FRAME_BYTES as u64);
        for chunk in 0..60 {
            assert!(store.offer(frame(chunk, MAX_FRAME_BYTES), |_| 1));
        }
        assert!(
            !store.offer(frame(60, MAX_FRAME_BYTES), |_| 1),
            "it is as common as the others"
        );
        assert_eq!((store.bytes(), store.held().count()), (store.limit_bytes(), 60));
        let rare = |chunk: Chunk| u16::from(chunk.0 < 60);
        assert!(store.offer(frame(60, MAX_FRAME_BYTES), rare));
        assert_eq!((store.bytes(), store.held().count()), (store.limit_bytes(), 60));
        let gone = (0..60).filter(|chunk| store.get(Chunk(*chunk)).is_none());
        assert_eq!(gone.count(), 1, "what is not shown is not kept");
        assert_eq!(store.get(Chunk(60)).unwrap()[..], frame(60, MAX_FRAME_BYTES).bytes);
    }

    #[test]
    fn too_little_memory_keeps_nothing() {
        for (chunks, available) in [(100, available(64) - 4), (4, available(4) - 4)] {
            let store = FrameStore::new(&index(chunks), available, 4);
            assert_eq!(store.limit_bytes(), 0);
            assert!(!store.offer(frame(0, 10), |_| 0));
            assert!(store.get(Chunk(0)).is_none() && store.held().is_empty());
        }
    }

    #[test]
    fn a_small_image_is_kept_whole_in_a_small_memory() {
        let store = FrameStore::new(&index(4), available(4), 4);
        for chunk in 0..4 {
            assert!(store.offer(frame(chunk, MAX_FRAME_BYTES), |_| 1));
        }
        assert_eq!((store.bytes(), store.held().count()), (store.limit_bytes(), 4));
    }

    #[test]
    fn a_frame_is_kept_once_and_none_beyond_the_image() {
        let store = FrameStore::new(&index(4), available(64), 4);
        assert!(store.offer(frame(1, 10), |_| 0));
        assert!(store.offer(frame(1, 10), |_| 0));
        assert_eq!(store.bytes(), 10);
        assert!(!store.offer(frame(4, 10), |_| 0));
    }
}
