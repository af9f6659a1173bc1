//! Writes an image to a drive.
//!
//! Threads take chunks from front to back. Each thread fetches, decodes and verifies one chunk while its last few chunks
//! are on their way to the drive. Only verified chunks are written. The steps, and the state of the drive after a failure
//! in each:
//!
//! 1. the drive is opened and claimed, the index is fetched and verified, sizes are compared: untouched;
//! 2. the place of the first chunk and the end of the disk (a backup partition table) are overwritten with zeros: the old
//!    system is gone, and the drive does not boot;
//! 3. every chunk but the first is written, zero chunks by the drive's own method (see [`ZeroMethod`]), then flushed: the
//!    drive still does not boot;
//! 4. the first chunk, with the partition table, is written and flushed: the image is complete;
//! 5. the whole disk is read back, if requested. After a failure in step 4 or 5 the first chunk is overwritten again.
//!
//! [`write_arrivals`] takes the same steps with chunks that a download hands over in any order ([`Delivery`]). It keeps the
//! first chunk back until step 4.

mod arrivals;
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
use work::{Chunks, Counters, Cursor, Failure, Shared};

pub use arrivals::{Arrivals, Delivery, arrivals};
pub use error::WriteError;
pub use http::{HttpOptions, HttpSource, HttpSourceError, Tls};
pub use progress::{Progress, Step};
pub use source::{ChunkSource, DirSource, FetchControl, FetchError, Fetched, Frame, Object, Traffic};

/// How to write zero chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ZeroPolicy {
    /// The drive makes the zeros if that is reliable; otherwise they are written.
    #[default]
    Auto,
    /// Write every byte.
    WriteAll,
}

/// How zero chunks were written to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroMethod {
    /// The image has no zero chunks.
    NoZeros,
    /// The target was an empty regular file: unwritten parts read as zeros.
    FreshFile,
    /// The target is a regular file: its blocks were released.
    PunchedHoles,
    /// The drive made the zeros on command (NVMe Write Zeroes, SCSI WRITE SAME or UNMAP if that reads as zeros, virtio),
    /// and samples were read back.
    WriteZeroes,
    /// Zeros were written.
    Written,
}

/// How data reaches the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoMode {
    /// io_uring if it is available and allowed, otherwise `pwrite`.
    #[default]
    Auto,
    /// Only `pwrite`, also where io_uring is available.
    Pwrite,
}

/// Options of a write.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Number of threads. 0: one per core, between two and eight.
    pub threads: usize,
    /// Memory limit of the buffers in bytes. 0: 256 MiB, or a quarter of the free memory if that is less.
    pub memory_budget_bytes: u64,
    /// Whether to read the whole disk back and compare it.
    pub verify_whole_disk: bool,
    /// How to write zero chunks.
    pub zeros: ZeroPolicy,
    /// How data reaches the kernel.
    pub io: IoMode,
    /// Set it to stop soon, with [`WriteError::Cancelled`].
    pub cancel: Arc<AtomicBool>,
}

/// Result of a write.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// Size of the image in bytes.
    pub logical_bytes: u64,
    /// Bytes fetched, index and repeated parts included.
    pub fetched_bytes: u64,
    /// Bytes written to the drive.
    pub written_bytes: u64,
    /// How zero chunks were written.
    pub zero_method: ZeroMethod,
    /// True if zero chunks were not written, because the drive reads as zeros there.
    pub zeros_skipped: bool,
    /// True if the whole disk was read back and matched.
    pub verified_whole_disk: bool,
    /// Duration of the whole write.
    pub duration: Duration,
    /// Number of downloads that resumed after an interruption.
    pub resumed_downloads: u32,
    /// Whether io_uring was used.
    pub io_uring: bool,
    /// Whether the page cache was bypassed.
    pub direct_io: bool,
    /// Threads used.
    pub threads: usize,
    /// Upper limit of the buffers' memory in bytes; within the budget.
    pub memory_bytes: u64,
}

/// Writes image `image` from `source` to `target`, a block device or an existing regular file. This thread calls `progress`
/// a few times a second.
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
        chunks: Chunks::Fetched(source),
        index: &index,
        target: &target,
        options,
        plan,
        counters: &counters,
        progress,
    };
    run.written(begun)
}

/// Writes the chunks that a download hands over to `arrivals`, like [`write_image`]. The caller has verified the index and
/// verifies each chunk. The write ends after the last chunk; if the download ends before, the write fails.
///
/// # Errors
/// As [`write_image`], [`WriteError::Incomplete`], and the error of [`Delivery::fail`]. The download's next chunk is then
/// refused.
pub fn write_arrivals(
    arrivals: &Arrivals,
    target: &Path,
    options: &Options,
    progress: &dyn Fn(Progress),
) -> Result<Written, WriteError> {
    let _closed = arrivals.close_on_drop();
    let begun = Instant::now();
    let counters = Counters {
        traffic: arrivals.traffic(),
        ..Counters::default()
    };
    let mut target = Target::open(target)?;
    let index = arrivals.index();
    target.fit(index.logical_size())?;
    let run = Run {
        chunks: Chunks::Arriving(arrivals),
        index,
        target: &target,
        options,
        plan: arrivals.plan(),
        counters: &counters,
        progress,
    };
    run.written(begun)
}

/// Fetches image `image` from `source` and verifies it like [`write_image`], in one thread and without a drive. `take`
/// receives each data chunk and its offset in bytes, in order. An error of `take` ends the run as a failed write to
/// `target`.
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
    let mut fetcher = Fetcher::new(source, cancel, &counters.traffic)?;
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
        fetched_bytes: counters.traffic.fetched.load(Ordering::Relaxed),
        written_bytes,
        resumed_downloads: counters.traffic.resumes.load(Ordering::Relaxed),
    })
}

/// Result of [`fetch_image`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streamed {
    /// Size of the image in bytes.
    pub logical_bytes: u64,
    /// Bytes fetched, index and repeated parts included.
    pub fetched_bytes: u64,
    /// Bytes of the data chunks.
    pub written_bytes: u64,
    /// Number of downloads that resumed after an interruption.
    pub resumed_downloads: u32,
}

fn fetch_index(
    source: &dyn ChunkSource,
    image: &ImageDigest,
    budget: u64,
    counters: &Counters,
    cancel: &AtomicBool,
) -> Result<Index, WriteError> {
    // The encoded index and the parsed index are in memory at the same time.
    let limit = (budget / 3).min(MAX_INDEX_BYTES as u64) as usize;
    let control = FetchControl {
        cancel,
        fetched: &counters.traffic.fetched,
        resumes: &counters.traffic.resumes,
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
    chunks: Chunks<'a>,
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
    fn written(&self, begun: Instant) -> Result<Written, WriteError> {
        let outcome = self.write()?;
        let traffic = &self.counters.traffic;
        Ok(Written {
            logical_bytes: self.index.logical_size(),
            fetched_bytes: traffic.fetched.load(Ordering::Relaxed),
            written_bytes: self.counters.written.load(Ordering::Relaxed),
            zero_method: outcome.zero_method,
            zeros_skipped: !matches!(outcome.zero_method, ZeroMethod::Written | ZeroMethod::NoZeros),
            verified_whole_disk: self.options.verify_whole_disk,
            duration: begun.elapsed(),
            resumed_downloads: traffic.resumes.load(Ordering::Relaxed),
            io_uring: outcome.method == Method::IoUring,
            direct_io: self.target.is_direct(),
            threads: self.plan.threads,
            memory_bytes: self.plan.memory_bytes(self.index),
        })
    }

    fn write(&self) -> Result<Outcome, WriteError> {
        let failure = Failure::default();
        let shared = self.shared(&failure)?;
        let mut reporter = Reporter::new(self.progress, self.counters, self.index.logical_size());
        self.check_cancel()?;
        self.target.wipe_ends(self.index.logical_size())?;
        let last = self.index.chunk_count();
        reporter.step(Step::Writing);
        match self.chunks {
            Chunks::Fetched(_) => {
                self.in_parallel(&shared, &Cursor::new(self.index, 1, last), work::run, &mut reporter)?;
            }
            Chunks::Arriving(arrivals) => {
                let zeros = Cursor::zeros(self.index, 1, last);
                self.in_parallel(&shared, &zeros, work::run_arrivals, &mut reporter)?;
                arrivals.check_complete()?;
            }
        }
        let trusted = matches!(
            shared.zero_method,
            ZeroMethod::Written | ZeroMethod::NoZeros | ZeroMethod::FreshFile
        );
        if !trusted && !readback::samples_are_zero(&shared)? {
            self.write_missing_zeros(&shared, &mut reporter)?;
        }
        reporter.step(Step::Flushing);
        self.target.flush()?;
        let finished = self.finish(&shared, &mut reporter);
        if finished.is_err() {
            // An unverified disk must not boot. The original error is the one to report.
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

    /// Writes the first chunk and verifies the whole disk if requested.
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
            // Through the page cache a write is a copy, so there is no wait.
            (IoMode::Auto, false) | (IoMode::Pwrite, _) => Method::Pwrite,
        };
        let probe = WriteQueue::new(self.target.blocks(), wanted, 1, 1, None).map_err(setup("write buffers"))?;
        let has_zeros = self.index.data().len() < self.index.chunk_count() as usize;
        Ok(Shared {
            index: self.index,
            chunks: self.chunks,
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

    /// Writes the zeros: the drive reported that it made them, but did not.
    fn write_missing_zeros(&self, shared: &Shared<'_>, reporter: &mut Reporter<'_>) -> Result<(), WriteError> {
        shared.zeros_by_writing.store(true, Ordering::Relaxed);
        // The ranges between data chunks are zero.
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

    /// Runs `run` in every thread until the end of the cursor, and reports progress meanwhile.
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
            while all_done.recv_timeout(progress::REPORT_PERIOD) == Err(RecvTimeoutError::Timeout) {
                reporter.report();
            }
        });
        reporter.report();
        shared.failure.take().map_or(Ok(()), Err)
    }
}
