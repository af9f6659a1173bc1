//! `rackwright login`: a one-time token, or a login at the site's identity provider, becomes a stored credential.

use std::path::PathBuf;

use clap::Args;
use rackwright_api::v1::BeginDeviceLoginResponse;
use rackwright_cli_context::config::{ConfigDir, Context, Credential, context_name};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::given::read_beginning;
use rackwright_cli_context::login::{Invitation, ProviderLogin, Trust, log_in_at_provider, redeem};
use rackwright_cli_context::output::clean;
use rackwright_cli_context::tls::{self, Validity};
use rackwright_cli_context::{Cx, units};
use secrecy::{ExposeSecret as _, SecretString};

/// Longest token, in bytes.
const MAX_TOKEN_BYTES: u64 = 4096;

/// `rackwright login`
#[derive(Debug, Args)]
#[command(
    after_help = "Give the server with --server. rackwrightd at its first start and `rackwright token create` print the \
        token and the SHA-256 of the authority. With --oidc, you allow the login on a page of the identity provider, in any \
        browser. Later logins with --oidc need neither --server nor --ca-sha256: the context has both."
)]
#[group(id = "token_source", required = true)]
pub struct LoginArgs {
    /// One-time token (other users of this machine can see it in the process list: prefer --token-file)
    #[arg(long, env = "RACKWRIGHT_TOKEN", hide_env_values = true, group = "token_source")]
    token: Option<String>,
    /// File with the one-time token, `-` for standard input
    #[arg(long, value_name = "FILE", group = "token_source", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Log in at the identity provider of the site, without a token
    #[arg(long, group = "token_source", conflicts_with_all = ["token", "token_file"])]
    oidc: bool,
    /// SHA-256 of the certificate of the server's authority
    #[arg(long, value_name = "sha256:HEX", value_parser = parse_pin, required_unless_present = "oidc")]
    ca_sha256: Option<Pin>,
    /// Name of the context in which the credential is stored [default: default, and with --oidc and no --server the current one]
    #[arg(long, value_parser = context_name)]
    name: Option<String>,
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

/// The name of the context if none is given.
const DEFAULT: &str = "default";

/// Logs in and makes the new context the current one.
pub async fn run(cx: &Cx, args: LoginArgs) -> Result<(), CliError> {
    let (name, login) = if args.oidc {
        at_provider(cx, &args).await?
    } else {
        with_token(cx, &args).await?
    };
    let (context, credential) = login;
    let ends = Validity::of_pem(credential.identity_pem.expose_secret())
        .map(|validity| units::stamp_seconds(validity.not_after))
        .unwrap_or_default();
    let then = match context.oidc {
        true => "then run `rackwright login --oidc` again",
        false => "renewed by use",
    };
    let text = format!(
        "logged in as {} ({}), context {name}, credential until {ends} ({then})",
        context.member, context.role
    );
    store(&name, context, &credential)?;
    cx.ui.say(&text)
}

fn no_server() -> CliError {
    CliError::usage("no server is given", "give a server with --server https://HOST:7070")
}

/// A name for the context, and what is stored there.
type Login = (String, (Context, Credential));

async fn with_token(cx: &Cx, args: &LoginArgs) -> Result<Login, CliError> {
    if cx.global.server.is_empty() {
        return Err(no_server());
    }
    // Clap requires the SHA-256 here.
    let pin = args
        .ca_sha256
        .ok_or_else(|| CliError::usage("no SHA-256 is given", "give it with --ca-sha256"))?;
    let invitation = Invitation {
        servers: cx.global.server.clone(),
        tls_name: args.tls_name.clone(),
        ca_sha256: pin.0,
        token: read_token(args)?,
    };
    let name = args.name.clone().unwrap_or_else(|| DEFAULT.to_owned());
    Ok((name, redeem(&invitation, cx.global.call_timeout).await?))
}

async fn at_provider(cx: &Cx, args: &LoginArgs) -> Result<Login, CliError> {
    let dir = ConfigDir::locate()?;
    let config = dir.load()?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None if cx.global.server.is_empty() && !config.current_context.is_empty() => config.current_context.clone(),
        None => DEFAULT.to_owned(),
    };
    let present = config.contexts.get(&name);
    let servers = match (present, cx.global.server.is_empty()) {
        (_, false) => cx.global.server.clone(),
        (Some(context), true) => context.servers.clone(),
        (None, true) => return Err(no_server()),
    };
    let trust = match (args.ca_sha256, present) {
        (Some(pin), _) => Trust::Pin(pin.0),
        (None, Some(_)) => Trust::Known(dir.authorities(&name)?),
        (None, None) => {
            return Err(CliError::usage(
                format!("the first login of context `{name}` needs the SHA-256 of the site's authority"),
                "ask an operator, and give it with --ca-sha256 sha256:HEX",
            ));
        }
    };
    let login = ProviderLogin {
        servers,
        tls_name: args
            .tls_name
            .clone()
            .or_else(|| present.and_then(|context| context.tls_name.clone())),
        trust,
    };
    let shown = |begun: &BeginDeviceLoginResponse| cx.ui.request(&instructions(begun));
    Ok((name, log_in_at_provider(&login, cx.global.call_timeout, shown).await?))
}

/// What the person has to do.
fn instructions(begun: &BeginDeviceLoginResponse) -> String {
    let (provider, code) = (clean(&begun.provider), clean(&begun.user_code));
    let until = begun.expire_time.as_ref().map(units::stamp).unwrap_or_default();
    let page = match begun.complete_verification_url.as_str() {
        "" => format!(
            "{}\n\nThe page asks for this code: {code}",
            clean(&begun.verification_url)
        ),
        url => format!(
            "{}\n\nAllow the login only if the page shows this code: {code}",
            clean(url)
        ),
    };
    format!("Open this page of {provider} in any browser, until {until}:\n\n  {page}\n")
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
