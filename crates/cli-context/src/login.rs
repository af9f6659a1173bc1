//! The first contact: trust by a pinned authority, then a certificate for a one-time token, or for a login at the site's
//! identity provider.

use std::time::Duration;

use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_api::v1::{self, BeginDeviceLoginRequest, FinishDeviceLoginRequest, RedeemTokenRequest, Role};
use secrecy::{ExposeSecret as _, SecretString};
use tonic::Code;

use crate::client::{Client, rpc};
use crate::config::{Context, Credential};
use crate::error::CliError;
use crate::tls::{self, Server, Validity};

/// The data for joining: addresses, the authority to trust, and the token.
pub struct Invitation {
    pub servers: Vec<String>,
    /// Name in the server's certificate, if it is not the host of its address.
    pub tls_name: Option<String>,
    /// SHA-256 of the certificate of the server's authority.
    pub ca_sha256: [u8; 32],
    pub token: SecretString,
}

/// How the server proves that it is of the site.
pub enum Trust {
    /// SHA-256 of the certificate of the server's authority.
    Pin([u8; 32]),
    /// The authority's certificates of an earlier login, in PEM.
    Known(String),
}

/// The data for a login at the site's identity provider.
pub struct ProviderLogin {
    pub servers: Vec<String>,
    /// Name in the server's certificate, if it is not the host of its address.
    pub tls_name: Option<String>,
    pub trust: Trust,
}

/// The time between two questions if the server names none.
const INTERVAL: Duration = Duration::from_secs(5);
/// Longest time between two questions.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Exchanges the token for a certificate over a new key. Stores nothing.
pub async fn redeem(invitation: &Invitation, call_timeout: Duration) -> Result<(Context, Credential), CliError> {
    let tls_name = invitation.tls_name.as_deref();
    let (ca_pem, first) = find_authority(&invitation.servers, tls_name, &invitation.ca_sha256).await?;
    let client = Client::without_identity(&[first], tls_name, ca_pem.clone(), call_timeout)?;
    let (key, csr_pem) = tls::new_key()?;
    let request = RedeemTokenRequest {
        token: invitation.token.expose_secret().to_owned(),
        csr_pem,
    };
    let issued = rpc!(client, AuthServiceClient.redeem_token, "log in", request).await?;
    let context = Context {
        servers: invitation.servers.clone(),
        tls_name: invitation.tls_name.clone(),
        member: issued.member.clone(),
        role: role_name(issued.role).to_owned(),
        oidc: false,
    };
    Ok((context, credential(issued, &key, ca_pem)?))
}

/// Logs in at the site's identity provider, with a certificate over a new key; `show` shows the page and the code to the
/// person. Stores nothing.
pub async fn log_in_at_provider(
    login: &ProviderLogin,
    call_timeout: Duration,
    show: impl FnOnce(&v1::BeginDeviceLoginResponse),
) -> Result<(Context, Credential), CliError> {
    let tls_name = login.tls_name.as_deref();
    let (ca_pem, servers) = match &login.trust {
        Trust::Known(pem) => (pem.clone(), login.servers.clone()),
        Trust::Pin(pin) => {
            let (pem, first) = find_authority(&login.servers, tls_name, pin).await?;
            (pem, vec![first])
        }
    };
    let client = Client::without_identity(&servers, tls_name, ca_pem.clone(), call_timeout)?;
    let (key, csr_pem) = tls::new_key()?;
    let request = BeginDeviceLoginRequest { csr_pem };
    let begun = rpc!(client, AuthServiceClient.begin_device_login, "log in", request).await?;
    show(&begun);
    let issued = allowed(&client, &begun).await?;
    let context = Context {
        servers: login.servers.clone(),
        tls_name: login.tls_name.clone(),
        member: issued.member.clone(),
        role: role_name(issued.role).to_owned(),
        oidc: true,
    };
    Ok((context, credential(issued, &key, ca_pem)?))
}

/// Asks until the person has allowed the login. The server ends a login that is too old.
async fn allowed(client: &Client, begun: &v1::BeginDeviceLoginResponse) -> Result<v1::Credential, CliError> {
    let named = begun.interval.and_then(|interval| Duration::try_from(interval).ok());
    let mut interval = named.filter(|named| !named.is_zero()).unwrap_or(INTERVAL);
    loop {
        tokio::time::sleep(interval.min(INTERVAL_MAX)).await;
        let request = FinishDeviceLoginRequest {
            login: begun.login.clone(),
        };
        match rpc!(client, AuthServiceClient.finish_device_login, "log in", request).await {
            Ok(answer) => {
                if let Some(credential) = answer.credential {
                    return Ok(credential);
                }
                if answer.slow_down {
                    interval += INTERVAL;
                }
            }
            // Others at this address make the server wait.
            Err(error) if error.code() == Some(Code::ResourceExhausted) => interval += INTERVAL,
            Err(error) => return Err(of_provider(error)),
        }
    }
}

/// The failure of a login at the identity provider, with a hint that fits it.
fn of_provider(error: CliError) -> CliError {
    let hint = match error.code() {
        Some(Code::Unauthenticated) => "run `rackwright login --oidc` again",
        Some(Code::PermissionDenied) => {
            "your groups at the identity provider decide whether you may log in; ask an operator which groups may"
        }
        _ => return error,
    };
    CliError::credential(error.to_string(), hint)
}

/// The credential of an issued certificate.
fn credential(issued: v1::Credential, key: &rcgen::KeyPair, ca_pem: String) -> Result<Credential, CliError> {
    if Validity::of_pem(&issued.certificate_pem).is_none() {
        return Err(CliError::BadAnswer("the issued certificate cannot be read".to_owned()));
    }
    let identity_pem = tls::identity_pem(&issued.certificate_pem, key);
    // While the site's authority is being changed, this contains more than the pinned one; the server was verified.
    let given = tls::pins_of(&issued.ca_certificate_pem);
    let has_pinned = tls::pins_of(&ca_pem).iter().all(|pin| given.contains(pin));
    let ca_pem = if has_pinned { issued.ca_certificate_pem } else { ca_pem };
    Ok(Credential { ca_pem, identity_pem })
}

/// The authority's certificate from the first endpoint that answers, and that endpoint.
async fn find_authority(
    servers: &[String],
    tls_name: Option<&str>,
    pin: &[u8; 32],
) -> Result<(String, String), CliError> {
    let mut tried = Vec::new();
    for text in servers {
        let server = Server::parse(text)?;
        match tls::fetch_authority(&server, tls_name.unwrap_or(&server.host), pin).await {
            Ok(pem) => return Ok((pem, text.clone())),
            Err(CliError::Unreachable { tried: why, .. }) => tried.extend(why),
            Err(error) => return Err(error),
        }
    }
    Err(CliError::Unreachable {
        doing: "log in".to_owned(),
        tried,
    })
}

/// `operator`, `viewer`, `auditor`, `customer-admin`, `customer-user`.
pub fn role_name(role: i32) -> &'static str {
    match Role::try_from(role) {
        Ok(Role::Viewer) => "viewer",
        Ok(Role::Auditor) => "auditor",
        Ok(Role::Operator) => "operator",
        Ok(Role::CustomerAdmin) => "customer-admin",
        Ok(Role::CustomerUser) => "customer-user",
        _ => "unknown",
    }
}
