//! What the Ethernet cards of nodes heard by LLDP.

use rackwright_lifecycle::Timestamp;

use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

/// What a node's cards heard last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeNeighbours {
    /// The node.
    pub node: String,
    /// The boot of the kernel in which it was heard.
    pub boot_id: String,
    /// When it came.
    pub heard_at: Timestamp,
    /// The agent's message.
    pub body: Vec<u8>,
    /// The differences that have become events; empty: none.
    pub told: String,
}

const READ: &str = "SELECT node_id, boot_id, heard_at, body, told FROM node_neighbours WHERE node_id = $1";

fn row(row: &Row) -> Result<NodeNeighbours> {
    Ok(NodeNeighbours {
        node: row.try_get("node_id")?,
        boot_id: row.try_get("boot_id")?,
        heard_at: Timestamp(row.try_get("heard_at")?),
        body: row.try_get("body")?,
        told: row.try_get("told")?,
    })
}

impl Store {
    /// What a node's cards heard last; none: the agent has never reported.
    ///
    /// # Errors
    /// The database failed.
    pub async fn node_neighbours(&self, node: &str) -> Result<Option<NodeNeighbours>> {
        let found = statement(READ).bind(node).fetch_optional(&self.readers).await?;
        found.as_ref().map(row).transpose()
    }
}

impl WriteTx {
    /// The same, as it is now.
    ///
    /// # Errors
    /// The database failed.
    pub async fn node_neighbours(&mut self, node: &str) -> Result<Option<NodeNeighbours>> {
        let found = statement(READ).bind(node).fetch_optional(&mut self.tx).await?;
        found.as_ref().map(row).transpose()
    }

    /// Keeps what a node's cards heard, in place of what they heard before.
    ///
    /// # Errors
    /// The database failed.
    pub async fn save_neighbours(&mut self, heard: &NodeNeighbours) -> Result<()> {
        let sql = "INSERT INTO node_neighbours (node_id, boot_id, heard_at, body, told) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (node_id) DO UPDATE SET boot_id = excluded.boot_id, heard_at = excluded.heard_at, \
                   body = excluded.body, told = excluded.told";
        let query = statement(sql)
            .bind(&*heard.node)
            .bind(&*heard.boot_id)
            .bind(heard.heard_at.0);
        let query = query.bind(&*heard.body).bind(&*heard.told);
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
