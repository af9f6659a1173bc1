//! The replica that has the connection of a node's agent. A connection costs one write, its end another, a heartbeat none.

use rackwright_lifecycle::{NodeId, Timestamp};

use crate::sql::{Query, statement};
use crate::{Change, Result, Store, StoreError, WriteTx};

/// The connection of a node's agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentConnection {
    /// The replica that has it; empty: none.
    pub replica: String,
    /// Grows with every connection and with every end of one. A decision based on an older number is refused.
    pub session: i64,
    /// When the last connection was found to be gone.
    pub gone_at: Timestamp,
    /// The claim and the boot of the connection. A connection with other values is ignored.
    pub of: AgentSession,
    /// How the machine was identified: "tpm", "bmc", "address only"; empty: not recorded.
    pub identity: String,
}

impl AgentConnection {
    /// Marks the end of the connection.
    pub fn end(&mut self, now: Timestamp) {
        self.replica.clear();
        self.session += 1;
        self.gone_at = now;
    }
}

/// The claim and the boot of an agent's session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentSession {
    /// The claim generation of the node.
    pub generation: u64,
    /// The id of the effect that switched the machine on.
    pub boot: String,
}

impl Store {
    /// Nodes with an agent connected to `replica`, and the numbers of the connections.
    pub async fn connected_agents(&self, replica: &str) -> Result<Vec<(NodeId, i64)>> {
        // Repeats the condition of the partial index, so that the index is used.
        let sql = "SELECT id, agent_session FROM nodes WHERE agent_holder = $1 AND agent_holder <> ''";
        let rows = statement(sql).bind(replica).fetch_all(&self.readers).await?;
        rows.iter().map(|r| Ok((r.id(0)?, r.try_get(1)?))).collect()
    }

    /// Ends every agent connection of `replica`, left by a former process of it. Their nodes become due.
    pub async fn disconnect_agents_of(&self, replica: &str, now: Timestamp) -> Result<u64> {
        let condition = "agent_holder = $2";
        let query = self.disconnect_sql(condition);
        self.disconnected(statement(query).bind(now.0).bind(replica)).await
    }

    /// Ends every agent connection of replicas without a heartbeat since `since`. Their nodes become due.
    pub async fn disconnect_agents_of_dead(&self, since: Timestamp, now: Timestamp) -> Result<u64> {
        let condition = "agent_holder NOT IN (SELECT r.id FROM replicas r WHERE r.heard_at >= $2)";
        let query = self.disconnect_sql(condition);
        self.disconnected(statement(query).bind(now.0).bind(since.0)).await
    }

    /// Skips nodes that another change has locked, until the next call: so two changes never wait for each other here.
    fn disconnect_sql(&self, condition: &str) -> String {
        format!(
            "WITH held AS MATERIALIZED (SELECT id FROM nodes WHERE agent_holder <> '' AND {condition}{}) \
             UPDATE nodes SET agent_holder = '', agent_session = agent_session + 1, agent_gone_at = $1, \
             due_at = CASE WHEN due_at > $1 THEN $1 ELSE due_at END FROM held WHERE nodes.id = held.id",
            self.kind.for_update_skip_locked()
        )
    }

    async fn disconnected(&self, query: Query<'_>) -> Result<u64> {
        let disconnected = self.execute(query).await?;
        if disconnected > 0 {
            self.hints.send(Change::Due);
        }
        Ok(disconnected)
    }

    /// Makes `ca_sha256` the site's authority in this database, if it has none yet. Returns the one it has.
    pub async fn site_authority(&self, ca_sha256: &str) -> Result<String> {
        let query = statement("INSERT INTO site (id, ca_sha256) VALUES (1, $1) ON CONFLICT DO NOTHING");
        self.execute(query.bind(ca_sha256)).await?;
        let row = statement("SELECT ca_sha256 FROM site").fetch_one(&self.readers).await?;
        Ok(row.try_get(0)?)
    }
}

impl WriteTx {
    /// Stores that a node's agent is connected to `replica`, wherever it was before, with the session's claim and boot and
    /// the machine's identity. Returns the number of this connection.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the node does not exist.
    pub async fn connect_agent(
        &mut self,
        id: &NodeId,
        replica: &str,
        of: &AgentSession,
        identity: &str,
    ) -> Result<i64> {
        let sql = "UPDATE nodes SET agent_holder = $1, agent_session = agent_session + 1, agent_generation = $3, \
                   agent_boot = $4, agent_identity = $5 WHERE id = $2 RETURNING agent_session";
        let query = statement(sql).bind(replica).bind(id);
        let query = query
            .bind(i64::try_from(of.generation).unwrap_or(i64::MAX))
            .bind(&of.boot)
            .bind(identity);
        let row = query.fetch_optional(&mut self.tx).await?;
        let row = row.ok_or_else(|| StoreError::NotFound {
            kind: "node",
            id: id.to_string(),
        })?;
        Ok(row.try_get(0)?)
    }

    /// Stores the end of the connection with that number; its node becomes due. Returns false if it was not the present
    /// connection.
    pub async fn disconnect_agent(&mut self, id: &NodeId, session: i64, now: Timestamp) -> Result<bool> {
        let sql = "UPDATE nodes SET agent_holder = '', agent_session = agent_session + 1, agent_gone_at = $1, \
                   due_at = CASE WHEN due_at > $1 THEN $1 ELSE due_at END \
                   WHERE id = $2 AND agent_session = $3 AND agent_holder <> ''";
        let query = statement(sql).bind(now.0).bind(id).bind(session);
        let is_done = query.execute(&mut self.tx).await? > 0;
        if is_done {
            self.due.push(id.clone());
            self.ended_sessions.push((id.clone(), session + 1));
        }
        Ok(is_done)
    }

    /// Nodes with an agent session that this change ends, and the number from which on a session is valid again: the holder
    /// of such a connection closes it after the commit.
    pub fn take_ended_sessions(&mut self) -> Vec<(NodeId, i64)> {
        std::mem::take(&mut self.ended_sessions)
    }
}
