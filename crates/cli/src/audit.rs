//! `rackwright audit ...`: the caller, source, target and result of each call.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use prost_types::Timestamp;
use rackwright_api::v1::audit_service_client::AuditServiceClient;
use rackwright_api::v1::stream_audit_response::Message;
use rackwright_api::v1::{AuditChain, AuditFilter, AuditRecord, ListAuditRequest, StreamAuditRequest};
use rackwright_cli_context::client::{open_stream, rpc};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::{Paint, Table, clean};
use rackwright_cli_context::{Cx, pages, units};
use serde_json::{Value, json};
use tokio_stream::StreamExt as _;

/// Records of one page.
const PAGE: i32 = 1000;

/// `rackwright audit`
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Show records, newest first
    List {
        #[command(flatten)]
        filter: FilterArgs,
        /// Maximum number of records
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Write all records to a file, oldest first; `rackwrightd audit verify --file` checks the file without a control plane
    Export {
        /// File to write; must not exist yet
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Only records after this position
        #[arg(long, value_name = "POSITION", default_value_t = 0)]
        after: u64,
        /// Continue with new records as they arrive
        #[arg(short, long)]
        follow: bool,
    },
}

/// Which records to show.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Only calls of this caller: a member, or a name such as agents/gpu-001 or local/root
    #[arg(long, value_name = "CALLER")]
    caller: Option<String>,
    /// Only calls of members of this customer
    #[arg(long, value_name = "CUSTOMER")]
    customer: Option<String>,
    /// Only calls of this method, such as NodeService/DeployNode, or NodeService/ for all methods of a service
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Only calls on this resource, such as nodes/gpu-001
    #[arg(long, value_name = "RESOURCE")]
    target: Option<String>,
    /// Only calls that were refused or failed
    #[arg(long)]
    failed: bool,
    /// Only calls at or after this time, such as 2026-12-31T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = units::parse_moment)]
    since: Option<Timestamp>,
    /// Only calls before this time
    #[arg(long, value_name = "TIME", value_parser = units::parse_moment)]
    until: Option<Timestamp>,
}

impl FilterArgs {
    fn filter(self) -> AuditFilter {
        let caller = self.caller.unwrap_or_default();
        AuditFilter {
            caller: match caller.is_empty() || caller.contains('/') {
                true => caller,
                false => format!("members/{caller}"),
            },
            customer: self.customer.unwrap_or_default(),
            method: self.method.unwrap_or_default(),
            target: self.target.unwrap_or_default(),
            only_failed: self.failed,
            start_time: self.since,
            end_time: self.until,
        }
    }
}

/// Runs an audit command.
pub async fn run(cx: &Cx, command: AuditCommand) -> Result<(), CliError> {
    match command {
        AuditCommand::List { filter, limit } => list(cx, filter.filter(), limit).await,
        AuditCommand::Export { file, after, follow } => export(cx, &file, after, follow).await,
    }
}

async fn list(cx: &Cx, filter: AuditFilter, limit: usize) -> Result<(), CliError> {
    let client = cx.client().await?;
    let records = pages::first(limit, PAGE, async |page_size, page_token| {
        let request = ListAuditRequest {
            page_size,
            page_token,
            filter: Some(filter.clone()),
        };
        let page = rpc!(client, AuditServiceClient.list_audit, "read the audit", request).await?;
        Ok((page.records, page.next_page_token))
    })
    .await?;
    let width = cx.ui.width();
    cx.ui.list(&records, |paint| table(&records, paint, width))
}

fn table(records: &[AuditRecord], paint: Paint, width: Option<usize>) -> String {
    let mut table = Table::new(&["POSITION", "TIME", "CALLER", "FROM", "METHOD", "TARGET", "OUTCOME"]);
    for record in records {
        let outcome = match record.message.as_str() {
            "" => record.outcome.clone(),
            message => format!("{}: {}", record.outcome, clean(message)),
        };
        let caller = match record.caller.as_str() {
            "" => "-",
            caller => caller.strip_prefix("members/").unwrap_or(caller),
        };
        table.row([
            record.position.to_string().into(),
            record.time.as_ref().map(units::stamp).unwrap_or_default().into(),
            clean(caller).into(),
            record.address.as_str().into(),
            clean(&record.method).into(),
            clean(&record.target).into(),
            outcome.into(),
        ]);
    }
    table.render(paint, width)
}

/// The line that names the chain and its keys.
fn chain_line(chain: &AuditChain, after: u64) -> Value {
    let key = |key: &rackwright_api::v1::AuditKey| json!({ "number": key.number, "public_key": key.public_key, "signature": key.signature });
    json!({
        "type": "chain",
        "authority": chain.authority,
        "after_position": after,
        "previous_hash": chain.previous_hash,
        "keys": chain.keys.iter().map(key).collect::<Vec<_>>(),
    })
}

fn record_line(record: &AuditRecord) -> Value {
    let time = record.time.unwrap_or_default();
    json!({
        "type": "record",
        "position": record.position,
        "time": time.to_string(),
        "time_us": time.seconds * 1_000_000 + i64::from(time.nanos) / 1000,
        "call": record.call,
        "caller": record.caller,
        "role": record.role,
        "epoch": record.epoch,
        "customer": record.customer,
        "address": record.address,
        "client": record.client,
        "method": record.method,
        "request": record.request,
        "target": record.target,
        "site": record.site,
        "outcome": record.outcome,
        "message": record.message,
        "operation": record.operation,
        "trace": record.trace,
        "replica": record.replica,
        "calls": record.calls,
        "hash": record.hash,
        "key": record.key,
        "signature": record.signature,
    })
}

async fn export(cx: &Cx, path: &Path, after: u64, follow: bool) -> Result<(), CliError> {
    let client = cx.client().await?;
    let doing = "export the audit";
    let request = StreamAuditRequest {
        after_position: after,
        until_now: !follow,
        filter: None,
    };
    let mut stream = open_stream!(client, AuditServiceClient.stream_audit, doing, request).await?;
    let failed = |source| CliError::file("write", path, source);
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    let file = file.map_err(|source| CliError::given("write", path, source))?;
    let mut file = std::io::BufWriter::new(file);
    let (mut count, mut key) = (0_u64, String::new());
    while let Some(message) = stream.next().await {
        let message = message.map_err(|status| CliError::rpc(doing, client.classify(status)))?;
        let line = match message.message {
            Some(Message::Chain(chain)) => {
                key = chain.keys.first().map(|key| key.public_key.clone()).unwrap_or_default();
                chain_line(&chain, after)
            }
            Some(Message::Record(record)) => {
                count += 1;
                record_line(&record)
            }
            None => continue,
        };
        writeln!(file, "{line}").map_err(failed)?;
        if follow {
            file.flush().map_err(failed)?;
        }
    }
    file.into_inner()
        .map_err(|error| failed(error.into_error()))?
        .sync_all()
        .map_err(failed)?;
    cx.ui.say(&format!(
        "{} written; verify them on any machine with\n  rackwrightd audit verify --file {} --key {key}",
        plural(usize::try_from(count).unwrap_or(usize::MAX), "record"),
        path.display()
    ))
}
