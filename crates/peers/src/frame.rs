//! Frames that are right: their content was compared with the image's index.

use std::io;
use std::sync::Arc;

use rackwright_fanout::Chunk;
use rackwright_image::codec::{DecodeError, Decoder, check_declared};
use rackwright_image::{ChunkDigest, Index};

/// A packed chunk with the content that the index names. Only [`FrameCheck::open`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedFrame {
    pub(crate) chunk: Chunk,
    pub(crate) bytes: Vec<u8>,
}

impl VerifiedFrame {
    /// Which chunk of the image that is.
    #[must_use]
    pub fn chunk(&self) -> Chunk {
        self.chunk
    }

    /// The packed bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Why a frame is not used.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The image has no such chunk.
    #[error("{chunk} is not among the {chunks} chunks of the image")]
    NoChunk {
        chunk: Chunk,
        /// Chunks with data in the image's index.
        chunks: usize,
    },
    /// The buffer has not the length of the chunk.
    #[error("{chunk} has {expected} bytes, but the buffer for it has {found}")]
    Buffer {
        chunk: Chunk,
        /// Length of the chunk in bytes.
        expected: usize,
        /// Length of the buffer in bytes.
        found: usize,
    },
    /// The frame does not hold the chunk.
    #[error("{chunk}, {digest}: {source}")]
    Wrong {
        chunk: Chunk,
        /// Its name in the index.
        digest: ChunkDigest,
        /// What is wrong.
        source: DecodeError,
    },
}

/// Opens frames of one image, and compares their content with its index. Each thread needs one of its own.
pub struct FrameCheck {
    index: Arc<Index>,
    decoder: Decoder,
}

impl FrameCheck {
    /// A check for the image with this index, which the caller has verified.
    ///
    /// # Errors
    /// There is no memory for the decoder, which needs about 160 KiB.
    pub fn new(index: Arc<Index>) -> io::Result<Self> {
        let decoder = Decoder::new()?;
        Ok(Self { index, decoder })
    }

    /// Length of a chunk in bytes. `None`: the image has no such chunk.
    #[must_use]
    pub fn chunk_len(&self, chunk: Chunk) -> Option<usize> {
        let data = self.index.data().get(chunk.0 as usize)?;
        Some(self.index.chunk_len(data.number))
    }

    /// Fills `data` with the chunk. The size that the frame declares is compared first, then the frame is decoded, then the
    /// digest is compared. After an error the content of `data` is not to be used.
    ///
    /// # Errors
    /// [`FrameError`]. With [`FrameError::Wrong`], the agent that sent the frame is at fault.
    pub fn open(&mut self, chunk: Chunk, frame: Vec<u8>, data: &mut [u8]) -> Result<VerifiedFrame, FrameError> {
        let (digest, expected) = self.expected(chunk, data)?;
        check_declared(&frame, expected)
            .and_then(|()| self.decoder.decode(&frame, &digest, data))
            .map_err(|source| FrameError::Wrong { chunk, digest, source })?;
        Ok(VerifiedFrame { chunk, bytes: frame })
    }

    /// Like [`FrameCheck::open`], for a frame of the image servers. They may pack a chunk in other ways, so the frame is
    /// decoded whatever size it declares, within `data`. `None`: the chunk is right, but the frame is not one that other
    /// agents accept.
    ///
    /// # Errors
    /// [`FrameError`]
    pub fn open_own(
        &mut self,
        chunk: Chunk,
        frame: &[u8],
        data: &mut [u8],
    ) -> Result<Option<VerifiedFrame>, FrameError> {
        let (digest, expected) = self.expected(chunk, data)?;
        let decoded = self.decoder.decode(frame, &digest, data);
        decoded.map_err(|source| FrameError::Wrong { chunk, digest, source })?;
        let is_plain = check_declared(frame, expected).is_ok();
        Ok(is_plain.then(|| VerifiedFrame {
            chunk,
            bytes: frame.to_vec(),
        }))
    }

    /// Name and length of a chunk, if `data` has room for exactly that.
    fn expected(&self, chunk: Chunk, data: &[u8]) -> Result<(ChunkDigest, usize), FrameError> {
        let chunks = self.index.data().len();
        let known = self.index.data().get(chunk.0 as usize);
        let known = known.ok_or(FrameError::NoChunk { chunk, chunks })?;
        let (expected, found) = (self.index.chunk_len(known.number), data.len());
        if found != expected {
            return Err(FrameError::Buffer { chunk, expected, found });
        }
        Ok((known.digest, expected))
    }
}
