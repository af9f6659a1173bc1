//! Clusters: the record, their nodes, leases, history.

use std::collections::BTreeMap;

use rackwright_lifecycle::cluster::{Cluster, Edge, Rollout, State, Swap, Wait, Wanted};
use rackwright_lifecycle::{ClusterId, CustomerId, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::corrupt;
use crate::filter::{Conditions, Filter};
use crate::nodes::COLUMNS as NODE_COLUMNS;
use crate::sql::{Row, statement};
use crate::{NetworkTest, NodeRecord, Result, Scope, Store, StoreError, WriteTx, waits};

/// Edges of nodes in quick succession wake their cluster once.
const SETTLE_US: i64 = 100_000;

/// The requested cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClusterSpec {
    /// SKU of the site file.
    pub sku: String,
    /// Nodes in use.
    pub nodes: u32,
    /// Further nodes as spares.
    pub spares: u32,
    /// "non-blocking", "best-effort", "2:1".
    pub bandwidth: String,
    /// "images/{image}"
    pub image_name: String,
    /// Digest of the image version.
    pub image_digest: String,
    /// SSH public keys of the users.
    pub ssh_authorized_keys: Vec<String>,
    /// cloud-config of the users, sealed; none: not given, or the cluster is released.
    #[serde(default, rename = "sealed_user_data", skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SealedUserData>,
    /// The cloud-config in the clear, in rows that older versions wrote. The next start seals or drops it.
    #[serde(default, rename = "user_data", skip_serializing_if = "String::is_empty")]
    pub plain_user_data: String,
    /// The drive to write to; empty: the agent chooses.
    pub root_drive: String,
    /// Read whole disks back after writing.
    pub verify_whole_disk: bool,
}

impl ClusterSpec {
    /// Copies the build of `other`: image, keys, cloud-config, drive.
    pub fn take_build(&mut self, other: &Self) {
        self.image_name.clone_from(&other.image_name);
        self.image_digest.clone_from(&other.image_digest);
        self.ssh_authorized_keys.clone_from(&other.ssh_authorized_keys);
        self.user_data.clone_from(&other.user_data);
        self.plain_user_data.clone_from(&other.plain_user_data);
        self.root_drive.clone_from(&other.root_drive);
        self.verify_whole_disk = other.verify_whole_disk;
    }
}

/// cloud-config for all nodes of a cluster. The cluster's row keeps it for nodes that join, are replaced or are reimaged
/// later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedUserData {
    /// The build with which it was given. The seal is bound to this number.
    pub build: u32,
    /// The sealed text.
    #[serde(with = "hex_text")]
    pub sealed: Vec<u8>,
}

/// Bytes as hex digits: a third of the size of a list of numbers in JSON.
mod hex_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        hex::decode(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A former build of the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerSpec {
    /// Number of the build.
    pub build: u32,
    /// The spec of that build.
    pub spec: ClusterSpec,
}

/// A replaced node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The node that left.
    pub node: NodeId,
    /// Its replacement.
    pub by: NodeId,
    /// When it was replaced.
    pub at: Timestamp,
    /// The reason.
    pub why: String,
}

/// A cluster's row.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterRecord {
    /// Chosen by the caller.
    pub id: ClusterId,
    /// Never reused.
    pub uid: String,
    /// Grows with every change; 0 before the first write.
    pub version: i64,
    /// The cluster as the decisions see it.
    pub cluster: Cluster,
    /// The owning customer.
    pub customer: CustomerId,
    /// The requested cluster.
    pub spec: ClusterSpec,
    pub labels: BTreeMap<String, String>,
    /// The placement: nodes, spares and links by their names in the site file, in the caller's encoding.
    pub placement: String,
    /// Reserved power, in watts.
    pub reserved_watts: f64,
    /// Number of its partition key; none: there is no fabric manager.
    pub partition: Option<u16>,
    /// Version of the partitions that satisfies the cluster.
    pub partitions_version: u64,
    /// Why it is degraded or failed.
    pub reason: String,
    /// The last search for a replacement node that found none.
    pub swap: Option<Swap>,
    /// Replaced nodes, oldest first.
    pub replaced: Vec<Replaced>,
    /// The build before the wanted one.
    pub former: Option<FormerSpec>,
    /// The tests of the network between its nodes; none before the first.
    pub network: Option<NetworkTest>,
    /// The cluster's wait.
    pub wait: Wait,
    /// When the next step is due.
    pub due_at: Timestamp,
    /// When it was requested.
    pub created_at: Timestamp,
    /// Last changed.
    pub updated_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Body {
    spec: ClusterSpec,
    wanted: Wanted,
    lease_end: Option<Timestamp>,
    notices: usize,
    labels: BTreeMap<String, String>,
    placement: String,
    reserved_watts: f64,
    partition: Option<u16>,
    partitions_version: u64,
    reason: String,
    swap: Option<Swap>,
    replaced: Vec<Replaced>,
    #[serde(default)]
    build: u32,
    #[serde(default)]
    rollout: Option<Rollout>,
    #[serde(default)]
    former: Option<FormerSpec>,
    #[serde(default)]
    network: Option<NetworkTest>,
}

/// One edge taken by a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterHistoryRow {
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

/// Changes the row even if the cluster is already due: a step in progress, about to put the cluster to rest, then sees the
/// change and is refused.
const WAKE: &str = "UPDATE clusters SET due_at = CASE WHEN due_at > $1 THEN $1 ELSE due_at - 1 END WHERE id = $2";

const COLUMNS: &str = "SELECT id, uid, version, state, state_since, customer, body, due_at, wait, wait_kind, created_at, \
                       updated_at FROM clusters";

fn conflict(id: &ClusterId) -> StoreError {
    StoreError::Conflict {
        kind: "cluster",
        id: id.to_string(),
    }
}

fn not_found(id: &ClusterId) -> StoreError {
    StoreError::NotFound {
        kind: "cluster",
        id: id.to_string(),
    }
}

fn state_of(row: &Row, column: &str, id: &ClusterId) -> Result<State> {
    let text: String = row.try_get(column)?;
    State::parse(&text).ok_or_else(|| corrupt("cluster", id.as_str(), format!("unknown state {text:?}")))
}

fn wait_of(row: &Row, id: &ClusterId) -> Result<Wait> {
    waits::cluster_from_columns(id.as_str(), row.try_get("wait")?, row.try_get("wait_kind")?)
}

impl ClusterRecord {
    /// A newly requested cluster, without a reservation.
    #[must_use]
    pub fn new(id: ClusterId, uid: String, customer: CustomerId, spec: ClusterSpec, now: Timestamp) -> Self {
        Self {
            id,
            uid,
            version: 1,
            cluster: Cluster {
                state: State::Reserved,
                since: now,
                wanted: Wanted::default(),
                lease_end: None,
                notices: 0,
                build: 1,
                rollout: None,
            },
            customer,
            spec,
            labels: BTreeMap::new(),
            placement: String::new(),
            reserved_watts: 0.0,
            partition: None,
            partitions_version: 0,
            reason: String::new(),
            swap: None,
            replaced: Vec::new(),
            former: None,
            network: None,
            wait: Wait::Rest,
            due_at: now,
            created_at: now,
            updated_at: now,
        }
    }

    /// Whether a node of the cluster may still need this image version: as a replacement, or in a rollback of the present
    /// rollout.
    #[must_use]
    pub fn needs_image(&self, digest: &str) -> bool {
        let former = self.former.as_ref().filter(|_| self.cluster.rollout.is_some());
        self.spec.image_digest == digest || former.is_some_and(|former| former.spec.image_digest == digest)
    }

    fn body(&self) -> Result<String> {
        let body = Body {
            spec: self.spec.clone(),
            wanted: self.cluster.wanted.clone(),
            lease_end: self.cluster.lease_end,
            notices: self.cluster.notices,
            labels: self.labels.clone(),
            placement: self.placement.clone(),
            reserved_watts: self.reserved_watts,
            partition: self.partition,
            partitions_version: self.partitions_version,
            reason: self.reason.clone(),
            swap: self.swap.clone(),
            replaced: self.replaced.clone(),
            build: self.cluster.build,
            rollout: self.cluster.rollout.clone(),
            former: self.former.clone(),
            network: self.network.clone(),
        };
        serde_json::to_string(&body).map_err(|e| corrupt("cluster", self.id.as_str(), e))
    }

    fn from_row(row: &Row) -> Result<Self> {
        let id: ClusterId = row.id("id")?;
        let body: Body = serde_json::from_str(row.try_get("body")?).map_err(|e| corrupt("cluster", id.as_str(), e))?;
        Ok(Self {
            uid: row.try_get("uid")?,
            version: row.try_get("version")?,
            cluster: Cluster {
                state: state_of(row, "state", &id)?,
                since: Timestamp(row.try_get("state_since")?),
                wanted: body.wanted,
                lease_end: body.lease_end,
                notices: body.notices,
                build: body.build,
                rollout: body.rollout,
            },
            customer: row.id("customer")?,
            spec: body.spec,
            labels: body.labels,
            placement: body.placement,
            reserved_watts: body.reserved_watts,
            partition: body.partition,
            partitions_version: body.partitions_version,
            reason: body.reason,
            swap: body.swap,
            replaced: body.replaced,
            former: body.former,
            network: body.network,
            wait: wait_of(row, &id)?,
            due_at: Timestamp(row.try_get("due_at")?),
            created_at: Timestamp(row.try_get("created_at")?),
            updated_at: Timestamp(row.try_get("updated_at")?),
            id,
        })
    }
}

impl Store {
    /// One cluster.
    ///
    /// # Errors
    /// `NotFound`: there is none, or it is outside the scope.
    pub async fn cluster(&self, scope: &Scope, id: &ClusterId) -> Result<ClusterRecord> {
        let sql = format!("{COLUMNS} WHERE id = $1{}", scope.rows("customer", 2));
        let query = scope.bind(statement(sql).bind(id));
        let row = query.fetch_optional(&self.readers).await?;
        ClusterRecord::from_row(&row.ok_or_else(|| not_found(id))?)
    }

    /// Clusters by id after `after`, at most `limit`. Fields of the filter: state, customer, name.
    pub async fn clusters(
        &self,
        scope: &Scope,
        filter: &Filter,
        after: &str,
        limit: i64,
    ) -> Result<Vec<ClusterRecord>> {
        let conditions = Conditions::of(filter, 3, |made, term| match term.field.as_str() {
            "state" => made.equal("state", term),
            "customer" => made.equal("customer", term),
            _ => made.like("id", term),
        });
        let scope_condition = scope.rows("customer", conditions.values.len() + 3);
        let sql = format!(
            "{COLUMNS} WHERE id > $1{}{scope_condition} ORDER BY id LIMIT $2",
            conditions.sql
        );
        let query = statement(sql).bind(after).bind(limit);
        let query = scope.bind(conditions.values.iter().fold(query, |query, value| query.bind(value)));
        let rows = query.blocking().fetch_all(&self.readers).await?;
        rows.iter().map(ClusterRecord::from_row).collect()
    }

    /// The nodes of a cluster, by id.
    pub async fn nodes_of_cluster(&self, scope: &Scope, id: &ClusterId) -> Result<Vec<NodeRecord>> {
        let sql = format!(
            "{NODE_COLUMNS} WHERE n.id IN (SELECT node_id FROM cluster_nodes WHERE cluster_id = $1){} ORDER BY n.id",
            scope.rows("n.customer", 2)
        );
        let query = scope.bind(statement(sql).bind(id));
        let rows = query.blocking().fetch_all(&self.readers).await?;
        rows.iter().map(NodeRecord::from_row).collect()
    }

    /// Edges taken by a cluster, newest first.
    pub async fn cluster_history(&self, id: &ClusterId, limit: i64) -> Result<Vec<ClusterHistoryRow>> {
        let sql = "SELECT edge, from_state, to_state, at, spent_us, reason FROM cluster_history WHERE cluster_id = $1 \
                   ORDER BY position DESC LIMIT $2";
        let rows = statement(sql).bind(id).bind(limit).fetch_all(&self.readers).await?;
        rows.iter()
            .map(|row| {
                Ok(ClusterHistoryRow {
                    edge: row.try_get("edge")?,
                    from: state_of(row, "from_state", id)?,
                    to: state_of(row, "to_state", id)?,
                    at: Timestamp(row.try_get("at")?),
                    spent_us: row.try_get("spent_us")?,
                    reason: row.try_get("reason")?,
                })
            })
            .collect()
    }

    /// Leases up to `limit` due clusters until `lease_end`: two replicas never get the same one.
    pub async fn lease_due_clusters(&self, now: Timestamp, lease_end: Timestamp, limit: i64) -> Result<Vec<ClusterId>> {
        let sql = format!(
            "WITH due AS MATERIALIZED (SELECT id FROM clusters WHERE due_at <= $2 ORDER BY due_at LIMIT $3{}) \
             UPDATE clusters SET due_at = $1 FROM due WHERE clusters.id = due.id RETURNING clusters.id",
            self.kind.for_update_skip_locked()
        );
        let query = statement(sql).bind(lease_end.0).bind(now.0).bind(limit);
        let rows = self.fetch_changed(query).await?;
        rows.iter().map(|r| Ok(r.id(0)?)).collect()
    }

    /// The cluster of a node, also while the node leaves and has no claim.
    pub async fn cluster_of_node(&self, node: &NodeId) -> Result<Option<ClusterId>> {
        let query = statement("SELECT cluster_id FROM cluster_nodes WHERE node_id = $1").bind(node);
        let row = query.fetch_optional(&self.readers).await?;
        row.map(|row| Ok(row.id(0)?)).transpose()
    }

    /// When the next cluster is due; none: there is no cluster.
    pub async fn next_cluster_due(&self) -> Result<Option<Timestamp>> {
        let row = statement("SELECT MIN(due_at) FROM clusters").fetch_one(&self.readers);
        Ok(row.await?.try_get::<Option<i64>>(0)?.map(Timestamp))
    }

    /// Makes a cluster due.
    pub async fn wake_cluster(&self, id: &ClusterId, now: Timestamp) -> Result<()> {
        self.execute(statement(WAKE).bind(now.0).bind(id)).await?;
        Ok(())
    }

    /// Makes every cluster due that is not released.
    pub async fn wake_clusters(&self, now: Timestamp) -> Result<()> {
        let sql =
            "UPDATE clusters SET due_at = CASE WHEN due_at > $1 THEN $1 ELSE due_at - 1 END WHERE state <> 'released'";
        self.execute(statement(sql).bind(now.0)).await?;
        Ok(())
    }

    /// Puts a cluster to rest until `until`, by a decision about `seen`.
    ///
    /// # Errors
    /// `Conflict`: the cluster was changed or made due since.
    pub async fn rest_cluster(&self, seen: &ClusterRecord, wait: &Wait, until: Timestamp) -> Result<()> {
        let (wait, kind) = waits::cluster_columns(seen.id.as_str(), wait)?;
        let sql =
            "UPDATE clusters SET due_at = $1, wait = $2, wait_kind = $3 WHERE id = $4 AND version = $5 AND due_at = $6";
        let query = statement(sql).bind(until.0).bind(wait).bind(kind).bind(&seen.id);
        let query = query.bind(seen.version).bind(seen.due_at.0);
        if self.execute(query).await? == 0 {
            return Err(conflict(&seen.id));
        }
        Ok(())
    }
}

impl WriteTx {
    /// One cluster within this change, locked until the change ends. Lock nodes before their cluster: the steps of nodes do
    /// so too.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the cluster does not exist.
    pub async fn cluster(&mut self, id: &ClusterId) -> Result<ClusterRecord> {
        self.cluster_of(&Scope::Site, id).await
    }

    /// As `cluster`, for the callers in `scope`.
    ///
    /// # Errors
    /// `NotFound`: there is none, or it is outside the scope.
    pub async fn cluster_of(&mut self, scope: &Scope, id: &ClusterId) -> Result<ClusterRecord> {
        let (scope_condition, lock) = (scope.rows("customer", 2), self.kind.for_update());
        let sql = format!("{COLUMNS} WHERE id = $1{scope_condition}{lock}");
        let query = scope.bind(statement(sql).bind(id));
        let row = query.fetch_optional(&mut self.tx).await?;
        ClusterRecord::from_row(&row.ok_or_else(|| not_found(id))?)
    }

    /// Clusters that are not released, by id.
    pub async fn live_clusters(&mut self) -> Result<Vec<ClusterRecord>> {
        let sql = format!("{COLUMNS} WHERE state <> 'released' ORDER BY id");
        let rows = statement(sql).fetch_all(&mut self.tx).await?;
        rows.iter().map(ClusterRecord::from_row).collect()
    }

    /// Inserts a new cluster, due at once.
    ///
    /// # Errors
    /// [`StoreError::Exists`]: a cluster of this id exists already.
    pub async fn insert_cluster(&mut self, record: &ClusterRecord) -> Result<()> {
        let sql = "INSERT INTO clusters (id, uid, version, state, state_since, customer, body, due_at, wait, \
                   wait_kind, created_at, updated_at) VALUES ($1, $2, 1, $3, $4, $5, $6, $7, '', '', $7, $7) \
                   ON CONFLICT DO NOTHING";
        let query = statement(sql).bind(&record.id).bind(&record.uid);
        let query = query.bind(record.cluster.state.as_str()).bind(record.cluster.since.0);
        let query = query
            .bind(&record.customer)
            .bind(record.body()?)
            .bind(record.created_at.0);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Exists {
                kind: "cluster",
                id: record.id.to_string(),
            });
        }
        Ok(())
    }

    /// Writes a cluster back, due at once. `record.version` must be the version that was read; it becomes the new one.
    ///
    /// # Errors
    /// [`StoreError::Conflict`]: the cluster has another version.
    pub async fn save_cluster(&mut self, record: &mut ClusterRecord, now: Timestamp) -> Result<()> {
        let sql = "UPDATE clusters SET version = version + 1, state = $1, state_since = $2, body = $3, due_at = $4, \
                   updated_at = $4, wait = CASE WHEN state_since <> $2 THEN '' ELSE wait END, \
                   wait_kind = CASE WHEN state_since <> $2 THEN '' ELSE wait_kind END \
                   WHERE id = $5 AND version = $6 RETURNING wait, wait_kind";
        let query = statement(sql)
            .bind(record.cluster.state.as_str())
            .bind(record.cluster.since.0);
        let query = query.bind(record.body()?).bind(now.0);
        let query = query.bind(&record.id).bind(record.version);
        let Some(row) = query.fetch_optional(&mut self.tx).await? else {
            return Err(conflict(&record.id));
        };
        record.wait = wait_of(&row, &record.id)?;
        record.version += 1;
        record.due_at = now;
        record.updated_at = now;
        Ok(())
    }

    /// Adds a node to a cluster.
    ///
    /// # Errors
    /// `Conflict`: the node is in a cluster already.
    pub async fn add_cluster_node(&mut self, cluster: &ClusterId, node: &NodeId) -> Result<()> {
        let sql = "INSERT INTO cluster_nodes (node_id, cluster_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        let query = statement(sql).bind(node).bind(cluster);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Conflict {
                kind: "node",
                id: node.to_string(),
            });
        }
        Ok(())
    }

    /// Takes a node out of its cluster.
    pub async fn remove_cluster_node(&mut self, node: &NodeId) -> Result<()> {
        let query = statement("DELETE FROM cluster_nodes WHERE node_id = $1").bind(node);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Makes a cluster due soon.
    pub async fn wake_cluster(&mut self, id: &ClusterId, now: Timestamp) -> Result<()> {
        let query = statement(WAKE).bind(now.0 + SETTLE_US).bind(id);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Adds an edge to the cluster's history.
    pub async fn add_cluster_history(&mut self, id: &ClusterId, edge: Edge, row: &ClusterHistoryRow) -> Result<()> {
        let sql = "INSERT INTO cluster_history (cluster_id, edge, from_state, to_state, at, spent_us, reason) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let query = statement(sql).bind(id).bind(edge.as_str());
        let query = query.bind(row.from.as_str()).bind(row.to.as_str());
        let query = query.bind(row.at.0).bind(row.spent_us).bind(&row.reason);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Deletes a cluster.
    ///
    /// # Errors
    /// `Conflict`: it was changed since.
    pub async fn delete_cluster(&mut self, record: &ClusterRecord) -> Result<()> {
        let query = statement("DELETE FROM clusters WHERE id = $1 AND version = $2").bind(&record.id);
        if query.bind(record.version).execute(&mut self.tx).await? == 0 {
            return Err(conflict(&record.id));
        }
        // The next cluster of this name has its own windows.
        let query = statement("DELETE FROM maintenance_windows WHERE target = $1");
        query
            .bind(format!("clusters/{}", record.id))
            .execute(&mut self.tx)
            .await?;
        Ok(())
    }
}
