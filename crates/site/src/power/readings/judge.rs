//! Decides what is certainly wrong and what is certainly right.

use std::collections::BTreeSet;

use super::{
    Below, BreakerState, CircuitState, CoolingReading, Expected, Finding, FindingKind, Leak, LeakLevel, Measured,
    NodeReading, PduReading, Readings, Severity, Subject, expected, fresh, measured,
};
use crate::model::{CoolingUnitId, DomainId, NodeId, Rating, Site};
use crate::power::capacity_watts;

/// Maximum number of names in a finding's detail.
const NAMED: usize = 8;

/// The thresholds for wrong and right.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Maximum age of a reading, in microseconds. Older readings count as unknown.
    pub fresh_us: i64,
    /// Share above the reservation that is tolerated, because meters are inexact and peaks are short.
    pub over_reservation: f64,
    /// Margin below its limit at which a sensor is right again, in °C.
    pub cooler_celsius: f64,
    /// Share of the capacity below which the load is right again.
    pub relief: f64,
    /// Share of the rated voltage below which a feed counts as lost.
    pub dead_volts: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            fresh_us: 900_000_000,
            over_reservation: 0.05,
            cooler_celsius: 3.0,
            relief: 0.97,
            dead_volts: 0.2,
        }
    }
}

/// The result of a judgement.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Judgement {
    /// What is certainly wrong: one finding per kind and subject.
    pub findings: Vec<Finding>,
    /// What is certainly right.
    pub right: BTreeSet<(FindingKind, Subject)>,
}

/// Judges the readings of a site. `reserved` returns the reservation of a node, in watts.
#[must_use]
pub fn judge(
    site: &Site,
    below: &Below,
    readings: &Readings,
    reserved: &dyn Fn(NodeId) -> Option<f64>,
    rules: &Rules,
    now_us: i64,
) -> Judgement {
    let mut evaluation = Evaluation {
        site,
        below,
        rules,
        found: Judgement::default(),
    };
    for node in site.node_ids() {
        if let Some(read) = fresh(readings.node(node), now_us, rules.fresh_us) {
            evaluation.node(node, read, reserved(node));
        }
    }
    let drawn = measured(site, below, readings, rules, now_us);
    let wanted = expected(site, reserved);
    for id in site.domain_ids() {
        if let Some(read) = fresh(readings.pdu(id), now_us, rules.fresh_us) {
            evaluation.pdu(id, read);
        }
        evaluation.load(id, drawn[id.index()], wanted[id.index()]);
    }
    for unit in site.cooling_unit_ids() {
        if let Some(read) = fresh(readings.cooling_unit(unit), now_us, rules.fresh_us) {
            evaluation.cooling(unit, read);
        }
    }
    evaluation.found
}

struct Evaluation<'a> {
    site: &'a Site,
    below: &'a Below,
    rules: &'a Rules,
    found: Judgement,
}

/// The result of a check.
enum Verdict {
    Wrong(Fault),
    Right,
    Unknown,
}

/// The details of a finding.
struct Fault {
    detail: String,
    measured: Option<f64>,
    limit: Option<f64>,
    severity: Severity,
    holds: bool,
}

impl Fault {
    /// A fault that blocks and cordons.
    fn critical(detail: String) -> Self {
        Self {
            detail,
            measured: None,
            limit: None,
            severity: Severity::Critical,
            holds: true,
        }
    }

    /// A fault that is only reported.
    fn warning(detail: String) -> Self {
        Self {
            severity: Severity::Warning,
            holds: false,
            ..Self::critical(detail)
        }
    }

    fn with(mut self, measured: f64, limit: f64) -> Self {
        (self.measured, self.limit) = (Some(measured), Some(limit));
        self
    }
}

impl Verdict {
    /// The verdict if parts could not be read: wrong stays wrong, but right becomes unknown.
    fn with_gaps(self, has_gaps: bool) -> Self {
        match self {
            Self::Right if has_gaps => Self::Unknown,
            verdict => verdict,
        }
    }
}

impl Evaluation<'_> {
    fn rule(&mut self, kind: FindingKind, subject: Subject, verdict: Verdict, nodes: impl FnOnce() -> Vec<NodeId>) {
        match verdict {
            Verdict::Unknown => {}
            Verdict::Right => {
                self.found.right.insert((kind, subject));
            }
            Verdict::Wrong(fault) => self.found.findings.push(Finding {
                kind,
                subject,
                detail: fault.detail,
                measured: fault.measured,
                limit: fault.limit,
                severity: fault.severity,
                nodes: nodes(),
                blocks: fault.holds,
                cordons: fault.holds || kind == FindingKind::Leak,
            }),
        }
    }

    fn node(&mut self, node: NodeId, read: &NodeReading, reserved: Option<f64>) {
        let subject = Subject::Node(node);
        let own = || vec![node];
        let leaks = leaks(&read.leaks).with_gaps(read.has_gaps);
        self.rule(FindingKind::Leak, subject, leaks, own);
        // A machine that is off often has sensor gaps, and it does not heat up.
        let temperature = self
            .temperature(read)
            .with_gaps(read.has_gaps && read.on != Some(false));
        self.rule(FindingKind::Temperature, subject, temperature, own);
        let supplies = match &read.failed_supplies {
            None => Verdict::Unknown,
            Some(failed) if failed.is_empty() => Verdict::Right,
            Some(failed) => Verdict::Wrong(Fault::warning(named(failed.iter().map(String::as_str)))),
        };
        self.rule(
            FindingKind::PowerSupply,
            subject,
            supplies.with_gaps(read.has_gaps),
            own,
        );
        let limit = reserved.unwrap_or(self.site.sku_of(node).power.max_watts);
        let over = read.watts.map_or(Verdict::Unknown, |watts| self.over(watts, limit));
        self.rule(
            FindingKind::OverReservation,
            subject,
            over.with_gaps(read.has_gaps),
            own,
        );
    }

    fn temperature(&self, read: &NodeReading) -> Verdict {
        let hot = read.sensors.iter().filter(|one| one.celsius >= one.limit_celsius);
        let worst = hot
            .clone()
            .max_by(|a, b| (a.celsius - a.limit_celsius).total_cmp(&(b.celsius - b.limit_celsius)));
        match worst {
            Some(worst) => {
                let detail = named(hot.map(|one| one.name.as_str()));
                Verdict::Wrong(Fault::critical(detail).with(worst.celsius, worst.limit_celsius))
            }
            // A machine that its firmware switched off for heat has no readings until it is switched on again. So the
            // power state "off" clears the finding.
            None if read.on == Some(false) => Verdict::Right,
            None if read.sensors.is_empty() => Verdict::Unknown,
            None => {
                let is_cool = |one: &super::Sensor| one.celsius <= one.limit_celsius - self.rules.cooler_celsius;
                right_if(read.sensors.iter().all(is_cool))
            }
        }
    }

    fn over(&self, watts: f64, limit: f64) -> Verdict {
        if watts > limit * (1.0 + self.rules.over_reservation) {
            return Verdict::Wrong(Fault::warning(String::new()).with(watts, limit));
        }
        right_if(watts <= limit)
    }

    fn pdu(&mut self, id: DomainId, read: &PduReading) {
        let (site, below, subject) = (self.site, self.below, Subject::Domain(id));
        let lost = self.lost(id, &read.mains).with_gaps(read.has_gaps);
        self.rule(FindingKind::FeedLost, subject, lost, || below.nodes(id));
        let is_open = |one: &&CircuitState| matches!(one.breaker, BreakerState::Tripped | BreakerState::Off);
        let open: Vec<&CircuitState> = read.mains.iter().chain(&read.branches).filter(is_open).collect();
        let verdict = if open.is_empty() {
            right_if(are_closed(read))
        } else {
            let how = |one: &&CircuitState| match one.breaker {
                BreakerState::Off => format!("{} was opened", one.name),
                _ => format!("{} tripped", one.name),
            };
            let how: Vec<String> = open.iter().map(how).collect();
            Verdict::Wrong(Fault::critical(named(how.iter().map(String::as_str))))
        };
        self.rule(FindingKind::Breaker, subject, verdict.with_gaps(read.has_gaps), || {
            // If the PDU does not report a branch's outlets, or none of them is in the site, all nodes of the PDU may
            // be affected.
            let is_branch = |one: &CircuitState| read.branches.iter().any(|branch| std::ptr::eq(branch, one));
            let is_known = |one: &CircuitState| is_branch(one) && has_outlet(site, id, &one.outlets);
            if !open.iter().all(|one| is_known(one)) {
                return below.nodes(id);
            }
            let outlets: Vec<String> = open.iter().flat_map(|one| one.outlets.clone()).collect();
            below.at_outlets(site, id, &outlets)
        });
    }

    fn lost(&self, id: DomainId, mains: &[CircuitState]) -> Verdict {
        let Rating::Electrical { volts, .. } = self.site.domain(id).rating else {
            return Verdict::Unknown;
        };
        // Between a phase and the neutral, the voltage is 1/√3.
        let least = volts / 3_f64.sqrt() * self.rules.dead_volts;
        let read: Vec<f64> = mains.iter().filter_map(|one| one.volts).collect();
        let most = read.iter().copied().fold(0.0, f64::max);
        if read.is_empty() || read.len() < mains.len() {
            return Verdict::Unknown;
        }
        if most < least {
            let detail = named(mains.iter().map(|one| one.name.as_str()));
            return Verdict::Wrong(Fault::critical(detail).with(most, least));
        }
        Verdict::Right
    }

    fn load(&mut self, id: DomainId, drawn: Measured, wanted: Expected) {
        let (below, subject) = (self.below, Subject::Domain(id));
        let capacity = capacity_watts(self.site.domain(id));
        // The known load is enough to prove an excess. To prove relief, the whole load must be known.
        let verdict = if drawn.watts > capacity {
            Verdict::Wrong(Fault::critical(String::new()).with(drawn.watts, capacity))
        } else {
            right_if(drawn.is_whole && drawn.watts <= capacity * self.rules.relief)
        };
        self.rule(FindingKind::OverCapacity, subject, verdict, || below.nodes(id));
        let over = match self.over(drawn.watts, wanted.watts) {
            Verdict::Right if !drawn.is_whole => Verdict::Unknown,
            verdict => verdict,
        };
        self.rule(FindingKind::OverReservation, subject, over, || below.nodes(id));
    }

    fn cooling(&mut self, id: CoolingUnitId, read: &CoolingReading) {
        let (site, below, subject) = (self.site, self.below, Subject::Cooling(id));
        let unit = site.cooling_unit(id);
        let has_gaps = read.has_gaps;
        let leaks = leaks(&read.leaks).with_gaps(has_gaps);
        self.rule(FindingKind::Leak, subject, leaks, || below.cooled_by(site, id));
        let supply = match (read.supply_celsius, unit.supply_max_celsius) {
            (Some(celsius), Some(limit)) if celsius > limit => {
                Verdict::Wrong(Fault::critical(String::new()).with(celsius, limit))
            }
            (Some(celsius), Some(limit)) => right_if(celsius <= limit - self.rules.cooler_celsius / 3.0),
            _ => Verdict::Unknown,
        };
        let supply = supply.with_gaps(has_gaps);
        self.rule(FindingKind::Supply, subject, supply, || below.cooled_by(site, id));
        let flow = match (read.flow_lpm, unit.flow_min_lpm) {
            (Some(flow), Some(least)) if flow < least => {
                Verdict::Wrong(Fault::critical(String::new()).with(flow, least))
            }
            (Some(flow), Some(least)) => right_if(flow * self.rules.relief >= least),
            _ => Verdict::Unknown,
        };
        let flow = flow.with_gaps(has_gaps);
        self.rule(FindingKind::Flow, subject, flow, || below.cooled_by(site, id));
    }
}

/// Whether all breakers are closed: every branch reports it, and no main reports otherwise. Many PDUs have no breakers at
/// their mains: the state of these mains is unknown. Without branches, all mains must report it.
fn are_closed(read: &PduReading) -> bool {
    let is_closed = |one: &CircuitState| one.breaker == BreakerState::Closed;
    let may_be = |one: &CircuitState| is_closed(one) || one.breaker == BreakerState::Unknown;
    if read.branches.is_empty() {
        return !read.mains.is_empty() && read.mains.iter().all(is_closed);
    }
    read.branches.iter().all(is_closed) && read.mains.iter().all(may_be)
}

/// Whether any of these names is an outlet of the PDU in the site.
fn has_outlet(site: &Site, pdu: DomainId, names: &[String]) -> bool {
    let Some(layout) = site.domain(pdu).layout else {
        return false;
    };
    let mut outlets = site.layout(layout).outlets.iter();
    outlets.any(|outlet| names.iter().any(|name| **name == *outlet.name))
}

fn right_if(is_right: bool) -> Verdict {
    if is_right { Verdict::Right } else { Verdict::Unknown }
}

/// A leak blocks and cordons. Moisture only cordons. It is right only if every detector reports dry.
fn leaks(detectors: &[Leak]) -> Verdict {
    let of = |level| detectors.iter().filter(move |one| one.level == level);
    let names = |level| named(of(level).map(|one| one.name.as_str()));
    if of(LeakLevel::Wet).next().is_some() {
        return Verdict::Wrong(Fault::critical(names(LeakLevel::Wet)));
    }
    if of(LeakLevel::Moist).next().is_some() {
        return Verdict::Wrong(Fault::warning(format!("moisture at {}", names(LeakLevel::Moist))));
    }
    right_if(!detectors.is_empty() && of(LeakLevel::Unknown).next().is_none())
}

/// The first names, and the number of further ones.
fn named<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.collect();
    let named: Vec<&str> = all.iter().copied().take(NAMED).collect();
    match all.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
