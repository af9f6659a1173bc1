//! Sets of chunks.

use crate::chance::Chance;
use crate::units::Chunk;

const WORD: u32 = u64::BITS;

/// A set of the chunks of one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits {
    words: Box<[u64]>,
    chunks: u32,
}

/// Why bytes are no set of chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BitsError {
    /// The number of bytes is not the one that the image's chunks need.
    Length {
        /// Bytes that this number of chunks needs.
        expected: usize,
        /// Bytes that came.
        found: usize,
    },
    /// A bit behind the last chunk is set.
    Unused,
}

impl std::fmt::Display for BitsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length { expected, found } => write!(f, "the set of chunks has {found} bytes, expected {expected}"),
            Self::Unused => f.write_str("the set of chunks names a chunk behind the image's last one"),
        }
    }
}

impl std::error::Error for BitsError {}

impl Bits {
    /// The empty set of an image with this number of chunks.
    #[must_use]
    pub fn new(chunks: u32) -> Self {
        Self {
            words: vec![0; chunks.div_ceil(WORD) as usize].into_boxed_slice(),
            chunks,
        }
    }

    /// All chunks of an image.
    #[must_use]
    pub fn full(chunks: u32) -> Self {
        let mut bits = Self::new(chunks);
        for (number, word) in bits.words.iter_mut().enumerate() {
            let below = chunks - number as u32 * WORD;
            *word = if below >= WORD { u64::MAX } else { (1 << below) - 1 };
        }
        bits
    }

    /// Reads the bytes of [`Bits::to_bytes`], which come from a peer.
    ///
    /// # Errors
    /// The bytes do not fit the number of chunks.
    pub fn from_bytes(chunks: u32, bytes: &[u8]) -> Result<Self, BitsError> {
        let expected = chunks.div_ceil(8) as usize;
        if bytes.len() != expected {
            let found = bytes.len();
            return Err(BitsError::Length { expected, found });
        }
        let mut bits = Self::new(chunks);
        for (number, byte) in bytes.iter().enumerate() {
            bits.words[number / 8] |= u64::from(*byte) << (number % 8 * 8);
        }
        let unused = bits
            .words
            .iter()
            .zip(&Self::full(chunks).words)
            .any(|(own, all)| own & !all != 0);
        if unused { Err(BitsError::Unused) } else { Ok(bits) }
    }

    /// One bit for each chunk, lowest bit first.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes = self.words.iter().flat_map(|word| word.to_le_bytes());
        bytes.take(self.chunks.div_ceil(8) as usize).collect()
    }

    /// Number of chunks of the image.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Whether the set has the chunk. A chunk behind the last one is in no set.
    #[must_use]
    pub fn has(&self, chunk: Chunk) -> bool {
        let word = self.words.get((chunk.0 / WORD) as usize);
        word.is_some_and(|word| word >> (chunk.0 % WORD) & 1 == 1)
    }

    /// Adds the chunk. Returns whether it is new. A chunk behind the last one changes nothing.
    pub fn add(&mut self, chunk: Chunk) -> bool {
        if chunk.0 >= self.chunks || self.has(chunk) {
            return false;
        }
        self.words[(chunk.0 / WORD) as usize] |= 1 << (chunk.0 % WORD);
        true
    }

    /// Removes the chunk. Returns whether it was there.
    pub fn remove(&mut self, chunk: Chunk) -> bool {
        let was = self.has(chunk);
        if was {
            self.words[(chunk.0 / WORD) as usize] &= !(1 << (chunk.0 % WORD));
        }
        was
    }

    /// Number of chunks in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Whether the set has every chunk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count() == self.chunks
    }

    /// Whether this set has a chunk that none of the others has.
    #[must_use]
    pub fn any_outside(&self, others: &[&Self]) -> bool {
        (0..self.words.len()).any(|word| self.word_outside(word, others) != 0)
    }

    /// The chunks of this set that none of the others has, in order.
    pub fn outside<'a>(&'a self, others: &'a [&'a Self]) -> impl Iterator<Item = Chunk> + 'a {
        (0..self.words.len()).flat_map(move |number| Ones(self.word_outside(number, others), number as u32 * WORD))
    }

    /// All chunks of this set, in order.
    pub fn iter(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.outside(&[])
    }

    /// One chunk of this set that `other` lacks, by chance: the first at or after a random place.
    pub fn random_outside(&self, other: &Self, chance: &mut Chance) -> Option<Chunk> {
        let count = self.words.len().min(other.words.len());
        let (own, taken) = (&self.words[..count], &other.words[..count]);
        let first = chance.below(count as u32) as usize;
        for number in (first..count).chain(0..first) {
            let word = own[number] & !taken[number];
            if word != 0 {
                let turn = chance.below(WORD);
                let bit = (word.rotate_right(turn).trailing_zeros() + turn) % WORD;
                return Some(Chunk(number as u32 * WORD + bit));
            }
        }
        None
    }

    fn word_outside(&self, number: usize, others: &[&Self]) -> u64 {
        let taken = others
            .iter()
            .fold(0, |all, other| all | other.words.get(number).copied().unwrap_or(0));
        self.words[number] & !taken
    }
}

/// The set bits of a word, as chunks.
struct Ones(u64, u32);

impl Iterator for Ones {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(Chunk(self.1 + bit))
    }
}
