//! Observations of nodes: readings, inventories, addresses.

use rackwright_lifecycle::{NodeId, Timestamp, Wait};

use crate::error::corrupt;
use crate::sql::statement;
use crate::{NodeRecord, Readings, Result, WriteTx, waits};

/// The stored form of readings; equal readings give equal text.
pub(crate) fn readings_text(id: &NodeId, readings: &Readings) -> Result<String> {
    serde_json::to_string(readings).map_err(|e| corrupt("node", id.as_str(), e))
}

impl WriteTx {
    /// Whether a node is still as it was read: no decision or request, no change of its agent's connection, and no other
    /// reading since. If true, the node is locked until this change ends.
    pub async fn is_unchanged(&mut self, seen: &NodeRecord) -> Result<bool> {
        let sql = format!(
            "SELECT 1 FROM nodes WHERE id = $1 AND version = $2 AND agent_session = $3 AND readings = $4{}",
            self.kind.for_update()
        );
        let query = statement(sql).bind(&seen.id).bind(seen.version);
        let query = query
            .bind(seen.hold.session)
            .bind(readings_text(&seen.id, &seen.readings)?);
        Ok(query.fetch_optional(&mut self.tx).await?.is_some())
    }

    /// Stores a node's wait and its end with the present readings, within the change that begins the wait. Call it last in
    /// that change.
    pub async fn wait(&mut self, id: &NodeId, wait: &Wait, until: Timestamp, readings: &Readings) -> Result<()> {
        let sql =
            "UPDATE nodes SET due_at = $1, wait = $2, wait_until = $1, readings = $3, wait_kind = $5 WHERE id = $4";
        let (text, kind) = waits::columns(id.as_str(), wait)?;
        let query = statement(sql)
            .bind(until.0)
            .bind(text)
            .bind(readings_text(id, readings)?);
        query.bind(id).bind(kind).execute(&mut self.tx).await?;
        self.due.retain(|node| node != id);
        Ok(())
    }

    /// Stores readings, and makes the node due. Readings are observations, so they do not change the node's version.
    pub async fn save_readings(&mut self, id: &NodeId, readings: &Readings, now: Timestamp) -> Result<()> {
        self.keep_readings(id, readings, now).await?;
        self.due.push(id.clone());
        Ok(())
    }

    /// Stores readings and when the node is due. Call it last in a change, as `put_due`.
    pub async fn keep_readings(&mut self, id: &NodeId, readings: &Readings, due: Timestamp) -> Result<()> {
        let query = statement("UPDATE nodes SET readings = $1, due_at = $2 WHERE id = $3");
        let query = query.bind(readings_text(id, readings)?).bind(due.0);
        query.bind(id).execute(&mut self.tx).await?;
        self.due.retain(|node| node != id);
        Ok(())
    }

    /// Stores the inventory that the agent reported.
    pub async fn save_inventory(&mut self, id: &NodeId, inventory: &[u8]) -> Result<()> {
        let sql = "INSERT INTO node_inventories (node_id, reported) SELECT id, $1 FROM nodes WHERE id = $2 \
                   ON CONFLICT (node_id) DO UPDATE SET reported = excluded.reported \
                   WHERE node_inventories.reported <> excluded.reported";
        statement(sql).bind(inventory).bind(id).execute(&mut self.tx).await?;
        Ok(())
    }

    /// Makes the last reported inventory the expected one.
    pub async fn expect_inventory(&mut self, id: &NodeId) -> Result<()> {
        let sql = "UPDATE node_inventories SET expected = reported \
                   WHERE node_id = $1 AND (expected IS NULL OR expected <> reported)";
        statement(sql).bind(id).execute(&mut self.tx).await?;
        Ok(())
    }

    /// Stores the machine's address and its source.
    pub async fn save_address(&mut self, id: &NodeId, address: &str, witness: &str) -> Result<()> {
        let query = statement("UPDATE nodes SET address = $1, address_witness = $3 WHERE id = $2")
            .bind(address)
            .bind(id)
            .bind(witness);
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
