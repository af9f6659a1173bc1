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
    #[error("the working PSUs give {live_watts:.0} W of the required {watts:.0} W")]
    PsusTooWeak {
        node: NodeId,
        scenario: Scenario,
        live_watts: f64,
        watts: f64,
    },
    /// The draw of a PSU exceeds the capacity of its outlet.
    #[error("an outlet carries {capacity_watts:.0} W of the required {watts:.0} W")]
    Outlet {
        node: NodeId,
        plug: Plug,
        watts: f64,
        capacity_watts: f64,
    },
    /// The load exceeds the capacity of a domain.
    #[error("a power domain carries {capacity_watts:.0} W of the required {load_watts:.0} W")]
    Power {
        domain: DomainId,
        scenario: Scenario,
        load_watts: f64,
        capacity_watts: f64,
    },
    /// The current exceeds the capacity of a wire of a three-phase domain.
    #[error("L{line} of a power domain carries {limit_amps:.1} A of the required {amps:.1} A")]
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
    #[error("{contracted_watts:.0} W are contracted, {watts:.0} W are required")]
    Contract {
        customer: CustomerId,
        watts: f64,
        contracted_watts: f64,
    },
    /// The heat to air exceeds the rack's limit.
    #[error("a rack can give off {limit_watts:.0} W to air, not {load_watts:.0} W")]
    RackHeat {
        rack: RackId,
        load_watts: f64,
        limit_watts: f64,
    },
    /// The heat to a room's air exceeds the capacity of its CRAHs.
    #[error("the air of a room can take {limit_watts:.0} W, not {load_watts:.0} W")]
    RoomHeat {
        room: RoomId,
        load_watts: f64,
        limit_watts: f64,
    },
    /// The heat exceeds the capacity of the CDUs of a loop.
    #[error("a cooling loop can take {limit_watts:.0} W, not {load_watts:.0} W")]
    LoopHeat {
        cooling_loop: LoopId,
        load_watts: f64,
        limit_watts: f64,
    },
    /// The required flow exceeds the flow of a loop.
    #[error("a cooling loop has a flow of {limit_lpm:.1} L/min, not {load_lpm:.1} L/min")]
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
                let name = &site.customer(customer).name;
                format!("{name} has contracted {}", short(watts, contracted_watts))
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
                let (short, when) = (short(watts, live_watts), when(site, scenario));
                format!("{}: its PSUs give {short}{when}", name(node))
            }
            Self::Outlet {
                node,
                plug,
                watts,
                capacity_watts,
            } => {
                let (outlet, short) = (site.plug_name(plug), short(watts, capacity_watts));
                format!("{}: outlet {outlet} carries {short}", name(node))
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
                let (short, when) = (short(load_watts, capacity_watts), when(site, scenario));
                format!("{} {} carries {short}{when}", domain.kind.name(), domain.name)
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
                format!("L{line} of {kind} {name} carries {limit_amps:.1} A of the required {amps:.1} A{when}")
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
                format!(
                    "rack {} can give off to air {}",
                    site.rack(rack).name,
                    short(load_watts, limit_watts)
                )
            }
            Self::RoomHeat {
                room,
                load_watts,
                limit_watts,
            } => {
                format!(
                    "the air of {} can take {}",
                    site.room(room).name,
                    short(load_watts, limit_watts)
                )
            }
            Self::LoopHeat {
                cooling_loop,
                load_watts,
                limit_watts,
            } => {
                let name = &site.cooling_loop(cooling_loop).name;
                format!("loop {name} can take {}", short(load_watts, limit_watts))
            }
            Self::LoopFlow {
                cooling_loop,
                load_lpm,
                limit_lpm,
            } => {
                let name = &site.cooling_loop(cooling_loop).name;
                format!("loop {name} has a flow of {limit_lpm:.1} L/min of the required {load_lpm:.1} L/min")
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

fn kw(watts: f64) -> String {
    format!("{:.1} kW", watts / 1000.0)
}

/// Such as `15.0 kW of the required 16.0 kW, 1.0 kW short`.
fn short(load: f64, limit: f64) -> String {
    format!("{} of the required {}, {} short", kw(limit), kw(load), kw(load - limit))
}
