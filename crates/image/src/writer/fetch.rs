//! Fetches, decodes and verifies chunks, from any source that has the right bytes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::WriteError;
use super::source::{ChunkSource, FetchControl, FetchError, Frame, Object};
use crate::codec::{Decoder, MAX_FRAME_BYTES};
use crate::index::DataChunk;

/// Fetches chunks one at a time.
pub(super) struct Fetcher<'a> {
    source: &'a dyn ChunkSource,
    cancel: &'a AtomicBool,
    fetched: &'a AtomicU64,
    resumes: &'a AtomicU32,
    decoder: Decoder,
    frame: Frame,
}

impl<'a> Fetcher<'a> {
    /// The counters receive the fetched bytes and the resumed downloads. `cancel` stops a fetch soon.
    pub(super) fn new(
        source: &'a dyn ChunkSource,
        cancel: &'a AtomicBool,
        (fetched, resumes): (&'a AtomicU64, &'a AtomicU32),
    ) -> Result<Self, WriteError> {
        let decoder = Decoder::new().map_err(|source| WriteError::Setup {
            what: "the decoder",
            source,
        })?;
        Ok(Self {
            source,
            cancel,
            fetched,
            resumes,
            decoder,
            frame: Frame::new(MAX_FRAME_BYTES),
        })
    }

    /// Fills the buffer with the verified chunk.
    pub(super) fn fetch(&mut self, chunk: &DataChunk, buffer: &mut [u8]) -> Result<(), WriteError> {
        let control = FetchControl {
            cancel: self.cancel,
            fetched: self.fetched,
            resumes: self.resumes,
        };
        let mut spliced_before = false;
        loop {
            let got = self
                .source
                .fetch(&Object::Chunk(chunk.digest), &mut self.frame, &control);
            let got = got.map_err(|error| match error {
                FetchError::Cancelled => WriteError::Cancelled,
                other => WriteError::Download(other),
            })?;
            let Err(source) = self.decoder.decode(self.frame.filled(), &chunk.digest, buffer) else {
                return Ok(());
            };
            if got.resumed && !spliced_before {
                // The two parts may come from different packings of the chunk; neither source is at fault.
                spliced_before = true;
                continue;
            }
            let reason = format_args!("chunk {}: {source}", chunk.digest);
            if !self.source.reject(got.origin, &reason) {
                return Err(WriteError::Chunk {
                    chunk: chunk.digest,
                    number: chunk.number,
                    source,
                });
            }
        }
    }
}
