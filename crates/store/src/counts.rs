//! Counts over all nodes, read on demand and not cached.

use rackwright_lifecycle::Timestamp;

use crate::filter::{self, Conditions, Filter};
use crate::sql::{Row, statement};
use crate::{Result, Scope, Store};

/// Nodes that have all of these values in common. The words are those of a filter over nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeCount {
    pub state: String,
    /// "ok", "unknown", "unreachable", "login-refused" or "doubted".
    pub health: String,
    /// "on", "off", "changing" or "unknown".
    pub power: String,
    /// The kind of the wait (`Wait::label`); empty: the nodes wait for nothing.
    pub wait: String,
    /// Class of the machines.
    pub sku: String,
    /// The customer of the claim; empty: none.
    pub customer: String,
    /// Their agents are connected.
    pub has_agent: bool,
    /// Number of nodes.
    pub nodes: i64,
}

impl Store {
    /// Number of nodes in each state.
    pub async fn count_by_state(&self) -> Result<Vec<(String, i64)>> {
        let rows = statement("SELECT state, COUNT(*) FROM nodes GROUP BY state")
            .blocking()
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(|r| Ok((r.try_get(0)?, r.try_get(1)?))).collect()
    }

    /// Number of nodes by the values that they have in common. Reads all nodes that match, once.
    pub async fn count_nodes(&self, scope: &Scope, filter: &Filter) -> Result<Vec<NodeCount>> {
        let conditions = Conditions::of(filter, 1, |made, term| filter::of_node(self.kind, made, term));
        let sql = format!(
            "SELECT state, health, power, wait_kind, sku, customer, has_agent, COUNT(*) FROM \
             (SELECT n.state, {} AS health, {} AS power, n.wait_kind, n.sku, n.customer, \
             CAST(CASE WHEN n.agent_holder = '' THEN 0 ELSE 1 END AS BIGINT) AS has_agent FROM nodes n WHERE n.id <> ''{}{}) AS each_node \
             GROUP BY state, health, power, wait_kind, sku, customer, has_agent",
            filter::health(self.kind),
            filter::power(self.kind),
            conditions.sql,
            scope.rows("n.customer", conditions.values.len() + 1),
        );
        let query = conditions
            .values
            .iter()
            .fold(statement(sql), |query, value| query.bind(value));
        let rows = scope.bind(query).blocking().fetch_all(&self.readers).await?;
        let row = |r: &Row| {
            Ok(NodeCount {
                state: r.try_get(0)?,
                health: r.try_get(1)?,
                power: r.try_get(2)?,
                wait: r.try_get(3)?,
                sku: r.try_get(4)?,
                customer: r.try_get(5)?,
                has_agent: r.try_get::<i64>(6)? != 0,
                nodes: r.try_get(7)?,
            })
        };
        rows.iter().map(row).collect()
    }

    /// Number of waiting nodes, by state and by the kind of the wait (`Wait::label`). Nodes at rest do not wait.
    pub async fn count_waiting(&self) -> Result<Vec<(String, String, i64)>> {
        let sql = "SELECT state, wait_kind, COUNT(*) FROM nodes WHERE wait_kind <> '' GROUP BY state, wait_kind";
        let rows = statement(sql).blocking().fetch_all(&self.readers).await?;
        let row = |r: &Row| Ok((r.try_get(0)?, r.try_get(1)?, r.try_get(2)?));
        rows.iter().map(row).collect()
    }

    /// For each state, when its longest-staying node entered it; `active` and `available`, where nodes stay, are omitted.
    pub async fn oldest_by_state(&self) -> Result<Vec<(String, Timestamp)>> {
        let sql = "SELECT state, MIN(state_since) FROM nodes WHERE state NOT IN ('active', 'available') GROUP BY state";
        let rows = statement(sql).blocking().fetch_all(&self.readers).await?;
        rows.iter()
            .map(|r| Ok((r.try_get(0)?, Timestamp(r.try_get(1)?))))
            .collect()
    }

    /// Number of nodes that are due and not leased.
    pub async fn count_due(&self, now: Timestamp) -> Result<i64> {
        let query = statement("SELECT COUNT(*) FROM nodes WHERE due_at <= $1").bind(now.0);
        Ok(query.blocking().fetch_one(&self.readers).await?.try_get(0)?)
    }
}
