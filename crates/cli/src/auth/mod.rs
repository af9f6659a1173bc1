//! The caller's identity: login, whoami, tokens, sessions and contexts.

pub mod login;
pub mod member;
pub mod session;
pub mod ssh_key;

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_api::v1::{CreateTokenRequest, DeleteTokenRequest, ListTokensRequest, Role, WhoAmIRequest};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::config::{Config, ConfigDir, context_name};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::login::role_name;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::{Format, Table};
use rackwright_cli_context::{Cx, names, pages, units};
use serde_json::json;

/// Tokens of one page.
const PAGE: i32 = 1000;

/// `rackwright token`
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a one-time token for the login of a member
    Create {
        /// Name of the member
        member: String,
        /// Role of the member
        #[arg(long, value_enum)]
        role: RoleArg,
        /// Customer of the member, for the roles of customers
        #[arg(long, default_value = "")]
        customer: String,
        /// Lifetime of the token (at most 7d)
        #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "1h")]
        lifetime: Duration,
        #[command(flatten)]
        mutation: MutationArgs,
    },
    /// Show unused tokens, without their secrets
    List,
    /// Delete an unused token
    Delete {
        /// The token's id, as `rackwright token list` shows it
        id: String,
        #[command(flatten)]
        mutation: MutationArgs,
    },
}

/// `rackwright context`
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// Show all contexts, the current one marked
    List,
    /// Make a context the current one
    Use {
        #[arg(value_parser = context_name)]
        name: String,
    },
    /// Delete a context and its key
    Delete {
        #[arg(value_parser = context_name)]
        name: String,
    },
}

/// Roles as arguments.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum RoleArg {
    /// Reads everything but secrets and the audit
    Viewer,
    /// Reads the audit, events and members; reads nothing else and changes nothing
    Auditor,
    /// Reads and changes everything
    Operator,
    /// For a customer: all rights of customer-user, releases the customer's clusters, invites its members
    CustomerAdmin,
    /// For a customer: sees the customer's nodes and clusters, reimages its nodes
    CustomerUser,
}

impl RoleArg {
    /// The role of the API.
    pub fn role(self) -> Role {
        match self {
            Self::Viewer => Role::Viewer,
            Self::Auditor => Role::Auditor,
            Self::Operator => Role::Operator,
            Self::CustomerAdmin => Role::CustomerAdmin,
            Self::CustomerUser => Role::CustomerUser,
        }
    }
}

/// `rackwright whoami`
pub async fn whoami(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let caller = rpc!(
        client,
        AuthServiceClient.who_am_i,
        "read your identity",
        WhoAmIRequest {}
    )
    .await?;
    cx.ui.item(&caller, |paint| {
        let mut table = Table::pairs();
        table.row(["member".into(), caller.member.as_str().into()]);
        table.row(["role".into(), role_name(caller.role).into()]);
        if !caller.customer.is_empty() {
            table.row(["customer".into(), caller.customer.as_str().into()]);
        }
        if caller.control_paused {
            table.row([
                "control plane".into(),
                "paused: answers reads, acts on no machine".into(),
            ]);
        }
        if let Some(end) = &caller.expire_time {
            let left = units::duration(-units::since(end, units::now()));
            let then = match client.is_renewing() {
                true => "renewed by use",
                false => "then run `rackwright login --oidc` again",
            };
            table.row([
                "credential ends".into(),
                format!("{} (in {left}, {then})", units::stamp(end)).into(),
            ]);
        }
        table.render(paint, None)
    })
}

/// `rackwright token ...`
pub async fn token(cx: &Cx, command: TokenCommand) -> Result<(), CliError> {
    match command {
        TokenCommand::Create {
            member,
            role,
            customer,
            lifetime,
            mutation,
        } => {
            let request = CreateTokenRequest {
                member,
                role: role.role() as i32,
                lifetime: Some(units::proto_duration(lifetime)),
                mutation: Some(mutation.once()),
                customer,
            };
            create_token(cx, request).await
        }
        TokenCommand::List => list_tokens(cx).await,
        TokenCommand::Delete { id, mutation } => {
            let client = cx.client().await?;
            let id = names::short("tokens", &id);
            let request = DeleteTokenRequest {
                name: names::full("tokens", id),
                mutation: Some(mutation.once()),
            };
            let doing = format!("delete token {id}");
            rpc!(client, AuthServiceClient.delete_token, doing, request).await?;
            cx.ui.say(&format!("token {id} deleted"))
        }
    }
}

async fn list_tokens(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let tokens = pages::all(async |page_token| {
        let request = ListTokensRequest {
            page_size: PAGE,
            page_token,
        };
        let page = rpc!(client, AuthServiceClient.list_tokens, "list tokens", request).await?;
        Ok((page.tokens, page.next_page_token))
    })
    .await?;
    let width = cx.ui.width();
    cx.ui.list(&tokens, |paint| {
        let mut table = Table::new(&["TOKEN", "MEMBER", "ROLE", "CUSTOMER", "MADE BY", "ENDS"]);
        for token in &tokens {
            table.row([
                names::short("tokens", &token.name).into(),
                token.member.as_str().into(),
                role_name(token.role).into(),
                token.customer.as_str().into(),
                token.created_by.as_str().into(),
                token.expire_time.as_ref().map(units::stamp).unwrap_or_default().into(),
            ]);
        }
        table.render(paint, width)
    })
}

async fn create_token(cx: &Cx, request: CreateTokenRequest) -> Result<(), CliError> {
    let client = cx.client().await?;
    let member = request.member.clone();
    let doing = format!("make a token for {member}");
    let token = rpc!(client, AuthServiceClient.create_token, doing, request).await?;
    let ends = token.expire_time.as_ref().map(units::stamp).unwrap_or_default();
    let server = client.first_server();
    cx.ui.item(&token, |_| {
        format!(
            "{member} can log in once until {ends} with:\n\n  \
             rackwright login --server {server} --ca-sha256 {} --token {}\n",
            token.ca_sha256, token.token
        )
    })
}

/// `rackwright context ...`
pub fn context(cx: &Cx, command: ContextCommand) -> Result<(), CliError> {
    let dir = ConfigDir::locate()?;
    let mut config = dir.load()?;
    match command {
        ContextCommand::List => list_contexts(cx, &config),
        ContextCommand::Use { name } => {
            let (name, _) = dir.pick(&config, Some(&name))?;
            config.current_context.clone_from(&name);
            dir.save(&config)?;
            cx.ui.say(&format!("context {name} is now the current one"))
        }
        ContextCommand::Delete { name } => {
            let (name, _) = dir.pick(&config, Some(&name))?;
            config.contexts.remove(&name);
            if config.current_context == name {
                config.current_context.clear();
            }
            dir.save(&config)?;
            dir.remove_credential(&name)?;
            cx.ui
                .say(&format!("context {name} and its key are deleted from this machine"))
        }
    }
}

fn list_contexts(cx: &Cx, config: &Config) -> Result<(), CliError> {
    match cx.ui.format() {
        Format::Table => {
            let mut table = Table::new(&["CURRENT", "CONTEXT", "MEMBER", "ROLE", "SERVERS"]);
            for (name, context) in &config.contexts {
                let mark = if *name == config.current_context { "*" } else { "" };
                table.row([
                    mark.into(),
                    name.into(),
                    (&context.member).into(),
                    (&context.role).into(),
                    context.servers.join(" ").into(),
                ]);
            }
            cx.ui.line(table.render(cx.ui.paint(), cx.ui.width()).trim_end())
        }
        Format::Name => config.contexts.keys().try_for_each(|name| cx.ui.line(name)),
        Format::Json | Format::Yaml => {
            let contexts: Vec<_> = config
                .contexts
                .iter()
                .map(|(name, context)| {
                    json!({
                        "name": name,
                        "current": *name == config.current_context,
                        "member": context.member,
                        "role": context.role,
                        "servers": context.servers,
                        "tls_name": context.tls_name,
                    })
                })
                .collect();
            cx.ui.value(&contexts.into())
        }
    }
}
