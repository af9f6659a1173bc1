//! The firmware settings of nodes, as of the last reading.

use rackwright_lifecycle::{NodeId, Timestamp};

use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

/// The last reading of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsRow {
    /// Id of the node.
    pub node: NodeId,
    /// When it was read.
    pub read_at: Timestamp,
    /// When all settings were last verified after a start by the control plane.
    pub verified_at: Option<Timestamp>,
    /// When the settings began to differ from the wanted ones.
    pub drifted_at: Option<Timestamp>,
    /// The settings, as JSON.
    pub body: String,
}

/// A new reading of a node's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsRead {
    /// Read after a start by the control plane: only such a reading is a proof.
    pub is_proof: bool,
    /// All settings are as wanted.
    pub is_as_wanted: bool,
    /// The settings, as JSON.
    pub body: String,
}

const COLUMNS: &str = "node_id, read_at, verified_at, drifted_at, body";

fn read(row: &Row) -> Result<SettingsRow> {
    Ok(SettingsRow {
        node: row.id("node_id")?,
        read_at: Timestamp(row.try_get("read_at")?),
        verified_at: row.try_get::<Option<i64>>("verified_at")?.map(Timestamp),
        drifted_at: row.try_get::<Option<i64>>("drifted_at")?.map(Timestamp),
        body: row.try_get("body")?,
    })
}

impl Store {
    /// The last reading of a node's settings.
    pub async fn node_settings(&self, node: &NodeId) -> Result<Option<SettingsRow>> {
        let sql = format!("SELECT {COLUMNS} FROM node_settings WHERE node_id = $1");
        let row = statement(sql).bind(node).fetch_optional(&self.readers).await?;
        row.as_ref().map(read).transpose()
    }

    /// The SKU of every node, by its id.
    pub async fn node_skus(&self) -> Result<Vec<(NodeId, String)>> {
        let query = statement("SELECT id, sku FROM nodes").blocking();
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter()
            .map(|row| Ok((row.id("id")?, row.try_get("sku")?)))
            .collect()
    }

    /// Number of nodes, and number of nodes with a reading.
    pub async fn count_settings_read(&self) -> Result<(i64, i64)> {
        let sql = "SELECT (SELECT COUNT(*) FROM nodes), (SELECT COUNT(*) FROM node_settings)";
        let row = statement(sql).blocking().fetch_one(&self.readers).await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Nodes after `after` with settings that differ from the wanted ones, by id, at most `limit`.
    pub async fn settings_drift(&self, after: &str, limit: i64) -> Result<Vec<SettingsRow>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM node_settings WHERE drifted_at IS NOT NULL AND node_id > $1 ORDER BY node_id LIMIT $2"
        );
        let rows = statement(sql).bind(after).bind(limit);
        rows.fetch_all(&self.readers).await?.iter().map(read).collect()
    }
}

impl WriteTx {
    /// Stores a reading of a node's settings. Returns true if they have just begun to differ, or differ in another way than
    /// before.
    pub async fn put_node_settings(&mut self, node: &NodeId, seen: &SettingsRead, now: Timestamp) -> Result<bool> {
        let sql = format!("SELECT {COLUMNS} FROM node_settings WHERE node_id = $1");
        let before = statement(sql).bind(node).fetch_optional(&mut self.tx).await?;
        let before = before.as_ref().map(read).transpose()?;
        let proven = (seen.is_proof && seen.is_as_wanted).then_some(now);
        let verified_at = proven.or(before.as_ref().and_then(|row| row.verified_at));
        let since = before.as_ref().and_then(|row| row.drifted_at);
        let drifted_at = (!seen.is_as_wanted).then(|| since.unwrap_or(now));
        let sql = "INSERT INTO node_settings (node_id, read_at, verified_at, drifted_at, body) \
                   VALUES ($1, $2, $3, $4, $5) ON CONFLICT (node_id) DO UPDATE SET read_at = excluded.read_at, \
                   verified_at = excluded.verified_at, drifted_at = excluded.drifted_at, body = excluded.body";
        let query = statement(sql).bind(node).bind(now.0).bind(verified_at.map(|at| at.0));
        let query = query.bind(drifted_at.map(|at| at.0)).bind(&seen.body);
        query.execute(&mut self.tx).await?;
        let is_other = before.is_none_or(|row| row.drifted_at.is_none() || row.body != seen.body);
        Ok(!seen.is_as_wanted && is_other)
    }

    /// Deletes the reading of a node's settings: no settings are wanted of it any more.
    pub async fn forget_node_settings(&mut self, node: &NodeId) -> Result<()> {
        let query = statement("DELETE FROM node_settings WHERE node_id = $1").bind(node);
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
