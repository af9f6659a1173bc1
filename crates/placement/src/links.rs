//! Links as bits.
//!
//! Link `k` of `parallel` to peer `p` of `peers` is bit `k × peers + p`. Links to one peer are alike, so only the
//! number of free links matters. The *counted* form of a mask has, for each peer with `n` bits, the first `n` bits set.
//! The intersection of counted masks gives the minimum count for each peer, so parallel links need no separate rule.

/// A set of links, or of hosts of a unit.
pub type Mask = u128;

/// The `n` lowest bits.
#[must_use]
pub fn low(n: u32) -> Mask {
    if n >= 128 { Mask::MAX } else { (1 << n) - 1 }
}

/// The wiring from a switch to its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wiring {
    /// Number of peers.
    pub peers: u32,
    /// Number of links to each peer.
    pub parallel: u32,
}

impl Wiring {
    /// The mask of all links.
    #[must_use]
    pub fn all(self) -> Mask {
        low(self.peers * self.parallel)
    }

    /// The mask of the links to `peer`.
    #[must_use]
    pub fn to(self, peer: u32) -> Mask {
        (0..self.parallel).fold(0, |mask, k| mask | 1 << (k * self.peers + peer))
    }

    /// The number of links in `mask` to `peer`.
    #[must_use]
    pub fn count(self, mask: Mask, peer: u32) -> u32 {
        (mask & self.to(peer)).count_ones()
    }

    /// The first `n` links to `peer` in counted form.
    #[must_use]
    pub fn first(self, peer: u32, n: u32) -> Mask {
        (0..n.min(self.parallel)).fold(0, |mask, k| mask | 1 << (k * self.peers + peer))
    }

    /// The counted form of `mask`.
    #[must_use]
    pub fn counted(self, mask: Mask) -> Mask {
        if self.parallel == 1 {
            return mask;
        }
        (0..self.peers).fold(0, |out, p| out | self.first(p, self.count(mask, p)))
    }

    /// For each peer, as many links of `free` as `wanted` (counted) has.
    #[must_use]
    pub fn pick(self, free: Mask, wanted: Mask) -> Mask {
        if self.parallel == 1 {
            return free & wanted;
        }
        (0..self.peers).fold(0, |out, p| out | lowest(free & self.to(p), self.count(wanted, p)))
    }
}

/// The `n` lowest set bits of `mask`.
#[must_use]
pub fn lowest(mask: Mask, n: u32) -> Mask {
    let (mut left, mut out) = (mask, 0);
    for _ in 0..n {
        let bit = left & left.wrapping_neg();
        out |= bit;
        left ^= bit;
    }
    out
}

/// The indices of the set bits of `mask`, lowest first.
pub fn bits(mask: Mask) -> impl Iterator<Item = u32> {
    let mut left = mask;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let at = left.trailing_zeros();
        left &= left - 1;
        Some(at)
    })
}

/// A mask as hexadecimal text, because JSON numbers do not hold 128 bits reliably.
pub(super) mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Mask;

    pub fn serialize<S: Serializer>(mask: &Mask, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{mask:#x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Mask, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        Mask::from_str_radix(digits, 16).map_err(|_| D::Error::custom("a mask is 0x and up to 32 hexadecimal digits"))
    }
}
