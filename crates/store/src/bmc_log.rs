//! What was read of a node's event log at its BMC, and what is wanted of that BMC beside the node's life.

use rackwright_lifecycle::Timestamp;

use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

/// One node's row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BmcLogRow {
    /// The node.
    pub node: String,
    /// `read`, `clear`, `ac-cycle`, or nothing.
    pub wanted: String,
    /// What it is wanted of, or how.
    pub argument: String,
    /// When it was asked for. By it an outcome is known to be this one's.
    pub wanted_at: Timestamp,
    /// Who asked.
    pub wanted_by: String,
    /// When it is to be done, or until when somebody has it.
    pub due_at: Timestamp,
    /// What was done last: a kind and words about it.
    pub done: String,
    /// When.
    pub done_at: Timestamp,
    /// Why it was not done.
    pub error: String,
    /// When the log was read last; 0 for never.
    pub read_at: Timestamp,
    /// What was read, as JSON.
    pub body: String,
}

const COLUMNS: &str = "node_id, wanted, argument, wanted_at, wanted_by, due_at, done, done_at, error, read_at, body";

fn row_of(row: &Row) -> Result<BmcLogRow> {
    Ok(BmcLogRow {
        node: row.try_get("node_id")?,
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
    /// What is known of a node's log; none where nobody ever asked.
    ///
    /// # Errors
    /// The database failed.
    pub async fn bmc_log(&self, node: &str) -> Result<Option<BmcLogRow>> {
        let sql = format!("SELECT {COLUMNS} FROM bmc_logs WHERE node_id = $1");
        let row = statement(sql).bind(node).fetch_optional(&self.readers).await?;
        row.as_ref().map(row_of).transpose()
    }

    /// Whether anything is to be done at `now`.
    ///
    /// # Errors
    /// The database failed.
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
    /// What is known of a node's log.
    ///
    /// # Errors
    /// The database failed.
    pub async fn bmc_log(&mut self, node: &str) -> Result<Option<BmcLogRow>> {
        let sql = format!("SELECT {COLUMNS} FROM bmc_logs WHERE node_id = $1");
        let row = statement(sql).bind(node).fetch_optional(&mut self.tx).await?;
        row.as_ref().map(row_of).transpose()
    }

    /// Wants something of a node's BMC, in place of whatever was wanted before.
    ///
    /// # Errors
    /// The database failed.
    pub async fn want_of_bmc(&mut self, row: &BmcLogRow) -> Result<()> {
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

    /// Takes what is due at `now`, at most `limit`, and has it until `until`.
    ///
    /// # Errors
    /// The database failed.
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

    /// Keeps what came of it, unless something else is wanted by now. What was read before stays where nothing was read now.
    ///
    /// # Errors
    /// The database failed.
    pub async fn bmc_work_done(&mut self, row: &BmcLogRow) -> Result<bool> {
        let sql = "UPDATE bmc_logs SET wanted = '', argument = '', done = $1, done_at = $2, error = $3, read_at = $4, \
                   body = $5 WHERE node_id = $6 AND wanted = $7 AND wanted_at = $8";
        let query = statement(sql).bind(&row.done).bind(row.done_at.0).bind(&row.error);
        let query = query.bind(row.read_at.0).bind(&row.body);
        let query = query.bind(&row.node).bind(&row.wanted).bind(row.wanted_at.0);
        Ok(query.execute(&mut self.tx).await? > 0)
    }
}
