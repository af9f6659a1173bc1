//! Chunks in the order in which they arrive: the hand-over between a download and the threads that write to the drive.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::fetch::Fetcher;
use super::plan::{self, Plan};
use super::source::{ChunkSource, Traffic};
use super::work::Failure;
use super::{Options, WriteError};
use crate::direct::AlignedBuf;
use crate::index::{CHUNK_SIZE, DataChunk, Index};

/// The end of a download at which chunks are handed over. Its clones belong to one download, which ends when the last clone
/// is dropped.
#[derive(Clone)]
pub struct Delivery(Arc<Sender>);

/// The end at which [`super::write_arrivals`] takes the chunks.
pub struct Arrivals {
    handover: Arc<Handover>,
    plan: Plan,
}

struct Sender(Arc<Handover>);

struct Handover {
    index: Arc<Index>,
    traffic: Arc<Traffic>,
    state: Mutex<State>,
    /// A chunk came, or the download ended.
    came: Condvar,
    /// A buffer is free, or the write ended.
    free: Condvar,
    /// The write has ended. Fetches look here.
    closed: AtomicBool,
}

struct State {
    /// Chunks that were handed over, or are just now, by their places among the chunks with data.
    begun: Vec<bool>,
    /// Chunks that were handed over in full.
    handed: usize,
    waiting: VecDeque<Arrived>,
    free: Vec<AlignedBuf>,
    /// The first chunk of the disk, which is written last.
    first: Option<Vec<u8>>,
    is_ended: bool,
    failed: Option<WriteError>,
    has_failed: bool,
}

/// A chunk in its buffer.
pub(super) struct Arrived {
    pub(super) chunk: DataChunk,
    pub(super) buffer: AlignedBuf,
}

/// What a thread does next.
pub(super) enum Next {
    /// It writes this chunk.
    Chunk(Arrived),
    /// No chunk came in time.
    Nothing,
    /// All chunks have come, or another thread has the error.
    End,
}

/// The two ends of a hand-over of an image's chunks. The buffers, the threads of the write, and the requests of the download
/// fit into the memory budget of `options`. `traffic` counts what the download fetches.
///
/// # Errors
/// [`WriteError::MemoryBudget`], or [`WriteError::Setup`] without memory for the buffers.
pub fn arrivals(
    index: Arc<Index>,
    options: &Options,
    traffic: Arc<Traffic>,
) -> Result<(Delivery, Arrivals), WriteError> {
    let budget = match options.memory_budget_bytes {
        0 => plan::default_budget(),
        given => given,
    };
    let plan = Plan::of_arrivals(&index, options.threads, budget)?;
    let buffers = (0..plan.waiting).map(|_| AlignedBuf::new(CHUNK_SIZE));
    let free = buffers.collect::<io::Result<Vec<_>>>();
    let free = free.map_err(|source| WriteError::Setup {
        what: "buffers for arriving chunks",
        source,
    })?;
    let state = State {
        begun: vec![false; index.data().len()],
        handed: 0,
        waiting: VecDeque::new(),
        free,
        first: None,
        is_ended: false,
        failed: None,
        has_failed: false,
    };
    let handover = Arc::new(Handover {
        index,
        traffic,
        state: Mutex::new(state),
        came: Condvar::new(),
        free: Condvar::new(),
        closed: AtomicBool::new(false),
    });
    let delivery = Delivery(Arc::new(Sender(Arc::clone(&handover))));
    Ok((delivery, Arrivals { handover, plan }))
}

impl Delivery {
    /// Hands over a chunk that the caller has verified. `place` is its place among the chunks with data. Waits for a free
    /// buffer. A chunk that was handed over before is ignored.
    ///
    /// # Errors
    /// The write has ended, the image has no such chunk, or the chunk has another length.
    pub fn put(&self, place: usize, data: &[u8]) -> io::Result<()> {
        self.0.0.put(place, data)
    }

    /// The chunks that were not handed over, by their places among the chunks with data.
    #[must_use]
    pub fn missing(&self) -> Vec<usize> {
        let state = self.0.0.state();
        let missing = state.begun.iter().enumerate().filter(|(_, begun)| !**begun);
        missing.map(|(place, _)| place).collect()
    }

    /// Ends the write with this error, unless every chunk was handed over. Only the first error counts.
    pub fn fail(&self, error: WriteError) {
        self.0.0.fail(error);
    }

    /// Fetches the missing chunks in the order of the disk, verifies them, and hands them over. Returns their number. An
    /// error ends the write.
    pub fn fetch_rest(&self, source: &dyn ChunkSource, threads: usize) -> u32 {
        let missing = Mutex::new(self.missing().into_iter());
        let (fetched, failure) = (AtomicU32::new(0), Failure::default());
        thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                let body = || {
                    if let Err(error) = self.0.0.fetch(source, &missing, (&fetched, &failure)) {
                        failure.set(WriteError::Cancelled);
                        self.fail(error);
                    }
                };
                let spawned = thread::Builder::new()
                    .name("image-fetch".to_owned())
                    .spawn_scoped(scope, body);
                if let Err(source) = spawned {
                    self.fail(WriteError::Setup {
                        what: "a thread",
                        source,
                    });
                    break;
                }
            }
        });
        fetched.into_inner()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.state().is_ended = true;
        self.0.came.notify_all();
    }
}

impl Handover {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, place: usize, data: &[u8]) -> io::Result<()> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
        let chunk = self.index.data().get(place).copied();
        let chunk = chunk.ok_or_else(|| invalid("the image has no such chunk"))?;
        if data.len() != self.index.chunk_len(chunk.number) {
            return Err(invalid("the chunk has another length"));
        }
        let mut state = self.state();
        self.check_open()?;
        if std::mem::replace(&mut state.begun[place], true) {
            return Ok(());
        }
        if chunk.number == 0 {
            state.first = Some(data.to_vec());
        } else {
            let mut buffer = loop {
                self.check_open()?;
                match state.free.pop() {
                    Some(buffer) => break buffer,
                    None => state = self.free.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            buffer[..data.len()].copy_from_slice(data);
            state = self.state();
            state.waiting.push_back(Arrived { chunk, buffer });
        }
        state.handed += 1;
        let is_last = state.handed == state.begun.len();
        drop(state);
        if is_last {
            self.came.notify_all();
        } else {
            self.came.notify_one();
        }
        Ok(())
    }

    fn check_open(&self) -> io::Result<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the write has ended"));
        }
        Ok(())
    }

    fn fail(&self, error: WriteError) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.has_failed, true) {
            state.failed = Some(error);
        }
        drop(state);
        self.came.notify_all();
    }

    fn close(&self) {
        // Under the lock, so that no thread misses it between its check and its wait.
        let state = self.state();
        self.closed.store(true, Ordering::Relaxed);
        drop(state);
        self.free.notify_all();
        self.came.notify_all();
    }

    /// The work of one thread of [`Delivery::fetch_rest`].
    fn fetch(
        &self,
        source: &dyn ChunkSource,
        missing: &Mutex<std::vec::IntoIter<usize>>,
        (fetched, failure): (&AtomicU32, &Failure),
    ) -> Result<(), WriteError> {
        let mut fetcher = Fetcher::new(source, &self.closed, &self.traffic)?;
        let mut buffer = vec![0; CHUNK_SIZE];
        while !failure.is_set() {
            let Some(place) = missing.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                break;
            };
            let chunk = self.index.data()[place];
            let len = self.index.chunk_len(chunk.number);
            fetcher.fetch(&chunk, &mut buffer[..len])?;
            // The write has ended with its own error.
            if self.put(place, &buffer[..len]).is_err() {
                break;
            }
            fetched.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn incomplete(&self, state: &State) -> WriteError {
        let chunks = state.begun.len();
        let missing = chunks - state.handed;
        WriteError::Incomplete { missing, chunks }
    }
}

impl Arrivals {
    pub(super) fn index(&self) -> &Index {
        &self.handover.index
    }

    pub(super) fn plan(&self) -> Plan {
        self.plan
    }

    pub(super) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.handover.traffic)
    }

    /// Waits at most this long for a chunk.
    ///
    /// # Errors
    /// The error of the download, once, or [`WriteError::Incomplete`].
    pub(super) fn next(&self, wait: Duration) -> Result<Next, WriteError> {
        let until = Instant::now() + wait;
        let mut state = self.handover.state();
        loop {
            let is_complete = state.handed == state.begun.len();
            if state.has_failed && !is_complete {
                return state.failed.take().map_or(Ok(Next::End), Err);
            }
            if let Some(arrived) = state.waiting.pop_front() {
                return Ok(Next::Chunk(arrived));
            }
            if is_complete || self.handover.closed.load(Ordering::Relaxed) {
                return Ok(Next::End);
            }
            if state.is_ended {
                return Err(self.handover.incomplete(&state));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Next::Nothing);
            }
            let waited = self.handover.came.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives the download a buffer back.
    pub(super) fn give_back(&self, buffer: AlignedBuf) {
        self.handover.state().free.push(buffer);
        self.handover.free.notify_one();
    }

    /// Fills `buffer` with the first chunk of the disk.
    pub(super) fn copy_first(&self, chunk: &DataChunk, buffer: &mut [u8]) -> Result<(), WriteError> {
        let state = self.handover.state();
        match &state.first {
            Some(first) if chunk.number == 0 && first.len() == buffer.len() => {
                buffer.copy_from_slice(first);
                Ok(())
            }
            _ => Err(self.handover.incomplete(&state)),
        }
    }

    /// Whether every chunk came, and was taken.
    pub(super) fn check_complete(&self) -> Result<(), WriteError> {
        let state = self.handover.state();
        if state.handed < state.begun.len() || !state.waiting.is_empty() {
            return Err(self.handover.incomplete(&state));
        }
        Ok(())
    }

    /// Ends the hand-over: the download's chunks are refused from now on.
    pub(super) fn close(&self) {
        self.handover.close();
    }

    /// Closes at the end of the write, whatever its result.
    pub(super) fn close_on_drop(&self) -> CloseOnDrop {
        CloseOnDrop(Arc::clone(&self.handover))
    }
}

/// Ends a hand-over when it is dropped.
pub(super) struct CloseOnDrop(Arc<Handover>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.handover.close();
    }
}
