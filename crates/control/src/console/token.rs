//! One-time tokens in place of an SSH password: for one member, one login, one console, and for minutes.
//!
//! A token that lets somebody join is none of these: what is sent to an SSH server, whose host key a person has to compare,
//! opens no more than one console.

use rackwright_identity::{Token, TokenHash};
use rackwright_lifecycle::Timestamp;
use rackwright_store::{NodeRecord, Scope, StoreError, TokenRow, WriteTx};
use secrecy::SecretString;

use crate::clock;
use crate::core::Core;
use crate::grpc::ApiError;

/// What these tokens are for, in the table of all.
const PURPOSE: &str = "console";

/// A new token, stored by its hash.
///
/// # Errors
/// The database failed, or there was no randomness.
pub async fn make(
    core: &Core,
    tx: &mut WriteTx,
    member: &str,
    record: &NodeRecord,
    expires_at: Timestamp,
) -> Result<SecretString, ApiError> {
    let (shown, hash) = Token::mint(core.rng.as_ref()).map_err(|error| ApiError::Internal(error.to_string()))?;
    let row = TokenRow {
        hash: hash.to_hex(),
        purpose: PURPOSE.into(),
        subject: member.to_owned(),
        // A node that is enrolled anew under the same name is another one.
        body: record.uid.clone(),
        expires_at,
    };
    tx.put_token(&row).await?;
    Ok(shown)
}

/// Uses a token up for the console of a node. Whose it was; none: it is good for nothing there, and stays as it was.
///
/// # Errors
/// The database failed.
pub async fn redeem(core: &Core, node: &str, shown: &str) -> Result<Option<String>, StoreError> {
    let Ok(hash) = TokenHash::of(shown.trim()) else {
        return Ok(None);
    };
    let record = match core.store.node(&Scope::Site, node).await {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        other => other?,
    };
    let mut tx = core.store.write().await?;
    let used = tx.use_token(&hash.to_hex(), PURPOSE, clock::now()).await?;
    let Some(token) = used.filter(|token| token.body == record.uid) else {
        // Of another node: nothing is written.
        return Ok(None);
    };
    core.commit(tx).await?;
    Ok(Some(token.subject))
}
