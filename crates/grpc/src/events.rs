//! `EventService`.

use std::pin::Pin;
use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::event_service_server::EventService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::{caller, watch};

/// Implements `EventService`.
#[derive(Debug, Clone)]
pub struct Events(pub Arc<Core>);

#[tonic::async_trait]
impl EventService for Events {
    type StreamEventsStream = Pin<Box<dyn Stream<Item = Result<v1::Event, Status>> + Send>>;

    async fn stream_events(
        &self,
        request: Request<v1::StreamEventsRequest>,
    ) -> Result<Response<Self::StreamEventsStream>, Status> {
        let scope = caller::anyone(&self.0, &request).await?.scope;
        let request = request.into_inner();
        let (oldest, newest) = self.0.store.event_range().await.map_err(ApiError::from)?;
        let after = if request.only_new {
            newest
        } else {
            i64::try_from(request.after_position).map_err(|_| ApiError::invalid("after_position", "is too large"))?
        };
        if after > 0 && after + 1 < oldest {
            let message = format!(
                "events up to {} are deleted; position {after} is no longer stored",
                oldest - 1
            );
            return Err(ApiError::OutOfRange(message).into());
        }
        if after > newest {
            return Err(ApiError::OutOfRange(format!(
                "position {after} does not exist yet; the newest position is {newest}"
            ))
            .into());
        }
        let last = request.until_now.then_some(newest);
        let events = watch::events(self.0.clone(), scope, after, last, request.target);
        Ok(Response::new(Box::pin(events)))
    }
}
