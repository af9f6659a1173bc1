//! Counts over all nodes, read on demand and not cached.

use rackwright_lifecycle::Timestamp;

use crate::sql::{Row, statement};
use crate::{Result, Store};

impl Store {
    /// Number of nodes in each state.
    ///
    /// # Errors
    /// The database failed.
    pub async fn count_by_state(&self) -> Result<Vec<(String, i64)>> {
        let rows = statement("SELECT state, COUNT(*) FROM nodes GROUP BY state")
            .blocking()
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(|r| Ok((r.try_get(0)?, r.try_get(1)?))).collect()
    }

    /// Number of waiting nodes, by state and by the kind of the wait (`Wait::label`). Nodes at rest do not wait.
    ///
    /// # Errors
    /// The database failed.
    pub async fn count_waiting(&self) -> Result<Vec<(String, String, i64)>> {
        let sql = "SELECT state, wait_kind, COUNT(*) FROM nodes WHERE wait_kind <> '' GROUP BY state, wait_kind";
        let rows = statement(sql).blocking().fetch_all(&self.readers).await?;
        let row = |r: &Row| Ok((r.try_get(0)?, r.try_get(1)?, r.try_get(2)?));
        rows.iter().map(row).collect()
    }

    /// For each state, when its longest-staying node entered it; `active` and `available`, where nodes stay, are omitted.
    ///
    /// # Errors
    /// The database failed.
    pub async fn oldest_by_state(&self) -> Result<Vec<(String, Timestamp)>> {
        let sql = "SELECT state, MIN(state_since) FROM nodes WHERE state NOT IN ('active', 'available') GROUP BY state";
        let rows = statement(sql).blocking().fetch_all(&self.readers).await?;
        rows.iter()
            .map(|r| Ok((r.try_get(0)?, Timestamp(r.try_get(1)?))))
            .collect()
    }

    /// Number of nodes that are due and not leased.
    ///
    /// # Errors
    /// The database failed.
    pub async fn count_due(&self, now: Timestamp) -> Result<i64> {
        let query = statement("SELECT COUNT(*) FROM nodes WHERE due_at <= $1").bind(now.0);
        Ok(query.blocking().fetch_one(&self.readers).await?.try_get(0)?)
    }
}
