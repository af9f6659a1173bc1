//! `rackwright operation ...`: long-running work.

use std::time::Duration;

use clap::Subcommand;
use rackwright_api::v1::operation_service_client::OperationServiceClient;
use rackwright_api::v1::{CancelOperationRequest, GetOperationRequest, Operation};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::operation::{conclude, matching, report};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Paint, Table, Tone};
use rackwright_cli_context::{Cx, names, units, wait};

/// `rackwright operation`
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// Show operations, the newest first
    List {
        /// Only operations that match, such as `kind = deploy AND done = false`
        #[arg(long)]
        filter: Option<String>,
        /// Only operations of this resource, such as nodes/gpu-001
        #[arg(long, value_name = "RESOURCE")]
        target: Option<String>,
        /// Only operations that are not done
        #[arg(long)]
        running: bool,
        /// Maximum number of operations
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show one operation
    Get { id: String },
    /// Wait until operations are done
    Wait {
        #[arg(required = true)]
        ids: Vec<String>,
        /// Time limit of the wait; the work continues after it
        #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
        timeout: Option<Duration>,
    },
    /// Cancel an operation; work that runs on a machine is first brought to a safe state
    Cancel {
        id: String,
        #[command(flatten)]
        mutation: MutationArgs,
    },
}

/// Runs an operation command.
pub async fn run(cx: &Cx, command: OperationCommand) -> Result<(), CliError> {
    match command {
        OperationCommand::List {
            filter,
            target,
            running,
            limit,
        } => {
            let target = target.map(|target| format!("target = \"{target}\""));
            let running = running.then(|| "done = false".to_owned());
            let filter: Vec<String> = [filter, target, running].into_iter().flatten().collect();
            list(cx, filter.join(" AND "), limit).await
        }
        OperationCommand::Get { id } => {
            let operation = get(&*cx.client().await?, &id).await?;
            cx.ui.item(&operation, |paint| details(&operation, paint))
        }
        OperationCommand::Wait { ids, timeout } => wait_for(cx, &ids, timeout).await,
        OperationCommand::Cancel { id, mutation } => {
            let client = cx.client().await?;
            let name = names::full("operations", &id);
            let request = CancelOperationRequest {
                name,
                mutation: Some(mutation.once()),
            };
            let doing = format!("cancel operation {id}");
            let operation = rpc!(client, OperationServiceClient.cancel_operation, doing, request).await?;
            report(&cx.ui, &[operation], |operation| {
                let what = if operation.done {
                    "has ended"
                } else {
                    "is being cancelled"
                };
                format!("{} {what}", wait::title(operation))
            })
        }
    }
}

async fn get(client: &Client, id: &str) -> Result<Operation, CliError> {
    let request = GetOperationRequest {
        name: names::full("operations", id),
    };
    rpc!(
        client,
        OperationServiceClient.get_operation,
        format!("read operation {id}"),
        request
    )
    .await
}

async fn list(cx: &Cx, filter: String, limit: usize) -> Result<(), CliError> {
    let client = cx.client().await?;
    let operations = matching(&client, &filter, limit).await?;
    let width = cx.ui.width();
    cx.ui.list(&operations, |paint| {
        let now = units::now();
        let mut table = Table::new(&["OPERATION", "KIND", "TARGET", "STATE", "DONE", "AGE", "BY", "STEP"]);
        for operation in &operations {
            let progress = operation.progress.clone().unwrap_or_default();
            let age = operation
                .create_time
                .as_ref()
                .map(|time| units::age(units::since(time, now)));
            table.row([
                names::last(&operation.name).into(),
                (&operation.kind).into(),
                (&operation.target).into(),
                state_cell(operation),
                done(operation).into(),
                age.unwrap_or_default().into(),
                (&operation.requested_by).into(),
                operation
                    .error
                    .as_ref()
                    .map_or(&progress.step, |error| &error.message)
                    .into(),
            ]);
        }
        table.render(paint, width)
    })
}

/// The progress. A failed operation, and one without progress, has no figure.
fn done(operation: &Operation) -> String {
    match (operation.done, &operation.error, &operation.progress) {
        (true, None, _) => "100%".to_owned(),
        (false, _, Some(progress)) => format!("{}%", progress.percent),
        _ => String::new(),
    }
}

fn state_cell(operation: &Operation) -> Cell {
    let state = wait::state(operation);
    let tone = match state {
        "done" => Tone::Good,
        "failed" => Tone::Bad,
        "cancelled" => Tone::Dim,
        _ => Tone::Busy,
    };
    Cell::toned(state, tone)
}

fn details(operation: &Operation, paint: Paint) -> String {
    let mut table = Table::pairs();
    let time = |time: &Option<prost_types::Timestamp>| time.as_ref().map(units::stamp).unwrap_or_default();
    table.row(["operation".into(), names::last(&operation.name).into()]);
    table.row(["kind".into(), (&operation.kind).into()]);
    table.row(["target".into(), (&operation.target).into()]);
    table.row(["state".into(), state_cell(operation)]);
    table.row(["progress".into(), wait::progress_text(operation).into()]);
    table.row(["requested by".into(), (&operation.requested_by).into()]);
    table.row(["created".into(), time(&operation.create_time).into()]);
    table.row(["deadline".into(), time(&operation.deadline).into()]);
    table.row(["ended".into(), time(&operation.end_time).into()]);
    if let Some(took) = units::between(operation.create_time.as_ref(), operation.end_time.as_ref()) {
        table.row(["took".into(), units::duration(took).into()]);
    }
    if let Some(error) = &operation.error {
        table.row(["error".into(), Cell::toned(&error.message, Tone::Bad)]);
    }
    table.render(paint, None)
}

async fn wait_for(cx: &Cx, ids: &[String], timeout: Option<Duration>) -> Result<(), CliError> {
    let client = cx.client().await?;
    let mut operations = Vec::new();
    for id in ids {
        operations.push(get(&client, id).await?);
    }
    let operations = wait::until_done(&client, &cx.ui, operations, timeout).await?;
    conclude(&cx.ui, &operations)
}
