//! Chance by a seed: the same seed gives the same decisions.

/// A stream of numbers (xorshift64*). It spreads load; nothing secret depends on it.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The stream of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // One step of splitmix64: neighbouring seeds give unlike streams, and no seed gives the stream of zeros.
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((mixed ^ (mixed >> 31)) | 1)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((high * u64::from(end)) >> 32) as u32
    }

    /// True in `percent` of 100 cases.
    pub fn happens(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}
