//! `ImageService`.

use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::image_service_server::ImageService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::space::NoRoom;
use rackwright_ground::uploads;
use rackwright_ground::uploads::collect_chunks;
use rackwright_lifecycle::{EventKind, ImageId, OperationKind};
use rackwright_spread::Spreads;
use rackwright_store::{StoreError, UploadBody, UploadRow};
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;
use tonic::{Request, Response, Status, Streaming};

use super::call::MutatingCall;
use super::names::Pages;
use super::{caller, convert, names};

/// Largest file, in bytes.
const SIZE_MAX: u64 = 4 << 40;
/// Largest piece in one message, in bytes.
const PIECE_MAX: usize = 1 << 20;
/// A client that sends nothing for this long is gone: another connection may then write to its upload.
const PIECE_WITHIN: Duration = Duration::from_secs(60);

/// Longest pattern in an image's description of itself, in bytes.
const PATTERN_MAX: usize = 128;

/// Implements `ImageService`.
#[derive(Debug, Clone)]
pub struct Images(pub Arc<Core>);

impl Images {
    fn upload(&self, row: &UploadRow) -> v1::Upload {
        v1::Upload {
            name: format!("uploads/{}", row.id),
            received_bytes: self.0.uploads.received(&row.id),
            size_bytes: row.body.size_bytes,
        }
    }

    /// The progress of an upload that was begun before. A missing upload was complete, and its import has ended.
    async fn upload_as_it_is(&self, former: v1::Upload) -> Result<v1::Upload, ApiError> {
        let id = names::id_of("name", &former.name, "uploads")?;
        match self.0.store.upload(id).await {
            Ok(row) => Ok(self.upload(&row)),
            Err(StoreError::NotFound { .. }) => Ok(v1::Upload {
                received_bytes: former.size_bytes,
                ..former
            }),
            Err(error) => Err(error.into()),
        }
    }

    async fn own_upload(&self, name: &str, caller: &str) -> Result<UploadRow, ApiError> {
        let id = names::id_of("name", name, "uploads")?;
        let row = self.0.store.upload(id).await?;
        if row.owner != caller {
            return Err(ApiError::Forbidden(format!("{name} is another member's upload")));
        }
        Ok(row)
    }
}

fn announced(request: &v1::StartUploadRequest) -> Result<(ImageId, UploadBody), ApiError> {
    let image_id = names::chosen("image_id", ImageId::parse(&request.image_id))?;
    let mut faults = Vec::new();
    let sha256 = request.sha256.to_ascii_lowercase();
    if sha256.len() != 64 || !sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
        faults.push((
            "sha256".to_owned(),
            "must be 64 hex digits: the SHA-256 of the file is checked before the import".into(),
        ));
    }
    if request.size_bytes == 0 || request.size_bytes > SIZE_MAX {
        faults.push(("size_bytes".to_owned(), format!("must be 1 to {SIZE_MAX}")));
    }
    if request.minisign_signature.len() > 64 << 10 {
        faults.push((
            "minisign_signature".to_owned(),
            "is larger than any minisign signature".into(),
        ));
    }
    for (field, pattern) in [
        ("os_id", &request.os_id),
        ("os_version", &request.os_version),
        ("kernel", &request.kernel),
    ] {
        if pattern.len() > PATTERN_MAX || !pattern.bytes().all(|b| b.is_ascii_graphic()) {
            let fault = format!("a pattern is at most {PATTERN_MAX} printable ASCII characters without spaces");
            faults.push((field.to_owned(), fault));
        }
    }
    let format = match request.format() {
        v1::ImageFormat::Unspecified => "",
        v1::ImageFormat::Raw => "raw",
        v1::ImageFormat::Zstd => "zstd",
        v1::ImageFormat::Gzip => "gzip",
        v1::ImageFormat::Xz => "xz",
        v1::ImageFormat::Qcow2 => "qcow2",
    };
    if !faults.is_empty() {
        return Err(ApiError::Invalid(faults));
    }
    let body = UploadBody {
        size_bytes: request.size_bytes,
        sha256,
        format: format.into(),
        signature: request.minisign_signature.clone(),
        os_id: request.os_id.clone(),
        os_version: request.os_version.clone(),
        kernel: request.kernel.clone(),
    };
    Ok((image_id, body))
}

/// Checks that an upload of this size leaves the disk's reserve free.
fn room(core: &Core, bytes: u64) -> Result<(), ApiError> {
    Ok(core.space.check(core.uploads.dir(), bytes)?)
}

fn cannot_write(error: &std::io::Error) -> ApiError {
    ApiError::Internal(format!("the upload's file cannot be written: {error}"))
}

/// Writes a piece, if the disk has room.
async fn write(core: &Core, file: &mut File, piece: &[u8]) -> Result<(), ApiError> {
    let bytes = piece.len() as u64;
    room(core, bytes)?;
    // Tokio reports a failed write at the next call. After the flush the piece is written, or the error is known.
    let written = async {
        file.write_all(piece).await?;
        file.flush().await
    };
    written
        .await
        .map_err(|error| match NoRoom::of_error(core.uploads.dir(), bytes, &error) {
            Some(full) => full.into(),
            None => cannot_write(&error),
        })
}

/// Appends the pieces of a stream. They stay if the stream breaks, and are removed if the disk has no room.
async fn append(
    core: &Core,
    row: &UploadRow,
    first: v1::WriteUploadRequest,
    stream: &mut Streaming<v1::WriteUploadRequest>,
) -> Result<(), ApiError> {
    let internal = |e: std::io::Error| cannot_write(&e);
    let Some(_writing) = core.uploads.begin_writing(&row.id) else {
        let name = format!("uploads/{}", row.id);
        return Err(ApiError::precondition(
            name,
            "another connection writes to the upload",
            "wait for the end of the other connection",
        ));
    };
    let mut received = core.uploads.received(&row.id);
    if first.offset != received {
        let fault = format!(
            "{} is not the end of the received bytes; continue at {received}",
            first.offset
        );
        return Err(ApiError::invalid("offset", fault));
    }
    let path = core.uploads.path(&row.id);
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .await
        .map_err(internal)?;
    let mut piece = first.data;
    loop {
        if piece.len() > PIECE_MAX {
            return Err(ApiError::invalid(
                "data",
                format!("a piece is at most {PIECE_MAX} bytes"),
            ));
        }
        received += piece.len() as u64;
        if received > row.body.size_bytes {
            let fault = format!("more than the {} bytes that were announced", row.body.size_bytes);
            return Err(ApiError::invalid("data", fault));
        }
        if let Err(full) = write(core, &mut file, &piece).await {
            if matches!(full, ApiError::NoRoom(_)) {
                // The pieces use room too, and the client can send them again.
                core.uploads.discard(&row.id);
            }
            return Err(full);
        }
        let next = tokio::time::timeout(PIECE_WITHIN, stream.message()).await;
        let late = |_| {
            Err(Status::deadline_exceeded(
                "no bytes came for a minute; resume the upload",
            ))
        };
        match next.unwrap_or_else(late) {
            Ok(Some(message)) => piece = message.data,
            Ok(None) => break,
            Err(status) => {
                file.flush().await.map_err(internal)?;
                tracing::info!(upload = row.id, received, %status, "an upload broke off; it can be resumed");
                break;
            }
        }
    }
    file.flush().await.map_err(internal)?;
    file.sync_data().await.map_err(internal)
}

#[tonic::async_trait]
impl ImageService for Images {
    async fn start_upload(&self, request: Request<v1::StartUploadRequest>) -> Result<Response<v1::Upload>, Status> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "StartUpload", request.mutation.as_ref(), &request)?;
        let (image_id, body) = announced(&request)?;
        let key = request.mutation.clone().unwrap_or_default().idempotency_key;
        let mut tx = match call.begin::<v1::Upload>().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(self.upload_as_it_is(former).await?)),
        };
        if let Some(row) = tx.upload_of_key(&caller.name, &key).await.map_err(ApiError::from)? {
            // The stored answer expired before the upload.
            if row.body != body || row.image_id != image_id {
                let method = "StartUpload".to_owned();
                return Err(ApiError::from(StoreError::KeyReused { key, method }).into());
            }
            return Ok(Response::new(self.upload(&row)));
        }
        room(&self.0, body.size_bytes)?;
        let row = UploadRow {
            id: self.0.new_id(),
            image_id,
            owner: caller.name.clone(),
            key,
            body,
            operation: None,
            created_at: call.now(),
        };
        tx.insert_upload(&row).await.map_err(ApiError::from)?;
        Ok(Response::new(call.end(tx, self.upload(&row)).await?))
    }

    async fn get_upload(&self, request: Request<v1::GetUploadRequest>) -> Result<Response<v1::Upload>, Status> {
        caller::member(&self.0, &request).await?;
        let id = names::id_of("name", &request.get_ref().name, "uploads")?;
        let row = self.0.store.upload(id).await.map_err(ApiError::from)?;
        Ok(Response::new(self.upload(&row)))
    }

    async fn write_upload(
        &self,
        request: Request<Streaming<v1::WriteUploadRequest>>,
    ) -> Result<Response<v1::Upload>, Status> {
        let caller = caller::operator(&self.0, &request).await?;
        let mut stream = request.into_inner();
        let first = stream
            .message()
            .await?
            .ok_or_else(|| ApiError::invalid("name", "the stream is empty"))?;
        let row = self.own_upload(&first.name, &caller.name).await?;
        if row.operation.is_some() {
            let hint = "its import has begun; start a new upload for another file";
            return Err(ApiError::precondition(&first.name, "the upload is finished", hint).into());
        }
        append(&self.0, &row, first, &mut stream).await?;
        Ok(Response::new(self.upload(&row)))
    }

    async fn finish_upload(
        &self,
        request: Request<v1::FinishUploadRequest>,
    ) -> Result<Response<v1::Operation>, Status> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "FinishUpload", request.mutation.as_ref(), &request)?;
        let mut tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        let mut row = self.own_upload(&request.name, &caller.name).await?;
        let received = self.0.uploads.received(&row.id);
        if received != row.body.size_bytes {
            let message = format!("{received} of {} bytes have arrived", row.body.size_bytes);
            return Err(ApiError::precondition(&request.name, message, "continue with WriteUpload").into());
        }
        if row.operation.is_some() {
            let hint = "`rackwright operation list` shows it";
            return Err(ApiError::precondition(&request.name, "its import has begun already", hint).into());
        }
        let operation = call.new_operation(OperationKind::ImportImage, &format!("images/{}", row.image_id), 24 * 60);
        tx.insert_operation(&operation).await.map_err(ApiError::from)?;
        tx.begin_import(&row.id, &operation.id).await.map_err(ApiError::from)?;
        let response = call.end(tx, convert::operation(&operation, None)).await?;
        row.operation = Some(operation.id);
        uploads::start_import(&self.0, row);
        Ok(Response::new(response))
    }

    async fn get_image(&self, request: Request<v1::GetImageRequest>) -> Result<Response<v1::Image>, Status> {
        caller::tenant(&self.0, &request).await?;
        let id = &names::image_id("name", &request.get_ref().name)?;
        let image = self.0.store.image(id).await.map_err(ApiError::from)?;
        let versions = self.0.store.image_versions(id).await.map_err(ApiError::from)?;
        Ok(Response::new(convert::image(&image, &versions)))
    }

    async fn get_image_spread(
        &self,
        request: Request<v1::GetImageSpreadRequest>,
    ) -> Result<Response<v1::ImageSpread>, Status> {
        caller::member(&self.0, &request).await?;
        let name = &request.get_ref().name;
        let id = &names::image_id("name", name)?;
        self.0.store.image(id).await.map_err(ApiError::from)?;
        let versions = self.0.store.image_versions(id).await.map_err(ApiError::from)?;
        let spreads = self.0.feature::<Spreads>();
        let written = versions.iter().filter_map(|version| {
            let table = spreads.table(&version.digest)?;
            let name = format!("{name}/versions/{}", version.digest);
            Some(convert::version_spread(name, &table.report()))
        });
        Ok(Response::new(v1::ImageSpread {
            name: name.clone(),
            versions: written.collect(),
        }))
    }

    async fn list_images(
        &self,
        request: Request<v1::ListImagesRequest>,
    ) -> Result<Response<v1::ListImagesResponse>, Status> {
        caller::tenant(&self.0, &request).await?;
        let request = request.into_inner();
        let limit = names::page_size(request.page_size)?;
        let pages = Pages {
            list: "ListImages",
            narrowed: "",
            limit,
        };
        let after = pages.after(&request.page_token)?;
        let rows = self.0.store.images(after, limit).await.map_err(ApiError::from)?;
        let next_page_token = pages.token(rows.len(), rows.last().map(|r| r.id.to_string()));
        let mut images = Vec::with_capacity(rows.len());
        for row in &rows {
            let versions = self.0.store.image_versions(&row.id).await.map_err(ApiError::from)?;
            images.push(convert::image(row, &versions));
        }
        Ok(Response::new(v1::ListImagesResponse {
            images,
            next_page_token,
        }))
    }

    async fn delete_image(&self, request: Request<v1::DeleteImageRequest>) -> Result<Response<()>, Status> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "DeleteImage", request.mutation.as_ref(), &request)?;
        let (image, digest) = match request.name.split_once("/versions/") {
            Some((image, digest)) => (image, Some(digest)),
            None => (request.name.as_str(), None),
        };
        let id = &names::image_id("name", image)?;
        let mut tx = match call.begin::<()>().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        let row = self.0.store.image(id).await.map_err(ApiError::from)?;
        call.check_version(image, row.version)?;
        let versions = self.0.store.image_versions(id).await.map_err(ApiError::from)?;
        let doomed: Vec<_> = versions
            .iter()
            .filter(|v| digest.is_none_or(|d| v.digest == d))
            .collect();
        if doomed.is_empty() {
            return Err(ApiError::NotFound {
                kind: "image version",
                name: request.name,
            }
            .into());
        }
        let clusters = tx.live_clusters().await.map_err(ApiError::from)?;
        for version in doomed {
            if let Some(cluster) = clusters.iter().find(|cluster| cluster.needs_image(&version.digest)) {
                let cluster = &cluster.id;
                let message = format!("nodes of cluster {cluster} get version {}", version.digest);
                let hint = format!("`rackwright cluster reimage {cluster}` or `cluster release {cluster}` first");
                return Err(ApiError::precondition(&request.name, message, hint).into());
            }
            if let Some(node) = tx.image_in_use(&version.digest).await.map_err(ApiError::from)? {
                let message = format!("node {node} has version {} or is about to get it", version.digest);
                let hint = format!("`rackwright node reimage {node}` or `node release {node}` first");
                return Err(ApiError::precondition(&request.name, message, hint).into());
            }
            tx.delete_image_version(id, &version.digest)
                .await
                .map_err(ApiError::from)?;
        }
        let event = call.event(
            EventKind::ImageDeleted,
            &request.name,
            format!("{} deleted {}", caller.name, request.name),
        );
        tx.add_event(&event).await.map_err(ApiError::from)?;
        call.end(tx, ()).await?;
        collect_chunks(&self.0).await;
        Ok(Response::new(()))
    }
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_referred_to_is_read_after_the_store_is_closed_to_imports() {
        let core = testing::core().await;
        let unnamed = core.chunks.root().join("images").join(format!("b3-{}", "0".repeat(64)));
        std::fs::write(&unnamed, "no version is written down").unwrap();
        // An import without a stored version blocks the collection.
        let hold = core.chunks.hold().unwrap();
        collect_chunks(&core).await;
        assert!(unnamed.exists());
        drop(hold);
        // The store is closed before the references are read; the read waits for this transaction.
        let tx = core.store.write().await.unwrap();
        let begin = || {
            let core = core.clone();
            tokio::spawn(async move { collect_chunks(&core).await })
        };
        let mut collecting = begin();
        let closed = async {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            while core.chunks.begin_gc().is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                if collecting.is_finished() {
                    // The collection just missed its chance.
                    collecting = begin();
                }
            }
        };
        let closed = tokio::time::timeout(std::time::Duration::from_secs(10), closed).await;
        assert!(closed.is_ok(), "an import could begin after the references are read");
        drop(tx);
        collecting.await.unwrap();
        assert!(!unnamed.exists());
    }
}
