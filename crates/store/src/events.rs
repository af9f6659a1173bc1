//! Events: a log with positions.

use std::collections::BTreeMap;

use rackwright_lifecycle::Timestamp;
use sqlx::Row;

use crate::error::corrupt;
use crate::{Result, Store, WriteTx};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventRow {
    /// Set by the store.
    pub position: i64,
    /// When.
    pub at: Timestamp,
    /// Kind.
    pub kind: String,
    /// Resource name.
    pub target: String,
    /// A sentence.
    pub message: String,
    /// More.
    pub attributes: BTreeMap<String, String>,
}

impl Store {
    /// Events after a position, oldest first; of one target when it is not empty.
    ///
    /// # Errors
    /// The database failed.
    pub async fn events(&self, after: i64, target: &str, limit: i64) -> Result<Vec<EventRow>> {
        let sql = "SELECT position, at, kind, target, message, attributes FROM events \
                   WHERE position > ? AND (? = '' OR target = ?) ORDER BY position LIMIT ?";
        let query = sqlx::query(sql).bind(after).bind(target).bind(target).bind(limit);
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter()
            .map(|row| {
                let position: i64 = row.try_get("position")?;
                let attributes = serde_json::from_str(row.try_get("attributes")?)
                    .map_err(|e| corrupt("event", &position.to_string(), e))?;
                Ok(EventRow {
                    position,
                    at: Timestamp(row.try_get("at")?),
                    kind: row.try_get("kind")?,
                    target: row.try_get("target")?,
                    message: row.try_get("message")?,
                    attributes,
                })
            })
            .collect()
    }

    /// Oldest and newest position kept; (0, 0) when there is none.
    ///
    /// # Errors
    /// The database failed.
    pub async fn event_range(&self) -> Result<(i64, i64)> {
        let sql = "SELECT COALESCE(MIN(position), 0), COALESCE(MAX(position), 0) FROM events";
        let row = sqlx::query(sql).fetch_one(&self.readers).await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Drops events older than `oldest`, but never the newest: it holds the position that followers are at. Answers how
    /// many.
    ///
    /// # Errors
    /// The database failed.
    pub async fn forget_events(&self, oldest: Timestamp) -> Result<u64> {
        let query = sqlx::query("DELETE FROM events WHERE at < ? AND position < (SELECT MAX(position) FROM events)")
            .bind(oldest.0);
        Ok(query.execute(&self.writer).await?.rows_affected())
    }
}

impl WriteTx {
    /// Appends an event; its position is given out at commit order because there is one writer.
    ///
    /// # Errors
    /// The database failed.
    pub async fn add_event(&mut self, event: &EventRow) -> Result<()> {
        let attributes = serde_json::to_string(&event.attributes).map_err(|e| corrupt("event", &event.kind, e))?;
        let sql = "INSERT INTO events (at, kind, target, message, attributes) VALUES (?, ?, ?, ?, ?)";
        let query = sqlx::query(sql).bind(event.at.0).bind(&event.kind).bind(&event.target);
        query
            .bind(&event.message)
            .bind(attributes)
            .execute(&mut *self.tx)
            .await?;
        Ok(())
    }
}
