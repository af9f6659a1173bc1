//! `AuthService`: one-time tokens become client certificates.

use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::auth_service_server::AuthService;
use rackwright_identity::{ClientIdentity, Token, TokenHash};
use rackwright_lifecycle::{Timestamp, seconds};
use rackwright_store::{StoreError, TokenRow};
use secrecy::ExposeSecret as _;
use tonic::{Request, Response, Status};

use super::asked::Asked;
use super::connection::Peer;
use super::errors::ApiError;
use super::{caller, convert};
use crate::clock;
use crate::core::Core;

/// How long a member's certificate is good; the CLI renews it by itself.
const MEMBER_LIFETIME: Duration = Duration::from_secs(30 * 86400);
const TOKEN_LIFETIME_S: i64 = 3600;
const TOKEN_LIFETIME_MAX_S: i64 = 7 * 86400;

/// The service.
#[derive(Debug, Clone)]
pub struct Auth(pub Arc<Core>);

/// A new token for a member, stored by its hash.
///
/// # Errors
/// The database failed, or there was no randomness.
pub async fn new_member_token(
    core: &Core,
    tx: &mut rackwright_store::WriteTx,
    member: &str,
    role: &str,
    expires_at: Timestamp,
) -> Result<String, ApiError> {
    let (shown, hash) = Token::mint(core.rng.as_ref()).map_err(|e| ApiError::Internal(e.to_string()))?;
    let row = TokenRow {
        hash: hash.to_hex(),
        purpose: "member".into(),
        subject: member.to_owned(),
        body: role.to_owned(),
        expires_at,
    };
    tx.put_token(&row).await?;
    Ok(shown.expose_secret().to_owned())
}

impl Auth {
    fn credential(&self, csr_pem: &str, member: &str, role: v1::Role) -> Result<v1::Credential, ApiError> {
        let identity = ClientIdentity::member(member).map_err(|e| ApiError::invalid("member", e.to_string()))?;
        let now = clock::system_time(clock::now());
        let issued = self
            .0
            .keys
            .authority
            .issue_client(csr_pem, &identity, now, MEMBER_LIFETIME);
        let issued = issued.map_err(|e| ApiError::invalid("csr_pem", e.to_string()))?;
        Ok(v1::Credential {
            certificate_pem: issued.certificate_pem,
            ca_certificate_pem: self.0.keys.authority.ca_pem(),
            expire_time: Some(issued.validity.not_after.into()),
            member: member.to_owned(),
            role: role.into(),
        })
    }
}

#[tonic::async_trait]
impl AuthService for Auth {
    async fn redeem_token(&self, request: Request<v1::RedeemTokenRequest>) -> Result<Response<v1::Credential>, Status> {
        let request = request.into_inner();
        let refuse = || {
            let message = "the token is not valid: unknown, used before, or too old; ask an operator for a new one";
            ApiError::Unauthenticated(message.into())
        };
        let hash = TokenHash::of(&request.token).map_err(|_| refuse())?;
        let now = clock::now();
        let mut tx = self.0.store.write().await.map_err(ApiError::from)?;
        let used = tx
            .use_token(&hash.to_hex(), "member", now)
            .await
            .map_err(ApiError::from)?;
        let token = used.ok_or_else(refuse)?;
        let role = if token.body == "operator" {
            v1::Role::Operator
        } else {
            v1::Role::Viewer
        };
        // A faulty request leaves the token unused: the change is dropped.
        let credential = self.credential(&request.csr_pem, &token.subject, role)?;
        tx.put_member(&token.subject, &token.body, now)
            .await
            .map_err(ApiError::from)?;
        self.0.commit(tx).await.map_err(ApiError::from)?;
        self.0
            .event(
                "security.member-joined",
                &format!("members/{}", token.subject),
                "a token was redeemed",
            )
            .await;
        Ok(Response::new(credential))
    }

    async fn renew_credential(
        &self,
        request: Request<v1::RenewCredentialRequest>,
    ) -> Result<Response<v1::Credential>, Status> {
        let caller = caller::member(&self.0, &request).await?;
        Ok(Response::new(self.credential(
            &request.get_ref().csr_pem,
            &caller.name,
            caller.role,
        )?))
    }

    async fn create_token(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreateTokenResponse>, Status> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        // The answer holds a secret: it is not kept, and the same key again is refused instead of answered.
        let asked = Asked::new(&self.0, &caller, "CreateToken", request.mutation.as_ref(), &request)?;
        ClientIdentity::member(&request.member).map_err(|e| ApiError::invalid("member", e.to_string()))?;
        let role = match request.role() {
            v1::Role::Operator => "operator",
            v1::Role::Viewer => "viewer",
            v1::Role::Unspecified => return Err(ApiError::invalid("role", "viewer or operator").into()),
        };
        let lifetime_s = match request.lifetime.as_ref().map_or(0, |l| l.seconds) {
            0 => TOKEN_LIFETIME_S,
            s @ 1..=TOKEN_LIFETIME_MAX_S => s,
            _ => return Err(ApiError::invalid("lifetime", "1 s to 7 days").into()),
        };
        let mut tx = match asked.begin::<v1::CreateTokenResponse>().await? {
            Ok(tx) => tx,
            Err(_) => {
                let key = request.mutation.unwrap_or_default().idempotency_key;
                return Err(ApiError::from(StoreError::KeyReused {
                    key,
                    method: "CreateToken".into(),
                })
                .into());
            }
        };
        let expires_at = asked.now().plus(seconds(lifetime_s));
        let token = new_member_token(&self.0, &mut tx, &request.member, role, expires_at).await?;
        let message = format!("{} invited {} as {role}", caller.name, request.member);
        let event = asked.event(
            "security.token-created",
            &format!("members/{}", request.member),
            message,
        );
        tx.add_event(&event).await.map_err(ApiError::from)?;
        asked.end(tx, v1::CreateTokenResponse::default()).await?;
        Ok(Response::new(v1::CreateTokenResponse {
            token,
            ca_sha256: self.0.keys.authority.ca_sha256(),
            expire_time: convert::time(expires_at),
        }))
    }

    async fn who_am_i(&self, request: Request<v1::WhoAmIRequest>) -> Result<Response<v1::WhoAmIResponse>, Status> {
        let caller = caller::member(&self.0, &request).await?;
        let expire_time = Peer::of(&request)
            .and_then(Peer::certificate)
            .and_then(|leaf| rackwright_identity::Validity::of(&leaf).ok())
            .map(|v| v.not_after.into());
        Ok(Response::new(v1::WhoAmIResponse {
            member: caller.name,
            role: caller.role.into(),
            expire_time,
        }))
    }
}
