//! Breaches of the isolation of clusters, and the check that finds them. A change of these rows locks the hall.

use rackwright_lifecycle::Timestamp;

use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

/// Ended breaches that are kept.
const ENDED_KEPT: i64 = 1000;

/// The last check of the isolation of clusters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FabricCheckRow {
    /// When it was made.
    pub checked_at: Option<Timestamp>,
    /// Why later checks failed; empty: none failed.
    pub problem: String,
    /// The port that the next check continues after; empty: it begins with the first.
    pub last_port: String,
    /// The partition files that are in place, a line for each: replica, digest, path. Empty: none was written.
    pub written: String,
    /// The partition files that are being written, a line for each. Empty: none is.
    pub intended: String,
}

/// A breach of isolation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreachRow {
    /// Unique. The caller makes it from kind and time.
    pub id: String,
    /// The kind, as the caller names it.
    pub kind: String,
    /// The last time at which there was no such breach.
    pub good_at: Option<Timestamp>,
    /// When it was first seen.
    pub since: Timestamp,
    /// When it was last seen.
    pub seen: Timestamp,
    /// When it was over. `None`: it is open.
    pub ended_at: Option<Timestamp>,
    /// The caller's JSON.
    pub body: String,
}

const CHECK: &str = "SELECT checked_at, problem, last_port, written, intended FROM fabric_check WHERE id = 1";
const BREACHES: &str = "SELECT id, kind, good_at, since, seen, ended_at, body FROM fabric_breaches";

fn time(row: &Row, column: &'static str) -> Result<Option<Timestamp>> {
    Ok(row.try_get::<Option<i64>>(column)?.map(Timestamp))
}

fn check(row: &Row) -> Result<FabricCheckRow> {
    Ok(FabricCheckRow {
        checked_at: time(row, "checked_at")?,
        problem: row.try_get("problem")?,
        last_port: row.try_get("last_port")?,
        written: row.try_get("written")?,
        intended: row.try_get("intended")?,
    })
}

fn breach(row: &Row) -> Result<BreachRow> {
    Ok(BreachRow {
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        good_at: time(row, "good_at")?,
        since: Timestamp(row.try_get("since")?),
        seen: Timestamp(row.try_get("seen")?),
        ended_at: time(row, "ended_at")?,
        body: row.try_get("body")?,
    })
}

impl Store {
    /// The last check. `None`: there was neither a check nor a proof.
    pub async fn fabric_check(&self) -> Result<Option<FabricCheckRow>> {
        let row = statement(CHECK).fetch_optional(&self.readers).await?;
        row.as_ref().map(check).transpose()
    }

    /// Number of open breaches.
    pub async fn count_open_breaches(&self) -> Result<i64> {
        let query = statement("SELECT COUNT(*) FROM fabric_breaches WHERE ended_at IS NULL");
        Ok(query.fetch_one(&self.readers).await?.try_get(0)?)
    }

    /// The newest breaches, with the newest first.
    pub async fn fabric_breaches(&self, limit: i64) -> Result<Vec<BreachRow>> {
        let query = statement(format!("{BREACHES} ORDER BY since DESC, id LIMIT $1")).bind(limit);
        let rows = query.blocking().fetch_all(&self.readers).await?;
        rows.iter().map(breach).collect()
    }
}

/// The hall must have been read within the change, which locks it.
impl WriteTx {
    /// As [`Store::fabric_check`], within this change.
    pub async fn fabric_check(&mut self) -> Result<Option<FabricCheckRow>> {
        let row = statement(CHECK).fetch_optional(&mut self.tx).await?;
        row.as_ref().map(check).transpose()
    }

    /// Writes the last check.
    pub async fn put_fabric_check(&mut self, row: &FabricCheckRow) -> Result<()> {
        let sql = "INSERT INTO fabric_check (id, checked_at, problem, last_port, written, intended) \
                   VALUES (1, $1, $2, $3, $4, $5) ON CONFLICT (id) DO UPDATE SET checked_at = excluded.checked_at, \
                   problem = excluded.problem, last_port = excluded.last_port, written = excluded.written, \
                   intended = excluded.intended";
        let query = statement(sql).bind(row.checked_at.map(|at| at.0)).bind(&row.problem);
        let query = query.bind(&row.last_port).bind(&row.written).bind(&row.intended);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// The open breaches, by their start.
    pub async fn open_breaches(&mut self) -> Result<Vec<BreachRow>> {
        let query = statement(format!("{BREACHES} WHERE ended_at IS NULL ORDER BY since, id"));
        let rows = query.fetch_all(&mut self.tx).await?;
        rows.iter().map(breach).collect()
    }

    /// Writes a breach. The end of one also ends it in the usage of its clusters' customers, and deletes the oldest ended
    /// breaches of more than a thousand.
    pub async fn put_breach(&mut self, row: &BreachRow) -> Result<()> {
        let sql = "INSERT INTO fabric_breaches (id, kind, good_at, since, seen, ended_at, body) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO UPDATE SET seen = excluded.seen, \
                   ended_at = excluded.ended_at, body = excluded.body";
        let query = statement(sql)
            .bind(&row.id)
            .bind(&row.kind)
            .bind(row.good_at.map(|at| at.0));
        let query = query
            .bind(row.since.0)
            .bind(row.seen.0)
            .bind(row.ended_at.map(|at| at.0));
        query.bind(&row.body).execute(&mut self.tx).await?;
        if let Some(ended_at) = row.ended_at {
            self.end_usage_breach(&row.id, ended_at).await?;
            let sql = "DELETE FROM fabric_breaches WHERE ended_at IS NOT NULL AND id NOT IN \
                       (SELECT id FROM fabric_breaches WHERE ended_at IS NOT NULL ORDER BY since DESC, id LIMIT $1)";
            statement(sql).bind(ENDED_KEPT).execute(&mut self.tx).await?;
        }
        Ok(())
    }
}
