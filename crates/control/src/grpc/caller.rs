//! Who calls, and what they may do.
//!
//! Members of customers are let in nowhere but where a call says so: `member` and `operator` refuse them, `tenant`, `user`
//! and `admin` tell whose they are. What they see is narrowed by the store, by the scope that a caller carries.

use rackwright_api::v1::Role;
use rackwright_identity::{ClientKind, identify};
use rackwright_store::{AgentSession, Scope};
use tonic::Request;

use super::connection::Peer;
use crate::api_error::ApiError;
use crate::audit::call;
use crate::clock;
use crate::core::Core;
use crate::rights::{self, Grant, of_member};

pub use crate::rights::{Caller, is_customers, rights_of, word};

/// A role as it is told.
fn title(role: Role) -> &'static str {
    match role {
        Role::Operator => "an operator",
        Role::Viewer => "a viewer",
        Role::CustomerAdmin => "a customer admin",
        Role::CustomerUser => "a customer user",
        Role::Auditor => "an auditor",
        Role::Unspecified => "nobody",
    }
}

fn peer<T>(request: &Request<T>) -> Result<rackwright_identity::ClientIdentity, ApiError> {
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

/// Any member but an auditor, of the site or of a customer. Role and scope are read now: what was taken away ends at once. What
/// the call reads or changes has to be narrowed by the caller's scope.
///
/// # Errors
/// No certificate, one of an agent, one that was ended, or one of a member who is none any more; or an auditor.
pub async fn tenant<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = anyone(core, request).await?;
    if caller.role == Role::Auditor {
        return Err(forbidden(
            &caller,
            "is not for auditors, who read the audit, events and members",
        ));
    }
    Ok(caller)
}

/// An auditor or an operator: the readers of the audit.
///
/// # Errors
/// As `anyone`, or another role.
pub async fn auditor<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = anyone(core, request).await?;
    if !matches!(caller.role, Role::Auditor | Role::Operator) {
        return Err(forbidden(&caller, "needs the role auditor or operator"));
    }
    Ok(caller)
}

/// Any member with any role. For the few calls that auditors may make, too.
///
/// # Errors
/// No certificate, one of an agent, one that was ended, or one of a member who is none any more.
pub async fn anyone<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let identity = peer(request)?;
    tracing::Span::current().record("caller", &identity.common_name);
    let ClientKind::Member { epoch } = identity.kind else {
        return Err(ApiError::Forbidden(
            "an agent's certificate does not open this call".into(),
        ));
    };
    let caller = match request.extensions().get::<Grant>() {
        Some(grant) => rights::admit(core, &identity.common_name, epoch, grant).await?,
        None => of_member(core, &identity.common_name, epoch).await?,
    };
    call::note_member(&caller.name, epoch, word(caller.role), caller.customer());
    Ok(caller)
}

/// A member of the site: an operator or a viewer.
///
/// # Errors
/// As `tenant`, or a member of a customer.
pub async fn member<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = tenant(core, request).await?;
    if caller.scope != Scope::Site {
        return Err(forbidden(&caller, "is for members of the site"));
    }
    Ok(caller)
}

/// Like `member`, and an operator.
///
/// # Errors
/// As `member`, or another role.
pub async fn operator<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = tenant(core, request).await?;
    if caller.role != Role::Operator {
        return Err(forbidden(&caller, "needs the role operator"));
    }
    Ok(caller)
}

/// Like `tenant`, and somebody who may change what is theirs: an operator, or a member of a customer.
///
/// # Errors
/// As `tenant`, or a viewer.
pub async fn user<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = tenant(core, request).await?;
    if caller.role == Role::Viewer {
        return Err(forbidden(&caller, "needs the role operator"));
    }
    Ok(caller)
}

/// Like `tenant`, and an operator or a customer's admin.
///
/// # Errors
/// As `tenant`, or another role.
pub async fn admin<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = tenant(core, request).await?;
    if !matches!(caller.role, Role::Operator | Role::CustomerAdmin) {
        return Err(forbidden(&caller, "needs the role operator or customer-admin"));
    }
    Ok(caller)
}

/// Like `tenant`, and somebody who may see what is paid for: any member of the site, or a customer's admin.
///
/// # Errors
/// As `tenant`, or a customer's user.
pub async fn accountant<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    not_a_user(tenant(core, request).await?)
}

/// Like `accountant`, and an auditor: who may see members and their roles.
///
/// # Errors
/// As `anyone`, or a customer's user.
pub async fn registrar<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    not_a_user(anyone(core, request).await?)
}

fn not_a_user(caller: Caller) -> Result<Caller, ApiError> {
    if caller.role == Role::CustomerUser {
        return Err(forbidden(&caller, "is for members of the site and a customer's admins"));
    }
    Ok(caller)
}

/// The node whose agent calls, and what its session belongs to: by its certificate, or because it has registered on this
/// connection.
///
/// # Errors
/// No certificate, or one of a member.
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
