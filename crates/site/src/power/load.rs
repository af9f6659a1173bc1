//! A load on the wires of a domain.

use serde::Serialize;

use crate::model::{Phase, PowerDomain};

/// Power in milliwatts.
pub type MilliWatts = i64;

/// Converts watts to milliwatts, rounded up. Huge and negative values are clamped, and NaN becomes 0.
#[must_use]
pub fn milliwatts(watts: f64) -> MilliWatts {
    (watts * 1000.0 - 1e-6).ceil().clamp(0.0, 1e15) as MilliWatts
}

/// Converts milliwatts to watts.
#[must_use]
pub fn watts(milliwatts: MilliWatts) -> f64 {
    milliwatts as f64 / 1000.0
}

/// A load on the wires of a domain. Between two domains, only the sum is passed on if one of them has a single phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Load {
    /// The total. Less than the sum of the wires if a node could draw over one wire or another.
    pub total: MilliWatts,
    /// L1, L2 and L3 against the neutral. A balanced load counts a third on each.
    pub to_neutral: [MilliWatts; 3],
    /// L1-L2, L2-L3 and L3-L1.
    pub between: [MilliWatts; 3],
}

impl Load {
    /// No load.
    pub const NONE: Self = Self {
        total: 0,
        to_neutral: [0; 3],
        between: [0; 3],
    };

    /// A load of `total` on certain wires.
    #[must_use]
    pub fn on(phase: Phase, total: MilliWatts) -> Self {
        let mut load = Self { total, ..Self::NONE };
        match phase {
            Phase::All => load.to_neutral = [total / 3 + i64::from(total % 3 > 0); 3],
            Phase::L1 => load.to_neutral[0] = total,
            Phase::L2 => load.to_neutral[1] = total,
            Phase::L3 => load.to_neutral[2] = total,
            Phase::L1L2 => load.between[0] = total,
            Phase::L2L3 => load.between[1] = total,
            Phase::L3L1 => load.between[2] = total,
        }
        load
    }

    /// The sum of both loads.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        self.total += other.total;
        for i in 0..3 {
            self.to_neutral[i] += other.to_neutral[i];
            self.between[i] += other.between[i];
        }
        self
    }

    /// Subtracts `other`, which must be part of the load.
    #[must_use]
    pub fn minus(mut self, other: Self) -> Self {
        self.total -= other.total;
        for i in 0..3 {
            self.to_neutral[i] -= other.to_neutral[i];
            self.between[i] -= other.between[i];
        }
        self
    }

    /// The load on the parent of a domain with this load.
    #[must_use]
    pub fn above(self, domain: &PowerDomain) -> Self {
        match domain.phase {
            Phase::All => self,
            phase => Self::on(phase, self.total),
        }
    }

    /// Amps in L1, L2 and L3 at this phase-to-phase voltage and a power factor of 1. The current of a load between two
    /// phases leads or lags the voltage of its wire by 30°, so currents add as vectors.
    #[must_use]
    pub fn line_amps(&self, volts: f64) -> [f64; 3] {
        let neutral = volts / 3_f64.sqrt();
        [0, 1, 2].map(|line| {
            let own = watts(self.to_neutral[line]) / neutral;
            let ahead = watts(self.between[line]) / volts;
            let behind = watts(self.between[(line + 2) % 3]) / volts;
            let along = own + (ahead + behind) * 0.75_f64.sqrt();
            let across = (ahead - behind) * 0.5;
            along.hypot(across)
        })
    }

    /// Excess of the most loaded wire over the mean of the three, as a share of the mean. 0 without load.
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        // The result does not depend on the voltage.
        let amps = self.line_amps(1.0);
        let mean = amps.iter().sum::<f64>() / 3.0;
        let most = amps.iter().copied().fold(0.0, f64::max);
        if mean > 0.0 { most / mean - 1.0 } else { 0.0 }
    }
}
