//! Nodes by properties of their states: nodes at rest, with watched power, and nodes that are worked on.

use rackwright_lifecycle::{NodeId, State, Timestamp};

use crate::error::corrupt;
use crate::sql::statement;
use crate::{Readings, Result, Store};

/// Rows that are read with one statement.
const BATCH: usize = 64;

/// A node at rest without an open attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestingRow {
    /// Id of the node.
    pub id: NodeId,
    /// Version of its row.
    pub version: i64,
    /// The number of its agent's connection.
    pub session: i64,
    /// The last readings.
    pub readings: Readings,
}

/// The states with a property, as an SQL list.
fn states(is: impl Fn(State) -> bool) -> String {
    let states = State::ALL.iter().filter(|state| is(**state));
    states.map(|state| format!("'{state}'")).collect::<Vec<_>>().join(", ")
}

/// The condition of a node at rest, not doubted, without an open attempt.
fn at_rest() -> String {
    let states = states(State::is_at_rest);
    format!(
        "state IN ({states}) AND doubt_cause = '' AND NOT EXISTS (SELECT 1 FROM effects e WHERE e.node_id = nodes.id AND e.ended_at IS NULL)"
    )
}

impl Store {
    /// Makes every node due that a former process may have left in the middle of a step.
    pub async fn wake_unfinished(&self, now: Timestamp) -> Result<u64> {
        let sql = format!(
            "UPDATE nodes SET due_at = $1 WHERE state IN ({}) \
             OR id IN (SELECT node_id FROM effects WHERE ended_at IS NULL)",
            states(|state| !state.is_at_rest())
        );
        self.execute(statement(sql).bind(now.0).blocking()).await
    }

    /// Ids after `after` of nodes at rest without an open attempt, in order, at most `limit`.
    pub async fn resting_ids(&self, after: &str, limit: i64) -> Result<Vec<NodeId>> {
        let sql = format!(
            "SELECT id FROM nodes WHERE id > $1 AND {} ORDER BY id LIMIT $2",
            at_rest()
        );
        let query = statement(sql).bind(after).bind(limit);
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(row.id(0)?)).collect()
    }

    /// The nodes of `ids` that are at rest without an open attempt.
    pub async fn resting(&self, ids: &[&NodeId]) -> Result<Vec<RestingRow>> {
        // The same SQL text for all batches, so that it is prepared once.
        let places: Vec<String> = (1..=BATCH).map(|n| format!("${n}")).collect();
        let sql = format!(
            "SELECT id, version, agent_session, readings FROM nodes WHERE id IN ({}) AND {}",
            places.join(", "),
            at_rest()
        );
        let mut found = Vec::with_capacity(ids.len());
        for batch in ids.chunks(BATCH) {
            let padding = std::iter::repeat_n("", BATCH - batch.len());
            let query = statement(sql.clone());
            let query = batch
                .iter()
                .map(|id| id.as_str())
                .chain(padding)
                .fold(query, |query, id| query.bind(id));
            for row in query.fetch_all(&self.readers).await? {
                let id: NodeId = row.id("id")?;
                let readings =
                    serde_json::from_str(row.try_get("readings")?).map_err(|e| corrupt("node", id.as_str(), e))?;
                found.push(RestingRow {
                    version: row.try_get("version")?,
                    session: row.try_get("agent_session")?,
                    readings,
                    id,
                });
            }
        }
        Ok(found)
    }
}
