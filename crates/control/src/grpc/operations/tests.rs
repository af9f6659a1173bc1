use rackwright_lifecycle::{PowerGoal, State};

use super::*;
use crate::grpc::said::{Wish, wish};
use crate::testing;

/// All operations on the node, oldest first: the code each ended with; none while it is open.
async fn ends(core: &Core) -> Vec<Option<i32>> {
    let rows = core
        .store
        .operations(&Scope::Site, "nodes/n1", "", "", "", 100)
        .await
        .unwrap();
    in_order(&rows).iter().map(|r| r.ended_at.map(|_| r.code)).collect()
}

/// Oldest first. Ids of one millisecond have no order.
fn in_order(rows: &[OperationRow]) -> Vec<OperationRow> {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| row.created_at);
    rows
}

async fn cancel(core: &Arc<Core>, key: &str, id: &str) -> Result<v1::Operation, ApiError> {
    let caller = caller::Caller {
        name: "operator".into(),
        role: v1::Role::Operator,
        scope: Scope::Site,
    };
    let request = v1::CancelOperationRequest {
        name: format!("operations/{id}"),
        mutation: Some(v1::Mutation {
            idempotency_key: key.into(),
            ..v1::Mutation::default()
        }),
    };
    let asked = Asked::new(core, &caller, "CancelOperation", request.mutation.as_ref(), &request)?;
    Operations(core.clone()).cancel(&asked, id).await
}

async fn held(core: &Core) {
    let record = testing::node("n1", State::Maintenance, None);
    let mut tx = core.store.write().await.unwrap();
    tx.insert_node(&record).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_power_wish_is_taken_back_alone() {
    let core = testing::core().await;
    held(&core).await;
    wish(&core, "1", "n1", Wish::PowerCycle, "").await.unwrap();
    wish(&core, "2", "n1", Wish::PowerOff, "").await.unwrap();
    let rows = core
        .store
        .operations(&Scope::Site, "nodes/n1", "", "", "", 100)
        .await
        .unwrap();
    let [first, later] = &in_order(&rows)[..] else {
        panic!("two were asked for: {rows:?}");
    };
    cancel(&core, "3", &first.id).await.unwrap();
    assert_eq!(ends(&core).await, [Some(Code::Cancelled as i32), None]);
    let wanted = core.store.node(&Scope::Site, "n1").await.unwrap().node.wanted.power;
    assert_eq!(wanted.map(|w| w.goal), Some(PowerGoal::Off), "the later wish stays");

    cancel(&core, "4", &later.id).await.unwrap();
    assert_eq!(ends(&core).await, [Some(Code::Cancelled as i32); 2]);
    assert_eq!(
        core.store.node(&Scope::Site, "n1").await.unwrap().node.wanted.power,
        None
    );
    let again = cancel(&core, "5", &later.id).await;
    assert!(matches!(again, Err(ApiError::Precondition { .. })), "{again:?}");
}

#[tokio::test]
async fn a_power_wish_that_is_taken_back_ends_those_whose_place_it_took() {
    let core = testing::core().await;
    held(&core).await;
    wish(&core, "1", "n1", Wish::PowerCycle, "").await.unwrap();
    wish(&core, "2", "n1", Wish::PowerOff, "").await.unwrap();
    wish(&core, "3", "n1", Wish::Cancel, "").await.unwrap();
    let (replaced, cancelled) = (Code::Aborted as i32, Code::Cancelled as i32);
    assert_eq!(ends(&core).await, [Some(replaced), Some(cancelled)]);
    // Nothing is left to cancel.
    wish(&core, "4", "n1", Wish::Cancel, "").await.unwrap();
}
