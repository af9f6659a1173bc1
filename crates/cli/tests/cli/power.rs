//! `rackwright power ...` with a server.

use prost_types::Timestamp;
use rackwright_api::v1::*;

use crate::fake::Fake;
use crate::golden::Script;
use crate::program::Program;

fn step(kind: &str, name: &str, parent: &str, measured: Option<f64>) -> PowerStep {
    PowerStep {
        kind: kind.into(),
        name: name.into(),
        parent: parent.into(),
        feed: "A".into(),
        rated_watts: 23_000.0,
        derated_watts: 18_400.0,
        reserved_watts: 10_200.0,
        own_watts: 5100.0,
        measured_watts: measured,
        nodes: 1,
        starts_at_once: u32::from(kind == "circuit") as i32 * 2,
    }
}

fn alarm() -> Alarm {
    Alarm {
        name: "alarms/leak cdu/cdu-1".into(),
        kind: "leak".into(),
        subject: "cdu/cdu-1".into(),
        severity: "critical".into(),
        message: "a leak at cdu/cdu-1: tray 2".into(),
        advice: "look at it".into(),
        node_count: 4,
        nodes: vec!["nodes/gpu-1".into()],
        blocks: true,
        cordons: true,
        open_time: Some(Timestamp {
            seconds: 1_790_812_800,
            nanos: 0,
        }),
        ..Alarm::default()
    }
}

fn headroom(name: &str, left: f64) -> PowerHeadroom {
    PowerHeadroom {
        kind: "circuit".into(),
        name: name.into(),
        feed: "A".into(),
        derated_watts: 18_400.0,
        reserved_watts: 18_400.0 - left,
        worst_watts: 18_400.0 - left,
        measured_watts: Some(9000.0),
        headroom_watts: left,
        stranded_watts: 100.0,
    }
}

#[test]
fn power_is_explained_reported_and_its_alarms_are_listed() {
    let fake = Fake::start();
    fake.state().power.explained = vec![
        ExplainPowerResponse {
            name: "nodes/gpu-1".into(),
            nodes: vec!["nodes/gpu-1".into()],
            node_count: 1,
            reserved_watts: 10_200.0,
            measured_watts: Some(7300.0),
            steps: vec![
                step("utility", "utility-a", "", None),
                step("circuit", "circuit-a-r1", "utility-a", Some(7300.0)),
            ],
            psus: vec![
                PowerPsu {
                    psu: 1,
                    outlet: "pdu-a-r1/1".into(),
                    watts: 1700.0,
                    outlet_watts: 3800.0,
                },
                PowerPsu {
                    psu: 2,
                    ..PowerPsu::default()
                },
            ],
            losses: vec![PowerLoss {
                feed: "A".into(),
                live: 3,
                live_watts: 9900.0,
                survives: false,
            }],
            alarms: vec![alarm()],
            ..ExplainPowerResponse::default()
        },
        ExplainPowerResponse {
            name: "customers/acme".into(),
            node_count: 64,
            reserved_watts: 652_800.0,
            ..ExplainPowerResponse::default()
        },
    ];
    fake.state().power.rows = vec![headroom("circuit-b-r1", -200.0), headroom("circuit-a-r1", 3000.0)];
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["power", "alarms"]);
    let of = |kind: &str, known, read| ReadingCoverage {
        kind: kind.into(),
        known,
        read,
    };
    fake.state().power.coverage = vec![of("node", 40, 40), of("pdu", 8, 8)];
    script.run(&program, &["power", "alarms"]);
    fake.state().power.coverage = vec![of("node", 40, 9), of("cooling", 2, 0)];
    fake.state().power.alarms = vec![alarm()];
    for args in [
        &["power", "explain", "gpu-1"][..],
        &["power", "explain", "nodes/gpu-1", "-o", "json"],
        &["power", "explain", "acme"],
        &["power", "explain", "nobody"],
        &["power", "report"],
        &["power", "report", "--limit", "1"],
        &["power", "report", "--level", "circuit", "-o", "json"],
        &["power", "report", "--level", "row"],
        &["power", "alarms"],
        &["power", "alarms", "-o", "name"],
    ] {
        script.run(&program, args);
    }
    script.check("power", &program);
}
