//! Decodes a file to the bytes of a disk.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use liblzma::stream::{CONCATENATED, Stream};

use super::ImportLimits;
use crate::format::Format;
use crate::qcow2::Qcow2;

const READ_BYTES: usize = 256 << 10;

/// Detects the format of a file from its first bytes.
pub(super) fn detect(file: &File) -> io::Result<Format> {
    let mut start = [0; 8];
    let count = file.read_at(&mut start, 0)?;
    Ok(Format::detect(&start[..count]))
}

/// Reads from its own position, independently of other readers of the file, and counts the bytes.
struct Source {
    file: File,
    position: u64,
    count: Arc<AtomicU64>,
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(out, self.position)?;
        self.position += count as u64;
        self.count.store(self.position, Ordering::Relaxed);
        Ok(count)
    }
}

/// Returns a reader of the disk. `count` follows the position in the file, if the format has one.
pub(super) fn open(
    file: &File,
    format: Format,
    limits: &ImportLimits,
    count: &Arc<AtomicU64>,
) -> io::Result<Box<dyn Read>> {
    let source = Source {
        file: file.try_clone()?,
        position: 0,
        count: Arc::clone(count),
    };
    let buffered = |source| BufReader::with_capacity(READ_BYTES, source);
    Ok(match format {
        Format::Raw => Box::new(source),
        Format::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered(source))?;
            // 10 and 31 are zstd's own minimum and maximum.
            decoder.window_log_max(limits.max_decoder_bytes.max(1).ilog2().clamp(10, 31))?;
            Box::new(decoder)
        }
        Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered(source))),
        Format::Xz => {
            let stream = Stream::new_stream_decoder(limits.max_decoder_bytes, CONCATENATED)?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(buffered(source), stream))
        }
        Format::Qcow2 => Box::new(Qcow2::open(file.try_clone()?).map_err(io::Error::other)?),
    })
}
