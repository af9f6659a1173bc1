//! Access to a BMC: address, account, certificate, profiles.

use std::error::Error as _;
use std::path::PathBuf;

use clap::Args;
use console::Term;
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, exit};
use rackwright_cli_context::given::read_password;
use rackwright_redfish::quirks::QuirkSet;
use rackwright_redfish::{
    BmcAddress, BmcClient, BmcTarget, CertificateFingerprint, ErrorKind, RedfishError, RetryPolicy, Settings,
};
use secrecy::SecretString;

/// The environment variable for the password, used if no option names another source.
const PASSWORD_VARIABLE: &str = "RACKWRIGHT_BMC_PASSWORD";

/// Arguments of every command of `bmc`.
#[derive(Debug, Args)]
pub struct AccessArgs {
    /// Address of the BMC: https://HOST[:PORT][/BASE] or HOST; ipmi://HOST[:PORT] to probe a BMC without Redfish
    address: String,
    /// User at the BMC
    #[arg(long, env = "RACKWRIGHT_BMC_USER", value_name = "NAME")]
    user: String,
    /// File with the password at the BMC (default: RACKWRIGHT_BMC_PASSWORD, else a question on the terminal)
    #[arg(long, value_name = "FILE", conflicts_with = "password_stdin")]
    password_file: Option<PathBuf>,
    /// Read the password at the BMC from standard input
    #[arg(long)]
    password_stdin: bool,
    /// SHA-256 of the BMC's certificate; without this option the certificate is shown and no password is sent
    #[arg(long, value_name = "sha256:HEX", conflicts_with = "insecure_first_use")]
    certificate_sha256: Option<CertificateFingerprint>,
    /// Trust any certificate that the BMC presents
    #[arg(long)]
    insecure_first_use: bool,
    /// Id or path of the system, if the BMC manages several
    #[arg(long, value_name = "ID")]
    system: Option<String>,
    /// Directory with your own profiles, read after the built-in profiles
    #[arg(long, env = "RACKWRIGHT_BMC_QUIRKS", value_name = "DIR")]
    quirks: Option<PathBuf>,
}

impl AccessArgs {
    /// The BMC's address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The user name of the login.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The password; asks for it if it is not given.
    pub fn password(&self, cx: &Cx) -> Result<SecretString, CliError> {
        password(cx, self)
    }
}

/// A BMC with a login, and the secrets that must never appear in output.
pub struct Access {
    pub client: BmcClient,
    pub user: String,
    pub password: SecretString,
    pub host: String,
}

impl Access {
    /// Logs in.
    pub async fn open(cx: &Cx, args: AccessArgs) -> Result<Self, CliError> {
        let settings = settings(cx, &args)?;
        let address = BmcAddress::parse(&args.address).map_err(explain)?;
        let host = host_of(&address.to_string());
        if address.is_plain() && !is_loopback(&host) {
            return Err(CliError::usage(
                format!("the connection to {address} is not encrypted; user name and password were not sent"),
                "give an https:// address",
            ));
        }
        if args.certificate_sha256.is_none() && !args.insecure_first_use && !address.is_plain() {
            return Err(unknown_certificate(&args.address, settings).await);
        }
        let password = password(cx, &args)?;
        let user = args.user.clone();
        let target = BmcTarget {
            address: args.address,
            username: args.user,
            password: password.clone(),
            certificate_sha256: args.certificate_sha256,
            system: args.system,
        };
        let client = BmcClient::connect(target, settings).await.map_err(explain)?;
        if args.insecure_first_use
            && let Some(seen) = client.observed_fingerprint()
        {
            cx.ui
                .note(&format!("certificate trusted for this run only: sha256:{seen}"));
        }
        Ok(Self {
            client,
            user,
            password,
            host,
        })
    }

    /// Logs out. If the BMC does not answer, the session ends by its own time-out.
    pub async fn close(&self, cx: &Cx) {
        if let Err(failure) = self.client.close().await {
            cx.ui.note(&format!(
                "the logout failed, and the session ends by its time-out: {failure}"
            ));
        }
    }
}

fn settings(cx: &Cx, args: &AccessArgs) -> Result<Settings, CliError> {
    let quirks = match &args.quirks {
        Some(folder) => Some(QuirkSet::with_folder(folder).map_err(explain)?),
        None => None,
    };
    Ok(Settings {
        request_timeout: cx.global.call_timeout,
        connect_timeout: cx.global.call_timeout.min(Settings::default().connect_timeout),
        retry: RetryPolicy {
            retries: 1,
            ..RetryPolicy::default()
        },
        quirks,
        ..Settings::default()
    })
}

/// Shows a certificate that is not confirmed; no user name and no password was sent.
async fn unknown_certificate(address: &str, settings: Settings) -> CliError {
    match BmcClient::certificate_of(address, settings).await {
        Ok(Some(seen)) => CliError::untrusted(
            format!("{address} presents certificate sha256:{seen}, which is not confirmed; no password was sent"),
            format!(
                "compare this SHA-256 with the certificate in the BMC's web interface, then give --certificate-sha256 \
                 sha256:{seen}; --insecure-first-use trusts any certificate"
            ),
        ),
        Ok(None) => CliError::untrusted(format!("{address} presents no certificate"), "give an https:// address"),
        Err(failure) => explain(failure),
    }
}

fn password(cx: &Cx, args: &AccessArgs) -> Result<SecretString, CliError> {
    if args.password_stdin {
        return read_password(None);
    }
    if let Some(file) = &args.password_file {
        return read_password(Some(file));
    }
    if let Some(given) = std::env::var(PASSWORD_VARIABLE).ok().filter(|given| !given.is_empty()) {
        return Ok(SecretString::from(given));
    }
    if !cx.ui.can_ask() {
        return Err(CliError::usage(
            "no password for the BMC is given; nothing was sent",
            format!("give --password-file FILE, --password-stdin or {PASSWORD_VARIABLE}"),
        ));
    }
    let term = Term::stderr();
    let typed = term
        .write_str(&format!("Password of {} at {}: ", args.user, args.address))
        .and_then(|()| term.read_secure_line());
    typed
        .map(SecretString::from)
        .map_err(|source| CliError::io("ask for the password", source))
}

fn host_of(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.strip_prefix('[').and_then(|v6| v6.split_once(']')) {
        Some((host, _)) => host.to_owned(),
        None => authority.split(':').next().unwrap_or_default().to_owned(),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// The message of a failure, and the program's exit code.
pub fn explain(failure: RedfishError) -> CliError {
    let mut message = failure.to_string();
    let mut cause = failure.source();
    while let Some(source) = cause {
        let text = source.to_string();
        if !message.contains(&text) {
            message.push_str(&format!(": {text}"));
        }
        cause = source.source();
    }
    let exit = match (&failure, failure.kind()) {
        (RedfishError::NoSuchSystem { .. }, _) => exit::NOT_FOUND,
        (
            RedfishError::InvalidAddress { .. }
            | RedfishError::SeveralSystems { .. }
            | RedfishError::QuirkFile { .. }
            | RedfishError::QuirkFolder { .. },
            _,
        ) => exit::USAGE,
        (RedfishError::PasswordChangeRequired { .. }, _) | (_, ErrorKind::Security) => exit::DENIED,
        (_, ErrorKind::Retryable) => exit::UNAVAILABLE,
        _ => exit::OTHER,
    };
    let hint = match &failure {
        RedfishError::SeveralSystems { .. } => "select a system with --system",
        RedfishError::CertificateChanged { .. } => {
            "if the BMC's certificate was renewed, give the new --certificate-sha256"
        }
        _ => "",
    };
    CliError::Bmc {
        message,
        hint: hint.to_owned(),
        exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_addresses() {
        for (address, host, loopback) in [
            ("https://10.0.0.1:443/base", "10.0.0.1", false),
            ("http://127.0.0.1:8000", "127.0.0.1", true),
            ("https://[::1]:8443", "::1", true),
            ("https://bmc-7", "bmc-7", false),
            ("http://localhost", "localhost", true),
        ] {
            assert_eq!(
                (host_of(address).as_str(), is_loopback(host)),
                (host, loopback),
                "{address}"
            );
        }
    }
}
