//! The end of requests for a node.

use rackwright_ground::core::Core;
use rackwright_lifecycle::node::PowerRequest;
use rackwright_lifecycle::outcome::{Request, firmware_outcome, power_outcome};
use rackwright_lifecycle::{OperationKind, State, Timestamp, account_outcome};
use rackwright_store::{NodeRecord, OperationRow, StoreError, WriteTx};
use tonic::Code;

/// Ends those open operations of a node that have reached their goal or can no longer reach it.
pub(super) async fn settle_operations(tx: &mut WriteTx, record: &NodeRecord, now: Timestamp) -> Result<(), StoreError> {
    for operation in tx.open_operations(&format!("nodes/{}", record.id)).await? {
        let request = match operation.kind {
            OperationKind::Enroll => Request::Enroll,
            OperationKind::Deploy | OperationKind::Reimage => Request::Deploy,
            OperationKind::Release | OperationKind::Readmit => Request::Release,
            OperationKind::Resume | OperationKind::Retry => Request::Resume,
            OperationKind::Settings => Request::Settings,
            // Performed when the node is next at rest, or given up.
            OperationKind::BmcPassword => continue,
            // Operations for a node at rest: the edge has ended the rest. The others do not concern nodes.
            OperationKind::Power
            | OperationKind::Firmware
            | OperationKind::Discover
            | OperationKind::ImportImage
            | OperationKind::CreateCluster
            | OperationKind::ReleaseCluster
            | OperationKind::ResizeCluster
            | OperationKind::ReimageCluster
            | OperationKind::RollBackCluster
            | OperationKind::ReplaceNode
            | OperationKind::RetryCluster => {
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
            Some(Err(state)) => end_as_failed(tx, record, &operation, state, now).await?,
        }
    }
    Ok(())
}

async fn end_as_failed(
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

/// Ends the requests for the firmware of a node at rest, if their outcome is known.
pub(super) async fn settle_firmware(
    core: &Core,
    tx: &mut WriteTx,
    record: &NodeRecord,
    requested_at: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    let facts = rackwright_lifecycle::Facts {
        attempts: tx.attempts(&record.id, record.node.since).await?,
        ..Default::default()
    };
    let Some(ended) = firmware_outcome(&facts, requested_at, core.config.policy.tries as usize) else {
        return Ok(());
    };
    for operation in tx.open_operations(&format!("nodes/{}", record.id)).await? {
        if operation.kind == OperationKind::Firmware {
            let (code, message) = match &ended {
                Ok(()) => (Code::Ok, ""),
                Err(message) if operation.cancel_requested => (Code::Cancelled, message.as_str()),
                Err(message) => (Code::FailedPrecondition, message.as_str()),
            };
            tx.end_operation(&operation.id, code as i32, message, now).await?;
        }
    }
    Ok(())
}

/// Ends the requests for the power of a node at rest, if their outcome is known.
pub(super) async fn settle_power(
    core: &Core,
    tx: &mut WriteTx,
    record: &NodeRecord,
    request: PowerRequest,
    now: Timestamp,
) -> Result<(), StoreError> {
    let attempts = tx.attempts(&record.id, record.node.since).await?;
    let facts = rackwright_lifecycle::Facts {
        attempts,
        ..Default::default()
    };
    let tries = core.config.policy.tries as usize;
    let Some(ended) = power_outcome(&facts, request.goal, request.at, tries) else {
        return Ok(());
    };
    for operation in tx.open_operations(&format!("nodes/{}", record.id)).await? {
        if operation.kind == OperationKind::Power {
            let (code, message) = match &ended {
                _ if operation.created_at < request.at => {
                    (Code::Aborted, "a later request replaced this operation".to_owned())
                }
                Ok(()) => (Code::Ok, String::new()),
                Err(message) => (Code::Unavailable, format!("gave up after {tries} tries: {message}")),
            };
            tx.end_operation(&operation.id, code as i32, &message, now).await?;
        }
    }
    Ok(())
}

/// Ends the requests for another BMC password, if their outcome is known. Also clears the wish.
pub(super) async fn settle_password(
    core: &Core,
    tx: &mut WriteTx,
    record: &mut NodeRecord,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(requested_at) = record.spec.account.asked_at else {
        return Ok(());
    };
    let attempts = tx.attempts(&record.id, record.node.since).await?;
    let facts = rackwright_lifecycle::Facts {
        attempts,
        ..Default::default()
    };
    // A change that was already in progress at the request counts.
    let is_changed = record
        .spec
        .account
        .changed_at
        .is_some_and(|changed| changed >= requested_at);
    let ended = is_changed.then_some(Ok(()));
    let Some(ended) = ended.or_else(|| account_outcome(&facts, requested_at, core.config.policy.tries as usize)) else {
        return Ok(());
    };
    for operation in tx.open_operations(&format!("nodes/{}", record.id)).await? {
        if operation.kind != OperationKind::BmcPassword {
            continue;
        }
        let (code, message) = match &ended {
            Ok(()) => (Code::Ok, String::new()),
            Err(message) => (Code::FailedPrecondition, message.clone()),
        };
        tx.end_operation(&operation.id, code as i32, &message, now).await?;
    }
    record.spec.account.asked_at = None;
    tx.save_node(record, now).await
}
