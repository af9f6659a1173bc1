//! The fake's images and uploads.

use rackwright_api::v1::image_service_server::ImageService;
use rackwright_api::v1::*;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::fake::{Answer, Service, State, StoredUpload, key};

fn upload_at(state: &mut State, name: &str) -> Result<usize, Status> {
    let index = name
        .strip_prefix("uploads/")
        .and_then(|index| index.parse::<usize>().ok());
    index
        .filter(|index| *index < state.uploads.len())
        .ok_or_else(|| Status::not_found("no such upload"))
}

fn upload(state: &State, index: usize) -> Upload {
    let stored = &state.uploads[index];
    Upload {
        name: format!("uploads/{index}"),
        received_bytes: stored.data.len() as u64,
        size_bytes: stored.request.size_bytes,
    }
}

#[tonic::async_trait]
impl ImageService for Service {
    async fn start_upload(&self, request: Request<StartUploadRequest>) -> Answer<Upload> {
        let key = key(&request.get_ref().mutation);
        self.enter("StartUpload", &request, &key)?;
        let mut state = self.state();
        let known = state.uploads.iter().position(|upload| upload.key == key);
        let index = known.unwrap_or_else(|| {
            state.uploads.push(StoredUpload {
                key,
                request: request.into_inner(),
                data: Vec::new(),
            });
            state.uploads.len() - 1
        });
        Ok(Response::new(upload(&state, index)))
    }

    async fn get_upload(&self, request: Request<GetUploadRequest>) -> Answer<Upload> {
        self.enter("GetUpload", &request, "")?;
        let mut state = self.state();
        let index = upload_at(&mut state, &request.into_inner().name)?;
        Ok(Response::new(upload(&state, index)))
    }

    async fn write_upload(&self, request: Request<Streaming<WriteUploadRequest>>) -> Answer<Upload> {
        self.enter("WriteUpload", &request, "")?;
        let mut cut = self.state().upload_cuts.pop_front();
        let mut pieces = request.into_inner();
        let mut index = None;
        while let Some(piece) = pieces.message().await? {
            if piece.data.len() > 1 << 20 {
                return Err(Status::invalid_argument("a message holds at most 1 MiB"));
            }
            let mut state = self.state();
            let at = match index {
                Some(at) => at,
                None => {
                    let at = upload_at(&mut state, &piece.name)?;
                    if piece.offset != state.uploads[at].data.len() as u64 {
                        let details =
                            ErrorDetails::with_bad_request_violation("offset", "is not the end of the received bytes");
                        return Err(Status::with_error_details(
                            Code::InvalidArgument,
                            "offset: wrong",
                            details,
                        ));
                    }
                    *index.insert(at)
                }
            };
            let kept = cut.map_or(piece.data.len(), |cut| cut.min(piece.data.len()));
            state.uploads[at].data.extend_from_slice(&piece.data[..kept]);
            cut = cut.map(|cut| cut - kept);
            if cut == Some(0) {
                return Err(Status::unavailable("the server is being restarted"));
            }
        }
        let state = self.state();
        Ok(Response::new(upload(
            &state,
            index.ok_or_else(|| Status::invalid_argument("nothing was sent"))?,
        )))
    }

    async fn finish_upload(&self, request: Request<FinishUploadRequest>) -> Answer<Operation> {
        let mutation = key(&request.get_ref().mutation);
        self.enter("FinishUpload", &request, &mutation)?;
        let name = {
            let mut state = self.state();
            let index = upload_at(&mut state, &request.get_ref().name)?;
            let stored = &state.uploads[index];
            let digest = ring::digest::digest(&ring::digest::SHA256, &stored.data);
            if hex::encode(digest) != stored.request.sha256 {
                return Err(Status::failed_precondition(
                    "the file's SHA-256 is not the one that was given",
                ));
            }
            format!(
                "images/{}/versions/b3-{}",
                stored.request.image_id,
                "0123456789abcdef".repeat(4)
            )
        };
        self.start("FinishUpload", &mutation, "import-image", &name)
    }

    async fn get_image(&self, request: Request<GetImageRequest>) -> Answer<Image> {
        self.enter("GetImage", &request, "")?;
        let name = request.into_inner().name;
        let image = self.state().images.iter().find(|image| image.name == name).cloned();
        image
            .map(Response::new)
            .ok_or_else(|| Status::not_found(format!("{name} does not exist")))
    }

    async fn get_image_spread(&self, request: Request<GetImageSpreadRequest>) -> Answer<ImageSpread> {
        self.enter("GetImageSpread", &request, "")?;
        let name = request.into_inner().name;
        let spread = self.state().spreads.iter().find(|spread| spread.name == name).cloned();
        spread
            .map(Response::new)
            .ok_or_else(|| Status::not_found(format!("{name} does not exist")))
    }

    async fn list_images(&self, request: Request<ListImagesRequest>) -> Answer<ListImagesResponse> {
        self.enter("ListImages", &request, "")?;
        Ok(Response::new(ListImagesResponse {
            images: self.state().images.clone(),
            ..Default::default()
        }))
    }

    async fn delete_image(&self, request: Request<DeleteImageRequest>) -> Answer<()> {
        self.enter("DeleteImage", &request, &key(&request.get_ref().mutation))?;
        let name = request.into_inner().name;
        self.state().images.retain(|image| image.name != name);
        Ok(Response::new(()))
    }
}
