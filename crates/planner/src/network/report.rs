//! The rows about network tests in the hand-over pack.

use std::collections::{BTreeMap, BTreeSet};

use super::judge::rate;
use super::{Judgement, Kind, Test, Topology, Transport};
use crate::handover::{ReportRow, Verdict};

/// The tests beside the pairs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Summary {
    /// Rates while every node sends at once, in Gbit/s, by shift.
    pub all_at_once: Vec<Vec<f64>>,
    /// Number of rounds of pairs.
    pub rounds: usize,
    /// Duration of each direction, in seconds.
    pub seconds: f64,
}

/// The rows of the report: number of pairs, the slowest pair, the latency, and all nodes at once.
#[must_use]
pub fn rows(cluster: &str, topology: &Topology, judgement: &Judgement, summary: &Summary) -> Vec<ReportRow> {
    let row = |check: &str, verdict, measured: String, wanted: String| ReportRow {
        subject: cluster.to_owned(),
        check: check.to_owned(),
        verdict,
        measured,
        wanted,
    };
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        let tests: Vec<_> = judgement
            .tests
            .iter()
            .zip(&judgement.bad)
            .filter(|(test, _)| test.kind() == kind)
            .collect();
        let Some((slowest, _)) = tests.iter().min_by(|a, b| a.0.gbit_per_s.total_cmp(&b.0.gbit_per_s)) else {
            continue;
        };
        let bad = tests.iter().filter(|(_, bad)| **bad).count();
        let verdict = if bad == 0 { Verdict::Passed } else { Verdict::Failed };
        let least = judgement.wanted.get(&kind).copied().unwrap_or_default();
        let usual = judgement.usual.get(&kind).copied().unwrap_or(slowest.gbit_per_s);
        rows.push(row(
            "network-pairs",
            verdict,
            format!(
                "{}, both ways, {} rounds of {:.1} s: {} tests, {bad} bad; usual {}{}",
                describe_method(kind, tests.iter().map(|(test, _)| *test)),
                summary.rounds,
                summary.seconds,
                tests.len(),
                rate(usual),
                retransmit_text(kind, tests.iter().map(|(test, _)| *test)),
            ),
            format!("each at least {}", rate(least)),
        ));
        let pair = format!("{} – {}", topology.name(slowest.a), topology.name(slowest.b));
        rows.push(row(
            "network-slowest-pair",
            verdict,
            format!(
                "{pair}: {}, 99 of 100 round trips within {:.0} µs",
                rate(slowest.gbit_per_s),
                slowest.p99_us
            ),
            format!("at least {}", rate(least)),
        ));
    }
    for (shift, rates) in summary.all_at_once.iter().enumerate() {
        let Some(least) = rates.iter().copied().reduce(f64::min) else {
            continue;
        };
        let whole = rates.iter().sum::<f64>();
        let to = if shift == 0 {
            "the next node"
        } else {
            "the node half way round the ring"
        };
        rows.push(row(
            "network-all-nodes",
            if least > 0.0 { Verdict::Passed } else { Verdict::Failed },
            format!(
                "each of {} nodes to {to}, all at once, by {}: {} together, the slowest {}",
                rates.len(),
                transports(judgement),
                rate(whole),
                rate(least)
            ),
            "every node transfers data".to_owned(),
        ));
    }
    rows
}

/// The transport. For TCP between adapters, also the reason.
fn describe_method<'a>(kind: Kind, tests: impl Iterator<Item = &'a Test>) -> String {
    match kind {
        Kind::Rdma => "RDMA between nodes by their adapters".to_owned(),
        Kind::Address => {
            let why =
                "no RDMA: most nodes share no active InfiniBand or RoCE port that libibverbs or an address can reach";
            format!("TCP between nodes by their addresses ({why})")
        }
        Kind::Adapter => format!("TCP between nodes by their adapters ({})", without_rdma(tests)),
    }
}

/// The most frequent reason.
fn without_rdma<'a>(tests: impl Iterator<Item = &'a Test>) -> String {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for test in tests {
        if let Transport::Tcp(Some(why)) = &test.transport {
            *reasons.entry(why).or_default() += 1;
        }
    }
    let most = reasons.iter().max_by_key(|(_, count)| **count);
    most.map_or("RDMA is switched off".to_owned(), |(why, _)| match reasons.len() {
        1 => format!("no RDMA: {why}"),
        kinds => format!("no RDMA: {why}; and {} more reasons", kinds - 1),
    })
}

fn retransmit_text<'a>(kind: Kind, tests: impl Iterator<Item = &'a Test>) -> String {
    match kind {
        // Adapters do not report their retransmissions.
        Kind::Rdma => String::new(),
        Kind::Address | Kind::Adapter => {
            let again: u64 = tests.map(|test| test.retransmits).sum();
            format!("; {again} segments retransmitted")
        }
    }
}

/// The transports of all pair tests. The test with all nodes at once uses the same.
fn transports(judgement: &Judgement) -> &'static str {
    let kinds: BTreeSet<bool> = judgement.tests.iter().map(|test| test.kind() == Kind::Rdma).collect();
    match (kinds.contains(&true), kinds.contains(&false)) {
        (true, true) => "RDMA and TCP",
        (true, false) => "RDMA",
        _ => "TCP",
    }
}
