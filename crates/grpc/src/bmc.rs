//! `BmcService`: the event log of a node's BMC, and AC cycles. The service stores the wish; `bmc_work` carries it out.

use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::bmc_service_server::BmcService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::stored;
use rackwright_lifecycle::EventKind;
use rackwright_nodes::bmc_work::check_free;
use rackwright_redfish::{EventLog, LogEntry};
use rackwright_store::{BmcLogRow, NodeRecord, Scope};
use tonic::{Request, Response, Status};

use super::call::MutatingCall;
use super::{caller, convert, names};

/// Entries of an answer by default, and at most.
const ENTRIES: usize = 200;
const ENTRIES_MAX: usize = 2000;
/// Longest name of a log, in bytes.
const LOG_MAX: usize = 512;

/// Implements `BmcService`.
#[derive(Debug, Clone)]
pub struct Bmc(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;

/// Rank of a severity; unknown severities have the lowest.
fn rank(severity: &str) -> u8 {
    match severity.to_ascii_lowercase().as_str() {
        "critical" | "fatal" | "error" => 3,
        "warning" => 2,
        "ok" | "informational" => 1,
        _ => 0,
    }
}

fn work_of(row: &BmcLogRow) -> v1::BmcWork {
    v1::BmcWork {
        name: format!("nodes/{}", row.node),
        wanted: row.wanted.clone(),
        requested_by: row.wanted_by.clone(),
        request_time: convert::time(row.wanted_at),
        done: row.done.clone(),
        done_time: convert::time(row.done_at),
        error: row.error.clone(),
    }
}

fn entry_of(entry: LogEntry) -> v1::BmcLogEntry {
    v1::BmcLogEntry {
        log: entry.log,
        id: entry.id,
        create_time: entry.created_s.map(clock::seconds_to_proto),
        severity: entry.severity.unwrap_or_default(),
        message_id: entry.message_id.unwrap_or_default(),
        message: entry.message,
    }
}

/// The requested entries of a log, and whether more were left out.
fn choose(log: EventLog, request: &v1::ListBmcLogEntriesRequest, limit: usize) -> (Vec<v1::BmcLogEntry>, bool) {
    let least = rank(&request.severity);
    let since = request.since.as_ref().map(|time| time.seconds);
    let is_wanted = |entry: &LogEntry| {
        let is_new = since.is_none_or(|since| entry.created_s.is_some_and(|at| at >= since));
        is_new && (request.severity.is_empty() || rank(entry.severity.as_deref().unwrap_or_default()) >= least)
    };
    let mut chosen: Vec<v1::BmcLogEntry> = log
        .entries
        .into_iter()
        .filter(is_wanted)
        .take(limit + 1)
        .map(entry_of)
        .collect();
    let more = chosen.len() > limit;
    chosen.truncate(limit);
    (chosen, more)
}

impl Bmc {
    async fn entries(
        &self,
        scope: &Scope,
        request: v1::ListBmcLogEntriesRequest,
    ) -> Result<v1::ListBmcLogEntriesResponse, ApiError> {
        let id = &names::node_id("name", &request.name)?;
        if !request.severity.is_empty() && rank(&request.severity) == 0 {
            return Err(ApiError::invalid("severity", "must be OK, Warning or Critical"));
        }
        let limit = match usize::try_from(request.page_size) {
            Ok(0) => ENTRIES,
            Ok(limit) => limit.min(ENTRIES_MAX),
            Err(_) => return Err(ApiError::invalid("page_size", "must not be negative")),
        };
        self.0.store.node(scope, id).await?;
        let Some(row) = self.0.store.bmc_log(id).await? else {
            return Ok(v1::ListBmcLogEntriesResponse {
                work: Some(v1::BmcWork {
                    name: request.name,
                    ..v1::BmcWork::default()
                }),
                ..v1::ListBmcLogEntriesResponse::default()
            });
        };
        let log: EventLog = stored::json("event log", id.as_str(), &row.body)?;
        let gaps = log
            .gaps
            .iter()
            .map(|gap| format!("{}: {}", gap.path, gap.why))
            .collect();
        let logs = log.logs.iter().map(|log| v1::BmcLogInfo {
            id: log.id.clone(),
            path: log.path.clone(),
            read: i32::try_from(log.read).unwrap_or(i32::MAX),
            can_clear: log.can_clear,
        });
        let logs = logs.collect();
        let (entries, more) = choose(log, &request, limit);
        Ok(v1::ListBmcLogEntriesResponse {
            entries,
            logs,
            read_time: convert::time(row.read_at),
            work: Some(work_of(&row)),
            gaps,
            more,
        })
    }

    /// Stores a wish. It replaces an earlier wish that has not begun.
    async fn want(
        &self,
        call: &MutatingCall<'_>,
        name: &str,
        (wanted, argument): (&str, &str),
        check: impl FnOnce(&NodeRecord) -> Result<(), ApiError>,
    ) -> Result<v1::BmcWork, ApiError> {
        let id = &names::node_id("name", name)?;
        let mut tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(former),
        };
        let record = tx.node_of(&call.caller().scope, id).await?;
        call.check_version(name, record.version)?;
        check(&record)?;
        let before = tx.bmc_log(id).await?.unwrap_or_default();
        if before.wanted == "ac-cycle" {
            let message = format!("an AC cycle of {id} is under way");
            let hint = format!("`rackwright node bmc-log {id} --cached` shows its state");
            return Err(ApiError::precondition(name, message, hint));
        }
        let row = BmcLogRow {
            node: id.to_owned(),
            wanted: wanted.to_owned(),
            argument: argument.to_owned(),
            wanted_at: call.now(),
            wanted_by: call.caller().name.clone(),
            due_at: call.now(),
            ..before
        };
        tx.request_bmc_work(&row).await?;
        if wanted != "read" {
            let message = format!("{} requested {wanted} of the BMC of {id}", call.caller().name);
            tx.add_event(&call.event(EventKind::Requested, name, message)).await?;
        }
        let work = call.end(tx, work_of(&row)).await?;
        self.0.bmc_work.notify_one();
        Ok(work)
    }
}

#[tonic::async_trait]
impl BmcService for Bmc {
    async fn list_bmc_log_entries(
        &self,
        request: Request<v1::ListBmcLogEntriesRequest>,
    ) -> Answer<v1::ListBmcLogEntriesResponse> {
        let caller = caller::member(&self.0, &request).await?;
        Ok(Response::new(self.entries(&caller.scope, request.into_inner()).await?))
    }

    async fn read_bmc_log(&self, request: Request<v1::ReadBmcLogRequest>) -> Answer<v1::BmcWork> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "ReadBmcLog", request.mutation.as_ref(), &request)?;
        let work = self.want(&call, &request.name, ("read", ""), |_| Ok(())).await?;
        Ok(Response::new(work))
    }

    async fn clear_bmc_log(&self, request: Request<v1::ClearBmcLogRequest>) -> Answer<v1::BmcWork> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "ClearBmcLog", request.mutation.as_ref(), &request)?;
        if request.log.len() > LOG_MAX || request.log.chars().any(char::is_control) {
            return Err(ApiError::invalid("log", "must be the id or path of a log from the list of logs").into());
        }
        let work = self
            .want(&call, &request.name, ("clear", &request.log), |_| Ok(()))
            .await?;
        Ok(Response::new(work))
    }

    async fn ac_cycle_node(&self, request: Request<v1::AcCycleNodeRequest>) -> Answer<v1::BmcWork> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "AcCycleNode", request.mutation.as_ref(), &request)?;
        let force = request.force;
        let check = |record: &NodeRecord| match check_free(record) {
            Err(why) if !force => {
                let hint = format!(
                    "ask the owner of the node, then run `rackwright node power {} ac-cycle --force`",
                    record.id
                );
                Err(ApiError::precondition(format!("nodes/{}", record.id), why, hint))
            }
            _ => Ok(()),
        };
        let argument = if force { "forced" } else { "" };
        let work = self.want(&call, &request.name, ("ac-cycle", argument), check).await?;
        Ok(Response::new(work))
    }
}

#[cfg(test)]
mod tests {
    use rackwright_api::v1::bmc_service_client::BmcServiceClient;
    use rackwright_ground::testing;
    use rackwright_lifecycle::State;
    use tonic::Code;

    use super::*;
    use crate::tenancy::{as_member, join};

    #[tokio::test]
    async fn an_event_log_that_does_not_parse_is_an_error_that_names_the_node() {
        let core = testing::core().await;
        join(&core, "olga", "operator", "").await;
        testing::add(&core, &testing::node("n1", State::Available, None)).await;
        let mut olga = BmcServiceClient::new(as_member(&core, "olga"));
        for (body, expected) in [
            ("", Ok(())),
            (
                "{",
                Err((Code::Internal, "event log \"n1\" cannot be read back".to_owned())),
            ),
        ] {
            let row = BmcLogRow {
                node: "n1".into(),
                wanted: "read".into(),
                wanted_at: clock::now(),
                body: body.into(),
                ..BmcLogRow::default()
            };
            let mut tx = core.store.write().await.unwrap();
            tx.request_bmc_work(&row).await.unwrap();
            assert!(tx.end_bmc_work(&row).await.unwrap());
            tx.commit().await.unwrap();
            let request = v1::ListBmcLogEntriesRequest {
                name: "nodes/n1".into(),
                ..v1::ListBmcLogEntriesRequest::default()
            };
            let read = olga.list_bmc_log_entries(request).await;
            let read = read.map(|list| assert_eq!(list.into_inner().entries, []));
            assert_eq!(
                read.map_err(|e| (e.code(), e.message().to_owned())),
                expected,
                "{body:?}"
            );
        }
    }
}
