//! Who calls, and what they may do.

use rackwright_api::v1::Role;
use rackwright_identity::{ClientKind, identify};
use tonic::Request;

use super::connection::Peer;
use super::errors::ApiError;
use crate::clock;
use crate::core::Core;

/// A member, authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Name.
    pub name: String,
    /// Role.
    pub role: Role,
}

fn peer<T>(request: &Request<T>) -> Result<rackwright_identity::ClientIdentity, ApiError> {
    let leaf = Peer::of(request).and_then(Peer::certificate).ok_or_else(|| {
        ApiError::Unauthenticated("this call needs a client certificate, and the connection has none".into())
    })?;
    identify(&leaf).map_err(|e| ApiError::Unauthenticated(e.to_string()))
}

/// The member who calls. Their role is read now: a role that was taken away ends at once.
///
/// # Errors
/// No certificate, one of an agent, or of a member who is none any more.
pub async fn member<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let identity = peer(request)?;
    tracing::Span::current().record("caller", &identity.common_name);
    if identity.kind != ClientKind::Member {
        return Err(ApiError::Forbidden(
            "an agent's certificate does not open this call".into(),
        ));
    }
    let role = match core.store.role(&identity.common_name).await?.as_deref() {
        Some("operator") => Role::Operator,
        Some("viewer") => Role::Viewer,
        _ => {
            return Err(ApiError::Unauthenticated(format!(
                "{:?} is not a member of this site",
                identity.common_name
            )));
        }
    };
    Ok(Caller {
        name: identity.common_name,
        role,
    })
}

/// Like `member`, and an operator.
///
/// # Errors
/// As `member`, or another role.
pub async fn operator<T>(core: &Core, request: &Request<T>) -> Result<Caller, ApiError> {
    let caller = member(core, request).await?;
    if caller.role != Role::Operator {
        return Err(ApiError::Forbidden(format!(
            "{:?} is a viewer; this call needs the role operator",
            caller.name
        )));
    }
    Ok(caller)
}

/// The node whose agent calls: by its certificate, or because it has registered on this connection.
///
/// # Errors
/// No certificate, or one of a member.
pub fn agent<T>(request: &Request<T>) -> Result<(String, u64), ApiError> {
    let registered = Peer::of(request).and_then(|peer| peer.registered(clock::now()));
    let identity = match registered {
        Some(identity) => identity.clone(),
        None => peer(request)?,
    };
    tracing::Span::current().record("caller", &identity.common_name);
    match identity.kind {
        ClientKind::Agent { claim_generation } => Ok((identity.common_name, claim_generation)),
        ClientKind::Member => Err(ApiError::Forbidden("only an agent may call this".into())),
    }
}
