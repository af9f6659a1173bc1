//! Uploads and imports: files in the data folder, written one append at a time.

use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rackwright_api::v1;
use rackwright_image::StoreError as ChunkStoreError;
use rackwright_image::{
    Format, ImportError, ImportProgress, ImportRequest, Imported, Sha256, SignaturePolicy, SpaceCheck,
};
use rackwright_lifecycle::{EventKind, OperationId};
use rackwright_store::{EventRow, ImageVersionBody, ImageVersionRow, Scope, StoreError, UploadRow};
use tonic::Code;

use crate::clock;
use crate::core::Core;
use crate::space;
use crate::stored;
use crate::text::chain;
use rackwright_image::ImageDigest;
use std::collections::HashSet;

/// Between two checks whether another replica received a cancellation of the import.
const CANCEL_LOOK: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct Running {
    progress: v1::Progress,
    cancel: Arc<AtomicBool>,
}

/// Upload files and running imports.
#[derive(Debug)]
pub struct Uploads {
    dir: PathBuf,
    writing: Mutex<HashMap<String, ()>>,
    imports: Mutex<HashMap<OperationId, Running>>,
}

/// The right to append to one upload, held by one call at a time.
#[derive(Debug)]
pub struct WriteGuard<'a> {
    uploads: &'a Uploads,
    id: String,
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        lock(&self.uploads.writing).remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Uploads {
    /// Uploads below `dir`, which is created if it is missing.
    ///
    /// # Errors
    /// The folder cannot be created.
    #[expect(clippy::disallowed_methods, reason = "called at the start")]
    pub fn open(dir: PathBuf) -> std::io::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        Ok(Self {
            dir,
            writing: Mutex::default(),
            imports: Mutex::default(),
        })
    }

    /// The folder of upload files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of an upload's file.
    #[must_use]
    pub fn path(&self, id: &str) -> PathBuf {
        self.dir.join(id)
    }

    /// Bytes received so far.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "metadata of an open file")]
    pub fn received(&self, id: &str) -> u64 {
        std::fs::metadata(self.path(id)).map_or(0, |m| m.len())
    }

    /// Takes the right to append. `None` while another call holds it.
    #[must_use]
    pub fn begin_writing(&self, id: &str) -> Option<WriteGuard<'_>> {
        let mut writing = lock(&self.writing);
        if writing.contains_key(id) {
            return None;
        }
        writing.insert(id.to_owned(), ());
        Some(WriteGuard {
            uploads: self,
            id: id.to_owned(),
        })
    }

    /// Progress of an import, by its operation.
    #[must_use]
    pub fn progress(&self, operation: &OperationId) -> Option<v1::Progress> {
        lock(&self.imports).get(operation).map(|r| r.progress.clone())
    }

    /// Asks an import to end: it stops at its next check.
    pub fn cancel(&self, operation: &OperationId) {
        if let Some(running) = lock(&self.imports).get(operation) {
            running.cancel.store(true, Ordering::Relaxed);
        }
    }

    fn begin_import(&self, operation: &OperationId) -> Arc<AtomicBool> {
        lock(&self.imports).entry(operation.clone()).or_default().cancel.clone()
    }

    fn set_progress(&self, operation: &OperationId, p: ImportProgress) {
        let percent = p
            .source_bytes
            .saturating_mul(100)
            .checked_div(p.source_bytes_total)
            .unwrap_or(0);
        // The digest pass is the cheap part of the work.
        let (step, percent) = match p.step {
            rackwright_image::import::ImportStep::Verifying => ("verifying the file", percent / 5),
            rackwright_image::import::ImportStep::Storing => ("storing chunks", 20 + percent * 4 / 5),
        };
        if let Some(running) = lock(&self.imports).get_mut(operation) {
            running.progress = v1::Progress {
                step: step.into(),
                percent: u32::try_from(percent.min(100)).unwrap_or(100),
                logical_bytes: p.source_bytes,
                logical_bytes_total: p.source_bytes_total,
                real_bytes: p.logical_bytes,
                bytes_per_second: 0,
            };
        }
    }

    /// Removes the file of an upload.
    #[expect(
        clippy::disallowed_methods,
        reason = "one file; the data of large ones is freed by the kernel later"
    )]
    pub fn discard(&self, id: &str) {
        if let Err(error) = std::fs::remove_file(self.path(id))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(upload = id, %error, "an upload's file could not be removed");
        }
    }
}

/// Begins imports that no process runs: those of former processes, also of replicas that are gone. A replica skips uploads
/// without a file here: the replica with the file takes care of them.
pub async fn take_up_imports(core: &Arc<Core>) -> Result<(), StoreError> {
    for upload in core.store.unfinished_imports().await? {
        let is_ours = upload
            .operation
            .as_ref()
            .is_some_and(|id| core.uploads.progress(id).is_some());
        if !is_ours && core.uploads.path(&upload.id).is_file() {
            start_import(core, upload);
        }
    }
    Ok(())
}

/// The lock of an import. `None` while another process holds it. It ends with the process.
#[expect(clippy::disallowed_methods, reason = "one file that is opened")]
fn lock_file(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    file.try_lock().ok().map(|()| file)
}

/// Waits until the cancellation of an import is stored, by any replica.
async fn cancelled(core: &Core, operation: &OperationId) {
    while !core
        .store
        .operation(&Scope::Site, operation)
        .await
        .is_ok_and(|row| row.cancel_requested)
    {
        tokio::time::sleep(CANCEL_LOOK).await;
    }
}

/// Begins the import of an upload with a stored operation, unless another replica runs it. Also works after a restart: the
/// file is still there.
pub fn start_import(core: &Arc<Core>, upload: UploadRow) {
    let Some(operation) = upload.operation.clone() else {
        return;
    };
    let path = core.uploads.path(&upload.id);
    let right = lock_file(&path);
    if right.is_none() && path.is_file() {
        return;
    }
    let core = core.clone();
    let cancel = core.uploads.begin_import(&operation);
    tokio::spawn(async move {
        let _right = right;
        match core.store.operation(&Scope::Site, &operation).await {
            // Ended just now by the former holder of the lock.
            Ok(row) if row.ended_at.is_some() => {
                lock(&core.uploads.imports).remove(&operation);
                return;
            }
            // Cancelled before this import could be: just now, or under a former process.
            Ok(row) if row.cancel_requested => cancel.store(true, Ordering::Relaxed),
            _ => {}
        }
        let worker = core.clone();
        let (row, op, cancel_requested) = (upload.clone(), operation.clone(), cancel.clone());
        let mut importing = tokio::task::spawn_blocking(move || import_file(&worker, &row, &op, &cancel));
        let result = tokio::select! {
            result = &mut importing => result,
            () = cancelled(&core, &operation) => {
                cancel_requested.store(true, Ordering::Relaxed);
                importing.await
            }
        };
        let result = result.unwrap_or_else(|e| Err((Code::Internal, format!("the import ended early: {e}"))));
        let is_refused = result.is_err();
        if let Err(error) = finish(&core, &upload, &operation, result).await {
            tracing::error!(upload = upload.id, %error, "the result of an import could not be stored");
        }
        lock(&core.uploads.imports).remove(&operation);
        if is_refused {
            collect_chunks(&core).await;
        }
    });
}

type Ended = Result<Imported, (Code, String)>;

fn import_file(core: &Core, upload: &UploadRow, operation: &OperationId, cancel: &AtomicBool) -> Ended {
    let policy = SignaturePolicy {
        trusted_keys: core.config.images.trusted_keys.clone(),
        required: core.config.images.require_signature,
    };
    let path = core.uploads.path(&upload.id);
    let mut request = ImportRequest::new(Path::new(&path), &policy);
    let wrong = |what: String| (Code::InvalidArgument, what);
    request.format = match upload.body.format.as_str() {
        "" => None,
        name => Some(format_of(name).ok_or_else(|| wrong(format!("unknown format {name:?}")))?),
    };
    let sha256: Sha256 = upload.body.sha256.parse().map_err(|e| wrong(format!("sha256: {e}")))?;
    request.expected_sha256 = Some(sha256);
    request.signature = (!upload.body.signature.is_empty()).then_some(upload.body.signature.as_str());
    let room = |bytes| {
        let checked = core.space.check(core.chunks.root(), bytes);
        checked.map_err(|full| format!("{full}; {}", space::HINT))
    };
    request.space_check = SpaceCheck(&room);
    let progress = |p: ImportProgress| core.uploads.set_progress(operation, p);
    rackwright_image::import(&request, &core.chunks, &progress, cancel).map_err(|e| (code_of(&e), chain(&e)))
}

fn code_of(error: &ImportError) -> Code {
    match error {
        ImportError::Cancelled => Code::Cancelled,
        ImportError::NoRoom(_) => Code::ResourceExhausted,
        ImportError::Store(ChunkStoreError::Io { source, .. })
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            Code::ResourceExhausted
        }
        ImportError::Read { .. } | ImportError::Store(_) => Code::Unavailable,
        _ => Code::InvalidArgument,
    }
}

/// The format with this name.
#[must_use]
pub fn format_of(name: &str) -> Option<Format> {
    [Format::Raw, Format::Zstd, Format::Gzip, Format::Xz, Format::Qcow2]
        .into_iter()
        .find(|f| f.to_string() == name)
}

async fn finish(core: &Core, upload: &UploadRow, operation: &OperationId, result: Ended) -> Result<(), StoreError> {
    let now = clock::now();
    let target = format!("images/{}", upload.image_id);
    let mut tx = core.store.write().await?;
    let result = match result {
        Ok(imported) => check_declared(core, upload, imported).await?,
        refused => refused,
    };
    let (code, message, kind, event_message) = match &result {
        Ok(imported) => {
            let row = version_row(upload, imported, now);
            tx.add_image_version(&row, &core.new_id()).await?;
            let event_message = format!("{} has the new version {}", upload.image_id, row.digest);
            (Code::Ok, String::new(), EventKind::ImageImported, event_message)
        }
        Err((code, message)) => {
            let event_message = format!("{} was not imported: {message}", upload.image_id);
            (*code, message.clone(), EventKind::ImageRefused, event_message)
        }
    };
    tx.end_operation(operation, code as i32, &message, now).await?;
    tx.delete_upload(&upload.id).await?;
    let event = EventRow {
        at: now,
        kind,
        target,
        message: event_message,
        ..EventRow::default()
    };
    tx.add_event(&event).await?;
    core.commit(tx).await?;
    // Only now may a collection of chunks begin: the version is stored.
    drop(result);
    core.uploads.discard(&upload.id);
    Ok(())
}

fn version_row(upload: &UploadRow, imported: &Imported, now: rackwright_lifecycle::Timestamp) -> ImageVersionRow {
    ImageVersionRow {
        image_id: upload.image_id.clone(),
        digest: imported.digest.to_string(),
        created_at: now,
        body: ImageVersionBody {
            logical_bytes: imported.logical_size,
            data_bytes: imported.data_bytes,
            compressed_bytes: imported.packed_bytes,
            chunks: u32::try_from(imported.data_chunks + imported.zero_chunks).unwrap_or(u32::MAX),
            source_sha256: imported.source_sha256.to_string(),
            source_format: imported.source_format.to_string(),
            signed_by: imported
                .signed_by
                .as_ref()
                .map(|s| s.trusted_comment.clone())
                .unwrap_or_default(),
            os_id: upload.body.os_id.clone(),
            os_version: upload.body.os_version.clone(),
            kernel: upload.body.kernel.clone(),
        },
    }
}

/// An existing version keeps its description, because nodes that hold it are judged by it. An upload with another
/// description gets an error.
async fn check_declared(core: &Core, upload: &UploadRow, imported: Imported) -> Result<Ended, StoreError> {
    let (body, digest) = (&upload.body, imported.digest.to_string());
    let declared = [&body.os_id, &body.os_version, &body.kernel];
    let versions = core.store.image_versions(&upload.image_id).await?;
    let there = versions.iter().find(|v| v.digest == digest).map(|v| &v.body);
    let differs = there.is_some_and(|b| declared != [&b.os_id, &b.os_version, &b.kernel]);
    if differs && declared.iter().any(|pattern| !pattern.is_empty()) {
        let message = format!("version {digest} already exists and declares another os_id, os_version or kernel");
        return Ok(Err((Code::FailedPrecondition, message)));
    }
    Ok(Ok(imported))
}

/// Removes chunks that no image refers to, after a change that freed them or an unfinished import.
///
/// The references are read once no import can add to the store: an import holds the store until its version is stored, so
/// it either prevents this collection or is among the references.
pub async fn collect_chunks(core: &Arc<Core>) {
    let core = core.clone();
    let database = tokio::runtime::Handle::current();
    let swept = tokio::task::spawn_blocking(move || {
        let collection = core.chunks.begin_gc().map_err(|e| e.to_string())?;
        let kept = database
            .block_on(referenced_digests(&core))
            .map_err(|e| e.to_string())?;
        collection.sweep(&kept).map_err(|e| e.to_string())
    });
    match swept.await {
        Ok(Ok(report)) => tracing::info!(?report, "chunks collected"),
        Ok(Err(error)) => tracing::warn!(error, "chunks were not collected; the next deletion tries again"),
        Err(error) => tracing::error!(%error, "the collection of chunks ended early"),
    }
}

async fn referenced_digests(core: &Core) -> Result<HashSet<ImageDigest>, StoreError> {
    let digests = core.store.write().await?.image_digests().await?;
    digests
        .iter()
        .map(|digest| stored::parsed("image digest", digest, digest))
        .collect()
}

#[cfg(test)]
mod tests {
    use rackwright_store::{OperationRow, UploadBody};

    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn the_chunks_of_an_image_with_a_damaged_digest_are_not_deleted() {
        let core = testing::core().await;
        let version = |digest: &str| ImageVersionRow {
            image_id: "i1".into(),
            digest: digest.into(),
            created_at: clock::now(),
            body: ImageVersionBody::default(),
        };
        let sound = format!("b3-{}", "0".repeat(64));
        let mut tx = core.store.write().await.unwrap();
        tx.add_image_version(&version(&sound), "u1").await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(
            referenced_digests(&core).await.unwrap(),
            [sound.parse().unwrap()].into()
        );
        let mut tx = core.store.write().await.unwrap();
        tx.add_image_version(&version("b3-0"), "u1").await.unwrap();
        tx.commit().await.unwrap();
        let error = referenced_digests(&core).await.unwrap_err();
        assert_eq!(error.to_string(), "image digest \"b3-0\" cannot be read back");
    }

    #[tokio::test]
    async fn an_import_that_was_cancelled_before_it_began_ends() {
        let core = testing::core().await;
        let operation = OperationRow {
            id: OperationId::stored("o1"),
            kind: rackwright_lifecycle::OperationKind::ImportImage,
            target: "images/i1".into(),
            ..OperationRow::default()
        };
        let upload = UploadRow {
            id: "u1".into(),
            image_id: "i1".into(),
            owner: "ann".into(),
            key: "k".into(),
            body: UploadBody {
                sha256: "0".repeat(64),
                ..UploadBody::default()
            },
            operation: Some(operation.id.clone()),
            created_at: clock::now(),
        };
        let path = core.uploads.path(&upload.id);
        std::fs::write(&path, [1; 4096]).unwrap();
        let mut tx = core.store.write().await.unwrap();
        tx.insert_operation(&operation).await.unwrap();
        tx.insert_upload(&upload).await.unwrap();
        tx.begin_import(&upload.id, &operation.id).await.unwrap();
        tx.request_cancel(&operation.id).await.unwrap();
        tx.commit().await.unwrap();
        let of_another = lock_file(&path).unwrap();
        start_import(&core, upload);
        assert!(
            core.uploads.progress(&operation.id).is_none(),
            "another replica is at it"
        );
        drop(of_another);
        take_up_imports(&core).await.unwrap();
        let ended = async {
            loop {
                let row = core.store.operation(&Scope::Site, &operation.id).await.unwrap();
                if row.ended_at.is_some() {
                    return row;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
        assert_eq!(ended.code, Code::Cancelled as i32, "{ended:?}");
    }
}
