use rackwright_ground::core::Core;
use rackwright_ground::{clock, testing};
use rackwright_lifecycle::node::PowerRequest;
use rackwright_lifecycle::{
    Attempt, Bmc, Edge, Effect, OperationKind, Outcome, Power, PowerGoal, Reading, State, Timestamp, minutes,
};
use rackwright_store::{EffectRow, OperationRow, Period, Scope};

use super::{finish_effect, step_until_rest};
use crate::effect_result::EffectResult;
use crate::perform::seen_on;

/// As after a commit with a lost answer: the attempt is stored, and no step performs it.
#[tokio::test]
async fn an_effect_of_a_commit_with_a_lost_answer_is_not_awaited() {
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
async fn use_is_recorded_while_a_customer_has_the_node() {
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

/// Ends a request for the power of a node after a silence of the BMC. The machine has these MAC addresses. Returns the
/// reading of the BMC.
async fn switched_on_after_silence(macs: &[&str]) -> Reading<Bmc> {
    let core = testing::core().await;
    let mut record = testing::node("n1", State::Maintenance, None);
    record.identity.macs = macs.iter().map(|mac| (*mac).to_owned()).collect();
    let requested_at = Timestamp(1);
    record.node.wanted.power = Some(PowerRequest {
        goal: PowerGoal::On,
        at: requested_at,
    });
    record.readings.bmc = Reading::Known {
        value: Bmc::Unreachable("no answer".into()),
        at: requested_at,
    };
    testing::add(&core, &record).await;
    let now = clock::now();
    let row = EffectRow {
        id: "e1".into(),
        node_id: record.id.clone(),
        state_since: record.node.since,
        number: 1,
        generation: 0,
        owner: core.replica.clone(),
        attempt: Attempt {
            effect: Effect::PowerOn,
            started_at: now,
            ended_at: None,
            deadline: now.plus(minutes(60)),
            outcome: Outcome::Open,
            boot_id: None,
        },
    };
    let operation = OperationRow {
        id: "o1".into(),
        kind: OperationKind::Power,
        target: "nodes/n1".into(),
        created_at: requested_at,
        deadline: now.plus(minutes(60)),
        ..OperationRow::default()
    };
    let mut tx = core.store.write().await.unwrap();
    tx.begin_effect(&row).await.unwrap();
    tx.insert_operation(&operation).await.unwrap();
    tx.commit().await.unwrap();
    let done = EffectResult::succeeded().seen(seen_on);
    finish_effect(&core, &row, &done).await.unwrap();
    let ended = core.store.operation(&Scope::Site, &operation.id).await.unwrap();
    assert!(ended.ended_at.is_some(), "{ended:?}");
    assert_eq!(ended.code, 0, "{ended:?}");
    let readings = core.store.node(&Scope::Site, &record.id).await.unwrap().readings;
    assert_eq!(readings.power.last(), Some(&Power::On));
    readings.bmc
}

#[tokio::test]
async fn the_end_of_a_power_operation_is_also_the_end_of_the_bmcs_silence() {
    let known = switched_on_after_silence(&["52:54:00:00:00:01"]).await;
    assert_eq!(known.last(), Some(&Bmc::Identified));
    // The power counts, and the machine still has to be identified.
    let new = switched_on_after_silence(&[]).await;
    assert!(matches!(new, Reading::Unknown { .. }), "{new:?}");
}
