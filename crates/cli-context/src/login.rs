//! The first contact: trust by a pinned authority, then a certificate for a one-time token.

use std::time::Duration;

use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_api::v1::{RedeemTokenRequest, Role};
use secrecy::{ExposeSecret as _, SecretString};

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

/// Exchanges the token for a certificate over a new key. Stores nothing.
pub async fn redeem(invitation: &Invitation, call_timeout: Duration) -> Result<(Context, Credential), CliError> {
    let (ca_pem, first) = find_authority(invitation).await?;
    let tls_name = invitation.tls_name.as_deref();
    let client = Client::without_identity(&[first], tls_name, ca_pem.clone(), call_timeout)?;
    let (key, csr_pem) = tls::new_key()?;
    let request = RedeemTokenRequest {
        token: invitation.token.expose_secret().to_owned(),
        csr_pem,
    };
    let issued = rpc!(client, AuthServiceClient.redeem_token, "log in", request).await?;
    if Validity::of_pem(&issued.certificate_pem).is_none() {
        return Err(CliError::BadAnswer("the issued certificate cannot be read".to_owned()));
    }
    let identity_pem = tls::identity_pem(&issued.certificate_pem, &key);
    let context = Context {
        servers: invitation.servers.clone(),
        tls_name: invitation.tls_name.clone(),
        member: issued.member,
        role: role_name(issued.role).to_owned(),
    };
    // While the site's authority is being changed, this contains more than the pinned one; the server was verified.
    let given = tls::pins_of(&issued.ca_certificate_pem);
    let has_pinned = tls::pins_of(&ca_pem).iter().all(|pin| given.contains(pin));
    let ca_pem = if has_pinned { issued.ca_certificate_pem } else { ca_pem };
    Ok((context, Credential { ca_pem, identity_pem }))
}

/// The authority's certificate from the first endpoint that answers, and that endpoint.
async fn find_authority(invitation: &Invitation) -> Result<(String, String), CliError> {
    let mut tried = Vec::new();
    for text in &invitation.servers {
        let server = Server::parse(text)?;
        let tls_name = invitation.tls_name.as_deref().unwrap_or(&server.host);
        match tls::fetch_authority(&server, tls_name, &invitation.ca_sha256).await {
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
