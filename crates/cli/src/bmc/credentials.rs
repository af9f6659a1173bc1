//! `rackwright bmc credentials`: the factory logins of machines. Passwords go in and are never shown.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rackwright_api::v1::credential_service_client::CredentialServiceClient;
use rackwright_api::v1::{
    AddFactoryCredentialRequest, FactoryCredential, ListFactoryCredentialsRequest, RemoveFactoryCredentialRequest,
};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::given::read_password;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::{Paint, Table, clean};
use rackwright_cli_context::{Cx, names, units};
use secrecy::ExposeSecret as _;

const COLLECTION: &str = "factoryCredentials";

/// `rackwright bmc credentials`
#[derive(Debug, Subcommand)]
pub enum CredentialsCommand {
    /// Add a factory credential: user name and password of new machines of a vendor or product
    Add(AddArgs),
    /// Show the factory credentials in the order of their use, without passwords
    List,
    /// Remove a factory credential
    Remove(RemoveArgs),
}

/// `rackwright bmc credentials add`
#[derive(Debug, Args)]
#[group(id = "factory_password", required = true)]
pub struct AddArgs {
    /// Vendor or product that the BMC reports without a login; * and ? are wildcards
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    vendor: String,
    /// User at the BMC
    #[arg(long)]
    user: String,
    /// File with the password
    #[arg(long, value_name = "FILE", group = "factory_password")]
    password_file: Option<PathBuf>,
    /// Read the password from standard input
    #[arg(long, group = "factory_password")]
    password_stdin: bool,
    /// Order of use: lower numbers are tried first
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    order: i32,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright bmc credentials remove`
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Id, as `bmc credentials list` shows it
    id: String,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Runs a credentials command.
pub async fn run(cx: &Cx, command: CredentialsCommand) -> Result<(), CliError> {
    match command {
        CredentialsCommand::Add(args) => add(cx, args).await,
        CredentialsCommand::List => list(cx).await,
        CredentialsCommand::Remove(args) => remove(cx, args).await,
    }
}

fn short(one: &FactoryCredential) -> &str {
    names::short(COLLECTION, &one.name)
}

async fn add(cx: &Cx, args: AddArgs) -> Result<(), CliError> {
    let password = read_password(args.password_file.as_deref())?;
    let client = cx.client().await?;
    let request = AddFactoryCredentialRequest {
        pattern: args.vendor,
        username: args.user,
        password: password.expose_secret().to_owned(),
        order: args.order,
        mutation: Some(args.mutation.once()),
    };
    let doing = "add a factory credential";
    let one = rpc!(client, CredentialServiceClient.add_factory_credential, doing, request).await?;
    cx.ui.say(&format!(
        "{} added: {} on {}",
        short(&one),
        clean(&one.username),
        clean(&one.pattern)
    ))
}

async fn list(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let request = ListFactoryCredentialsRequest {};
    let doing = "list factory credentials";
    let answer = rpc!(client, CredentialServiceClient.list_factory_credentials, doing, request).await?;
    let width = cx.ui.width();
    cx.ui
        .list(&answer.credentials, |paint| table(&answer.credentials, paint, width))
}

async fn remove(cx: &Cx, args: RemoveArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = names::short(COLLECTION, &args.id);
    let request = RemoveFactoryCredentialRequest {
        name: names::full(COLLECTION, id),
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("remove factory credential {id}");
    rpc!(
        client,
        CredentialServiceClient.remove_factory_credential,
        doing,
        request
    )
    .await?;
    cx.ui.say(&format!("{id} removed"))
}

fn table(all: &[FactoryCredential], paint: Paint, width: Option<usize>) -> String {
    let mut table = Table::new(&["ORDER", "VENDOR", "USER", "ID", "ADDED", "BY"]);
    for one in all {
        table.row([
            one.order.to_string().into(),
            one.pattern.as_str().into(),
            one.username.as_str().into(),
            short(one).into(),
            one.create_time.as_ref().map(units::stamp).unwrap_or_default().into(),
            one.created_by.as_str().into(),
        ]);
    }
    table.render(paint, width)
}
