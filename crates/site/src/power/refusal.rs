//! Reasons for refusals, with the shortfall.

use serde::Serialize;

use super::heat::Zone;
use super::loads::Scenario;
use crate::model::{CustomerId, DomainId, LoopId, NodeId, Plug, RackId, RoomId, Site};

/// Why a reservation is refused.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Refusal {
    /// The node is reserved already.
    #[error("the node is already reserved")]
    Reserved { node: NodeId },
    /// Fewer PSUs work than the node needs.
    #[error("{live} PSUs work, {needed} are needed")]
    TooFewPsus {
        node: NodeId,
        scenario: Scenario,
        live: usize,
        needed: usize,
    },
    /// With one PSU lost, fewer work than the node needs.
    #[error("{live} PSUs work after the loss of one, {needed} are needed")]
    NoSparePsu { node: NodeId, live: usize, needed: usize },
    /// The working PSUs give less than the reservation.
    #[error("the node would need {watts:.0} W, its working PSUs give {live_watts:.0} W")]
    PsusTooWeak {
        node: NodeId,
        scenario: Scenario,
        live_watts: f64,
        watts: f64,
    },
    /// The draw of a PSU exceeds the capacity of its outlet.
    #[error("an outlet would need {watts:.0} W, can carry {capacity_watts:.0} W")]
    Outlet {
        node: NodeId,
        plug: Plug,
        watts: f64,
        capacity_watts: f64,
    },
    /// The load exceeds the capacity of a domain.
    #[error("a power domain would need {load_watts:.0} W, can carry {capacity_watts:.0} W")]
    Power {
        domain: DomainId,
        scenario: Scenario,
        load_watts: f64,
        capacity_watts: f64,
    },
    /// The current exceeds the capacity of a wire of a three-phase domain.
    #[error("L{line} of a power domain would need {amps:.1} A, can carry {limit_amps:.1} A")]
    Phase {
        domain: DomainId,
        scenario: Scenario,
        line: u8,
        amps: f64,
        limit_amps: f64,
    },
    /// Another customer uses a circuit, or the circuit is dedicated to another customer.
    #[error("another customer has a circuit")]
    CircuitTaken { domain: DomainId, by: CustomerId },
    /// Another customer uses a cooling zone, or the zone is dedicated to another customer.
    #[error("another customer has the cooling")]
    CoolingTaken { zone: Zone, by: CustomerId },
    /// The reservations exceed the customer's contract.
    #[error("the customer would need {watts:.0} W, has contracted {contracted_watts:.0} W")]
    Contract {
        customer: CustomerId,
        watts: f64,
        contracted_watts: f64,
    },
    /// The heat to air exceeds the rack's limit.
    #[error("a rack would need to give off {load_watts:.0} W to air, can give off {limit_watts:.0} W")]
    RackHeat {
        rack: RackId,
        load_watts: f64,
        limit_watts: f64,
    },
    /// The heat to a room's air exceeds the capacity of its CRAHs.
    #[error("the air of a room would need to take {load_watts:.0} W, can take {limit_watts:.0} W")]
    RoomHeat {
        room: RoomId,
        load_watts: f64,
        limit_watts: f64,
    },
    /// The heat exceeds the capacity of the CDUs of a loop.
    #[error("a cooling loop would need to take {load_watts:.0} W, can take {limit_watts:.0} W")]
    LoopHeat {
        cooling_loop: LoopId,
        load_watts: f64,
        limit_watts: f64,
    },
    /// The required flow exceeds the flow of a loop.
    #[error("a cooling loop would need a flow of {load_lpm:.1} L/min, has {limit_lpm:.1} L/min")]
    LoopFlow {
        cooling_loop: LoopId,
        load_lpm: f64,
        limit_lpm: f64,
    },
}

impl Refusal {
    /// A sentence with the names of the objects in the way.
    #[must_use]
    pub fn words(&self, site: &Site) -> String {
        match *self {
            Self::Reserved { .. } | Self::TooFewPsus { .. } | Self::NoSparePsu { .. } => self.of_psus(site),
            Self::PsusTooWeak { .. } | Self::Outlet { .. } => self.of_psus(site),
            Self::Power { .. } | Self::Phase { .. } => self.of_domain(site),
            Self::RackHeat { .. } | Self::RoomHeat { .. } => self.of_heat(site),
            Self::LoopHeat { .. } | Self::LoopFlow { .. } => self.of_heat(site),
            Self::CircuitTaken { domain, by } => {
                let (domain, other) = (site.domain(domain), &site.customer(by).name);
                format!("{} {} is shared with {other}", domain.kind.name(), domain.name)
            }
            Self::CoolingTaken { zone, by } => {
                format!("{} is shared with {}", zone.words(site), site.customer(by).name)
            }
            Self::Contract {
                customer,
                watts,
                contracted_watts,
            } => {
                let (needs, has) = kilowatts(watts, contracted_watts);
                let name = &site.customer(customer).name;
                format!("{name} would need {needs}, has contracted {has}")
            }
        }
    }

    fn of_psus(&self, site: &Site) -> String {
        let name = |node| &site.node(node).name;
        match *self {
            Self::TooFewPsus {
                node,
                scenario,
                live,
                needed,
            } => {
                format!(
                    "{}: {live} PSUs work{}, {needed} are needed",
                    name(node),
                    when(site, scenario)
                )
            }
            Self::NoSparePsu { node, live, needed } => {
                format!("{}: {live} PSUs work when one is lost, {needed} are needed", name(node))
            }
            Self::PsusTooWeak {
                node,
                scenario,
                live_watts,
                watts,
            } => {
                let ((needs, has), when) = (kilowatts(watts, live_watts), when(site, scenario));
                format!("{} would need {needs}, its PSUs give {has}{when}", name(node))
            }
            Self::Outlet {
                node,
                plug,
                watts,
                capacity_watts,
            } => {
                let (outlet, (needs, has)) = (site.plug_name(plug), kilowatts(watts, capacity_watts));
                format!("{}: outlet {outlet} would need {needs}, can carry {has}", name(node))
            }
            Self::Reserved { node } => format!("{} is already reserved", name(node)),
            _ => self.to_string(),
        }
    }

    fn of_domain(&self, site: &Site) -> String {
        match *self {
            Self::Power {
                domain,
                scenario,
                load_watts,
                capacity_watts,
            } => {
                let domain = site.domain(domain);
                let ((needs, has), when) = (kilowatts(load_watts, capacity_watts), when(site, scenario));
                let (kind, name) = (domain.kind.name(), &domain.name);
                format!("{kind} {name} would need {needs}, can carry {has}{when}")
            }
            Self::Phase {
                domain,
                scenario,
                line,
                amps,
                limit_amps,
            } => {
                let domain = site.domain(domain);
                let (kind, name, when) = (domain.kind.name(), &domain.name, when(site, scenario));
                let (needs, has) = apart(amps, limit_amps, "A");
                format!("L{line} of {kind} {name} would need {needs}, can carry {has}{when}")
            }
            _ => self.to_string(),
        }
    }

    fn of_heat(&self, site: &Site) -> String {
        match *self {
            Self::RackHeat {
                rack,
                load_watts,
                limit_watts,
            } => {
                let (needs, has) = kilowatts(load_watts, limit_watts);
                let name = &site.rack(rack).name;
                format!("rack {name} would need to give off {needs} to air, can give off {has}")
            }
            Self::RoomHeat {
                room,
                load_watts,
                limit_watts,
            } => {
                let (needs, has) = kilowatts(load_watts, limit_watts);
                let name = &site.room(room).name;
                format!("the air of {name} would need to take {needs}, can take {has}")
            }
            Self::LoopHeat {
                cooling_loop,
                load_watts,
                limit_watts,
            } => {
                let name = &site.cooling_loop(cooling_loop).name;
                let (needs, has) = kilowatts(load_watts, limit_watts);
                format!("loop {name} would need to take {needs}, can take {has}")
            }
            Self::LoopFlow {
                cooling_loop,
                load_lpm,
                limit_lpm,
            } => {
                let name = &site.cooling_loop(cooling_loop).name;
                let (needs, has) = apart(load_lpm, limit_lpm, "L/min");
                format!("loop {name} would need a flow of {needs}, has {has}")
            }
            _ => self.to_string(),
        }
    }
}

fn when(site: &Site, scenario: Scenario) -> String {
    match scenario {
        Scenario::Normal => String::new(),
        Scenario::Lost(feed) => format!(" when feed {} is lost", site.feeds[feed.index()]),
    }
}

/// Watts in kilowatts, as [`apart`] writes them.
fn kilowatts(load: f64, limit: f64) -> (String, String) {
    apart(load / 1000.0, limit / 1000.0, "kW")
}

/// Most digits after the point.
const DIGITS: usize = 4;

/// Two numbers with their unit, with one digit after the point, or with as many as show that they differ.
fn apart(load: f64, limit: f64, unit: &str) -> (String, String) {
    let digits = (1..DIGITS).find(|&digits| format!("{load:.digits$}") != format!("{limit:.digits$}"));
    let digits = digits.unwrap_or(DIGITS);
    (format!("{load:.digits$} {unit}"), format!("{limit:.digits$} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_differ_are_shown_apart() {
        let pair = |load, limit| apart(load, limit, "A");
        let strings = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(pair(2043.41, 2000.0), strings("2043.4 A", "2000.0 A"));
        assert_eq!(pair(2000.01, 2000.0), strings("2000.01 A", "2000.00 A"));
        assert_eq!(pair(2_000.000_001, 2_000.0), strings("2000.0000 A", "2000.0000 A"));
        assert_eq!(kilowatts(16_000.0, 15_000.0), strings("16.0 kW", "15.0 kW"));
    }
}
