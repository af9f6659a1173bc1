//! `AuthService`: one-time tokens become client certificates.

use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::auth_service_server::AuthService;
use rackwright_identity::{ClientIdentity, Token, TokenHash};
use rackwright_lifecycle::{Timestamp, seconds};
use rackwright_store::{MemberRow, Scope, StoreError, TokenRow};
use secrecy::ExposeSecret as _;
use tonic::{Request, Response, Status};

use super::asked::Asked;
use super::caller::Caller;
use super::connection::Peer;
use super::errors::ApiError;
use super::{caller, convert};
use crate::clock;
use crate::core::Core;
use crate::hall::HallError;

/// How long a member's certificate is good; the CLI renews it by itself.
const MEMBER_LIFETIME: Duration = Duration::from_secs(30 * 86400);
const TOKEN_LIFETIME_S: i64 = 3600;
const TOKEN_LIFETIME_MAX_S: i64 = 7 * 86400;

/// The service.
#[derive(Debug, Clone)]
pub struct Auth(pub Arc<Core>);

/// What a token gives, as it is stored with it: the role, and behind a slash the customer.
fn given(row: &MemberRow) -> String {
    match row.customer.as_str() {
        "" => row.role.clone(),
        customer => format!("{}/{customer}", row.role),
    }
}

/// The same, read back.
fn parsed(given: &str) -> MemberRow {
    let (role, customer) = given.split_once('/').unwrap_or((given, ""));
    MemberRow {
        role: role.to_owned(),
        customer: customer.to_owned(),
    }
}

/// A new token for a member, stored by its hash.
///
/// # Errors
/// The database failed, or there was no randomness.
pub async fn new_member_token(
    core: &Core,
    tx: &mut rackwright_store::WriteTx,
    member: &str,
    row: &MemberRow,
    expires_at: Timestamp,
) -> Result<String, ApiError> {
    let (shown, hash) = Token::mint(core.rng.as_ref()).map_err(|e| ApiError::Internal(e.to_string()))?;
    let row = TokenRow {
        hash: hash.to_hex(),
        purpose: "member".into(),
        subject: member.to_owned(),
        body: given(row),
        expires_at,
    };
    tx.put_token(&row).await?;
    Ok(shown.expose_secret().to_owned())
}

impl Auth {
    /// What a token for a new member shall give.
    async fn invitation(&self, caller: &Caller, request: &v1::CreateTokenRequest) -> Result<MemberRow, ApiError> {
        let (role, named) = (request.role(), request.customer.as_str());
        if role == v1::Role::Unspecified {
            let fault = "viewer, operator, customer-admin or customer-user";
            return Err(ApiError::invalid("role", fault));
        }
        if !caller::is_customers(role) && !named.is_empty() {
            let fault = "must be empty: the role is one of the site's members";
            return Err(ApiError::invalid("customer", fault));
        }
        let customer = match &caller.scope {
            Scope::Customer(own) => {
                check_own(own, request)?;
                own
            }
            Scope::Site if caller::is_customers(role) => {
                self.check_customer(named).await?;
                named
            }
            Scope::Site => "",
        };
        Ok(MemberRow {
            role: caller::word(role).to_owned(),
            customer: customer.to_owned(),
        })
    }

    async fn check_customer(&self, customer: &str) -> Result<(), ApiError> {
        if customer.is_empty() {
            return Err(ApiError::invalid("customer", "is needed for the roles of customers"));
        }
        let current = self.0.sites.current(&self.0.store).await?;
        let (_, site) = current.ok_or(HallError::NoSite)?;
        if site.customer_named(customer).is_none() {
            return Err(ApiError::invalid(
                "customer",
                format!("the site has no customer {customer:?}"),
            ));
        }
        Ok(())
    }

    fn credential(&self, csr_pem: &str, member: &str, row: &MemberRow) -> Result<v1::Credential, ApiError> {
        let (role, scope) = caller::rights(row)
            .ok_or_else(|| ApiError::Internal(format!("{:?} is no role of this version", row.role)))?;
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
            customer: scope.customer().unwrap_or_default().to_owned(),
        })
    }
}

/// What a customer's admin may ask for: a member of their own customer. The names of such members tell whose they are, so
/// that nobody learns by trying which names others have.
fn check_own(own: &str, request: &v1::CreateTokenRequest) -> Result<(), ApiError> {
    let mut faults = Vec::new();
    if !caller::is_customers(request.role()) {
        faults.push(("role".to_owned(), "customer-admin or customer-user".to_owned()));
    }
    if !request.customer.is_empty() && request.customer != own {
        faults.push(("customer".to_owned(), "must be empty or your own".to_owned()));
    }
    let ending = format!("@{own}");
    let name = request.member.strip_suffix(&ending);
    if !name.is_some_and(|name| !name.is_empty() && !name.contains('@')) {
        let fault = format!("must be NAME{ending}, without another @");
        faults.push(("member".to_owned(), fault));
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid(faults))
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
        let row = parsed(&token.body);
        // A faulty request leaves the token unused: the change is dropped.
        let credential = self.credential(&request.csr_pem, &token.subject, &row)?;
        let joined = tx.put_member(&token.subject, &row, now).await;
        if !joined.map_err(ApiError::from)? {
            // Since the token was made the name went to another's member.
            return Err(refuse().into());
        }
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
        let caller = caller::tenant(&self.0, &request).await?;
        let row = MemberRow {
            role: caller::word(caller.role).to_owned(),
            customer: caller.customer().to_owned(),
        };
        Ok(Response::new(self.credential(
            &request.get_ref().csr_pem,
            &caller.name,
            &row,
        )?))
    }

    async fn create_token(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreateTokenResponse>, Status> {
        let caller = caller::admin(&self.0, &request).await?;
        let request = request.into_inner();
        // The answer holds a secret: it is not kept, and the same key again is refused instead of answered.
        let asked = Asked::new(&self.0, &caller, "CreateToken", request.mutation.as_ref(), &request)?;
        ClientIdentity::member(&request.member).map_err(|e| ApiError::invalid("member", e.to_string()))?;
        let row = self.invitation(&caller, &request).await?;
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
        let present = tx.member(&request.member).await.map_err(ApiError::from)?;
        if present.is_some_and(|present| present.customer != row.customer) {
            let fault = "is somebody else's member already; choose another name";
            return Err(ApiError::Taken(vec![("member".into(), fault.into())]).into());
        }
        let expires_at = asked.now().plus(seconds(lifetime_s));
        let token = new_member_token(&self.0, &mut tx, &request.member, &row, expires_at).await?;
        let of = match row.customer.as_str() {
            "" => String::new(),
            customer => format!(" of {customer}"),
        };
        let message = format!("{} invited {} as {}{of}", caller.name, request.member, row.role);
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
        let caller = caller::tenant(&self.0, &request).await?;
        let expire_time = Peer::of(&request)
            .and_then(Peer::certificate)
            .and_then(|leaf| rackwright_identity::Validity::of(&leaf).ok())
            .map(|v| v.not_after.into());
        Ok(Response::new(v1::WhoAmIResponse {
            customer: caller.customer().to_owned(),
            member: caller.name,
            role: caller.role.into(),
            expire_time,
        }))
    }
}
