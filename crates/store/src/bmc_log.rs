//! The stored event log of a node's BMC, and work on that BMC outside the node's state chart.

use rackwright_lifecycle::{NodeId, Timestamp};

use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

/// One node's row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BmcLogRow {
    /// Id of the node.
    pub node: NodeId,
    /// `read`, `clear`, `ac-cycle`, or empty: no work is pending.
    pub wanted: String,
    /// Argument of the work, such as the log to clear.
    pub argument: String,
    /// When it was requested. Identifies the request to which an outcome belongs.
    pub wanted_at: Timestamp,
    /// The member who requested it.
    pub wanted_by: String,
    /// When the work is due, or the end of the lease of the replica that does it.
    pub due_at: Timestamp,
    /// The last work done: its kind and a description.
    pub done: String,
    /// When it was done.
    pub done_at: Timestamp,
    /// Why the last work failed.
    pub error: String,
    /// When the log was last read; 0: never.
    pub read_at: Timestamp,
    /// The log as JSON.
    pub body: String,
}

const COLUMNS: &str = "node_id, wanted, argument, wanted_at, wanted_by, due_at, done, done_at, error, read_at, body";

fn row_of(row: &Row) -> Result<BmcLogRow> {
    Ok(BmcLogRow {
        node: row.id("node_id")?,
        wanted: row.try_get("wanted")?,
        argument: row.try_get("argument")?,
        wanted_at: Timestamp(row.try_get("wanted_at")?),
        wanted_by: row.try_get("wanted_by")?,
        due_at: Timestamp(row.try_get("due_at")?),
        done: row.try_get("done")?,
        done_at: Timestamp(row.try_get("done_at")?),
        error: row.try_get("error")?,
        read_at: Timestamp(row.try_get("read_at")?),
        body: row.try_get("body")?,
    })
}

impl Store {
    /// The stored log and work of a node; none: nothing was ever requested.
    pub async fn bmc_log(&self, node: &NodeId) -> Result<Option<BmcLogRow>> {
        let sql = format!("SELECT {COLUMNS} FROM bmc_logs WHERE node_id = $1");
        let row = statement(sql).bind(node).fetch_optional(&self.readers).await?;
        row.as_ref().map(row_of).transpose()
    }

    /// Whether any work is due at `now`.
    pub async fn is_bmc_work_due(&self, now: Timestamp) -> Result<bool> {
        let sql = "SELECT node_id FROM bmc_logs WHERE wanted <> '' AND due_at <= $1 LIMIT 1";
        Ok(statement(sql)
            .bind(now.0)
            .fetch_optional(&self.readers)
            .await?
            .is_some())
    }
}

impl WriteTx {
    /// As [`Store::bmc_log`], within this change.
    pub async fn bmc_log(&mut self, node: &NodeId) -> Result<Option<BmcLogRow>> {
        let sql = format!("SELECT {COLUMNS} FROM bmc_logs WHERE node_id = $1");
        let row = statement(sql).bind(node).fetch_optional(&mut self.tx).await?;
        row.as_ref().map(row_of).transpose()
    }

    /// Requests work on a node's BMC, and replaces any earlier request.
    pub async fn request_bmc_work(&mut self, row: &BmcLogRow) -> Result<()> {
        let sql = format!(
            "INSERT INTO bmc_logs ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, '', 0, '', 0, '') \
             ON CONFLICT (node_id) DO UPDATE SET wanted = excluded.wanted, argument = excluded.argument, \
             wanted_at = excluded.wanted_at, wanted_by = excluded.wanted_by, due_at = excluded.due_at"
        );
        let query = statement(sql).bind(&row.node).bind(&row.wanted).bind(&row.argument);
        let query = query.bind(row.wanted_at.0).bind(&row.wanted_by).bind(row.due_at.0);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Leases due work until `until`, at most `limit` rows.
    pub async fn take_bmc_work(&mut self, now: Timestamp, until: Timestamp, limit: i64) -> Result<Vec<BmcLogRow>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM bmc_logs WHERE wanted <> '' AND due_at <= $1 ORDER BY due_at, node_id LIMIT $2"
        );
        let due = statement(sql).bind(now.0).bind(limit).fetch_all(&mut self.tx).await?;
        let mut taken = Vec::new();
        for row in &due {
            let row = row_of(row)?;
            // Another replica may have been faster.
            let sql = "UPDATE bmc_logs SET due_at = $1 WHERE node_id = $2 AND due_at = $3 AND wanted_at = $4";
            let query = statement(sql).bind(until.0).bind(&row.node).bind(row.due_at.0);
            if query.bind(row.wanted_at.0).execute(&mut self.tx).await? > 0 {
                taken.push(row);
            }
        }
        Ok(taken)
    }

    /// Stores the outcome; false: another request has replaced this one. `row` must repeat the former reading where the
    /// work read none.
    pub async fn end_bmc_work(&mut self, row: &BmcLogRow) -> Result<bool> {
        let sql = "UPDATE bmc_logs SET wanted = '', argument = '', done = $1, done_at = $2, error = $3, read_at = $4, \
                   body = $5 WHERE node_id = $6 AND wanted = $7 AND wanted_at = $8";
        let query = statement(sql).bind(&row.done).bind(row.done_at.0).bind(&row.error);
        let query = query.bind(row.read_at.0).bind(&row.body);
        let query = query.bind(&row.node).bind(&row.wanted).bind(row.wanted_at.0);
        Ok(query.execute(&mut self.tx).await? > 0)
    }
}
