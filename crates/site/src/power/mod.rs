//! Watts at every ancestor, by phase, and under the loss of a feed; heat likewise.
//!
//! All loads are whole milliwatts, rounded up: what is added and taken away again leaves nothing behind. PSUs share a
//! node's load evenly; when a feed is lost, those that live share all of it.
//!
//! - [`capacity_watts`], [`outlet_watts`]: what a domain and an outlet carry.
//! - [`survival`]: which losses a node survives, by its PSU → outlet → feed map.
//! - [`Loads`]: what is drawn from each domain, in the normal state and after the loss of each feed.
//! - [`Ledger`]: reservations, all or nothing, never beyond what is there.
//! - [`headroom`], [`explain`], [`waves`]: reports, and the order to switch machines on in.
//! - [`readings`]: what meters and sensors said, against what was reserved and what things bear.

mod explain;
mod heat;
mod ledger;
mod load;
mod loads;
pub mod readings;
mod refusal;
mod report;
mod staged;
mod survival;

#[cfg(test)]
mod tests;

pub use explain::{Explanation, LossOutcome, PsuPath, Step, explain};
pub use heat::{Heat, HeatLoads, Zone, node_heat, zone_of};
pub use ledger::{Ledger, Reservation};
pub use load::{Load, MilliWatts, milliwatts, watts};
pub use loads::{Loads, Scenario, node_loads};
pub use refusal::Refusal;
pub use report::{Headroom, headroom};
pub use staged::{StartRooms, Waves, power_on_tokens, waves};
pub use survival::survival;

use crate::model::{Phase, Phases, Plug, PowerDomain, Rating, Site};

/// What a domain carries all the time, in watts: √3 × volts × amps × derate with three phases, volts × amps × derate
/// with one.
#[must_use]
pub fn capacity_watts(domain: &PowerDomain) -> f64 {
    let rated = match domain.rating {
        Rating::Watts(watts) => watts,
        Rating::Electrical {
            volts,
            amps,
            phases: Phases::Single,
        } => volts * amps,
        Rating::Electrical {
            volts,
            amps,
            phases: Phases::Three,
        } => 3_f64.sqrt() * volts * amps,
    };
    rated * domain.derate
}

/// What an outlet carries, in watts; `None` where nothing but its PDU limits it. An outlet between a phase and the
/// neutral of a three-phase PDU has 1/√3 of the PDU's volts.
#[must_use]
pub fn outlet_watts(site: &Site, plug: Plug) -> Option<f64> {
    let outlet = site.outlet(plug)?;
    let amps = outlet.amps?;
    match site.domain(plug.pdu).rating {
        Rating::Watts(_) => None,
        Rating::Electrical {
            volts,
            phases: Phases::Single,
            ..
        } => Some(volts * amps),
        Rating::Electrical {
            volts,
            phases: Phases::Three,
            ..
        } => Some(match outlet.phase {
            Phase::All => 3_f64.sqrt() * volts * amps,
            phase if phase.is_to_neutral() => volts / 3_f64.sqrt() * amps,
            _ => volts * amps,
        }),
    }
}
