//! Reservations accepted by the ledger never exceed the capacity of an ancestor, even after the loss of any single
//! feed. An independent recomputation checks this: it adds up all loads and opens every overloaded breaker until none
//! is left.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rackwright_site::file::{Source, check};
use rackwright_site::model::{CustomerId, DomainId, FeedId, NodeId, Phases, Rating, Redundancy, Site};
use rackwright_site::power::{Ledger, Reservation};

const REDUNDANCIES: [Redundancy; 3] = Redundancy::ALL;

/// A site with tight random circuits: 3 racks of 4 nodes, with PSUs on three feeds. Feed C may have two PDUs.
fn site(amps: &[u32], utility_kw: &[u32], psu_watts: u32, needed: u32, shared_top: bool) -> Site {
    let mut text = "site: {name: t}\nrooms: [{name: h}]\nracks: [{name: 'r[1-3]', room: h}]\n".to_owned();
    text += "outlet_layouts:\n- name: o\n  outlets:\n  - {name: '[1,4,7]', phase: L1}\n  - {name: '[2,5,8]', phase: L2}\n  \
             - {name: '[3,6]', phase: L3}\npower:\n";
    if shared_top {
        text += "- {name: grid, kind: utility, watts: 90 kW}\n";
    }
    for (i, feed) in ["A", "B", "C"].iter().enumerate() {
        let parent = if shared_top { "parent: grid, " } else { "" };
        text += &format!(
            "- {{name: u{feed}, kind: panel, {parent}feed: {feed}, watts: {} kW}}\n",
            utility_kw[i]
        );
        for rack in 1..=3 {
            let amps = amps[i * 3 + rack - 1];
            text += &format!(
                "- {{name: c{feed}{rack}, kind: circuit, parent: u{feed}, volts: 415, amps: {amps}, phases: 3, derate: 1}}\n\
                 - {{name: p{feed}{rack}, kind: rack-pdu, parent: c{feed}{rack}, rack: r{rack}, volts: 415, amps: 63, \
                 phases: 3, outlets: o}}\n"
            );
        }
    }
    text += &format!(
        "skus:\n- {{name: s, power: {{max_watts: 10 kW}}, psus: {{count: 6, watts: {psu_watts}, needed: {needed}}}, \
         height_units: 8}}\nnodes:\n"
    );
    for rack in 1..=3 {
        for node in 0..4 {
            let (x, y) = (2 * node + 1, 2 * node + 2);
            text += &format!(
                "- {{name: n{rack}{node}, sku: s, rack: r{rack}, psus: [pA{rack}/{x}, pA{rack}/{y}, pB{rack}/{x}, \
                 pB{rack}/{y}, pC{rack}/{x}, pC{rack}/{y}]}}\n"
            );
        }
    }
    text += "customers: [{name: a}, {name: b}]\n";
    let checked = check(&[Source {
        name: "t.yaml",
        text: &text,
    }]);
    let found = format!("{:#?}", checked.findings.list);
    checked.site.unwrap_or_else(|| panic!("{found}"))
}

fn capacity(site: &Site, domain: usize) -> f64 {
    let domain = &site.domains[domain];
    domain.derate
        * match domain.rating {
            Rating::Watts(watts) => watts,
            Rating::Electrical {
                volts,
                amps,
                phases: Phases::Three,
            } => volts * amps * 3_f64.sqrt(),
            Rating::Electrical {
                volts,
                amps,
                phases: Phases::Single,
            } => volts * amps,
        }
}

/// Whether the PDU and all domains above it work.
fn is_fed(site: &Site, dead: &[bool], pdu: DomainId) -> bool {
    site.ancestors(pdu).all(|up| !dead[up.index()])
}

/// The working PSUs of a node.
fn live(site: &Site, dead: &[bool], node: NodeId) -> Vec<usize> {
    let plugs = site.node(node).psus.iter().enumerate();
    plugs
        .filter(|(_, plug)| plug.is_some_and(|plug| is_fed(site, dead, plug.pdu)))
        .map(|(psu, _)| psu)
        .collect()
}

/// Watts of each domain and of each of its phases while these domains are dead. The working PSUs share the load, up to
/// their rated output.
fn drawn(site: &Site, dead: &[bool], all: &[Reservation]) -> Vec<(f64, [f64; 3])> {
    let mut loads = vec![(0.0, [0.0; 3]); site.domains.len()];
    for one in all {
        let psus = live(site, dead, one.node);
        let share = (one.watts / psus.len() as f64).min(site.sku_of(one.node).psus.watts);
        for psu in psus {
            let plug = site.node(one.node).psus[psu].unwrap();
            let phase = match site.outlet(plug).unwrap().phase.name() {
                "L1" => 0,
                "L2" => 1,
                _ => 2,
            };
            for up in site.ancestors(plug.pdu) {
                loads[up.index()].0 += share;
                loads[up.index()].1[phase] += share;
            }
        }
    }
    loads
}

/// Domains that are overloaded, in watts or on one phase.
fn overloaded(site: &Site, dead: &[bool], all: &[Reservation]) -> Vec<usize> {
    let loads = drawn(site, dead, all);
    let over = |id: &usize| {
        let (total, phases) = loads[*id];
        let capacity = capacity(site, *id) + 1.0;
        let by_phase = matches!(
            site.domains[*id].rating,
            Rating::Electrical {
                phases: Phases::Three,
                ..
            }
        );
        total > capacity || (by_phase && phases.iter().any(|phase| *phase > capacity / 3.0))
    };
    (0..loads.len()).filter(over).collect()
}

fn check_all(site: &Site, all: &[Reservation]) -> Result<(), TestCaseError> {
    let alive = vec![false; site.domains.len()];
    prop_assert_eq!(
        overloaded(site, &alive, all),
        Vec::<usize>::new(),
        "in the normal state"
    );
    for feed in 0..site.feeds.len() {
        let mut dead: Vec<bool> = site
            .domains
            .iter()
            .map(|domain| domain.feed == Some(FeedId::of(feed)))
            .collect();
        // Overloaded breakers open one after another.
        loop {
            let over: Vec<usize> = overloaded(site, &dead, all)
                .into_iter()
                .filter(|id| !dead[*id])
                .collect();
            let Some(first) = over.first() else { break };
            dead[*first] = true;
        }
        for one in all.iter().filter(|one| one.redundancy == Redundancy::FeedLoss) {
            let psus = live(site, &dead, one.node).len();
            let profile = site.sku_of(one.node).psus;
            prop_assert!(
                psus >= usize::from(profile.needed),
                "feed {feed}: {:?} has {psus} PSUs",
                one
            );
            prop_assert!(
                psus as f64 * profile.watts >= one.watts - 1e-6,
                "feed {feed}: {:?}",
                one
            );
        }
    }
    for one in all.iter().filter(|one| one.redundancy == Redundancy::PsuLoss) {
        let profile = site.sku_of(one.node).psus;
        prop_assert!(profile.count > profile.needed && f64::from(profile.count - 1) * profile.watts >= one.watts);
    }
    Ok(())
}

/// Nodes to reserve together (with redundancy and customer), or one node to release.
#[derive(Debug, Clone)]
enum Op {
    Reserve(Vec<(u32, u32)>, usize, u32),
    Release(u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (proptest::collection::vec((0..12_u32, 2000..10_000_u32), 1..4), 0..3_usize, 0..2_u32)
            .prop_map(|(nodes, redundancy, customer)| Op::Reserve(nodes, redundancy, customer)),
        1 => (0..12_u32).prop_map(Op::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_is_accepted_never_exceeds_any_ancestor_nor_breaks_a_promise(
        amps in proptest::collection::vec(12..63_u32, 9),
        utility_kw in proptest::collection::vec(12..60_u32, 3),
        psu_watts in 1700..3500_u32,
        needed in 2..6_u32,
        shared_top in any::<bool>(),
        ops in proptest::collection::vec(op(), 1..30),
    ) {
        let site = site(&amps, &utility_kw, psu_watts, needed, shared_top);
        let mut ledger = Ledger::new(&site);
        for op in ops {
            match op {
                Op::Reserve(nodes, redundancy, customer) => {
                    let before = ledger.loads().clone();
                    let wanted: Vec<Reservation> = nodes
                        .iter()
                        .map(|(node, watts)| Reservation {
                            node: NodeId(*node),
                            customer: CustomerId(customer),
                            watts: f64::from(*watts),
                            redundancy: REDUNDANCIES[redundancy],
                        })
                        .collect();
                    if let Err(refusals) = ledger.reserve(&site, &wanted) {
                        prop_assert!(!refusals.is_empty());
                        prop_assert!(refusals.iter().all(|refusal| !refusal.words(&site).is_empty()));
                        prop_assert_eq!(&before, ledger.loads());
                    }
                }
                Op::Release(node) => {
                    ledger.release(&site, NodeId(node));
                }
            }
            let all: Vec<Reservation> = ledger.reservations().copied().collect();
            check_all(&site, &all)?;
            // Whatever the history, the ledger equals a new one with the same reservations.
            let mut fresh = Ledger::new(&site);
            prop_assert!(fresh.reserve(&site, &all).is_ok());
            prop_assert_eq!(fresh.loads(), ledger.loads());
        }
    }

    /// If all nodes have the same promise, everything that the recomputation allows is accepted.
    #[test]
    fn what_fits_is_accepted(
        amps in proptest::collection::vec(12..63_u32, 9),
        utility_kw in proptest::collection::vec(12..60_u32, 3),
        nodes in proptest::sample::subsequence((0..12_u32).collect::<Vec<_>>(), 1..12),
        watts in 2000..9000_u32,
        redundancy in prop_oneof![Just(Redundancy::None), Just(Redundancy::FeedLoss)],
    ) {
        let site = site(&amps, &utility_kw, 3300, 4, false);
        let wanted: Vec<Reservation> = nodes
            .iter()
            .map(|node| Reservation { node: NodeId(*node), customer: CustomerId(0), watts: f64::from(watts), redundancy })
            .collect();
        let accepted = Ledger::new(&site).reserve(&site, &wanted);
        let mut states = vec![vec![false; site.domains.len()]];
        if redundancy == Redundancy::FeedLoss {
            let lost = |feed| site.domains.iter().map(|domain| domain.feed == Some(FeedId::of(feed))).collect();
            states.extend((0..3).map(lost));
        }
        let fits = states.iter().all(|dead| overloaded(&site, dead, &wanted).is_empty());
        // The recomputation tolerates 1 W, the ledger a millionth.
        if accepted.is_ok() {
            prop_assert!(fits);
        } else if fits {
            let slack: Vec<Reservation> = wanted.iter().map(|one| Reservation { watts: one.watts - 2.0, ..*one }).collect();
            prop_assert!(Ledger::new(&site).reserve(&site, &slack).is_ok(), "{:?}", accepted);
        }
    }
}
