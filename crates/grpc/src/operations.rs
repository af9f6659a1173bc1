//! `OperationService`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::operation_service_server::OperationService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{Effect, NodeId, OperationId, OperationKind, Outcome, Timestamp, Wait};
use rackwright_nodes::firmware::Firmware;
use rackwright_store::{NodeRecord, OperationRow, Scope, StoreError, WriteTx};
use tonic::{Code, Request, Response, Status};

use super::call::MutatingCall;
use super::names::Pages;
use super::{caller, convert, customer_view, names};

/// Time limit of a wait without a limit from the caller.
const WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// Longest time limit of a wait.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Shortest interval at which a wait reads its operation, because another replica may end it. The interval grows with the
/// number of waits: each full pause allows `WAITS_IN_PAUSE` reads.
const WAIT_PAUSE: Duration = Duration::from_millis(50);
const WAITS_IN_PAUSE: usize = 64;

/// Implements `OperationService`.
#[derive(Debug, Clone)]
pub struct Operations(pub Arc<Core>);

impl Operations {
    async fn message(&self, scope: &Scope, row: &OperationRow) -> Result<v1::Operation, StoreError> {
        let mut progress = if row.ended_at.is_none() {
            progress(&self.0, scope, row).await?
        } else {
            None
        };
        if let (true, OperationKind::Firmware, Some(progress)) = (row.cancel_requested, row.kind, &mut progress) {
            progress
                .step
                .push_str("; cancelled: the update ends after this component");
        }
        Ok(customer_view::operation(scope, convert::operation(row, progress)))
    }

    /// Requests the end of an operation. Work on a machine is first brought to a safe state.
    ///
    /// # Errors
    /// The operation has ended, or its kind cannot be cancelled.
    pub(super) async fn cancel(&self, call: &MutatingCall<'_>, id: &OperationId) -> Result<v1::Operation, ApiError> {
        let mut tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(former),
        };
        let name = format!("operations/{id}");
        let target = self.0.store.operation(&Scope::Site, id).await?.target;
        // The node is locked before the operation, in the same order as in a node's step.
        let node = match target.strip_prefix("nodes/") {
            Some(node) => match tx.node(&NodeId::stored(node)).await {
                Err(StoreError::NotFound { .. }) => None,
                other => Some(other?),
            },
            None => None,
        };
        let row = tx.operation(id).await?;
        call.check_version(&name, row.version)?;
        if row.ended_at.is_some() || !tx.request_cancel(id).await? {
            let hint = format!("`rackwright operation get {id}` shows how it ended");
            return Err(ApiError::precondition(&name, "the operation is done", hint));
        }
        match (row.kind, node) {
            (OperationKind::Deploy, Some(mut record)) => {
                rackwright_ground::intent::check_not_doubted(&record, "release")?;
                rackwright_ground::intent::release(&mut record)?;
                tx.save_node(&mut record, call.now()).await?;
            }
            (OperationKind::Power, Some(record)) => cancel_power(&mut tx, &row, record, call.now()).await?,
            (OperationKind::Firmware, Some(record)) => cancel_firmware(&mut tx, &row, record, call.now()).await?,
            (OperationKind::ImportImage | OperationKind::Discover, _) => {}
            (kind, _) => {
                let hint = "`rackwright node quarantine` or `node hold` stops work on a node";
                let message = format!("a {kind} cannot be cancelled: it would leave the node in an undefined state");
                return Err(ApiError::precondition(&name, message, hint));
            }
        }
        let requested = tx.operation(id).await?;
        let response = call.end(tx, convert::operation(&requested, None)).await?;
        match row.target.strip_prefix("nodes/") {
            Some(node) => self.0.notify_due(&NodeId::stored(node)),
            None => self.0.uploads.cancel(id),
        }
        Ok(response)
    }
}

/// Cancels a power wish. A later wish stays; earlier operations that it replaced end with it.
async fn cancel_power(
    tx: &mut WriteTx,
    row: &OperationRow,
    mut record: NodeRecord,
    now: Timestamp,
) -> Result<(), StoreError> {
    if record.node.wanted.power.is_some_and(|wish| wish.at <= row.created_at) {
        record.node.wanted.power = None;
        tx.save_node(&mut record, now).await?;
    }
    for other in tx.open_operations(&row.target).await? {
        let (code, message) = match other.id == row.id {
            true => (Code::Cancelled, "cancelled"),
            false => (Code::Aborted, "a later request replaced this operation"),
        };
        if other.kind == OperationKind::Power && other.created_at <= row.created_at {
            tx.end_operation(&other.id, code as i32, message, now).await?;
        }
    }
    Ok(())
}

/// Cancels a firmware wish. A component that is being flashed is finished first, because half of it would make the
/// machine unusable; then the operation ends. A later wish stays.
async fn cancel_firmware(
    tx: &mut WriteTx,
    row: &OperationRow,
    mut record: NodeRecord,
    now: Timestamp,
) -> Result<(), StoreError> {
    let is_present = record.node.wanted.firmware.is_some_and(|at| at <= row.created_at);
    let is_flashing = is_present && tx.firmware_update(&record.id).await?.is_some();
    if is_present && !is_flashing {
        record.node.wanted.firmware = None;
        tx.save_node(&mut record, now).await?;
    }
    for other in tx.open_operations(&row.target).await? {
        let (code, message) = match other.id == row.id {
            true if is_flashing => continue,
            true => (Code::Cancelled, "cancelled"),
            false => (Code::Aborted, "a later request replaced this operation"),
        };
        if other.kind == OperationKind::Firmware && other.created_at <= row.created_at {
            tx.end_operation(&other.id, code as i32, message, now).await?;
        }
    }
    Ok(())
}

/// Progress of an operation on a node: the state's share of the whole, and the bytes of the current job. Customers only
/// see the state, because the reason of a wait may reveal other customers or the hall.
async fn progress(core: &Core, scope: &Scope, row: &OperationRow) -> Result<Option<v1::Progress>, StoreError> {
    if row.kind == OperationKind::ImportImage {
        return Ok(core.uploads.progress(&row.id));
    }
    if row.kind == OperationKind::Discover {
        return super::discovery::progress(core, &row.id).await.map(Some);
    }
    let Some(id) = row.target.strip_prefix("nodes/").map(NodeId::stored) else {
        return Ok(None);
    };
    if row.kind == OperationKind::Firmware
        && *scope == Scope::Site
        && let Some(reported) = core.feature::<Firmware>().reported(&id)
    {
        return Ok(Some(v1::Progress {
            step: reported.step,
            percent: reported.percent,
            ..v1::Progress::default()
        }));
    }
    let record = match core.store.node(&Scope::Site, &id).await {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        other => other?,
    };
    let (from, to) = record.node.state.share();
    let open = core.store.attempts(&id, record.node.since).await?;
    let open = open.iter().find(|r| r.attempt.outcome == Outcome::Open);
    let job = open
        .and_then(|r| core.agents.progress(&r.node_id, &r.id))
        .unwrap_or_default();
    let within = match job.logical_bytes_total {
        0 => 0,
        total => u64::from(to - from) * job.logical_bytes.min(total) / total,
    };
    let step = match open.map(|r| r.attempt.effect) {
        _ if *scope != Scope::Site => record.node.state.to_string(),
        Some(Effect::WriteImage | Effect::EraseDrives) if !job.step.is_empty() => job.step.clone(),
        _ if record.wait == Wait::Rest => record.node.state.to_string(),
        _ => format!("{}: waiting for {}", record.node.state, record.wait),
    };
    Ok(Some(v1::Progress {
        step,
        percent: from + u32::try_from(within).unwrap_or(0),
        logical_bytes: job.logical_bytes,
        logical_bytes_total: job.logical_bytes_total,
        real_bytes: job.real_bytes,
        bytes_per_second: job.bytes_per_second,
    }))
}

#[tonic::async_trait]
impl OperationService for Operations {
    async fn get_operation(
        &self,
        request: Request<v1::GetOperationRequest>,
    ) -> Result<Response<v1::Operation>, Status> {
        let scope = caller::tenant(&self.0, &request).await?.scope;
        let id = names::operation_id("name", &request.get_ref().name)?;
        let row = self.0.store.operation(&scope, &id).await.map_err(ApiError::from)?;
        Ok(Response::new(self.message(&scope, &row).await.map_err(ApiError::from)?))
    }

    async fn list_operations(
        &self,
        request: Request<v1::ListOperationsRequest>,
    ) -> Result<Response<v1::ListOperationsResponse>, Status> {
        let scope = caller::tenant(&self.0, &request).await?.scope;
        let request = request.into_inner();
        let fields = &["target", "kind", "done", "result"];
        let filter = names::parse_filter_of(&request.filter, fields, |field, value| match field {
            "done" => names::check_known(value, &["true", "false"], "value of done"),
            "result" => names::check_known(value, &["succeeded", "failed"], "result"),
            _ => Ok(()),
        })?;
        let limit = names::page_size(request.page_size)?;
        let pages = Pages {
            list: "ListOperations",
            narrowed: &request.filter,
            limit,
        };
        let before = pages.after(&request.page_token)?;
        let rows = self.0.store.operations(&scope, &filter, before, limit).await;
        let rows = rows.map_err(ApiError::from)?;
        let next_page_token = pages.token(rows.len(), rows.last().map(|r| r.id.to_string()));
        let mut operations = Vec::with_capacity(rows.len());
        for row in &rows {
            operations.push(self.message(&scope, row).await.map_err(ApiError::from)?);
        }
        Ok(Response::new(v1::ListOperationsResponse {
            operations,
            next_page_token,
        }))
    }

    async fn wait_operation(
        &self,
        request: Request<v1::WaitOperationRequest>,
    ) -> Result<Response<v1::Operation>, Status> {
        let scope = caller::tenant(&self.0, &request).await?.scope;
        let request = request.into_inner();
        let id = names::operation_id("name", &request.name)?;
        let timeout = match request.timeout {
            None => Duration::ZERO,
            Some(t) => Duration::try_from(t).map_err(|_| ApiError::invalid("timeout", "must not be negative"))?,
        };
        let timeout = if timeout.is_zero() {
            WAIT_DEFAULT
        } else {
            timeout.min(WAIT_MAX)
        };
        let mut change_ticks = self.0.change_ticks(WAIT_PAUSE);
        let deadline = tokio::time::Instant::now() + timeout;
        let wait = self.0.waits.of(&id);
        loop {
            let mut ended = pin!(wait.ended.notified());
            // Registered before the look, because the operation may end between the look and the wait.
            ended.as_mut().enable();
            let row = self.0.store.operation(&scope, &id).await.map_err(ApiError::from)?;
            if row.ended_at.is_some() {
                return Ok(Response::new(self.message(&scope, &row).await.map_err(ApiError::from)?));
            }
            let shares = u32::try_from(self.0.waits.count().div_ceil(WAITS_IN_PAUSE)).unwrap_or(u32::MAX);
            change_ticks.slow_to(WAIT_PAUSE.saturating_mul(shares));
            tokio::select! {
                () = ended => {}
                _ = change_ticks.next() => {}
                () = self.0.stop.cancelled() => return Err(Status::unavailable("the server is stopping; ask again")),
                () = tokio::time::sleep_until(deadline) => {
                    return Ok(Response::new(self.message(&scope, &row).await.map_err(ApiError::from)?));
                }
            }
        }
    }

    async fn cancel_operation(
        &self,
        request: Request<v1::CancelOperationRequest>,
    ) -> Result<Response<v1::Operation>, Status> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "CancelOperation", request.mutation.as_ref(), &request)?;
        let id = names::operation_id("name", &request.name)?;
        Ok(Response::new(self.cancel(&call, &id).await?))
    }
}

#[cfg(test)]
mod tests;
