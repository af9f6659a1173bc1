//! The benchmarks, each for a few seconds: they must run and print the documented output. Their figures are not judged:
//! the computer is shared, and these programs are not optimised.

use std::path::Path;
use std::process::Command;

use rackwright_tests::site::{program, texts};
use serde_json::Value;

/// The lines of JSON that a benchmark prints, and whether the program succeeded.
fn lines(command: &mut Command) -> (Vec<Value>, bool) {
    let output = command.output().expect("the benchmark starts");
    let (printed, errors) = texts(&output);
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}\n{errors}"));
    let lines: Vec<Value> = printed.lines().map(parse).collect();
    eprintln!("{errors}");
    assert!(!lines.is_empty(), "{} prints nothing\n{errors}", output.status);
    (lines, output.status.success())
}

/// The lines with the value `value` in the field `name`.
fn with<'a>(lines: &'a [Value], name: &str, value: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line[name] == value).collect()
}

#[track_caller]
fn positive(line: &Value, names: &[&str]) {
    for name in names {
        assert!(line[*name].as_f64().is_some_and(|x| x > 0.0), "{name} in {line}");
    }
}

/// `make bench-fleet` with twelve machines.
#[test]
fn the_fleet_benchmark_takes_all_machines_through_their_life() {
    let mut command = Command::new(program("rackwright-bench"));
    command.args([
        "fleet",
        "--nodes",
        "12",
        "--phases",
        "enrol,inspect,deploy,release,list",
    ]);
    let (lines, is_success) = lines(&mut command);
    assert!(is_success, "{lines:?}");
    for phase in ["enrol", "inspect", "deploy", "release", "total"] {
        let of_phase = with(&lines, "phase", phase);
        assert_eq!(of_phase.len(), 1, "{phase}: {lines:?}");
        assert_eq!(of_phase[0]["right"], 12, "{}", of_phase[0]);
        positive(of_phase[0], &["seconds"]);
    }
    assert_eq!(with(&lines, "phase", "list").len(), 1, "{lines:?}");
}

/// The cost of the proof of identity: the same machines without TPMs, with, with, and without.
#[test]
fn the_fleet_benchmark_compares_machines_without_and_with_a_tpm() {
    let mut command = Command::new(program("rackwright-bench"));
    command.args([
        "fleet",
        "--nodes",
        "4",
        "--identity",
        "both",
        "--phases",
        "enrol,inspect",
    ]);
    let (lines, is_success) = lines(&mut command);
    assert!(is_success, "{lines:?}");
    let inspected = with(&lines, "phase", "inspect");
    assert_eq!(inspected.len(), 4, "{lines:?}");
    assert!(inspected.iter().all(|line| line["right"] == 4), "{inspected:?}");
    let comparison = lines.last().expect("a line");
    assert_eq!(
        (&comparison["phase"], &comparison["nodes"]),
        (&"identity".into(), &4.into())
    );
    positive(comparison, &["control_cpu_ratio", "seconds_ratio"]);
    for kind in ["none", "tpm"] {
        positive(&comparison[kind], &["seconds", "control_cpu_ms_per_node"]);
    }
}

/// `make bench-api` with four machines.
#[test]
fn the_api_benchmark_compares_the_forms_of_a_call() {
    let mut command = Command::new(program("rackwright-bench"));
    command.args(["api", "--nodes", "4", "--calls", "20"]);
    let (lines, is_success) = lines(&mut command);
    assert!(is_success, "{lines:?}");
    for call in ["GetNode", "ListNodes"] {
        let forms = with(&lines, "call", call);
        let names: Vec<&str> = forms.iter().filter_map(|line| line["form"].as_str()).collect();
        assert_eq!(names, ["grpc", "connect-proto", "connect-json", "rest"], "{lines:?}");
        for line in &forms {
            positive(line, &["us", "ratio", "response_bytes"]);
        }
        assert_eq!(forms[0]["ratio"], 1.0, "{}", forms[0]);
        let bytes = |form: usize| forms[form]["response_bytes"].as_u64();
        assert!(
            bytes(2) > bytes(0) && bytes(3) > bytes(0),
            "JSON is longer than binary: {lines:?}"
        );
    }
}

/// `make bench-console` with few nodes and consoles.
#[test]
fn the_console_benchmark_measures_pages_and_idle_consoles() {
    let mut command = Command::new(program("rackwright-bench"));
    command.args(["console", "--nodes", "12", "--many-nodes", "24", "--idle-nodes", "4"]);
    command.args(["--consoles", "20", "--window", "2s", "--rounds", "2"]);
    let (lines, is_success) = lines(&mut command);
    assert!(is_success, "{lines:?}");
    let figures: Vec<&str> = lines.iter().filter_map(|line| line["figure"].as_str()).collect();
    let wanted = [
        "first-rows",
        "scroll-frame",
        "change-visible",
        "filter-rack",
        "filter-room",
        "heat-map-redraw",
        "idle-background",
        "idle-shown",
    ];
    assert_eq!(figures, wanted, "{lines:?}");
    for line in &lines {
        positive(line, &["aim", "measured"]);
        assert!(line["is_met"].is_boolean(), "{line}");
        match line["unit"].as_str() {
            Some("ms") => positive(line, &["value", "worst"]),
            // A control plane that does little may show the same time before and after.
            _ => assert_eq!(
                (&line["unit"], &line["consoles"]),
                (&"cores".into(), &20.into()),
                "{line}"
            ),
        }
    }
}

/// `make bench-fanout` with three agents and eight chunks.
#[test]
fn the_fanout_benchmark_runs_agents_in_namespaces() {
    let mut command = Command::new(program("rackwright-bench"));
    command.args([
        "fanout",
        "--agents",
        "3",
        "--racks",
        "2",
        "--chunks",
        "8",
        "--few-chunks",
        "2",
    ]);
    command.args([
        "--noise",
        "64",
        "--cap",
        "20",
        "--spread-cap",
        "20",
        "--spread-over",
        "2",
    ]);
    command.args([
        "--cases",
        "together,uplink,killed,slow,spread,spread-leave,unicast,cache,bittorrent",
    ]);
    let (lines, is_success) = lines(&mut command);
    assert!(is_success, "{lines:?}");
    let links = with(&lines, "case", "link");
    assert_eq!(links.len(), 1, "{lines:?}");
    positive(links[0], &["cap_mbit", "stream_mbit", "ratio", "aim"]);
    let ways = [
        ("together", "agents", 8),
        ("uplink", "agents", 8),
        ("killed", "agents", 8),
        ("slow", "agents", 8),
        ("spread", "agents", 8),
        ("spread-leave", "agents", 8),
        ("unicast", "server", 2),
        ("cache", "nginx", 2),
        ("bittorrent", "libtorrent", 8),
    ];
    for (case, way, chunks) in ways {
        let of_case = with(&lines, "case", case);
        assert_eq!(of_case.len(), 1, "{case}: {lines:?}");
        let line = of_case[0];
        assert_eq!((&line["way"], &line["chunks"]), (&way.into(), &chunks.into()), "{line}");
        positive(line, &["seconds", "alone_seconds", "ratio", "cores_busy"]);
        // The killed agent may have been faster, and the slow one is not waited for.
        let least = if matches!(case, "killed" | "slow") { 2 } else { 3 };
        let right = line["right"].as_u64();
        assert!(right.is_some_and(|right| (least..=3).contains(&right)), "{line}");
        for copies in ["uplink_copies", "rack_copies"] {
            assert_eq!(line[copies].as_array().map(Vec::len), Some(2), "{line}");
        }
        if way == "agents" {
            positive(line, &["origin_copies", "chunks_from_servers"]);
            assert_eq!(line["remarks"], 0, "{line}");
            assert!(line["is_met"].is_boolean(), "{line}");
        }
    }
    assert_eq!(with(&lines, "case", "alone").len(), 2, "one for each image: {lines:?}");
}

/// `make bench-placement` with one pod and one measured day. The program also fails if placement is slower than its aim,
/// which these unoptimised programs may be: the exit status is ignored.
#[test]
fn the_placement_benchmark_measures_decisions_and_utilisation() {
    let mut command = Command::new(program("rackwright-bench-placement"));
    command.args(["validation", "plan", "latency", "trace"]);
    command.args(["--nodes", "8200", "--pods", "1", "--requests", "40", "--days", "1"]);
    let (lines, _) = lines(&mut command);
    let validations = with(&lines, "bench", "validation");
    assert_eq!(validations.len(), 1, "{lines:?}");
    let validation = validations[0];
    assert_eq!(
        (&validation["nodes"], &validation["errors"]),
        (&8200.into(), &0.into()),
        "{validation}"
    );
    positive(
        validation,
        &["switches", "cables", "check_ms", "first_check_ms", "peak_mib"],
    );
    positive(validation, &["command_ms", "first_command_ms"]);
    let plans = with(&lines, "bench", "plan");
    assert_eq!(plans.len(), 1, "{lines:?}");
    assert_eq!(plans[0]["fabrics"], 2, "{}", plans[0]);
    assert_eq!(plans[0]["cluster"], 4096, "{}", plans[0]);
    positive(
        plans[0],
        &["read_ms", "hall_ms", "total_ms", "command_ms", "first_command_ms"],
    );
    let hall = with(&lines, "bench", "hall");
    assert_eq!(hall.len(), 1, "{lines:?}");
    positive(hall[0], &["nodes", "clusters", "filled"]);
    let decisions = with(&lines, "bench", "latency");
    assert_eq!(decisions.len(), 4, "{lines:?}");
    for line in decisions {
        assert_eq!(line["requests"], 40, "{line}");
        positive(line, &["p50_us", "p99_us", "max_us", "max_first_try_us"]);
    }
    let months = with(&lines, "bench", "month");
    assert_eq!(months.len(), 3, "ours and two others: {lines:?}");
    for line in months {
        positive(line, &["clusters", "utilisation"]);
    }
}

/// `make bench-placement PLACEMENT_ARGS='import single'` with two units.
#[test]
fn the_placement_benchmark_imports_a_dump_and_plans_in_a_file_of_single_cables() {
    let mut command = Command::new(program("rackwright-bench-placement"));
    command.args(["import", "single", "--nodes", "128"]);
    let (lines, is_success) = lines(&mut command);
    assert!(is_success, "{lines:?}");
    let imports = with(&lines, "bench", "import");
    assert_eq!(imports.len(), 1, "{lines:?}");
    let import = imports[0];
    // 16 leaves of eight rails, and as many cables above the leaves as below.
    assert_eq!(
        (&import["nodes"], &import["rails"], &import["cables"]),
        (&128.into(), &8.into(), &2048.into()),
        "{import}"
    );
    positive(import, &["switches", "dump_kib", "file_kib", "command_ms"]);
    let plans = with(&lines, "bench", "single");
    assert_eq!(plans.len(), 1, "{lines:?}");
    let (single, compact) = (&plans[0]["file_kib"], &plans[0]["compact_file_kib"]);
    assert!(single.as_u64() > compact.as_u64().map(|kib| 4 * kib), "{}", plans[0]);
    assert_eq!(plans[0]["is_same_plan"], true, "{}", plans[0]);
    positive(plans[0], &["command_ms"]);
}

/// `make bench-redfish` with two BMCs and one round of half seconds.
#[test]
fn the_redfish_benchmark_measures_both_clients() {
    let program = program("rackwright-bench-redfish");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench-redfish.sh");
    let mut command = Command::new(script);
    let settings = [
        ("ROUNDS", "1"),
        ("SECONDS_EACH", "0.5"),
        ("BMCS", "2"),
        ("PROFILE", "instant"),
    ];
    command
        .envs(settings)
        .env("PROGRAMS", program.parent().expect("a folder"));
    let (lines, is_success) = lines(&mut command);
    assert!(is_success, "{lines:?}");
    for client in ["rackwright", "sushy"] {
        let of_client = with(&lines, "client", client);
        assert_eq!(of_client.len(), 2, "one BMC, then two: {lines:?}");
        for line in of_client {
            positive(&line["walk"], &["runs", "requests", "cpu_s"]);
            positive(&line["cycle"], &["runs", "cpu_s"]);
        }
    }
    let ratios: Vec<&Value> = lines
        .iter()
        .filter(|line| line["cpu_us_per_request_ratio"].is_number())
        .collect();
    assert_eq!(ratios.len(), 2, "{lines:?}");
    for line in ratios {
        positive(
            line,
            &["requests_per_walk", "walks_per_s_ratio", "cpu_ms_per_cycle_ratio"],
        );
    }
}
