//! The nodes of all clusters, as far as lists and the fabric watch need them.

use std::collections::BTreeMap;

use rackwright_lifecycle::{ClusterId, NodeId, Power, Reading, State, Timestamp, Wait};

use crate::error::corrupt;
use crate::sql::{Row, statement};
use crate::{Readings, Result, Scope, Store, waits};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNode {
    /// Id of the node.
    pub node: NodeId,
    /// Id of the cluster.
    pub cluster: ClusterId,
    /// The node's state.
    pub state: State,
    /// When the node entered the state.
    pub since: Timestamp,
    /// The node's wait.
    pub wait: Wait,
    /// The last reading of its power.
    pub power: Reading<Power>,
}

/// The size of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterNodeCount {
    /// All nodes, spares included.
    pub nodes: u32,
    /// Nodes that are handed over and in use.
    pub active: u32,
}

fn cluster_nodes(row: &Row) -> Result<ClusterNode> {
    let node: NodeId = row.id("id")?;
    let state: String = row.try_get("state")?;
    let readings: Readings =
        serde_json::from_str(row.try_get("readings")?).map_err(|e| corrupt("node", node.as_str(), e))?;
    Ok(ClusterNode {
        cluster: row.id("cluster_id")?,
        state: State::parse(&state)
            .ok_or_else(|| corrupt("node", node.as_str(), format!("unknown state {state:?}")))?,
        since: Timestamp(row.try_get("state_since")?),
        wait: waits::from_text(node.as_str(), row.try_get("wait")?)?,
        power: readings.power,
        node,
    })
}

impl Store {
    /// The nodes of all clusters with a system that runs or is being checked, by id.
    pub async fn list_cluster_nodes(&self) -> Result<Vec<ClusterNode>> {
        let sql = "SELECT n.id, c.cluster_id, n.state, n.state_since, n.wait, n.readings FROM cluster_nodes c \
                   JOIN nodes n ON n.id = c.node_id WHERE n.state IN ('active', 'validating') ORDER BY n.id";
        let rows = statement(sql).blocking().fetch_all(&self.readers).await?;
        rows.iter().map(cluster_nodes).collect()
    }

    /// The sizes of the clusters with ids from `first` to `last`. Clusters without nodes are omitted.
    pub async fn count_cluster_nodes(
        &self,
        scope: &Scope,
        first: &ClusterId,
        last: &ClusterId,
    ) -> Result<BTreeMap<ClusterId, ClusterNodeCount>> {
        let sql = format!(
            "SELECT c.cluster_id, COUNT(*), COUNT(CASE WHEN n.state = 'active' THEN 1 END) FROM cluster_nodes c \
             JOIN nodes n ON n.id = c.node_id WHERE c.cluster_id >= $1 AND c.cluster_id <= $2{} GROUP BY c.cluster_id",
            scope.rows("n.customer", 3)
        );
        let query = scope.bind(statement(sql).bind(first).bind(last));
        let rows = query.blocking().fetch_all(&self.readers).await?;
        let number = |row: &Row, at: usize| -> Result<u32> {
            let count: i64 = row.try_get(at)?;
            Ok(u32::try_from(count).unwrap_or(u32::MAX))
        };
        rows.iter()
            .map(|row| {
                let (nodes, active) = (number(row, 1)?, number(row, 2)?);
                Ok((row.id(0)?, ClusterNodeCount { nodes, active }))
            })
            .collect()
    }
}
