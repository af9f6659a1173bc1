//! The examples of `docs/site.md`: capacities, feeds, phases, waves, explanations.

use super::*;
use crate::file::{Source, check};
use crate::model::{CustomerId, DomainKind, FeedId, NodeId, Phase, Phases, PowerDomain, Rating, Redundancy, SkuId};

pub(super) fn site(text: &str) -> Site {
    let checked = check(&[Source {
        name: "test.yaml",
        text,
    }]);
    let found: Vec<String> = checked.findings.list.iter().map(ToString::to_string).collect();
    checked.site.unwrap_or_else(|| panic!("{found:#?}"))
}

fn three_phase(volts: f64, amps: f64, derate: f64) -> PowerDomain {
    PowerDomain {
        name: "x".into(),
        kind: DomainKind::Circuit,
        parent: None,
        feed: None,
        rating: Rating::Electrical {
            volts,
            amps,
            phases: Phases::Three,
        },
        derate,
        phase: Phase::All,
        rack: None,
        layout: None,
        other_watts: 0.0,
        measured_watts: None,
        bmc: None,
    }
}

#[test]
fn three_phase_feeds_carry_what_the_tables_say() {
    for (volts, amps, rated, derated) in [
        (208.0, 60.0, 21.6, 17.3),
        (415.0, 32.0, 23.0, 18.4),
        (415.0, 60.0, 43.1, 34.5),
        (415.0, 63.0, 45.3, 36.2),
        (415.0, 100.0, 71.9, 57.5),
        (480.0, 60.0, 49.9, 39.9),
    ] {
        let kw = |derate| capacity_watts(&three_phase(volts, amps, derate)) / 1000.0;
        assert!((kw(1.0) - rated).abs() < 0.05, "{volts} V {amps} A: {}", kw(1.0));
        assert!((kw(0.8) - derated).abs() < 0.05, "{volts} V {amps} A: {}", kw(0.8));
    }
    let mut single = three_phase(230.0, 16.0, 0.8);
    single.rating = Rating::Electrical {
        volts: 230.0,
        amps: 16.0,
        phases: Phases::Single,
    };
    assert!((capacity_watts(&single) - 2944.0).abs() < 1e-9);
}

/// One node on `feeds` feeds, with its PSUs distributed over them.
fn node_on(feeds: usize, max_watts: u32, needed: u8) -> Site {
    let letters = ["A", "B", "C"];
    let mut text = "site: {name: t}\nrooms: [{name: h}]\nracks: [{name: r, room: h}]\npower:\n".to_owned();
    for letter in &letters[..feeds] {
        text += &format!("- {{name: u{letter}, kind: utility, feed: {letter}, watts: 40 kW}}\n");
        text += &format!(
            "- {{name: p{letter}, kind: rack-pdu, parent: u{letter}, rack: r, volts: 415, amps: 60, phases: 3, outlets: \
             [{{name: '[1-6]', phase: 'L[1-3]', amps: 16}}]}}\n"
        );
    }
    text += &format!(
        "skus:\n- {{name: s, power: {{max_watts: {max_watts}}}, psus: {{count: 6, watts: 3300, needed: {needed}}}, \
         height_units: 8}}\nnodes:\n- name: n\n  sku: s\n  rack: r\n  psus:\n"
    );
    for psu in 0..6 {
        text += &format!("  - p{}/{}\n", letters[psu % feeds], psu / feeds + 1);
    }
    site(&(text + "customers:\n- {name: c, redundancy: feed-loss}\n"))
}

#[test]
fn the_loss_of_a_feed_is_survived_by_what_is_plugged_in_not_by_a_flag() {
    let lost = |feeds, max_watts, needed| {
        let site = node_on(feeds, max_watts, needed);
        survival(&site, NodeId(0), f64::from(max_watts), Redundancy::FeedLoss)
    };
    // 3+3: 9.9 kW remain, less than a DGX H100 or B200 draws, and 3 PSUs, fewer than it needs.
    let refusal = lost(2, 10_200, 4).unwrap_err();
    assert!(
        matches!(refusal, Refusal::TooFewPsus { live: 3, needed: 4, .. }),
        "{refusal:?}"
    );
    let refusal = lost(2, 10_200, 3).unwrap_err();
    assert!(matches!(refusal, Refusal::PsusTooWeak { live_watts, .. } if (live_watts - 9900.0).abs() < 1e-6));
    // 2+2+2: 13.2 kW remain, enough for an H100 but not for a B200.
    assert_eq!(lost(3, 10_200, 4), Ok(()));
    let refusal = lost(3, 14_300, 4).unwrap_err();
    assert!(matches!(refusal, Refusal::PsusTooWeak { live_watts, .. } if (live_watts - 13_200.0).abs() < 1e-6));
    // One PSU of a B200 is lost: 5 of 6 work.
    let site = node_on(3, 14_300, 5);
    assert_eq!(survival(&site, NodeId(0), 14_300.0, Redundancy::PsuLoss), Ok(()));
}

#[test]
fn the_side_that_lives_carries_the_load_of_the_lost_one() {
    let site = node_on(3, 10_200, 4);
    let loads = |scenario, redundancy| {
        let loads = node_loads(&site, NodeId(0), 10_200.0, redundancy, scenario);
        let mut watts: Vec<(String, f64)> = loads
            .iter()
            .map(|(id, load)| (site.domain(*id).name.to_string(), watts(load.total)))
            .collect();
        watts.sort_by(|a, b| a.0.cmp(&b.0));
        watts
            .into_iter()
            .filter(|(name, _)| name.starts_with('u'))
            .map(|(_, watts)| watts)
            .collect::<Vec<_>>()
    };
    assert_eq!(loads(Scenario::Normal, Redundancy::FeedLoss), [3400.0; 3]);
    assert_eq!(loads(Scenario::Lost(FeedId(0)), Redundancy::FeedLoss), [5100.0; 2]);
    // Without the promise, each feed may be the last: two PSUs of 3.3 kW.
    assert_eq!(loads(Scenario::Lost(FeedId(0)), Redundancy::None), [6600.0; 2]);
    assert_eq!(loads(Scenario::Normal, Redundancy::PsuLoss), [4080.0; 3]);
}

#[test]
fn phases_add_up_as_vectors() {
    let kw = |watts: i64| watts * 1000;
    let amps = |load: Load| load.line_amps(415.0).map(|amps| (amps * 100.0).round() / 100.0);
    // Balanced: equal to √3·V·A.
    assert_eq!(amps(Load::on(Phase::All, kw(34_500))), [48.0; 3]);
    // Between L1 and L2 only: P/V in both, nothing in L3.
    assert_eq!(amps(Load::on(Phase::L1L2, kw(4150))), [10.0, 10.0, 0.0]);
    // Three equal loads between the phases are balanced: √3 times the current of one of them in each line.
    let delta = [Phase::L1L2, Phase::L2L3, Phase::L3L1].map(|phase| Load::on(phase, kw(4150)));
    assert_eq!(amps(delta.into_iter().fold(Load::NONE, Load::plus)), [17.32; 3]);
    let star = [Phase::L1, Phase::L1, Phase::L2].map(|phase| Load::on(phase, kw(2396)));
    let load = star.into_iter().fold(Load::NONE, Load::plus);
    assert_eq!(amps(load), [20.0, 10.0, 0.0]);
    assert!((load.imbalance() - 1.0).abs() < 1e-9, "{}", load.imbalance());
    assert_eq!(load.minus(load), Load::NONE);
}

/// Two racks of two nodes. Each rack is on one circuit of feed A and one of feed B, below panels.
const SMALL: &str = "
site: {name: small}
rooms: [{name: h}]
racks:
- {name: 'r[1-2]', room: h, air_heat_limit_watts: 9 kW}
outlet_layouts: [{name: o, outlets: [{name: '[1-4]'}]}]
power:
- {name: ua, kind: utility, feed: A, watts: 20 kW}
- {name: ub, kind: utility, feed: B, watts: 20 kW}
- {name: 'ca-r[1-2]', kind: circuit, parent: ua, watts: 8 kW}
- {name: 'cb-r[1-2]', kind: circuit, parent: ub, watts: 8 kW}
- {name: 'pa-r[1-2]', kind: rack-pdu, parent: 'ca-{rack}', rack: 'r[1-2]', watts: 9 kW, outlets: o}
- {name: 'pb-r[1-2]', kind: rack-pdu, parent: 'cb-{rack}', rack: 'r[1-2]', watts: 9 kW, outlets: o}
cooling_units:
- {name: crah, kind: crah, room: h, watts: 17 kW}
skus:
- {name: s, power: {max_watts: 4 kW, boot_peak_watts: 7 kW}, psus: {count: 2, watts: 4000, needed: 1}, height_units: 4}
nodes:
- {name: 'n[1-4]', sku: s, rack: 'r[1-2]*2', unit: [1, 5], psus: ['pa-{rack}/[1-2]', 'pb-{rack}/[1-2]']}
customers:
- {name: safe, redundancy: feed-loss}
- {name: cheap, contracted_watts: 9 kW}
- {name: alone, dedicated_circuits: true}
- {name: cool, dedicated_cooling: true}
";

const SAFE: CustomerId = CustomerId(0);
const CHEAP: CustomerId = CustomerId(1);
const ALONE: CustomerId = CustomerId(2);
const COOL: CustomerId = CustomerId(3);

fn refused(ledger: &mut Ledger, site: &Site, wanted: &[(u32, CustomerId)]) -> Vec<String> {
    let wanted: Vec<Reservation> = wanted
        .iter()
        .map(|(node, customer)| Reservation::full(site, NodeId(*node), *customer))
        .collect();
    let refusals = ledger.reserve(site, &wanted).err().unwrap_or_default();
    refusals.iter().map(|refusal| refusal.words(site)).collect()
}

#[test]
fn a_reservation_is_all_or_nothing_and_says_what_is_in_the_way() {
    let site = site(SMALL);
    let mut ledger = Ledger::new(&site);
    assert_eq!(
        refused(&mut ledger, &site, &[(0, SAFE), (1, SAFE), (2, SAFE), (3, SAFE)]),
        [""; 0]
    );
    let sum = ledger.total_watts();
    assert!((sum - 16_000.0).abs() < 1e-6, "{sum}");
    assert_eq!(refused(&mut ledger, &site, &[(0, SAFE)]), ["n1 is already reserved"]);
    for node in 0..4 {
        assert!(ledger.release(&site, NodeId(node)).is_some());
    }
    let empty = Ledger::new(&site);
    assert_eq!(ledger.loads(), empty.loads(), "nothing is left behind");
    assert_eq!(ledger.heat(), empty.heat());
    assert_eq!(ledger.release(&site, NodeId(0)), None);
    let found = refused(&mut ledger, &site, &[(0, CHEAP), (1, CHEAP), (2, CHEAP)]);
    assert_eq!(found, ["cheap would need 12.0 kW, has contracted 9.0 kW"]);
    assert_eq!(ledger.loads(), empty.loads(), "a refusal leaves nothing behind");
}

#[test]
fn an_overloaded_line_is_said_in_amperes() {
    let site = site(
        "site: {name: s}
rooms: [{name: h}]
racks: [{name: r, room: h}]
power:
- {name: u, kind: utility, feed: A, watts: 60 kW}
- {name: p, kind: rack-pdu, parent: u, rack: r, volts: 415, amps: 32, phases: 3, outlets: [{name: '[1-3]', phase: L1}]}
skus: [{name: k, power: {max_watts: 2500}, psus: {count: 1, watts: 2500, needed: 1}, height_units: 1}]
nodes: [{name: 'n[1-3]', sku: k, rack: r, unit: [1, 2, 3], psus: ['p/[1-3]']}]
customers: [{name: c}]
",
    );
    let mut ledger = Ledger::new(&site);
    let customer = CustomerId(0);
    // 2,500 W at 240 V are 10.4 A. Of 32 A, 80 % may be used all the time.
    assert_eq!(refused(&mut ledger, &site, &[(0, customer), (1, customer)]), [""; 0]);
    assert_eq!(
        refused(&mut ledger, &site, &[(2, customer)]),
        ["L1 of rack-pdu p would need 31.3 A, can carry 25.6 A"]
    );
}

#[test]
fn promises_are_kept_at_every_ancestor_and_only_where_they_were_made() {
    let mut text = SMALL.replace(
        "{name: ub, kind: utility, feed: B, watts: 20 kW}",
        "{name: ub, kind: utility, feed: B, watts: 15 kW}",
    );
    text = text.replace("name: cheap, contracted_watts: 9 kW", "name: cheap");
    let site = site(&text);
    let mut ledger = Ledger::new(&site);
    // 16 kW on two utilities: 8 kW each. The loss of A would put all of it on B.
    assert_eq!(
        refused(&mut ledger, &site, &[(0, CHEAP), (1, CHEAP), (2, CHEAP), (3, CHEAP)]),
        [""; 0]
    );
    ledger.release(&site, NodeId(0));
    assert_eq!(
        refused(&mut ledger, &site, &[(0, SAFE)]),
        ["utility ub would need 16.0 kW, can carry 15.0 kW when feed A is lost"]
    );
    ledger.release(&site, NodeId(1));
    assert_eq!(refused(&mut ledger, &site, &[(0, SAFE)]), [""; 0]);
    // A node without a promise must leave room for nodes with one.
    assert_eq!(
        refused(&mut ledger, &site, &[(1, CHEAP)]),
        ["utility ub would need 16.0 kW, can carry 15.0 kW when feed A is lost"]
    );
}

#[test]
fn dedicated_circuits_and_cooling_are_shared_with_nobody() {
    let site = site(SMALL);
    let mut ledger = Ledger::new(&site);
    assert_eq!(refused(&mut ledger, &site, &[(0, SAFE), (2, ALONE)]), [""; 0]);
    assert_eq!(
        refused(&mut ledger, &site, &[(1, ALONE)]),
        ["circuit ca-r1 is shared with safe", "circuit cb-r1 is shared with safe"]
    );
    assert_eq!(refused(&mut ledger, &site, &[(3, SAFE)]).len(), 2);
    assert_eq!(
        refused(&mut ledger, &site, &[(1, COOL)]),
        ["the air of h is shared with safe"]
    );
}

#[test]
fn heat_is_checked_in_the_rack_and_in_the_room() {
    let hot = SMALL.replace("air_heat_limit_watts: 9 kW", "air_heat_limit_watts: 7 kW");
    let site_ = site(&hot);
    let found = refused(&mut Ledger::new(&site_), &site_, &[(0, SAFE), (1, SAFE)]);
    assert_eq!(
        found,
        ["rack r1 would need to give off 8.0 kW to air, can give off 7.0 kW"]
    );
    let weak = site(&SMALL.replace("watts: 17 kW", "watts: 10 kW"));
    let found = refused(&mut Ledger::new(&weak), &weak, &[(0, SAFE), (1, SAFE), (2, SAFE)]);
    assert_eq!(found, ["the air of h would need to take 12.0 kW, can take 10.0 kW"]);
    // A rear door takes its share before the heat reaches the room.
    let doors = SMALL.replace(
        "watts: 17 kW}",
        "watts: 10 kW}\n- {name: 'door-[1-2]', kind: rear-door, rack: 'r[1-2]', watts: 3 kW}",
    );
    let doors = site(&doors);
    assert_eq!(
        refused(
            &mut Ledger::new(&doors),
            &doors,
            &[(0, SAFE), (1, SAFE), (2, SAFE), (3, SAFE)]
        ),
        [""; 0]
    );
}

#[test]
fn liquid_is_checked_in_watts_and_in_litres() {
    let liquid = |loop_: &str| {
        let text = SMALL
            .replace("room: h, air", "room: h, liquid: true, air")
            .replace("height_units: 4}", "height_units: 4, liquid_share: 0.8}")
            .replace(
                "skus:",
                &format!(
                    "- {{name: cdu, kind: cdu, room: h, watts: 10 kW, flow_lpm: 14}}\ncooling_loops:\n{loop_}\nskus:"
                ),
            );
        site(&text)
    };
    let site = liquid("- {name: l, units: cdu, racks: 'r[1-2]'}");
    let heat = node_heat(&site, NodeId(0), 4000.0);
    assert_eq!(
        (heat.liquid, heat.air, heat.flow),
        (3_200_000, 800_000, 4_800),
        "1.5 L/min for each kW"
    );
    let mut ledger = Ledger::new(&site);
    assert_eq!(refused(&mut ledger, &site, &[(0, SAFE), (1, SAFE)]), [""; 0]);
    assert_eq!(ledger.heat().loop_watts(crate::model::LoopId(0)), (6400.0, 10_000.0));
    let found = refused(&mut ledger, &site, &[(2, SAFE), (3, SAFE)]);
    assert_eq!(
        found,
        [
            "loop l would need to take 12.8 kW, can take 10.0 kW",
            "loop l would need a flow of 19.2 L/min, has 14.0 L/min"
        ]
    );
}

#[test]
fn machines_start_in_waves_that_circuits_carry() {
    let site = site(SMALL);
    let nodes: Vec<NodeId> = site.node_ids().collect();
    // 3.5 kW peak per node on each side: two in a rack are 7 kW of 8 kW, and 2 kW more with another node on.
    assert_eq!(waves(&site, &[], &nodes).waves, vec![nodes.clone()]);
    let tight = site_with_circuits("6 kW");
    let plan = waves(&tight, &[], &nodes);
    assert_eq!(plan.waves, [[NodeId(0), NodeId(2)], [NodeId(1), NodeId(3)]]);
    let none = waves(&site_with_circuits("3 kW"), &[NodeId(0)], &[NodeId(1), NodeId(2)]);
    assert_eq!((none.waves.len(), none.too_much.len()), (0, 2));
    let circuit = tight.domain_named("ca-r1").unwrap();
    assert_eq!(power_on_tokens(&tight, circuit, 0.0, SkuId(0), 2), 1);
    assert_eq!(power_on_tokens(&site, circuit, 1000.0, SkuId(0), 2), 2);
    assert_eq!(power_on_tokens(&site, circuit, 9000.0, SkuId(0), 2), 0);
}

fn site_with_circuits(watts: &str) -> Site {
    site(&SMALL.replace("parent: ua, watts: 8 kW", &format!("parent: ua, watts: {watts}")))
}

#[test]
fn headroom_that_nothing_can_use_is_stranded() {
    let site = site(SMALL);
    let mut ledger = Ledger::new(&site);
    assert_eq!(refused(&mut ledger, &site, &[(0, SAFE), (1, SAFE)]), [""; 0]);
    let report = headroom(&site, &ledger);
    let row = |name: &str| report[site.domain_named(name).unwrap().index()];
    let circuit = row("ca-r1");
    assert!((circuit.reserved_watts - 4000.0).abs() < 1e-6 && (circuit.worst_watts - 8000.0).abs() < 1e-6);
    assert!(circuit.headroom_watts.abs() < 1e-6);
    // 20 kW minus 8 kW in the worst case. Below, two free nodes could draw 4 kW of that.
    let utility = row("ua");
    assert!((utility.headroom_watts - 12_000.0).abs() < 1e-6, "{utility:?}");
    assert!((utility.stranded_watts - 8000.0).abs() < 1e-6, "{utility:?}");
}

#[test]
fn a_node_is_explained_from_the_utility_to_the_psu() {
    let site = site(SMALL);
    let explanation = explain(&site, &Loads::of_all_nodes(&site), NodeId(3));
    let names: Vec<&str> = explanation.psus[1]
        .steps
        .iter()
        .map(|step| &*site.domain(step.domain).name)
        .collect();
    assert_eq!(names, ["ub", "cb-r2", "pb-r2"]);
    let loads: Vec<f64> = explanation.psus[1].steps.iter().map(|step| step.load_watts).collect();
    assert_eq!(loads, [8000.0, 4000.0, 4000.0]);
    assert_eq!(explanation.psus[1].outlet.as_deref(), Some("pb-r2/2"));
    assert!(
        explanation
            .losses
            .iter()
            .all(|loss| loss.survives && (loss.psu_watts - 4000.0).abs() < 1e-6)
    );
}

#[test]
fn as_many_may_start_at_once_as_boot_peaks_fit_beside_all_maxima() {
    let site = |circuit_watts: u32| {
        let text = format!(
            "site: {{name: s}}\nrooms: [{{name: h}}]\nracks: [{{name: r1, room: h}}]\n\
             outlet_layouts: [{{name: o, outlets: [{{name: '[1-8]', phase: all}}]}}]\n\
             power:\n- {{name: u, kind: utility, feed: A, watts: 100 kW}}\n\
             - {{name: c, kind: circuit, parent: u, watts: {circuit_watts}}}\n\
             - {{name: p, kind: rack-pdu, parent: c, rack: r1, watts: 90 kW, outlets: o}}\n\
             skus:\n- {{name: k, power: {{max_watts: 1000, boot_peak_watts: 3000}}, psus: {{count: 1, watts: 3000, needed: 1}}, height_units: 1}}\n\
             nodes:\n- {{name: 'n[1-8]', sku: k, rack: r1, unit: ['[1-8]'], psus: ['p/[1-8]']}}\n"
        )
        .replace("unit: ['[1-8]']", "unit: [1, 2, 3, 4, 5, 6, 7, 8]");
        super::tests::site(&text)
    };
    for (watts, room) in [
        (12_000, Some(2)),
        (11_999, Some(1)),
        (8000, Some(1)),
        (7000, Some(2)),
        (24_000, None),
    ] {
        let site = site(watts);
        let circuit = site.domain_named("c").unwrap();
        let rooms = StartRooms::new(&site);
        assert_eq!(rooms.at(circuit), room, "{watts} W");
        let of: Vec<_> = rooms.of(&site, NodeId(0)).into_iter().collect();
        assert_eq!(of, room.map(|room| (circuit, room)).into_iter().collect::<Vec<_>>());
        assert_eq!(rooms.is_empty(), room.is_none());
    }
}
