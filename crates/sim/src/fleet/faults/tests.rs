//! Accepted scripts, refused scripts, and the times of faults.

use super::*;
use http::Method;

const SYSTEM: &str = "/redfish/v1/Systems/1";

fn script(yaml: &str) -> Script {
    Script::parse("faults.yaml", yaml, 1000).unwrap_or_else(|error| panic!("{error}\n{yaml}"))
}

/// The fates of a machine's first requests.
fn faults_of(script: &Script, node: usize, method: &Method, path: &str, requests: usize) -> Vec<RequestFault> {
    let chances = Chances::new(script);
    let moment = Moment {
        node,
        now_ms: 0,
        dice: Dice(1),
        chances: &chances,
    };
    let request_line = RequestLine { method, path };
    (0..requests).map(|_| script.request(request_line, moment).1).collect()
}

#[test]
fn every_clause_of_a_script_is_read() {
    let script = script(
        r#"
faults:
  - fault: bmc-down
    nodes: [0, 5-9, sim-00042, "17"]
  - fault: bmc-slow
    delay_s: 2.5
    from_s: 60
    until_s: 120
  - {fault: bmc-wrong, answer: html, path: /redfish/v1/Systems, method: GET}
  - {fault: bmc-sessions-exhausted, probability: 0.5}
  - {fault: bmc-unavailable, retry_after_s: 30, at: 3, times: 2}
  - {fault: power-stuck, at: 1}
  - {fault: post-hang, at: 2}
  - {fault: wrong-inventory, missing: gpu, probability: 0.01}
  - {fault: disk-errors, nodes: [3]}
  - {fault: erase-unsupported, nodes: [4]}
  - {fault: erase-ignored, nodes: [4, 5]}
  - {fault: clock-skew, skew_s: -3600.5}
  - {fault: host-never-up, at: 1}
  - {fault: host-degraded, probability: 0.5}
  - {fault: slow-disk, mb_per_s: 4.5, from_s: 60}
  - {fault: dhcp-lost, at: 1}
  - {fault: boot-http-error, lost: answer, path: /boot/v1/files}
  - {fault: agent-crash, at: 3}
  - {fault: agent-crash, during: erase, then: panics}
  - {fault: heartbeat-lost, lasts_s: 1.5}
  - {fault: image-cut, after_bytes: 100000}
  - {fault: write-errors, at: 2}
  - {fault: tftp-lost, probability: 0.1, lost: answer}
  - {fault: slow-nic, gbit_per_s: 2.5}
  - {fault: slow-cable, adapter: 3, gbit_per_s: 0}
"#,
    );
    assert_eq!(script.rules.len(), 25);
    assert_eq!(script.rules[23].kind, Kind::SlowNic(2.5));
    assert_eq!(script.rules[24].kind, Kind::SlowCable(3, 0.0));
    assert_eq!(script.rules[22].kind, Kind::TftpLost(Lost::Answer));
    assert_eq!(script.rules[15].kind, Kind::DhcpLost(Lost::Request));
    assert_eq!(script.rules[16].kind, Kind::HttpLost(Lost::Answer));
    assert_eq!(
        script.rules[17].kind,
        Kind::AgentCrash(During::Heartbeat, Then::Restarts)
    );
    assert_eq!(script.rules[18].kind, Kind::AgentCrash(During::Erase, Then::Panics));
    assert_eq!(
        script.rules[0].nodes,
        Nodes::new(vec![(0, 0), (5, 9), (42, 42), (17, 17)])
    );
    assert_eq!(script.rules[1].kind, Kind::Slow(Duration::from_millis(2500)));
    assert_eq!((script.rules[1].from_ms, script.rules[1].until_ms), (60_000, 120_000));
    assert_eq!(script.rules[4].steps, Some((3, 2)));
    assert_eq!(script.rules[4].kind, Kind::Unavailable(30));
    assert_eq!(script.rules[14].kind, Kind::SlowDisk(4.5));
    assert_eq!(self::script("faults: []").rules.len(), 0);
}

#[test]
fn faults_of_a_script_are_reported_with_line_and_field() {
    let wrong = r#"faults:
  - fault: bmc-slow
  - fault: bmc-down
    nodes: [1000, 9-3,
            rack]
    probability: 1.5
    delay_s: 1
  - fault: power-stuck
    path: /redfish/v1
    times: 0
  - fault: bmc-wrong
    answer: rude
    method: BREW
    path: somewhere
    at: 0
  - fault: bmc-unavailable
    from_s: 10
    until_s: 10
    retry_after_s: 99999999
  - fault: gremlins
  - fault: wrong-inventory
    missing: soul
    at: 1
  - fault: post-hang
    nodes: []
  - fault: disk-errors
    from_s: 1
  - fault: slow-disk
    at: 1
  - fault: slow-disk
    mb_per_s: 0
  - fault: host-degraded
    mb_per_s: 1
    path: /redfish/v1
  - fault: boot-http-error
    path: /redfish/v1
    lost: mind
  - fault: agent-crash
    during: lunch
    then: sleeps
  - fault: heartbeat-lost
  - fault: image-cut
  - fault: write-errors
    during: write
    then: panics
    lost: answer
    lasts_s: 1
    after_bytes: 1
"#;
    let error = Script::parse("faults.yaml", wrong, 1000).unwrap_err().to_string();
    let faults: Vec<&str> = error.lines().collect();
    let wanted = [
        "faults.yaml:2: delay_s is missing",
        "faults.yaml:4: nodes: there is no machine 1000: the fleet has machines 0 to 999",
        "faults.yaml:4: nodes: `9-3` has its last machine before its first",
        "faults.yaml:5: nodes: `rack` is not a machine",
        "faults.yaml:6: probability must be between 0 and 1",
        "faults.yaml:7: delay_s does not apply to bmc-down",
        "faults.yaml:9: path does not apply to power-stuck",
        "faults.yaml:10: times must be at least 1",
        "faults.yaml:10: times needs `at`",
        "faults.yaml:12: answer must be html",
        "faults.yaml:13: method must be GET",
        "faults.yaml:14: path must begin with /redfish",
        "faults.yaml:15: at must be at least 1",
        "faults.yaml:18: until_s must be greater than from_s",
        "faults.yaml:19: retry_after_s must be at most 86400",
        "faults.yaml:20: fault: `gremlins` is not one of bmc-down",
        "faults.yaml:22: missing must be cpu",
        "faults.yaml:23: at does not apply to wrong-inventory",
        "faults.yaml:24: nodes is empty",
        "faults.yaml:27: from_s does not apply to disk-errors",
        "faults.yaml:28: mb_per_s is missing",
        "faults.yaml:29: at does not apply to slow-disk",
        "faults.yaml:31: mb_per_s must be between 0.01",
        "faults.yaml:33: mb_per_s does not apply to host-degraded",
        "faults.yaml:34: path does not apply to host-degraded",
        "faults.yaml:36: path must begin with /boot",
        "faults.yaml:37: lost must be request or answer",
        "faults.yaml:39: during must be heartbeat",
        "faults.yaml:40: then must be restarts",
        "faults.yaml:41: lasts_s is missing",
        "faults.yaml:42: after_bytes is missing",
        "faults.yaml:44: during does not apply to write-errors",
        "faults.yaml:45: then does not apply to write-errors",
        "faults.yaml:46: lost does not apply to write-errors",
        "faults.yaml:47: lasts_s does not apply to write-errors",
        "faults.yaml:48: after_bytes does not apply to write-errors",
    ];
    assert_eq!(faults.len(), wanted.len(), "{error}");
    for (fault, wanted) in faults.iter().zip(wanted) {
        assert!(fault.starts_with(wanted), "{fault}\nis not\n{wanted}");
    }
}

#[test]
fn faults_of_slow_networks_are_reported() {
    let wrong = "faults:\n- fault: slow-nic\n  adapter: 1\n- fault: slow-cable\n  adapter: 64\n  gbit_per_s: -1\n";
    let error = Script::parse("f", wrong, 10).unwrap_err().to_string();
    let faults: Vec<&str> = error.lines().collect();
    let wanted = [
        "f:2: gbit_per_s is missing",
        "f:3: adapter does not apply to slow-nic",
        "f:5: adapter must be at most 63",
        "f:6: gbit_per_s must be between 0",
    ];
    assert_eq!(faults.len(), wanted.len(), "{error}");
    for (fault, wanted) in faults.iter().zip(wanted) {
        assert!(fault.starts_with(wanted), "{fault}");
    }
}

#[test]
fn malformed_scripts_are_refused_and_nothing_panics() {
    let level = |n: u8| {
        let (name, below) = (char::from(b'a' + n), char::from(b'a' + n - 1));
        let eight = vec![format!("*{below}"); 8].join(", ");
        format!("{name}: &{name} [{eight}]\n")
    };
    let levels: String = (1..8).map(level).collect();
    let bomb = format!("a: &a [x]\n{levels}faults: *h\n");
    let deep = format!("faults: {}{}", "[".repeat(10_000), "]".repeat(10_000));
    let large = "#".repeat((1 << 20) + 1);
    let many = format!("faults:\n{}", "- {fault: bmc-down}\n".repeat(1001));
    let long = format!("faults: [{{fault: {}}}]", "x".repeat(100_000));
    for (text, words) in [
        ("", ""),
        ("\0\u{1}\u{feff}", ""),
        ("faults", ""),
        ("faults:\n\t- x", "faults.yaml:2"),
        ("faults: [", ""),
        ("faults: {}", "faults.yaml:1"),
        ("faults: [7]", "faults.yaml:1"),
        ("faults: [{}]", "fault"),
        ("faults: []\nfault: []", "faults.yaml:2"),
        ("faults: [{fault: bmc-down, colour: red}]", "colour"),
        ("faults: [{fault: bmc-down, at: -1}]", "faults.yaml:1"),
        ("faults: [{fault: bmc-down, at: 99999999999999999999}]", "faults.yaml:1"),
        ("faults: [{fault: bmc-down, at: 1.5}]", "faults.yaml:1"),
        ("faults: [{fault: bmc-down, probability: .nan}]", "probability"),
        ("faults: [{fault: bmc-slow, delay_s: .inf}]", "delay_s"),
        ("faults: [{fault: bmc-slow, delay_s: -1}]", "delay_s"),
        ("faults: [{fault: bmc-slow, delay_s: 1e300}]", "delay_s"),
        ("faults: [{fault: bmc-down, until_s: 1e300}]", "until_s"),
        ("faults: [{fault: clock-skew}]", "skew_s is missing"),
        ("faults: [{fault: clock-skew, skew_s: -1e300}]", "skew_s"),
        ("faults: [{fault: bmc-down, skew_s: 1}]", "skew_s does not apply"),
        ("faults: [{fault: bmc-down, nodes: [99999999999999999999999]}]", "nodes"),
        ("faults: [{fault: bmc-down, nodes: all}]", "faults.yaml:1"),
        ("faults: [{fault: bmc-down}, {fault: bmc-down, fault: bmc-down}]", ""),
        (bomb.as_str(), ""),
        (deep.as_str(), ""),
        (large.as_str(), "larger than 1 MiB"),
        (many.as_str(), "more than 1000"),
        (long.as_str(), "not one of"),
    ] {
        let start: String = text.chars().take(80).collect();
        let error = Script::parse("faults.yaml", text, 10).expect_err(&start).to_string();
        assert!(error.contains(words), "{start}: {error}");
        assert!(error.len() < 2000, "{start}: an error of {} bytes", error.len());
    }
}

#[test]
fn a_fault_counts_its_steps_for_each_machine() {
    let script =
        script("faults: [{fault: bmc-unavailable, at: 2, times: 2, path: /redfish/v1/Systems, retry_after_s: 1}]");
    let unavailable = RequestFault::Unavailable { retry_after_s: 1 };
    let wanted = [RequestFault::None, unavailable, unavailable, RequestFault::None];
    for node in [0, 999] {
        assert_eq!(faults_of(&script, node, &Method::GET, SYSTEM, 4), wanted);
    }
    assert_eq!(
        faults_of(&script, 0, &Method::GET, "/redfish/v1", 4),
        [RequestFault::None; 4]
    );
}

#[test]
fn chance_has_its_probability_and_is_repeatable() {
    let script = script("faults: [{fault: bmc-down, probability: 0.2}]");
    let all = |_| {
        let each = |node| faults_of(&script, node, &Method::GET, SYSTEM, 10);
        (0..1000).flat_map(each).collect::<Vec<_>>()
    };
    let first: Vec<RequestFault> = all(());
    let triggered = first
        .iter()
        .filter(|request_fault| **request_fault == RequestFault::HangUp)
        .count();
    assert!((1800..2200).contains(&triggered), "{triggered} of 10,000");
    assert_eq!(first, all(()));
}

#[test]
fn a_window_of_time_opens_and_closes() {
    let script = script("faults: [{fault: bmc-down, from_s: 10, until_s: 20, nodes: [1]}]");
    let chances = Chances::new(&script);
    let down = |node, now_ms| {
        script.is_down(Moment {
            node,
            now_ms,
            dice: Dice(1),
            chances: &chances,
        })
    };
    let found: Vec<bool> = [9_999, 10_000, 19_999, 20_000].map(|now_ms| down(1, now_ms)).to_vec();
    assert_eq!(found, [false, true, true, false]);
    assert!(!down(2, 15_000));
}

#[test]
fn exhausted_sessions_refuse_only_new_sessions() {
    let script = script("faults: [{fault: bmc-sessions-exhausted}]");
    let sessions = "/redfish/v1/SessionService/Sessions";
    assert_eq!(
        faults_of(&script, 0, &Method::POST, sessions, 1),
        [RequestFault::SessionsFull]
    );
    assert_eq!(faults_of(&script, 0, &Method::GET, sessions, 1), [RequestFault::None]);
    assert_eq!(faults_of(&script, 0, &Method::GET, SYSTEM, 1), [RequestFault::None]);
}

#[test]
fn a_fetch_is_lost_by_its_path_and_an_agent_crashes_in_its_phase() {
    let script = script(
        "faults: [{fault: boot-http-error, path: /boot/v1/script, at: 2}, {fault: agent-crash, during: write, nodes: [3]}]",
    );
    let chances = Chances::new(&script);
    let moment = |node| Moment {
        node,
        now_ms: 0,
        dice: Dice(1),
        chances: &chances,
    };
    let fetches = ["/boot/v1/script", "/boot/v1/files/1/vmlinuz", "/boot/v1/script"];
    let lost = fetches.map(|path| script.boot_http(path, moment(0)));
    assert_eq!(lost, [None, None, Some(Lost::Request)]);
    assert_eq!(script.agent_crash(During::Write, moment(3)), Some(Then::Restarts));
    assert_eq!(script.agent_crash(During::Erase, moment(3)), None);
    assert_eq!(script.agent_crash(During::Write, moment(4)), None);
    assert_eq!(chances.triggered(), 2);
    assert!(script.has_agent_restarts(3) && !script.has_agent_restarts(4) && !script.has_connection_faults(3));
}
