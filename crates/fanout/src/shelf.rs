//! Which chunks an agent keeps in memory for its peers.

use crate::bits::Bits;
use crate::units::Chunk;

/// An agent with memory for fewer chunks, and not for the whole image, serves nothing.
const LEAST_CHUNKS: u32 = 64;
/// Part of the available memory that chunks may take.
const PART_OF_MEMORY: u64 = 4;

/// Bytes that an agent may keep for its peers: a quarter of the available memory. Nothing, if this holds neither 64 of the
/// largest frames nor all `chunks` of the image.
#[must_use]
pub fn memory_for_peers(available_bytes: u64, largest_frame_bytes: u64, chunks: u32) -> u64 {
    let part = available_bytes / PART_OF_MEMORY;
    if part < largest_frame_bytes.saturating_mul(chunks.min(LEAST_CHUNKS).into()) {
        0
    } else {
        part
    }
}

/// The chunks in memory: only these are shown to peers.
#[derive(Debug, Clone)]
pub struct Shelf {
    held: Bits,
    sizes: Vec<u32>,
    bytes: u64,
    limit: u64,
}

/// The decision on a chunk that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// The chunk is kept, and these chunks are dropped to make room for it.
    Yes(Vec<Chunk>),
    /// The chunk is not kept: it is at least as common as every chunk in memory, or larger than the limit.
    No,
}

impl Shelf {
    /// An empty shelf for the chunks of an image.
    #[must_use]
    pub fn new(chunks: u32, limit_bytes: u64) -> Self {
        Self {
            held: Bits::new(chunks),
            sizes: vec![0; chunks as usize],
            bytes: 0,
            limit: limit_bytes,
        }
    }

    /// The chunks in memory.
    #[must_use]
    pub fn held(&self) -> &Bits {
        &self.held
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A chunk came with a frame of this size. `seen` returns the number of peers with a chunk: the rarest ones are kept.
    pub fn offer(&mut self, chunk: Chunk, frame_bytes: u32, seen: impl Fn(Chunk) -> u16) -> Kept {
        let size = u64::from(frame_bytes);
        if chunk.0 >= self.held.chunks() || size > self.limit {
            return Kept::No;
        }
        if self.held.has(chunk) {
            return Kept::Yes(Vec::new());
        }
        let mut dropped = Vec::new();
        if self.bytes + size > self.limit {
            let mut common: Vec<(u16, Chunk)> = self.held.iter().map(|held| (seen(held), held)).collect();
            common.sort_unstable();
            let mut free = self.limit - self.bytes;
            while free < size {
                let Some((_, most_common)) = common.pop().filter(|(count, _)| *count > seen(chunk)) else {
                    return Kept::No;
                };
                free += u64::from(self.sizes[most_common.0 as usize]);
                dropped.push(most_common);
            }
        }
        for old in &dropped {
            self.held.remove(*old);
            self.bytes -= u64::from(self.sizes[old.0 as usize]);
        }
        self.held.add(chunk);
        self.sizes[chunk.0 as usize] = frame_bytes;
        self.bytes += size;
        Kept::Yes(dropped)
    }
}
