use rackwright_lifecycle::node::PowerRequest;
use rackwright_lifecycle::{Attempt, Effect, Outcome, PowerGoal, State, Timestamp};
use rackwright_store::EffectRow;

use super::step_until_rest;
use crate::{clock, testing};

/// As after a commit whose answer was lost: the try is there, and nobody makes it.
#[tokio::test]
async fn an_effect_that_was_begun_unknown_to_us_is_not_waited_for() {
    let core = testing::core().await;
    let mut record = testing::node("n1", State::Available, None);
    record.node.wanted.power = Some(PowerRequest {
        goal: PowerGoal::On,
        at: Timestamp(1),
    });
    testing::add(&core, &record).await;
    let now = clock::now();
    let row = EffectRow {
        id: "e1".into(),
        node_id: "n1".into(),
        state_since: record.node.since,
        number: 1,
        generation: 0,
        owner: core.replica.clone(),
        attempt: Attempt {
            effect: Effect::ObservePower,
            started_at: now,
            ended_at: None,
            deadline: now.plus(rackwright_lifecycle::seconds(3600)),
            outcome: Outcome::Open,
            boot_id: None,
        },
    };
    let mut tx = core.store.write().await.unwrap();
    tx.begin_effect(&row).await.unwrap();
    tx.commit().await.unwrap();
    let nudge = core.runs.begin("n1").unwrap();
    step_until_rest(core.clone(), "n1".into(), nudge).await;
    let tries = core.store.attempts("n1", record.node.since).await.unwrap();
    assert_eq!(tries[0].attempt.outcome, Outcome::Interrupted);
    assert!(tries.len() > 1, "something is done at once: {tries:?}");
    assert!(core.store.open_effects().await.unwrap().is_empty());
}
