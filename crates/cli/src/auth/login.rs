//! `rackwright login`: a one-time token becomes a stored credential.

use std::path::PathBuf;

use clap::Args;
use rackwright_cli_context::config::{ConfigDir, Context, Credential, context_name};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::given::read_beginning;
use rackwright_cli_context::login::{Invitation, redeem};
use rackwright_cli_context::tls::{self, Validity};
use rackwright_cli_context::{Cx, units};
use secrecy::{ExposeSecret as _, SecretString};

/// Longest token, in bytes.
const MAX_TOKEN_BYTES: u64 = 4096;

/// `rackwright login`
#[derive(Debug, Args)]
#[command(
    after_help = "Give the server with --server. rackwrightd at its first start and `rackwright token create` print the \
        token and the SHA-256 of the authority."
)]
#[group(id = "token_source", required = true)]
pub struct LoginArgs {
    /// One-time token (other users of this machine can see it in the process list: prefer --token-file)
    #[arg(long, env = "RACKWRIGHT_TOKEN", hide_env_values = true, group = "token_source")]
    token: Option<String>,
    /// File with the one-time token, `-` for standard input
    #[arg(long, value_name = "FILE", group = "token_source", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// SHA-256 of the certificate of the server's authority
    #[arg(long, value_name = "sha256:HEX", value_parser = parse_pin)]
    ca_sha256: Pin,
    /// Name of the context in which the credential is stored
    #[arg(long, default_value = "default", value_parser = context_name)]
    name: String,
    /// Name in the server's certificate, if it is not the host of the server's address
    #[arg(long, value_name = "NAME")]
    tls_name: Option<String>,
}

/// A SHA-256. A type of its own because clap treats `[u8; 32]` as a list.
#[derive(Debug, Clone, Copy)]
struct Pin([u8; 32]);

fn parse_pin(text: &str) -> Result<Pin, String> {
    tls::parse_pin(text).map(Pin)
}

/// Logs in and makes the new context the current one.
pub async fn run(cx: &Cx, args: LoginArgs) -> Result<(), CliError> {
    if cx.global.server.is_empty() {
        return Err(CliError::usage(
            "no server is given",
            "give a server with --server https://HOST:7070",
        ));
    }
    let invitation = Invitation {
        servers: cx.global.server.clone(),
        tls_name: args.tls_name.clone(),
        ca_sha256: args.ca_sha256.0,
        token: read_token(&args)?,
    };
    let (context, credential) = redeem(&invitation, cx.global.call_timeout).await?;
    let ends = Validity::of_pem(credential.identity_pem.expose_secret())
        .map(|validity| units::stamp_seconds(validity.not_after))
        .unwrap_or_default();
    let text = format!(
        "logged in as {} ({}), context {}, credential until {ends} (renewed by use)",
        context.member, context.role, args.name
    );
    store(&args.name, context, &credential)?;
    cx.ui.say(&text)
}

fn read_token(args: &LoginArgs) -> Result<SecretString, CliError> {
    let text = match (&args.token, &args.token_file) {
        (Some(token), _) => token.clone(),
        (None, Some(path)) => read_beginning("read the token from", path, MAX_TOKEN_BYTES)?,
        (None, None) => String::new(),
    };
    let token = text.trim();
    if token.is_empty() {
        return Err(CliError::usage("the token is empty", ""));
    }
    Ok(SecretString::from(token.to_owned()))
}

/// Stores a context under a name and makes it the current one.
fn store(name: &str, context: Context, credential: &Credential) -> Result<(), CliError> {
    let dir = ConfigDir::locate()?;
    let mut config = dir.load()?;
    dir.store_credential(name, credential)?;
    config.contexts.insert(name.to_owned(), context);
    config.current_context = name.to_owned();
    dir.save(&config)
}
