//! `rackwright events` and `rackwright boot ...`.

use rackwright_api::v1::{BootStage, Dmi, Inventory, TraceBootResponse, UnknownMachine};
use tonic::Status;

use crate::cut::Relay;
use crate::fake::Fake;
use crate::fixtures;
use crate::golden::Script;
use crate::program::Program;

#[test]
fn events_as_lines() {
    let fake = Fake::start();
    fake.state().events = (1..=4).map(fixtures::event).collect();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["events"]);
    script.run(&program, &["events", "--after", "3", "-o", "json"]);
    script.run(&program, &["events", "--target", "nodes/gpu-001", "-o", "name"]);
    script.run(&program, &["events", "--new"]);
    script.run(&program, &["events", "--tail", "2", "-o", "name"]);
    script.run(
        &program,
        &["events", "--kind", "started,power.on", "--tail", "1", "-o", "name"],
    );
    script.run(&program, &["events", "--severity", "warning", "-o", "name"]);
    script.run(&program, &["events", "--since", "yesterday"]);
    script.run(&program, &["events", "--tail", "0"]);
    fake.refuse(
        "StreamEvents",
        Status::out_of_range("events before position 100 are no longer kept"),
    );
    script.run(&program, &["events", "--after", "1"]);
    script.check("events", &program);
}

#[test]
fn no_event_is_lost_or_printed_twice() {
    let fake = Fake::start();
    fake.state().events = (1..=20).map(fixtures::event).collect();
    fake.state().event_cuts.extend([3, 0, 5]);
    let program = Program::logged_in(&fake);
    let mut following = program.follow(&["events", "--follow", "-o", "name"]);
    let seen: Vec<String> = (1..=20).map(|_| following.line()).collect();
    let wanted: Vec<String> = (1..=20).map(|position| position.to_string()).collect();
    assert_eq!(seen, wanted);
    fake.state().events.push(fixtures::event(21));
    let stderr = following.end();
    assert!(stderr.contains("continuing after position 3"), "{stderr}");
    assert!(stderr.contains("continuing after position 8"), "{stderr}");
}

#[test]
fn a_cut_connection_is_made_again() {
    let fake = Fake::start();
    fake.state().events = (1..=5).map(fixtures::event).collect();
    let program = Program::logged_in(&fake);
    let relay = Relay::start(fake.address, Vec::new());
    let url = relay.url();
    let mut following = program.follow(&["events", "--follow", "-o", "name", "--server", &url]);
    let seen: Vec<String> = (1..=5).map(|_| following.line()).collect();
    assert_eq!(seen, ["1", "2", "3", "4", "5"]);
    fake.state().events.push(fixtures::event(6));
    relay.cut_all();
    assert_eq!(following.line(), "6", "later events come next, and none twice");
    assert_eq!(relay.cuts(), 1);
}

#[test]
fn boots() {
    let fake = Fake::start();
    let stage = |seconds: i64, stage: &str, detail: &str| BootStage {
        time: Some(fixtures::fixed(seconds)),
        stage: stage.into(),
        detail: detail.into(),
        remote: "10.77.0.10".into(),
    };
    let mac = "52:54:00:00:00:01";
    let trace = TraceBootResponse {
        mac: mac.into(),
        node: "nodes/gpu-001".into(),
        stages: vec![
            stage(0, "dhcp-discover", "x86-64 UEFI"),
            stage(2, "tftp", "snponly.efi\x1b[31m, 250 kB"),
            stage(5, "refused", "the token was used already"),
        ],
    };
    fake.state().traces.insert(mac.into(), trace);
    let unknown = |mac: &str, inventory| UnknownMachine {
        mac: mac.into(),
        first_seen: Some(fixtures::ago(7200 + 1800)),
        last_seen: Some(fixtures::ago(190)),
        architecture: "x86-64 UEFI".into(),
        inventory,
        ..UnknownMachine::default()
    };
    let dmi = Dmi {
        system_vendor: "Acme".into(),
        product_name: "Box\x1b[31m 9".into(),
        serial_number: "S-99".into(),
        ..Dmi::default()
    };
    let reported = Inventory {
        dmi: Some(dmi),
        ..Inventory::default()
    };
    fake.state().unknown = vec![
        unknown("52:54:00:00:00:98", None),
        unknown("52:54:00:00:00:99", Some(reported)),
    ];
    fake.state().counters = [
        ("tftp_bytes_total".to_owned(), 7),
        ("dhcp_discover_total".to_owned(), 42),
    ]
    .into();
    for node in fixtures::nodes() {
        fake.state().nodes.insert(node.name.clone(), node);
    }
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["boot", "trace", "52-54-00-00-00-01"]);
    script.run(&program, &["boot", "trace", "gpu-001", "-o", "name"]);
    script.run(&program, &["boot", "trace", "52:54:00:00:00:02"]);
    script.run(&program, &["boot", "trace", "gpu-009"]);
    script.run(&program, &["boot", "unknown"]);
    script.run(&program, &["boot", "counters"]);
    script.check("boot", &program);
}
