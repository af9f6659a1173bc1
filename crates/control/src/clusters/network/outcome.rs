//! The result of a run of the network test: what is stored, and the rows of reports.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::text::counted;
use rackwright_lifecycle::{ClusterId, EventKind, NodeId, seconds};
use rackwright_planner::handover::{ReportRow, Verdict};
use rackwright_planner::network::rows;
use rackwright_store::{NetworkRow, NetworkTest, StoreError};

use super::plan::{Found, stored};
use super::{REPEAT_S, network_event};

/// Most stored rows of the report; the oldest are dropped.
const ROWS_MAX: usize = 64;
/// Most characters of a stored text.
const TEXT_MAX: usize = 400;
/// Most faults or nodes that one sentence names.
const NAMED_MAX: usize = 4;

/// Stores the result of the run that began as `began`, and its events. Nothing is stored if the cluster is gone or has begun
/// another run.
pub async fn store(core: &Core, id: &ClusterId, began: &NetworkTest, found: &Found) -> Result<(), StoreError> {
    let now = clock::now();
    let mut tx = core.store.write().await?;
    let mut record = match tx.cluster(id).await {
        Err(StoreError::NotFound { .. }) => return Ok(()),
        other => other?,
    };
    let is_current_run = record
        .network
        .as_ref()
        .is_some_and(|test| test.run == began.run && test.until.is_some());
    if !is_current_run {
        return Ok(());
    }
    let mut test = conclude(id, began, found);
    test.ended_at = Some(now);
    if !test.blocked.is_empty() {
        test.again_at = Some(now.plus(seconds(REPEAT_S)));
    }
    for (node, (_, why)) in &test.faults {
        let message = format!("node {node} of {id} is at fault: {why}");
        let mut event = network_event(id, EventKind::ClusterNetworkFault, message);
        event.attributes = [("node".to_owned(), node.to_string())].into();
        tx.add_event(&event).await?;
    }
    if !test.blocked.is_empty() {
        tx.add_event(&network_event(id, EventKind::ClusterNetworkFault, test.blocked.clone()))
            .await?;
    }
    if test.faults.is_empty() && test.blocked.is_empty() && !found.abandoned {
        let message = format!("the network between the nodes of {id}: {}", passed_text(&test));
        tx.add_event(&network_event(id, EventKind::ClusterNetworkTested, message))
            .await?;
    }
    record.network = Some(test);
    tx.save_cluster(&mut record, now).await?;
    core.commit(tx).await
}

fn passed_text(test: &NetworkTest) -> String {
    let measured: Vec<&str> = test
        .rows
        .iter()
        .filter(|row| row.check == "network-slowest-pair" || row.verdict == "skipped")
        .map(|row| row.measured.as_str())
        .collect();
    format!(
        "{} passed; slowest pair {}",
        counted(test.passed.len(), "node"),
        measured.join("; ")
    )
}

/// The record of the test after the run with these findings.
#[must_use]
pub fn conclude(id: &ClusterId, began: &NetworkTest, found: &Found) -> NetworkTest {
    let mut test = NetworkTest {
        until: None,
        ..began.clone()
    };
    if found.abandoned {
        return test;
    }
    let (faulty, other_faults) = sort_faults(found);
    let name = |node: &usize| NodeId::stored(found.topology.name(*node));
    for (node, why) in &faulty {
        let tested = test.members.get(&name(node)).cloned().unwrap_or_default();
        test.faults.insert(name(node), (tested, truncated(why)));
    }
    let has_idle_node = found.summary.all_at_once.iter().flatten().any(|rate| *rate <= 0.0);
    let idle = has_idle_node.then(|| "some nodes transfer nothing while all nodes send at the same time".to_owned());
    test.blocked = truncated(&other_faults.into_iter().chain(idle).collect::<Vec<_>>().join("; "));
    let subject = subject(id, found);
    let kept = found.judgement.without(&faulty.keys().copied().collect());
    test.rows
        .extend(rows(&subject, &found.topology, &kept, &found.summary).iter().map(row));
    test.rows.extend(faulty.iter().map(|(node, why)| NetworkRow {
        subject: name(node).to_string(),
        check: "network-fault".into(),
        verdict: Verdict::Failed.name().into(),
        measured: truncated(why),
        wanted: "no node is slower than the others".into(),
    }));
    if test.members.len() < 2 {
        test.rows.push(without_peer(&subject));
    }
    test.rows.drain(..test.rows.len().saturating_sub(ROWS_MAX));
    if test.blocked.is_empty() {
        let without_fault = test.members.iter().filter(|(node, _)| !test.faults.contains_key(*node));
        test.passed = without_fault
            .map(|(node, tested)| (node.clone(), tested.clone()))
            .collect();
        if faulty.len() < test.members.len() {
            test.usual.extend(
                stored(&found.judgement.usual)
                    .into_iter()
                    .filter(|(kind, rate)| began.usual.get(kind).is_none_or(|known| known < rate)),
            );
        }
    }
    test
}

/// The nodes at fault with the reasons, and the faults that belong to no single node.
fn sort_faults(found: &Found) -> (BTreeMap<usize, String>, Vec<String>) {
    let mut faulty = found.excluded.clone();
    let mut other_faults: Vec<String> = found.refused.iter().cloned().collect();
    let judgement = &found.judgement;
    for fault in &judgement.faults {
        let words = fault.words(&found.topology, &judgement.tests, &judgement.wanted);
        match fault.node() {
            Some(node) => {
                faulty
                    .entry(node)
                    .and_modify(|why| why.push_str(&format!("; {words}")))
                    .or_insert(words);
            }
            None => other_faults.push(words),
        }
    }
    // If half of the nodes seem faulty, the likely cause is a shared part, or a firewall in the image. No node is blamed.
    if faulty.len() * 2 >= found.topology.len() && !faulty.is_empty() {
        let share = format!("{} of {} nodes", faulty.len(), found.topology.len());
        let why: Vec<String> = faulty
            .iter()
            .take(NAMED_MAX)
            .map(|(node, why)| format!("{}: {why}", found.topology.name(*node)))
            .collect();
        other_faults.insert(
            0,
            format!(
                "{share} are at fault, so many that a common cause is likely: {}",
                why.join("; ")
            ),
        );
        faulty.clear();
    }
    let more = other_faults.len().saturating_sub(NAMED_MAX);
    other_faults.truncate(NAMED_MAX);
    if more > 0 {
        other_faults.push(format!("and {more} more"));
    }
    (faulty, other_faults)
}

/// The subject of the run's rows: the cluster, or the nodes that were tested for the first time.
fn subject(id: &ClusterId, found: &Found) -> String {
    let fresh: BTreeSet<&str> = found.fresh.iter().map(|node| found.topology.name(*node)).collect();
    if fresh.len() == found.topology.len() {
        return id.to_string();
    }
    let names: Vec<&str> = fresh.into_iter().take(NAMED_MAX).collect();
    format!("{id}: {} with the others", names.join(", "))
}

fn without_peer(subject: &str) -> NetworkRow {
    NetworkRow {
        subject: subject.to_owned(),
        check: "network-pairs".into(),
        verdict: Verdict::Skipped.name().into(),
        measured: "no peer is available: all other nodes are handed over to their customer already".into(),
        wanted: "tests with other nodes of the cluster".into(),
    }
}

fn row(row: &ReportRow) -> NetworkRow {
    NetworkRow {
        subject: row.subject.clone(),
        check: row.check.clone(),
        verdict: row.verdict.name().to_owned(),
        measured: truncated(&row.measured),
        wanted: row.wanted.clone(),
    }
}

fn truncated(text: &str) -> String {
    let mut short: String = text.chars().take(TEXT_MAX).collect();
    if short.len() < text.len() {
        short.push_str(" ...");
    }
    short
}

/// The rows of the test in the report of the hand-over pack.
#[must_use]
pub fn report(id: &ClusterId, test: Option<&NetworkTest>) -> Vec<ReportRow> {
    let skipped = |why: &str| ReportRow {
        subject: id.to_string(),
        check: "network-pairs".into(),
        verdict: Verdict::Skipped,
        measured: format!("the network test was skipped: {why}"),
        wanted: String::new(),
    };
    let Some(test) = test else {
        return vec![skipped("not all nodes are checked yet")];
    };
    let verdict = |text: &str| match text {
        "passed" => Verdict::Passed,
        "failed" => Verdict::Failed,
        _ => Verdict::Skipped,
    };
    let row = |row: &NetworkRow| ReportRow {
        subject: row.subject.clone(),
        check: row.check.clone(),
        verdict: verdict(&row.verdict),
        measured: row.measured.clone(),
        wanted: row.wanted.clone(),
    };
    // The stored rows are from earlier runs. A node that joined afterwards may have skipped the test.
    let skipped_now = (!test.skipped.is_empty()).then(|| skipped(&test.skipped));
    test.rows.iter().map(row).chain(skipped_now).collect()
}
