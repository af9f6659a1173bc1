use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rackwright_lifecycle::{Effect, Wait};
use rackwright_store::MemberRow;

use super::*;
use crate::core::BootCounts;
use crate::testing;

/// A scrape after each event has happened once.
async fn full_scrape() -> String {
    let core = testing::core().await;
    testing::add(&core, &testing::node("n1", State::Available, None)).await;
    let failed = Outcome::Failed {
        code: "bmc-unreachable".into(),
        message: "the sentence is not shown".into(),
        retryable: true,
    };
    let now = crate::clock::now();
    let mut tx = core.store.write().await.unwrap();
    for (name, days) in [("prometheus", 6), ("cache", 8)] {
        let reader = MemberRow {
            role: "viewer".into(),
            customer: "".into(),
        };
        tx.put_member(name, &reader, 1, now).await.unwrap();
        let ends = now.plus(days * 86_400 * 1_000_000);
        assert!(tx.record_member_cert(name, 1, ends, "ca").await.unwrap());
    }
    tx.commit().await.unwrap();
    for name in ["prometheus", "cache"] {
        assert!(core.store.record_use(name, 1, now, now).await.unwrap());
    }
    let metrics = &core.metrics;
    metrics.edge(Edge::Claimed, State::Available, State::Allocated, 1_500_000);
    metrics.effect_ended(Effect::PowerOn, &failed, "Vendor", 2_000_000);
    metrics.bmc_failed("bmc-unreachable", "Vendor");
    metrics.waits("rest");
    metrics.admitted(Kind::PowerOn, 2_000_000);
    metrics.leased(1);
    metrics.lease_lost();
    metrics.taken_over("effect", 2);
    metrics.step_lost();
    metrics.step_failed();
    metrics.committed(Duration::from_millis(3));
    metrics.note_agent_message();
    metrics.looked("same");
    metrics.image_answered(206, 4096);
    metrics.spread_granted("servers");
    let boot = BootCounts {
        counters: Arc::new(|| [("dhcp_offer_total".to_owned(), 7)].into()),
        stages_waiting: Arc::new(|| 3),
        addresses: Arc::new(Vec::new),
    };
    *core.boot_counts.lock().unwrap() = Some(boot);
    scrape(&core).await.unwrap()
}

/// Names of metrics in a text: words with the prefix of this project.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_part(c))
        .filter(|word| word.starts_with("rackwright_"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn every_panel_and_every_alert_queries_an_existing_metric() {
    let output = names(&full_scrape().await);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring");
    for file in ["grafana.json", "alerts.yaml"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let queried = names(&text);
        assert!(queried.len() >= 5, "{file}: {queried:?}");
        let missing: Vec<_> = queried.difference(&output).collect();
        assert!(missing.is_empty(), "{file} queries {missing:?}, which are no metrics");
        if file == "grafana.json" {
            let base = |name: &String| name.trim_end_matches("_bucket").to_owned();
            let shown: BTreeSet<String> = queried.iter().map(base).collect();
            let hidden: Vec<_> = output
                .iter()
                .filter(|name| is_series(name, &output) && !shown.contains(&base(name)))
                .collect();
            assert!(hidden.is_empty(), "no panel shows {hidden:?}");
        }
    }
}

/// HELP and TYPE lines name counters and histograms without their suffix; those names are not series. Sums and counts
/// accompany the buckets.
fn is_series(name: &str, output: &BTreeSet<String>) -> bool {
    let is_part_of_histogram = name.ends_with("_sum") || name.ends_with("_count");
    !is_part_of_histogram && !output.contains(&format!("{name}_total")) && !output.contains(&format!("{name}_bucket"))
}

#[tokio::test]
async fn metrics_hold_no_labels_from_outside() {
    let output = full_scrape().await;
    for line in [
        "rackwright_edges_total{edge=\"claimed\",from=\"available\",to=\"allocated\"} 1",
        "rackwright_time_in_state_seconds_sum{state=\"available\"} 1.5",
        "rackwright_effect_seconds_count{effect=\"power-on\",outcome=\"failed\",vendor=\"vendor\"} 1",
        "rackwright_effect_failures_total{effect=\"power-on\",code=\"bmc-unreachable\"} 1",
        "rackwright_nodes{state=\"available\"} 1",
        "rackwright_nodes{state=\"active\"} 0",
        "rackwright_nodes_waiting{state=\"available\",reason=\"rest\"} 1",
        "rackwright_nodes_due 1",
        "rackwright_member_certificates_ending 1",
        "rackwright_permits_in_use{kind=\"power-on\"} 0",
        "rackwright_nodes_in_line{kind=\"image\"} 0",
        "rackwright_line_seconds_sum{kind=\"power-on\"} 2.0",
        "rackwright_leases_lost_total 1",
        "rackwright_takeovers_total{what=\"effect\"} 2",
        "rackwright_boot_stages_waiting 3",
        "rackwright_steps_limit 12288",
        "rackwright_spans_dropped_total{reason=\"queue-full\"} 0",
        "rackwright_boot_total{event=\"dhcp_offer\"} 7",
        "rackwright_image_bytes_total 4096",
    ] {
        assert!(output.lines().any(|l| l == line), "{line:?} is not in\n{output}");
    }
    assert!(
        !output.contains("prometheus") && !output.contains("n1") && !output.contains("sentence"),
        "{output}"
    );
    assert!(output.ends_with("# EOF\n"));
}

/// The lines of a scrape with numbers of waiting nodes.
fn waiting(output: &str) -> Vec<&str> {
    let mut lines: Vec<_> = output
        .lines()
        .filter_map(|l| l.strip_prefix("rackwright_nodes_waiting"))
        .collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn nodes_are_counted_by_their_wait_and_the_count_is_cached() {
    let core = testing::core().await;
    let retry = |effect, bmc| Wait::Retry {
        effect,
        message: format!("BMC {bmc} is away"),
    };
    for (id, wait) in [
        ("n1", Wait::AgentBoot),
        ("n2", retry(Effect::PowerOn, "n2")),
        ("n3", retry(Effect::Identify, "n3")),
    ] {
        testing::add(&core, &testing::node(id, State::Inspecting, None)).await;
        testing::rest(&core, id, &wait).await;
    }
    let begun = Instant::now();
    let first = scrape(&core).await.unwrap();
    let wanted = [
        "{state=\"inspecting\",reason=\"agent-boot\"} 1",
        "{state=\"inspecting\",reason=\"retry\"} 2",
    ];
    assert_eq!(waiting(&first), wanted);
    // The state began at the start of 1970.
    let longest = first
        .lines()
        .find_map(|l| l.strip_prefix("rackwright_oldest_in_state_seconds{state=\"inspecting\"} "));
    assert!(longest.unwrap().parse::<f64>().unwrap() > 1e9);

    testing::rest(&core, "n1", &Wait::Rest).await;
    let second = scrape(&core).await.unwrap();
    assert!(waiting(&second) == wanted || begun.elapsed() >= read::FRESH, "{second}");
    core.metrics.gauges.forget().await;
    let wanted = [
        "{state=\"inspecting\",reason=\"rest\"} 1",
        "{state=\"inspecting\",reason=\"retry\"} 2",
    ];
    assert_eq!(waiting(&scrape(&core).await.unwrap()), wanted);
}

#[test]
fn label_values_from_outside_are_bounded() {
    let values = LabelValues::default();
    for n in 0..LABEL_VALUES_MAX {
        assert_eq!(values.label(&format!("Vendor {n}")), format!("vendor {n}"));
    }
    assert_eq!(values.label("one more"), "other");
    assert_eq!(values.label(" VENDOR 3\n"), "vendor 3");
    assert_eq!(values.label(""), "unknown");
    assert!(values.label(&"x".repeat(10_000)).len() <= CODE_MAX);
}
