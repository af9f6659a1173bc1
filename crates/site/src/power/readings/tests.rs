#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::file::{Source, check};

const NOW: i64 = 10_000_000_000;

fn site() -> Site {
    let text = "
site: {name: lab}
rooms: [{name: hall}]
racks: [{name: 'r[1-2]', room: hall, liquid: true}]
outlet_layouts: [{name: four, outlets: [{name: '[1-4]', phase: all, amps: 32}]}]
power:
- {name: utility, kind: utility, watts: 100 kW}
- {name: 'circuit-[a,b]', kind: circuit, parent: utility, feed: A, volts: 415, amps: 32, phases: 3}
- {name: 'pdu-[1-2]', kind: rack-pdu, parent: 'circuit-[a,b]', rack: 'r[1-2]', volts: 415, amps: 32, phases: 3, outlets: four, bmc: 'https://{name}.example'}
cooling_units:
- {name: cdu-1, kind: cdu, room: hall, watts: 100 kW, supply_max_celsius: 40, flow_min_lpm: 30, bmc: 'https://cdu-1.example'}
- {name: cdu-2, kind: cdu, room: hall, watts: 100 kW}
cooling_loops: [{name: loop-1, units: cdu-1, racks: r1}, {name: loop-2, units: cdu-2, racks: r2}]
skus:
- {name: s, power: {max_watts: 5000, idle_watts: 800}, psus: {count: 2, watts: 5000, needed: 1}, height_units: 4, liquid_share: 0.8}
nodes:
- {name: 'n[1-2]', sku: s, rack: r1, unit: [1, 5], psus: ['pdu-1/[1,3]', 'pdu-1/[2,4]']}
- {name: 'n[3-4]', sku: s, rack: r2, unit: [1, 5], psus: ['pdu-2/[1,3]', 'pdu-2/[2,4]']}
";
    let checked = check(&[Source { name: "t", text }]);
    checked.site.unwrap_or_else(|| panic!("{:#?}", checked.findings))
}

/// Readings without faults.
fn good(site: &Site) -> Readings {
    let mut readings = Readings::default();
    for node in site.node_ids() {
        let value = NodeReading {
            on: Some(true),
            watts: Some(4000.0),
            sensors: vec![Sensor {
                name: "inlet".into(),
                celsius: 25.0,
                limit_celsius: 42.0,
            }],
            leaks: vec![dry()],
            failed_supplies: Some(Vec::new()),
            has_gaps: false,
        };
        assert!(readings.put(site, &site.node(node).name, NOW, Reading::Node(value)));
    }
    for pdu in ["pdu-1", "pdu-2"] {
        assert!(readings.put(site, pdu, NOW, Reading::Pdu(pdu_reading())));
    }
    let cdu = CoolingReading {
        supply_celsius: Some(30.0),
        return_celsius: Some(40.0),
        flow_lpm: Some(50.0),
        leaks: vec![dry()],
        has_gaps: false,
    };
    assert!(readings.put(site, "cdu-1", NOW, Reading::Cooling(cdu)));
    readings
}

fn dry() -> Leak {
    Leak {
        name: "tray".into(),
        level: LeakLevel::Dry,
    }
}

fn circuit(name: &str, breaker: BreakerState, outlets: &[&str]) -> CircuitState {
    CircuitState {
        name: name.into(),
        breaker,
        volts: Some(239.0),
        outlets: outlets.iter().map(|one| (*one).to_owned()).collect(),
    }
}

fn pdu_reading() -> PduReading {
    PduReading {
        watts: Some(8000.0),
        mains: vec![circuit("AC1", BreakerState::Closed, &[])],
        branches: vec![
            circuit("A", BreakerState::Closed, &["1", "2"]),
            circuit("B", BreakerState::Closed, &["3", "4"]),
        ],
        has_gaps: false,
    }
}

/// Stores one more reading of an object.
fn put(readings: &mut Readings, site: &Site, name: &str, reading: Reading) {
    let is_new = (NOW..NOW + 10).any(|at_us| readings.put(site, name, at_us, reading.clone()));
    assert!(is_new, "{name}");
}

fn judged(site: &Site, readings: &Readings, now: i64) -> Judgement {
    let below = Below::new(site);
    judge(site, &below, readings, &|_| Some(5000.0), &Rules::default(), now)
}

/// The findings as `kind subject nodes`, with `!` if they block.
fn reported(site: &Site, found: &Judgement) -> Vec<String> {
    let one = |finding: &Finding| {
        let nodes: Vec<&str> = finding.nodes.iter().map(|id| &*site.node(*id).name).collect();
        let blocks = if finding.blocks { "!" } else { "" };
        format!(
            "{}{blocks} {} {}",
            finding.kind.name(),
            finding.subject.name(site),
            nodes.join(",")
        )
    };
    found.findings.iter().map(one).collect()
}

#[test]
fn what_reads_well_is_right_and_what_is_old_is_unknown() {
    let site = site();
    let readings = good(&site);
    let now = judged(&site, &readings, NOW);
    assert!(now.findings.is_empty(), "{:?}", now.findings);
    assert!(now.right.len() > 20, "{:?}", now.right);
    let later = judged(&site, &readings, NOW + Rules::default().fresh_us + 1);
    assert_eq!(later, Judgement::default());
    assert_eq!(judged(&site, &Readings::default(), NOW), Judgement::default());
}

#[test]
fn a_reading_is_new_once() {
    let (site, mut readings) = (site(), Readings::default());
    let mut put = |at_us| readings.put(&site, "pdu-1", at_us, Reading::Pdu(pdu_reading()));
    assert_eq!(
        [put(NOW), put(NOW), put(NOW - 1), put(NOW + 1)],
        [true, false, false, true]
    );
    assert!(!readings.put(&site, "no-such", NOW, Reading::Pdu(pdu_reading())));
}

#[test]
fn a_leak_holds_what_hangs_on_the_loop() {
    let site = site();
    let mut readings = good(&site);
    let leak = |level| CoolingReading {
        supply_celsius: Some(45.0),
        flow_lpm: Some(10.0),
        leaks: vec![
            dry(),
            Leak {
                name: "tray 2".into(),
                level,
            },
        ],
        ..CoolingReading::default()
    };
    put(&mut readings, &site, "cdu-1", Reading::Cooling(leak(LeakLevel::Wet)));
    let found = judged(&site, &readings, NOW);
    // Rack r1 has n1 and n2.
    let all = [
        "leak! cdu/cdu-1 n1,n2",
        "supply-temperature! cdu/cdu-1 n1,n2",
        "flow! cdu/cdu-1 n1,n2",
    ];
    assert_eq!(reported(&site, &found), all);
    assert_eq!(found.findings[0].message(&site), "a leak at cdu/cdu-1: tray 2");
    assert_eq!(
        found.findings[2].message(&site),
        "the coolant flow of cdu/cdu-1 is too low (10 L/min, limit 30 L/min)"
    );
    put(&mut readings, &site, "cdu-1", Reading::Cooling(leak(LeakLevel::Moist)));
    let found = judged(&site, &readings, NOW);
    assert_eq!(reported(&site, &found)[0], "leak cdu/cdu-1 n1,n2");
    assert!(found.findings[0].cordons && !found.findings[0].blocks);
    put(
        &mut readings,
        &site,
        "cdu-1",
        Reading::Cooling(leak(LeakLevel::Unknown)),
    );
    let subject = Subject::Cooling(CoolingUnitId(0));
    let found = judged(&site, &readings, NOW);
    assert!(found.findings.iter().all(|one| one.kind != FindingKind::Leak));
    assert!(
        !found.right.contains(&(FindingKind::Leak, subject)),
        "a detector that says nothing is not dry"
    );
}

#[test]
fn a_reading_with_gaps_says_what_is_wrong_and_never_what_is_right() {
    let site = site();
    let mut readings = good(&site);
    let node = |level| NodeReading {
        leaks: vec![Leak {
            name: "tray".into(),
            level,
        }],
        has_gaps: true,
        ..readings.node(site.node_named("n1").unwrap()).unwrap().value.clone()
    };
    let (dry, wet) = (node(LeakLevel::Dry), node(LeakLevel::Wet));
    let subjects = [
        Subject::Node(site.node_named("n1").unwrap()),
        Subject::Cooling(CoolingUnitId(0)),
        Subject::Domain(site.domain_named("pdu-1").unwrap()),
    ];
    let own = [
        FindingKind::Breaker,
        FindingKind::FeedLost,
        FindingKind::Leak,
        FindingKind::Temperature,
    ];
    let right = |found: &Judgement| {
        let of_them = |(kind, subject): &&(FindingKind, Subject)| own.contains(kind) && subjects.contains(subject);
        found.right.iter().filter(of_them).count()
    };
    assert_eq!(right(&judged(&site, &readings, NOW)), 5);
    put(&mut readings, &site, "n1", Reading::Node(dry));
    let cdu = CoolingReading {
        leaks: vec![self::dry()],
        has_gaps: true,
        ..CoolingReading::default()
    };
    put(&mut readings, &site, "cdu-1", Reading::Cooling(cdu));
    let pdu = PduReading {
        has_gaps: true,
        ..pdu_reading()
    };
    put(&mut readings, &site, "pdu-1", Reading::Pdu(pdu));
    assert_eq!(right(&judged(&site, &readings, NOW)), 0);
    put(&mut readings, &site, "n1", Reading::Node(wet));
    assert_eq!(reported(&site, &judged(&site, &readings, NOW)), ["leak! nodes/n1 n1"]);
}

#[test]
fn an_open_breaker_holds_its_outlets_and_a_dead_feed_the_whole_pdu() {
    let site = site();
    let mut readings = good(&site);
    let mut pdu = pdu_reading();
    pdu.branches[1].breaker = BreakerState::Tripped;
    put(&mut readings, &site, "pdu-1", Reading::Pdu(pdu.clone()));
    assert_eq!(
        reported(&site, &judged(&site, &readings, NOW)),
        ["breaker! rack-pdu/pdu-1 n2"]
    );
    pdu.branches[1].outlets.clear();
    pdu.mains[0].volts = Some(0.4);
    put(&mut readings, &site, "pdu-1", Reading::Pdu(pdu));
    let both = ["feed-lost! rack-pdu/pdu-1 n1,n2", "breaker! rack-pdu/pdu-1 n1,n2"];
    assert_eq!(reported(&site, &judged(&site, &readings, NOW)), both);
}

#[test]
fn breakers_are_closed_where_branches_say_so_and_no_main_says_otherwise() {
    let site = site();
    let subject = Subject::Domain(site.domain_named("pdu-1").unwrap());
    let is_right = |mains: &[BreakerState], branches: &[BreakerState]| {
        let all = |of: &[BreakerState]| of.iter().map(|one| circuit("c", *one, &["1"])).collect();
        let pdu = PduReading {
            mains: all(mains),
            branches: all(branches),
            ..pdu_reading()
        };
        let mut readings = good(&site);
        put(&mut readings, &site, "pdu-1", Reading::Pdu(pdu));
        judged(&site, &readings, NOW)
            .right
            .contains(&(FindingKind::Breaker, subject))
    };
    let (closed, unknown) = (BreakerState::Closed, BreakerState::Unknown);
    assert!(
        is_right(&[unknown], &[closed, closed]),
        "mains without a breaker say nothing"
    );
    assert!(is_right(&[closed], &[closed]));
    assert!(is_right(&[closed], &[]), "it has no branches");
    assert!(!is_right(&[closed], &[closed, unknown]));
    assert!(!is_right(&[BreakerState::Off], &[closed]));
    assert!(!is_right(&[unknown], &[]) && !is_right(&[], &[]));
}

#[test]
fn a_branch_whose_outlets_the_site_does_not_know_is_the_whole_pdu() {
    let site = site();
    let held = |outlets: [&[&str]; 2]| {
        let mut pdu = pdu_reading();
        pdu.branches = outlets.map(|names| circuit("B", BreakerState::Tripped, names)).into();
        let mut readings = good(&site);
        put(&mut readings, &site, "pdu-1", Reading::Pdu(pdu));
        reported(&site, &judged(&site, &readings, NOW))
    };
    assert_eq!(held([&["3"], &["OUTLET4", "4"]]), ["breaker! rack-pdu/pdu-1 n2"]);
    assert_eq!(
        held([&["3"], &["OUTLET1", "Outlet 1"]]),
        ["breaker! rack-pdu/pdu-1 n1,n2"]
    );
}

#[test]
fn what_is_off_and_at_no_limit_is_not_too_hot() {
    let site = site();
    let subject = Subject::Node(site.node_named("n1").unwrap());
    let judged = |on, sensors: &[Sensor], has_gaps| {
        let mut readings = good(&site);
        let value = NodeReading {
            on,
            sensors: sensors.to_vec(),
            has_gaps,
            ..NodeReading::default()
        };
        put(&mut readings, &site, "n1", Reading::Node(value));
        let found = judged(&site, &readings, NOW);
        let is_hot = found.findings.iter().any(|one| one.kind == FindingKind::Temperature);
        (is_hot, found.right.contains(&(FindingKind::Temperature, subject)))
    };
    let hot = Sensor {
        name: "GPU".into(),
        celsius: 90.0,
        limit_celsius: 88.0,
    };
    assert_eq!(judged(Some(false), &[], true), (false, true));
    assert_eq!(judged(Some(false), &[hot], false), (true, false));
    assert_eq!(judged(Some(true), &[], false), (false, false));
    assert_eq!(judged(None, &[], false), (false, false));
}

#[test]
fn heat_and_watts_are_held_against_limits_and_reservations() {
    let site = site();
    let mut readings = good(&site);
    let hot = |celsius, watts| NodeReading {
        watts: Some(watts),
        sensors: vec![Sensor {
            name: "GPU 3".into(),
            celsius,
            limit_celsius: 88.0,
        }],
        failed_supplies: Some(vec!["PSU2".into()]),
        ..NodeReading::default()
    };
    put(&mut readings, &site, "n3", Reading::Node(hot(90.0, 5600.0)));
    let found = judged(&site, &readings, NOW);
    let all = [
        "temperature! nodes/n3 n3",
        "power-supply nodes/n3 n3",
        "over-reservation nodes/n3 n3",
    ];
    assert_eq!(reported(&site, &found), all);
    assert_eq!(
        found.findings[0].message(&site),
        "nodes/n3 is too hot: GPU 3 (90 °C, limit 88 °C)"
    );
    // Between wrong and right there is no verdict, so an existing alarm stays.
    put(&mut readings, &site, "n3", Reading::Node(hot(87.0, 5100.0)));
    let found = judged(&site, &readings, NOW);
    let subject = Subject::Node(site.node_named("n3").unwrap());
    for kind in [FindingKind::Temperature, FindingKind::OverReservation] {
        assert!(!found.right.contains(&(kind, subject)));
        assert!(found.findings.iter().all(|one| one.kind != kind));
    }
}

#[test]
fn sums_are_held_against_what_is_carried_and_reserved() {
    let site = site();
    let mut readings = good(&site);
    let pdu = |watts| PduReading {
        watts: Some(watts),
        ..pdu_reading()
    };
    // 415 V × 32 A × √3 × 0.8 = 18.4 kW; 10 kW are reserved.
    put(&mut readings, &site, "pdu-1", Reading::Pdu(pdu(11_000.0)));
    let found = reported(&site, &judged(&site, &readings, NOW));
    assert_eq!(
        found,
        [
            "over-reservation circuit/circuit-a n1,n2",
            "over-reservation rack-pdu/pdu-1 n1,n2"
        ]
    );
    put(&mut readings, &site, "pdu-1", Reading::Pdu(pdu(19_000.0)));
    let found = reported(&site, &judged(&site, &readings, NOW));
    assert!(
        found.contains(&"over-capacity! circuit/circuit-a n1,n2".to_owned()),
        "{found:?}"
    );
    // For a PDU without a meter, the nodes' values count.
    let mut silent = pdu_reading();
    silent.watts = None;
    put(&mut readings, &site, "pdu-1", Reading::Pdu(silent));
    let below = Below::new(&site);
    let all = measured(&site, &below, &readings, &Rules::default(), NOW);
    assert_eq!(
        all[site.domain_named("utility").unwrap().index()].whole(),
        Some(16_000.0)
    );
    put(&mut readings, &site, "n1", Reading::Node(NodeReading::default()));
    let all = measured(&site, &below, &readings, &Rules::default(), NOW);
    let utility = all[site.domain_named("utility").unwrap().index()];
    assert_eq!((utility.watts, utility.whole()), (12_000.0, None));
}

fn level() -> impl Strategy<Value = LeakLevel> {
    prop::sample::select(vec![
        LeakLevel::Dry,
        LeakLevel::Unknown,
        LeakLevel::Moist,
        LeakLevel::Wet,
    ])
}

fn any_reading() -> impl Strategy<Value = Reading> {
    let figure = || prop::option::of(0.0..30_000.0_f64);
    let leaks = || {
        prop::collection::vec(
            level().prop_map(|level| Leak {
                name: "d".into(),
                level,
            }),
            0..3,
        )
    };
    let sensors = prop::collection::vec(
        (0.0..120.0_f64).prop_map(|celsius| Sensor {
            name: "s".into(),
            celsius,
            limit_celsius: 90.0,
        }),
        0..3,
    );
    let node = (any::<Option<bool>>(), figure(), sensors, leaks()).prop_map(|(on, watts, sensors, leaks)| {
        Reading::Node(NodeReading {
            on,
            watts,
            sensors,
            leaks,
            failed_supplies: None,
            has_gaps: false,
        })
    });
    let breaker = prop::sample::select(vec![
        BreakerState::Closed,
        BreakerState::Tripped,
        BreakerState::Off,
        BreakerState::Unknown,
    ]);
    let circuits = prop::collection::vec(
        (breaker, prop::option::of(0.0..500.0_f64)).prop_map(|(breaker, volts)| CircuitState {
            name: "c".into(),
            breaker,
            volts,
            outlets: vec!["1".into()],
        }),
        0..3,
    );
    let pdu = (figure(), circuits.clone(), circuits).prop_map(|(watts, mains, branches)| {
        Reading::Pdu(PduReading {
            watts,
            mains,
            branches,
            has_gaps: false,
        })
    });
    let cooling = (figure(), figure(), leaks()).prop_map(|(supply_celsius, flow_lpm, leaks)| {
        Reading::Cooling(CoolingReading {
            supply_celsius,
            return_celsius: None,
            flow_lpm,
            leaks,
            has_gaps: false,
        })
    });
    prop_oneof![node, pdu, cooling]
}

proptest! {
    /// For any readings: nothing is right and wrong at once, no finding is duplicated, a blocking finding also cordons
    /// and affects only nodes below its subject, and an unread object has no verdict.
    #[test]
    fn judgements_hold_together(given in prop::collection::vec((0..7_usize, any_reading(), 0..2_000_000_000_i64), 0..12)) {
        let site = site();
        let names = ["n1", "n2", "n3", "n4", "pdu-1", "pdu-2", "cdu-1"];
        let mut readings = Readings::default();
        for (name, reading, age) in given {
            readings.put(&site, names[name], NOW - age, reading);
        }
        let found = judged(&site, &readings, NOW);
        let mut keys = BTreeSet::new();
        for finding in &found.findings {
            prop_assert!(keys.insert((finding.kind, finding.subject)), "{finding:?} twice");
            prop_assert!(!found.right.contains(&(finding.kind, finding.subject)));
            prop_assert!(finding.cordons || !finding.blocks);
            prop_assert!(!finding.message(&site).is_empty());
            if let Subject::Node(node) = finding.subject {
                prop_assert_eq!(&finding.nodes, &vec![node]);
                prop_assert!(readings.node(node).is_some_and(|seen| NOW - seen.at_us <= Rules::default().fresh_us));
            }
        }
        // A stale reading neither clears nor creates a finding.
        let stale = judged(&site, &readings, NOW + 3_000_000_000);
        prop_assert!(stale.findings.is_empty() && stale.right.is_empty());
    }

    /// More watts never give fewer findings about watts.
    #[test]
    fn more_watts_are_never_better(watts in 0.0..30_000.0_f64, more in 0.0..10_000.0_f64) {
        let site = site();
        let count = |watts: f64| {
            let mut readings = good(&site);
            put(&mut readings, &site, "pdu-1", Reading::Pdu(PduReading { watts: Some(watts), ..pdu_reading() }));
            judged(&site, &readings, NOW).findings.len()
        };
        prop_assert!(count(watts) <= count(watts + more));
    }
}
