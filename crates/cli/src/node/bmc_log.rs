//! `rackwright node bmc-log` and `rackwright node power NODE ac-cycle`: work on a BMC outside the node's lifecycle. The
//! control plane records and performs the work; this command waits for it.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use prost_types::Timestamp;
use rackwright_api::v1::bmc_service_client::BmcServiceClient;
use rackwright_api::v1::{
    AcCycleNodeRequest, BmcLogEntry, BmcWork, ClearBmcLogRequest, ListBmcLogEntriesRequest, ListBmcLogEntriesResponse,
    ReadBmcLogRequest,
};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::{CliError, exit, plural};
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Paint, Table, Tone, clean};
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names, units};

use super::targets::Chosen;

/// Longest wait for a log: some BMCs need minutes for a large one.
const LOG_WITHIN: Duration = Duration::from_secs(600);
/// Default longest wait for an AC cycle.
const CYCLE_WITHIN: Duration = Duration::from_secs(1200);
/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// `rackwright node bmc-log`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BmcLogArgs {
    #[command(subcommand)]
    command: Option<BmcLogCommand>,
    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Debug, Subcommand)]
enum BmcLogCommand {
    /// Clear the logs of a node's BMC; their entries are lost
    Clear(ClearArgs),
}

#[derive(Debug, Args)]
struct ReadArgs {
    /// The node
    #[arg(required = true, value_name = "ID")]
    id: Option<String>,
    /// Only entries created since this time by the BMC's clock: 2026-12-31T18:00:00Z, or a duration before now such as 2h
    #[arg(long, value_name = "TIME", value_parser = units::parse_past)]
    since: Option<Timestamp>,
    /// Only entries of this severity or worse
    #[arg(long, value_enum)]
    severity: Option<Severity>,
    /// Maximum number of entries
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(i32).range(1..=2000))]
    last: i32,
    /// Show the entries of the last reading, without a call to the BMC
    #[arg(long)]
    cached: bool,
    #[command(flatten)]
    mutation: MutationArgs,
}

#[derive(Debug, Args)]
struct ClearArgs {
    /// The node
    id: String,
    /// Only this log, by its id or path (default: all logs that can be cleared)
    #[arg(long, value_name = "LOG")]
    log: Option<String>,
    /// Do not ask for confirmation; the entries are lost
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    mutation: MutationArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Severity {
    Ok,
    Warning,
    Critical,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "Warning",
            Self::Critical => "Critical",
        }
    }
}

/// Shows or clears the log.
pub async fn run(cx: &Cx, args: BmcLogArgs) -> Result<(), CliError> {
    match args.command {
        Some(BmcLogCommand::Clear(args)) => clear(cx, args).await,
        None => show(cx, &*cx.client().await?, args.read).await,
    }
}

async fn clear(cx: &Cx, args: ClearArgs) -> Result<(), CliError> {
    let id = names::short("nodes", &args.id).to_owned();
    if !args.yes {
        let logs = match &args.log {
            None => "every log".to_owned(),
            Some(log) => format!("the log {log}"),
        };
        let lost = clean(&format!("the entries of {logs} of the BMC of {id}"));
        cx.ui.consent(
            &format!("this deletes {lost}"),
            &format!("This deletes {lost}; `rackwright node bmc-log {id}` shows them before."),
        )?;
    }
    let client = cx.client().await?;
    let request = ClearBmcLogRequest {
        name: names::full("nodes", &id),
        log: args.log.unwrap_or_default(),
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("clear the BMC log of {id}");
    let started = rpc!(client, BmcServiceClient.clear_bmc_log, doing, request).await?;
    let done = until_done(&client, &started, LOG_WITHIN).await?;
    show_work(cx, &id, &done)
}

/// Cuts the power of nodes for a moment. A refusal of one node does not stop the others.
pub async fn ac_cycle(
    cx: &Cx,
    chosen: &Chosen,
    force: bool,
    waiting: WaitArgs,
    mutation: &MutationArgs,
) -> Result<(), CliError> {
    let mutations = chosen.mutations(mutation)?;
    let client = cx.client().await?;
    let (mut started, mut errors) = (Vec::new(), Vec::new());
    for id in &chosen.ids {
        let request = AcCycleNodeRequest {
            name: names::full("nodes", id),
            force,
            mutation: Some(mutations.of(id)),
        };
        let doing = format!("AC cycle {id}");
        match rpc!(client, BmcServiceClient.ac_cycle_node, doing, request).await {
            Ok(work) => started.push((id.as_str(), work)),
            Err(error) if error.is_outage() => {
                errors.push(error);
                break;
            }
            Err(error) => errors.push(error),
        }
    }
    if !waiting.wait {
        for (id, _) in &started {
            cx.ui.say(&clean(&format!("AC cycle of {id} requested")))?;
        }
        return CliError::gather(errors);
    }
    let (begun, limit) = (Instant::now(), waiting.timeout.unwrap_or(CYCLE_WITHIN));
    let mut done = Vec::new();
    for (id, work) in &started {
        let outcome = until_done(&client, work, limit.saturating_sub(begun.elapsed())).await;
        match outcome.and_then(|work| verdict(id, &work).map(|()| work)) {
            Ok(work) => done.push(work),
            Err(error) => errors.push(error),
        }
    }
    if !done.is_empty() {
        let line = |work: &BmcWork| format!("{}: {}\n", names::short("nodes", &work.name), clean(&work.done));
        cx.ui.items(&done, |_| done.iter().map(line).collect())?;
    }
    CliError::gather(errors)
}

async fn show(cx: &Cx, client: &Client, args: ReadArgs) -> Result<(), CliError> {
    let id = args
        .id
        .as_deref()
        .map(|id| names::short("nodes", id).to_owned())
        .unwrap_or_default();
    let list = ListBmcLogEntriesRequest {
        name: names::full("nodes", &id),
        page_size: args.last,
        since: args.since,
        severity: args.severity.map(Severity::word).unwrap_or_default().to_owned(),
    };
    if !args.cached {
        let request = ReadBmcLogRequest {
            name: list.name.clone(),
            mutation: Some(args.mutation.once()),
        };
        let doing = format!("read the BMC log of {id}");
        let started = rpc!(client, BmcServiceClient.read_bmc_log, doing, request).await?;
        let done = until_done(client, &started, LOG_WITHIN).await?;
        verdict(&id, &done)?;
    }
    let doing = format!("list the BMC log of {id}");
    let answer = rpc!(client, BmcServiceClient.list_bmc_log_entries, doing, list).await?;
    let width = cx.ui.width();
    cx.ui.item(&answer, |paint| render(&answer, paint, width))?;
    for gap in &answer.gaps {
        cx.ui.note(&format!("not read: {}", clean(gap)));
    }
    Ok(())
}

/// Waits until the requested work is done or was given up.
async fn until_done(client: &Client, started: &BmcWork, within: Duration) -> Result<BmcWork, CliError> {
    let begun = Instant::now();
    let since = started.request_time.as_ref().map(units::seconds).unwrap_or_default();
    loop {
        let request = ListBmcLogEntriesRequest {
            name: started.name.clone(),
            page_size: 1,
            ..ListBmcLogEntriesRequest::default()
        };
        let doing = format!("read the BMC log of {}", names::short("nodes", &started.name));
        let answer = rpc!(client, BmcServiceClient.list_bmc_log_entries, doing, request).await?;
        let work = answer.work.unwrap_or_default();
        let is_done = work
            .done_time
            .as_ref()
            .is_some_and(|time| units::seconds(time) >= since);
        if work.wanted.is_empty() && is_done {
            return Ok(work);
        }
        if begun.elapsed() >= within {
            return Err(CliError::TimedOut {
                what: format!(
                    "{} of the BMC of {}",
                    started.wanted,
                    names::short("nodes", &started.name)
                ),
                after: units::duration(begun.elapsed().as_secs_f64()),
                hint: "the work continues; `rackwright node bmc-log ID --cached` shows its result".to_owned(),
            });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn verdict(id: &str, work: &BmcWork) -> Result<(), CliError> {
    if work.error.is_empty() {
        return Ok(());
    }
    Err(CliError::Bmc {
        message: format!("{id}: {}", clean(&work.error)),
        hint: format!("`rackwright node explain {id}` shows more about the BMC"),
        exit: exit::OPERATION_FAILED,
    })
}

fn show_work(cx: &Cx, id: &str, work: &BmcWork) -> Result<(), CliError> {
    verdict(id, work)?;
    cx.ui.item(work, |_| format!("{id}: {}\n", clean(&work.done)))
}

fn tone(severity: &str) -> Tone {
    match severity.to_ascii_lowercase().as_str() {
        "critical" | "fatal" | "error" => Tone::Bad,
        "warning" => Tone::Busy,
        "ok" => Tone::Good,
        _ => Tone::Dim,
    }
}

fn row(entry: &BmcLogEntry) -> [Cell; 5] {
    [
        entry.create_time.as_ref().map(units::stamp).unwrap_or_default().into(),
        (&entry.log).into(),
        (&entry.id).into(),
        Cell::toned(&entry.severity, tone(&entry.severity)),
        (&entry.message).into(),
    ]
}

fn render(answer: &ListBmcLogEntriesResponse, paint: Paint, width: Option<usize>) -> String {
    let Some(read) = &answer.read_time else {
        return "the event log was never read\n".to_owned();
    };
    let mut text = String::new();
    if !answer.entries.is_empty() {
        let mut table = Table::new(&["CREATED", "LOG", "ID", "SEVERITY", "WHAT"]);
        for entry in &answer.entries {
            table.row(row(entry));
        }
        text = table.render(paint, width);
    }
    let logs = plural(answer.logs.len(), "log");
    let more = if answer.more { ", there are more" } else { "" };
    let count = plural(answer.entries.len(), "entry");
    text.push_str(&format!("{count} of {logs}{more}; read {}\n", units::stamp(read)));
    text
}
