//! Events: a log with positions.

use std::collections::BTreeMap;

use rackwright_lifecycle::Timestamp;
use sqlx::Row;

use crate::error::corrupt;
use crate::{Result, Store, WriteTx};

/// Events written with one statement.
const EVENTS_AT_ONCE: usize = 100;

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
                   WHERE position > $1 AND ($2 = '' OR target = $2) ORDER BY position LIMIT $3";
        let query = sqlx::query(sql).bind(after).bind(target).bind(limit);
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
        let query = sqlx::query("DELETE FROM events WHERE at < $1 AND position < (SELECT MAX(position) FROM events)")
            .bind(oldest.0);
        Ok(query.execute(&self.writer).await?.rows_affected())
    }
}

impl WriteTx {
    /// Adds an event, at the end of the change: `commit` gives it its position.
    ///
    /// # Errors
    /// None; kept for the day that there are some.
    pub async fn add_event(&mut self, event: &EventRow) -> Result<()> {
        self.events.push(event.clone());
        Ok(())
    }

    /// Writes the events down, as the last statements before the commit.
    ///
    /// Who follows the log asks for what is after the position it has seen, and so must never find a lower one later. A
    /// sequence of PostgreSQL gives no such promise: of two changes, the one with the higher number may commit first. The
    /// counter's row is locked by who takes numbers until its change has ended and is seen by all, so that numbers
    /// become visible in their order and without gaps. It is the last lock that a change takes: nobody who holds it waits for
    /// another, and it is held for one statement and the commit only.
    pub(crate) async fn append_events(&mut self) -> Result<()> {
        let events = std::mem::take(&mut self.events);
        let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
        let sql = "UPDATE event_counter SET last = last + $1 WHERE id = 1 RETURNING last";
        let row = sqlx::query(sql).bind(count).fetch_one(&mut *self.tx).await?;
        let mut position = row.try_get::<i64, _>(0)? - count;
        for chunk in events.chunks(EVENTS_AT_ONCE) {
            let places: Vec<String> = (0..chunk.len()).map(|n| values(6, n)).collect();
            let sql = format!(
                "INSERT INTO events (position, at, kind, target, message, attributes) VALUES {}",
                places.join(", ")
            );
            let mut query = sqlx::query(sqlx::AssertSqlSafe(sql)).persistent(chunk.len() <= 4);
            for event in chunk {
                let attributes =
                    serde_json::to_string(&event.attributes).map_err(|e| corrupt("event", &event.kind, e))?;
                position += 1;
                query = query.bind(position).bind(event.at.0).bind(&event.kind);
                query = query.bind(&event.target).bind(&event.message).bind(attributes);
            }
            query.execute(&mut *self.tx).await?;
        }
        Ok(())
    }
}

/// The placeholders of the `n`th row of so many columns: `($1, $2)`, `($3, $4)`, ...
fn values(columns: usize, n: usize) -> String {
    let places: Vec<String> = (1..=columns).map(|c| format!("${}", n * columns + c)).collect();
    format!("({})", places.join(", "))
}
