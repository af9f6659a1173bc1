//! Images, their versions, and running uploads.

use rackwright_lifecycle::{ImageId, OperationId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::corrupt;
use crate::sql::{Row, statement};
use crate::{Result, Store, StoreError, WriteTx};

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRow {
    /// Chosen with the upload of the first version.
    pub id: ImageId,
    /// A UUID. A later image with the same id has another one.
    pub uid: String,
    /// Revision of this row: grows with every change of the image or its versions.
    pub version: i64,
    /// When the first version was imported.
    pub created_at: Timestamp,
    /// When a version was imported last.
    pub updated_at: Timestamp,
}

/// A version of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageVersionRow {
    pub image_id: ImageId,
    /// Digest of the disk image: "b3-" and 64 hex digits.
    pub digest: String,
    /// When this version was imported last.
    pub created_at: Timestamp,
    /// Size, source and patterns.
    pub body: ImageVersionBody,
}

/// The stored properties of a version.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImageVersionBody {
    /// Size of the disk image, in bytes.
    pub logical_bytes: u64,
    /// Size of the chunks that are not all zeros, in bytes.
    pub data_bytes: u64,
    /// Size of the stored chunks after compression, in bytes.
    pub compressed_bytes: u64,
    /// Number of chunks.
    pub chunks: u32,
    /// SHA-256 of the uploaded file, hex.
    pub source_sha256: String,
    /// Format of the uploaded file.
    pub source_format: String,
    /// Key id of the verified signature; empty: no signature was verified.
    pub signed_by: String,
    /// Pattern of `ID` in the OS's os-release; empty: none.
    #[serde(default)]
    pub os_id: String,
    /// Pattern of `VERSION_ID` in the OS's os-release; empty: none.
    #[serde(default)]
    pub os_version: String,
    /// Pattern of the kernel's release; empty: none.
    #[serde(default)]
    pub kernel: String,
}

/// A running upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRow {
    /// A UUID.
    pub id: String,
    pub image_id: ImageId,
    /// The member who began the upload.
    pub owner: String,
    /// Idempotency key of the request, unique for its owner.
    pub key: String,
    /// The announced properties of the file.
    pub body: UploadBody,
    /// The operation that imports the file, once the import has begun.
    pub operation: Option<OperationId>,
    /// When the upload began.
    pub created_at: Timestamp,
}

/// The announced properties of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UploadBody {
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// SHA-256 of the file, hex.
    pub sha256: String,
    /// Format of the file; empty: detected from the first bytes.
    pub format: String,
    /// minisign signature of the file; empty: none.
    pub signature: String,
    /// Pattern of `ID` in the OS's os-release; empty: none.
    #[serde(default)]
    pub os_id: String,
    /// Pattern of `VERSION_ID` in the OS's os-release; empty: none.
    #[serde(default)]
    pub os_version: String,
    /// Pattern of the kernel's release; empty: none.
    #[serde(default)]
    pub kernel: String,
}

const SELECT_UPLOADS: &str =
    "SELECT u.id, u.image_id, u.owner, u.key, u.body, u.operation, u.created_at FROM uploads u";

fn image_from_row(row: &Row) -> Result<ImageRow> {
    Ok(ImageRow {
        id: row.id("id")?,
        uid: row.try_get("uid")?,
        version: row.try_get("version")?,
        created_at: Timestamp(row.try_get("created_at")?),
        updated_at: Timestamp(row.try_get("updated_at")?),
    })
}

fn version_from_row(row: &Row) -> Result<ImageVersionRow> {
    let digest: String = row.try_get("digest")?;
    let body = serde_json::from_str(row.try_get("body")?).map_err(|e| corrupt("image version", &digest, e))?;
    Ok(ImageVersionRow {
        image_id: row.id("image_id")?,
        created_at: Timestamp(row.try_get("created_at")?),
        digest,
        body,
    })
}

fn upload_from_row(row: &Row) -> Result<UploadRow> {
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
    /// [`StoreError::NotFound`]: the image does not exist.
    pub async fn image(&self, id: &ImageId) -> Result<ImageRow> {
        let row = statement("SELECT id, uid, version, created_at, updated_at FROM images WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.readers)
            .await?;
        image_from_row(&row.ok_or_else(|| StoreError::NotFound {
            kind: "image",
            id: id.to_string(),
        })?)
    }

    /// Images with ids after `after`, in the order of their ids, at most `limit`.
    pub async fn images(&self, after: &str, limit: i64) -> Result<Vec<ImageRow>> {
        let sql = "SELECT id, uid, version, created_at, updated_at FROM images WHERE id > $1 ORDER BY id LIMIT $2";
        let query = statement(sql).bind(after).bind(limit);
        query
            .fetch_all(&self.readers)
            .await?
            .iter()
            .map(image_from_row)
            .collect()
    }

    /// Versions of an image, newest first.
    pub async fn image_versions(&self, id: &ImageId) -> Result<Vec<ImageVersionRow>> {
        let sql = "SELECT image_id, digest, body, created_at FROM image_versions WHERE image_id = $1 \
                   ORDER BY created_at DESC, digest";
        statement(sql)
            .bind(id)
            .fetch_all(&self.readers)
            .await?
            .iter()
            .map(version_from_row)
            .collect()
    }

    /// An upload.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the upload does not exist.
    pub async fn upload(&self, id: &str) -> Result<UploadRow> {
        let sql = format!("{SELECT_UPLOADS} WHERE u.id = $1");
        let row = statement(sql).bind(id).fetch_optional(&self.readers).await?;
        upload_from_row(&row.ok_or_else(|| StoreError::NotFound {
            kind: "upload",
            id: id.to_owned(),
        })?)
    }

    /// Uploads with an unfinished import, which is begun again after a restart.
    pub async fn unfinished_imports(&self) -> Result<Vec<UploadRow>> {
        let sql = format!("{SELECT_UPLOADS} JOIN operations o ON o.id = u.operation WHERE o.ended_at IS NULL");
        statement(sql)
            .fetch_all(&self.readers)
            .await?
            .iter()
            .map(upload_from_row)
            .collect()
    }

    /// Uploads that began before `before`, at most 100.
    pub async fn old_uploads(&self, before: Timestamp) -> Result<Vec<UploadRow>> {
        let sql = format!("{SELECT_UPLOADS} WHERE u.created_at < $1 LIMIT 100");
        let query = statement(sql).bind(before.0);
        query
            .fetch_all(&self.readers)
            .await?
            .iter()
            .map(upload_from_row)
            .collect()
    }
}

impl WriteTx {
    /// The upload with this owner and idempotency key.
    pub async fn upload_of_key(&mut self, owner: &str, key: &str) -> Result<Option<UploadRow>> {
        let sql = format!("{SELECT_UPLOADS} WHERE u.owner = $1 AND u.key = $2");
        let query = statement(sql).bind(owner).bind(key);
        query
            .fetch_optional(&mut self.tx)
            .await?
            .as_ref()
            .map(upload_from_row)
            .transpose()
    }

    /// Inserts a new upload.
    ///
    /// # Errors
    /// `Exists`: the owner has an upload with this key.
    pub async fn insert_upload(&mut self, row: &UploadRow) -> Result<()> {
        let body = serde_json::to_string(&row.body).map_err(|e| corrupt("upload", &row.id, e))?;
        let sql = "INSERT INTO uploads (id, image_id, owner, key, body, operation, created_at) \
                   VALUES ($1, $2, $3, $4, $5, NULL, $6) ON CONFLICT DO NOTHING";
        let query = statement(sql)
            .bind(&row.id)
            .bind(&row.image_id)
            .bind(&row.owner)
            .bind(&row.key)
            .bind(body)
            .bind(row.created_at.0);
        if query.execute(&mut self.tx).await? == 0 {
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
    /// `Conflict`: another operation imports the upload already, or the upload was deleted.
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

    pub async fn delete_upload(&mut self, id: &str) -> Result<()> {
        statement("DELETE FROM uploads WHERE id = $1")
            .bind(id)
            .execute(&mut self.tx)
            .await?;
        Ok(())
    }

    /// Adds a version, and with the first version the image, with the new id `image_uid`. A version that exists already
    /// becomes the newest.
    ///
    /// # Errors
    /// `Exists`: another image has the `image_uid`.
    pub async fn add_image_version(&mut self, row: &ImageVersionRow, image_uid: &str) -> Result<()> {
        let sql = "INSERT INTO images (id, uid, version, created_at, updated_at) VALUES ($1, $2, 1, $3, $4) \
                   ON CONFLICT (id) DO UPDATE SET version = images.version + 1, updated_at = excluded.updated_at";
        let query = statement(sql)
            .bind(&row.image_id)
            .bind(image_uid)
            .bind(row.created_at.0)
            .bind(row.created_at.0);
        match query.execute(&mut self.tx).await {
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

    /// Deletes a version, and the image with its last version.
    ///
    /// # Errors
    /// `NotFound`: the image has no such version.
    pub async fn delete_image_version(&mut self, image: &ImageId, digest: &str) -> Result<()> {
        // The image is locked first: otherwise a version that is added meanwhile would be deleted with the image.
        let sql = format!("SELECT id FROM images WHERE id = $1{}", self.kind.for_update());
        statement(sql).bind(image).fetch_optional(&mut self.tx).await?;
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

    /// Digests of all versions of all images, each once. The chunk store must keep their chunks.
    pub async fn image_digests(&mut self) -> Result<Vec<String>> {
        let rows = statement("SELECT DISTINCT digest FROM image_versions")
            .fetch_all(&mut self.tx)
            .await?;
        rows.iter().map(|r| Ok(r.try_get(0)?)).collect()
    }
}
