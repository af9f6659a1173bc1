//! The list of an image's chunks in canonical bytes: equal content gives equal bytes, and so the same name.
//!
//! `docs/image-format.md` describes the layout. [`Index::parse`] accepts untrusted bytes: it limits its allocations by the
//! size of the input and accepts only the canonical encoding of an index.

use std::sync::OnceLock;

use crate::digest::{ChunkDigest, ImageDigest, Sha256};
use crate::format::Format;

/// Size of every chunk in bytes. Only the last chunk may be shorter: it ends with the image.
pub const CHUNK_SIZE: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u8 = 22;

/// Largest disk of an index, in bytes.
pub const MAX_LOGICAL_SIZE: u64 = 64 << 40;
/// Largest accepted index, in bytes.
pub const MAX_INDEX_BYTES: usize = 256 << 20;
/// The size of a disk is a multiple of this, in bytes.
pub const SECTOR: u64 = 512;

const MAGIC: [u8; 8] = *b"RWIMAGE\0";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 56;

/// Why bytes are not a valid index.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The index exceeds [`MAX_INDEX_BYTES`].
    #[error("the index would be {0} bytes long; the limit is 256 MiB")]
    TooLong(u64),
    /// The length differs from the length that the header states.
    #[error("the index is {found} bytes long, expected {expected}")]
    Length {
        /// Bytes required by header and bitmap.
        expected: u64,
        /// Actual bytes.
        found: u64,
    },
    /// The file is of another kind.
    #[error("this is not an image index: the magic number is missing")]
    Magic,
    /// A newer release created the index.
    #[error("the index has format version {0}; this release reads version 1")]
    Version(u16),
    /// The chunks have another size.
    #[error("the index has chunks of 2^{0} bytes; this release reads 2^22")]
    ChunkBits(u8),
    /// The number of the source format is unknown.
    #[error("the index names the unknown source format {0}")]
    Format(u8),
    /// The size is zero, not a whole number of sectors, or more than 64 TiB.
    #[error("the image has {0} bytes: the size must be a multiple of 512 bytes, from 512 bytes to 64 TiB")]
    LogicalSize(u64),
    /// Bits that must be zero are set.
    #[error("the index is not canonical: reserved bits are set")]
    Reserved,
    /// A chunk of zeros is listed as a data chunk.
    #[error("the index is not canonical: chunk {0} is all zeros but listed as data")]
    ZeroAsData(u32),
    /// A chunk number does not ascend, or lies beyond the end.
    #[error("chunk {0} is out of order or beyond the image's end")]
    Order(u32),
    /// The index has another digest than the requested one.
    #[error("the index's digest is {found}, expected {expected}")]
    Digest {
        /// Requested name.
        expected: ImageDigest,
        /// BLAKE3 of the received bytes.
        found: ImageDigest,
    },
}

/// A chunk with at least one byte that is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataChunk {
    /// Position: the chunk starts `number` × 4 MiB into the image.
    pub number: u32,
    /// Name of the chunk.
    pub digest: ChunkDigest,
}

/// An image version: its length, its source, and its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    logical_size: u64,
    source_format: Format,
    source_sha256: Sha256,
    data: Vec<DataChunk>,
}

impl Index {
    /// Creates an index of `data` chunks with ascending numbers. The chunks between them are zero.
    pub fn new(
        logical_size: u64,
        source_format: Format,
        source_sha256: Sha256,
        data: Vec<DataChunk>,
    ) -> Result<Self, IndexError> {
        check_size(logical_size)?;
        let length = encoded_len(logical_size, data.len() as u64);
        if length > MAX_INDEX_BYTES as u64 {
            return Err(IndexError::TooLong(length));
        }
        let index = Self {
            logical_size,
            source_format,
            source_sha256,
            data,
        };
        index.check_chunks()?;
        Ok(index)
    }

    fn check_chunks(&self) -> Result<(), IndexError> {
        let mut least = 0;
        for chunk in &self.data {
            if u64::from(chunk.number) < least || chunk.number >= self.chunk_count() {
                return Err(IndexError::Order(chunk.number));
            }
            if chunk.digest == zero_digest(self.chunk_len(chunk.number)) {
                return Err(IndexError::ZeroAsData(chunk.number));
            }
            least = u64::from(chunk.number) + 1;
        }
        Ok(())
    }

    /// Size of the image's disk in bytes.
    pub fn logical_size(&self) -> u64 {
        self.logical_size
    }

    /// Format of the image's source file.
    pub fn source_format(&self) -> Format {
        self.source_format
    }

    /// SHA-256 of the image's source file.
    pub fn source_sha256(&self) -> Sha256 {
        self.source_sha256
    }

    /// Number of chunks, zero chunks included.
    pub fn chunk_count(&self) -> u32 {
        // At most 2^46 / 2^22 = 2^24.
        self.logical_size.div_ceil(CHUNK_SIZE as u64) as u32
    }

    /// The data chunks in ascending order.
    pub fn data(&self) -> &[DataChunk] {
        &self.data
    }

    /// Length of chunk `number` in bytes.
    pub fn chunk_len(&self, number: u32) -> usize {
        let start = chunk_offset(number);
        self.logical_size.saturating_sub(start).min(CHUNK_SIZE as u64) as usize
    }

    /// Bytes of the image in data chunks.
    pub fn data_bytes(&self) -> u64 {
        self.data.iter().map(|chunk| self.chunk_len(chunk.number) as u64).sum()
    }

    /// Memory of the parsed index in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.data.len() * size_of::<DataChunk>()) as u64
    }

    /// Returns the canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(encoded_len(self.logical_size, self.data.len() as u64) as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.push(CHUNK_BITS);
        bytes.push(self.source_format.number());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.logical_size.to_le_bytes());
        bytes.extend_from_slice(&self.source_sha256.0);
        bytes.resize(HEADER_BYTES + bitmap_len(self.logical_size) as usize, 0);
        for chunk in &self.data {
            bytes[HEADER_BYTES + chunk.number as usize / 8] |= 1 << (chunk.number % 8);
        }
        for chunk in &self.data {
            bytes.extend_from_slice(&chunk.digest.0);
        }
        bytes
    }

    /// Parses an index with an unknown or already verified name. Never panics on any input.
    pub fn parse(bytes: &[u8]) -> Result<Self, IndexError> {
        let found = bytes.len() as u64;
        if bytes.len() > MAX_INDEX_BYTES {
            return Err(IndexError::TooLong(found));
        }
        let short = |expected: u64| IndexError::Length { expected, found };
        let (header, rest) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(short(HEADER_BYTES as u64))?;
        let header = Header::parse(header)?;
        let bitmap_bytes = bitmap_len(header.logical_size);
        let (bitmap, digests) = rest
            .split_at_checked(bitmap_bytes as usize)
            .ok_or(short(HEADER_BYTES as u64 + bitmap_bytes))?;
        let count: u64 = bitmap.iter().map(|byte| u64::from(byte.count_ones())).sum();
        let expected = encoded_len(header.logical_size, count);
        if expected != found {
            return Err(short(expected));
        }
        let numbers = (0..bitmap.len() * 8).filter(|bit| bitmap[bit / 8] & (1 << (bit % 8)) != 0);
        let data = numbers
            .zip(digests.as_chunks::<32>().0)
            .map(|(number, digest)| DataChunk {
                number: number as u32,
                digest: ChunkDigest(*digest),
            })
            .collect();
        let Header {
            logical_size,
            source_format,
            source_sha256,
        } = header;
        let index = Self {
            logical_size,
            source_format,
            source_sha256,
            data,
        };
        match index.check_chunks() {
            // A bit beyond the last chunk: the padding is not zero.
            Err(IndexError::Order(_)) => Err(IndexError::Reserved),
            other => other.map(|()| index),
        }
    }

    /// Parses the index named `digest`. Bytes with another digest are refused before parsing.
    pub fn parse_verified(bytes: &[u8], digest: &ImageDigest) -> Result<Self, IndexError> {
        let found = ImageDigest::of(bytes);
        if found != *digest {
            return Err(IndexError::Digest {
                expected: *digest,
                found,
            });
        }
        Self::parse(bytes)
    }
}

struct Header {
    logical_size: u64,
    source_format: Format,
    source_sha256: Sha256,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, IndexError> {
        if bytes[..8] != MAGIC {
            return Err(IndexError::Magic);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(IndexError::Version(version));
        }
        if bytes[10] != CHUNK_BITS {
            return Err(IndexError::ChunkBits(bytes[10]));
        }
        let source_format = Format::from_number(bytes[11]).ok_or(IndexError::Format(bytes[11]))?;
        if bytes[12..16] != [0; 4] {
            return Err(IndexError::Reserved);
        }
        let mut size = [0; 8];
        size.copy_from_slice(&bytes[16..24]);
        let logical_size = u64::from_le_bytes(size);
        check_size(logical_size)?;
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(&bytes[24..]);
        Ok(Self {
            logical_size,
            source_format,
            source_sha256: Sha256(sha256),
        })
    }
}

fn check_size(logical_size: u64) -> Result<(), IndexError> {
    let fits = (SECTOR..=MAX_LOGICAL_SIZE).contains(&logical_size) && logical_size.is_multiple_of(SECTOR);
    if fits {
        Ok(())
    } else {
        Err(IndexError::LogicalSize(logical_size))
    }
}

fn bitmap_len(logical_size: u64) -> u64 {
    logical_size.div_ceil(CHUNK_SIZE as u64).div_ceil(8)
}

fn encoded_len(logical_size: u64, data_chunks: u64) -> u64 {
    HEADER_BYTES as u64 + bitmap_len(logical_size) + data_chunks * 32
}

/// Offset of chunk `number` in the image, in bytes.
pub fn chunk_offset(number: u32) -> u64 {
    u64::from(number) << CHUNK_BITS
}

/// The digest of `length` zeros. No data chunk may have it.
fn zero_digest(length: usize) -> ChunkDigest {
    static WHOLE: OnceLock<ChunkDigest> = OnceLock::new();
    if length == CHUNK_SIZE {
        *WHOLE.get_or_init(|| ChunkDigest::of(&vec![0; CHUNK_SIZE]))
    } else {
        ChunkDigest::of(&vec![0; length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: u64 = CHUNK_SIZE as u64;

    fn sample() -> Index {
        let data = vec![
            DataChunk {
                number: 0,
                digest: ChunkDigest::of(b"a"),
            },
            DataChunk {
                number: 9,
                digest: ChunkDigest::of(b"b"),
            },
            DataChunk {
                number: 10,
                digest: ChunkDigest::of(b"c"),
            },
        ];
        Index::new(10 * CHUNK + 512, Format::Zstd, Sha256([9; 32]), data).unwrap()
    }

    #[test]
    fn round_trips_and_names_itself() {
        let index = sample();
        let bytes = index.encode();
        assert_eq!(bytes.len(), 56 + 2 + 3 * 32);
        assert_eq!(Index::parse(&bytes), Ok(index.clone()));
        assert_eq!(index.chunk_count(), 11);
        assert_eq!(index.chunk_len(10), 512);
        assert_eq!(index.data_bytes(), 2 * CHUNK + 512);
        let digest = ImageDigest::of(&bytes);
        assert_eq!(Index::parse_verified(&bytes, &digest), Ok(index));
        let other = ImageDigest::of(b"");
        assert!(matches!(
            Index::parse_verified(&bytes, &other),
            Err(IndexError::Digest { .. })
        ));
    }

    #[test]
    fn the_bytes_never_change() {
        // The names of all stored images depend on this value.
        let name = ImageDigest::of(&sample().encode()).to_string();
        assert_eq!(
            name,
            "b3-fd8547ac5a53c4a132fc820f941013c4439c5ee525a1703137e8e0a20a71390d"
        );
    }

    #[test]
    fn refuses_every_other_encoding() {
        let good = sample().encode();
        let cases = [
            (0, b'X', IndexError::Magic),
            (8, 2, IndexError::Version(2)),
            (10, 21, IndexError::ChunkBits(21)),
            (11, 99, IndexError::Format(99)),
            (12, 1, IndexError::Reserved),
            (16, 1, IndexError::LogicalSize(10 * CHUNK + 513)),
            (
                56,
                3,
                IndexError::Length {
                    expected: 186,
                    found: 154,
                },
            ),
        ];
        for (at, value, expected) in cases {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(Index::parse(&bytes), Err(expected), "byte {at}");
        }
        // Moving a chunk beyond the end keeps the length valid.
        let mut bytes = good.clone();
        bytes[57] = 0b1000_0010;
        assert_eq!(Index::parse(&bytes), Err(IndexError::Reserved));
        let mut bytes = good.clone();
        bytes[58..90].copy_from_slice(&zero_digest(CHUNK_SIZE).0);
        assert_eq!(Index::parse(&bytes), Err(IndexError::ZeroAsData(0)));
        let mut bytes = good;
        bytes.push(0);
        assert!(matches!(Index::parse(&bytes), Err(IndexError::Length { .. })));
    }

    #[test]
    fn new_refuses_disorder_and_bad_sizes() {
        let chunk = |number| DataChunk {
            number,
            digest: ChunkDigest::of(b"x"),
        };
        let new = |size, data| Index::new(size, Format::Raw, Sha256([0; 32]), data);
        assert_eq!(new(8 * CHUNK, vec![chunk(3), chunk(3)]), Err(IndexError::Order(3)));
        assert_eq!(new(8 * CHUNK, vec![chunk(8)]), Err(IndexError::Order(8)));
        for size in [0, 1, 513, MAX_LOGICAL_SIZE + 512] {
            assert_eq!(new(size, vec![]), Err(IndexError::LogicalSize(size)));
        }
        assert!(new(MAX_LOGICAL_SIZE, vec![]).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail_but_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Index::parse(&bytes);
        }

        #[test]
        fn any_damage_is_noticed_or_canonical(at in 0usize..154, value: u8, cut in 0usize..154) {
            let mut bytes = sample().encode();
            bytes[at] = value;
            if let Ok(index) = Index::parse(&bytes) {
                prop_assert_eq!(index.encode(), bytes.clone());
            }
            let _ = Index::parse(&bytes[..cut]);
        }

        #[test]
        fn any_header_is_bounded(tail in proptest::collection::vec(any::<u8>(), 44..300)) {
            let mut bytes = sample().encode()[..12].to_vec();
            bytes.extend(tail);
            if let Ok(index) = Index::parse(&bytes) {
                prop_assert_eq!(index.encode(), bytes);
            }
        }
    }
}
