//! Images, their versions, and running uploads.

use rackwright_lifecycle::{ImageId, OperationId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::corrupt;
use crate::sql::{Row, statement};
use crate::{Result, Store, StoreError, WriteTx};

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRow {
    /// Chosen with the first version.
    pub id: ImageId,
    /// Never reused.
    pub uid: String,
    /// Grows with every change.
    pub version: i64,
    /// When it was added.
    pub created_at: Timestamp,
    /// Last changed.
    pub updated_at: Timestamp,
}

/// A version of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageVersionRow {
    /// Id of its image.
    pub image_id: ImageId,
    /// "b3-" and 64 hex digits.
    pub digest: String,
    /// When it was imported.
    pub created_at: Timestamp,
    /// Size, source and patterns.
    pub body: ImageVersionBody,
}

/// The stored properties of a version.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImageVersionBody {
    /// Size of the disk image, in bytes.
    pub logical_bytes: u64,
    /// Bytes outside zero chunks.
    pub data_bytes: u64,
    /// Stored bytes, after compression.
    pub compressed_bytes: u64,
    /// Number of chunks.
    pub chunks: u32,
    /// SHA-256 of the uploaded file, hex.
    pub source_sha256: String,
    /// Format of the uploaded file.
    pub source_format: String,
    /// Key id of the verified signature; empty: none was verified.
    pub signed_by: String,
    /// Pattern of the OS's ID; empty: none.
    #[serde(default)]
    pub os_id: String,
    /// Pattern of the OS's VERSION_ID.
    #[serde(default)]
    pub os_version: String,
    /// Pattern of the kernel's release.
    #[serde(default)]
    pub kernel: String,
}

/// A running upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRow {
    /// UUID.
    pub id: String,
    /// Id of the image.
    pub image_id: ImageId,
    /// The member who began it.
    pub owner: String,
    /// Its idempotency key.
    pub key: String,
    /// The announced properties of the file.
    pub body: UploadBody,
    /// The import's operation, once it was begun.
    pub operation: Option<OperationId>,
    /// When the upload began.
    pub created_at: Timestamp,
}

/// The announced properties of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UploadBody {
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// SHA-256, hex.
    pub sha256: String,
    /// Format; empty: detected from the first bytes.
    pub format: String,
    /// minisign signature; empty: none.
    pub signature: String,
    /// Pattern of the OS's ID; empty: none.
    #[serde(default)]
    pub os_id: String,
    /// Pattern of the OS's VERSION_ID.
    #[serde(default)]
    pub os_version: String,
    /// Pattern of the kernel's release.
    #[serde(default)]
    pub kernel: String,
}

const UPLOAD: &str = "SELECT u.id, u.image_id, u.owner, u.key, u.body, u.operation, u.created_at FROM uploads u";

fn image(row: &Row) -> Result<ImageRow> {
    Ok(ImageRow {
        id: row.id("id")?,
        uid: row.try_get("uid")?,
        version: row.try_get("version")?,
        created_at: Timestamp(row.try_get("created_at")?),
        updated_at: Timestamp(row.try_get("updated_at")?),
    })
}

fn version(row: &Row) -> Result<ImageVersionRow> {
    let digest: String = row.try_get("digest")?;
    let body = serde_json::from_str(row.try_get("body")?).map_err(|e| corrupt("image version", &digest, e))?;
    Ok(ImageVersionRow {
        image_id: row.id("image_id")?,
        created_at: Timestamp(row.try_get("created_at")?),
        digest,
        body,
    })
}

fn upload(row: &Row) -> Result<UploadRow> {
    let id: String = row.try_get("id")?;
    let body = serde_json::from_str(row.try_get("body")?).map_err(|e| corrupt("upload", &id, e))?;
    Ok(UploadRow {
        image_id: row.id("image_id")?,
        owner: row.try_get("owner")?,
        key: row.try_get("key")?,
        operation: row.optional_id("operation")?,
        created_at: Timestamp(row.try_get("created_at")?),
        id,
        body,
    })
}

impl Store {
    /// One image.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn image(&self, id: &ImageId) -> Result<ImageRow> {
        let row = statement("SELECT id, uid, version, created_at, updated_at FROM images WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.readers)
            .await?;
        image(&row.ok_or_else(|| StoreError::NotFound {
            kind: "image",
            id: id.to_string(),
        })?)
    }

    /// Images by id after `after`, at most `limit`.
    ///
    /// # Errors
    /// The database failed.
    pub async fn images(&self, after: &str, limit: i64) -> Result<Vec<ImageRow>> {
        let sql = "SELECT id, uid, version, created_at, updated_at FROM images WHERE id > $1 ORDER BY id LIMIT $2";
        let query = statement(sql).bind(after).bind(limit);
        query.fetch_all(&self.readers).await?.iter().map(image).collect()
    }

    /// Versions of an image, newest first.
    ///
    /// # Errors
    /// The database failed.
    pub async fn image_versions(&self, id: &ImageId) -> Result<Vec<ImageVersionRow>> {
        let sql = "SELECT image_id, digest, body, created_at FROM image_versions WHERE image_id = $1 \
                   ORDER BY created_at DESC, digest";
        statement(sql)
            .bind(id)
            .fetch_all(&self.readers)
            .await?
            .iter()
            .map(version)
            .collect()
    }

    /// An upload.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn upload(&self, id: &str) -> Result<UploadRow> {
        let sql = format!("{UPLOAD} WHERE u.id = $1");
        let row = statement(sql).bind(id).fetch_optional(&self.readers).await?;
        upload(&row.ok_or_else(|| StoreError::NotFound {
            kind: "upload",
            id: id.to_owned(),
        })?)
    }

    /// Uploads with an unfinished import, which is begun again after a restart.
    ///
    /// # Errors
    /// The database failed.
    pub async fn unfinished_imports(&self) -> Result<Vec<UploadRow>> {
        let sql = format!("{UPLOAD} JOIN operations o ON o.id = u.operation WHERE o.ended_at IS NULL");
        statement(sql)
            .fetch_all(&self.readers)
            .await?
            .iter()
            .map(upload)
            .collect()
    }

    /// Uploads begun before `oldest`.
    ///
    /// # Errors
    /// The database failed.
    pub async fn old_uploads(&self, oldest: Timestamp) -> Result<Vec<UploadRow>> {
        let sql = format!("{UPLOAD} WHERE u.created_at < $1 LIMIT 100");
        let query = statement(sql).bind(oldest.0);
        query.fetch_all(&self.readers).await?.iter().map(upload).collect()
    }
}

impl WriteTx {
    /// The upload of that owner and idempotency key.
    ///
    /// # Errors
    /// The database failed.
    pub async fn upload_of_key(&mut self, owner: &str, key: &str) -> Result<Option<UploadRow>> {
        let sql = format!("{UPLOAD} WHERE u.owner = $1 AND u.key = $2");
        let query = statement(sql).bind(owner).bind(key);
        query
            .fetch_optional(&mut self.tx)
            .await?
            .as_ref()
            .map(upload)
            .transpose()
    }

    /// Inserts a new upload.
    ///
    /// # Errors
    /// `Exists`: its owner has one with that key.
    pub async fn insert_upload(&mut self, row: &UploadRow) -> Result<()> {
        let body = serde_json::to_string(&row.body).map_err(|e| corrupt("upload", &row.id, e))?;
        let sql = "INSERT INTO uploads (id, image_id, owner, key, body, operation, created_at) \
                   VALUES ($1, $2, $3, $4, $5, NULL, $6) ON CONFLICT DO NOTHING";
        let query = statement(sql)
            .bind(&row.id)
            .bind(&row.image_id)
            .bind(&row.owner)
            .bind(&row.key)
            .bind(body);
        let done = query.bind(row.created_at.0).execute(&mut self.tx).await?;
        if done == 0 {
            return Err(StoreError::Exists {
                kind: "upload",
                id: row.id.clone(),
            });
        }
        Ok(())
    }

    /// Stores the operation that imports an upload.
    ///
    /// # Errors
    /// `Conflict`: another operation imports it already, or it was deleted.
    pub async fn begin_import(&mut self, upload: &str, operation: &OperationId) -> Result<()> {
        let query = statement("UPDATE uploads SET operation = $1 WHERE id = $2 AND operation IS NULL")
            .bind(operation)
            .bind(upload);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Conflict {
                kind: "upload",
                id: upload.to_owned(),
            });
        }
        Ok(())
    }

    /// Deletes an upload.
    ///
    /// # Errors
    /// The database failed.
    pub async fn delete_upload(&mut self, id: &str) -> Result<()> {
        statement("DELETE FROM uploads WHERE id = $1")
            .bind(id)
            .execute(&mut self.tx)
            .await?;
        Ok(())
    }

    /// Adds a version, and its image with the first version. A version that exists already becomes the newest.
    ///
    /// # Errors
    /// The database failed.
    pub async fn add_image_version(&mut self, row: &ImageVersionRow, image_uid: &str) -> Result<()> {
        let sql = "INSERT INTO images (id, uid, version, created_at, updated_at) VALUES ($1, $2, 1, $3, $4) \
                   ON CONFLICT (id) DO UPDATE SET version = images.version + 1, updated_at = excluded.updated_at";
        let query = statement(sql)
            .bind(&row.image_id)
            .bind(image_uid)
            .bind(row.created_at.0);
        match query.bind(row.created_at.0).execute(&mut self.tx).await {
            Err(e) if e.is_unique_violation() => {
                return Err(StoreError::Exists {
                    kind: "image",
                    id: row.image_id.to_string(),
                });
            }
            other => other?,
        };
        let body = serde_json::to_string(&row.body).map_err(|e| corrupt("image version", &row.digest, e))?;
        let sql = "INSERT INTO image_versions (image_id, digest, body, created_at) VALUES ($1, $2, $3, $4) \
                   ON CONFLICT (image_id, digest) DO UPDATE SET created_at = excluded.created_at";
        let query = statement(sql)
            .bind(&row.image_id)
            .bind(&row.digest)
            .bind(body)
            .bind(row.created_at.0);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Removes a version; the image is removed with its last version.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn delete_image_version(&mut self, image: &ImageId, digest: &str) -> Result<()> {
        // Locks the image first: a version added meanwhile must not be lost with the image below.
        let sql = format!("SELECT id FROM images WHERE id = $1{}", self.kind.for_update());
        let locked = statement(sql).bind(image);
        locked.fetch_optional(&mut self.tx).await?;
        let query = statement("DELETE FROM image_versions WHERE image_id = $1 AND digest = $2");
        if query.bind(image).bind(digest).execute(&mut self.tx).await? == 0 {
            return Err(StoreError::NotFound {
                kind: "image version",
                id: digest.to_owned(),
            });
        }
        let sql = "DELETE FROM images WHERE id = $1 AND NOT EXISTS \
                   (SELECT 1 FROM image_versions v WHERE v.image_id = images.id)";
        statement(sql).bind(image).execute(&mut self.tx).await?;
        let sql = "UPDATE images SET version = version + 1 WHERE id = $1";
        statement(sql).bind(image).execute(&mut self.tx).await?;
        Ok(())
    }

    /// Digests of all versions, which the chunk store must keep.
    ///
    /// # Errors
    /// The database failed.
    pub async fn image_digests(&mut self) -> Result<Vec<String>> {
        let rows = statement("SELECT DISTINCT digest FROM image_versions")
            .fetch_all(&mut self.tx)
            .await?;
        rows.iter().map(|r| Ok(r.try_get(0)?)).collect()
    }
}
