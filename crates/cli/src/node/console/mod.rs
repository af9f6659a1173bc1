//! `rackwright node console ...`: a node's serial console, live and recorded.

mod attach;
mod escape;
mod log;
mod plain;
mod terminal;

use clap::{Args, Subcommand};
use rackwright_api::v1::console_service_client::ConsoleServiceClient;
use rackwright_api::v1::{CreateConsoleTokenRequest, ListConsoleBootsRequest, SetConsoleHostKeyRequest};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Table};
use rackwright_cli_context::{Cx, names, units};

/// `rackwright node console`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ConsoleArgs {
    #[command(flatten)]
    attach: attach::AttachArgs,
    #[command(subcommand)]
    command: Option<ConsoleCommand>,
}

/// The subcommands beside the interactive session.
#[derive(Debug, Subcommand)]
enum ConsoleCommand {
    /// Show the recorded output of earlier boots
    Log(log::LogArgs),
    /// List the recorded boots
    Boots {
        /// The node
        id: String,
    },
    /// Set the SSH host key that a node's BMC must have, or forget it
    HostKey(HostKeyArgs),
    /// Make a password for one login with `ssh NODE@SERVER` at this console
    Token(TokenArgs),
}

/// `rackwright node console token`
#[derive(Debug, Args)]
struct TokenArgs {
    /// The node
    id: String,
    /// Lifetime of the password (at most 1d)
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "10m")]
    lifetime: std::time::Duration,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright node console host-key`
#[derive(Debug, Args)]
struct HostKeyArgs {
    /// The node
    id: String,
    /// Fingerprint, as `ssh-keygen -lf` shows it: SHA256:...
    #[arg(required_unless_present = "forget", value_name = "SHA256:...")]
    host_key: Option<String>,
    /// Forget the host key: the host key of the next connection is pinned
    #[arg(long, conflicts_with = "host_key")]
    forget: bool,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Runs a console command.
pub async fn run(cx: &Cx, args: ConsoleArgs) -> Result<(), CliError> {
    match args.command {
        None => attach::run(cx, args.attach).await,
        Some(ConsoleCommand::Log(args)) => log::run(cx, args).await,
        Some(ConsoleCommand::Boots { id }) => boots(cx, &id).await,
        Some(ConsoleCommand::HostKey(args)) => host_key(cx, args).await,
        Some(ConsoleCommand::Token(args)) => token(cx, args).await,
    }
}

async fn boots(cx: &Cx, id: &str) -> Result<(), CliError> {
    let client = cx.client().await?;
    let request = ListConsoleBootsRequest {
        node: names::full("nodes", id),
    };
    let doing = format!("read the recorded boots of {}", names::short("nodes", id));
    let answer = rpc!(client, ConsoleServiceClient.list_console_boots, doing, request).await?;
    cx.ui.list(&answer.boots, |paint| {
        if answer.boots.is_empty() {
            return "nothing is recorded\n".to_owned();
        }
        let mut table = Table::new(&["BOOT", "SWITCHED ON", "FIRST OUTPUT", "SIZE"]);
        for boot in &answer.boots {
            let time = |time: Option<&prost_types::Timestamp>| time.map_or_else(|| "before".to_owned(), units::stamp);
            table.row([
                Cell::from(boot.boot.to_string()),
                Cell::from(time(boot.power_on_time.as_ref())),
                Cell::from(time(boot.first_output_time.as_ref())),
                Cell::from(units::bytes(u64::try_from(boot.size_bytes).unwrap_or(0))),
            ]);
        }
        table.render(paint, cx.ui.width())
    })
}

async fn host_key(cx: &Cx, args: HostKeyArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = names::short("nodes", &args.id);
    let request = SetConsoleHostKeyRequest {
        node: names::full("nodes", id),
        host_key_sha256: args.host_key.unwrap_or_default(),
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("change the console's host key of {id}");
    let answer = rpc!(client, ConsoleServiceClient.set_console_host_key, doing, request).await?;
    if cx.ui.format() == Format::Table {
        let what = match answer.host_key_sha256.as_str() {
            "" => "not set, the host key of the next connection is pinned",
            key => key,
        };
        return cx.ui.say(&format!("the console's host key of {id}: {what}"));
    }
    cx.ui.item(&answer, |_| String::new())
}

async fn token(cx: &Cx, args: TokenArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = names::short("nodes", &args.id);
    let request = CreateConsoleTokenRequest {
        node: names::full("nodes", id),
        lifetime: Some(units::proto_duration(args.lifetime)),
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("make a token for the console of {id}");
    let answer = rpc!(client, ConsoleServiceClient.create_console_token, doing, request).await?;
    let ends = answer.expire_time.as_ref().map(units::stamp).unwrap_or_default();
    cx.ui.item(&answer, |_| {
        format!(
            "password for one `ssh {id}@SERVER` at the site's console port, until {ends}:\n\n  {}\n",
            answer.token
        )
    })
}
