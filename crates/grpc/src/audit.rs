//! `AuditService`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::audit_service_server::AuditService;
use rackwright_api::v1::stream_audit_response::Message;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::audit::head::hex;
use rackwright_ground::core::Core;
use rackwright_identity::AuditRecord;
use rackwright_lifecycle::Timestamp;
use rackwright_store::{AuditFilter, AuditRow};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::names::{self, Pages};
use super::{caller, convert, watch};

/// Rows read per page.
const PAGE: i64 = 500;
/// Interval of a stream's looks for new records, because other replicas add records too.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Implements `AuditService`.
#[derive(Debug, Clone)]
pub struct Records(pub Arc<Core>);

fn filter(filter: Option<&v1::AuditFilter>) -> Result<AuditFilter, ApiError> {
    let filter = filter.cloned().unwrap_or_default();
    Ok(AuditFilter {
        since: names::given_time("filter.start_time", filter.start_time.as_ref())?,
        until: names::given_time("filter.end_time", filter.end_time.as_ref())?,
        caller: filter.caller,
        customer: filter.customer,
        method: filter.method,
        target: filter.target,
        only_failed: filter.only_failed,
    })
}

fn message(row: AuditRow) -> Result<v1::AuditRecord, ApiError> {
    let record = AuditRecord::decode(&row.record).map_err(|error| {
        ApiError::Internal(format!(
            "audit record {} cannot be read ({error}): run `rackwrightd audit verify` on the control plane's host",
            row.position
        ))
    })?;
    Ok(v1::AuditRecord {
        position: record.position,
        time: convert::time(Timestamp(record.time_us)),
        call: record.call,
        caller: record.caller,
        role: record.role,
        epoch: record.epoch,
        customer: record.customer,
        address: record.address,
        client: record.client,
        method: record.method,
        request: record.request,
        target: record.target,
        site: record.site,
        outcome: record.outcome,
        message: record.message,
        operation: record.operation,
        trace: record.trace,
        replica: record.replica,
        calls: record.calls,
        hash: row.hash,
        key: row.key,
        signature: row.signature,
    })
}

impl Records {
    async fn list(&self, request: &v1::ListAuditRequest) -> Result<v1::ListAuditResponse, ApiError> {
        let limit = names::page_size(request.page_size)?;
        let filter = filter(request.filter.as_ref())?;
        let narrowed = format!("{filter:?}");
        let pages = Pages {
            list: "ListAudit",
            narrowed: &narrowed,
            limit,
        };
        let before = match pages.after(&request.page_token)? {
            "" => i64::MAX,
            last => last
                .parse()
                .map_err(|_| ApiError::invalid("page_token", "is not a page token of this list"))?,
        };
        let rows = self.0.store.audit_before(&filter, before, limit).await?;
        Ok(v1::ListAuditResponse {
            next_page_token: pages.token(rows.len(), rows.last().map(|row| row.position.to_string())),
            records: rows.into_iter().map(message).collect::<Result<_, _>>()?,
        })
    }

    /// The first message of a stream: the chain and its keys.
    async fn chain(&self, after: i64) -> Result<v1::AuditChain, ApiError> {
        let before = self.0.store.audit_before(&AuditFilter::default(), after + 1, 1).await?;
        let keys = self.0.keys.signer.keys().into_iter().map(|key| v1::AuditKey {
            number: key.number,
            public_key: hex(&key.public_key),
            signature: hex(&key.signature),
        });
        Ok(v1::AuditChain {
            authority: self.0.keys.authority.site_id(),
            previous_hash: before.into_iter().next().map(|row| row.hash).unwrap_or_default(),
            keys: keys.collect(),
        })
    }
}

#[tonic::async_trait]
impl AuditService for Records {
    type StreamAuditStream = Pin<Box<dyn Stream<Item = Result<v1::StreamAuditResponse, Status>> + Send>>;

    async fn list_audit(
        &self,
        request: Request<v1::ListAuditRequest>,
    ) -> Result<Response<v1::ListAuditResponse>, Status> {
        caller::auditor(&self.0, &request).await?;
        Ok(Response::new(self.list(request.get_ref()).await?))
    }

    async fn stream_audit(
        &self,
        request: Request<v1::StreamAuditRequest>,
    ) -> Result<Response<Self::StreamAuditStream>, Status> {
        caller::auditor(&self.0, &request).await?;
        let request = request.into_inner();
        let filter = filter(request.filter.as_ref())?;
        let after =
            i64::try_from(request.after_position).map_err(|_| ApiError::invalid("after_position", "is too large"))?;
        let (newest, _) = self.0.store.audit_head().await.map_err(ApiError::from)?;
        if after > newest {
            let message = format!("record {after} does not exist; the newest is {newest}");
            return Err(ApiError::OutOfRange(message).into());
        }
        let chain = self.chain(after).await?;
        let last = request.until_now.then_some(newest);
        let records = watch::spawn(self.0.clone(), move |core, sender| {
            follow(core, filter, after, last, chain, sender)
        });
        Ok(Response::new(Box::pin(records)))
    }
}

async fn follow(
    core: Arc<Core>,
    filter: AuditFilter,
    mut after: i64,
    last: Option<i64>,
    chain: v1::AuditChain,
    sender: mpsc::Sender<Result<v1::StreamAuditResponse, Status>>,
) -> Result<(), ApiError> {
    let answer = |message| Ok(v1::StreamAuditResponse { message: Some(message) });
    if sender.send(answer(Message::Chain(chain))).await.is_err() {
        return Ok(());
    }
    let mut change_ticks = core.change_ticks(Duration::from_millis(100));
    loop {
        let rows = core.store.audit(&filter, after, PAGE).await?;
        let is_all = i64::try_from(rows.len()).unwrap_or(PAGE) < PAGE;
        for row in rows {
            if last.is_some_and(|last| row.position > last) {
                return Ok(());
            }
            after = row.position;
            if sender.send(answer(Message::Record(message(row)?))).await.is_err() {
                return Ok(());
            }
        }
        if !is_all {
            continue;
        }
        if last.is_some() {
            return Ok(());
        }
        tokio::select! {
            () = sender.closed() => return Ok(()),
            _ = change_ticks.next() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}
