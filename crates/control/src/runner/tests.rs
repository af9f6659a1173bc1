use rackwright_lifecycle::node::PowerRequest;
use rackwright_lifecycle::{Attempt, Edge, Effect, Outcome, PowerGoal, State, Timestamp};
use rackwright_store::{EffectRow, Period, Scope};

use super::step_until_rest;
use crate::core::Core;
use crate::{clock, testing};

/// As after a commit with a lost answer: the attempt is stored, and no step performs it.
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
    let nudge = core.running_steps.begin(&"n1".into()).unwrap();
    step_until_rest(core.clone(), "n1".into(), nudge).await;
    let tries = core.store.attempts(&"n1".into(), record.node.since).await.unwrap();
    assert_eq!(tries[0].attempt.outcome, Outcome::Interrupted);
    assert!(tries.len() > 1, "something is done at once: {tries:?}");
    assert!(core.store.open_effects().await.unwrap().is_empty());
}

/// For each record of use: whether it is open. All are acme's.
async fn spans(core: &Core) -> Vec<bool> {
    let period = Period {
        from_s: 0,
        to_s: i64::MAX,
        customer: None,
        cluster: None,
    };
    let rows = core.store.usage(&Scope::Site, &period, 0, 100).await.unwrap();
    assert!(rows.iter().all(|row| row.holder.customer == "acme"), "{rows:?}");
    rows.iter().map(|row| row.to_s.is_none()).collect()
}

/// Takes an edge some seconds after the former one.
async fn take_edge_later(core: &Core, seconds: &mut i64, edge: Edge) {
    *seconds += 10;
    clock::simulated::set(Timestamp(*seconds * 1_000_000 + 500_000));
    let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    super::step::force_edge(core, &record, edge).await.unwrap();
}

/// Takes the edges of a life through the runner. The records of use cover the time in the customer's hands.
#[tokio::test]
async fn a_node_counts_while_it_is_in_its_customers_hands() {
    let core = testing::core().await;
    let mut record = testing::node("n1", State::Validating, Some("b3-0"));
    if let Some(claim) = &mut record.node.claim {
        claim.customer = "acme".into();
    }
    record.spec.sku = "h100".into();
    testing::add(&core, &record).await;
    let mut now = clock::now().0 / 1_000_000;
    let begin = now;
    let (open, ended) = (true, false);

    take_edge_later(&core, &mut now, Edge::Validated).await;
    assert_eq!(spans(&core).await, [open]);
    for edge in [Edge::Reimaged, Edge::Written, Edge::HostUp, Edge::Validated] {
        take_edge_later(&core, &mut now, edge).await;
        assert_eq!(spans(&core).await, [open], "{edge}");
    }
    take_edge_later(&core, &mut now, Edge::Held).await;
    assert_eq!(spans(&core).await, [ended]);
    take_edge_later(&core, &mut now, Edge::Revalidate).await;
    assert_eq!(spans(&core).await, [ended], "not yet back");
    for edge in [Edge::Validated, Edge::Reimaged] {
        take_edge_later(&core, &mut now, edge).await;
        assert_eq!(spans(&core).await, [ended, open], "{edge}");
    }
    for edge in [Edge::Failed, Edge::Retried, Edge::Written, Edge::HostUp] {
        take_edge_later(&core, &mut now, edge).await;
        assert_eq!(spans(&core).await, [ended, ended], "{edge}");
    }
    take_edge_later(&core, &mut now, Edge::Validated).await;

    // The runner itself takes the node out of the customer's hands.
    now += 10;
    clock::simulated::set(Timestamp(now * 1_000_000));
    let mut tx = core.store.write().await.unwrap();
    let mut record = tx.node(&"n1".into()).await.unwrap();
    record.node.wanted.condemn = Some("a fan is loud".into());
    tx.save_node(&mut record, clock::now()).await.unwrap();
    tx.commit().await.unwrap();
    let nudge = core.running_steps.begin(&"n1".into()).unwrap();
    step_until_rest(core.clone(), "n1".into(), nudge).await;
    let state = core.store.node(&Scope::Site, &"n1".into()).await.unwrap().node.state;
    assert_eq!(state, State::Quarantined);

    let period = Period {
        from_s: 0,
        to_s: i64::MAX,
        customer: Some(&"acme".into()),
        cluster: None,
    };
    let rows = core.store.usage(&Scope::Site, &period, 0, 100).await.unwrap();
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.from_s - begin, row.to_s.map(|s| s - begin)))
        .collect();
    // In use for 50 s, gone for 20 s, in use for 20 s, gone for 40 s, in use for 10 s.
    assert_eq!(found, [(10, Some(60)), (80, Some(100)), (140, Some(150))]);
    assert!(rows.iter().all(|row| row.sku == "h100"));
}
