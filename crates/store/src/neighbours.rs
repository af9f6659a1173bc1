//! The switch ports that nodes' Ethernet cards heard by LLDP.

use rackwright_lifecycle::{NodeId, Timestamp};

use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

/// The last LLDP report of a node's cards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeNeighbours {
    /// Id of the node.
    pub node: NodeId,
    /// The kernel's boot id at the report.
    pub boot_id: String,
    /// When the report arrived.
    pub heard_at: Timestamp,
    /// The agent's encoded message.
    pub body: Vec<u8>,
    /// The differences that were reported as events; empty: none.
    pub reported: String,
}

const READ: &str = "SELECT node_id, boot_id, heard_at, body, told FROM node_neighbours WHERE node_id = $1";

fn row(row: &Row) -> Result<NodeNeighbours> {
    Ok(NodeNeighbours {
        node: row.id("node_id")?,
        boot_id: row.try_get("boot_id")?,
        heard_at: Timestamp(row.try_get("heard_at")?),
        body: row.try_get("body")?,
        reported: row.try_get("told")?,
    })
}

impl Store {
    /// The last report of a node's cards; none: the agent has never reported.
    pub async fn node_neighbours(&self, node: &NodeId) -> Result<Option<NodeNeighbours>> {
        let found = statement(READ).bind(node).fetch_optional(&self.readers).await?;
        found.as_ref().map(row).transpose()
    }
}

impl WriteTx {
    /// As [`Store::node_neighbours`], within this change.
    pub async fn node_neighbours(&mut self, node: &NodeId) -> Result<Option<NodeNeighbours>> {
        let found = statement(READ).bind(node).fetch_optional(&mut self.tx).await?;
        found.as_ref().map(row).transpose()
    }

    /// Stores a report of a node's cards, and replaces the former one.
    pub async fn save_neighbours(&mut self, heard: &NodeNeighbours) -> Result<()> {
        let sql = "INSERT INTO node_neighbours (node_id, boot_id, heard_at, body, told) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (node_id) DO UPDATE SET boot_id = excluded.boot_id, heard_at = excluded.heard_at, \
                   body = excluded.body, told = excluded.told";
        let query = statement(sql)
            .bind(&heard.node)
            .bind(&*heard.boot_id)
            .bind(heard.heard_at.0);
        let query = query.bind(&*heard.body).bind(&*heard.reported);
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
