//! Members and unused tokens: lists, changes and revocations.

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_identity::new_epoch;
use rackwright_lifecycle::{EventKind, Timestamp};
use rackwright_store::{MemberRecord, MemberTokenRow, Scope, WriteTx};

use super::call::MutatingCall;
use super::caller::{self, Caller};
use super::convert;
use super::names::{self, Pages};

/// The fault of a request that names no role.
pub(super) const ANY_ROLE: &str = "must be viewer, operator, auditor, customer-admin or customer-user";

/// A member as a message.
fn message(record: MemberRecord) -> v1::Member {
    let role = caller::rights_of(&record.given).map_or(v1::Role::Unspecified, |(role, _)| role);
    v1::Member {
        name: format!("members/{}", record.name),
        role: role.into(),
        customer: record.given.customer.to_string(),
        create_time: convert::time(record.created_at),
        last_use_time: record.used_at.and_then(convert::time),
        certificate_expire_time: record.certificate_ends_at.and_then(convert::time),
        issuer: record.origin.map(|origin| origin.issuer).unwrap_or_default(),
    }
}

fn token_message(row: MemberTokenRow) -> v1::MemberToken {
    let role = caller::rights_of(&row.given).map_or(v1::Role::Unspecified, |(role, _)| role);
    v1::MemberToken {
        name: format!("tokens/{}", row.id),
        member: row.member,
        role: role.into(),
        customer: row.given.customer.to_string(),
        created_by: row.made_by,
        expire_time: convert::time(row.expires_at),
    }
}

/// Members that the caller may see.
///
/// # Errors
/// The page token is invalid, or the database failed.
pub async fn list(
    core: &Core,
    caller: &Caller,
    request: &v1::ListMembersRequest,
) -> Result<v1::ListMembersResponse, ApiError> {
    let limit = names::page_size(request.page_size)?;
    let pages = Pages {
        list: "ListMembers",
        narrowed: "",
        limit,
    };
    let after = pages.after(&request.page_token)?;
    let rows = core.store.members(&caller.scope, after, limit).await?;
    Ok(v1::ListMembersResponse {
        next_page_token: pages.token(rows.len(), rows.last().map(|row| row.name.clone())),
        members: rows.into_iter().map(message).collect(),
    })
}

/// Unused tokens that the caller may see.
///
/// # Errors
/// The page token is invalid, or the database failed.
pub async fn list_tokens(
    core: &Core,
    caller: &Caller,
    request: &v1::ListTokensRequest,
) -> Result<v1::ListTokensResponse, ApiError> {
    let limit = names::page_size(request.page_size)?;
    let pages = Pages {
        list: "ListTokens",
        narrowed: "",
        limit,
    };
    let after = pages.after(&request.page_token)?;
    let rows = core
        .store
        .member_tokens(&caller.scope, clock::now(), after, limit)
        .await?;
    Ok(v1::ListTokensResponse {
        next_page_token: pages.token(rows.len(), rows.last().map(|row| row.id.clone())),
        tokens: rows.into_iter().map(token_message).collect(),
    })
}

/// Whether an operator was invited and has a valid certificate. A certificate of epoch 0 without a stored end is older than
/// that field, and counts as valid. One that an identity provider's login gave does not count: it ends within hours.
fn can_log_in(operator: &MemberRecord, now: Timestamp) -> bool {
    operator.origin.is_none()
        && match operator.certificate_ends_at {
            Some(end) => end > now,
            None => operator.epoch == 0,
        }
}

/// The member to change, locked.
struct Target {
    member: MemberRecord,
    /// No other invited operator has a certificate that is valid.
    is_last_operator: bool,
}

impl Target {
    async fn lock(tx: &mut WriteTx, call: &MutatingCall<'_>, name: &str) -> Result<Self, ApiError> {
        let (caller, id) = (call.caller(), names::id_of("name", name, "members")?);
        let (found, operators) = tx.member_and_operators(&caller.scope, id).await?;
        let is_caller = |one: &MemberRecord| (one.name.as_str(), one.epoch) == (&caller.name, caller.epoch);
        if caller.scope == Scope::Site && !operators.iter().any(is_caller) {
            // Another operator has revoked the caller meanwhile.
            let message = format!("{:?} is not an operator of this site any more", caller.name);
            return Err(ApiError::Unauthenticated(message));
        }
        let member = found.ok_or_else(|| ApiError::NotFound {
            kind: "member",
            name: id.to_owned(),
        })?;
        let is_other = |one: &&MemberRecord| one.name != member.name && can_log_in(one, call.now());
        let is_operator = operators.iter().any(|one| one.name == member.name);
        Ok(Self {
            is_last_operator: is_operator && member.origin.is_none() && !operators.iter().any(|one| is_other(&one)),
            member,
        })
    }

    /// Refuses to revoke the last operator.
    fn check_not_last(&self) -> Result<(), ApiError> {
        if !self.is_last_operator {
            return Ok(());
        }
        let name = &self.member.name;
        Err(ApiError::precondition(
            format!("members/{name}"),
            format!("{name} is the last operator of this site who can log in"),
            "`rackwright token create NAME --role operator` invites another operator, who logs in first; when no operator \
             can log in, `rackwrightd invite-operator --reason TEXT` on the host of the control plane invites one",
        ))
    }

    /// Refuses to change a role that the next login would change back.
    fn check_invited(&self) -> Result<(), ApiError> {
        let (name, Some(origin)) = (&self.member.name, &self.member.origin) else {
            return Ok(());
        };
        Err(ApiError::precondition(
            format!("members/{name}"),
            format!(
                "{name} gets its role at each login, from its groups at {}",
                origin.issuer
            ),
            "change the groups there, or `web.oidc.members` in the settings of rackwrightd; `rackwright member revoke` ends \
             the present sessions and API keys",
        ))
    }

    fn event(&self, call: &MutatingCall<'_>, kind: EventKind, did: &str) -> rackwright_store::EventRow {
        let message = format!("{} {did}", call.caller().name);
        call.event(kind, &format!("members/{}", self.member.name), message)
    }
}

/// Gives a member another role.
///
/// # Errors
/// The member does not exist, the role is of another kind, or the member is the last operator.
pub async fn set_role(call: &MutatingCall<'_>, request: &v1::SetMemberRoleRequest) -> Result<v1::Member, ApiError> {
    let role = request.role();
    if role == v1::Role::Unspecified {
        return Err(ApiError::invalid("role", ANY_ROLE));
    }
    let mut tx = match call.begin().await? {
        Ok(tx) => tx,
        Err(former) => return Ok(former),
    };
    let mut target = Target::lock(&mut tx, call, &request.name).await?;
    target.check_invited()?;
    if caller::is_customers(role) == target.member.given.customer.is_empty() {
        let fault = match target.member.given.customer.as_str() {
            "" => "must be viewer, operator or auditor: the member belongs to the site",
            _ => "must be customer-admin or customer-user: the member belongs to a customer",
        };
        return Err(ApiError::invalid("role", fault));
    }
    if role != v1::Role::Operator {
        target.check_not_last()?;
    }
    let word = caller::word(role);
    let did = format!(
        "gave {} the role {word}; it was {}",
        target.member.name, target.member.given.role
    );
    tx.set_member_role(&target.member.name, word).await?;
    tx.add_event(&target.event(call, EventKind::SecurityMemberRoleSet, &did))
        .await?;
    word.clone_into(&mut target.member.given.role);
    call.end(tx, message(target.member)).await
}

/// Revokes all certificates, SSH keys and tokens of a member.
///
/// # Errors
/// The member does not exist, or is the last operator.
pub async fn revoke(
    core: &Core,
    call: &MutatingCall<'_>,
    request: &v1::RevokeMemberRequest,
) -> Result<v1::Member, ApiError> {
    let mut tx = match call.begin().await? {
        Ok(tx) => tx,
        Err(former) => return Ok(former),
    };
    let mut target = Target::lock(&mut tx, call, &request.name).await?;
    target.check_not_last()?;
    let epoch = new_epoch(core.rng.as_ref()).map_err(|e| ApiError::Internal(e.to_string()))?;
    tx.revoke_member(&target.member.name, epoch).await?;
    let did = format!("ended all certificates, SSH keys and tokens of {}", target.member.name);
    tx.add_event(&target.event(call, EventKind::SecurityMemberRevoked, &did))
        .await?;
    target.member.certificate_ends_at = None;
    call.end(tx, message(target.member)).await
}

/// Deletes a member.
///
/// # Errors
/// The member does not exist, or is the last operator.
pub async fn delete(call: &MutatingCall<'_>, request: &v1::DeleteMemberRequest) -> Result<(), ApiError> {
    let mut tx = match call.begin().await? {
        Ok(tx) => tx,
        Err(former) => return Ok(former),
    };
    let target = Target::lock(&mut tx, call, &request.name).await?;
    target.check_not_last()?;
    tx.delete_member(&target.member.name).await?;
    let did = format!("deleted {}, who was {}", target.member.name, target.member.given.role);
    tx.add_event(&target.event(call, EventKind::SecurityMemberDeleted, &did))
        .await?;
    call.end(tx, ()).await
}

/// Deletes an unused token.
///
/// # Errors
/// The token does not exist.
pub async fn delete_token(call: &MutatingCall<'_>, request: &v1::DeleteTokenRequest) -> Result<(), ApiError> {
    let id = names::id_of("name", &request.name, "tokens")?;
    let mut tx = match call.begin().await? {
        Ok(tx) => tx,
        Err(former) => return Ok(former),
    };
    let caller = call.caller();
    let ended = tx.delete_member_token(&caller.scope, id, call.now()).await?;
    let token = ended.ok_or_else(|| ApiError::NotFound {
        kind: "token",
        name: id.to_owned(),
    })?;
    let message = format!("{} ended the token {id} for {}", caller.name, token.member);
    let event = call.event(
        EventKind::SecurityTokenDeleted,
        &format!("members/{}", token.member),
        message,
    );
    tx.add_event(&event).await?;
    call.end(tx, ()).await
}

#[cfg(test)]
mod tests;
