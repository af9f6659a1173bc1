//! `rackwright usage ...`

use prost_types::Timestamp;
use rackwright_api::v1::*;

use crate::fake::Fake;
use crate::golden::Script;
use crate::program::Program;

/// 2026-10-01 00:00 UTC.
const OCTOBER: i64 = 1_790_812_800;

fn at(second: i64) -> Option<Timestamp> {
    Some(Timestamp {
        seconds: OCTOBER + second,
        nanos: 0,
    })
}

fn record(node: &str, customer: &str, cluster: &str, span: (i64, i64), open: bool) -> UsageRecord {
    UsageRecord {
        node: format!("nodes/{node}"),
        customer: customer.into(),
        cluster: cluster.into(),
        sku: "dgx-h100".into(),
        start_time: at(span.0),
        end_time: at(span.1),
        node_seconds: span.1 - span.0,
        open,
    }
}

fn sum(customer: &str, cluster: &str, reserved: i64, on_demand: i64, open: bool) -> UsageSum {
    UsageSum {
        customer: customer.into(),
        cluster: cluster.into(),
        sku: "dgx-h100".into(),
        reserved_node_seconds: reserved,
        on_demand_node_seconds: on_demand,
        node_seconds: reserved + on_demand,
        open,
    }
}

fn breach(kind: &str, good: Option<i64>, span: (i64, Option<i64>), seconds: i64) -> UsageBreach {
    UsageBreach {
        kind: kind.into(),
        customer: "acme".into(),
        cluster: "clusters/alpha".into(),
        good_time: good.and_then(at),
        since: at(span.0),
        end_time: span.1.and_then(at),
        seconds,
    }
}

fn fake() -> Fake {
    let fake = Fake::start();
    let mut state = fake.state();
    state.metering.records = vec![
        record("gpu-001", "acme", "clusters/alpha", (0, 86_400), false),
        record("gpu-002", "acme", "clusters/alpha", (3_600, 90_000), true),
        record("gpu-003", "Bolt, \"the\" second", "", (10, 17), false),
    ];
    state.metering.sums = SumUsageResponse {
        sums: vec![
            sum("Bolt, \"the\" second", "", 0, 7, false),
            sum("acme", "clusters/alpha", 90_000, 82_800, true),
        ],
        total: Some(UsageSum {
            sku: String::new(),
            ..sum("", "", 90_000, 82_807, true)
        }),
        start_time: at(0),
        end_time: at(90_000),
    };
    state.metering.breaches = vec![
        breach("cut-off", Some(40), (100, Some(400)), 300),
        breach("open-default", None, (80_000, None), 10_000),
    ];
    drop(state);
    fake
}

const PERIOD: [&str; 4] = ["--from", "2026-10-01", "--to", "2026-11-01"];

#[test]
fn reports_are_shown_in_every_form_and_sum_at_the_foot() {
    let fake = fake();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    for verb in ["list", "sum", "breaches"] {
        for more in [
            &[][..],
            &["-o", "json"],
            &["-o", "yaml"],
            &["-o", "csv"],
            &["-o", "name"],
        ] {
            script.run(&program, &[&["usage", verb][..], &PERIOD, more].concat());
        }
    }
    script.check("usage", &program);
    let narrowed = ["--customer", "acme", "--cluster", "alpha"];
    for verb in ["list", "sum", "breaches"] {
        let finished = program.run(&[&["usage", verb, "-o", "csv"][..], &PERIOD, &narrowed].concat());
        assert_eq!(finished.code, 0, "{finished:?}");
        let lines: Vec<_> = finished.stdout.split("\r\n").collect();
        assert!(lines.len() > 2 && lines.last() == Some(&""), "{finished:?}");
        assert!(lines.iter().all(|line| !line.contains('\n')), "{finished:?}");
    }
    let state = fake.state();
    let request = state.metering.listed.last().unwrap();
    assert_eq!((request.start_time, request.end_time), (at(0), at(31 * 86_400)));
    assert_eq!(
        (request.customer.as_str(), request.cluster.as_str()),
        ("acme", "clusters/alpha")
    );
    let request = state.metering.summed.last().unwrap();
    assert_eq!((request.start_time, request.end_time), (at(0), at(31 * 86_400)));
    assert_eq!(
        (request.customer.as_str(), request.cluster.as_str()),
        ("acme", "clusters/alpha")
    );
    let request = state.metering.breaches_listed.last().unwrap();
    assert_eq!((request.start_time, request.end_time), (at(0), at(31 * 86_400)));
    assert_eq!(
        (request.customer.as_str(), request.cluster.as_str()),
        ("acme", "clusters/alpha")
    );
}

#[test]
fn without_a_breach_sums_have_no_table_of_breaches() {
    let fake = fake();
    fake.state().metering.breaches.clear();
    let program = Program::logged_in(&fake);
    let finished = program.run(&[&["usage", "sum"][..], &PERIOD].concat());
    assert_eq!(finished.code, 0, "{finished:?}");
    assert!(finished.stdout.trim_end().lines().last().unwrap().starts_with("total"));
    assert!(!format!("{finished:?}").contains("isolation"), "{finished:?}");
    let finished = program.run(&[&["usage", "sum", "-o", "json"][..], &PERIOD].concat());
    assert!(finished.stdout.contains("\"breaches\": []"), "{finished:?}");
}

#[test]
fn terms_are_set_listed_and_deleted_and_invalid_ones_refused() {
    let fake = fake();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    let term = ["usage", "term"];
    let set = |nodes| {
        let of = ["--customer", "acme", "--sku", "dgx-h100", "--nodes", nodes];
        let span = ["--from", "2026-10-01", "--to", "2027-10-01T12:00:00Z"];
        [&term[..], &["set", "acme-2026"], &of, &span].concat()
    };
    script.run(&program, &set("64"));
    script.run(&program, &[&set("0")[..], &["-q"]].concat());
    script.run(&program, &[&term[..], &["list", "--customer", "acme"]].concat());
    script.run(
        &program,
        &[&term[..], &["list", "--customer", "acme", "-o", "json"]].concat(),
    );
    script.run(&program, &[&term[..], &["list", "-o", "csv"]].concat());
    script.run(&program, &["node", "list", "-o", "csv"]);
    script.run(&program, &[&term[..], &["delete", "acme-2026"]].concat());
    script.run(&program, &[&term[..], &["delete", "terms/acme-2026"]].concat());
    script.run(&program, &["usage", "sum"]);
    script.run(&program, &["usage", "sum", "--from", "october"]);
    script.run(&program, &["usage", "sum", "--from", "2026-10-01", "--customer", ""]);
    script.check("usage_terms", &program);
    assert!(fake.keys("SetTerm").iter().all(|key| !key.is_empty()));
    assert_eq!(fake.keys("SetTerm").len(), 1, "what is refused here is not sent");
}

#[test]
fn a_total_that_its_rows_do_not_add_up_to_is_not_shown() {
    let fake = fake();
    let program = Program::logged_in(&fake);
    fake.state().metering.sums.sums[0].on_demand_node_seconds += 1;
    let finished = program.run(&[&["usage", "sum"][..], &PERIOD].concat());
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""), "{finished:?}");
    assert!(finished.stderr.contains("sum to"), "{finished:?}");
}
