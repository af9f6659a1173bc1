//! What somebody asked of a node, and how that ends.

use rackwright_lifecycle::node::PowerRequest;
use rackwright_lifecycle::outcome::{Request, power_outcome};
use rackwright_lifecycle::{State, Timestamp};
use rackwright_store::{NodeRecord, OperationRow, StoreError, WriteTx};
use tonic::Code;

use crate::core::Core;

/// What somebody asked of the node ends when the node gets there, or to where it cannot be got to any more.
pub(super) async fn settle_operations(tx: &mut WriteTx, record: &NodeRecord, now: Timestamp) -> Result<(), StoreError> {
    for operation in tx.open_operations(&format!("nodes/{}", record.id)).await? {
        let request = match operation.kind.as_str() {
            "enroll" => Request::Enroll,
            "deploy" | "reimage" => Request::Deploy,
            "release" | "readmit" => Request::Release,
            "resume" | "retry" => Request::Resume,
            // The power of a node at rest: whatever moved the node ended that.
            _ => {
                let message = format!("the node went to {} meanwhile", record.node.state);
                tx.end_operation(&operation.id, Code::Aborted as i32, &message, now)
                    .await?;
                continue;
            }
        };
        match request.ended(record.node.state) {
            None => {}
            Some(Ok(())) => {
                tx.end_operation(&operation.id, Code::Ok as i32, "", now).await?;
            }
            Some(Err(state)) => end_badly(tx, record, &operation, state, now).await?,
        }
    }
    Ok(())
}

async fn end_badly(
    tx: &mut WriteTx,
    record: &NodeRecord,
    operation: &OperationRow,
    state: State,
    now: Timestamp,
) -> Result<(), StoreError> {
    let (code, message) = if operation.cancel_requested {
        (
            Code::Cancelled,
            "cancelled; the node is being brought to a safe state".to_owned(),
        )
    } else if record.reason.is_empty() {
        (Code::Aborted, format!("{} went to {state}", record.id))
    } else {
        (
            Code::FailedPrecondition,
            format!("{} went to {state}: {}", record.id, record.reason),
        )
    };
    tx.end_operation(&operation.id, code as i32, &message, now).await?;
    Ok(())
}

/// How a wish for the power of a node at rest has ended, if it has.
pub(super) async fn settle_power(
    core: &Core,
    tx: &mut WriteTx,
    record: &NodeRecord,
    wish: PowerRequest,
    now: Timestamp,
) -> Result<(), StoreError> {
    let attempts = tx.attempts(&record.id, record.node.since).await?;
    let facts = rackwright_lifecycle::Facts {
        attempts,
        ..Default::default()
    };
    let tries = core.config.policy.tries as usize;
    let Some(ended) = power_outcome(&facts, wish.goal, wish.at, tries) else {
        return Ok(());
    };
    for operation in tx.open_operations(&format!("nodes/{}", record.id)).await? {
        if operation.kind == "power" {
            let (code, message) = match &ended {
                _ if operation.created_at < wish.at => (Code::Aborted, "a later request took its place".to_owned()),
                Ok(()) => (Code::Ok, String::new()),
                Err(message) => (Code::Unavailable, format!("gave up after {tries} tries: {message}")),
            };
            tx.end_operation(&operation.id, code as i32, &message, now).await?;
        }
    }
    Ok(())
}
