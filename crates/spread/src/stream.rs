//! The stream by which an agent that writes an image claims chunks. The rules are in the other modules.

use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::chunk_message::Message as Up;
use rackwright_fanout::{MessageRate, Moment, Span};
use rackwright_ground::agents::Session;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_store::{Scope, StoreError};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tonic::{Status, Streaming};

use crate::{self as spread, Asking, Joined, ToAgent};

/// Time limit for the first message.
const FIRST_WITHIN: Duration = Duration::from_secs(10);

/// Messages of one agent that are taken in a second, and at once after a pause. An agent that takes every chunk from outside
/// its rack sends about two for each. Further messages wait in the connection, which holds up the agent.
const MESSAGES_PER_SECOND: u64 = 1000;
const MESSAGES_AT_ONCE: u64 = 200;

/// The messages of an agent.
trait Messages {
    /// The next message. `None`: the agent has ended the stream.
    async fn next(&mut self) -> Result<Option<v1::ChunkMessage>, Status>;
}

impl Messages for Streaming<v1::ChunkMessage> {
    async fn next(&mut self) -> Result<Option<v1::ChunkMessage>, Status> {
        self.message().await
    }
}

/// Begins a stream. Returns the messages to the agent; a task goes on with the agent's messages.
///
/// # Errors
/// The agent has no session here, its first message does not fit its job, or the session ends meanwhile.
pub async fn claim(
    core: &Arc<Core>,
    asking: Asking,
    mut incoming: Streaming<v1::ChunkMessage>,
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
async fn attend(
    core: Arc<Core>,
    asking: Asking,
    session: Session,
    joined: Joined,
    mut incoming: Streaming<v1::ChunkMessage>,
) {
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

async fn listen(core: &Core, asking: &Asking, joined: &Joined, incoming: &mut impl Messages) -> End {
    let node = asking.node.as_str();
    let (begun, mut rate) = (Instant::now(), MessageRate::new(MESSAGES_PER_SECOND, MESSAGES_AT_ONCE));
    loop {
        let message = match incoming.next().await {
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
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let wait = rate.take(Moment::micros(micros));
        if wait > Span::ZERO {
            sleep(Duration::from_micros(wait.as_micros())).await;
        }
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

#[cfg(test)]
mod tests {
    use rackwright_fanout::{Bits, TableSettings};
    use rackwright_store::AgentSession;

    use super::*;
    use crate::message::Beginning;
    use crate::record::Writer;
    use crate::table::Table;

    /// An agent that sends the same claim as fast as it is read.
    struct Flood {
        held: Vec<u8>,
        read: u64,
    }

    impl Messages for Flood {
        async fn next(&mut self) -> Result<Option<v1::ChunkMessage>, Status> {
            self.read += 1;
            assert!(self.read < 100_000, "it is read without a limit");
            let claim = v1::ClaimChunk {
                wanted: 1,
                held: self.held.clone(),
                stuck: Vec::new(),
            };
            Ok(Some(v1::ChunkMessage {
                message: Some(Up::Claim(claim)),
            }))
        }
    }

    #[tokio::test]
    async fn an_agent_that_floods_is_read_slower_and_its_stream_goes_on() {
        const CHUNKS: u32 = 20;
        let core = rackwright_ground::testing::core_with("images: {peers: true}\n").await;
        let asking = Asking {
            node: "n1".into(),
            of: AgentSession::default(),
            address: None,
        };
        let writer = Writer {
            node: "n1".into(),
            of: AgentSession::default(),
            operation: "job".into(),
            address: ([10, 0, 0, 9], 8470).into(),
            rack: "r1".into(),
        };
        let beginning = Beginning {
            held: Bits::new(CHUNKS),
            fetching: Vec::new(),
            port: 8470,
        };
        let table = Arc::new(Table::new("b3-1", CHUNKS, TableSettings::default(), 1));
        let (joined, _receiver) = table.begin(writer, beginning).unwrap();
        let mut flood = Flood {
            held: Bits::new(CHUNKS).to_bytes(),
            read: 0,
        };
        tokio::time::pause();
        let seconds = 5;
        let listening = listen(&core, &asking, &joined, &mut flood);
        let ended = tokio::time::timeout(Duration::from_secs(seconds), listening).await;
        assert!(ended.is_err(), "the stream goes on");
        let expected = MESSAGES_AT_ONCE + seconds * MESSAGES_PER_SECOND;
        assert!(
            flood.read.abs_diff(expected) <= expected / 20,
            "{} messages",
            flood.read
        );
    }
}
