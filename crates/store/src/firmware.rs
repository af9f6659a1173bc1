//! Firmware: files, the last readings, running updates, and maintenance windows.

use rackwright_lifecycle::{NodeId, Timestamp};

use crate::sql::{Query, Row, statement};
use crate::{Result, Store, StoreError, WriteTx};

/// A firmware file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirmwareFileRow {
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The component that it updates.
    pub component: String,
    /// The version that it installs.
    pub version: String,
    /// Name of the file.
    pub name: String,
    /// Size in bytes.
    pub bytes: i64,
    /// When it was added.
    pub created_at: Timestamp,
}

/// A node's firmware, as its BMC last reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirmwareSeenRow {
    pub node: NodeId,
    /// When the BMC was read.
    pub at: Timestamp,
    /// The inventory, as JSON.
    pub body: String,
}

/// A running update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirmwareUpdateRow {
    pub node: NodeId,
    /// Digest of the file.
    pub digest: String,
    /// When the row was last changed.
    pub changed_at: Timestamp,
    /// The progress, as JSON.
    pub body: String,
}

/// A maintenance window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowRow {
    /// `nodes/{node}` or `clusters/{cluster}`.
    pub target: String,
    /// Claim generation for which it holds; 0 for a cluster.
    pub generation: i64,
    /// When it was set.
    pub changed_at: Timestamp,
    /// The spans, as JSON.
    pub body: String,
}

const FILE: &str = "SELECT digest, component, version, name, bytes, created_at FROM firmware_files";

fn file(row: &Row) -> Result<FirmwareFileRow> {
    Ok(FirmwareFileRow {
        digest: row.try_get("digest")?,
        component: row.try_get("component")?,
        version: row.try_get("version")?,
        name: row.try_get("name")?,
        bytes: row.try_get("bytes")?,
        created_at: Timestamp(row.try_get("created_at")?),
    })
}

fn seen(row: &Row) -> Result<FirmwareSeenRow> {
    Ok(FirmwareSeenRow {
        node: row.id("node_id")?,
        at: Timestamp(row.try_get("at")?),
        body: row.try_get("body")?,
    })
}

const UPDATE: &str = "SELECT node_id, digest, changed_at, body FROM firmware_updates WHERE node_id = $1";

fn update(row: &Row) -> Result<FirmwareUpdateRow> {
    Ok(FirmwareUpdateRow {
        node: row.id("node_id")?,
        digest: row.try_get("digest")?,
        changed_at: Timestamp(row.try_get("changed_at")?),
        body: row.try_get("body")?,
    })
}

fn put_update(row: &FirmwareUpdateRow) -> Query<'_> {
    let sql = "INSERT INTO firmware_updates (node_id, digest, changed_at, body) VALUES ($1, $2, $3, $4) \
               ON CONFLICT (node_id) DO UPDATE SET digest = excluded.digest, changed_at = excluded.changed_at, \
               body = excluded.body";
    let query = statement(sql).bind(row.node.as_str()).bind(row.digest.as_str());
    query.bind(row.changed_at.0).bind(row.body.as_str())
}

impl Store {
    /// All firmware files, by component and version.
    pub async fn firmware_files(&self) -> Result<Vec<FirmwareFileRow>> {
        let rows = statement(format!("{FILE} ORDER BY component, version"));
        rows.fetch_all(&self.readers).await?.iter().map(file).collect()
    }

    /// The last reports of the BMCs of the nodes after `after` up to `last`, by node.
    pub async fn firmware_seen_between(&self, after: &str, last: &str) -> Result<Vec<FirmwareSeenRow>> {
        let sql = "SELECT node_id, at, body FROM firmware_seen WHERE node_id > $1 AND node_id <= $2 ORDER BY node_id";
        let rows = statement(sql).bind(after).bind(last).blocking();
        rows.fetch_all(&self.readers).await?.iter().map(seen).collect()
    }

    /// The last report of a node's BMC.
    pub async fn firmware_seen(&self, node: &NodeId) -> Result<Option<FirmwareSeenRow>> {
        let query = statement("SELECT node_id, at, body FROM firmware_seen WHERE node_id = $1").bind(node);
        let row = query.fetch_optional(&self.readers).await?;
        row.as_ref().map(seen).transpose()
    }

    /// Stores a report of a node's BMC.
    ///
    /// # Errors
    /// The database failed, or the node does not exist.
    pub async fn put_firmware_seen(&self, row: &FirmwareSeenRow) -> Result<()> {
        let sql = "INSERT INTO firmware_seen (node_id, at, body) VALUES ($1, $2, $3) \
                   ON CONFLICT (node_id) DO UPDATE SET at = excluded.at, body = excluded.body";
        let query = statement(sql).bind(row.node.as_str()).bind(row.at.0);
        self.execute(query.bind(row.body.as_str())).await.map(drop)
    }

    /// The running update of a node.
    pub async fn firmware_update(&self, node: &NodeId) -> Result<Option<FirmwareUpdateRow>> {
        let row = statement(UPDATE).bind(node).fetch_optional(&self.readers).await?;
        row.as_ref().map(update).transpose()
    }

    /// Stores the progress of an update.
    ///
    /// # Errors
    /// The database failed, or the node does not exist.
    pub async fn put_firmware_update(&self, row: &FirmwareUpdateRow) -> Result<()> {
        self.execute(put_update(row)).await.map(drop)
    }

    /// Deletes the update of a node: it is over.
    pub async fn end_firmware_update(&self, node: &NodeId) -> Result<()> {
        let query = statement("DELETE FROM firmware_updates WHERE node_id = $1").bind(node);
        self.execute(query).await.map(drop)
    }

    /// The maintenance window of a node or a cluster.
    pub async fn maintenance_window(&self, target: &str) -> Result<Option<WindowRow>> {
        let sql = "SELECT target, generation, changed_at, body FROM maintenance_windows WHERE target = $1";
        let row = statement(sql).bind(target).fetch_optional(&self.readers).await?;
        row.map(|row| {
            Ok(WindowRow {
                target: row.try_get("target")?,
                generation: row.try_get("generation")?,
                changed_at: Timestamp(row.try_get("changed_at")?),
                body: row.try_get("body")?,
            })
        })
        .transpose()
    }
}

impl WriteTx {
    /// As [`Store::firmware_update`], within this change.
    pub async fn firmware_update(&mut self, node: &NodeId) -> Result<Option<FirmwareUpdateRow>> {
        let row = statement(UPDATE).bind(node).fetch_optional(&mut self.tx).await?;
        row.as_ref().map(update).transpose()
    }

    /// As [`Store::put_firmware_update`], within this change.
    ///
    /// # Errors
    /// The database failed, or the node does not exist.
    pub async fn put_firmware_update(&mut self, row: &FirmwareUpdateRow) -> Result<()> {
        put_update(row).execute(&mut self.tx).await?;
        Ok(())
    }

    /// Adds a firmware file. An identical file with the same digest stays unchanged.
    ///
    /// # Errors
    /// `Exists`: the digest has another component or version, or the version another digest.
    pub async fn add_firmware_file(&mut self, row: &FirmwareFileRow) -> Result<()> {
        let sql = "INSERT INTO firmware_files (digest, component, version, name, bytes, created_at) \
                   VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
        let query = statement(sql)
            .bind(row.digest.as_str())
            .bind(row.component.as_str())
            .bind(row.version.as_str())
            .bind(row.name.as_str())
            .bind(row.bytes)
            .bind(row.created_at.0);
        if query.execute(&mut self.tx).await? == 1 {
            return Ok(());
        }
        let sql = format!("{FILE} WHERE digest = $1 AND component = $2 AND version = $3");
        let query = statement(sql).bind(row.digest.as_str());
        let query = query.bind(row.component.as_str()).bind(row.version.as_str());
        match query.fetch_optional(&mut self.tx).await? {
            Some(_) => Ok(()),
            None => Err(StoreError::Exists {
                kind: "firmware",
                id: format!("{} {}", row.component, row.version),
            }),
        }
    }

    /// Removes a firmware file; false: an update uses it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the catalogue has no file of this digest.
    pub async fn remove_firmware_file(&mut self, digest: &str) -> Result<bool> {
        let found = statement("SELECT digest FROM firmware_files WHERE digest = $1").bind(digest);
        if found.fetch_optional(&mut self.tx).await?.is_none() {
            return Err(StoreError::NotFound {
                kind: "firmware",
                id: digest.to_owned(),
            });
        }
        let sql = "DELETE FROM firmware_files WHERE digest = $1 \
                   AND NOT EXISTS (SELECT 1 FROM firmware_updates WHERE digest = $1)";
        Ok(statement(sql).bind(digest).execute(&mut self.tx).await? == 1)
    }

    /// Sets the maintenance window of a node or a cluster.
    pub async fn put_maintenance_window(&mut self, row: &WindowRow) -> Result<()> {
        let sql = "INSERT INTO maintenance_windows (target, generation, changed_at, body) VALUES ($1, $2, $3, $4) \
                   ON CONFLICT (target) DO UPDATE SET generation = excluded.generation, \
                   changed_at = excluded.changed_at, body = excluded.body";
        let query = statement(sql).bind(row.target.as_str()).bind(row.generation);
        let query = query.bind(row.changed_at.0).bind(row.body.as_str());
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
