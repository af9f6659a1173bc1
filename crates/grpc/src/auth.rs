//! `AuthService`: exchanges one-time tokens for client certificates, and manages members. `device_login` has the logins
//! with a device code.

use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::auth_service_server::AuthService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::audit::call;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::hall::HallError;
use rackwright_ground::rights::new_member_token;
use rackwright_identity::{ClientIdentity, ClientKey, TokenHash, new_epoch};
use rackwright_lifecycle::{CustomerId, EventKind, seconds};
use rackwright_store::{EventRow, MemberRow, Scope, WriteTx};
use tonic::{Request, Response, Status};

use super::call::MutatingCall;
use super::caller::Caller;
use super::connection::{Login, Peer};
use super::{caller, convert, grants, members};

/// Lifetime of a member's certificate. The CLI renews it automatically.
const MEMBER_LIFETIME: Duration = Duration::from_secs(30 * 86400);
const TOKEN_LIFETIME_S: i64 = 3600;
const TOKEN_LIFETIME_MAX_S: i64 = 7 * 86400;

/// Implements `AuthService`.
#[derive(Debug, Clone)]
pub struct Auth(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;

impl Auth {
    /// Checks a request for a new member's token. Returns the member's role and customer.
    async fn invitation(&self, caller: &Caller, request: &v1::CreateTokenRequest) -> Result<MemberRow, ApiError> {
        let (role, named) = (request.role(), CustomerId::named(&request.customer));
        if role == v1::Role::Unspecified {
            return Err(ApiError::invalid("role", members::ANY_ROLE));
        }
        if !caller::is_customers(role) && !named.is_empty() {
            let fault = "must be empty: the role belongs to members of the site";
            return Err(ApiError::invalid("customer", fault));
        }
        let customer = match &caller.scope {
            Scope::Customer(own) => {
                check_own(own, request)?;
                own.clone()
            }
            Scope::Site if caller::is_customers(role) => {
                self.check_customer(&named).await?;
                named
            }
            Scope::Site => CustomerId::default(),
        };
        Ok(MemberRow {
            role: caller::word(role).to_owned(),
            customer,
        })
    }

    async fn check_customer(&self, customer: &CustomerId) -> Result<(), ApiError> {
        if customer.is_empty() {
            return Err(ApiError::invalid("customer", "is required for the roles of customers"));
        }
        let (sites, store) = (&self.0.sites, &self.0.store);
        sites.current(store).await?.ok_or(HallError::NoSite)?;
        let answer = sites.check_customer(store, customer).await?;
        answer.map_err(|fault| ApiError::invalid("customer", fault))
    }

    /// Issues a certificate, in the transaction that stores its end.
    pub(super) async fn credential(
        &self,
        tx: &mut WriteTx,
        (csr_pem, lifetime): (&str, Duration),
        (member, epoch): (&str, u64),
        row: &MemberRow,
    ) -> Result<v1::Credential, ApiError> {
        let (role, scope) = caller::rights_of(row)
            .ok_or_else(|| ApiError::Internal(format!("{:?} is not a role of this version", row.role)))?;
        let identity = ClientIdentity::member(member, epoch).map_err(|e| ApiError::invalid("member", e.to_string()))?;
        let key = ClientKey::of_request(csr_pem).map_err(|e| ApiError::invalid("csr_pem", e.to_string()))?;
        let now = clock::system_time(clock::now());
        let issued = self.0.keys.authority.issue_client(&key, &identity, now, lifetime);
        let issued = issued.map_err(|e| ApiError::invalid("csr_pem", e.to_string()))?;
        let ends_at = clock::timestamp(issued.validity.not_after);
        if !tx.record_member_cert(member, epoch, ends_at, &issued.authority).await? {
            let message = format!("the credentials of {member:?} were ended meanwhile; ask for a new token");
            return Err(ApiError::Unauthenticated(message));
        }
        Ok(v1::Credential {
            certificate_pem: issued.certificate_pem,
            ca_certificate_pem: self.0.keys.authority.ca_pem(),
            expire_time: Some(issued.validity.not_after.into()),
            member: member.to_owned(),
            role: role.into(),
            customer: scope.customer().map(ToString::to_string).unwrap_or_default(),
        })
    }
}

/// Checks the request of a customer's admin: only members of the own customer are allowed. The names of such members
/// end with the customer's name, so tries reveal no names of other customers.
fn check_own(own: &CustomerId, request: &v1::CreateTokenRequest) -> Result<(), ApiError> {
    let mut faults = Vec::new();
    if !caller::is_customers(request.role()) {
        faults.push(("role".to_owned(), "must be customer-admin or customer-user".to_owned()));
    }
    if !request.customer.is_empty() && *own != *request.customer {
        faults.push(("customer".to_owned(), "must be empty or your own customer".to_owned()));
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

impl Auth {
    async fn redeem(&self, request: v1::RedeemTokenRequest) -> Result<v1::Credential, ApiError> {
        let refuse = || {
            let message = "the token is not valid: unknown, used before, or too old; ask an operator for a new one";
            ApiError::Unauthenticated(message.into())
        };
        let hash = TokenHash::of(&request.token).map_err(|_| refuse())?.to_hex();
        let now = clock::now();
        let epoch = new_epoch(self.0.rng.as_ref()).map_err(|e| ApiError::Internal(e.to_string()))?;
        let mut tx = self.0.store.write().await?;
        let (known, _) = tx.token(&hash, "member").await?.ok_or_else(refuse)?;
        // Locks the member before the token, in the same order as the revocation of a member.
        tx.member(&known.subject).await?;
        call::note_target(&format!("members/{}", known.subject));
        let token = tx.use_token(&hash, "member", now).await?.ok_or_else(refuse)?;
        let row = MemberRow::of_body(&token.body);
        // `None`: the name was given to another member after the token was made.
        let epoch = tx
            .put_member(&token.subject, &row, epoch, now)
            .await?
            .ok_or_else(refuse)?;
        // A malformed request drops the transaction, so the token stays unused.
        let member = (token.subject.as_str(), epoch);
        let request = (request.csr_pem.as_str(), MEMBER_LIFETIME);
        let credential = self.credential(&mut tx, request, member, &row).await?;
        tx.add_event(&EventRow {
            at: now,
            kind: EventKind::SecurityMemberJoined,
            target: format!("members/{}", token.subject),
            message: "a token was redeemed".into(),
            ..EventRow::default()
        })
        .await?;
        self.0.commit(tx).await?;
        Ok(credential)
    }

    async fn renew(&self, caller: &Caller, csr_pem: &str) -> Result<v1::Credential, ApiError> {
        let row = MemberRow {
            role: caller::word(caller.role).to_owned(),
            customer: caller.customer(),
        };
        let mut tx = self.0.store.write().await?;
        let member = (caller.name.as_str(), caller.epoch);
        let credential = self
            .credential(&mut tx, (csr_pem, MEMBER_LIFETIME), member, &row)
            .await?;
        self.0.commit(tx).await?;
        Ok(credential)
    }
}

#[tonic::async_trait]
impl AuthService for Auth {
    async fn redeem_token(&self, request: Request<v1::RedeemTokenRequest>) -> Result<Response<v1::Credential>, Status> {
        Ok(Response::new(self.redeem(request.into_inner()).await?))
    }

    async fn begin_device_login(
        &self,
        request: Request<v1::BeginDeviceLoginRequest>,
    ) -> Answer<v1::BeginDeviceLoginResponse> {
        Ok(Response::new(self.begin_device(request).await?))
    }

    async fn finish_device_login(
        &self,
        request: Request<v1::FinishDeviceLoginRequest>,
    ) -> Answer<v1::FinishDeviceLoginResponse> {
        Ok(Response::new(self.finish_device(request).await?))
    }

    async fn renew_credential(
        &self,
        request: Request<v1::RenewCredentialRequest>,
    ) -> Result<Response<v1::Credential>, Status> {
        let caller = caller::certified(&self.0, &request).await?;
        caller::check_invited(&self.0, &caller).await?;
        Ok(Response::new(self.renew(&caller, &request.get_ref().csr_pem).await?))
    }

    async fn create_token(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreateTokenResponse>, Status> {
        let caller = caller::admin(&self.0, &request).await?;
        caller::check_no_api_key(&request)?;
        let has_certificate = Login::of(&request).is_none();
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "CreateToken", request.mutation.as_ref(), &request)?;
        ClientIdentity::member(&request.member, 0).map_err(|e| ApiError::invalid("member", e.to_string()))?;
        let row = self.invitation(&caller, &request).await?;
        let lifetime_s = match request.lifetime.as_ref().map_or(0, |l| l.seconds) {
            0 => TOKEN_LIFETIME_S,
            s @ 1..=TOKEN_LIFETIME_MAX_S => s,
            _ => return Err(ApiError::invalid("lifetime", "must be 1 s to 7 days").into()),
        };
        let mut tx = call.begin_once().await?;
        caller::check_still(&mut tx, &caller).await?;
        let present = self.0.store.member(&request.member).await.map_err(ApiError::from)?;
        // The token would give the holder of a stolen session a certificate of this member.
        if present.is_some() && !has_certificate {
            let message = format!(
                "{:?} is a member; a token for a member needs a client certificate",
                request.member
            );
            return Err(ApiError::Forbidden(format!("{message}: use `rackwright token create`")).into());
        }
        if present.as_ref().is_some_and(|present| present.origin.is_some()) {
            let fault = "logs in by the identity provider, and takes no invitation; choose another name";
            return Err(ApiError::Taken(vec![("member".into(), fault.into())]).into());
        }
        if present.is_some_and(|present| present.given.customer != row.customer) {
            let fault = "is a member of the site or of another customer already; choose another name";
            return Err(ApiError::Taken(vec![("member".into(), fault.into())]).into());
        }
        let expires_at = call.now().plus(seconds(lifetime_s));
        let rng = self.0.rng.as_ref();
        let token = new_member_token(rng, &mut tx, &request.member, &row, expires_at, &caller.name).await?;
        let of = match row.customer.as_str() {
            "" => String::new(),
            customer => format!(" of {customer}"),
        };
        let message = format!("{} invited {} as {}{of}", caller.name, request.member, row.role);
        let event = call.event(
            EventKind::SecurityTokenCreated,
            &format!("members/{}", request.member),
            message,
        );
        tx.add_event(&event).await.map_err(ApiError::from)?;
        call.end(tx, v1::CreateTokenResponse::default()).await?;
        Ok(Response::new(v1::CreateTokenResponse {
            token,
            ca_sha256: self.0.keys.authority.ca_sha256(),
            expire_time: convert::time(expires_at),
        }))
    }

    async fn who_am_i(&self, request: Request<v1::WhoAmIRequest>) -> Result<Response<v1::WhoAmIResponse>, Status> {
        let caller = caller::anyone(&self.0, &request).await?;
        let expire_time = match Login::of(&request) {
            Some(login) => convert::time(login.until),
            None => Peer::of(&request)
                .and_then(Peer::certificate)
                .and_then(|leaf| rackwright_identity::Validity::of(&leaf).ok())
                .map(|v| v.not_after.into()),
        };
        Ok(Response::new(v1::WhoAmIResponse {
            customer: caller.customer().to_string(),
            member: caller.name,
            role: caller.role.into(),
            expire_time,
            control_paused: self.0.pause.is_on(),
        }))
    }

    async fn list_tokens(&self, request: Request<v1::ListTokensRequest>) -> Answer<v1::ListTokensResponse> {
        let caller = caller::accountant(&self.0, &request).await?;
        Ok(Response::new(
            members::list_tokens(&self.0, &caller, request.get_ref()).await?,
        ))
    }

    async fn delete_token(&self, request: Request<v1::DeleteTokenRequest>) -> Answer<()> {
        let caller = caller::admin(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "DeleteToken", request.mutation.as_ref(), &request)?;
        Ok(Response::new(members::delete_token(&call, &request).await?))
    }

    async fn list_members(&self, request: Request<v1::ListMembersRequest>) -> Answer<v1::ListMembersResponse> {
        let caller = caller::registrar(&self.0, &request).await?;
        Ok(Response::new(members::list(&self.0, &caller, request.get_ref()).await?))
    }

    async fn set_member_role(&self, request: Request<v1::SetMemberRoleRequest>) -> Answer<v1::Member> {
        let caller = caller::admin(&self.0, &request).await?;
        caller::check_no_api_key(&request)?;
        grants::detach(&request);
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "SetMemberRole", request.mutation.as_ref(), &request)?;
        Ok(Response::new(members::set_role(&call, &request).await?))
    }

    async fn revoke_member(&self, request: Request<v1::RevokeMemberRequest>) -> Answer<v1::Member> {
        let caller = caller::admin(&self.0, &request).await?;
        grants::detach(&request);
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "RevokeMember", request.mutation.as_ref(), &request)?;
        Ok(Response::new(members::revoke(&self.0, &call, &request).await?))
    }

    async fn delete_member(&self, request: Request<v1::DeleteMemberRequest>) -> Answer<()> {
        let caller = caller::admin(&self.0, &request).await?;
        grants::detach(&request);
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "DeleteMember", request.mutation.as_ref(), &request)?;
        Ok(Response::new(members::delete(&call, &request).await?))
    }
}
