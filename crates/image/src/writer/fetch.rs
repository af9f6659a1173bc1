//! Fetches, decodes and verifies chunks, from any source that has the right bytes.

use std::sync::atomic::AtomicBool;

use super::WriteError;
use super::source::{ChunkSource, FetchControl, FetchError, Frame, Object, Traffic};
use crate::codec::{Decoder, MAX_FRAME_BYTES};
use crate::index::DataChunk;

/// Fetches chunks one at a time.
pub(super) struct Fetcher<'a> {
    source: &'a dyn ChunkSource,
    cancel: &'a AtomicBool,
    traffic: &'a Traffic,
    decoder: Decoder,
    frame: Frame,
}

impl<'a> Fetcher<'a> {
    /// The counters receive the fetched bytes and the resumed downloads. `cancel` stops a fetch soon.
    pub(super) fn new(
        source: &'a dyn ChunkSource,
        cancel: &'a AtomicBool,
        traffic: &'a Traffic,
    ) -> Result<Self, WriteError> {
        let decoder = Decoder::new().map_err(|source| WriteError::Setup {
            what: "the decoder",
            source,
        })?;
        Ok(Self {
            source,
            cancel,
            traffic,
            decoder,
            frame: Frame::new(MAX_FRAME_BYTES),
        })
    }

    /// Fills the buffer with the verified chunk.
    pub(super) fn fetch(&mut self, chunk: &DataChunk, buffer: &mut [u8]) -> Result<(), WriteError> {
        let control = FetchControl {
            cancel: self.cancel,
            fetched: &self.traffic.fetched,
            resumes: &self.traffic.resumes,
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
