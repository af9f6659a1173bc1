//! `rackwright discover enrol`

use std::collections::HashMap;

use clap::Args;
use rackwright_api::v1::discovery_service_client::DiscoveryServiceClient;
use rackwright_api::v1::{EnrolFindingsRequest, EnrolledFinding};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::given::pair;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Paint, Table, Tone};
use rackwright_cli_context::{Cx, names};

use super::{chosen, short_address};

/// `rackwright discover enrol`
#[derive(Debug, Args)]
#[group(id = "which", required = true, multiple = false)]
pub struct EnrolArgs {
    /// Addresses of findings: 10.0.0.5, 10.0.0.6:8443
    #[arg(group = "which", value_name = "ADDRESS")]
    findings: Vec<String>,
    /// All new machines
    #[arg(long, group = "which")]
    all_new: bool,
    /// The discovery (default: the newest one)
    #[arg(long, value_name = "ID")]
    discovery: Option<String>,
    /// Template for node names: text with {serial}, {uuid}, {rack}, {unit}, {site} (the site file's node with this BMC
    /// address) or {address} (default: the name in the table, else in the site file, else the serial number)
    #[arg(long, value_name = "TEMPLATE")]
    name: Option<String>,
    /// SKU of machines without a known SKU
    #[arg(long)]
    sku: Option<String>,
    /// Label, k=v; repeat the option for several
    #[arg(long = "label", value_name = "K=V", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Update the BMC address of nodes that moved; with --all-new, of all moved nodes
    #[arg(long)]
    update: bool,
    /// Only show the planned changes
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Enrols, or shows the planned enrolments.
pub async fn run(cx: &Cx, args: EnrolArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let parent = chosen(&client, args.discovery.as_deref()).await?;
    let base = args.mutation.once();
    let labels: HashMap<String, String> = args.labels.into_iter().collect();
    let mut done: Vec<EnrolledFinding> = Vec::new();
    // The server enrols a limited number per call, all or none of them.
    for round in 1_u32.. {
        let request = EnrolFindingsRequest {
            parent: parent.clone(),
            findings: args.findings.clone(),
            all_new: args.all_new,
            name_template: args.name.clone().unwrap_or_default(),
            sku: args.sku.clone().unwrap_or_default(),
            labels: labels.clone(),
            update: args.update,
            validate_only: args.dry_run,
            mutation: Some(args.mutation.part(&base.idempotency_key, &format!("round{round}"))),
        };
        let answer = rpc!(client, DiscoveryServiceClient.enrol_findings, "enrol findings", request).await?;
        let has_enrolled = answer.findings.iter().any(|one| one.action == "enrol");
        done.extend(answer.findings);
        if answer.remaining == 0 || args.dry_run || !has_enrolled {
            if answer.remaining > 0 {
                cx.ui.note(&format!("note: {} more machines are new", answer.remaining));
            }
            break;
        }
    }
    let width = cx.ui.width();
    let dry = args.dry_run;
    let human = |paint| table(&done, dry, paint, width);
    if args.all_new {
        return cx.ui.list(&done, human);
    }
    cx.ui.items(&done, human)
}

fn table(done: &[EnrolledFinding], dry: bool, paint: Paint, width: Option<usize>) -> String {
    if done.is_empty() {
        return "no machine is new\n".to_owned();
    }
    let mut table = Table::new(&["FINDING", "ACTION", "NODE", "WHY"]);
    for one in done {
        let tone = match one.action.as_str() {
            "enrol" => Tone::Good,
            "update" => Tone::Busy,
            _ => Tone::Dim,
        };
        let address = one
            .finding
            .split_once("/findings/")
            .map_or(one.finding.as_str(), |(_, address)| address);
        table.row([
            short_address(address).into(),
            Cell::toned(&one.action, tone),
            names::short("nodes", &one.node).into(),
            one.reason.as_str().into(),
        ]);
    }
    let count = |action: &str| done.iter().filter(|one| one.action == action).count();
    let would = if dry { "would be " } else { "" };
    let end = format!(
        "{} {would}enrolled, {} {would}updated, {} skipped\n",
        plural(count("enrol"), "node"),
        count("update"),
        count("skip")
    );
    table.render(paint, width) + &end
}
