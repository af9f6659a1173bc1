//! Members as callers, with role and scope read at each use.

use rackwright_api::v1::Role;
use rackwright_identity::{Rng, Token};
use rackwright_lifecycle::{CustomerId, Timestamp};
use rackwright_store::{MemberRecord, MemberRow, Scope, WriteTx};
use secrecy::ExposeSecret as _;

use super::record_use;
use crate::api_error::ApiError;
use crate::core::Core;

/// An authenticated member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The member's name.
    pub name: String,
    /// The present role.
    pub role: Role,
    /// The visible part of the site.
    pub scope: Scope,
    /// The member's epoch. Tokens and other things that the caller makes for later use carry the epoch, and end with it.
    pub epoch: u64,
}

impl Caller {
    /// The member's customer; empty: a member of the site.
    #[must_use]
    pub fn customer(&self) -> CustomerId {
        self.scope.customer().cloned().unwrap_or_default()
    }

    /// The name under which requests are known: members of two customers never share an answer.
    #[must_use]
    pub fn actor(&self) -> String {
        match &self.scope {
            Scope::Site => self.name.clone(),
            // No member's name contains a slash.
            Scope::Customer(customer) => format!("{customer}/{}", self.name),
        }
    }
}

/// The stored form of a role.
#[must_use]
pub fn word(role: Role) -> &'static str {
    match role {
        Role::Operator => "operator",
        Role::Viewer => "viewer",
        Role::CustomerAdmin => "customer-admin",
        Role::CustomerUser => "customer-user",
        Role::Auditor => "auditor",
        Role::Unspecified => "",
    }
}

/// True for the roles that belong to a customer.
#[must_use]
pub fn is_customers(role: Role) -> bool {
    matches!(role, Role::CustomerAdmin | Role::CustomerUser)
}

/// Role and scope of a stored member. `None`: they do not fit together, and the member has no rights.
#[must_use]
pub fn rights_of(row: &MemberRow) -> Option<(Role, Scope)> {
    let roles = [
        Role::Operator,
        Role::Viewer,
        Role::Auditor,
        Role::CustomerAdmin,
        Role::CustomerUser,
    ];
    let role = roles.into_iter().find(|role| word(*role) == row.role)?;
    match (is_customers(role), row.customer.is_empty()) {
        (false, true) => Some((role, Scope::Site)),
        (true, false) => Some((role, Scope::Customer(row.customer.clone()))),
        _ => None,
    }
}

/// The caller with no more rights than the role of an API key.
///
/// # Errors
/// The member's role is of another kind than the key's now.
pub fn limited(caller: Caller, key: Role) -> Result<Caller, ApiError> {
    let role = match (caller.role, key) {
        (member, key) if member == key => key,
        (Role::Operator | Role::Viewer, Role::Operator | Role::Viewer) => Role::Viewer,
        (Role::CustomerAdmin | Role::CustomerUser, Role::CustomerAdmin | Role::CustomerUser) => Role::CustomerUser,
        (member, key) => {
            return Err(ApiError::Forbidden(format!(
                "this API key has the role {}, and {:?} has the role {} now; create another key",
                word(key),
                caller.name,
                word(member)
            )));
        }
    };
    Ok(Caller { role, ..caller })
}

/// The present role and scope of a member in an epoch. Counts as a use.
///
/// # Errors
/// There is no such member, the epoch is over, or the database failed.
pub async fn of_member(core: &Core, name: &str, epoch: u64) -> Result<Caller, ApiError> {
    let (caller, record) = look_up(core, name, epoch).await?;
    record_use(core, &record);
    Ok(caller)
}

/// The same, with the member's record. Does not count as a use.
///
/// # Errors
/// As `of_member`.
pub async fn look_up(core: &Core, name: &str, epoch: u64) -> Result<(Caller, MemberRecord), ApiError> {
    let record = core.store.member(name).await?;
    let known = record.and_then(|record| {
        let rights = rights_of(&record.given)?;
        Some((record, rights))
    });
    let Some((record, (role, scope))) = known else {
        return Err(ApiError::Unauthenticated(format!(
            "{name:?} is not a member of this site"
        )));
    };
    if record.epoch != epoch {
        return Err(ApiError::Unauthenticated(format!(
            "the former credentials of {name:?} were revoked; ask for a new token"
        )));
    }
    let caller = Caller {
        name: name.to_owned(),
        role,
        scope,
        epoch,
    };
    Ok((caller, record))
}

/// Makes a token for a member. The store keeps its hash and the member who made it.
///
/// # Errors
/// The database failed, or there are no random numbers.
pub async fn new_member_token(
    rng: &dyn Rng,
    tx: &mut WriteTx,
    member: &str,
    row: &MemberRow,
    expires_at: Timestamp,
    made_by: &str,
) -> Result<String, ApiError> {
    let (shown, hash) = Token::mint(rng).map_err(|e| ApiError::Internal(e.to_string()))?;
    tx.put_member_token(&hash.to_hex(), member, row, expires_at, made_by)
        .await?;
    Ok(shown.expose_secret().to_owned())
}
