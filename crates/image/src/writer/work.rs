//! The threads that fetch, decode, verify and write chunks.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::arrivals::{Arrivals, Arrived, Next};
use super::fetch::Fetcher;
use super::source::{ChunkSource, Traffic};
use super::target::Target;
use super::{WriteError, ZeroMethod};
use crate::direct::{AlignedBuf, Method, WriteQueue};
use crate::index::{CHUNK_SIZE, DataChunk, Index, chunk_offset};

/// Zero chunks are handled in runs of up to 64 MiB: long enough for the drive, short enough for cancelling and progress.
const ZERO_RUN_CHUNKS: u32 = 16;
/// A thread that waits for a chunk looks this often whether the write was cancelled.
const ARRIVAL_WAIT: Duration = Duration::from_millis(100);

/// Counters shared by all threads.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) logical: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) verified: AtomicU64,
    pub(super) traffic: Arc<Traffic>,
}

/// Where the chunks come from.
#[derive(Clone, Copy)]
pub(super) enum Chunks<'a> {
    /// Each thread fetches the next chunk in the order of the disk.
    Fetched(&'a dyn ChunkSource),
    /// A download hands them over in any order.
    Arriving(&'a Arrivals),
}

/// State shared by the threads.
pub(super) struct Shared<'a> {
    pub(super) index: &'a Index,
    pub(super) chunks: Chunks<'a>,
    pub(super) target: &'a Target,
    pub(super) method: Method,
    pub(super) depth: usize,
    pub(super) zeros: Arc<AlignedBuf>,
    pub(super) zero_method: ZeroMethod,
    /// Set when the target fails to make zeros. From then on zeros are written.
    pub(super) zeros_by_writing: AtomicBool,
    pub(super) counters: &'a Counters,
    pub(super) cancel: &'a AtomicBool,
    pub(super) failure: &'a Failure,
}

/// The first error of any thread. It stops the others.
#[derive(Debug, Default)]
pub(super) struct Failure {
    stop: AtomicBool,
    error: Mutex<Option<WriteError>>,
}

impl Failure {
    pub(super) fn set(&self, error: WriteError) {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
        self.stop.store(true, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn take(&self) -> Option<WriteError> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Data(DataChunk),
    /// `count` zero chunks, starting with chunk `first`.
    Zeros {
        first: u32,
        count: u32,
    },
}

/// Iterates over a range of chunks in order. The threads share it, so that the drive is written from front to back.
pub(super) struct Cursor<'a> {
    data: &'a [DataChunk],
    state: Mutex<(u32, usize)>,
    end: u32,
    only_zeros: bool,
}

impl<'a> Cursor<'a> {
    /// Covers the chunks `first..end`.
    pub(super) fn new(index: &'a Index, first: u32, end: u32) -> Self {
        let data = index.data();
        let skipped = data.partition_point(|chunk| chunk.number < first);
        Self {
            data,
            state: Mutex::new((first, skipped)),
            end,
            only_zeros: false,
        }
    }

    /// Covers the zero chunks of `first..end`.
    pub(super) fn zeros(index: &'a Index, first: u32, end: u32) -> Self {
        Self {
            only_zeros: true,
            ..Self::new(index, first, end)
        }
    }

    pub(super) fn next(&self) -> Option<Work> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut number, mut position) = *state;
        if self.only_zeros {
            while self.data.get(position).is_some_and(|chunk| chunk.number == number) {
                (number, position) = (number + 1, position + 1);
            }
        }
        if number >= self.end {
            return None;
        }
        let next_data = self.data.get(position).copied();
        if let Some(chunk) = next_data
            && chunk.number == number
        {
            *state = (number + 1, position + 1);
            return Some(Work::Data(chunk));
        }
        let gap_end = next_data.map_or(self.end, |chunk| chunk.number.min(self.end));
        let count = (gap_end - number).min(ZERO_RUN_CHUNKS);
        *state = (number + count, position);
        Some(Work::Zeros { first: number, count })
    }
}

/// Handles the work of `cursor` until its end, a failure or cancellation. Stores errors in the shared failure.
pub(super) fn run(shared: &Shared<'_>, cursor: &Cursor<'_>) {
    let result = Filler::new(shared).and_then(|mut filler| Worker::new(shared)?.in_order(cursor, &mut filler));
    if let Err(error) = result {
        shared.failure.set(error);
    }
}

/// Writes what a download hands over, except the first chunk of the disk, and meanwhile the zero chunks of `zeros`. Ends
/// like [`run`].
pub(super) fn run_arrivals(shared: &Shared<'_>, zeros: &Cursor<'_>) {
    let Chunks::Arriving(arrivals) = shared.chunks else {
        return run(shared, zeros);
    };
    let result = Worker::new(shared).and_then(|mut worker| worker.as_they_come(arrivals, zeros));
    if let Err(error) = result {
        shared.failure.set(error);
        arrivals.close();
    }
}

/// Fills a buffer with a chunk.
enum Filler<'a> {
    Fetcher(Box<Fetcher<'a>>),
    /// The first chunk of the disk was kept back.
    Kept(&'a Arrivals),
}

impl<'a> Filler<'a> {
    fn new(shared: &'a Shared<'a>) -> Result<Self, WriteError> {
        match shared.chunks {
            Chunks::Fetched(source) => {
                let fetcher = Fetcher::new(source, shared.cancel, &shared.counters.traffic)?;
                Ok(Self::Fetcher(Box::new(fetcher)))
            }
            Chunks::Arriving(arrivals) => Ok(Self::Kept(arrivals)),
        }
    }

    fn fill(&mut self, chunk: &DataChunk, buffer: &mut [u8]) -> Result<(), WriteError> {
        match self {
            Self::Fetcher(fetcher) => fetcher.fetch(chunk, buffer),
            Self::Kept(arrivals) => arrivals.copy_first(chunk, buffer),
        }
    }
}

struct Worker<'a> {
    shared: &'a Shared<'a>,
    queue: WriteQueue<'a>,
    /// Offset of the last started write.
    offset: u64,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>) -> Result<Self, WriteError> {
        let setup = |what| move |source| WriteError::Setup { what, source };
        let zeros = Some(Arc::clone(&shared.zeros));
        let queue = WriteQueue::new(shared.target.blocks(), shared.method, shared.depth, CHUNK_SIZE, zeros)
            .map_err(setup("write buffers"))?;
        Ok(Self {
            shared,
            queue,
            offset: 0,
        })
    }

    fn in_order(&mut self, cursor: &Cursor<'_>, filler: &mut Filler<'_>) -> Result<(), WriteError> {
        while !self.is_stopped()? {
            match cursor.next() {
                Some(Work::Data(chunk)) => self.data(&chunk, filler)?,
                Some(Work::Zeros { first, count }) => self.zeros(first, count)?,
                None => break,
            }
        }
        self.drain()
    }

    fn as_they_come(&mut self, arrivals: &Arrivals, zeros: &Cursor<'_>) -> Result<(), WriteError> {
        let mut has_zeros = true;
        while !self.is_stopped()? {
            // Chunks come before zeros, so that the download does not wait.
            let wait = if has_zeros { Duration::ZERO } else { ARRIVAL_WAIT };
            match arrivals.next(wait)? {
                Next::Chunk(arrived) => self.arrived(arrivals, arrived)?,
                Next::Nothing | Next::End if has_zeros => match zeros.next() {
                    Some(Work::Zeros { first, count }) => self.zeros(first, count)?,
                    Some(Work::Data(_)) | None => has_zeros = false,
                },
                // Failed writes are noticed here, while no chunk comes.
                Next::Nothing => _ = self.acquire()?,
                Next::End => break,
            }
        }
        self.drain()
    }

    /// Whether another thread has failed.
    fn is_stopped(&self) -> Result<bool, WriteError> {
        if self.shared.failure.is_set() {
            return Ok(true);
        }
        if self.shared.cancel.load(Ordering::Relaxed) {
            return Err(WriteError::Cancelled);
        }
        Ok(false)
    }

    fn acquire(&mut self) -> Result<usize, WriteError> {
        let slot = self.queue.acquire().map_err(|source| self.write_error(source))?;
        self.count_written();
        Ok(slot)
    }

    fn drain(&mut self) -> Result<(), WriteError> {
        self.queue.drain().map_err(|source| self.write_error(source))?;
        self.count_written();
        Ok(())
    }

    fn write_error(&self, source: io::Error) -> WriteError {
        self.shared.target.write_error(self.offset, source)
    }

    fn count_written(&mut self) {
        self.shared
            .counters
            .written
            .fetch_add(self.queue.take_written(), Ordering::Relaxed);
    }

    fn data(&mut self, chunk: &DataChunk, filler: &mut Filler<'_>) -> Result<(), WriteError> {
        let slot = self.acquire()?;
        let len = self.shared.index.chunk_len(chunk.number);
        filler.fill(chunk, &mut self.queue.buffer(slot)[..len])?;
        self.submit(slot, chunk)
    }

    /// Writes a chunk from its own buffer, and gives the download a free one back.
    fn arrived(&mut self, arrivals: &Arrivals, arrived: Arrived) -> Result<(), WriteError> {
        let Arrived { chunk, mut buffer } = arrived;
        let slot = self.acquire()?;
        self.queue.exchange(slot, &mut buffer);
        arrivals.give_back(buffer);
        self.submit(slot, &chunk)
    }

    fn submit(&mut self, slot: usize, chunk: &DataChunk) -> Result<(), WriteError> {
        let len = self.shared.index.chunk_len(chunk.number);
        self.offset = chunk_offset(chunk.number);
        let target = self.shared.target;
        let blocks = target.block_part(len);
        if blocks < len {
            let rest = &self.queue.buffer(slot)[blocks..len];
            let written = target.plain().write_all_at(rest, self.offset + blocks as u64);
            written.map_err(|source| self.write_error(source))?;
            self.shared
                .counters
                .written
                .fetch_add((len - blocks) as u64, Ordering::Relaxed);
        }
        self.queue
            .submit(slot, blocks, self.offset)
            .map_err(|source| self.write_error(source))?;
        self.shared.counters.logical.fetch_add(len as u64, Ordering::Relaxed);
        Ok(())
    }

    fn zeros(&mut self, first: u32, count: u32) -> Result<(), WriteError> {
        let start = chunk_offset(first);
        let end = chunk_offset(first + count).min(self.shared.index.logical_size());
        self.offset = start;
        if !self.shared.zeros_by_writing.load(Ordering::Relaxed) {
            let zeroed = self.shared.target.zero(self.shared.zero_method, start, end - start);
            match zeroed {
                Ok(()) => {
                    self.shared.counters.logical.fetch_add(end - start, Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) => {
                    let method = self.shared.zero_method;
                    let drive = self.shared.target.path().display();
                    tracing::info!(%drive, ?method, %error, "the command to zero a range failed; zeros are written instead");
                    self.shared.zeros_by_writing.store(true, Ordering::Relaxed);
                }
            }
        }
        for number in first..first + count {
            self.write_zero_chunk(number)?;
        }
        Ok(())
    }

    fn write_zero_chunk(&mut self, number: u32) -> Result<(), WriteError> {
        self.offset = chunk_offset(number);
        let len = self.shared.index.chunk_len(number);
        let target = self.shared.target;
        let blocks = target.block_part(len);
        if blocks < len {
            target.write_zeros(self.offset + blocks as u64, (len - blocks) as u64)?;
            self.shared
                .counters
                .written
                .fetch_add((len - blocks) as u64, Ordering::Relaxed);
        }
        self.queue
            .submit_zeros(blocks, self.offset)
            .map_err(|source| self.write_error(source))?;
        self.count_written();
        self.shared.counters.logical.fetch_add(len as u64, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChunkDigest, Format, Sha256};

    #[test]
    fn the_cursor_covers_every_chunk_once_and_in_order() {
        let chunk = |number| DataChunk {
            number,
            digest: ChunkDigest::of(&[number as u8]),
        };
        let data = vec![chunk(0), chunk(1), chunk(5), chunk(40)];
        let index = Index::new(50 * CHUNK_SIZE as u64, Format::Raw, Sha256([0; 32]), data).unwrap();
        let all = |first, end| {
            let cursor = Cursor::new(&index, first, end);
            std::iter::from_fn(move || cursor.next()).collect::<Vec<_>>()
        };
        let zeros = |first, count| Work::Zeros { first, count };
        let expected = [
            Work::Data(chunk(1)),
            zeros(2, 3),
            Work::Data(chunk(5)),
            zeros(6, 16),
            zeros(22, 16),
            zeros(38, 2),
            Work::Data(chunk(40)),
            zeros(41, 9),
        ];
        assert_eq!(all(1, 50), expected);
        assert_eq!(all(0, 1), [Work::Data(chunk(0))]);
        assert_eq!(all(3, 4), [zeros(3, 1)]);
        assert_eq!(all(50, 50), []);
        let cursor = Cursor::zeros(&index, 1, 50);
        let only_zeros: Vec<Work> = std::iter::from_fn(move || cursor.next()).collect();
        let is_zeros = |work: &&Work| matches!(work, Work::Zeros { .. });
        assert_eq!(
            only_zeros,
            expected.iter().filter(is_zeros).copied().collect::<Vec<_>>()
        );
    }
}
