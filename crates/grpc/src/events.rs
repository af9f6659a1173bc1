//! `EventService`.

use std::pin::Pin;
use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::event_service_server::EventService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_lifecycle::Severity;
use rackwright_store::EventFilter;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::{caller, names, watch};

/// Most newest events that a stream begins with.
const NEWEST_MAX: usize = 10_000;
/// Most kinds of a request.
const KINDS_MAX: usize = 32;

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
        let stored = self.0.store.event_range().await.map_err(ApiError::from)?;
        let after = if request.only_new {
            stored.1
        } else {
            position_after(request.after_position, stored)?
        };
        let newest = usize::try_from(request.newest)
            .ok()
            .filter(|newest| *newest <= NEWEST_MAX);
        let newest = newest.ok_or_else(|| ApiError::invalid("newest", format!("must be from 0 to {NEWEST_MAX}")))?;
        let ends = request.until_now || request.until_time.is_some();
        let wanted = watch::WantedEvents {
            scope,
            filter: filter(&request)?,
            after: if newest > 0 { stored.1 } else { after },
            newest,
            last: ends.then_some(stored.1),
        };
        let events = watch::events(self.0.clone(), wanted);
        Ok(Response::new(Box::pin(events)))
    }
}

/// The position from which a stream goes on.
///
/// # Errors
/// Events after the position are deleted, or the position does not exist yet.
fn position_after(after: u64, (oldest, newest): (i64, i64)) -> Result<i64, ApiError> {
    let after = i64::try_from(after).map_err(|_| ApiError::invalid("after_position", "is too large"))?;
    if after > 0 && after < oldest - 1 {
        let deleted = oldest - 1;
        let message = format!("events up to {deleted} are deleted; position {after} is no longer stored");
        return Err(ApiError::OutOfRange(message));
    }
    if after > newest {
        let message = format!("position {after} does not exist yet; the newest position is {newest}");
        return Err(ApiError::OutOfRange(message));
    }
    Ok(after)
}

/// Which events a request wants.
///
/// # Errors
/// A field is faulty.
fn filter(request: &v1::StreamEventsRequest) -> Result<EventFilter, ApiError> {
    if request.kinds.len() > KINDS_MAX {
        return Err(ApiError::invalid("kinds", format!("must be at most {KINDS_MAX}")));
    }
    let is_kind = |kind: &str| {
        let name = kind.strip_suffix(".*").unwrap_or(kind);
        !name.is_empty() && name.len() <= 64 && !name.contains('*')
    };
    if let Some(faulty) = request.kinds.iter().find(|kind| !is_kind(kind)) {
        let fault = format!("{faulty:?} is not a kind such as \"power.on\", nor a beginning such as \"security.*\"");
        return Err(ApiError::invalid("kinds", fault));
    }
    Ok(EventFilter {
        target: request.target.clone(),
        kinds: request.kinds.clone(),
        min_severity: match request.min_severity() {
            v1::EventSeverity::Unspecified | v1::EventSeverity::Info => None,
            v1::EventSeverity::Warning => Some(Severity::Warning),
            v1::EventSeverity::Error => Some(Severity::Error),
        },
        since: names::given_time("since_time", request.since_time.as_ref())?,
        until: names::given_time("until_time", request.until_time.as_ref())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_goes_on_only_after_a_stored_position() {
        let after = |position| position_after(position, (5, 9)).map_err(|error| error.to_string());
        assert_eq!([0, 4, 9].map(after), [Ok(0), Ok(4), Ok(9)]);
        let refused = |position| after(position).expect_err("it is refused");
        assert!(refused(3).contains("events up to 4 are deleted"), "{}", refused(3));
        for position in [10, i64::MAX as u64] {
            assert!(
                refused(position).contains("does not exist yet"),
                "{}",
                refused(position)
            );
        }
        assert!(refused(u64::MAX).contains("is too large"), "{}", refused(u64::MAX));
    }
}
