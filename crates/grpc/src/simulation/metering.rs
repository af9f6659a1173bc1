//! Checks that the records of use match the edges, in spite of all kills.

use std::collections::BTreeMap;

use rackwright_lifecycle::{NodeId, State, Timestamp};
use rackwright_store::{Period, Scope, Store};

use super::checks;

/// First second, and the second after the last one.
type Span = (i64, Option<i64>);

fn second(at: Timestamp) -> i64 {
    at.0 / 1_000_000
}

/// The use according to the node's history: from each hand-over until the node leaves the hands of its customer. A
/// successful reimage does not end it. A span of less than a second does not count.
async fn spans_of(store: &Store, node: &str) -> Vec<Span> {
    let mut history = store
        .history(&NodeId::stored(node), i64::MAX)
        .await
        .expect("history can be read");
    history.reverse();
    let mut spans: Vec<Span> = Vec::new();
    for row in history {
        let running = spans.last_mut().filter(|span| span.1.is_none());
        match (running, row.to) {
            (None, State::Active) => spans.push((second(row.at), None)),
            (Some(_), state) if state.may_be_used() => {}
            (None, _) => {}
            (Some(span), _) => span.1 = Some(second(row.at)),
        }
    }
    spans.retain(|span| span.1 != Some(span.0));
    spans
}

/// Differences between records and edges when everything is at rest.
pub async fn violations(store: &Store) -> Vec<String> {
    let period = Period {
        from_s: 0,
        to_s: i64::MAX,
        customer: None,
        cluster: None,
    };
    let rows = store
        .usage(&Scope::Site, &period, 0, i64::MAX)
        .await
        .expect("use can be read");
    let mut recorded: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    for row in rows {
        recorded
            .entry(row.node.to_string())
            .or_default()
            .push((row.from_s, row.to_s));
    }
    let mut wrong = Vec::new();
    for record in checks::records(store).await {
        let found = recorded.remove(record.id.as_str()).unwrap_or_default();
        let wanted = spans_of(store, record.id.as_str()).await;
        if found != wanted {
            wrong.push(format!(
                "{} is recorded as in use {found:?}, and was {wanted:?}",
                record.id
            ));
        }
    }
    wrong
}
