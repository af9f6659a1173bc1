//! A simulated hall: its agents and its claim table decide with the code of this crate, on a simulated network.
//!
//! Time goes in steps of an eighth of the time that one chunk takes on a link. Each agent sends at most one eighth of a
//! chunk in a step and receives at most one; the origin has one such link. A message to a peer takes one step, one to the
//! control plane two. A switch keeps up to two eighths for a receiver; beyond that the sender serves its next receiver in
//! the meantime, as TCP does. Not simulated: loss, the ramp of a connection's rate, and switches that carry less than the
//! sum of their links.

mod figures;
mod traffic;
mod world;

pub use figures::{Figures, picture};
pub use world::run;

use crate::Span;

/// Steps of the time that one chunk takes on a link.
pub const STEPS_PER_CHUNK: u32 = 8;
/// Time that one chunk takes on a link: 4 MiB at 1 Gb/s.
pub const CHUNK_TIME: Span = Span::micros(33_600);

/// The simulated hall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hall {
    /// Number of agents.
    pub agents: u32,
    /// Number of chunks of the image.
    pub chunks: u32,
    /// Number of agents of a rack.
    pub rack: u32,
    /// Percentage of agents at a quarter of the speed.
    pub slow_percent: u32,
    /// Percentage of agents that die midway.
    pub die_percent: u32,
    /// Starts are spread at random over this many times the time of one agent.
    pub spread: u32,
    /// The claim table is lost when this percentage of the image's time has passed; 0: never.
    pub lose_table_percent: u32,
    /// Peers that answer with wrong bytes, of 1,000.
    pub liars_per_mille: u32,
    /// The seed of everything that is random.
    pub seed: u64,
}

impl Hall {
    /// A hall without faults, in which all agents start at once.
    #[must_use]
    pub fn plain(agents: u32, chunks: u32, rack: u32) -> Self {
        Self {
            agents,
            chunks,
            rack,
            slow_percent: 0,
            die_percent: 0,
            spread: 0,
            lose_table_percent: 0,
            liars_per_mille: 0,
            seed: 1,
        }
    }

    /// The least time that any way needs, by the time that one agent needs: (k - 1 + ⌈log2(n + 1)⌉) / k.
    #[must_use]
    pub fn bound(&self) -> f64 {
        let rounds = (u64::from(self.agents) + 1).next_power_of_two().trailing_zeros();
        f64::from(self.chunks - 1 + rounds) / f64::from(self.chunks)
    }
}
