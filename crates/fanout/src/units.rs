//! Numbers with their units.

use std::fmt;

/// A point in time: microseconds since a start that the caller chooses, and never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

/// A length of time in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Moment {
    /// Microseconds after the start.
    #[must_use]
    pub const fn micros(micros: u64) -> Self {
        Self(micros)
    }

    /// This moment and `span`; the last moment that there is, if the sum has no number.
    #[must_use]
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The time from `earlier` to this moment; nothing if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Microseconds since the start.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub const fn micros(micros: u64) -> Self {
        Self(micros)
    }

    #[must_use]
    pub const fn millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Number of microseconds.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// `factor` times this span.
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// This span and another.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// A moving average with the weight 1/8 for `next`; `next` itself, if there is no average yet.
    #[must_use]
    pub const fn averaged(self, next: Self) -> Self {
        if self.0 == 0 {
            next
        } else {
            Self((self.0 / 8).saturating_mul(7).saturating_add(next.0 / 8))
        }
    }
}

/// The number of a chunk with data in the image's index, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chunk(pub u32);

/// An agent with a job for the image, in the numbering of the claim table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentNo(pub u32);

/// A rack, in the numbering of the claim table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RackNo(pub u32);

/// Another agent of the same rack, in the numbering of one download.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerNo(pub u16);

/// The source, outside the rack, of a chunk with a granted claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outside {
    /// The image servers.
    Origin,
    /// An agent of another rack.
    Agent(AgentNo),
}

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {}", self.0)
    }
}
