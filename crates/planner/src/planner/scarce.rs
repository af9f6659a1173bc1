//! What nodes draw from the power domains that are short.

use std::collections::HashMap;

use rackwright_site::model::{DomainId, Rating, Site};
use rackwright_site::power::{Load, Loads, Refusal, Reservation, Scenario, node_loads, watts};

/// The power domains that are short, each in a state of the feeds.
#[derive(Debug, Default)]
pub(super) struct Scarce {
    limits: HashMap<(DomainId, Scenario), Vec<Limit>>,
    scenarios: Vec<Scenario>,
}

/// A limit of a domain.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    /// The capacity, in watts.
    Watts(f64),
    /// The index of a line, and the amps that it carries at these volts.
    Line { at: usize, volts: f64, amps: f64 },
}

/// A relative excess up to this is rounding.
const ROUNDING: f64 = 1e-6;

impl Limit {
    /// What a load takes, at least: the currents of a line add as vectors, so only their parts in phase with the line
    /// add as numbers.
    fn taken(self, load: Load) -> f64 {
        match self {
            Self::Watts(_) => watts(load.total),
            Self::Line { at, volts, .. } => {
                let own = watts(load.to_neutral[at]) * 3_f64.sqrt();
                let between = watts(load.between[at] + load.between[(at + 2) % 3]) * 0.75_f64.sqrt();
                (own + between) / volts
            }
        }
    }

    fn limit(self) -> f64 {
        match self {
            Self::Watts(limit) | Self::Line { amps: limit, .. } => limit,
        }
    }

    /// The part of the limit that a load takes.
    fn part(self, load: Load) -> f64 {
        let limit = self.limit();
        if limit > 0.0 { self.taken(load) / limit } else { 0.0 }
    }
}

impl Scarce {
    /// Adds the limit that a refusal names. False: the limit is known, or is no limit of power.
    pub fn add(&mut self, site: &Site, refusal: &Refusal) -> bool {
        let (domain, scenario, limit) = match *refusal {
            Refusal::Power {
                domain,
                scenario,
                capacity_watts,
                ..
            } => (domain, scenario, Limit::Watts(capacity_watts)),
            Refusal::Phase {
                domain,
                scenario,
                line,
                limit_amps,
                ..
            } => {
                let Rating::Electrical { volts, .. } = site.domain(domain).rating else {
                    return false;
                };
                let at = usize::from(line.clamp(1, 3)) - 1;
                let amps = limit_amps;
                (domain, scenario, Limit::Line { at, volts, amps })
            }
            _ => return false,
        };
        let limits = self.limits.entry((domain, scenario)).or_default();
        if limits.contains(&limit) {
            return false;
        }
        limits.push(limit);
        if !self.scenarios.contains(&scenario) {
            self.scenarios.push(scenario);
        }
        true
    }

    /// The sum of the parts of all limits that a node takes.
    pub fn cost(&self, site: &Site, one: &Reservation) -> f64 {
        let mut sum = 0.0;
        for &scenario in &self.scenarios {
            for (domain, load) in node_loads(site, one.node, one.watts, one.redundancy, scenario) {
                let limits = self.limits.get(&(domain, scenario)).into_iter().flatten();
                sum += limits.map(|limit| limit.part(load)).sum::<f64>();
            }
        }
        sum
    }

    /// An upper bound on the number of these nodes that fit together next to the present loads: for each limit alone,
    /// the nodes that take least of it. The nodes must make every limit count, such as by a promise.
    pub fn at_most(&self, site: &Site, loads: &Loads, nodes: &[Reservation]) -> usize {
        let mut bound = nodes.len();
        for &scenario in &self.scenarios {
            // By limit: what each node takes.
            let mut taken: HashMap<(DomainId, usize), Vec<f64>> = HashMap::new();
            for one in nodes {
                for (domain, load) in node_loads(site, one.node, one.watts, one.redundancy, scenario) {
                    let limits = self.limits.get(&(domain, scenario)).into_iter().flatten();
                    for (at, limit) in limits.enumerate() {
                        taken.entry((domain, at)).or_default().push(limit.taken(load));
                    }
                }
            }
            for ((domain, at), mut of_nodes) in taken {
                let limit = self.limits[&(domain, scenario)][at];
                let elsewhere = nodes.len() - of_nodes.len();
                of_nodes.sort_by(f64::total_cmp);
                let mut sum = limit.taken(loads.at(domain, scenario));
                let fitting = of_nodes.iter().take_while(|taken| {
                    sum += **taken;
                    sum <= limit.limit() * (1.0 + 2.0 * ROUNDING)
                });
                bound = bound.min(elsewhere + fitting.count());
            }
        }
        bound
    }
}
