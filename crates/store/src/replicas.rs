//! Replicas of the control plane: which are alive, and the work that dead ones left open.

use rackwright_lifecycle::Timestamp;

use crate::sql::statement;
use crate::{Result, Store, WriteTx};

/// A replica and its last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaRow {
    /// Its name, the same after a restart.
    pub id: String,
    /// Time of its last heartbeat, by its own clock.
    pub heard_at: Timestamp,
}

impl Store {
    /// Stores a heartbeat, and registers a new replica. An older time never replaces a newer one.
    pub async fn record_heartbeat(&self, id: &str, now: Timestamp) -> Result<()> {
        let sql = "INSERT INTO replicas (id, heard_at) VALUES ($1, $2) ON CONFLICT (id) \
                   DO UPDATE SET heard_at = excluded.heard_at WHERE replicas.heard_at < excluded.heard_at";
        let query = statement(sql).bind(id).bind(now.0);
        self.execute(query).await?;
        Ok(())
    }

    /// Registers the start of a replica. Returns since when at least one replica was always alive; that is `now` after all
    /// replicas were silent for longer than `silence_us`, or had stopped in order.
    pub async fn begin_replica(&self, id: &str, now: Timestamp, silence_us: i64) -> Result<Timestamp> {
        let last = statement("SELECT heard_at, up_since FROM replicas ORDER BY heard_at DESC LIMIT 1");
        let up_since = match last.fetch_optional(&self.readers).await? {
            Some(row) if now.since(Timestamp(row.try_get("heard_at")?)) <= silence_us => {
                Timestamp(row.try_get("up_since")?)
            }
            _ => now,
        };
        let sql = "INSERT INTO replicas (id, heard_at, up_since) VALUES ($1, $2, $3) ON CONFLICT (id) \
                   DO UPDATE SET heard_at = excluded.heard_at, up_since = excluded.up_since";
        let query = statement(sql).bind(id).bind(now.0).bind(up_since.0);
        self.execute(query).await?;
        Ok(up_since)
    }

    /// Removes a replica that stopped in order, so that others need not wait until it counts as dead.
    pub async fn end_replica(&self, id: &str) -> Result<()> {
        let query = statement("DELETE FROM replicas WHERE id = $1").bind(id);
        self.execute(query).await?;
        Ok(())
    }

    /// Replicas with a heartbeat at or after `since`, by id: those that are alive.
    pub async fn replicas(&self, since: Timestamp) -> Result<Vec<ReplicaRow>> {
        let query = statement("SELECT id, heard_at FROM replicas WHERE heard_at >= $1 ORDER BY id").bind(since.0);
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter()
            .map(|row| {
                Ok(ReplicaRow {
                    id: row.try_get("id")?,
                    heard_at: Timestamp(row.try_get("heard_at")?),
                })
            })
            .collect()
    }

    /// Deletes replicas without a heartbeat since `oldest`.
    pub async fn forget_replicas(&self, oldest: Timestamp) -> Result<u64> {
        let query = statement("DELETE FROM replicas WHERE heard_at < $1").bind(oldest.0);
        self.execute(query).await
    }
}

impl WriteTx {
    /// Takes over an open attempt of a dead replica. Returns false if the attempt has ended.
    pub async fn adopt_effect(&mut self, id: &str, owner: &str) -> Result<bool> {
        let query = statement("UPDATE effects SET owner = $1 WHERE id = $2 AND ended_at IS NULL");
        let done = query.bind(owner).bind(id).execute(&mut self.tx).await?;
        Ok(done > 0)
    }
}
