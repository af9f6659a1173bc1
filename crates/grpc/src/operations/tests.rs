use rackwright_ground::testing;
use rackwright_lifecycle::{OperationId, OperationKind, PowerGoal, State};

use super::*;
use crate::test_calls::{NodeRequest, wish};

/// All operations on the node, oldest first: the end code of each, or `None` while it is open.
async fn ends(core: &Core) -> Vec<Option<i32>> {
    let rows = core
        .store
        .operations(
            &Scope::Site,
            &vec![rackwright_store::Term::is("target", "nodes/n1")],
            "",
            100,
        )
        .await
        .unwrap();
    in_order(&rows).iter().map(|r| r.ended_at.map(|_| r.code)).collect()
}

/// Sorts oldest first. Ids from the same millisecond have no order.
fn in_order(rows: &[OperationRow]) -> Vec<OperationRow> {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| row.created_at);
    rows
}

async fn cancel(core: &Arc<Core>, key: &str, id: &OperationId) -> Result<v1::Operation, ApiError> {
    let caller = caller::Caller {
        name: "operator".into(),
        role: v1::Role::Operator,
        scope: Scope::Site,
        epoch: 0,
    };
    let request = v1::CancelOperationRequest {
        name: format!("operations/{id}"),
        mutation: Some(v1::Mutation {
            idempotency_key: key.into(),
            ..v1::Mutation::default()
        }),
    };
    let call = MutatingCall::new(core, &caller, "CancelOperation", request.mutation.as_ref(), &request)?;
    Operations(core.clone()).cancel(&call, id).await
}

async fn held(core: &Core) {
    let record = testing::node("n1", State::Maintenance, None);
    let mut tx = core.store.write().await.unwrap();
    tx.insert_node(&record).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_power_request_is_cancelled_alone() {
    let core = testing::core().await;
    held(&core).await;
    wish(&core, "1", "n1", NodeRequest::PowerCycle, "").await.unwrap();
    wish(&core, "2", "n1", NodeRequest::PowerOff, "").await.unwrap();
    let rows = core
        .store
        .operations(
            &Scope::Site,
            &vec![rackwright_store::Term::is("target", "nodes/n1")],
            "",
            100,
        )
        .await
        .unwrap();
    let [first, later] = &in_order(&rows)[..] else {
        panic!("two were asked for: {rows:?}");
    };
    cancel(&core, "3", &first.id).await.unwrap();
    assert_eq!(ends(&core).await, [Some(Code::Cancelled as i32), None]);
    let wanted = core
        .store
        .node(&Scope::Site, &"n1".into())
        .await
        .unwrap()
        .node
        .wanted
        .power;
    assert_eq!(wanted.map(|w| w.goal), Some(PowerGoal::Off), "the later wish stays");

    cancel(&core, "4", &later.id).await.unwrap();
    assert_eq!(ends(&core).await, [Some(Code::Cancelled as i32); 2]);
    assert_eq!(
        core.store
            .node(&Scope::Site, &"n1".into())
            .await
            .unwrap()
            .node
            .wanted
            .power,
        None
    );
    let again = cancel(&core, "5", &later.id).await;
    assert!(matches!(again, Err(ApiError::Precondition { .. })), "{again:?}");
}

#[tokio::test]
async fn cancelling_a_power_request_ends_the_replaced_ones() {
    let core = testing::core().await;
    held(&core).await;
    wish(&core, "1", "n1", NodeRequest::PowerCycle, "").await.unwrap();
    wish(&core, "2", "n1", NodeRequest::PowerOff, "").await.unwrap();
    wish(&core, "3", "n1", NodeRequest::Cancel, "").await.unwrap();
    let (replaced, cancelled) = (Code::Aborted as i32, Code::Cancelled as i32);
    assert_eq!(ends(&core).await, [Some(replaced), Some(cancelled)]);
    // No operation is left to cancel.
    wish(&core, "4", "n1", NodeRequest::Cancel, "").await.unwrap();
}

/// An operation that wants firmware of n1, requested at that moment.
async fn wants_firmware(core: &Core, id: &'static str, at: Timestamp) {
    let mut tx = core.store.write().await.unwrap();
    let mut record = tx.node(&"n1".into()).await.unwrap();
    record.node.wanted.firmware = Some(at);
    tx.save_node(&mut record, at).await.unwrap();
    let row = OperationRow {
        id: id.into(),
        kind: OperationKind::Firmware,
        target: "nodes/n1".into(),
        created_at: at,
        deadline: at,
        ..OperationRow::default()
    };
    tx.insert_operation(&row).await.unwrap();
    tx.commit().await.unwrap();
}

async fn firmware_wanted(core: &Core) -> Option<Timestamp> {
    let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    record.node.wanted.firmware
}

#[tokio::test]
async fn an_update_of_firmware_that_has_not_begun_ends_at_once() {
    let core = testing::core().await;
    held(&core).await;
    wants_firmware(&core, "a", Timestamp(10)).await;
    wants_firmware(&core, "b", Timestamp(20)).await;
    let ended = cancel(&core, "1", &"a".into()).await.unwrap();
    assert!(ended.done && ended.cancel_requested, "{ended:?}");
    assert_eq!(
        firmware_wanted(&core).await,
        Some(Timestamp(20)),
        "the later wish stays"
    );
    wants_firmware(&core, "c", Timestamp(30)).await;
    cancel(&core, "2", &"c".into()).await.unwrap();
    let (cancelled, replaced) = (Code::Cancelled as i32, Code::Aborted as i32);
    assert_eq!(ends(&core).await, [Some(cancelled), Some(replaced), Some(cancelled)]);
    assert_eq!(firmware_wanted(&core).await, None);
}

#[tokio::test]
async fn an_update_of_firmware_ends_after_the_piece_that_is_being_put_on() {
    let core = testing::core().await;
    held(&core).await;
    wants_firmware(&core, "a", Timestamp(10)).await;
    let flight = rackwright_store::FirmwareUpdateRow {
        node: "n1".into(),
        digest: String::new(),
        changed_at: Timestamp(11),
        body: "{}".into(),
    };
    core.store.put_firmware_update(&flight).await.unwrap();
    let operation = cancel(&core, "1", &"a".into()).await.unwrap();
    assert!(!operation.done && operation.cancel_requested, "{operation:?}");
    assert_eq!(ends(&core).await, [None]);
    assert_eq!(
        firmware_wanted(&core).await,
        Some(Timestamp(10)),
        "whoever puts it on looks there"
    );
    let row = core.store.operation(&Scope::Site, &"a".into()).await.unwrap();
    let shown = Operations(core.clone()).message(&Scope::Site, &row).await.unwrap();
    let step = shown.progress.expect("it goes on").step;
    assert!(
        step.ends_with("cancelled: the update ends after this component"),
        "{step}"
    );
}

/// The reason of a wait may name other customers, circuits and racks.
#[tokio::test]
async fn a_customer_sees_the_state_and_not_what_the_node_waits_for() {
    let core = testing::core().await;
    let mut record = testing::node("n1", State::Rebooting, None);
    record.node.since = rackwright_ground::clock::now();
    testing::add(&core, &record).await;
    let row = OperationRow {
        id: "o1".into(),
        kind: OperationKind::Deploy,
        target: "nodes/n1".into(),
        ..OperationRow::default()
    };
    let mut tx = core.store.write().await.unwrap();
    tx.insert_operation(&row).await.unwrap();
    tx.commit().await.unwrap();
    let why = "a leak at cdu/cdu-1".to_owned();
    testing::rest(&core, "n1", &Wait::Alarm { why }).await;
    let step = async |scope: Scope| {
        let row = core.store.operation(&Scope::Site, &"o1".into()).await.unwrap();
        let shown = Operations(core.clone()).message(&scope, &row).await.unwrap();
        shown.progress.unwrap().step
    };
    assert_eq!(
        step(Scope::Site).await,
        "rebooting: waiting for an alarm to clear: a leak at cdu/cdu-1"
    );
    assert_eq!(step(Scope::Customer("acme".into())).await, "rebooting");
}
