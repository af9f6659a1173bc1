//! Idempotency: the stored answers of earlier requests.

use rackwright_lifecycle::Timestamp;

use crate::sql::statement;
use crate::{Result, Store, StoreError, WriteTx};

/// The identity of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    /// The member who sent it.
    pub actor: String,
    /// The idempotency key, chosen by the caller.
    pub key: String,
    /// Name of the call.
    pub method: String,
    /// Digest of the request.
    pub digest: String,
}

impl WriteTx {
    /// The stored answer of the same request. A concurrent request with the same key waits until this change ends.
    ///
    /// # Errors
    /// `KeyReused`: the key was used for another request.
    pub async fn replay(&mut self, key: &RequestKey) -> Result<Option<Vec<u8>>> {
        let sql = "INSERT INTO requests (actor, key, method, digest, response, at) VALUES ($1, $2, $3, $4, NULL, 0) \
                   ON CONFLICT (actor, key) DO NOTHING";
        let query = statement(sql).bind(&key.actor).bind(&key.key);
        query.bind(&key.method).bind(&key.digest).execute(&mut self.tx).await?;
        let sql = "SELECT method, digest, response FROM requests \
                   WHERE actor = $1 AND key = $2 AND response IS NOT NULL";
        let query = statement(sql);
        let Some(row) = query
            .bind(&key.actor)
            .bind(&key.key)
            .fetch_optional(&mut self.tx)
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

    /// Stores the answer of a request, within the change that the request made.
    ///
    /// # Errors
    /// `Conflict`: an answer is stored already.
    pub async fn remember(&mut self, key: &RequestKey, response: &[u8], now: Timestamp) -> Result<()> {
        let sql = "INSERT INTO requests (actor, key, method, digest, response, at) VALUES ($1, $2, $3, $4, $5, $6) \
                   ON CONFLICT (actor, key) DO UPDATE SET method = excluded.method, digest = excluded.digest, \
                   response = excluded.response, at = excluded.at WHERE requests.response IS NULL";
        let query = statement(sql)
            .bind(&key.actor)
            .bind(&key.key)
            .bind(&key.method)
            .bind(&key.digest);
        let done = query.bind(response).bind(now.0).execute(&mut self.tx).await?;
        if done == 0 {
            return Err(StoreError::Conflict {
                kind: "request",
                id: key.key.clone(),
            });
        }
        Ok(())
    }
}

impl Store {
    /// Deletes answers older than `oldest`.
    pub async fn forget_requests(&self, oldest: Timestamp) -> Result<u64> {
        let query = statement("DELETE FROM requests WHERE at < $1")
            .bind(oldest.0)
            .blocking();
        self.execute(query).await
    }
}
