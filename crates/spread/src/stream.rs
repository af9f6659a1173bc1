//! The stream by which an agent that writes an image claims chunks. The rules are in the other modules.

use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::chunk_message::Message as Up;
use rackwright_ground::agents::Session;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_store::{Scope, StoreError};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use crate::{self as spread, Asking, Joined, ToAgent};

/// Time limit for the first message.
const FIRST_WITHIN: Duration = Duration::from_secs(10);

type Incoming = Streaming<v1::ChunkMessage>;

/// Begins a stream. Returns the messages to the agent; a task goes on with the agent's messages.
///
/// # Errors
/// The agent has no session here, its first message does not fit its job, or the session ends meanwhile.
pub async fn claim(
    core: &Arc<Core>,
    asking: Asking,
    mut incoming: Incoming,
) -> Result<mpsc::Receiver<ToAgent>, Status> {
    let (record, session) = spread::session(core, &asking).await?;
    let first = tokio::time::timeout(FIRST_WITHIN, incoming.message());
    let first = tokio::select! {
        first = first => first.map_err(|_| Status::deadline_exceeded("no first message came within 10 s"))??,
        () = session.end.cancelled() => return Err(over()),
        () = core.stop.cancelled() => return Err(stopping()),
    };
    let Some(Up::Begin(begin)) = first.and_then(|message| message.message) else {
        return Err(ApiError::invalid("message", "the first message must be begin").into());
    };
    let (joined, receiver) = spread::begin(core, &asking, (&record, &session), &begin).await?;
    tokio::spawn(attend(core.clone(), asking, session, joined, incoming));
    Ok(receiver)
}

fn over() -> Status {
    Status::unavailable("the agent's session has ended: connect again, and begin a new stream")
}

fn stopping() -> Status {
    Status::unavailable("this replica stops: connect again, and begin a new stream")
}

/// The end of a stream.
struct End {
    /// The agent does not return with this job.
    is_gone: bool,
    /// The reason that the agent gets. `None`: it ended the stream itself.
    status: Option<Status>,
}

/// Handles the messages of an agent until its stream ends.
async fn attend(core: Arc<Core>, asking: Asking, session: Session, joined: Joined, mut incoming: Incoming) {
    let listening = listen(&core, &asking, &joined, &mut incoming);
    let end = tokio::select! {
        end = listening => end,
        () = session.end.cancelled() => End {
            is_gone: is_other_claim(&core, &asking).await,
            status: Some(over()),
        },
        () = joined.end.cancelled() => End {
            is_gone: false,
            // A newer stream has given its reason already.
            status: Some(Status::resource_exhausted("the agent does not read its messages")),
        },
        () = joined.closed().cancelled() => End {
            is_gone: false,
            status: Some(Status::unavailable("the claim table of this image was lost: begin a new stream")),
        },
        () = core.stop.cancelled() => End {
            is_gone: false,
            status: Some(stopping()),
        },
    };
    if let Some(status) = end.status {
        // Without room for the reason, the stream ends without one.
        let _ = joined.sender.try_send(Err(status));
    }
    joined.leave(end.is_gone);
}

async fn listen(core: &Core, asking: &Asking, joined: &Joined, incoming: &mut Incoming) -> End {
    let node = asking.node.as_str();
    loop {
        let message = match incoming.message().await {
            Ok(Some(message)) => message,
            Ok(None) => {
                return End {
                    is_gone: true,
                    status: None,
                };
            }
            Err(status) => {
                tracing::debug!(node, %status, "an agent's stream for chunks broke");
                return End {
                    is_gone: false,
                    status: None,
                };
            }
        };
        match spread::read(joined.chunks(), message) {
            Ok(message) => {
                if let Some(wrong) = joined.heard(message) {
                    spread::report_wrong_bytes(core, &wrong).await;
                }
            }
            Err(error) => {
                tracing::warn!(node, %error, "an agent's message about chunks is refused");
                return End {
                    is_gone: true,
                    status: Some(ApiError::invalid("message", error.to_string()).into()),
                };
            }
        }
    }
}

/// Whether the node has another claim generation by now, so that this agent does not return.
async fn is_other_claim(core: &Core, asking: &Asking) -> bool {
    match core.store.node(&Scope::Site, &asking.node).await {
        Ok(record) => record.node.generation != asking.of.generation,
        Err(StoreError::NotFound { .. }) => true,
        // The agent stays for a few seconds more.
        Err(error) => {
            tracing::warn!(node = asking.node.as_str(), %error, "the node's claim could not be read");
            false
        }
    }
}
