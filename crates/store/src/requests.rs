//! Idempotency: the answers to requests that were made before.

use rackwright_lifecycle::Timestamp;
use sqlx::Row;

use crate::{Result, Store, StoreError, WriteTx};

/// Who asked what under which key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    /// The member.
    pub actor: String,
    /// The caller's key.
    pub key: String,
    /// The call's name.
    pub method: String,
    /// Digest of the request.
    pub digest: String,
}

impl WriteTx {
    /// The answer given before to the same request.
    ///
    /// # Errors
    /// `KeyReused` when the key was used for another request.
    pub async fn replay(&mut self, key: &RequestKey) -> Result<Option<Vec<u8>>> {
        let query = sqlx::query("SELECT method, digest, response FROM requests WHERE actor = ? AND key = ?");
        let Some(row) = query
            .bind(&key.actor)
            .bind(&key.key)
            .fetch_optional(&mut *self.tx)
            .await?
        else {
            return Ok(None);
        };
        let method: String = row.try_get("method")?;
        let digest: String = row.try_get("digest")?;
        if method != key.method || digest != key.digest {
            return Err(StoreError::KeyReused {
                key: key.key.clone(),
                method,
            });
        }
        Ok(Some(row.try_get("response")?))
    }

    /// Keeps the answer to a request, in the same change as what it did.
    ///
    /// # Errors
    /// The database failed.
    pub async fn remember(&mut self, key: &RequestKey, response: &[u8], now: Timestamp) -> Result<()> {
        let sql = "INSERT INTO requests (actor, key, method, digest, response, at) VALUES (?, ?, ?, ?, ?, ?)";
        let query = sqlx::query(sql)
            .bind(&key.actor)
            .bind(&key.key)
            .bind(&key.method)
            .bind(&key.digest);
        query.bind(response).bind(now.0).execute(&mut *self.tx).await?;
        Ok(())
    }
}

impl Store {
    /// Drops answers older than `oldest`.
    ///
    /// # Errors
    /// The database failed.
    pub async fn forget_requests(&self, oldest: Timestamp) -> Result<u64> {
        let query = sqlx::query("DELETE FROM requests WHERE at < ?").bind(oldest.0);
        Ok(query.execute(&self.writer).await?.rows_affected())
    }
}
