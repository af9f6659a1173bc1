//! Foreign things on nodes' BMCs, as of the last reading.

use rackwright_lifecycle::bmc_state::uefi::Baseline;
use rackwright_lifecycle::bmc_state::{ItemState, Part};
use rackwright_lifecycle::{NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::corrupt;
use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

/// One thing or part of a BMC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BmcStateLine {
    /// The state of the thing or part.
    pub held: ItemState,
    /// The part of the BMC.
    pub part: Part,
    /// Description for people, without secrets.
    pub words: String,
}

/// The last reading of one BMC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BmcStateRow {
    /// When it was read.
    pub read_at: Timestamp,
    /// When it was last proven free of foreign things.
    pub proven_at: Option<Timestamp>,
    /// Each reportable thing.
    pub lines: Vec<BmcStateLine>,
    /// The persistent boot order, as the BMC writes it.
    pub boot_order: Vec<String>,
}

/// The stored form.
#[derive(Serialize, Deserialize)]
struct Body {
    lines: Vec<BmcStateLine>,
    boot_order: Vec<String>,
}

const ROW: &str = "SELECT read_at, proven_at, body FROM node_bmc_state WHERE node_id = $1";

fn read(node: &NodeId, row: &Row) -> Result<BmcStateRow> {
    let body: Body = serde_json::from_str(row.try_get("body")?).map_err(|e| corrupt("node", node.as_str(), e))?;
    Ok(BmcStateRow {
        read_at: Timestamp(row.try_get("read_at")?),
        proven_at: row.try_get::<Option<i64>>("proven_at")?.map(Timestamp),
        lines: body.lines,
        boot_order: body.boot_order,
    })
}

impl Store {
    /// The last reading of a node's BMC.
    pub async fn bmc_state(&self, node: &NodeId) -> Result<Option<BmcStateRow>> {
        let row = statement(ROW).bind(node).fetch_optional(&self.readers).await?;
        row.as_ref().map(|row| read(node, row)).transpose()
    }

    /// The baseline for a node's boot options and Secure Boot.
    pub async fn uefi_baseline(&self, node: &NodeId) -> Result<Option<Baseline>> {
        let sql = "SELECT body FROM node_uefi WHERE node_id = $1";
        let row = statement(sql).bind(node).fetch_optional(&self.readers).await?;
        let body = row.as_ref().map(|row| row.try_get::<&str>("body")).transpose()?;
        body.map(|body| serde_json::from_str(body).map_err(|e| corrupt("node", node.as_str(), e)))
            .transpose()
    }
}

impl WriteTx {
    /// Stores a reading of a node's BMC. A reading without a proof keeps the time of the last proof.
    pub async fn put_bmc_state(&mut self, node: &NodeId, state: &BmcStateRow) -> Result<()> {
        let body = Body {
            lines: state.lines.clone(),
            boot_order: state.boot_order.clone(),
        };
        let body = serde_json::to_string(&body).map_err(|e| corrupt("node", node.as_str(), e))?;
        let sql = "INSERT INTO node_bmc_state (node_id, read_at, proven_at, body) VALUES ($1, $2, $3, $4) \
                   ON CONFLICT (node_id) DO UPDATE SET read_at = excluded.read_at, \
                   proven_at = COALESCE(excluded.proven_at, node_bmc_state.proven_at), body = excluded.body";
        let query = statement(sql).bind(node).bind(state.read_at.0);
        let query = query.bind(state.proven_at.map(|at| at.0)).bind(body);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Stores the baseline for a node's boot options and Secure Boot.
    pub async fn put_uefi_baseline(&mut self, node: &NodeId, baseline: &Baseline) -> Result<()> {
        let body = serde_json::to_string(baseline).map_err(|e| corrupt("node", node.as_str(), e))?;
        let sql = "INSERT INTO node_uefi (node_id, body) VALUES ($1, $2) \
                   ON CONFLICT (node_id) DO UPDATE SET body = excluded.body";
        statement(sql).bind(node).bind(body).execute(&mut self.tx).await?;
        Ok(())
    }
}
