//! Watts at every ancestor, by phase, and after the loss of a feed; heat likewise.
//!
//! All loads are whole milliwatts, rounded up, so adding and removing a load leaves no rest. PSUs share a node's load
//! evenly. After the loss of a feed, the working PSUs share all of it.
//!
//! - [`capacity_watts`], [`outlet_watts`]: the capacity of a domain and of an outlet.
//! - [`survival`]: the losses that a node survives, by its PSU → outlet → feed map.
//! - [`Loads`]: the load of each domain, in the normal state and after the loss of each feed.
//! - [`Ledger`]: reservations, all or nothing, never above capacity.
//! - [`headroom`], [`explain`], [`waves`]: reports, and the order in which to switch machines on.
//! - [`readings`]: measurements of meters and sensors, compared with reservations and limits.

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

/// Continuous capacity of a domain, in watts: √3 × volts × amps × derate with three phases, volts × amps × derate with
/// one.
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

/// Capacity of an outlet, in watts. `None`: only its PDU limits it. An outlet between a phase and the neutral of a
/// three-phase PDU has 1/√3 of the PDU's voltage.
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
