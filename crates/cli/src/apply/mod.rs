//! `rackwright apply`: nodes as YAML files describe them. Everything is read and checked first; on any fault, all faults
//! are reported and nothing is sent.

mod document;
mod plan;

use std::path::PathBuf;

use clap::Args;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{BatchEnrollNodesRequest, EnrollNodeRequest, Operation, UpdateNodeRequest};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::{Format, clean};
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names, nodes, wait};
use serde_json::json;

use plan::{Action, Step};

/// Nodes enrolled by one call: each batch is all or nothing.
const BATCH: usize = 1000;

/// `rackwright apply`
#[derive(Debug, Args)]
#[command(
    after_help = "A document describes one node:\n\n  kind: Node\n  id: gpu-001\n  bmc:\n    address: https://10.0.0.1\n    \
                        username: admin\n    password_file: secrets/gpu-001   # or password, or password_env\n    \
                        certificate_sha256: sha256:...        # optional\n    system: /redfish/v1/Systems/1         # optional\n  \
                        sku: h100                               # optional\n  labels: {rack: r12}                     # optional\n\n\
                        Labels, SKU and pin that a document does not name stay unchanged. The server does not return BMC \
                        passwords, so a password is sent only when other BMC fields change or with --passwords."
)]
pub struct ApplyArgs {
    /// File, directory (its *.yaml and *.yml files) or `-` for standard input; repeat the option for several
    #[arg(short, long = "file", required = true, value_name = "FILE|DIR|-")]
    files: Vec<PathBuf>,
    /// Only show the planned changes
    #[arg(long)]
    dry_run: bool,
    /// Send the BMC passwords of all nodes again
    #[arg(long)]
    passwords: bool,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Reads, checks, compares and sends.
pub async fn run(cx: &Cx, args: ApplyArgs) -> Result<(), CliError> {
    if args.mutation.resource_version.is_some() {
        return Err(CliError::usage(
            "--resource-version applies to one resource, and apply can change several",
            "leave it out: a change is refused anyway if the node has changed after apply read it",
        ));
    }
    let documents = document::read_all(&args.files)?;
    let client = cx.client().await?;
    let present = nodes::all(&client, "").await?;
    let mut steps = plan::plan(documents, &present, args.passwords);
    let outcome = if args.dry_run {
        Ok(Vec::new())
    } else {
        send(&client, &mut steps, &args.mutation).await
    };
    let started = match outcome {
        Ok(started) => started,
        Err(error) => {
            let done: Vec<_> = steps.into_iter().filter(|step| step.done).collect();
            show(cx, &done, false)?;
            return Err(error);
        }
    };
    show(cx, &steps, args.dry_run)?;
    if args.waiting.wait && !started.is_empty() {
        let ended = wait::until_done(&client, &cx.ui, started, args.waiting.timeout).await?;
        if cx.ui.format() == Format::Table {
            return wait::verdict(&cx.ui, &ended);
        }
        return wait::verdict(&cx.ui.silenced(), &ended);
    }
    Ok(())
}

/// Sends the enrolments in batches, then the changes one by one, and marks completed steps.
async fn send(client: &Client, steps: &mut [Step], mutation: &MutationArgs) -> Result<Vec<Operation>, CliError> {
    let key = mutation.once().idempotency_key;
    let mut operations = Vec::new();
    let (mut new, mut others): (Vec<&mut Step>, Vec<&mut Step>) = steps
        .iter_mut()
        .partition(|step| matches!(step.action, Action::Enroll(_)));
    for (number, batch) in new.chunks_mut(BATCH).enumerate() {
        let part = mutation.part(&key, &format!("enroll{number}"));
        let requests: Vec<EnrollNodeRequest> = batch
            .iter()
            .filter_map(|step| match &step.action {
                Action::Enroll(request) => Some((**request).clone()),
                _ => None,
            })
            .collect();
        let doing = format!("enrol {}", plural(requests.len(), "node"));
        let request = BatchEnrollNodesRequest {
            requests,
            mutation: Some(part),
        };
        let answer = rpc!(client, NodeServiceClient.batch_enroll_nodes, doing, request).await?;
        for step in batch.iter_mut() {
            step.operation = answer
                .operations
                .iter()
                .find(|o| o.target == names::full("nodes", &step.id))
                .cloned();
            step.done = true;
        }
        operations.extend(answer.operations);
    }
    let mut errors = Vec::new();
    for step in &mut others {
        let Action::Change(request) = &step.action else {
            step.done = true;
            continue;
        };
        match change(client, &step.id, request, mutation.part(&key, &step.id).idempotency_key).await {
            Ok(()) => step.done = true,
            Err(error) => errors.push(error),
        }
    }
    CliError::gather(errors).map(|()| operations)
}

async fn change(client: &Client, id: &str, request: &UpdateNodeRequest, key: String) -> Result<(), CliError> {
    let mut request = request.clone();
    request.mutation.get_or_insert_default().idempotency_key = key;
    rpc!(
        client,
        NodeServiceClient.update_node,
        format!("change node {id}"),
        request
    )
    .await
    .map(drop)
}

fn show(cx: &Cx, steps: &[Step], dry_run: bool) -> Result<(), CliError> {
    match cx.ui.format() {
        Format::Table => steps.iter().try_for_each(|step| cx.ui.say(&step.line(dry_run))),
        Format::Name => steps
            .iter()
            .try_for_each(|step| cx.ui.line(&names::full("nodes", &step.id))),
        Format::Json | Format::Yaml => {
            let values: Vec<_> = steps
                .iter()
                .map(|step| {
                    json!({
                        "name": names::full("nodes", &step.id),
                        "action": step.action.name(),
                        "changes": step.changes,
                        "operation": step.operation.as_ref().map(|operation| &operation.name),
                    })
                })
                .collect();
            cx.ui.value(&values.into())
        }
    }
}

/// A started operation is shown with the step that started it.
impl Step {
    fn line(&self, dry_run: bool) -> String {
        let operation = self
            .operation
            .as_ref()
            .map(|o| format!(", operation {}", names::last(&o.name)));
        let would = if dry_run { "would be " } else { "" };
        let words = match &self.action {
            Action::Enroll(_) => format!("{would}enrolled{}", operation.unwrap_or_default()),
            Action::Change(_) => format!("{would}changed: {}", self.changes.join(", ")),
            Action::Nothing => "unchanged".to_owned(),
        };
        clean(&format!("{} {words}", self.id))
    }
}
