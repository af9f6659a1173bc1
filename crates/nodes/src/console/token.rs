//! One-time tokens instead of an SSH password: for one member, one login and one console, valid for minutes.
//!
//! They are separate from invitation tokens. A person has to compare the SSH server's host key, so a token that goes to
//! a wrong server must open no more than one console.

use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::rights::Caller;
use rackwright_identity::{Token, TokenHash};
use rackwright_lifecycle::{NodeId, Timestamp};
use rackwright_store::{NodeRecord, Scope, StoreError, TokenRow, WriteTx};
use secrecy::SecretString;

/// Purpose of these tokens in the table of all tokens.
const PURPOSE: &str = "console";

/// A new token, stored by its hash.
///
/// # Errors
/// The database failed, or no randomness was available.
pub async fn make(
    core: &Core,
    tx: &mut WriteTx,
    caller: &Caller,
    record: &NodeRecord,
    expires_at: Timestamp,
) -> Result<SecretString, ApiError> {
    let (shown, hash) = Token::mint(core.rng.as_ref()).map_err(|error| ApiError::Internal(error.to_string()))?;
    let row = TokenRow {
        hash: hash.to_hex(),
        purpose: PURPOSE.into(),
        subject: caller.name.clone(),
        // The token is bound to this enrolment of the node and to this epoch of the member.
        body: format!("{}/{}", record.uid, caller.epoch),
        expires_at,
    };
    tx.put_token(&row).await?;
    Ok(shown)
}

/// Uses up the token for the console of a node. Returns the member and the epoch in which the token was made. `None`:
/// the token is not valid there and stays unchanged.
pub async fn redeem(core: &Core, node: &NodeId, shown: &str) -> Result<Option<(String, u64)>, StoreError> {
    let Ok(hash) = TokenHash::of(shown.trim()) else {
        return Ok(None);
    };
    let record = match core.store.node(&Scope::Site, node).await {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        other => other?,
    };
    let mut tx = core.store.write().await?;
    let used = tx.use_token(&hash.to_hex(), PURPOSE, clock::now()).await?;
    // Tokens from before epochs have none in their body.
    let made = used.and_then(|token| match token.body.split_once('/') {
        Some((uid, epoch)) => Some((uid == record.uid, token.subject, epoch.parse().ok()?)),
        None => Some((token.body == record.uid, token.subject, 0)),
    });
    let Some((true, member, epoch)) = made else {
        // The token is for another node: the transaction is dropped.
        return Ok(None);
    };
    core.commit(tx).await?;
    Ok(Some((member, epoch)))
}
