//! Reads back: samples of the zero chunks, or the whole disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use super::WriteError;
use super::work::{Cursor, Shared, Work};
use crate::digest::{ChunkDigest, is_zero};
use crate::direct::{self, ALIGNMENT, AlignedBuf};
use crate::index::{CHUNK_SIZE, Index, chunk_offset};

/// Number of places that are read to check that the drive really made zeros.
const ZERO_SAMPLES: usize = 256;

/// Compares the chunks of `cursor` with the index. Stores errors in the shared failure.
pub(super) fn run(shared: &Shared<'_>, cursor: &Cursor<'_>) {
    if let Err(error) = compare(shared, cursor) {
        shared.failure.set(error);
    }
}

fn compare(shared: &Shared<'_>, cursor: &Cursor<'_>) -> Result<(), WriteError> {
    let setup = |source| WriteError::Setup {
        what: "a read buffer",
        source,
    };
    let mut buffer = AlignedBuf::new(CHUNK_SIZE).map_err(setup)?;
    while let Some(work) = cursor.next() {
        let (first, count) = match work {
            Work::Data(chunk) => (chunk.number, 1),
            Work::Zeros { first, count } => (first, count),
        };
        for number in first..first + count {
            if shared.failure.is_set() {
                return Ok(());
            }
            if shared.cancel.load(Ordering::Relaxed) {
                return Err(WriteError::Cancelled);
            }
            let bytes = read_chunk(shared, number, &mut buffer)?;
            let same = match work {
                Work::Data(chunk) => ChunkDigest::of(bytes) == chunk.digest,
                Work::Zeros { .. } => is_zero(bytes),
            };
            if !same {
                return Err(WriteError::ReadBack {
                    path: shared.target.path().to_owned(),
                    offset: chunk_offset(number),
                });
            }
            shared
                .counters
                .verified
                .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn read_chunk<'b>(shared: &Shared<'_>, number: u32, buffer: &'b mut AlignedBuf) -> Result<&'b [u8], WriteError> {
    let len = shared.index.chunk_len(number);
    let offset = chunk_offset(number);
    let target = shared.target;
    let blocks = target.block_part(len);
    let bytes = &mut buffer[..len];
    let failed = |source| target.read_error(offset, source);
    // O_DIRECT reads must stay aligned: a short read, possible only at the end of the disk, is an error here.
    read_whole(target.blocks(), &mut bytes[..blocks], offset).map_err(failed)?;
    if blocks < len {
        direct::advise_dont_need(target.plain());
        target
            .plain()
            .read_exact_at(&mut bytes[blocks..], offset + blocks as u64)
            .map_err(failed)?;
    }
    Ok(bytes)
}

fn read_whole(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(bytes, offset)
}

/// Whether sample places in all zero chunks (except the first chunk of the disk) read as zeros.
pub(super) fn samples_are_zero(shared: &Shared<'_>) -> Result<bool, WriteError> {
    let setup = |source| WriteError::Setup {
        what: "a read buffer",
        source,
    };
    let mut buffer = AlignedBuf::new(ALIGNMENT).map_err(setup)?;
    if !shared.target.is_direct() {
        direct::advise_dont_need(shared.target.plain());
    }
    for (number, within) in zero_samples(shared.index) {
        let offset = chunk_offset(number) + within;
        let read = shared.target.blocks().read_exact_at(&mut buffer, offset);
        read.map_err(|source| shared.target.read_error(offset, source))?;
        if !is_zero(&buffer) {
            let drive = shared.target.path().display();
            tracing::warn!(%drive, offset, "the drive accepted the command to zero this range but returns other data");
            return Ok(false);
        }
    }
    Ok(true)
}

/// Chunk numbers and aligned offsets in them, spread evenly over the zero chunks.
fn zero_samples(index: &Index) -> Vec<(u32, u64)> {
    let data: u32 = index.data().iter().filter(|chunk| chunk.number > 0).count() as u32;
    let zero_chunks = (index.chunk_count() - 1 - data) as usize;
    let every = zero_chunks.div_ceil(ZERO_SAMPLES).max(1);
    let mut entries = index
        .data()
        .iter()
        .map(|chunk| chunk.number)
        .filter(|number| *number > 0)
        .peekable();
    let zeros = (1..index.chunk_count()).filter(|number| entries.next_if_eq(number).is_none());
    let mut samples = Vec::new();
    for (position, number) in zeros.step_by(every).enumerate() {
        let pages = (index.chunk_len(number) / ALIGNMENT) as u64;
        if pages > 0 {
            // The step has no common factor with the number of pages, so it visits all places in a chunk.
            samples.push((number, position as u64 * 381 % pages * ALIGNMENT as u64));
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataChunk, Format, Sha256};

    #[test]
    fn samples_lie_in_zero_chunks_and_all_over_them() {
        let data = (0..3000).filter(|n| n % 3 == 0).map(|number| DataChunk {
            number,
            digest: ChunkDigest::of(b"x"),
        });
        let index = Index::new(3000 * CHUNK_SIZE as u64, Format::Raw, Sha256([0; 32]), data.collect()).unwrap();
        let samples = zero_samples(&index);
        assert!((200..=ZERO_SAMPLES).contains(&samples.len()), "{}", samples.len());
        assert!(
            samples
                .iter()
                .all(|(number, within)| number % 3 != 0 && within % 4096 == 0)
        );
        assert!(samples.iter().all(|(_, within)| *within < CHUNK_SIZE as u64));
        assert!(samples[0].0 < 10 && samples[samples.len() - 1].0 > 2980);
        let distinct: std::collections::HashSet<u64> = samples.iter().map(|(_, within)| *within).collect();
        assert!(distinct.len() > 200);
    }
}
