//! Nodes: the record, leases, filters, history.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_lifecycle::{
    Agent, Bmc, BootTarget, Claim, Edge, Evidence, Network, Node, NodeId, Power, Reading, State, Timestamp, Wait,
    Wanted,
};
use serde::{Deserialize, Serialize};

use crate::error::corrupt;
use crate::filter::{self, Conditions, Filter, NodeOrder, NodePlace};
use crate::seen::readings_text;
use crate::sql::{Row, statement};
use crate::{
    AgentConnection, AgentSession, BmcAccount, Change, Result, Scope, Store, StoreError, WriteTx, restored, waits,
};

/// The address and login of the node's BMC, and the class of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spec {
    /// `https://HOST[:PORT][/BASE]`
    pub bmc_address: String,
    /// User name for the BMC.
    pub bmc_username: String,
    /// Sealed password.
    pub bmc_password: Vec<u8>,
    /// SHA-256 of the BMC's certificate, "sha256:" and 64 hex digits; empty: none was seen yet.
    pub bmc_certificate: String,
    /// Path of the system at the BMC; empty: the BMC has only one.
    pub bmc_system: String,
    /// Class of the machine.
    pub sku: String,
    /// MAC addresses of network cards that the machine boots from, as operators gave them; lower case with colons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boot_macs: Vec<String>,
    /// The state of the account.
    #[serde(default)]
    pub account: BmcAccount,
    /// Where the BMC reports the job that applies the last written settings; empty: there is no such job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings_job: Vec<String>,
    /// The enrolled TPM: "sha256:" and the digest of its endorsement key's public area; empty: none is enrolled.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tpm_ek: String,
}

/// The machine's identity, as the BMC reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Identity {
    /// SMBIOS UUID, lower case.
    pub uuid: String,
    /// Serial number of the system.
    pub serial: String,
    /// Manufacturer.
    pub vendor: String,
    /// Model name.
    pub model: String,
    /// MAC addresses of the BMC's report and of `Spec::boot_macs`, lower case with colons.
    pub macs: Vec<String>,
    /// MAC addresses in the machine's boot options at its first identification, where there were no others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boot_option_macs: Vec<String>,
    /// The BMC reports firmware measurements of components (`ComponentIntegrity`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attests_components: bool,
}

/// Readings that survive a restart of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Readings {
    /// Whether the BMC answers.
    pub bmc: Reading<Bmc>,
    /// The power state.
    pub power: Reading<Power>,
    /// The boot target, as set and read back.
    pub boot_target: Reading<BootTarget>,
    /// The network in which all of its switch ports were read.
    pub network: Reading<Network>,
    /// When the agent reported the inventory.
    pub inventory: Reading<()>,
    /// The agent, as last seen by the replica with its connection.
    pub agent: Reading<Agent>,
    /// The agent's last boot, and when it first connected.
    pub boot: Option<(String, Timestamp)>,
}

/// A node's row.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRecord {
    /// Chosen at enrolment.
    pub id: NodeId,
    /// Never reused.
    pub uid: String,
    /// Grows with every change of a decision or a request; 0 before the first write.
    pub version: i64,
    /// The node as the decisions see it.
    pub node: Node,
    /// How to reach the BMC.
    pub spec: Spec,
    /// Labels by key.
    pub labels: BTreeMap<String, String>,
    /// The machine's identity.
    pub identity: Identity,
    /// Why the node is failed, quarantined or held.
    pub reason: String,
    /// The last readings.
    pub readings: Readings,
    /// The connection of its agent.
    pub hold: AgentConnection,
    /// Address of the installed system. Empty: unknown.
    pub address: String,
    /// Source of the address: "dhcp" (leased by the control plane), "connection" (the agent's registered boot came from
    /// it), or empty.
    pub address_witness: String,
    /// What the node waits for.
    pub wait: Wait,
    /// End of the wait.
    pub wait_until: Timestamp,
    /// When the next step is due. Every change by others sets it.
    pub due_at: Timestamp,
    /// When it was enrolled.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Body {
    generation: u64,
    claim: Option<Claim>,
    wanted: Wanted,
    evidence: Evidence,
    spec: Spec,
    labels: BTreeMap<String, String>,
    identity: Identity,
    reason: String,
}

/// One edge taken by a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRow {
    /// Name of the edge.
    pub edge: String,
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// When the edge was taken.
    pub at: Timestamp,
    /// Microseconds spent in the former state.
    pub spent_us: i64,
    /// Why the edge was taken, for operators.
    pub reason: String,
}

pub(crate) const COLUMNS: &str = "SELECT id, uid, version, state, state_since, body, readings, address, due_at, wait, wait_until, \
                       created_at, updated_at, agent_holder, agent_session, agent_gone_at, agent_generation, agent_boot, \
                       agent_identity, address_witness, doubt_cause, doubt_since, doubt_why, doubt_generation FROM nodes n";

/// The replica that must take a node: the one that makes its open attempt; else the one with the agent's connection. Empty:
/// any replica.
const TURN: &str = "COALESCE((SELECT e.owner FROM effects e WHERE e.node_id = nodes.id AND e.ended_at IS NULL), \
                    agent_holder)";

impl NodeRecord {
    /// Digests of the claimed image and of the image on the drive; empty: none.
    fn images(&self) -> (&str, &str) {
        let claimed = self.node.claim.as_ref().map_or("", |c| &c.image_digest);
        let held = self.node.evidence.image_digest.as_deref().unwrap_or_default();
        (claimed, held)
    }

    /// The customer of the claim; empty: none.
    pub(crate) fn customer(&self) -> &str {
        self.node.claim.as_ref().map_or("", |claim| claim.customer.as_str())
    }

    fn body(&self) -> Result<String> {
        let body = Body {
            generation: self.node.generation,
            claim: self.node.claim.clone(),
            wanted: self.node.wanted.clone(),
            evidence: self.node.evidence.clone(),
            spec: self.spec.clone(),
            labels: self.labels.clone(),
            identity: self.identity.clone(),
            reason: self.reason.clone(),
        };
        serde_json::to_string(&body).map_err(|e| corrupt("node", self.id.as_str(), e))
    }

    pub(crate) fn from_row(row: &Row) -> Result<Self> {
        let id: NodeId = row.id("id")?;
        let state: String = row.try_get("state")?;
        let state =
            State::parse(&state).ok_or_else(|| corrupt("node", id.as_str(), format!("unknown state {state:?}")))?;
        let body: Body = serde_json::from_str(row.try_get("body")?).map_err(|e| corrupt("node", id.as_str(), e))?;
        let readings = serde_json::from_str(row.try_get("readings")?).map_err(|e| corrupt("node", id.as_str(), e))?;
        Ok(Self {
            uid: row.try_get("uid")?,
            version: row.try_get("version")?,
            node: Node {
                state,
                since: Timestamp(row.try_get("state_since")?),
                generation: body.generation,
                claim: body.claim,
                wanted: body.wanted,
                evidence: body.evidence,
                doubt: restored::doubt(&id, row)?,
            },
            spec: body.spec,
            labels: body.labels,
            identity: body.identity,
            reason: body.reason,
            readings,
            hold: AgentConnection {
                replica: row.try_get("agent_holder")?,
                session: row.try_get("agent_session")?,
                gone_at: Timestamp(row.try_get("agent_gone_at")?),
                of: AgentSession {
                    generation: row.unsigned("agent_generation", "node", id.as_str())?,
                    boot: row.try_get("agent_boot")?,
                },
                identity: row.try_get("agent_identity")?,
            },
            address: row.try_get("address")?,
            address_witness: row.try_get("address_witness")?,
            due_at: Timestamp(row.try_get("due_at")?),
            wait: waits::from_text(id.as_str(), row.try_get("wait")?)?,
            wait_until: Timestamp(row.try_get("wait_until")?),
            created_at: Timestamp(row.try_get("created_at")?),
            updated_at: Timestamp(row.try_get("updated_at")?),
            id,
        })
    }
}

fn not_found(id: &NodeId) -> StoreError {
    StoreError::NotFound {
        kind: "node",
        id: id.to_string(),
    }
}

impl Store {
    /// One node.
    ///
    /// # Errors
    /// `NotFound`: there is none, or it is outside the scope.
    pub async fn node(&self, scope: &Scope, id: &NodeId) -> Result<NodeRecord> {
        let sql = format!("{COLUMNS} WHERE id = $1{}", scope.rows("customer", 2));
        let row = scope
            .bind(statement(sql).bind(id))
            .fetch_optional(&self.readers)
            .await?
            .ok_or_else(|| not_found(id))?;
        NodeRecord::from_row(&row)
    }

    /// Nodes by id after `after`, at most `limit`.
    pub async fn nodes(&self, scope: &Scope, filter: &Filter, after: &str, limit: i64) -> Result<Vec<NodeRecord>> {
        let after = NodePlace {
            id: after.to_owned(),
            ..NodePlace::default()
        };
        self.nodes_in_order(scope, filter, NodeOrder::default(), Some(&after), limit)
            .await
    }

    /// Nodes in an order, after a place in it (`None`: from its beginning), at most `limit`.
    pub async fn nodes_in_order(
        &self,
        scope: &Scope,
        filter: &Filter,
        order: NodeOrder,
        after: Option<&NodePlace>,
        limit: i64,
    ) -> Result<Vec<NodeRecord>> {
        let conditions = Conditions::of(filter, 4, |made, term| filter::of_node(self.kind, made, term));
        let scope_condition = scope.rows("n.customer", conditions.values.len() + 4);
        let (beyond, order) = order.sql(after.is_none());
        let sql = format!(
            "{COLUMNS} WHERE {beyond}{}{scope_condition} ORDER BY {order} LIMIT $3",
            conditions.sql
        );
        let first = NodePlace::default();
        let after = after.unwrap_or(&first);
        let query = statement(sql).bind(&after.value).bind(&after.id).bind(limit);
        let query = conditions.values.iter().fold(query, |query, value| query.bind(value));
        scope
            .bind(query)
            .blocking()
            .fetch_all(&self.readers)
            .await?
            .iter()
            .map(NodeRecord::from_row)
            .collect()
    }

    /// The node that has a MAC address.
    pub async fn node_of_mac(&self, mac: &str) -> Result<Option<NodeId>> {
        let row = statement("SELECT node_id FROM nics WHERE mac = $1").bind(mac);
        Ok(row.fetch_optional(&self.readers).await?.map(|r| r.id(0)).transpose()?)
    }

    /// The inventory as the agent reported it; none: never reported.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the node does not exist.
    pub async fn inventory(&self, id: &NodeId) -> Result<Option<Vec<u8>>> {
        self.read_inventory(id, "reported").await
    }

    /// The expected inventory of the machine; none before its first inspection.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the node does not exist.
    pub async fn expected_inventory(&self, id: &NodeId) -> Result<Option<Vec<u8>>> {
        self.read_inventory(id, "expected").await
    }

    async fn read_inventory(&self, id: &NodeId, column: &'static str) -> Result<Option<Vec<u8>>> {
        let sql = format!("SELECT {column} FROM nodes LEFT JOIN node_inventories ON node_id = id WHERE id = $1");
        let row = statement(sql).bind(id).fetch_optional(&self.readers).await?;
        Ok(row.ok_or_else(|| not_found(id))?.try_get(0)?)
    }

    /// Edges taken, newest first.
    pub async fn history(&self, id: &NodeId, limit: i64) -> Result<Vec<HistoryRow>> {
        let sql = "SELECT edge, from_state, to_state, at, spent_us, reason FROM history WHERE node_id = $1 \
                   ORDER BY position DESC LIMIT $2";
        let rows = statement(sql).bind(id).bind(limit).fetch_all(&self.readers).await?;
        rows.iter()
            .map(|row| {
                let state = |column: &str| -> Result<State> {
                    let text: String = row.try_get(column)?;
                    State::parse(&text).ok_or_else(|| corrupt("history", id.as_str(), text))
                };
                Ok(HistoryRow {
                    edge: row.try_get("edge")?,
                    from: state("from_state")?,
                    to: state("to_state")?,
                    at: Timestamp(row.try_get("at")?),
                    spent_us: row.try_get("spent_us")?,
                    reason: row.try_get("reason")?,
                })
            })
            .collect()
    }

    /// Leases up to `limit` due nodes that `replica` may take, until `lease_end`. A single statement, so that two runners
    /// never get the same node.
    pub async fn lease_due_nodes(
        &self,
        replica: &str,
        now: Timestamp,
        lease_end: Timestamp,
        limit: i64,
    ) -> Result<Vec<NodeId>> {
        // MATERIALIZED: PostgreSQL may run a subquery again for each row, and then take more than `limit`.
        let sql = format!(
            "WITH due AS MATERIALIZED (SELECT id FROM nodes WHERE due_at <= $2 AND {TURN} IN ('', $4) \
             ORDER BY due_at LIMIT $3{}) \
             UPDATE nodes SET due_at = $1 FROM due WHERE nodes.id = due.id RETURNING nodes.id",
            self.kind.for_update_skip_locked()
        );
        let query = statement(sql).bind(lease_end.0).bind(now.0).bind(limit).bind(replica);
        let rows = self.fetch_changed(query).await?;
        rows.iter().map(|r| Ok(r.id(0)?)).collect()
    }

    /// When the next node that `replica` may take is due; none: there is no such node.
    pub async fn next_due(&self, replica: &str) -> Result<Option<Timestamp>> {
        let sql = format!("SELECT due_at FROM nodes WHERE {TURN} IN ('', $1) ORDER BY due_at LIMIT 1");
        let row = statement(sql).bind(replica).fetch_optional(&self.readers).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.map(Timestamp))
    }

    /// Makes a node due, whatever its wait.
    pub async fn wake(&self, id: &NodeId, now: Timestamp) -> Result<()> {
        let query = statement("UPDATE nodes SET due_at = $1 WHERE id = $2 AND due_at > $1").bind(now.0);
        self.execute(query.bind(id)).await?;
        self.hints.send(Change::Due);
        Ok(())
    }

    /// Puts a node to rest until `until`, with its wait, by a decision about `seen`.
    ///
    /// # Errors
    /// `Conflict`: the node was changed or made due since, or its agent came or went.
    pub async fn rest(&self, seen: &NodeRecord, wait: &Wait, until: Timestamp) -> Result<()> {
        let sql = "UPDATE nodes SET due_at = $1, wait = $2, wait_until = $1, wait_kind = $7 \
                   WHERE id = $3 AND version = $4 AND agent_session = $5 AND due_at = $6";
        let (text, kind) = waits::columns(seen.id.as_str(), wait)?;
        let query = statement(sql).bind(until.0).bind(text).bind(&seen.id);
        let query = query.bind(seen.version).bind(seen.hold.session).bind(seen.due_at.0);
        let query = query.bind(kind);
        if self.execute(query).await? == 0 {
            return Err(StoreError::Conflict {
                kind: "node",
                id: seen.id.to_string(),
            });
        }
        Ok(())
    }
}

impl WriteTx {
    /// One node within this change, locked until the change ends.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the node does not exist.
    pub async fn node(&mut self, id: &NodeId) -> Result<NodeRecord> {
        self.node_of(&Scope::Site, id).await
    }

    /// As `node`, for the callers in `scope`.
    ///
    /// # Errors
    /// `NotFound`: there is none, or it is outside the scope.
    pub async fn node_of(&mut self, scope: &Scope, id: &NodeId) -> Result<NodeRecord> {
        let (scope_condition, lock) = (scope.rows("customer", 2), self.kind.for_update());
        let sql = format!("{COLUMNS} WHERE id = $1{scope_condition}{lock}");
        let row = scope
            .bind(statement(sql).bind(id))
            .fetch_optional(&mut self.tx)
            .await?
            .ok_or_else(|| not_found(id))?;
        NodeRecord::from_row(&row)
    }

    /// Inserts a new node, due at once.
    ///
    /// # Errors
    /// [`StoreError::Exists`]: a node of this id exists already.
    pub async fn insert_node(&mut self, record: &NodeRecord) -> Result<()> {
        let sql = "INSERT INTO nodes (id, uid, version, state, state_since, sku, body, readings, claimed_image, \
                   held_image, address, due_at, wait, wait_until, created_at, updated_at, customer, customer_since, \
                   doubt_cause, doubt_since, doubt_why, doubt_generation) \
                   VALUES ($1, $2, 1, $3, $4, $5, $6, $7, $8, $9, '', $10, '', 0, $10, $10, $11, $10, $12, $13, $14, $15) \
                   ON CONFLICT DO NOTHING";
        let readings = readings_text(&record.id, &record.readings)?;
        let (claimed, held) = record.images();
        let query = statement(sql)
            .bind(&record.id)
            .bind(&record.uid)
            .bind(record.node.state.as_str());
        let query = query
            .bind(record.node.since.0)
            .bind(&record.spec.sku)
            .bind(record.body()?)
            .bind(readings);
        let query = query.bind(claimed).bind(held).bind(record.created_at.0);
        let (cause, since, why, generation) = restored::columns(record.node.doubt.as_ref());
        let query = query.bind(record.customer()).bind(cause).bind(since).bind(why);
        let query = query.bind(generation);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Exists {
                kind: "node",
                id: record.id.to_string(),
            });
        }
        self.due.push(record.id.clone());
        self.put_labels(record).await
    }

    /// Writes a node back without its labels, due at once. `record.version` must be the version that was read; it becomes
    /// the new one. Its agent must not have come or gone since. A new state ends the wait. A new state or claim generation
    /// ends the agent's session with this change.
    ///
    /// # Errors
    /// [`StoreError::Conflict`]: the node has another version, or its agent came or went.
    pub async fn save_node(&mut self, record: &mut NodeRecord, now: Timestamp) -> Result<()> {
        let ends = "agent_holder <> '' AND (state_since <> $2 OR agent_generation <> $12)";
        let sql = format!(
            "UPDATE nodes SET version = version + 1, state = $1, state_since = $2, sku = $3, body = $4, \
             claimed_image = $5, held_image = $6, due_at = $7, updated_at = $7, customer = $11, \
             customer_since = CASE WHEN customer = $11 THEN customer_since ELSE $7 END, \
             doubt_cause = $13, doubt_since = $14, doubt_why = $15, doubt_generation = $16, \
             agent_session = CASE WHEN {ends} THEN agent_session + 1 ELSE agent_session END, \
             agent_gone_at = CASE WHEN {ends} THEN $7 ELSE agent_gone_at END, \
             agent_holder = CASE WHEN {ends} THEN '' ELSE agent_holder END, \
             wait = CASE WHEN state_since <> $2 THEN '' ELSE wait END, \
             wait_kind = CASE WHEN state_since <> $2 THEN '' ELSE wait_kind END \
             WHERE id = $8 AND version = $9 AND agent_session = $10 RETURNING agent_session, wait"
        );
        let (claimed, held) = record.images();
        let (cause, since, why, generation) = restored::columns(record.node.doubt.as_ref());
        let query = statement(sql)
            .bind(record.node.state.as_str())
            .bind(record.node.since.0);
        let query = query.bind(&record.spec.sku).bind(record.body()?);
        let query = query.bind(claimed).bind(held).bind(now.0);
        let query = query
            .bind(&record.id)
            .bind(record.version)
            .bind(record.hold.session)
            .bind(record.customer())
            .bind(i64::try_from(record.node.generation).unwrap_or(i64::MAX))
            .bind(cause)
            .bind(since)
            .bind(why)
            .bind(generation);
        let saved = query.fetch_optional(&mut self.tx).await?;
        let session: i64 = match saved {
            Some(row) => {
                record.wait = waits::from_text(record.id.as_str(), row.try_get(1)?)?;
                row.try_get(0)?
            }
            None => {
                return Err(StoreError::Conflict {
                    kind: "node",
                    id: record.id.to_string(),
                });
            }
        };
        if session != record.hold.session {
            record.hold.end(now);
            self.ended_sessions.push((record.id.clone(), session));
        }
        self.due.push(record.id.clone());
        record.version += 1;
        record.due_at = now;
        record.updated_at = now;
        Ok(())
    }

    /// Whether this change makes nodes due: the caller lets the runner take them after the commit.
    #[must_use]
    pub fn makes_nodes_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Makes a node due.
    pub async fn wake(&mut self, id: &NodeId, now: Timestamp) -> Result<()> {
        self.put_due(id, now).await?;
        self.due.push(id.clone());
        Ok(())
    }

    /// Sets when a node is due. A runner calls it last in its own change, to keep its lease.
    pub async fn put_due(&mut self, id: &NodeId, due: Timestamp) -> Result<()> {
        let query = statement("UPDATE nodes SET due_at = $1 WHERE id = $2").bind(due.0);
        query.bind(id).execute(&mut self.tx).await?;
        self.due.retain(|node| node != id);
        Ok(())
    }

    /// Indexes a node by the labels of its record. Call it after `save_node` when labels change.
    pub async fn put_labels(&mut self, record: &NodeRecord) -> Result<()> {
        statement("DELETE FROM node_labels WHERE node_id = $1")
            .bind(&record.id)
            .execute(&mut self.tx)
            .await?;
        for (name, value) in &record.labels {
            let query = statement("INSERT INTO node_labels (node_id, name, value) VALUES ($1, $2, $3)");
            query
                .bind(&record.id)
                .bind(name)
                .bind(value)
                .execute(&mut self.tx)
                .await?;
        }
        Ok(())
    }

    /// Sets the node's MAC addresses.
    ///
    /// # Errors
    /// `MacTaken`: an address belongs to another node.
    pub async fn put_macs(&mut self, id: &NodeId, macs: &[String]) -> Result<()> {
        statement("DELETE FROM nics WHERE node_id = $1")
            .bind(id)
            .execute(&mut self.tx)
            .await?;
        // In a fixed order, so that concurrent changes do not deadlock.
        for mac in macs.iter().collect::<BTreeSet<_>>() {
            let query = statement("INSERT INTO nics (mac, node_id) VALUES ($1, $2) ON CONFLICT (mac) DO NOTHING");
            if query.bind(mac).bind(id).execute(&mut self.tx).await? == 0 {
                let owner = statement("SELECT node_id FROM nics WHERE mac = $1").bind(mac);
                let owner = owner.fetch_optional(&mut self.tx).await?;
                return Err(match owner {
                    Some(row) => StoreError::MacTaken {
                        mac: mac.clone(),
                        node: row.id(0)?,
                    },
                    // Another node had it and released it just now.
                    None => StoreError::Conflict {
                        kind: "node",
                        id: id.to_string(),
                    },
                });
            }
            let query = statement("DELETE FROM unknown_machines WHERE mac = $1").bind(mac);
            query.execute(&mut self.tx).await?;
        }
        Ok(())
    }

    /// Deletes a node and its rows, except its erase certificates and reports. Remembers that the machine holds data, if it
    /// does.
    ///
    /// # Errors
    /// `Conflict`: it was changed since.
    pub async fn delete_node(&mut self, record: &NodeRecord) -> Result<()> {
        let query = statement("DELETE FROM nodes WHERE id = $1 AND version = $2").bind(&record.id);
        if query.bind(record.version).execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Conflict {
                kind: "node",
                id: record.id.to_string(),
            });
        }
        // The next node of this name begins with new generations.
        let query = statement("DELETE FROM maintenance_windows WHERE target = $1");
        query.bind(format!("nodes/{}", record.id)).execute(&mut self.tx).await?;
        self.record_unerased(record).await
    }

    /// Adds an edge to the node's history.
    pub async fn add_history(&mut self, id: &NodeId, edge: Edge, row: &HistoryRow) -> Result<()> {
        let sql = "INSERT INTO history (node_id, edge, from_state, to_state, at, spent_us, reason) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let query = statement(sql)
            .bind(id)
            .bind(edge.as_str())
            .bind(row.from.as_str())
            .bind(row.to.as_str());
        query
            .bind(row.at.0)
            .bind(row.spent_us)
            .bind(&row.reason)
            .execute(&mut self.tx)
            .await?;
        Ok(())
    }

    /// A node that has or is getting this image version; none: no node.
    pub async fn image_in_use(&mut self, digest: &str) -> Result<Option<NodeId>> {
        let sql = "SELECT id FROM nodes WHERE claimed_image = $1 OR held_image = $1 LIMIT 1";
        let row = statement(sql).bind(digest).fetch_optional(&mut self.tx).await?;
        Ok(row.map(|r| r.id(0)).transpose()?)
    }
}
