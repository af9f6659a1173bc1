#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

use rackwright_ground::clock;
use rackwright_ground::config::facility::Settings;
use rackwright_ground::core::Core;
use rackwright_ground::testing::{self, TestCore};
use rackwright_lifecycle::{Effect, NodeId, PowerGoal, PowerRequest, State, Timestamp};
use rackwright_nodes::runner::step_until_rest;
use rackwright_site::power::readings::{
    BreakerState, CircuitState, CoolingReading, Leak, LeakLevel, PduReading, Reading,
};
use rackwright_store::{EventRow, NodeRecord, ReadingRow, Scope};

use super::alarms::{judge_around, judge_once, judge_with_settings};
use super::coverage;

/// Eight nodes on one circuit; two of them may boot at once while all others run. The first four are on a cooling loop.
const SITE: &str = "
site: {name: lab}
rooms: [{name: hall}]
racks: [{name: 'r[1-2]', room: hall, liquid: true}]
outlet_layouts: [{name: o, outlets: [{name: '[1-4]', phase: all}]}]
power:
- {name: u, kind: utility, feed: A, watts: 100 kW}
- {name: c, kind: circuit, parent: u, watts: 12 kW}
- {name: 'p[1-2]', kind: rack-pdu, parent: c, rack: 'r[1-2]', watts: 90 kW, outlets: o, bmc: 'https://{name}.example'}
cooling_units:
- {name: 'cdu-[1-2]', kind: cdu, room: hall, watts: 100 kW, bmc: 'https://{name}.example'}
cooling_loops: [{name: l1, units: cdu-1, racks: r1}, {name: l2, units: cdu-2, racks: r2}]
skus:
- {name: k, power: {max_watts: 1000, boot_peak_watts: 3000}, psus: {count: 1, watts: 3000, needed: 1}, height_units: 1, liquid_share: 0.9}
nodes:
- {name: 'n[1-4]', sku: k, rack: r1, unit: [1, 2, 3, 4], psus: ['p1/[1-4]']}
- {name: 'n[5-8]', sku: k, rack: r2, unit: [1, 2, 3, 4], psus: ['p2/[1-4]']}
";

async fn hall(further: &str) -> TestCore {
    let core = testing::core_with(further).await;
    testing::put_site(&core, SITE).await;
    for n in 1..=8 {
        let mut record = testing::node(&format!("n{n}"), State::Available, None);
        record.node.wanted.power = Some(PowerRequest {
            goal: PowerGoal::On,
            at: Timestamp(1),
        });
        testing::add(&core, &record).await;
    }
    core
}

async fn step(core: &TestCore, node: &str) -> NodeRecord {
    let nudge = core.running_steps.begin(&NodeId::stored(node)).unwrap();
    step_until_rest((*core).clone(), NodeId::stored(node), nudge).await;
    core.store.node(&Scope::Site, &NodeId::stored(node)).await.unwrap()
}

/// Stores a reading from now and judges, as the tasks do.
async fn read(core: &Core, kind: &str, name: &str, reading: &Reading) {
    store(core, kind, name, reading, clock::now()).await;
    judge_once(core).await.unwrap();
}

/// Stores a reading from now, with the clock of a replica at `stored_at`.
async fn store(core: &Core, kind: &str, name: &str, reading: &Reading, stored_at: Timestamp) {
    let now = clock::now();
    let row = ReadingRow {
        kind: kind.into(),
        name: name.into(),
        at: now,
        stored_at,
        body: serde_json::to_string(reading).unwrap(),
    };
    let mut tx = core.store.write().await.unwrap();
    tx.put_facility_readings(&[row]).await.unwrap();
    tx.commit().await.unwrap();
}

fn cdu(level: LeakLevel) -> Reading {
    Reading::Cooling(CoolingReading {
        leaks: vec![Leak {
            name: "tray".into(),
            level,
        }],
        ..CoolingReading::default()
    })
}

async fn events(core: &Core) -> Vec<EventRow> {
    let all = core.store.events(&Scope::Site, 0, "", 1000).await.unwrap();
    all.into_iter()
        .filter(|event| event.kind.to_string().starts_with("facility."))
        .collect()
}

/// Nodes that are not available for clusters.
async fn names(core: &Core) -> Vec<String> {
    let picture = core.sites.picture(&core.store).await.unwrap();
    let out = picture.out.iter();
    out.map(|id| picture.site.node(*id).name.to_string()).collect()
}

#[tokio::test]
async fn a_leak_keeps_machines_off_and_out_of_clusters_until_it_is_dry() {
    let core = hall("facility: {}\n").await;
    read(&core, "cooling", "cdu-1", &cdu(LeakLevel::Wet)).await;
    let record = step(&core, "n1").await;
    assert_eq!(record.wait.to_string(), "an alarm to clear: a leak at cdu/cdu-1: tray");
    assert!(core.store.open_effects().await.unwrap().is_empty());
    let alarm = core.store.alarms("", 1).await.unwrap().remove(0);
    assert_eq!(alarm.message, "a leak at cdu/cdu-1: tray");
    let advice = "inspect the leak; if water reaches equipment, close the valve";
    assert!(alarm.advice.starts_with(advice), "{}", alarm.advice);
    assert_eq!(names(&core).await, ["n1", "n2", "n3", "n4"]);
    // One event, however often the leak is read. An unknown level does not count as dry.
    read(&core, "cooling", "cdu-1", &cdu(LeakLevel::Wet)).await;
    read(&core, "cooling", "cdu-1", &cdu(LeakLevel::Unknown)).await;
    let kinds: Vec<_> = events(&core)
        .await
        .into_iter()
        .map(|event| (event.kind.to_string(), event.target))
        .collect();
    assert_eq!(kinds, [("facility.leak".to_owned(), "cdu/cdu-1".to_owned())]);
    assert_eq!(events(&core).await[0].attributes["nodes"], "n1,n2,n3,n4");

    read(&core, "cooling", "cdu-1", &cdu(LeakLevel::Dry)).await;
    assert!(core.store.alarms("", 10).await.unwrap().is_empty());
    assert_eq!(names(&core).await, Vec::<String>::new());
    let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert!(record.due_at <= clock::now(), "it is due as soon as the alarm clears");
    assert_eq!(events(&core).await.last().unwrap().kind, "facility.leak-cleared");
    // Its BMC address has no BMC, so the power-on fails: the test only needs the try.
    let record = step(&core, "n1").await;
    assert_ne!(record.wait.label(), "alarm", "{}", record.wait);
    let rows = core.store.attempts(&"n1".into(), record.node.since).await.unwrap();
    assert!(!rows.is_empty(), "nothing was tried");
}

#[tokio::test]
async fn ignored_alarms_are_reported_and_hold_nothing() {
    let core = hall("facility: {ignore: [cdu-1]}\n").await;
    read(&core, "cooling", "cdu-1", &cdu(LeakLevel::Wet)).await;
    let alarm = core.store.alarms("", 1).await.unwrap().remove(0);
    assert!(!alarm.blocks && !alarm.cordons);
    assert_eq!(core.store.power_block(&"n1".into()).await.unwrap(), None);
    assert_eq!(events(&core).await.len(), 1);
}

#[tokio::test]
async fn an_alarm_about_what_left_the_site_is_cleared() {
    let core = hall("facility: {}\n").await;
    let tripped = PduReading {
        branches: vec![CircuitState {
            name: "A".into(),
            breaker: BreakerState::Tripped,
            volts: None,
            outlets: vec!["2".into()],
        }],
        ..PduReading::default()
    };
    read(&core, "pdu", "p2", &Reading::Pdu(tripped)).await;
    assert!(
        core.store
            .power_block(&"n6".into())
            .await
            .unwrap()
            .unwrap()
            .contains("A tripped")
    );
    assert_eq!(core.store.power_block(&"n5".into()).await.unwrap(), None);
    testing::put_site(
        &core,
        &SITE
            .replace("name: 'p[1-2]'", "name: 'q[1-2]'")
            .replace("'p1/", "'q1/")
            .replace("'p2/", "'q2/"),
    )
    .await;
    judge_once(&core).await.unwrap();
    assert!(core.store.alarms("", 10).await.unwrap().is_empty());
}

/// A leak at cdu-1 without further readings; n1 waits for it.
async fn silent_leak() -> TestCore {
    let core = hall("facility: {}\n").await;
    read(&core, "cooling", "cdu-1", &cdu(LeakLevel::Wet)).await;
    read(&core, "cooling", "cdu-1", &cdu(LeakLevel::Unknown)).await;
    assert!(step(&core, "n1").await.due_at > clock::now());
    core
}

async fn assert_free(core: &Core) {
    assert_eq!(core.store.power_block(&"n1".into()).await.unwrap(), None);
    assert_eq!(names(core).await, Vec::<String>::new());
    let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert!(record.due_at <= clock::now(), "it is due");
}

#[tokio::test]
async fn without_settings_every_alarm_is_cleared() {
    let core = silent_leak().await;
    judge_with_settings(&core, None).await.unwrap();
    assert_free(&core).await;
    assert!(core.store.alarms("", 10).await.unwrap().is_empty());
    assert_eq!(events(&core).await.last().unwrap().kind, "facility.leak-cleared");
}

#[tokio::test]
async fn an_alarm_ignored_later_releases_what_it_held() {
    for level in [LeakLevel::Unknown, LeakLevel::Wet] {
        let core = silent_leak().await;
        read(&core, "cooling", "cdu-1", &cdu(level)).await;
        let settings = Settings {
            ignore: ["cdu-1".to_owned()].into(),
            ..Settings::default()
        };
        for _ in 0..2 {
            judge_with_settings(&core, Some(&settings)).await.unwrap();
        }
        assert_free(&core).await;
        assert_eq!(
            core.store.alarms("", 10).await.unwrap().len(),
            1,
            "the alarm is still open"
        );
        let kinds: Vec<_> = events(&core).await.into_iter().map(|event| event.kind).collect();
        assert_eq!(kinds, ["facility.leak", "facility.leak-ignored"]);
    }
}

#[tokio::test]
async fn an_alarm_of_what_has_no_address_any_more_is_cleared() {
    let core = silent_leak().await;
    let without = SITE.replace(
        "kind: cdu, room: hall, watts: 100 kW, bmc: 'https://{name}.example'",
        "kind: cdu, room: hall, watts: 100 kW",
    );
    testing::put_site(&core, &without).await;
    judge_once(&core).await.unwrap();
    assert_free(&core).await;
    assert!(core.store.alarms("", 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_pin_of_what_does_not_answer_is_kept_as_long_as_the_site_has_it() {
    let core = hall("facility: {}\n").await;
    let old = clock::now().plus(-30 * 86_400_000_000);
    store(&core, "cooling", "cdu-1", &cdu(LeakLevel::Dry), old).await;
    let mut tx = core.store.write().await.unwrap();
    for name in ["cdu-1", "cdu-gone"] {
        tx.put_facility_pin("cooling", name, "https://x sha256:1")
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    judge_once(&core).await.unwrap();
    assert_eq!(core.store.facility_reading("cooling", "cdu-1").await.unwrap(), None);
    let pins = core.store.facility_pins().await.unwrap();
    assert_eq!(pins, [("cooling".to_owned(), "cdu-1".to_owned())]);
}

#[tokio::test]
async fn when_others_are_held_it_is_told_and_those_let_go_are_due() {
    let core = hall("facility: {}\n").await;
    let tripped = |outlet: &str| {
        Reading::Pdu(PduReading {
            branches: vec![CircuitState {
                name: "A".into(),
                breaker: BreakerState::Tripped,
                volts: None,
                outlets: vec![outlet.into()],
            }],
            ..PduReading::default()
        })
    };
    read(&core, "pdu", "p1", &tripped("1")).await;
    assert!(step(&core, "n1").await.due_at > clock::now());
    read(&core, "pdu", "p1", &tripped("2")).await;
    assert_eq!(core.store.power_block(&"n1".into()).await.unwrap(), None);
    let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert!(record.due_at <= clock::now(), "it is due");
    assert!(core.store.power_block(&"n2".into()).await.unwrap().is_some());
    let reported: Vec<_> = events(&core)
        .await
        .into_iter()
        .map(|event| event.attributes["nodes"].clone())
        .collect();
    assert_eq!(reported, ["n1", "n2"]);
}

#[tokio::test]
async fn what_a_replica_stores_behind_others_is_judged() {
    let core = hall("facility: {}\n").await;
    let now = clock::now();
    // One clock is far ahead, and one is a minute behind.
    store(&core, "cooling", "cdu-1", &cdu(LeakLevel::Dry), now.plus(3_600_000_000)).await;
    store(&core, "cooling", "cdu-2", &cdu(LeakLevel::Dry), now).await;
    judge_around(&core, async || {
        store(&core, "cooling", "cdu-2", &cdu(LeakLevel::Wet), now.plus(-60_000_000)).await;
    })
    .await
    .unwrap();
    let alarms = core.store.alarms("", 10).await.unwrap();
    let ids: Vec<&str> = alarms.iter().map(|alarm| alarm.id.as_str()).collect();
    assert_eq!(ids, ["leak cdu/cdu-2"]);
}

#[tokio::test]
async fn as_many_start_at_once_as_their_circuit_bears() {
    let core = hall("").await;
    judge_once(&core).await.unwrap();
    let mut waiting = 0;
    for n in 1..=8 {
        let node = format!("n{n}");
        let record = core
            .store
            .node(&Scope::Site, &NodeId::stored(node.as_str()))
            .await
            .unwrap();
        let needs = rackwright_nodes::testing::power_needs(&core, &record).await;
        let reported: Vec<String> = needs
            .iter()
            .map(|need| format!("{}: {}", need.resource, need.room))
            .collect();
        assert_eq!(reported, ["power-on power c: 2"], "{node}");
        let mut tx = core.store.write().await.unwrap();
        let record = tx.node(&NodeId::stored(node.as_str())).await.unwrap();
        let wait = rackwright_nodes::testing::power_admit(&mut tx, &record, &needs)
            .await
            .unwrap();
        tx.use_permits(
            &NodeId::stored(node.as_str()),
            &format!("effect of {node} {}", Effect::PowerOn.as_str()),
            0,
        )
        .await
        .unwrap();
        tx.commit().await.unwrap();
        waiting += usize::from(wait.is_some());
    }
    assert_eq!(waiting, 6);
}

/// A site without readings must not look like a healthy site.
#[tokio::test]
async fn how_many_things_are_read_is_known_by_kind() {
    let core = hall("facility: {}\n").await;
    let of = |found: &[(&'static str, usize, i64)], kind: &str| found.iter().find(|(name, ..)| *name == kind).copied();
    let before = coverage(&core).await.unwrap();
    assert_eq!(of(&before, "node"), Some(("node", 8, 0)), "{before:?}");
    let (_, units, read_before) = of(&before, "cooling").unwrap();
    assert!(units > 0 && read_before == 0, "{before:?}");
    read(&core, "cooling", "cdu-1", &cdu(LeakLevel::Dry)).await;
    let after = coverage(&core).await.unwrap();
    assert_eq!(of(&after, "cooling"), Some(("cooling", units, 1)), "{after:?}");
    let off = hall("").await;
    assert_eq!(coverage(&off).await.unwrap(), []);
}
