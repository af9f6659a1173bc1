//! Writing an image to a drive.
//!
//! Threads take chunks from front to back; each fetches, decodes and verifies one while its last few are on their way to
//! the drive. Nothing is written that was not verified. The steps, and what the drive is after a failure in each:
//!
//! 1. the drive is opened and claimed, the index fetched and verified, sizes compared: untouched;
//! 2. the place of the first chunk and the end of the disk (a backup partition table) are overwritten with zeros: the
//!    old system is gone, and nothing boots;
//! 3. every chunk but the first is written, zero chunks by what the drive offers (see [`ZeroMethod`]), then flushed:
//!    still nothing boots;
//! 4. the first chunk, with the partition table, is written and flushed: the image is there;
//! 5. the whole disk is read back, if asked for; should it differ, the first chunk is overwritten again.

mod error;
mod fetch;
mod http;
mod plan;
mod progress;
mod readback;
mod source;
mod target;
mod work;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::digest::ImageDigest;
use crate::direct::{AlignedBuf, Method, WriteQueue};
use crate::index::{CHUNK_SIZE, Index, MAX_INDEX_BYTES, chunk_offset};

use fetch::Fetcher;
use plan::Plan;
use progress::Reporter;
use target::Target;
use work::{Counters, Cursor, Failure, Shared};

pub use error::WriteError;
pub use http::{HttpOptions, HttpSource, HttpSourceError, Tls};
pub use progress::{Progress, Step};
pub use source::{ChunkSource, DirSource, FetchControl, FetchError, Fetched, Frame, Object};

/// What to do about chunks of zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ZeroPolicy {
    /// Let the drive make them where that is sure, else write them.
    #[default]
    Auto,
    /// Write every byte.
    WriteAll,
}

/// How chunks of zeros came onto the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroMethod {
    /// The image has none.
    NoZeros,
    /// The target was an empty regular file: what is not written reads zeros.
    FreshFile,
    /// The target is a regular file: its blocks were given back there.
    PunchedHoles,
    /// The drive was told to make them (NVMe Write Zeroes, SCSI WRITE SAME or UNMAP where that reads zeros, virtio), and
    /// samples were read back.
    WriteZeroes,
    /// They were written.
    Written,
}

/// How data goes to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoMode {
    /// io_uring where it is there and allowed, else `pwrite`.
    #[default]
    Auto,
    /// `pwrite`.
    Pwrite,
}

/// How to write.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Threads; 0: one per core, between two and eight.
    pub threads: usize,
    /// Most memory for buffers, bytes; 0: 256 MiB, or a quarter of the free memory where that is less.
    pub memory_budget_bytes: u64,
    /// Read the whole disk back and compare it.
    pub verify_whole_disk: bool,
    /// What to do about zeros.
    pub zeros: ZeroPolicy,
    /// How data goes to the kernel.
    pub io: IoMode,
    /// Set it to end soon, with [`WriteError::Cancelled`].
    pub cancel: Arc<AtomicBool>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// Bytes of the image.
    pub logical_bytes: u64,
    /// Bytes fetched, the index and repeated parts included.
    pub fetched_bytes: u64,
    /// Bytes sent to the drive.
    pub written_bytes: u64,
    /// How zeros came onto the drive.
    pub zero_method: ZeroMethod,
    /// True when zero chunks were not sent, because the drive was known to read zeros there.
    pub zeros_skipped: bool,
    /// True when the whole disk was read back and was right.
    pub verified_whole_disk: bool,
    /// From begin to end.
    pub duration: Duration,
    /// Downloads that went on where they had broken off.
    pub resumed_downloads: u32,
    /// Whether io_uring was used.
    pub io_uring: bool,
    /// Whether the page cache was bypassed.
    pub direct_io: bool,
    /// Threads used.
    pub threads: usize,
    /// Most memory taken for buffers, bytes; within the budget.
    pub memory_bytes: u64,
}

/// Writes image `image` from `source` to `target`, a block device or an existing regular file. `progress` is called from
/// this thread, a few times a second.
///
/// # Errors
/// See [`WriteError`]. The drive is left without a partition table, unless nothing was written to it.
pub fn write_image(
    source: &dyn ChunkSource,
    image: &ImageDigest,
    target: &Path,
    options: &Options,
    progress: &dyn Fn(Progress),
) -> Result<Written, WriteError> {
    let begun = Instant::now();
    let counters = Counters::default();
    let budget = match options.memory_budget_bytes {
        0 => plan::default_budget(),
        given => given,
    };
    let mut target = Target::open(target)?;
    let index = fetch_index(source, image, budget, &counters, &options.cancel)?;
    let plan = Plan::new(&index, options.threads, budget)?;
    target.fit(index.logical_size())?;
    let run = Run {
        source,
        index: &index,
        target: &target,
        options,
        plan,
        counters: &counters,
        progress,
    };
    let outcome = run.write()?;
    Ok(Written {
        logical_bytes: index.logical_size(),
        fetched_bytes: counters.fetched.into_inner(),
        written_bytes: counters.written.into_inner(),
        zero_method: outcome.zero_method,
        zeros_skipped: !matches!(outcome.zero_method, ZeroMethod::Written | ZeroMethod::NoZeros),
        verified_whole_disk: options.verify_whole_disk,
        duration: begun.elapsed(),
        resumed_downloads: counters.resumes.into_inner(),
        io_uring: outcome.method == Method::IoUring,
        direct_io: target.is_direct(),
        threads: plan.threads,
        memory_bytes: plan.memory_bytes(&index),
    })
}

/// Fetches image `image` from `source` and verifies it as [`write_image`] does, in one thread and without a drive: `take` is
/// given each chunk with data and its place in bytes, in order. What it refuses ends the run as a failed write to `target`.
///
/// # Errors
/// See [`WriteError`].
pub fn fetch_image(
    source: &dyn ChunkSource,
    image: &ImageDigest,
    target: &Path,
    cancel: &AtomicBool,
    take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
) -> Result<Streamed, WriteError> {
    let counters = Counters::default();
    let index = fetch_index(source, image, plan::default_budget(), &counters, cancel)?;
    let mut fetcher = Fetcher::new(source, cancel, (&counters.fetched, &counters.resumes))?;
    let mut buffer = vec![0; CHUNK_SIZE];
    let mut written_bytes = 0;
    for chunk in index.data() {
        let (offset, len) = (chunk_offset(chunk.number), index.chunk_len(chunk.number));
        fetcher.fetch(chunk, &mut buffer[..len])?;
        take(offset, &buffer[..len]).map_err(|source| WriteError::Write {
            path: target.to_owned(),
            offset,
            source,
        })?;
        written_bytes += len as u64;
    }
    drop(fetcher);
    Ok(Streamed {
        logical_bytes: index.logical_size(),
        fetched_bytes: counters.fetched.into_inner(),
        written_bytes,
        resumed_downloads: counters.resumes.into_inner(),
    })
}

/// What [`fetch_image`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streamed {
    /// Bytes of the image.
    pub logical_bytes: u64,
    /// Bytes fetched, the index and repeated parts included.
    pub fetched_bytes: u64,
    /// Bytes of its chunks with data.
    pub written_bytes: u64,
    /// Downloads that went on where they had broken off.
    pub resumed_downloads: u32,
}

fn fetch_index(
    source: &dyn ChunkSource,
    image: &ImageDigest,
    budget: u64,
    counters: &Counters,
    cancel: &AtomicBool,
) -> Result<Index, WriteError> {
    // Its bytes and the parsed form are in memory together.
    let limit = (budget / 3).min(MAX_INDEX_BYTES as u64) as usize;
    let control = FetchControl {
        cancel,
        fetched: &counters.fetched,
        resumes: &counters.resumes,
    };
    let mut frame = Frame::new(limit);
    loop {
        let got = source
            .fetch(&Object::Image(*image), &mut frame, &control)
            .map_err(|error| match error {
                FetchError::Cancelled => WriteError::Cancelled,
                other => WriteError::Download(other),
            })?;
        match Index::parse_verified(frame.filled(), image) {
            Ok(index) => return Ok(index),
            Err(error) if source.reject(got.origin, &error) => {}
            Err(source) => return Err(WriteError::Index { image: *image, source }),
        }
    }
}

struct Run<'a> {
    source: &'a dyn ChunkSource,
    index: &'a Index,
    target: &'a Target,
    options: &'a Options,
    plan: Plan,
    counters: &'a Counters,
    progress: &'a dyn Fn(Progress),
}

struct Outcome {
    zero_method: ZeroMethod,
    method: Method,
}

impl Run<'_> {
    fn write(&self) -> Result<Outcome, WriteError> {
        let failure = Failure::default();
        let shared = self.shared(&failure)?;
        let mut reporter = Reporter::new(self.progress, self.counters, self.index.logical_size());
        self.check_cancel()?;
        self.target.wipe_ends(self.index.logical_size())?;
        let last = self.index.chunk_count();
        reporter.step(Step::Writing);
        self.in_parallel(&shared, &Cursor::new(self.index, 1, last), work::run, &mut reporter)?;
        let trusted = matches!(
            shared.zero_method,
            ZeroMethod::Written | ZeroMethod::NoZeros | ZeroMethod::FreshFile
        );
        if !trusted && !readback::samples_are_zero(&shared)? {
            self.write_zeros_after_all(&shared, &mut reporter)?;
        }
        reporter.step(Step::Flushing);
        self.target.flush()?;
        let finished = self.finish(&shared, &mut reporter);
        if finished.is_err() {
            // Nobody shall boot what is not known to be right. The error at hand is the one to report.
            let _ = self.target.wipe_start(self.index.logical_size());
        }
        finished?;
        let zero_method = match shared.zeros_by_writing.load(Ordering::Relaxed) {
            true => ZeroMethod::Written,
            false => shared.zero_method,
        };
        Ok(Outcome {
            zero_method,
            method: shared.method,
        })
    }

    /// The first chunk, and the look at the whole.
    fn finish(&self, shared: &Shared<'_>, reporter: &mut Reporter<'_>) -> Result<(), WriteError> {
        self.in_parallel(shared, &Cursor::new(self.index, 0, 1), work::run, reporter)?;
        self.target.flush()?;
        if self.options.verify_whole_disk {
            reporter.step(Step::Verifying);
            let all = Cursor::new(self.index, 0, self.index.chunk_count());
            self.in_parallel(shared, &all, readback::run, reporter)?;
        }
        reporter.step(Step::Done);
        Ok(())
    }

    fn shared<'b>(&'b self, failure: &'b Failure) -> Result<Shared<'b>, WriteError> {
        let setup = |what| move |source| WriteError::Setup { what, source };
        let zeros = Arc::new(AlignedBuf::new(CHUNK_SIZE).map_err(setup("a buffer of zeros"))?);
        let wanted = match (self.options.io, self.target.is_direct()) {
            (IoMode::Auto, true) => Method::IoUring,
            // Through the page cache, a write is a copy: nothing to wait for.
            (IoMode::Auto, false) | (IoMode::Pwrite, _) => Method::Pwrite,
        };
        let probe = WriteQueue::new(self.target.blocks(), wanted, 1, 1, None).map_err(setup("write buffers"))?;
        let has_zeros = self.index.data().len() < self.index.chunk_count() as usize;
        Ok(Shared {
            index: self.index,
            source: self.source,
            target: self.target,
            method: probe.method(),
            depth: self.plan.depth,
            zeros,
            zero_method: if has_zeros {
                self.target.zero_method(self.options.zeros)
            } else {
                ZeroMethod::NoZeros
            },
            zeros_by_writing: AtomicBool::new(self.options.zeros == ZeroPolicy::WriteAll && has_zeros),
            counters: self.counters,
            cancel: &self.options.cancel,
            failure,
        })
    }

    fn check_cancel(&self) -> Result<(), WriteError> {
        if self.options.cancel.load(Ordering::Relaxed) {
            Err(WriteError::Cancelled)
        } else {
            Ok(())
        }
    }

    /// The drive said that it made zeros, and it did not.
    fn write_zeros_after_all(&self, shared: &Shared<'_>, reporter: &mut Reporter<'_>) -> Result<(), WriteError> {
        shared.zeros_by_writing.store(true, Ordering::Relaxed);
        // From data chunk to data chunk: what lies between is zero.
        let mut first = 1;
        let ends = self
            .index
            .data()
            .iter()
            .map(|chunk| chunk.number)
            .chain([self.index.chunk_count()]);
        for end in ends {
            if end > first {
                self.in_parallel(shared, &Cursor::new(self.index, first, end), work::run, reporter)?;
            }
            first = first.max(end + 1);
        }
        Ok(())
    }

    /// Runs `run` in every thread until the cursor is at its end, and reports meanwhile.
    fn in_parallel(
        &self,
        shared: &Shared<'_>,
        cursor: &Cursor<'_>,
        run: fn(&Shared<'_>, &Cursor<'_>),
        reporter: &mut Reporter<'_>,
    ) -> Result<(), WriteError> {
        let (done, all_done) = mpsc::channel::<()>();
        thread::scope(|scope| {
            for _ in 0..self.plan.threads {
                let done = done.clone();
                let body = move || {
                    run(shared, cursor);
                    drop(done);
                };
                let spawned = thread::Builder::new()
                    .name("image-write".to_owned())
                    .spawn_scoped(scope, body);
                if let Err(source) = spawned {
                    shared.failure.set(WriteError::Setup {
                        what: "a thread",
                        source,
                    });
                    break;
                }
            }
            drop(done);
            while all_done.recv_timeout(progress::EVERY) == Err(RecvTimeoutError::Timeout) {
                reporter.report();
            }
        });
        reporter.report();
        shared.failure.take().map_or(Ok(()), Err)
    }
}
