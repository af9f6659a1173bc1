//! Events: a log with positions.

use std::collections::BTreeMap;

use rackwright_lifecycle::{EventKind, Timestamp};

use crate::database::{Kind, Writer, begin};
use crate::error::corrupt;
use crate::group::Tx;
use crate::sql::statement;
use crate::{Result, Scope, Store, WriteTx};

/// Events written with one statement.
const EVENTS_AT_ONCE: usize = 100;

/// Events placed with one change.
const EVENTS_PLACED: i64 = 1000;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventRow {
    /// Place in the log; set by the store.
    pub position: i64,
    /// When it happened.
    pub at: Timestamp,
    /// Kind.
    pub kind: EventKind,
    /// Resource name of the target.
    pub target: String,
    /// A sentence.
    pub message: String,
    /// Further values by name.
    pub attributes: BTreeMap<String, String>,
}

impl Store {
    /// Gives positions to events that have none yet: on PostgreSQL that happens at the next read.
    ///
    /// A follower of the log requests everything after the last position it has seen, so a lower position must never appear
    /// later. A number drawn during a change cannot promise that: of two changes, the one with the higher number may commit
    /// first. A lock from the number to the commit would make the commits of all changes wait for each other. So a change
    /// leaves its events in an inbox, and positions are given to committed events only, by one process at a time, which
    /// holds the counter's row until the placed events are visible. The numbers of the inbox keep the order of successive
    /// changes; all changes of one node are successive.
    async fn place_events(&self) -> Result<()> {
        let Writer::Postgres(pool) = &self.writer else {
            return Ok(());
        };
        if !self.has_unplaced_events().await? {
            return Ok(());
        }
        // Of all callers in this process, one does the work.
        let _placing = self.placing.lock().await;
        while self.has_unplaced_events().await? {
            let mut tx = Tx::Own(begin(pool).await?);
            let sql = "SELECT last FROM event_counter WHERE id = 1 FOR UPDATE";
            let last: i64 = statement(sql).fetch_one(&mut tx).await?.try_get(0)?;
            let sql = "WITH taken AS (DELETE FROM event_inbox WHERE id IN \
                       (SELECT id FROM event_inbox ORDER BY id LIMIT $2) \
                       RETURNING id, at, kind, target, message, attributes) \
                       INSERT INTO events (position, at, kind, target, message, attributes) \
                       SELECT $1 + ROW_NUMBER() OVER (ORDER BY id), at, kind, target, message, attributes FROM taken";
            let query = statement(sql).bind(last).bind(EVENTS_PLACED);
            let placed = query.execute(&mut tx).await?;
            let placed = i64::try_from(placed).unwrap_or(i64::MAX);
            let query = statement("UPDATE event_counter SET last = $1 WHERE id = 1").bind(last + placed);
            query.execute(&mut tx).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    async fn has_unplaced_events(&self) -> Result<bool> {
        let query = statement("SELECT id FROM event_inbox ORDER BY id LIMIT 1");
        Ok(query.fetch_optional(&self.readers).await?.is_some())
    }

    /// Events after a position, oldest first; only of `target` where it is not empty.
    ///
    /// # Errors
    /// The database failed.
    pub async fn events(&self, scope: &Scope, after: i64, target: &str, limit: i64) -> Result<Vec<EventRow>> {
        self.place_events().await?;
        let sql = format!(
            "SELECT position, at, kind, target, message, attributes FROM events \
             WHERE position > $1 AND ($2 = '' OR target = $2){} ORDER BY position LIMIT $3",
            scope.targets("events.at", 4)
        );
        let query = scope.bind(statement(sql).bind(after).bind(target).bind(limit));
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter()
            .map(|row| {
                let position: i64 = row.try_get("position")?;
                let attributes = serde_json::from_str(row.try_get("attributes")?)
                    .map_err(|e| corrupt("event", &position.to_string(), e))?;
                Ok(EventRow {
                    position,
                    at: Timestamp(row.try_get("at")?),
                    kind: EventKind::parse(row.try_get("kind")?),
                    target: row.try_get("target")?,
                    message: row.try_get("message")?,
                    attributes,
                })
            })
            .collect()
    }

    /// Oldest and newest stored position; (0, 0): there is no event.
    ///
    /// # Errors
    /// The database failed.
    pub async fn event_range(&self) -> Result<(i64, i64)> {
        self.place_events().await?;
        let sql = "SELECT COALESCE(MIN(position), 0), COALESCE(MAX(position), 0) FROM events";
        let row = statement(sql).fetch_one(&self.readers).await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Drops events older than `oldest`, except the newest event, which holds the followers' position. Returns the number
    /// dropped.
    ///
    /// # Errors
    /// The database failed.
    pub async fn forget_events(&self, oldest: Timestamp) -> Result<u64> {
        self.place_events().await?;
        let query = statement("DELETE FROM events WHERE at < $1 AND position < (SELECT MAX(position) FROM events)")
            .bind(oldest.0)
            .blocking();
        self.execute(query).await
    }
}

impl WriteTx {
    /// Adds an event; `commit` writes it.
    ///
    /// # Errors
    /// Never fails at present; reserved.
    pub async fn add_event(&mut self, event: &EventRow) -> Result<()> {
        self.events.push(event.clone());
        Ok(())
    }

    /// Writes the events, as the last statements before the commit: with positions on SQLite, which has a single writer,
    /// and without positions on PostgreSQL.
    pub(crate) async fn append_events(&mut self) -> Result<()> {
        let events = std::mem::take(&mut self.events);
        let mut position = None;
        if self.kind == Kind::Sqlite {
            let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
            let sql = "UPDATE event_counter SET last = last + $1 WHERE id = 1 RETURNING last";
            let row = statement(sql).bind(count).fetch_one(&mut self.tx).await?;
            position = Some(row.try_get::<i64>(0)? - count);
        }
        for chunk in events.chunks(EVENTS_AT_ONCE) {
            let (table, columns) = match position {
                Some(_) => ("events (at, kind, target, message, attributes, position)", 6),
                None => ("event_inbox (at, kind, target, message, attributes)", 5),
            };
            let places: Vec<String> = (0..chunk.len()).map(|n| values(columns, n)).collect();
            let sql = format!("INSERT INTO {table} VALUES {}", places.join(", "));
            let mut query = statement(sql);
            if chunk.len() > 4 {
                query = query.unprepared();
            }
            for event in chunk {
                let kind = event.kind.to_string();
                let attributes = serde_json::to_string(&event.attributes).map_err(|e| corrupt("event", &kind, e))?;
                query = query.bind(event.at.0).bind(kind).bind(&event.target);
                query = query.bind(&event.message).bind(attributes);
                if let Some(position) = &mut position {
                    *position += 1;
                    query = query.bind(*position);
                }
            }
            query.execute(&mut self.tx).await?;
        }
        Ok(())
    }
}

/// The placeholders of row `n` (from 0) with `columns` columns: `($1, $2)`, `($3, $4)`, ...
fn values(columns: usize, n: usize) -> String {
    let places: Vec<String> = (1..=columns).map(|c| format!("${}", n * columns + c)).collect();
    format!("({})", places.join(", "))
}
