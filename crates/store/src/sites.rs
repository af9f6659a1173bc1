//! The applied site, and the state of its hall as a whole.

use rackwright_lifecycle::{NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::corrupt;
use crate::sql::{Row, statement};
use crate::{Result, Store, StoreError, WriteTx};

/// A file of the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteFile {
    /// The file's path in findings.
    pub name: String,
    /// YAML.
    pub text: String,
}

/// A version of the site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRow {
    /// From 1, without gaps.
    pub version: i64,
    /// The same for all versions.
    pub uid: String,
    /// Digest of the files.
    pub digest: String,
    /// The files.
    pub files: Vec<SiteFile>,
    /// The member who applied it.
    pub applied_by: String,
    /// When it was applied.
    pub applied_at: Timestamp,
}

/// The state of the hall as a whole: a single row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HallRow {
    /// Grows with every reservation and release.
    pub version: i64,
}

/// Versions of the site that are kept.
const VERSIONS_KEPT: i64 = 20;

const HALL: &str = "SELECT version FROM hall WHERE id = 1";

fn site(row: &Row) -> Result<SiteRow> {
    let version: i64 = row.try_get("version")?;
    let files: Vec<u8> = row.try_get("files")?;
    let files = serde_json::from_slice(&files).map_err(|e| corrupt("site", &version.to_string(), e))?;
    Ok(SiteRow {
        version,
        uid: row.try_get("uid")?,
        digest: row.try_get("digest")?,
        files,
        applied_by: row.try_get("applied_by")?,
        applied_at: Timestamp(row.try_get("applied_at")?),
    })
}

fn hall(row: &Row) -> Result<HallRow> {
    Ok(HallRow {
        version: row.try_get("version")?,
    })
}

impl Store {
    /// The site as last applied.
    ///
    /// # Errors
    /// The database failed.
    pub async fn site(&self) -> Result<Option<SiteRow>> {
        let sql = "SELECT version, uid, digest, files, applied_by, applied_at FROM sites ORDER BY version DESC LIMIT 1";
        let row = statement(sql).fetch_optional(&self.readers).await?;
        row.as_ref().map(site).transpose()
    }

    /// The newest version number; 0: no site was applied.
    ///
    /// # Errors
    /// The database failed.
    pub async fn site_version(&self) -> Result<i64> {
        let row = statement("SELECT COALESCE(MAX(version), 0) FROM sites");
        Ok(row.fetch_one(&self.readers).await?.try_get(0)?)
    }

    /// The hall's row.
    ///
    /// # Errors
    /// The database failed.
    pub async fn hall(&self) -> Result<HallRow> {
        hall(&statement(HALL).fetch_one(&self.readers).await?)
    }

    /// Leases the fabric to `replica` until `until`: only that replica writes partitions. False: another replica has the
    /// lease.
    ///
    /// # Errors
    /// The database failed.
    pub async fn lease_fabric(&self, replica: &str, now: Timestamp, until: Timestamp) -> Result<bool> {
        let sql = "UPDATE hall SET fabric_owner = $1, fabric_until = $2 \
                   WHERE id = 1 AND (fabric_owner = $1 OR fabric_until < $3)";
        let query = statement(sql).bind(replica).bind(until.0).bind(now.0);
        Ok(self.execute(query).await? > 0)
    }

    /// The ids of all nodes.
    ///
    /// # Errors
    /// The database failed.
    pub async fn node_ids(&self) -> Result<Vec<NodeId>> {
        self.ids("SELECT id FROM nodes ORDER BY id").await
    }

    /// The ids of all nodes that are available, unclaimed and not doubted, and have no begun firmware update: a machine
    /// with an update of unknown outcome may be in the middle of a flash.
    ///
    /// # Errors
    /// The database failed.
    pub async fn free_nodes(&self) -> Result<Vec<NodeId>> {
        let sql = "SELECT id FROM nodes WHERE state = 'available' AND claimed_image = '' AND doubt_cause = '' \
                   AND NOT EXISTS (SELECT 1 FROM firmware_updates u WHERE u.node_id = nodes.id) ORDER BY id";
        self.ids(sql).await
    }

    async fn ids(&self, sql: &'static str) -> Result<Vec<NodeId>> {
        let rows = statement(sql).blocking().fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(row.id(0)?)).collect()
    }
}

impl WriteTx {
    /// The hall within this change, locked: no other change reserves or frees until this one ends. Lock it before any node
    /// or cluster.
    ///
    /// # Errors
    /// The database failed.
    pub async fn hall(&mut self) -> Result<HallRow> {
        let sql = format!("{HALL}{}", self.kind.for_update());
        hall(&statement(sql).fetch_one(&mut self.tx).await?)
    }

    /// Writes the hall back with a new version.
    ///
    /// # Errors
    /// `Conflict`: it was changed since it was read.
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

    /// Adds a version of the site; `row.version` must be the next number. The oldest versions are deleted.
    ///
    /// # Errors
    /// `Conflict`: another version was applied since.
    pub async fn insert_site(&mut self, row: &SiteRow) -> Result<()> {
        let files = serde_json::to_vec(&row.files).map_err(|e| corrupt("site", &row.version.to_string(), e))?;
        let sql = "INSERT INTO sites (version, uid, digest, files, applied_by, applied_at) \
                   SELECT $1, $2, $3, $4, $5, $6 WHERE (SELECT COALESCE(MAX(version), 0) FROM sites) + 1 = $1 \
                   ON CONFLICT DO NOTHING";
        let query = statement(sql).bind(row.version).bind(&row.uid).bind(&row.digest);
        let query = query.bind(&files[..]).bind(&row.applied_by).bind(row.applied_at.0);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Conflict {
                kind: "site",
                id: String::new(),
            });
        }
        let forget = statement("DELETE FROM sites WHERE version <= $1").bind(row.version - VERSIONS_KEPT);
        forget.execute(&mut self.tx).await?;
        Ok(())
    }
}
