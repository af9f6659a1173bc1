//! A queue of writes: several in flight with io_uring while the next buffers are filled, or one at a time with `pwrite`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use io_uring::{IoUring, Probe, opcode, types};

use super::AlignedBuf;

/// System call for writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// Several writes in flight.
    IoUring,
    /// One write at a time.
    Pwrite,
}

/// Source of the bytes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Slot,
    Zeros,
}

#[derive(Debug, Clone, Copy)]
struct Op {
    source: Source,
    offset: u64,
    len: usize,
    done: usize,
}

struct Slot {
    buffer: AlignedBuf,
    op: Option<Op>,
}

/// Writes to one file from its own buffers. Each thread has its own queue.
///
/// Invariant: a slot with an `op` is lent to the kernel. Its buffer is neither read, written nor unmapped here until the
/// kernel has reported the end of the operation.
pub(crate) struct WriteQueue<'file> {
    file: &'file File,
    ring: Option<IoUring>,
    slots: Vec<Slot>,
    zeros: Option<Arc<AlignedBuf>>,
    written: u64,
}

impl<'file> WriteQueue<'file> {
    /// Creates a queue of `depth` buffers of `buffer_bytes`. `zeros` must contain zeros; [`Self::submit_zeros`] needs and
    /// writes it. If io_uring is missing or forbidden, the queue uses `pwrite`.
    pub(crate) fn new(
        file: &'file File,
        method: Method,
        depth: usize,
        buffer_bytes: usize,
        zeros: Option<Arc<AlignedBuf>>,
    ) -> io::Result<Self> {
        let ring = match method {
            Method::IoUring => new_ring(depth as u32),
            Method::Pwrite => None,
        };
        let depth = if ring.is_some() { depth } else { 1 };
        let mut slots = Vec::with_capacity(depth);
        for _ in 0..depth {
            slots.push(Slot {
                buffer: AlignedBuf::new(buffer_bytes)?,
                op: None,
            });
        }
        Ok(Self {
            file,
            ring,
            slots,
            zeros,
            written: 0,
        })
    }

    /// The method in use.
    pub(crate) fn method(&self) -> Method {
        if self.ring.is_some() {
            Method::IoUring
        } else {
            Method::Pwrite
        }
    }

    /// Returns the bytes written since the last call.
    pub(crate) fn take_written(&mut self) -> u64 {
        std::mem::take(&mut self.written)
    }

    /// Returns a free buffer. Waits for the end of a write if there is none.
    pub(crate) fn acquire(&mut self) -> io::Result<usize> {
        loop {
            self.reap()?;
            if let Some(free) = self.slots.iter().position(|slot| slot.op.is_none()) {
                return Ok(free);
            }
            self.wait()?;
        }
    }

    /// Returns the bytes of a free buffer.
    ///
    /// # Panics
    /// If the buffer is being written. Fill only buffers from [`Self::acquire`].
    pub(crate) fn buffer(&mut self, slot: usize) -> &mut [u8] {
        let slot = &mut self.slots[slot];
        assert!(slot.op.is_none(), "a buffer that is being written must not be filled");
        &mut slot.buffer
    }

    /// Exchanges a free buffer for `other`, which has the same length.
    ///
    /// # Panics
    /// If the buffer is being written, or has another length.
    pub(crate) fn exchange(&mut self, slot: usize, other: &mut AlignedBuf) {
        let slot = &mut self.slots[slot];
        assert!(
            slot.op.is_none(),
            "a buffer that is being written must not be exchanged"
        );
        assert_eq!(slot.buffer.len(), other.len(), "buffers of one length are exchanged");
        std::mem::swap(&mut slot.buffer, other);
    }

    /// Writes the first `len` bytes of a buffer to `offset`. The buffer becomes free when the write has ended.
    pub(crate) fn submit(&mut self, slot: usize, len: usize, offset: u64) -> io::Result<()> {
        self.start(
            slot,
            Op {
                source: Source::Slot,
                offset,
                len,
                done: 0,
            },
        )
    }

    /// Writes `len` zeros to `offset`.
    pub(crate) fn submit_zeros(&mut self, len: usize, offset: u64) -> io::Result<()> {
        let slot = self.acquire()?;
        self.start(
            slot,
            Op {
                source: Source::Zeros,
                offset,
                len,
                done: 0,
            },
        )
    }

    fn source(&self, slot: usize, op: &Op) -> &[u8] {
        let buffer: &[u8] = match (op.source, &self.zeros) {
            (Source::Zeros, Some(zeros)) => zeros,
            _ => &self.slots[slot].buffer,
        };
        &buffer[op.done..op.len]
    }

    fn start(&mut self, slot: usize, op: Op) -> io::Result<()> {
        assert!(self.slots[slot].op.is_none(), "a buffer is written once at a time");
        assert!(
            op.source == Source::Slot || self.zeros.is_some(),
            "a queue without zeros cannot write them"
        );
        if op.len == 0 {
            return Ok(());
        }
        if self.ring.is_none() {
            self.file.write_all_at(self.source(slot, &op), op.offset)?;
            self.written += op.len as u64;
            return Ok(());
        }
        self.push(slot, op)
    }

    fn push(&mut self, slot: usize, op: Op) -> io::Result<()> {
        let bytes = self.source(slot, &op);
        let (start, len) = (bytes.as_ptr(), bytes.len() as u32);
        let fd = types::Fd(self.file.as_raw_fd());
        let offset = op.offset + op.done as u64;
        let entry = opcode::Write::new(fd, start, len).offset(offset).build();
        let Some(ring) = &mut self.ring else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // SAFETY: the bytes lie in a mapping that lives as long as the queue; from here on `op` marks it as lent, and
        // it is not touched until the completion was seen. The file outlives the queue.
        let pushed = unsafe { ring.submission().push(&entry.user_data(slot as u64)) };
        // The ring has an entry for each slot, so it is never full.
        pushed.map_err(io::Error::other)?;
        self.slots[slot].op = Some(op);
        retry_interrupted(|| ring.submit()).map(|_| ())
    }

    /// Processes the writes that have ended.
    fn reap(&mut self) -> io::Result<()> {
        let mut first_error = None;
        while let Some(entry) = self.ring.as_mut().and_then(|ring| ring.completion().next()) {
            let (slot, result) = (entry.user_data() as usize, entry.result());
            let Some(mut op) = self.slots[slot].op.take() else {
                continue;
            };
            match result {
                // EINTR and EAGAIN: no bytes were written; retry.
                code if code == -libc::EINTR || code == -libc::EAGAIN => self.push(slot, op)?,
                code if code < 0 => {
                    first_error.get_or_insert(io::Error::from_raw_os_error(-code));
                }
                0 => {
                    first_error.get_or_insert(io::ErrorKind::WriteZero.into());
                }
                count => {
                    self.written += count as u64;
                    op.done += count as usize;
                    if op.done < op.len {
                        self.push(slot, op)?;
                    }
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    fn in_flight(&self) -> bool {
        self.slots.iter().any(|slot| slot.op.is_some())
    }

    fn wait(&mut self) -> io::Result<()> {
        let Some(ring) = &self.ring else { return Ok(()) };
        retry_interrupted(|| ring.submit_and_wait(1)).map(|_| ())
    }

    /// Waits until all writes have ended.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        self.reap()?;
        while self.in_flight() {
            self.wait()?;
            self.reap()?;
        }
        Ok(())
    }
}

impl Drop for WriteQueue<'_> {
    fn drop(&mut self) {
        // Errors were reported earlier, or concern writes without a waiting caller. Here all writes only need to end.
        for _ in 0..=self.slots.len() * 4 {
            if self.drain().is_ok() {
                break;
            }
        }
        if self.in_flight() {
            // The kernel may still read these buffers, so they are never freed.
            tracing::error!("writes did not end; their buffers are left mapped");
            std::mem::forget(std::mem::take(&mut self.slots));
            std::mem::forget(self.zeros.take());
        }
        drop(self.ring.take());
    }
}

/// Returns a ring with the required operations, or `None`.
fn new_ring(entries: u32) -> Option<IoUring> {
    // The kernel processes completions only when this thread enters it, which saves interrupts (Linux 6.1).
    let modern = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries);
    let ring = modern.or_else(|_| IoUring::new(entries)).ok()?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).ok()?;
    probe.is_supported(opcode::Write::CODE).then_some(ring)
}

fn retry_interrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_pattern(method: Method) -> (Method, Vec<u8>) {
        let file = tempfile::tempfile().unwrap();
        let zeros = Arc::new(AlignedBuf::new(4096).unwrap());
        file.write_all_at(&[0xff; 8 * 4096], 0).unwrap();
        let mut queue = WriteQueue::new(&file, method, 2, 4096, Some(zeros)).unwrap();
        for number in 0..8u8 {
            if number == 5 {
                queue.submit_zeros(4096, 5 * 4096).unwrap();
                continue;
            }
            let slot = queue.acquire().unwrap();
            if number == 6 {
                let mut other = AlignedBuf::new(4096).unwrap();
                other.fill(7);
                queue.exchange(slot, &mut other);
            } else {
                queue.buffer(slot).fill(number + 1);
            }
            queue.submit(slot, 4096, u64::from(number) * 4096).unwrap();
        }
        queue.drain().unwrap();
        assert_eq!(queue.take_written(), 8 * 4096);
        assert_eq!(queue.take_written(), 0);
        let used = queue.method();
        drop(queue);
        let mut content = vec![0; 8 * 4096];
        file.read_exact_at(&mut content, 0).unwrap();
        (used, content)
    }

    #[test]
    fn both_methods_write_the_same() {
        let (used, by_ring) = write_pattern(Method::IoUring);
        assert_eq!(used == Method::IoUring, IoUring::new(2).is_ok());
        let (used, by_pwrite) = write_pattern(Method::Pwrite);
        assert_eq!(used, Method::Pwrite);
        assert!(by_ring == by_pwrite);
        let firsts: Vec<u8> = by_ring.chunks(4096).map(|page| page[4095]).collect();
        assert_eq!(firsts, [1, 2, 3, 4, 5, 0, 7, 8]);
    }

    #[test]
    fn a_failed_write_is_reported_and_the_queue_can_be_dropped() {
        for method in [Method::IoUring, Method::Pwrite] {
            let read_only = File::open("/proc/self/exe").unwrap();
            let mut queue = WriteQueue::new(&read_only, method, 2, 4096, None).unwrap();
            let slot = queue.acquire().unwrap();
            let result = queue.submit(slot, 4096, 0).and_then(|()| queue.drain());
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
    }
}
