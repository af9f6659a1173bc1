//! Logins without a certificate: the web console, its sessions, and API keys.

use std::process::Stdio;
use std::time::Duration;

use clap::Subcommand;
use rackwright_api::v1::session_service_client::SessionServiceClient;
use rackwright_api::v1::{
    CreateApiKeyRequest, CreateLoginTokenRequest, DeleteApiKeyRequest, EndSessionRequest, ListApiKeysRequest,
    ListSessionsRequest,
};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::login::role_name;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::Table;
use rackwright_cli_context::{Cx, names, pages, units};

use super::RoleArg;

/// Sessions or keys of one page.
const PAGE: i32 = 1000;

/// `rackwright console`
#[derive(Debug, Subcommand)]
pub enum ConsoleCommand {
    /// Log in to the web console and open it in a browser
    Open {
        /// Print the address; start no browser
        #[arg(long)]
        print: bool,
        #[command(flatten)]
        mutation: MutationArgs,
    },
}

/// `rackwright session`
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// Show the browsers that are logged in to the web console
    List,
    /// End a session: the browser has to log in again
    End {
        /// The session's id, as `rackwright session list` shows it
        id: String,
        #[command(flatten)]
        mutation: MutationArgs,
    },
}

/// `rackwright api-key`
#[derive(Debug, Subcommand)]
pub enum ApiKeyCommand {
    /// Make a key with which a program calls the API as you
    Create {
        /// What the key is for
        label: String,
        /// Role of the key, yours or less [default: yours]
        #[arg(long, value_enum)]
        role: Option<RoleArg>,
        /// Lifetime of the key (1h to 366d)
        #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "90d")]
        lifetime: Duration,
        #[command(flatten)]
        mutation: MutationArgs,
    },
    /// Show API keys, without their secrets
    List,
    /// Delete an API key: programs with this key can no longer call
    Delete {
        /// The key's id, as `rackwright api-key list` shows it
        id: String,
        #[command(flatten)]
        mutation: MutationArgs,
    },
}

/// `rackwright console ...`
pub async fn console(cx: &Cx, command: ConsoleCommand) -> Result<(), CliError> {
    let ConsoleCommand::Open { print, mutation } = command;
    let client = cx.client().await?;
    let request = CreateLoginTokenRequest {
        mutation: Some(mutation.once()),
    };
    let doing = "log in to the web console";
    let login = rpc!(client, SessionServiceClient.create_login_token, doing, request).await?;
    let is_open = !print && open_browser(&login.url);
    cx.ui.item(&login, |_| match is_open {
        true => format!(
            "The web console opens in your browser. If not, open this address within a minute:\n\n  {}\n",
            login.url
        ),
        false => format!("Open this address within a minute; it works once:\n\n  {}\n", login.url),
    })
}

/// Asks the desktop to open an address. False: there is no desktop.
fn open_browser(url: &str) -> bool {
    let has_desktop = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    let opener = match () {
        () if cfg!(target_os = "macos") => "open",
        () if has_desktop => "xdg-open",
        () => return false,
    };
    let mut command = std::process::Command::new(opener);
    command
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().is_ok()
}

/// `rackwright session ...`
pub async fn session(cx: &Cx, command: SessionCommand) -> Result<(), CliError> {
    match command {
        SessionCommand::List => list_sessions(cx).await,
        SessionCommand::End { id, mutation } => {
            let client = cx.client().await?;
            let id = names::short("sessions", &id);
            let request = EndSessionRequest {
                name: names::full("sessions", id),
                mutation: Some(mutation.once()),
            };
            let doing = format!("end session {id}");
            rpc!(client, SessionServiceClient.end_session, doing, request).await?;
            cx.ui.say(&format!("session {id} ended"))
        }
    }
}

async fn list_sessions(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let sessions = pages::all(async |page_token| {
        let request = ListSessionsRequest {
            page_size: PAGE,
            page_token,
        };
        let page = rpc!(client, SessionServiceClient.list_sessions, "list sessions", request).await?;
        Ok((page.sessions, page.next_page_token))
    })
    .await?;
    let width = cx.ui.width();
    cx.ui.list(&sessions, |paint| {
        let mut table = Table::new(&["SESSION", "MEMBER", "ADDRESS", "LAST USE", "ENDS", "BROWSER"]);
        for session in &sessions {
            table.row([
                names::short("sessions", &session.name).into(),
                session.member.as_str().into(),
                session.address.as_str().into(),
                session
                    .last_use_time
                    .as_ref()
                    .map(units::stamp)
                    .unwrap_or_default()
                    .into(),
                session
                    .expire_time
                    .as_ref()
                    .map(units::stamp)
                    .unwrap_or_default()
                    .into(),
                session.client.as_str().into(),
            ]);
        }
        table.render(paint, width)
    })
}

/// `rackwright api-key ...`
pub async fn api_key(cx: &Cx, command: ApiKeyCommand) -> Result<(), CliError> {
    match command {
        ApiKeyCommand::Create {
            label,
            role,
            lifetime,
            mutation,
        } => {
            let request = CreateApiKeyRequest {
                label,
                role: role.map_or(0, |role| role.role() as i32),
                lifetime: Some(units::proto_duration(lifetime)),
                mutation: Some(mutation.once()),
            };
            create_api_key(cx, request).await
        }
        ApiKeyCommand::List => list_api_keys(cx).await,
        ApiKeyCommand::Delete { id, mutation } => {
            let client = cx.client().await?;
            let id = names::short("apiKeys", &id);
            let request = DeleteApiKeyRequest {
                name: names::full("apiKeys", id),
                mutation: Some(mutation.once()),
            };
            let doing = format!("delete API key {id}");
            rpc!(client, SessionServiceClient.delete_api_key, doing, request).await?;
            cx.ui.say(&format!("API key {id} deleted"))
        }
    }
}

async fn create_api_key(cx: &Cx, request: CreateApiKeyRequest) -> Result<(), CliError> {
    let client = cx.client().await?;
    let created = rpc!(client, SessionServiceClient.create_api_key, "make an API key", request).await?;
    let key = created.api_key.clone().unwrap_or_default();
    let ends = key.expire_time.as_ref().map(units::stamp).unwrap_or_default();
    cx.ui.item(&created, |_| {
        format!(
            "API key {} as {} until {ends}. The secret is shown only now:\n\n  {}\n",
            names::short("apiKeys", &key.name),
            role_name(key.role),
            created.key
        )
    })
}

async fn list_api_keys(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let keys = pages::all(async |page_token| {
        let request = ListApiKeysRequest {
            page_size: PAGE,
            page_token,
        };
        let page = rpc!(client, SessionServiceClient.list_api_keys, "list API keys", request).await?;
        Ok((page.api_keys, page.next_page_token))
    })
    .await?;
    let width = cx.ui.width();
    cx.ui.list(&keys, |paint| {
        let mut table = Table::new(&["KEY", "MEMBER", "ROLE", "LAST USE", "ENDS", "FOR"]);
        for key in &keys {
            table.row([
                names::short("apiKeys", &key.name).into(),
                key.member.as_str().into(),
                role_name(key.role).into(),
                key.last_use_time
                    .as_ref()
                    .map_or_else(|| "never".into(), units::stamp)
                    .into(),
                key.expire_time.as_ref().map(units::stamp).unwrap_or_default().into(),
                key.label.as_str().into(),
            ]);
        }
        table.render(paint, width)
    })
}
