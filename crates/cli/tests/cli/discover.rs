//! `rackwright discover ...` with a server.

use prost_types::Timestamp;
use rackwright_api::v1::*;

use crate::fake::Fake;
use crate::golden::Script;
use crate::program::Program;

fn discovery(id: &str, phase: &str, message: &str) -> Discovery {
    let time = |seconds| Some(Timestamp { seconds, nanos: 0 });
    Discovery {
        name: format!("discoveries/{id}"),
        requested_by: "ann".into(),
        create_time: time(1_790_812_800),
        end_time: (phase == "done").then(|| time(1_790_812_900)).flatten(),
        phase: phase.into(),
        message: message.into(),
        ranges: vec!["10.0.0.0/22".into()],
        total: 1022,
        reached: 1022,
        silent: 1018,
        counts: [
            ("new".to_owned(), 2),
            ("moved".to_owned(), 1),
            ("not-redfish".to_owned(), 1),
        ]
        .into(),
        operation: format!("operations/{id}"),
    }
}

fn finding(address: &str, state: &str, reason: &str) -> Finding {
    Finding {
        name: format!("discoveries/d1/findings/{address}"),
        address: format!("https://{address}"),
        state: state.into(),
        reason: reason.into(),
        ..Finding::default()
    }
}

fn enrolled(address: &str, action: &str, node: &str, reason: &str) -> EnrolledFinding {
    EnrolledFinding {
        finding: format!("discoveries/d1/findings/{address}"),
        action: action.into(),
        node: node.into(),
        reason: reason.into(),
        operation: None,
    }
}

#[test]
fn discoveries_are_started_shown_and_their_findings_enrolled() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    let write = |name: &str, text: &str| {
        let path = program.home().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let password = write("pass", "secret\n");
    let bad = write("bad.csv", "address,user,password,unit\n10.0.0.5,a,,0\n10.0.0.5,,,\n");
    let good = write(
        "good.csv",
        "address,user,password,credential,rack,unit,labels\n10.0.0.5,u,p,,r1,12,a=b\n10.0.0.6,,,site,,,\n",
    );
    let leases = write("dnsmasq.leases", "0 00:16:3e:00:00:07 10.0.0.7 bmc-7 *\n");
    let none = write("none.leases", "hello\n");
    let site = format!("site:root:{password}");
    let mut script = Script::default();
    for args in [
        &["discover", "list"][..],
        &["discover", "show"],
        &[
            "discover",
            "start",
            "--range",
            "10.0.0.0/22,fd00::/118",
            "--port",
            "8443",
            "--user",
            "root",
            "--password-file",
            &password,
        ],
        &[
            "discover",
            "start",
            "--csv",
            &good,
            "--credential",
            &site,
            "--leases",
            &leases,
            "--ssdp",
            "--wait",
        ],
        &["discover", "start", "--csv", &bad],
        &["discover", "start", "--leases", &none],
        &["discover", "start", "--range", "10.0.0.0/22", "--user", "root"],
        &["discover", "enrol"],
    ] {
        script.run(&program, args);
    }
    something_is_found(&fake);
    for args in [
        &["discover", "list"][..],
        &["discover", "show"],
        &["discover", "show", "d0", "--state", "new"],
        &["discover", "show", "-o", "name"],
        &["discover", "show", "d9"],
        &["discover", "enrol", "10.0.0.5", "10.0.0.6:8443", "--dry-run"],
        &[
            "discover",
            "enrol",
            "--all-new",
            "--name",
            "gpu-{unit}",
            "--label",
            "row=3",
            "--discovery",
            "d1",
        ],
        &["discover", "enrol", "--all-new"],
    ] {
        script.run(&program, args);
    }
    script.check("discover", &program);
    what_was_sent(&fake);
}

/// The fake's findings, and its answers to enrolments.
fn something_is_found(fake: &Fake) {
    let mut also = finding("10.0.0.5", "new", "");
    also.other_addresses = vec!["https://[fd00::5]".into()];
    (also.manufacturer, also.model, also.serial) = ("Maker".into(), "M1".into(), "SN1".into());
    (also.rack, also.unit) = ("r1".into(), 12);
    let mut moved = finding(
        "10.0.0.6:8443",
        "moved",
        "node gpu-2 has the BMC address https://10.0.0.9, and nothing answers at that address",
    );
    moved.node = "nodes/gpu-2".into();
    fake.state().discoveries.all = vec![
        discovery("d1", "done", ""),
        discovery("d0", "looking", "SSDP from eno1: no such device"),
    ];
    fake.state().discoveries.findings = vec![
        also,
        moved,
        finding("10.0.0.7", "not-redfish", "/redfish/v1/ is answered with HTTP 404"),
    ];
    fake.state().discoveries.answers = [
        EnrolFindingsResponse {
            findings: vec![
                enrolled("10.0.0.5", "enrol", "nodes/gpu-1", ""),
                enrolled(
                    "10.0.0.6:8443",
                    "skip",
                    "",
                    "it moved; --update sets the new address of the node",
                ),
            ],
            remaining: 0,
        },
        EnrolFindingsResponse {
            findings: vec![enrolled("10.0.0.5", "enrol", "nodes/gpu-1", "")],
            remaining: 1,
        },
        EnrolFindingsResponse {
            findings: vec![enrolled("10.0.0.8", "enrol", "nodes/gpu-8", "")],
            remaining: 0,
        },
    ]
    .into();
}

fn what_was_sent(fake: &Fake) {
    let state = fake.state();
    let [ranges, tables] = state.discoveries.started.as_slice() else {
        panic!("{:?}", state.discoveries.started.len());
    };
    assert_eq!(ranges.ranges, ["10.0.0.0/22", "fd00::/118"]);
    assert_eq!(
        (ranges.logins[0].username.as_str(), ranges.logins[0].password.as_str()),
        ("root", "secret")
    );
    assert_eq!((tables.ssdp, tables.login_tries), (true, 2));
    let targets: Vec<_> = tables
        .targets
        .iter()
        .map(|t| (t.address.as_str(), t.login.as_str(), t.source.as_str()))
        .collect();
    assert_eq!(
        targets,
        [
            ("10.0.0.5", "table login 1", "csv"),
            ("10.0.0.6", "site", "csv"),
            ("10.0.0.7", "", "lease")
        ]
    );
    let logins: Vec<_> = tables
        .logins
        .iter()
        .map(|l| (l.name.as_str(), l.password.as_str()))
        .collect();
    assert_eq!(logins, [("site", "secret"), ("table login 1", "p")]);
    let keys: Vec<_> = state
        .calls
        .iter()
        .filter(|(method, _)| *method == "EnrolFindings")
        .map(|(_, key)| key)
        .collect();
    assert!(keys[1].ends_with(".round1") && keys[2].ends_with(".round2"), "{keys:?}");
    assert_eq!(keys[1].split('.').next(), keys[2].split('.').next());
}
