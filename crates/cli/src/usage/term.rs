//! `rackwright usage term`

use clap::{Args, Subcommand};
use prost_types::Timestamp;
use rackwright_api::v1::metering_service_client::MeteringServiceClient;
use rackwright_api::v1::{DeleteTermRequest, ListTermsRequest, SetTermRequest, Term};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::{Format, Paint, Table, clean};
use rackwright_cli_context::{Cx, names, pages};

use super::{parse_second, stamp};

/// Terms of one page.
const PAGE: i32 = 1000;

/// `rackwright usage term`
#[derive(Debug, Subcommand)]
pub enum TermCommand {
    /// Create or change a term; also counts for past periods
    Set(SetArgs),
    /// Show terms
    List {
        /// Only terms of this customer
        #[arg(long, value_name = "NAME")]
        customer: Option<String>,
    },
    /// Delete a term; also counts for past periods
    Delete {
        /// The term
        name: String,
        #[command(flatten)]
        mutation: MutationArgs,
    },
}

/// `rackwright usage term set`
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Name of the term: 1 to 63 characters of a-z, 0-9 and '-'
    name: String,
    /// Customer of the term
    #[arg(long, value_name = "NAME")]
    customer: String,
    /// SKU of the nodes
    #[arg(long)]
    sku: String,
    /// Number of nodes
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Start of the term: a day (2026-10-01, from 00:00 UTC) or a time
    #[arg(long, value_name = "TIME", value_parser = parse_second)]
    from: Timestamp,
    /// End of the term, not included
    #[arg(long, value_name = "TIME", value_parser = parse_second)]
    to: Timestamp,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Runs a term command.
pub async fn run(cx: &Cx, command: TermCommand) -> Result<(), CliError> {
    match command {
        TermCommand::Set(args) => set(cx, args).await,
        TermCommand::List { customer } => list(cx, customer.unwrap_or_default()).await,
        TermCommand::Delete { name, mutation } => delete(cx, &name, &mutation).await,
    }
}

fn short(name: &str) -> &str {
    names::short("terms", name)
}

async fn set(cx: &Cx, args: SetArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let doing = format!("set term {}", short(&args.name));
    let request = SetTermRequest {
        term: Some(Term {
            name: names::full("terms", &args.name),
            customer: args.customer,
            sku: args.sku,
            nodes: args.nodes,
            start_time: Some(args.from),
            end_time: Some(args.to),
            metadata: None,
        }),
        mutation: Some(args.mutation.once()),
    };
    let term = rpc!(client, MeteringServiceClient.set_term, doing, request).await?;
    if cx.ui.format() != Format::Table {
        return cx.ui.item(&term, |_| String::new());
    }
    cx.ui.say(&clean(&format!(
        "{}: {} of {} for {} from {} to {}",
        short(&term.name),
        plural(term.nodes as usize, "node"),
        term.sku,
        term.customer,
        stamp(term.start_time.as_ref()),
        stamp(term.end_time.as_ref())
    )))
}

async fn list(cx: &Cx, customer: String) -> Result<(), CliError> {
    let client = cx.client().await?;
    let terms = pages::all(async |page_token| {
        let request = ListTermsRequest {
            page_size: PAGE,
            page_token,
            customer: customer.clone(),
        };
        let page = rpc!(client, MeteringServiceClient.list_terms, "list terms", request).await?;
        Ok((page.terms, page.next_page_token))
    })
    .await?;
    let width = cx.ui.width();
    cx.ui.list(&terms, |paint| table(&terms, paint, width))
}

async fn delete(cx: &Cx, name: &str, mutation: &MutationArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = short(name);
    let request = DeleteTermRequest {
        name: names::full("terms", id),
        mutation: Some(mutation.once()),
    };
    let doing = format!("delete term {id}");
    rpc!(client, MeteringServiceClient.delete_term, doing, request).await?;
    cx.ui.say(&format!("{id} deleted"))
}

fn table(terms: &[Term], paint: Paint, width: Option<usize>) -> String {
    let mut table = Table::new(&["TERM", "CUSTOMER", "SKU", "NODES", "FROM", "TO"]);
    for term in terms {
        table.row([
            short(&term.name).into(),
            term.customer.as_str().into(),
            term.sku.as_str().into(),
            term.nodes.to_string().into(),
            stamp(term.start_time.as_ref()).into(),
            stamp(term.end_time.as_ref()).into(),
        ]);
    }
    table.render(paint, width)
}
