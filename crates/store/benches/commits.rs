//! Changes a second on SQLite, each acknowledged after it is on disk: in shared transactions, as the store commits them,
//! and with a COMMIT for each, in the same run. Prints a line of JSON for each number of writers: `make bench-store`.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use rackwright_lifecycle::{Edge, EventKind, Timestamp};
use rackwright_store::{EventRow, Store};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Measurement time of each way, in alternating turns.
const TURN: Duration = Duration::from_secs(1);
const TURNS: usize = 3;

fn event(n: i64) -> EventRow {
    EventRow {
        position: 0,
        at: Timestamp(n),
        kind: EventKind::Edge(Edge::Written),
        target: "nodes/bench".into(),
        message: "a change".into(),
        attributes: [].into(),
    }
}

/// Changes made in one turn. A change that holds `alone` from begin to end shares no transaction.
async fn turn(store: &Store, writers: usize, alone: Option<Arc<Mutex<()>>>) -> f64 {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..writers {
        let (store, alone) = (store.clone(), alone.clone());
        tasks.spawn(async move {
            let mut made = 0;
            while begun.elapsed() < TURN {
                let _alone = match &alone {
                    Some(alone) => Some(alone.lock().await),
                    None => None,
                };
                let mut tx = store.write().await.unwrap();
                tx.add_event(&event(made)).await.unwrap();
                tx.commit().await.unwrap();
                made += 1;
            }
            made
        });
    }
    let mut made = 0;
    while let Some(count) = tasks.join_next().await {
        made += count.unwrap();
    }
    made as f64 / begun.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main]
async fn main() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = Store::open(&dir.path().join("bench.db")).await.unwrap();
    for writers in [1, 8, 32, 256] {
        let (mut shared, mut alone, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let each = turn(&store, writers, Some(Arc::default())).await;
            let group = turn(&store, writers, None).await;
            alone.push(each);
            shared.push(group);
            ratios.push(group / each);
        }
        println!(
            "{{\"writers\":{writers},\"changes_per_s\":{:.0},\"changes_per_s_one_commit_each\":{:.0},\"ratio\":{:.2}}}",
            median(shared),
            median(alone),
            median(ratios)
        );
    }
}
