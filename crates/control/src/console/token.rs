//! One-time tokens in place of an SSH password: for one member, one login, one console, and for minutes.
//!
//! A token that lets somebody join is none of these: what is sent to an SSH server, whose host key a person has to compare,
//! opens no more than one console.

use rackwright_identity::{Token, TokenHash};
use rackwright_lifecycle::Timestamp;
use rackwright_store::{NodeRecord, Scope, StoreError, TokenRow, WriteTx};
use secrecy::SecretString;

use crate::api_error::ApiError;
use crate::clock;
use crate::core::Core;
use crate::rights::Caller;

/// What these tokens are for, in the table of all.
const PURPOSE: &str = "console";

/// A new token, stored by its hash.
///
/// # Errors
/// The database failed, or there was no randomness.
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
        // A node that is enrolled anew under the same name is another one, and so is a member in another epoch.
        body: format!("{}/{}", record.uid, caller.epoch),
        expires_at,
    };
    tx.put_token(&row).await?;
    Ok(shown)
}

/// Uses a token up for the console of a node. The member and the epoch that it was made in; none: it is good for nothing there,
/// and stays as it was.
///
/// # Errors
/// The database failed.
pub async fn redeem(core: &Core, node: &str, shown: &str) -> Result<Option<(String, u64)>, StoreError> {
    let Ok(hash) = TokenHash::of(shown.trim()) else {
        return Ok(None);
    };
    let record = match core.store.node(&Scope::Site, node).await {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        other => other?,
    };
    let mut tx = core.store.write().await?;
    let used = tx.use_token(&hash.to_hex(), PURPOSE, clock::now()).await?;
    // A token from before epochs is kept without one.
    let made = used.and_then(|token| match token.body.split_once('/') {
        Some((uid, epoch)) => Some((uid == record.uid, token.subject, epoch.parse().ok()?)),
        None => Some((token.body == record.uid, token.subject, 0)),
    });
    let Some((true, member, epoch)) = made else {
        // Of another node: nothing is written.
        return Ok(None);
    };
    core.commit(tx).await?;
    Ok(Some((member, epoch)))
}
