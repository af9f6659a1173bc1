//! Firmware values from nodes' TPMs, and the golden values of SKUs.

use rackwright_lifecycle::{NodeId, Timestamp};

use crate::sql::{Row, statement};
use crate::{Result, Store, StoreError, WriteTx};

/// The firmware values from a node's TPM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FirmwareValuesRow {
    /// Id of the node.
    pub node: NodeId,
    /// When these values were first seen; 0: no values were seen yet.
    pub first_seen_at: Timestamp,
    /// The TPM that reported them, as in [`crate::Spec::tpm_ek`].
    pub tpm_ek: String,
    /// The values, as JSON; empty: no values were seen yet.
    pub body: String,
    /// The last difference that an event reported; empty: none.
    pub reported: String,
    /// When the control plane last updated the firmware, if no session has followed yet; 0: no such update.
    pub updated_at: Timestamp,
    /// The version of that update.
    pub updated_to: String,
}

/// Golden values of a SKU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoldenFirmwareRow {
    /// Derived from SKU and values.
    pub id: String,
    pub sku: String,
    /// The values, as JSON, as in [`FirmwareValuesRow`].
    pub body: String,
    /// When they were approved.
    pub approved_at: Timestamp,
    /// The operator who approved them.
    pub approved_by: String,
    /// The node that showed them.
    pub node: NodeId,
    /// The operator's reason.
    pub reason: String,
}

const VALUES: &str = "SELECT node_id, first_seen_at, tpm_ek, body, reported, updated_at, updated_to \
                      FROM node_firmware_values WHERE node_id = $1";
const GOLDEN: &str = "SELECT id, sku, body, approved_at, approved_by, node_id, reason FROM golden_firmware";

fn values(row: &Row) -> Result<FirmwareValuesRow> {
    Ok(FirmwareValuesRow {
        node: row.id("node_id")?,
        first_seen_at: Timestamp(row.try_get("first_seen_at")?),
        tpm_ek: row.try_get("tpm_ek")?,
        body: row.try_get("body")?,
        reported: row.try_get("reported")?,
        updated_at: Timestamp(row.try_get("updated_at")?),
        updated_to: row.try_get("updated_to")?,
    })
}

fn golden(row: &Row) -> Result<GoldenFirmwareRow> {
    Ok(GoldenFirmwareRow {
        id: row.try_get("id")?,
        sku: row.try_get("sku")?,
        body: row.try_get("body")?,
        approved_at: Timestamp(row.try_get("approved_at")?),
        approved_by: row.try_get("approved_by")?,
        node: row.id("node_id")?,
        reason: row.try_get("reason")?,
    })
}

impl Store {
    /// The firmware values from a node's TPM.
    pub async fn firmware_values(&self, node: &NodeId) -> Result<Option<FirmwareValuesRow>> {
        let row = statement(VALUES).bind(node).fetch_optional(&self.readers).await?;
        row.as_ref().map(values).transpose()
    }

    /// The golden values of a SKU, the newest first.
    pub async fn golden_firmware_of(&self, sku: &str) -> Result<Vec<GoldenFirmwareRow>> {
        let rows = statement(format!("{GOLDEN} WHERE sku = $1 ORDER BY approved_at DESC, id")).bind(sku);
        rows.fetch_all(&self.readers).await?.iter().map(golden).collect()
    }

    /// All golden values, by SKU, the newest first.
    pub async fn golden_firmware(&self) -> Result<Vec<GoldenFirmwareRow>> {
        let rows = statement(format!("{GOLDEN} ORDER BY sku, approved_at DESC, id"));
        rows.fetch_all(&self.readers).await?.iter().map(golden).collect()
    }

    /// Stores that the control plane has updated the firmware of a node. Updates since the last session are listed
    /// together.
    ///
    /// # Errors
    /// The database failed, or the node does not exist.
    pub async fn record_firmware_update(&self, node: &NodeId, at: Timestamp, to: &str) -> Result<()> {
        let sql = "INSERT INTO node_firmware_values \
                   (node_id, first_seen_at, tpm_ek, body, reported, updated_at, updated_to) \
                   VALUES ($1, 0, '', '', '', $2, $3) \
                   ON CONFLICT (node_id) DO UPDATE SET updated_at = excluded.updated_at, updated_to = CASE \
                   WHEN node_firmware_values.updated_at = 0 OR length(node_firmware_values.updated_to) > 200 \
                   THEN excluded.updated_to ELSE node_firmware_values.updated_to || ', ' || excluded.updated_to END";
        self.execute(statement(sql).bind(node).bind(at.0).bind(to))
            .await
            .map(drop)
    }
}

impl WriteTx {
    /// As [`Store::firmware_values`], within this change.
    pub async fn firmware_values(&mut self, node: &NodeId) -> Result<Option<FirmwareValuesRow>> {
        let row = statement(VALUES).bind(node).fetch_optional(&mut self.tx).await?;
        row.as_ref().map(values).transpose()
    }

    /// Stores the firmware values from a node's TPM.
    ///
    /// # Errors
    /// The database failed, or the node does not exist.
    pub async fn put_firmware_values(&mut self, row: &FirmwareValuesRow) -> Result<()> {
        let sql = "INSERT INTO node_firmware_values \
                   (node_id, first_seen_at, tpm_ek, body, reported, updated_at, updated_to) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (node_id) DO UPDATE SET \
                   first_seen_at = excluded.first_seen_at, tpm_ek = excluded.tpm_ek, body = excluded.body, \
                   reported = excluded.reported, updated_at = excluded.updated_at, updated_to = excluded.updated_to";
        let query = statement(sql)
            .bind(row.node.as_str())
            .bind(row.first_seen_at.0)
            .bind(row.tpm_ek.as_str())
            .bind(row.body.as_str())
            .bind(row.reported.as_str())
            .bind(row.updated_at.0)
            .bind(row.updated_to.as_str());
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// As [`Store::golden_firmware_of`], within this change.
    pub async fn golden_firmware_of(&mut self, sku: &str) -> Result<Vec<GoldenFirmwareRow>> {
        let rows = statement(format!("{GOLDEN} WHERE sku = $1 ORDER BY approved_at DESC, id")).bind(sku);
        rows.fetch_all(&mut self.tx).await?.iter().map(golden).collect()
    }

    /// Adds golden values. Returns false for values that are approved already; they keep their first approval.
    pub async fn add_golden_firmware(&mut self, row: &GoldenFirmwareRow) -> Result<bool> {
        let sql = "INSERT INTO golden_firmware (id, sku, body, approved_at, approved_by, node_id, reason) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING";
        let query = statement(sql)
            .bind(row.id.as_str())
            .bind(row.sku.as_str())
            .bind(row.body.as_str())
            .bind(row.approved_at.0)
            .bind(row.approved_by.as_str())
            .bind(row.node.as_str())
            .bind(row.reason.as_str());
        Ok(query.execute(&mut self.tx).await? == 1)
    }

    /// Removes golden values, and returns them.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: no golden values have this id.
    pub async fn remove_golden_firmware(&mut self, id: &str) -> Result<GoldenFirmwareRow> {
        let found = statement(format!("{GOLDEN} WHERE id = $1")).bind(id);
        let Some(row) = found.fetch_optional(&mut self.tx).await? else {
            return Err(StoreError::NotFound {
                kind: "golden firmware",
                id: id.to_owned(),
            });
        };
        let delete = statement("DELETE FROM golden_firmware WHERE id = $1").bind(id);
        delete.execute(&mut self.tx).await?;
        golden(&row)
    }
}
