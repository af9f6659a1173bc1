//! Sealed secrets as a whole: those under another key than the present one, and those that older versions left in the
//! clear. To this module a secret is only bytes that start with the id of their key; the sealing code knows its purpose.

use std::fmt::Write as _;

use rackwright_lifecycle::{ClusterId, NodeId, Timestamp};

use crate::sql::{Query, Row, StoredId, statement};
use crate::{Result, Store, StoreError, WriteTx};

/// Bytes of the header of a sealed secret, with its format and its key id.
pub const SEAL_HEADER_BYTES: usize = 9;

/// A column with sealed secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedColumn {
    /// Key: node, generation, deployment.
    HostKey,
    /// Key: node, generation, deployment.
    ProvisionKey,
    /// Key: node, generation, deployment.
    UserData,
    /// Key: id of the credential.
    FactoryPassword,
    /// Key: id of the search.
    DiscoverySecrets,
    /// Key: id of the search, place.
    DiscoveryLogin,
    /// Key: name.
    SiteKey,
}

impl SealedColumn {
    /// Every such column.
    pub const ALL: [Self; 7] = [
        Self::HostKey,
        Self::ProvisionKey,
        Self::UserData,
        Self::FactoryPassword,
        Self::DiscoverySecrets,
        Self::DiscoveryLogin,
        Self::SiteKey,
    ];

    /// Table, column, and the columns of the table's key; true: a number.
    fn place(self) -> (&'static str, &'static str, &'static [(&'static str, bool)]) {
        const DEPLOYMENT: &[(&str, bool)] = &[("node_id", false), ("generation", true), ("deployment", true)];
        match self {
            Self::HostKey => ("deployment_keys", "host_private", DEPLOYMENT),
            Self::ProvisionKey => ("deployment_keys", "provision_private", DEPLOYMENT),
            Self::UserData => ("deployment_keys", "user_data", DEPLOYMENT),
            Self::FactoryPassword => ("factory_credentials", "password", &[("id", false)]),
            Self::DiscoverySecrets => ("discoveries", "secrets", &[("id", false)]),
            Self::DiscoveryLogin => (
                "discovery_findings",
                "login",
                &[("discovery_id", false), ("place", false)],
            ),
            Self::SiteKey => ("sealed_keys", "sealed", &[("name", false)]),
        }
    }

    /// The condition of a secret that must be sealed again; `$1` is the header of the present key.
    fn condition(self) -> String {
        let (_, column, _) = self.place();
        format!("length({column}) > {SEAL_HEADER_BYTES} AND substr({column}, 1, {SEAL_HEADER_BYTES}) <> $1")
    }
}

/// A sealed secret in a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecret {
    /// The key of its row, column by column.
    pub key: Vec<String>,
    /// The sealed bytes.
    pub sealed: Vec<u8>,
}

/// The keys and authorities of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaKeys {
    /// Id of the replica.
    pub replica: String,
    /// Ids of its sealing keys, newest first.
    pub keys: Vec<String>,
    /// The key with which it seals.
    pub seals_with: String,
    /// Hashes of the authorities that it trusts; first the one that clients pin.
    pub authorities: Vec<String>,
    /// The authority with which it signs client certificates.
    pub issues_with: String,
}

/// True for a node's body with sealed secrets under another key than that of the header; `$1` and `$2` are the beginnings
/// of secrets under that key.
const NODES: &str = "(REPLACE(body, $1, '') LIKE '%\"bmc_password\":[1,%' \
                     OR REPLACE(body, $2, '') LIKE '%\"password\":[1,%')";
/// As `NODES`, for a cluster; only `$1`.
const CLUSTERS: &str = "REPLACE(body, $1, '') LIKE '%\"sealed\":\"%'";
/// True for a body with a cloud-config in the clear. An empty one does not count.
const PLAIN: &str = "REPLACE(body, '\"user_data\":\"\"', '') LIKE '%\"user_data\":\"%'";

/// The beginning of a JSON list of numbers, the form of secrets in a node's body.
fn numbers(header: &[u8]) -> String {
    let mut text = String::from("[");
    for byte in header {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte},");
    }
    text
}

fn nodes_query<'a>(sql: String, header: &[u8]) -> Query<'a> {
    let begin = numbers(header);
    let query = statement(sql).bind(format!("\"bmc_password\":{begin}"));
    query.bind(format!("\"password\":{begin}")).blocking()
}

fn clusters_query<'a>(sql: String, header: &[u8]) -> Query<'a> {
    statement(sql)
        .bind(format!("\"sealed\":\"{}", hex::encode(header)))
        .blocking()
}

fn texts<T: StoredId>(rows: &[Row]) -> Result<Vec<T>> {
    rows.iter().map(|row| Ok(row.id(0)?)).collect()
}

fn secret(row: &Row, keys: &[(&str, bool)]) -> Result<SealedSecret> {
    let mut key = Vec::new();
    for (place, (_, is_number)) in keys.iter().enumerate() {
        key.push(match is_number {
            true => row.try_get::<i64>(place)?.to_string(),
            false => row.try_get::<String>(place)?,
        });
    }
    Ok(SealedSecret {
        key,
        sealed: row.try_get(keys.len())?,
    })
}

impl Store {
    /// Ids of nodes with a cloud-config in the clear, as older versions stored it, at most `limit`.
    pub async fn nodes_with_plain_user_data(&self, limit: i64) -> Result<Vec<NodeId>> {
        let sql = format!("SELECT id FROM nodes WHERE {PLAIN} ORDER BY id LIMIT $1");
        texts(&statement(sql).bind(limit).blocking().fetch_all(&self.readers).await?)
    }

    /// Ids of clusters with a cloud-config in the clear, as older versions stored it, at most `limit`.
    pub async fn clusters_with_plain_user_data(&self, limit: i64) -> Result<Vec<ClusterId>> {
        let sql = format!("SELECT id FROM clusters WHERE {PLAIN} ORDER BY id LIMIT $1");
        texts(&statement(sql).bind(limit).blocking().fetch_all(&self.readers).await?)
    }

    /// Ids of nodes after `after` with a secret that is not under the key of this header.
    pub async fn nodes_to_reseal(&self, header: &[u8], after: &str, limit: i64) -> Result<Vec<NodeId>> {
        let sql = format!("SELECT id FROM nodes WHERE {NODES} AND id > $3 ORDER BY id LIMIT $4");
        let query = nodes_query(sql, header).bind(after.to_owned()).bind(limit);
        texts(&query.fetch_all(&self.readers).await?)
    }

    /// Ids of clusters after `after` with a secret that is not under the key of this header.
    pub async fn clusters_to_reseal(&self, header: &[u8], after: &str, limit: i64) -> Result<Vec<ClusterId>> {
        let sql = format!("SELECT id FROM clusters WHERE {CLUSTERS} AND id > $2 ORDER BY id LIMIT $3");
        let query = clusters_query(sql, header).bind(after.to_owned()).bind(limit);
        texts(&query.fetch_all(&self.readers).await?)
    }

    /// Stores the sealing keys and authorities of a replica, and which of them it uses.
    pub async fn put_replica_keys(&self, own: &ReplicaKeys) -> Result<()> {
        let sql = "UPDATE replicas SET sealing_keys = $1, seals_with = $2, authorities = $4, issues_with = $5 \
                   WHERE id = $3";
        let query = statement(sql).bind(own.keys.join(" ")).bind(&own.seals_with);
        let query = query.bind(&own.replica).bind(own.authorities.join(" "));
        let query = query.bind(&own.issues_with);
        self.execute(query).await?;
        Ok(())
    }

    /// The keys of replicas with a heartbeat at or after `since`.
    pub async fn replica_keys(&self, since: Timestamp) -> Result<Vec<ReplicaKeys>> {
        let sql = "SELECT id, sealing_keys, seals_with, authorities, issues_with FROM replicas WHERE heard_at >= $1 \
                   ORDER BY id";
        let rows = statement(sql).bind(since.0).fetch_all(&self.readers).await?;
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        rows.iter()
            .map(|row| {
                Ok(ReplicaKeys {
                    replica: row.try_get("id")?,
                    keys: words(row.try_get("sealing_keys")?),
                    seals_with: row.try_get("seals_with")?,
                    authorities: words(row.try_get("authorities")?),
                    issues_with: row.try_get("issues_with")?,
                })
            })
            .collect()
    }

    /// Id of the sealing key that every starting replica must have. Empty: any set of keys.
    pub async fn required_sealing_key(&self) -> Result<String> {
        let row = statement("SELECT sealing_key FROM site").fetch_optional(&self.readers);
        row.await?.map_or(Ok(String::new()), |row| Ok(row.try_get(0)?))
    }
}

impl WriteTx {
    /// Number of secrets that are not under the key of this header.
    pub async fn count_to_reseal(&mut self, header: &[u8]) -> Result<i64> {
        let nodes = nodes_query(format!("SELECT COUNT(*) FROM nodes WHERE {NODES}"), header);
        let mut count: i64 = nodes.fetch_one(&mut self.tx).await?.try_get(0)?;
        let clusters = clusters_query(format!("SELECT COUNT(*) FROM clusters WHERE {CLUSTERS}"), header);
        count += clusters.fetch_one(&mut self.tx).await?.try_get::<i64>(0)?;
        for column in SealedColumn::ALL {
            let (table, _, _) = column.place();
            let sql = format!("SELECT COUNT(*) FROM {table} WHERE {}", column.condition());
            let row = statement(sql).bind(header).fetch_one(&mut self.tx).await?;
            count += row.try_get::<i64>(0)?;
        }
        Ok(count)
    }

    /// Secrets of a column that are not under the key of this header, by their row's key, without the first `skip`, locked
    /// until this change ends.
    pub async fn to_reseal(
        &mut self,
        column: SealedColumn,
        header: &[u8],
        skip: i64,
        limit: i64,
    ) -> Result<Vec<SealedSecret>> {
        let (table, name, keys) = column.place();
        let key: Vec<&str> = keys.iter().map(|(column, _)| *column).collect();
        let key = key.join(", ");
        let sql = format!(
            "SELECT {key}, {name} FROM {table} WHERE {} ORDER BY {key} LIMIT $2 OFFSET $3{}",
            column.condition(),
            self.kind.for_update()
        );
        let rows = statement(sql).bind(header).bind(limit).bind(skip);
        let rows = rows.fetch_all(&mut self.tx).await?;
        rows.iter().map(|row| secret(row, keys)).collect()
    }

    /// Replaces a sealed secret.
    ///
    /// # Errors
    /// The database failed. `Corrupt`: a part of the key is not a number where the column is one.
    pub async fn put_sealed(&mut self, column: SealedColumn, secret: &SealedSecret) -> Result<()> {
        let (table, name, keys) = column.place();
        let conditions: Vec<String> = keys
            .iter()
            .enumerate()
            .map(|(place, (column, _))| format!("{column} = ${}", place + 2))
            .collect();
        let sql = format!("UPDATE {table} SET {name} = $1 WHERE {}", conditions.join(" AND "));
        let mut query = statement(sql).bind(&secret.sealed);
        for ((_, is_number), value) in keys.iter().zip(&secret.key) {
            query = match is_number {
                true => query.bind(value.parse::<i64>().map_err(|source| StoreError::Corrupt {
                    what: "key of a sealed secret",
                    id: value.clone(),
                    source: source.into(),
                })?),
                false => query.bind(value),
            };
        }
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Requires this sealing key of every starting replica.
    pub async fn require_sealing_key(&mut self, id: &str) -> Result<()> {
        let query = statement("UPDATE site SET sealing_key = $1");
        query.bind(id).execute(&mut self.tx).await?;
        Ok(())
    }
}
