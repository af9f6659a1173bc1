//! The versions of the applied site, the row of its hall, and the ids of all nodes.

use rackwright_lifecycle::{NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::corrupt;
use crate::sql::{Row, statement};
use crate::{Result, Store, StoreError, WriteTx};

/// One of the files that describe the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteFile {
    /// The file's path, as findings show it.
    pub name: String,
    /// The file's content: YAML.
    pub text: String,
}

/// A version of the site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRow {
    /// Number of the version: from 1, without gaps.
    pub version: i64,
    /// Id of the site: the same in all its versions.
    pub uid: String,
    /// "b3-" and the BLAKE3 digest of the files, in hex.
    pub digest: String,
    /// The files of this version.
    pub files: Vec<SiteFile>,
    /// The member who applied this version.
    pub applied_by: String,
    /// When this version was applied.
    pub applied_at: Timestamp,
}

/// The single row of the hall. Its lock orders the reservations and releases of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HallRow {
    /// Grows with every reservation and release.
    pub version: i64,
}

/// Newest versions of the site that the database keeps.
const VERSIONS_KEPT: i64 = 20;

const SELECT_HALL: &str = "SELECT version FROM hall WHERE id = 1";

fn site_from_row(row: &Row) -> Result<SiteRow> {
    let version: i64 = row.try_get("version")?;
    let files_json: Vec<u8> = row.try_get("files")?;
    let files = serde_json::from_slice(&files_json).map_err(|e| corrupt("site", &version.to_string(), e))?;
    Ok(SiteRow {
        version,
        uid: row.try_get("uid")?,
        digest: row.try_get("digest")?,
        files,
        applied_by: row.try_get("applied_by")?,
        applied_at: Timestamp(row.try_get("applied_at")?),
    })
}

fn hall_from_row(row: &Row) -> Result<HallRow> {
    Ok(HallRow {
        version: row.try_get("version")?,
    })
}

impl Store {
    /// The newest version of the site; `None` before the first.
    pub async fn site(&self) -> Result<Option<SiteRow>> {
        let sql = "SELECT version, uid, digest, files, applied_by, applied_at FROM sites ORDER BY version DESC LIMIT 1";
        let row = statement(sql).fetch_optional(&self.readers).await?;
        row.as_ref().map(site_from_row).transpose()
    }

    /// The number of the site's newest version; 0 before the first.
    pub async fn site_version(&self) -> Result<i64> {
        let query = statement("SELECT COALESCE(MAX(version), 0) FROM sites");
        Ok(query.fetch_one(&self.readers).await?.try_get(0)?)
    }

    /// The hall's row, not locked.
    pub async fn hall(&self) -> Result<HallRow> {
        hall_from_row(&statement(SELECT_HALL).fetch_one(&self.readers).await?)
    }

    /// Leases the fabric to `replica` until `until`, or extends its lease: only the replica with the lease writes
    /// partitions. Returns false when another replica has a lease that has not ended at `now`.
    pub async fn lease_fabric(&self, replica: &str, now: Timestamp, until: Timestamp) -> Result<bool> {
        let sql = "UPDATE hall SET fabric_owner = $1, fabric_until = $2 \
                   WHERE id = 1 AND (fabric_owner = $1 OR fabric_until < $3)";
        let query = statement(sql).bind(replica).bind(until.0).bind(now.0);
        Ok(self.execute(query).await? > 0)
    }

    /// Whether `replica` has the lease of the fabric, and the lease has not ended at `now`.
    pub async fn has_fabric_lease(&self, replica: &str, now: Timestamp) -> Result<bool> {
        let sql = "SELECT COUNT(*) FROM hall WHERE id = 1 AND fabric_owner = $1 AND fabric_until >= $2";
        let query = statement(sql).bind(replica).bind(now.0);
        let count: i64 = query.fetch_one(&self.readers).await?.try_get(0)?;
        Ok(count > 0)
    }

    /// The ids of all nodes, sorted.
    pub async fn node_ids(&self) -> Result<Vec<NodeId>> {
        self.select_node_ids("SELECT id FROM nodes ORDER BY id").await
    }

    /// The ids of all nodes that are available, unclaimed, not doubted, and without an unfinished firmware update, sorted.
    /// A machine with an update of unknown outcome may be in the middle of a flash.
    pub async fn free_nodes(&self) -> Result<Vec<NodeId>> {
        let sql = "SELECT id FROM nodes WHERE state = 'available' AND claimed_image = '' AND doubt_cause = '' \
                   AND NOT EXISTS (SELECT 1 FROM firmware_updates u WHERE u.node_id = nodes.id) ORDER BY id";
        self.select_node_ids(sql).await
    }

    async fn select_node_ids(&self, sql: &'static str) -> Result<Vec<NodeId>> {
        let rows = statement(sql).blocking().fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(row.id(0)?)).collect()
    }
}

impl WriteTx {
    /// Locks the hall's row and returns it: until this change ends, no other change reserves or releases nodes. The caller
    /// locks the hall before any node or cluster.
    pub async fn hall(&mut self) -> Result<HallRow> {
        let sql = format!("{SELECT_HALL}{}", self.kind.for_update());
        hall_from_row(&statement(sql).fetch_one(&mut self.tx).await?)
    }

    /// Increments the hall's version, in the database and in `row`.
    ///
    /// # Errors
    /// `Conflict`: the hall was changed since `row` was read.
    pub async fn save_hall(&mut self, row: &mut HallRow) -> Result<()> {
        let query = statement("UPDATE hall SET version = version + 1 WHERE id = 1 AND version = $1").bind(row.version);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Conflict {
                kind: "hall",
                id: String::new(),
            });
        }
        row.version += 1;
        Ok(())
    }

    /// Adds a version of the site; `row.version` must be the next number. Deletes the oldest versions beyond a fixed count.
    ///
    /// # Errors
    /// `Conflict`: `row.version` is not the next number, because another version was applied meanwhile.
    pub async fn insert_site(&mut self, row: &SiteRow) -> Result<()> {
        let files_json = serde_json::to_vec(&row.files).map_err(|e| corrupt("site", &row.version.to_string(), e))?;
        let sql = "INSERT INTO sites (version, uid, digest, files, applied_by, applied_at) \
                   SELECT $1, $2, $3, $4, $5, $6 WHERE (SELECT COALESCE(MAX(version), 0) FROM sites) + 1 = $1 \
                   ON CONFLICT DO NOTHING";
        let query = statement(sql).bind(row.version).bind(&row.uid).bind(&row.digest);
        let query = query.bind(&files_json[..]).bind(&row.applied_by).bind(row.applied_at.0);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Conflict {
                kind: "site",
                id: String::new(),
            });
        }
        let delete_old = statement("DELETE FROM sites WHERE version <= $1").bind(row.version - VERSIONS_KEPT);
        delete_old.execute(&mut self.tx).await?;
        Ok(())
    }
}
