//! Identifies callers and checks their roles.
//!
//! Calls are closed to members of customers by default: `member` and `operator` refuse them. `tenant`, `user` and
//! `admin` admit them, and return their scope. The store limits their view to this scope.

use rackwright_api::v1::Role;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::audit::call;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::rights::{self, Grant, of_member};
use rackwright_identity::{ClientKind, identify};
use rackwright_store::{AgentSession, MemberRecord, Scope, WriteTx};
use tonic::Request;

use super::connection::{Login, Peer};

pub use rackwright_ground::rights::{Caller, is_customers, rights_of, word};

/// The role in messages.
fn title(role: Role) -> &'static str {
    match role {
        Role::Operator => "an operator",
        Role::Viewer => "a viewer",
        Role::CustomerAdmin => "a customer admin",
        Role::CustomerUser => "a customer user",
        Role::Auditor => "an auditor",
        Role::Unspecified => "a member without a role",
    }
}

fn peer<T>(request: &Request<T>) -> Result<rackwright_identity::ClientIdentity, ApiError> {
    if let Some(login) = Login::of(request) {
        return Ok(login.identity.clone());
    }
    // Tests call without a connection.
    #[cfg(test)]
    if let Some(identity) = request.extensions().get::<rackwright_identity::ClientIdentity>() {
        return Ok(identity.clone());
    }
    let leaf = Peer::of(request).and_then(Peer::certificate).ok_or_else(|| {
        ApiError::Unauthenticated("this call needs a client certificate, and the connection has none".into())
    })?;
    identify(&leaf).map_err(|e| ApiError::Unauthenticated(e.to_string()))
}

fn forbidden(caller: &Caller, needs: &str) -> ApiError {
    ApiError::Forbidden(format!(
        "{:?} is {}; this call {needs}",
        caller.name,
        title(caller.role)
    ))
}

/// Any member except auditors, of the site or of a customer. Role and scope are read now, so lost rights end at once.
/// The call has to limit its reads and changes to the caller's scope.
///
/// # Errors
/// The certificate is missing, belongs to an agent, was revoked, or belongs to a former member; or the caller is an
/// auditor.
pub async fn tenant<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = anyone(core, request).await?;
    if caller.role == Role::Auditor {
        return Err(forbidden(
            &caller,
            "is not open to auditors; they read only the audit, events and members",
        ));
    }
    Ok(caller)
}

/// An auditor or an operator: they read the audit.
///
/// # Errors
/// The errors of `anyone`, or another role.
pub async fn auditor<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = anyone(core, request).await?;
    if !matches!(caller.role, Role::Auditor | Role::Operator) {
        return Err(forbidden(&caller, "needs the role auditor or operator"));
    }
    Ok(caller)
}

/// Any member with any role, for the few calls that auditors may make too.
///
/// # Errors
/// The certificate is missing, belongs to an agent, was revoked, or belongs to a former member; or the role of the API key
/// does not fit the member's role any more.
pub async fn anyone<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let identity = peer(request)?;
    tracing::Span::current().record("caller", &identity.common_name);
    let ClientKind::Member { epoch } = identity.kind else {
        return Err(ApiError::Forbidden("this call is not open to agents".into()));
    };
    let caller = match request.extensions().get::<Grant>() {
        Some(grant) => rights::admit(core, &identity.common_name, epoch, grant).await?,
        None => of_member(core, &identity.common_name, epoch).await?,
    };
    let caller = match Login::of(request).and_then(|login| login.role) {
        Some(role) => rights::limited(caller, role)?,
        None => caller,
    };
    call::note_member(&caller.name, epoch, word(caller.role), &caller.customer());
    Ok(caller)
}

/// Any member with a client certificate, for calls that give a new login: a stolen session or API key cannot prolong itself.
///
/// # Errors
/// The errors of `anyone`, or the caller has a session or an API key.
pub async fn certified<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = anyone(core, request).await?;
    if Login::of(request).is_some() {
        return Err(forbidden(&caller, "needs a client certificate: use `rackwright`"));
    }
    Ok(caller)
}

/// Refuses members of the identity provider, for calls that prolong a login: the provider decides about each of their
/// logins.
///
/// # Errors
/// The member logs in by the identity provider, or the database failed.
pub async fn check_invited(core: &Core, caller: &Caller) -> Result<(), ApiError> {
    let present = core.store.member(&caller.name).await?;
    let Some(origin) = present.and_then(|member| member.origin) else {
        return Ok(());
    };
    let message = format!("{:?} logs in by the identity provider {}", caller.name, origin.issuer);
    let hint = "log in there again: with `rackwright login --oidc`, or on the login page of the web console";
    Err(ApiError::precondition(
        format!("members/{}", caller.name),
        message,
        hint,
    ))
}

/// Refuses API keys, for calls that give or end another access: a stolen key ends with its deletion.
///
/// # Errors
/// The request has an API key.
pub fn check_no_api_key<T>(request: &Request<T>) -> Result<(), ApiError> {
    if Login::of(request).is_some_and(|login| login.role.is_some()) {
        let message = "an API key cannot give or end other access; use `rackwright` or the web console";
        return Err(ApiError::Forbidden(message.into()));
    }
    Ok(())
}

/// Refuses the call of a member that was changed while the call waited: otherwise a created resource would outlive the
/// member's rights.
///
/// # Errors
/// The member has another epoch, role or customer now, or the database failed.
pub async fn check_still(tx: &mut WriteTx, caller: &Caller) -> Result<(), ApiError> {
    let present = tx.member(&caller.name).await?;
    let is_same = |record: &MemberRecord| {
        record.epoch == caller.epoch
            && rights_of(&record.given).is_some_and(|rights| rights == (caller.role, caller.scope.clone()))
    };
    if present.as_ref().is_some_and(is_same) {
        return Ok(());
    }
    let message = format!("the rights of {:?} were changed meanwhile", caller.name);
    Err(ApiError::Unauthenticated(message))
}

/// A member of the site: an operator or a viewer.
///
/// # Errors
/// The errors of `tenant`, or a member of a customer.
pub async fn member<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = tenant(core, request).await?;
    if caller.scope != Scope::Site {
        return Err(forbidden(&caller, "is only for members of the site"));
    }
    Ok(caller)
}

/// An operator of the site.
///
/// # Errors
/// The errors of `tenant`, or another role.
pub async fn operator<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = tenant(core, request).await?;
    if caller.role != Role::Operator {
        return Err(forbidden(&caller, "needs the role operator"));
    }
    Ok(caller)
}

/// A caller that may change its own resources: an operator, or a member of a customer.
///
/// # Errors
/// The errors of `tenant`, or a viewer.
pub async fn user<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = tenant(core, request).await?;
    if caller.role == Role::Viewer {
        return Err(forbidden(&caller, "needs the role operator"));
    }
    Ok(caller)
}

/// An operator or a customer's admin.
///
/// # Errors
/// The errors of `tenant`, or another role.
pub async fn admin<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = tenant(core, request).await?;
    if !matches!(caller.role, Role::Operator | Role::CustomerAdmin) {
        return Err(forbidden(&caller, "needs the role operator or customer-admin"));
    }
    Ok(caller)
}

/// A caller that may see usage and terms: any member of the site except auditors, or a customer's admin.
///
/// # Errors
/// The errors of `tenant`, or a customer's user.
pub async fn accountant<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    not_a_user(tenant(core, request).await?)
}

/// A caller that may see members and their roles: as `accountant`, and auditors.
///
/// # Errors
/// The errors of `anyone`, or a customer's user.
pub async fn registrar<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    not_a_user(anyone(core, request).await?)
}

fn not_a_user(caller: Caller) -> Result<Caller, ApiError> {
    if caller.role == Role::CustomerUser {
        return Err(forbidden(
            &caller,
            "is only for members of the site and a customer's admins",
        ));
    }
    Ok(caller)
}

/// The node of the calling agent, and its session: from the certificate, or from a registration on this connection.
///
/// # Errors
/// The certificate is missing or belongs to a member.
pub fn agent<T>(request: &Request<T>) -> Result<(String, AgentSession), ApiError> {
    let registered = Peer::of(request).and_then(|peer| peer.registered(clock::now()));
    let identity = match registered {
        Some(identity) => identity.clone(),
        None => peer(request)?,
    };
    tracing::Span::current().record("caller", &identity.common_name);
    match identity.kind {
        ClientKind::Agent { claim_generation, boot } => {
            let generation = claim_generation;
            Ok((identity.common_name, AgentSession { generation, boot }))
        }
        ClientKind::Member { .. } => Err(ApiError::Forbidden("only an agent may call this".into())),
    }
}
