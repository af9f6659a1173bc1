//! The state of the fabric: partition keys with their ports, and known faults.
//!
//! A key in use is a row, and so is a fault. The step of a cluster reads the row of its own key and the rows of its own
//! nodes. Only the replica that brings the partitions to the fabric reads all keys. A change of these rows locks the hall.

use std::num::TryFromIntError;

use rackwright_lifecycle::{ClusterId, NodeId, Timestamp};

use crate::error::corrupt;
use crate::sql::{Query, Row, statement};
use crate::{DatabaseError, Result, Scope, Store, StoreError, WriteTx};

/// The partitions of the fabric as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FabricRow {
    /// The first key of the range.
    pub first_key: u16,
    /// The last key of the range.
    pub last_key: u16,
    /// The key given most recently.
    pub given_key: Option<u16>,
    /// Grows with every change of partitions.
    pub wanted: u64,
    /// The version that was brought to the fabric and read back from every port.
    pub applied: u64,
    /// Number of the last reading.
    pub reading: u64,
    /// Time of the last reading.
    pub proven_at: Option<Timestamp>,
    /// Why the last try failed; empty: it succeeded.
    pub fault: String,
    /// Grows when other ports of members are absent.
    pub absent_changes: u64,
}

/// A key in use, with its ports. Ports are GUIDs in the caller's spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricKeyRow {
    /// The number of the key.
    pub key: u16,
    /// The uid of the cluster that holds it, or held it last.
    pub owner: String,
    /// Name of the partition; empty: the key is returned.
    pub name: String,
    /// Number of the last reading before the return of the key. `None`: the cluster holds the key.
    pub released_at: Option<u64>,
    /// Ports that may have the key.
    pub ports: Vec<String>,
    /// Ports of the partition.
    pub members: Vec<String>,
    /// Ports of the partition, or of the returned key, that the last reading did not find.
    pub absent: Vec<String>,
    /// Ports of the returned key that the last reading of the ports themselves did not find.
    pub cut_off: Vec<String>,
}

/// A key in use, as far as a step of its cluster needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRow {
    /// As in [`FabricKeyRow`].
    pub key: u16,
    /// As in [`FabricKeyRow`].
    pub owner: String,
    /// As in [`FabricKeyRow`].
    pub name: String,
    /// As in [`FabricKeyRow`].
    pub released_at: Option<u64>,
    /// Number of ports that may have the key.
    pub ports: usize,
    /// Number of ports of the partition.
    pub members: usize,
    /// As in [`FabricKeyRow`].
    pub absent: Vec<String>,
    /// Number of cut-off ports of the returned key.
    pub cut_off: usize,
}

/// The keys of some clusters, and the fabric as a whole at the same moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRows {
    pub fabric: FabricRow,
    /// The keys, by number.
    pub keys: Vec<PartitionRow>,
}

/// A key that is not free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenKeyRow {
    /// The number of the key.
    pub key: u16,
    /// Number of ports that may still have the returned key. `None`: a cluster holds the key.
    pub draining_ports: Option<usize>,
}

/// The last comparison of the fabric with the site.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComparisonRow {
    /// When it was made.
    pub checked_at: Option<Timestamp>,
    /// Why it failed; empty: it succeeded.
    pub problem: String,
    /// Number of open faults that are not stored.
    pub more_faults: u64,
    /// [`FabricRow::absent_changes`] of the evaluated reading.
    pub compared_changes: u64,
    /// [`FabricRow::proven_at`] of the evaluated reading.
    pub compared_reading: Option<Timestamp>,
}

/// A node of a cluster without its full connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImpairedNodeRow {
    /// Id of the node.
    pub node: NodeId,
    /// When this was first seen.
    pub since: Timestamp,
    /// When this was last seen.
    pub seen: Timestamp,
    /// The fault, in words.
    pub why: String,
}

const FABRIC: &str = "first_key, last_key, given_key, wanted, applied, reading, proven_at, fault, absent_changes";
const PARTITION: &str = "pkey, owner, name, released_at, port_count, member_count, cut_off_count, absent";
const KEYS: &str = "SELECT pkey, owner, name, released_at, absent, cut_off, members, ports FROM fabric_keys";
const COMPARISON: &str =
    "SELECT checked_at, problem, more_faults, compared_changes, compared_reading FROM fabric_comparison WHERE id = 1";
const FAULTS: &str = "SELECT id, body FROM fabric_faults ORDER BY id";
const BROKEN: &str = "SELECT cable FROM fabric_broken_links ORDER BY cable";
const IMPAIRED: &str = "SELECT i.node_id, i.since, i.seen, i.why FROM fabric_impaired_nodes i";

fn number<T: TryFrom<i64, Error = TryFromIntError>>(row: &Row, column: &'static str) -> Result<T> {
    let value: i64 = row.try_get(column)?;
    T::try_from(value).map_err(|e| corrupt("fabric", column, e))
}

fn optional_number<T: TryFrom<i64, Error = TryFromIntError>>(row: &Row, column: &'static str) -> Result<Option<T>> {
    match row.try_get::<Option<i64>>(column)? {
        Some(_) => number(row, column).map(Some),
        None => Ok(None),
    }
}

fn time(row: &Row, column: &'static str) -> Result<Option<Timestamp>> {
    Ok(row.try_get::<Option<i64>>(column)?.map(Timestamp))
}

/// A number of this crate's callers as the database stores it.
fn stored(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// The list of ports in a column.
fn ports(row: &Row, key: u16, column: &'static str) -> Result<Vec<String>> {
    let text: &str = row.try_get(column)?;
    serde_json::from_str(text).map_err(|e| corrupt("fabric key", &format!("{key:#06x}"), format!("{column}: {e}")))
}

fn list(key: &FabricKeyRow, ports: &[String]) -> Result<String> {
    serde_json::to_string(ports).map_err(|e| corrupt("fabric key", &format!("{:#06x}", key.key), e))
}

fn fabric(row: &Row) -> Result<FabricRow> {
    Ok(FabricRow {
        first_key: number(row, "first_key")?,
        last_key: number(row, "last_key")?,
        given_key: optional_number(row, "given_key")?,
        wanted: number(row, "wanted")?,
        applied: number(row, "applied")?,
        reading: number(row, "reading")?,
        proven_at: time(row, "proven_at")?,
        fault: row.try_get("fault")?,
        absent_changes: number(row, "absent_changes")?,
    })
}

fn key(row: &Row) -> Result<FabricKeyRow> {
    let key = number(row, "pkey")?;
    Ok(FabricKeyRow {
        key,
        owner: row.try_get("owner")?,
        name: row.try_get("name")?,
        released_at: optional_number(row, "released_at")?,
        ports: ports(row, key, "ports")?,
        members: ports(row, key, "members")?,
        absent: ports(row, key, "absent")?,
        cut_off: ports(row, key, "cut_off")?,
    })
}

fn partition(row: &Row) -> Result<PartitionRow> {
    let key = number(row, "pkey")?;
    Ok(PartitionRow {
        key,
        owner: row.try_get("owner")?,
        name: row.try_get("name")?,
        released_at: optional_number(row, "released_at")?,
        ports: number(row, "port_count")?,
        members: number(row, "member_count")?,
        absent: ports(row, key, "absent")?,
        cut_off: number(row, "cut_off_count")?,
    })
}

fn comparison(row: &Row) -> Result<ComparisonRow> {
    Ok(ComparisonRow {
        checked_at: time(row, "checked_at")?,
        problem: row.try_get("problem")?,
        more_faults: number(row, "more_faults")?,
        compared_changes: number(row, "compared_changes")?,
        compared_reading: time(row, "compared_reading")?,
    })
}

fn fault(row: &Row) -> Result<(String, String)> {
    Ok((row.try_get("id")?, row.try_get("body")?))
}

fn impaired_node(row: &Row) -> Result<ImpairedNodeRow> {
    Ok(ImpairedNodeRow {
        node: row.id("node_id")?,
        since: Timestamp(row.try_get("since")?),
        seen: Timestamp(row.try_get("seen")?),
        why: row.try_get("why")?,
    })
}

impl Store {
    /// The partitions of the fabric as a whole. `None`: no partition was ever requested.
    ///
    /// # Errors
    /// The database failed, or the row does not parse.
    pub async fn fabric(&self) -> Result<Option<FabricRow>> {
        let query = statement(format!("SELECT {FABRIC} FROM fabric WHERE id = 1"));
        let row = query.fetch_optional(&self.readers).await?;
        row.as_ref().map(fabric).transpose()
    }

    /// All keys in use, by number. Parsed on a blocking thread. Read the fabric's own row before: the keys then have all
    /// changes up to its version, and perhaps later ones.
    ///
    /// # Errors
    /// The database failed, or a row does not parse.
    pub async fn fabric_keys(&self) -> Result<Vec<FabricKeyRow>> {
        let query = statement(format!("{KEYS} ORDER BY pkey")).blocking();
        let rows = query.fetch_all(&self.readers).await?;
        let parsed = tokio::task::spawn_blocking(move || rows.iter().map(key).collect());
        parsed.await.unwrap_or(Err(DatabaseError::Ending.into()))
    }

    /// The keys of one cluster, by its uid: one statement, so that the keys and the fabric are of one moment. `None`: no
    /// partition was ever requested.
    ///
    /// # Errors
    /// The database failed, or one of these rows does not parse.
    pub async fn partitions_of(&self, owner: &str) -> Result<Option<PartitionRows>> {
        let sql = format!(
            "SELECT {FABRIC}, {PARTITION} FROM fabric LEFT JOIN fabric_keys ON owner = $1 WHERE fabric.id = 1 ORDER BY pkey"
        );
        self.partitions(statement(sql).bind(owner)).await
    }

    /// As `partitions_of`, for the clusters with ids from `first` to `last`.
    ///
    /// # Errors
    /// The database failed, or one of these rows does not parse.
    pub async fn partitions_of_clusters(
        &self,
        scope: &Scope,
        first: &ClusterId,
        last: &ClusterId,
    ) -> Result<Option<PartitionRows>> {
        let sql = format!(
            "SELECT {FABRIC}, {PARTITION} FROM fabric LEFT JOIN fabric_keys ON owner IN \
             (SELECT c.uid FROM clusters c WHERE c.id >= $1 AND c.id <= $2{}) WHERE fabric.id = 1 ORDER BY pkey",
            scope.rows("c.customer", 3)
        );
        let query = scope.bind(statement(sql).bind(first).bind(last));
        self.partitions(query.blocking()).await
    }

    async fn partitions(&self, query: Query<'_>) -> Result<Option<PartitionRows>> {
        let rows = query.fetch_all(&self.readers).await?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let mut keys = Vec::new();
        for row in &rows {
            // Without a key the joined columns are NULL.
            if row.try_get::<Option<i64>>("pkey")?.is_some() {
                keys.push(partition(row)?);
            }
        }
        Ok(Some(PartitionRows {
            fabric: fabric(first)?,
            keys,
        }))
    }

    /// The key that a cluster holds, by its uid, with the ports of its partition. `None`: it holds no key.
    ///
    /// # Errors
    /// The database failed, or the row does not parse.
    pub async fn partition_members(&self, owner: &str) -> Result<Option<(u16, Vec<String>)>> {
        let sql =
            "SELECT pkey, members FROM fabric_keys WHERE owner = $1 AND released_at IS NULL ORDER BY pkey LIMIT 1";
        let row = statement(sql).bind(owner).fetch_optional(&self.readers).await?;
        let Some(row) = &row else { return Ok(None) };
        let key = number(row, "pkey")?;
        Ok(Some((key, ports(row, key, "members")?)))
    }

    /// Ports of partitions and of returned keys that the last reading did not find.
    ///
    /// # Errors
    /// The database failed, or a row does not parse.
    pub async fn absent_ports(&self) -> Result<Vec<String>> {
        let query = statement("SELECT pkey, absent FROM fabric_keys WHERE absent <> '[]' ORDER BY pkey").blocking();
        let mut all = Vec::new();
        for row in query.fetch_all(&self.readers).await? {
            all.extend(ports(&row, number(&row, "pkey")?, "absent")?);
        }
        Ok(all)
    }

    /// Whether ports that are not cut off may have a returned key.
    pub async fn has_draining_keys(&self) -> Result<bool> {
        let sql = "SELECT pkey FROM fabric_keys WHERE released_at IS NOT NULL AND port_count > cut_off_count LIMIT 1";
        Ok(statement(sql).fetch_optional(&self.readers).await?.is_some())
    }

    /// The last comparison of the fabric with the site. `None`: none was made.
    ///
    /// # Errors
    /// The database failed, or the row does not parse.
    pub async fn fabric_comparison(&self) -> Result<Option<ComparisonRow>> {
        let row = statement(COMPARISON).fetch_optional(&self.readers).await?;
        row.as_ref().map(comparison).transpose()
    }

    /// The open faults of the fabric, by id: id and the caller's JSON.
    pub async fn fabric_faults(&self) -> Result<Vec<(String, String)>> {
        let rows = statement(FAULTS).blocking().fetch_all(&self.readers).await?;
        rows.iter().map(fault).collect()
    }

    /// The cables between switches that plans must not use.
    pub async fn broken_links(&self) -> Result<Vec<String>> {
        let rows = statement(BROKEN).blocking().fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// The nodes of a cluster without their full connection, by id.
    pub async fn impaired_nodes_of(&self, cluster: &ClusterId) -> Result<Vec<ImpairedNodeRow>> {
        let sql = format!(
            "{IMPAIRED} JOIN cluster_nodes c ON c.node_id = i.node_id WHERE c.cluster_id = $1 ORDER BY i.node_id"
        );
        let rows = statement(sql).bind(cluster).fetch_all(&self.readers).await?;
        rows.iter().map(impaired_node).collect()
    }

    /// Whether a node of any cluster lacks its full connection.
    pub async fn has_impaired_nodes(&self) -> Result<bool> {
        let query = statement("SELECT node_id FROM fabric_impaired_nodes LIMIT 1");
        Ok(query.fetch_optional(&self.readers).await?.is_some())
    }
}

/// The partitions. The hall must have been read within the change, which locks it.
impl WriteTx {
    /// As [`Store::fabric`], within this change.
    ///
    /// # Errors
    /// The database failed, or the row does not parse.
    pub async fn fabric(&mut self) -> Result<Option<FabricRow>> {
        let query = statement(format!("SELECT {FABRIC} FROM fabric WHERE id = 1"));
        let row = query.fetch_optional(&mut self.tx).await?;
        row.as_ref().map(fabric).transpose()
    }

    /// Writes the fabric's own row.
    pub async fn put_fabric(&mut self, row: &FabricRow) -> Result<()> {
        let sql = format!(
            "INSERT INTO fabric (id, {FABRIC}) VALUES (1, $1, $2, $3, $4, $5, $6, $7, $8, $9) \
             ON CONFLICT (id) DO UPDATE SET first_key = excluded.first_key, last_key = excluded.last_key, \
             given_key = excluded.given_key, wanted = excluded.wanted, applied = excluded.applied, \
             reading = excluded.reading, proven_at = excluded.proven_at, fault = excluded.fault, \
             absent_changes = excluded.absent_changes"
        );
        let query = statement(sql).bind(stored(row.first_key)).bind(stored(row.last_key));
        let query = query.bind(row.given_key.map(i64::from)).bind(stored(row.wanted));
        let query = query.bind(stored(row.applied)).bind(stored(row.reading));
        let query = query.bind(row.proven_at.map(|at| at.0)).bind(&row.fault);
        query.bind(stored(row.absent_changes)).execute(&mut self.tx).await?;
        Ok(())
    }

    /// The keys of one cluster with their ports, by number.
    ///
    /// # Errors
    /// The database failed, or one of these rows does not parse.
    pub async fn fabric_keys_of(&mut self, owner: &str) -> Result<Vec<FabricKeyRow>> {
        let query = statement(format!("{KEYS} WHERE owner = $1 ORDER BY pkey")).bind(owner);
        let rows = query.fetch_all(&mut self.tx).await?;
        rows.iter().map(key).collect()
    }

    /// The keys in use of all other clusters, by number, without their ports.
    ///
    /// # Errors
    /// The database failed, or a row does not parse.
    pub async fn taken_keys_of_others(&mut self, owner: &str) -> Result<Vec<TakenKeyRow>> {
        let sql = "SELECT pkey, CASE WHEN released_at IS NOT NULL THEN port_count END AS draining_ports \
                   FROM fabric_keys WHERE owner <> $1 ORDER BY pkey";
        let rows = statement(sql).bind(owner).fetch_all(&mut self.tx).await?;
        let taken = |row: &Row| {
            Ok(TakenKeyRow {
                key: number(row, "pkey")?,
                draining_ports: optional_number(row, "draining_ports")?,
            })
        };
        rows.iter().map(taken).collect()
    }

    /// Writes a key in use.
    ///
    /// # Errors
    /// `Conflict`: another cluster has the key.
    pub async fn put_fabric_key(&mut self, row: &FabricKeyRow) -> Result<()> {
        let sql = "INSERT INTO fabric_keys (pkey, owner, name, released_at, port_count, member_count, cut_off_count, \
                   absent, cut_off, members, ports) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
                   ON CONFLICT (pkey) DO UPDATE SET name = excluded.name, released_at = excluded.released_at, \
                   port_count = excluded.port_count, member_count = excluded.member_count, \
                   cut_off_count = excluded.cut_off_count, absent = excluded.absent, cut_off = excluded.cut_off, \
                   members = excluded.members, ports = excluded.ports WHERE fabric_keys.owner = excluded.owner";
        let query = statement(sql).bind(i64::from(row.key)).bind(&row.owner).bind(&row.name);
        let query = query.bind(row.released_at.map(stored)).bind(stored(row.ports.len()));
        let query = query.bind(stored(row.members.len())).bind(stored(row.cut_off.len()));
        let query = query.bind(list(row, &row.absent)?).bind(list(row, &row.cut_off)?);
        let query = query.bind(list(row, &row.members)?).bind(list(row, &row.ports)?);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Conflict {
                kind: "fabric key",
                id: format!("{:#06x}", row.key),
            });
        }
        Ok(())
    }

    /// Frees a key.
    pub async fn delete_fabric_key(&mut self, key: u16) -> Result<()> {
        let query = statement("DELETE FROM fabric_keys WHERE pkey = $1").bind(i64::from(key));
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}

/// The known faults. The hall must have been read within the change, which locks it.
impl WriteTx {
    /// As [`Store::fabric_comparison`], within this change.
    ///
    /// # Errors
    /// The database failed, or the row does not parse.
    pub async fn fabric_comparison(&mut self) -> Result<Option<ComparisonRow>> {
        let row = statement(COMPARISON).fetch_optional(&mut self.tx).await?;
        row.as_ref().map(comparison).transpose()
    }

    /// Writes the last comparison.
    pub async fn put_fabric_comparison(&mut self, row: &ComparisonRow) -> Result<()> {
        let sql = "INSERT INTO fabric_comparison (id, checked_at, problem, more_faults, compared_changes, compared_reading) \
                   VALUES (1, $1, $2, $3, $4, $5) ON CONFLICT (id) DO UPDATE SET checked_at = excluded.checked_at, \
                   problem = excluded.problem, more_faults = excluded.more_faults, \
                   compared_changes = excluded.compared_changes, compared_reading = excluded.compared_reading";
        let query = statement(sql).bind(row.checked_at.map(|at| at.0)).bind(&row.problem);
        let query = query.bind(stored(row.more_faults)).bind(stored(row.compared_changes));
        let query = query.bind(row.compared_reading.map(|at| at.0));
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// As [`Store::fabric_faults`], within this change.
    pub async fn fabric_faults(&mut self) -> Result<Vec<(String, String)>> {
        let rows = statement(FAULTS).fetch_all(&mut self.tx).await?;
        rows.iter().map(fault).collect()
    }

    /// Writes an open fault.
    pub async fn put_fabric_fault(&mut self, id: &str, body: &str) -> Result<()> {
        let sql =
            "INSERT INTO fabric_faults (id, body) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = excluded.body";
        statement(sql).bind(id).bind(body).execute(&mut self.tx).await?;
        Ok(())
    }

    /// Deletes a fault that is gone.
    pub async fn delete_fabric_fault(&mut self, id: &str) -> Result<()> {
        let query = statement("DELETE FROM fabric_faults WHERE id = $1").bind(id);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// As [`Store::broken_links`], within this change.
    pub async fn broken_links(&mut self) -> Result<Vec<String>> {
        let rows = statement(BROKEN).fetch_all(&mut self.tx).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Stores whether plans must not use a cable between switches.
    pub async fn set_link_broken(&mut self, cable: &str, is_broken: bool) -> Result<()> {
        let sql = match is_broken {
            true => "INSERT INTO fabric_broken_links (cable) VALUES ($1) ON CONFLICT DO NOTHING",
            false => "DELETE FROM fabric_broken_links WHERE cable = $1",
        };
        statement(sql).bind(cable).execute(&mut self.tx).await?;
        Ok(())
    }

    /// The nodes of all clusters without their full connection, by id.
    pub async fn impaired_nodes(&mut self) -> Result<Vec<ImpairedNodeRow>> {
        let query = statement(format!("{IMPAIRED} ORDER BY i.node_id"));
        let rows = query.fetch_all(&mut self.tx).await?;
        rows.iter().map(impaired_node).collect()
    }

    /// Writes a node without its full connection.
    pub async fn put_impaired_node(&mut self, row: &ImpairedNodeRow) -> Result<()> {
        let sql = "INSERT INTO fabric_impaired_nodes (node_id, since, seen, why) VALUES ($1, $2, $3, $4) \
                   ON CONFLICT (node_id) DO UPDATE SET since = excluded.since, seen = excluded.seen, why = excluded.why";
        let query = statement(sql).bind(&row.node).bind(row.since.0).bind(row.seen.0);
        query.bind(&row.why).execute(&mut self.tx).await?;
        Ok(())
    }

    /// Deletes a node that has its full connection again.
    pub async fn delete_impaired_node(&mut self, node: &NodeId) -> Result<()> {
        let query = statement("DELETE FROM fabric_impaired_nodes WHERE node_id = $1").bind(node);
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
