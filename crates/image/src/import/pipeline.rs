//! One thread unpacks and cuts the disk; the other threads hash, pack and store the chunks.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Context, ImportError, ImportStep, SpaceCheck, decode};
use crate::codec::{Decoder, Encoder};
use crate::digest::{ChunkDigest, is_zero};
use crate::format::Format;
use crate::index::{CHUNK_SIZE, DataChunk};
use crate::store::{ChunkStore, PutOutcome, StoreError, StoreHold};

const REPORT_PERIOD: Duration = Duration::from_millis(250);

/// Result of the pipeline.
pub(super) struct Stored {
    pub(super) logical_size: u64,
    pub(super) data: Vec<DataChunk>,
    pub(super) new_chunks: u64,
    pub(super) new_bytes: u64,
    pub(super) packed_bytes: u64,
}

struct RawChunk {
    number: u32,
    bytes: Vec<u8>,
}

/// State shared by the threads.
struct Shared<'a> {
    store: &'a ChunkStore,
    hold: &'a StoreHold,
    level: i32,
    space_check: SpaceCheck<'a>,
    max_new_bytes: u64,
    raw_chunks: Mutex<Receiver<RawChunk>>,
    data: Mutex<Vec<DataChunk>>,
    error: Mutex<Option<ImportError>>,
    failed: AtomicBool,
    /// New chunks. Two threads may pack the same chunk at the same time; the set counts it once.
    added: Mutex<HashSet<ChunkDigest>>,
    new_bytes: AtomicU64,
    packed_bytes: AtomicU64,
}

impl Shared<'_> {
    fn fail(&self, error: ImportError) {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
        self.failed.store(true, Ordering::Release);
    }
}

/// Unpacks the disk in `file` and stores its chunks.
pub(super) fn store_chunks(
    context: &Context<'_>,
    file: &File,
    format: Format,
    hold: &StoreHold,
) -> Result<Stored, ImportError> {
    let threads = match context.request.threads {
        0 => thread::available_parallelism().map_or(2, |n| n.get().min(8)),
        requested => requested.min(64),
    };
    let (piece_sender, piece_receiver) = mpsc::channel();
    let (buffer_sender, buffer_receiver) = mpsc::channel();
    // The number of buffers limits the work in progress: each piece needs a returned buffer.
    for _ in 0..2 * threads + 1 {
        let _ = buffer_sender.send(Vec::with_capacity(CHUNK_SIZE));
    }
    let shared = Shared {
        store: context.store,
        hold,
        level: context.request.level,
        space_check: context.request.space_check,
        max_new_bytes: context.request.limits.max_new_bytes,
        raw_chunks: Mutex::new(piece_receiver),
        data: Mutex::default(),
        error: Mutex::default(),
        failed: AtomicBool::new(false),
        added: Mutex::default(),
        new_bytes: AtomicU64::new(0),
        packed_bytes: AtomicU64::new(0),
    };
    let cut = thread::scope(|scope| {
        for _ in 0..threads {
            let buffers = buffer_sender.clone();
            let shared = &shared;
            thread::Builder::new()
                .name("image-import".to_owned())
                .spawn_scoped(scope, move || work(shared, &buffers))
                .map_err(ImportError::Pack)?;
        }
        drop(buffer_sender);
        let chunker = Chunker {
            context,
            format,
            shared: &shared,
            raw_chunks: piece_sender,
            buffers: buffer_receiver,
        };
        chunker.run(file)
    });
    if let Some(error) = shared.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let logical_size = cut?;
    let mut data = shared.data.into_inner().unwrap_or_else(PoisonError::into_inner);
    data.sort_unstable_by_key(|chunk| chunk.number);
    Ok(Stored {
        logical_size,
        data,
        new_chunks: shared.added.into_inner().unwrap_or_else(PoisonError::into_inner).len() as u64,
        new_bytes: shared.new_bytes.into_inner(),
        packed_bytes: shared.packed_bytes.into_inner(),
    })
}

struct Chunker<'a> {
    context: &'a Context<'a>,
    format: Format,
    shared: &'a Shared<'a>,
    raw_chunks: Sender<RawChunk>,
    buffers: Receiver<Vec<u8>>,
}

impl Chunker<'_> {
    /// Returns the size of the disk in bytes.
    fn run(self, file: &File) -> Result<u64, ImportError> {
        let position = Arc::new(AtomicU64::new(0));
        let mut logical = 0u64;
        let unpack = |logical_bytes, source| ImportError::Unpack {
            format: self.format,
            logical_bytes,
            source,
        };
        let limits = &self.context.request.limits;
        let mut disk = decode::open(file, self.format, limits, &position).map_err(|error| unpack(0, error))?;
        let mut reported = Instant::now();
        for number in 0u32.. {
            self.context.check_cancel()?;
            if self.shared.failed.load(Ordering::Acquire) {
                break;
            }
            // No worker is left: one of them panicked, and the scope propagates the panic.
            let Ok(mut bytes) = self.buffers.recv() else { break };
            fill(&mut disk, &mut bytes).map_err(|error| unpack(logical, error))?;
            let count = bytes.len();
            if number == 0 {
                self.check_start(&bytes)?;
            }
            logical += count as u64;
            if logical > limits.max_logical_bytes {
                return Err(ImportError::TooLong {
                    limit: limits.max_logical_bytes,
                });
            }
            if count == 0 || self.raw_chunks.send(RawChunk { number, bytes }).is_err() {
                break;
            }
            if reported.elapsed() >= REPORT_PERIOD {
                self.context
                    .report(ImportStep::Storing, position.load(Ordering::Relaxed), logical);
                reported = Instant::now();
            }
            if count < CHUNK_SIZE {
                break;
            }
        }
        self.context
            .report(ImportStep::Storing, self.context.source_bytes, logical);
        Ok(logical)
    }

    /// Refuses a packed file inside the file: a machine would not boot from it.
    fn check_start(&self, bytes: &[u8]) -> Result<(), ImportError> {
        match Format::detect(bytes) {
            Format::Raw => Ok(()),
            inner => Err(ImportError::Nested {
                outer: self.format,
                inner,
            }),
        }
    }
}

/// Reads one chunk. The result is shorter only at the end of the disk.
fn fill(disk: &mut dyn Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.clear();
    disk.take(CHUNK_SIZE as u64).read_to_end(bytes).map(|_| ())
}

fn work(shared: &Shared<'_>, buffers: &Sender<Vec<u8>>) {
    let mut packer = match Packer::new(shared) {
        Ok(packer) => Some(packer),
        Err(error) => {
            shared.fail(ImportError::Pack(error));
            None
        }
    };
    loop {
        let raw_chunk = shared.raw_chunks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(RawChunk { number, bytes }) = raw_chunk else {
            return;
        };
        if let Some(packer) = &mut packer
            && !shared.failed.load(Ordering::Acquire)
            && let Err(error) = packer.store(number, &bytes)
        {
            shared.fail(error);
        }
        // Fails at the end, when the cutter has stopped receiving.
        let _ = buffers.send(bytes);
    }
}

struct Packer<'a> {
    shared: &'a Shared<'a>,
    encoder: Encoder,
    decoder: Decoder,
    frame: Vec<u8>,
    stored_chunk: Vec<u8>,
}

impl<'a> Packer<'a> {
    fn new(shared: &'a Shared<'a>) -> io::Result<Self> {
        let encoder = Encoder::new(shared.level)?;
        Ok(Self {
            shared,
            encoder,
            decoder: Decoder::new()?,
            frame: Vec::new(),
            stored_chunk: Vec::new(),
        })
    }

    fn store(&mut self, number: u32, bytes: &[u8]) -> Result<(), ImportError> {
        if is_zero(bytes) {
            return Ok(());
        }
        let digest = ChunkDigest::of(bytes);
        match self.put(&digest, bytes)? {
            PutOutcome::New if self.is_first(digest) => {
                let added = self.frame.len() as u64;
                let total = self.shared.new_bytes.fetch_add(added, Ordering::Relaxed) + added;
                if total > self.shared.max_new_bytes {
                    return Err(ImportError::TooMuchData {
                        limit: self.shared.max_new_bytes,
                    });
                }
            }
            PutOutcome::Known | PutOutcome::New => {}
        }
        self.shared
            .packed_bytes
            .fetch_add(self.frame.len() as u64, Ordering::Relaxed);
        let mut data = self.shared.data.lock().unwrap_or_else(PoisonError::into_inner);
        data.push(DataChunk { number, digest });
        Ok(())
    }

    fn is_first(&self, digest: ChunkDigest) -> bool {
        let mut added = self.shared.added.lock().unwrap_or_else(PoisonError::into_inner);
        added.insert(digest)
    }

    /// Leaves the packed chunk in `self.frame`. An existing chunk is verified, at a tenth of the cost of packing it; a
    /// damaged one is replaced.
    fn put(&mut self, digest: &ChunkDigest, bytes: &[u8]) -> Result<PutOutcome, ImportError> {
        self.stored_chunk.resize(bytes.len(), 0);
        let read = self
            .shared
            .store
            .read_chunk(digest, &mut self.decoder, &mut self.frame, &mut self.stored_chunk);
        match read {
            Ok(()) => return Ok(PutOutcome::Known),
            Err(StoreError::ChunkMissing(_)) => {}
            Err(StoreError::ChunkDamaged { .. }) => tracing::warn!(chunk = %digest, "a damaged chunk is replaced"),
            Err(error) => return Err(error.into()),
        }
        self.encoder.encode(bytes, &mut self.frame).map_err(ImportError::Pack)?;
        (self.shared.space_check.0)(self.frame.len() as u64).map_err(ImportError::NoRoom)?;
        self.shared.store.put_chunk(self.shared.hold, digest, &self.frame)?;
        Ok(PutOutcome::New)
    }
}
