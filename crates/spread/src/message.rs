//! The messages of agents about chunks, compared with the image. An agent may send anything.

use rackwright_api::v1;
use rackwright_api::v1::chunk_message::Message as Wire;
use rackwright_fanout::{Bits, BitsError, Chunk};
use rackwright_ground::text::{NAME_MAX, SENTENCE_MAX, cut};
use rackwright_lifecycle::NodeId;

/// Most chunks in one list of a message.
const LISTED_MAX: usize = 64;
/// Most chunks that an agent asks for at once. An agent of this version asks for two, or for six if it knows no other agent.
const WANTED_MAX: u32 = 16;

/// Why a message is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A set of chunks does not fit the image.
    #[error("{field}: {error}")]
    Set {
        field: &'static str,
        /// The fault.
        error: BitsError,
    },
    /// A number behind the image's last chunk.
    #[error("{field}: the image has {chunks} chunks with data, and no chunk {number}")]
    Chunk {
        field: &'static str,
        number: u32,
        /// Number of chunks of the image.
        chunks: u32,
    },
    /// A list is too long.
    #[error("{field}: has {found} chunks, and may have {LISTED_MAX}")]
    TooMany {
        field: &'static str,
        /// Chunks in the list.
        found: usize,
    },
    /// A port that no agent can have.
    #[error("begin.port: must be from 1 to 65535")]
    Port,
    /// A name that is not `nodes/NODE`.
    #[error("{0}: is not a node, \"nodes/NODE\"")]
    Node(&'static str),
    /// The stream has begun already.
    #[error("begin: the stream has begun already")]
    BeginsAgain,
    /// Nothing is set, or a message of a newer version.
    #[error("message: is empty, or not known to this version")]
    Empty,
}

/// What an agent holds and fetches when its stream begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    /// The chunks that it holds for others.
    pub held: Bits,
    /// The chunks that it fetches from outside its rack.
    pub fetching: Vec<Chunk>,
    /// The port at which it serves.
    pub port: u16,
}

/// A message after the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The agent asks for chunks from outside its rack.
    Claim {
        /// How many.
        wanted: u32,
        /// What it holds for others.
        held: Bits,
        /// Chunks that it finds with no agent of its rack.
        stuck: Vec<Chunk>,
    },
    /// A granted chunk came.
    Came {
        chunk: Chunk,
        /// What it holds for others.
        held: Bits,
    },
    /// A granted chunk did not come.
    Failed(Chunk),
    /// Another agent does not answer.
    Unreachable(NodeId),
    /// Another agent sent wrong bytes.
    Wrong {
        /// The node of the other agent.
        node: NodeId,
        /// What was wrong.
        reason: String,
    },
    /// The agent reaches no other agent, or serves none.
    Alone,
}

fn set(chunks: u32, field: &'static str, bytes: &[u8]) -> Result<Bits, MessageError> {
    Bits::from_bytes(chunks, bytes).map_err(|error| MessageError::Set { field, error })
}

fn chunk(chunks: u32, field: &'static str, number: u32) -> Result<Chunk, MessageError> {
    if number < chunks {
        Ok(Chunk(number))
    } else {
        Err(MessageError::Chunk { field, number, chunks })
    }
}

fn list(chunks: u32, field: &'static str, numbers: &[u32]) -> Result<Vec<Chunk>, MessageError> {
    if numbers.len() > LISTED_MAX {
        let found = numbers.len();
        return Err(MessageError::TooMany { field, found });
    }
    numbers.iter().map(|number| chunk(chunks, field, *number)).collect()
}

fn node(field: &'static str, name: &str) -> Result<NodeId, MessageError> {
    let id = name.strip_prefix("nodes/").filter(|id| !id.is_empty());
    let id = id.filter(|id| id.len() <= NAME_MAX).ok_or(MessageError::Node(field))?;
    Ok(NodeId::named(id))
}

/// Reads the first message of a stream about an image with this number of chunks with data.
///
/// # Errors
/// The message does not fit the image.
pub fn read_beginning(chunks: u32, begin: &v1::BeginChunks) -> Result<Beginning, MessageError> {
    let port = u16::try_from(begin.port).ok().filter(|port| *port > 0);
    Ok(Beginning {
        held: set(chunks, "begin.held", &begin.held)?,
        fetching: list(chunks, "begin.fetching", &begin.fetching)?,
        port: port.ok_or(MessageError::Port)?,
    })
}

/// Reads a message after the first one.
///
/// # Errors
/// The message does not fit the image.
pub fn read(chunks: u32, message: v1::ChunkMessage) -> Result<Message, MessageError> {
    Ok(match message.message.ok_or(MessageError::Empty)? {
        Wire::Begin(_) => return Err(MessageError::BeginsAgain),
        Wire::Claim(claim) => Message::Claim {
            wanted: claim.wanted.min(WANTED_MAX),
            held: set(chunks, "claim.held", &claim.held)?,
            stuck: list(chunks, "claim.stuck", &claim.stuck)?,
        },
        Wire::Came(came) => Message::Came {
            chunk: chunk(chunks, "came.chunk", came.chunk)?,
            held: set(chunks, "came.held", &came.held)?,
        },
        Wire::Failed(number) => Message::Failed(chunk(chunks, "failed", number)?),
        Wire::Unreachable(name) => Message::Unreachable(node("unreachable", &name)?),
        Wire::Wrong(wrong) => Message::Wrong {
            node: node("wrong.node", &wrong.node)?,
            reason: cut(&wrong.reason, SENTENCE_MAX / 2),
        },
        // False says nothing: an agent that is alone stays alone.
        Wire::IsAlone(true) => Message::Alone,
        Wire::IsAlone(false) => return Err(MessageError::Empty),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKS: u32 = 10;

    fn refused(message: Wire) -> String {
        let message = v1::ChunkMessage { message: Some(message) };
        read(CHUNKS, message).unwrap_err().to_string()
    }

    #[test]
    fn a_message_that_does_not_fit_the_image_is_refused_in_words() {
        let claim = |held: &[u8], stuck: &[u32]| {
            Wire::Claim(v1::ClaimChunk {
                wanted: 1,
                held: held.to_vec(),
                stuck: stuck.to_vec(),
            })
        };
        for (message, words) in [
            (
                claim(&[0; 3], &[]),
                "claim.held: the set of chunks has 3 bytes, expected 2",
            ),
            (
                claim(&[0, 4], &[]),
                "claim.held: the set of chunks names a chunk behind",
            ),
            (
                claim(&[0; 2], &[10]),
                "claim.stuck: the image has 10 chunks with data, and no chunk 10",
            ),
            (claim(&[0; 2], &[1; 65]), "claim.stuck: has 65 chunks, and may have 64"),
            (Wire::Failed(u32::MAX), "failed: the image has 10 chunks"),
            (Wire::Unreachable("n1".into()), "unreachable: is not a node"),
            (
                Wire::Unreachable(format!("nodes/{}", "x".repeat(10_000))),
                "unreachable: is not a node",
            ),
            (Wire::Wrong(v1::WrongChunk::default()), "wrong.node: is not a node"),
            (Wire::IsAlone(false), "message: is empty"),
            (
                Wire::Begin(v1::BeginChunks::default()),
                "begin: the stream has begun already",
            ),
            (
                Wire::Came(v1::ChunkCame {
                    chunk: 1,
                    held: Vec::new(),
                }),
                "came.held: the set of chunks has 0 bytes",
            ),
        ] {
            let found = refused(message);
            assert!(found.starts_with(words), "{found}");
        }
        let nothing = read(CHUNKS, v1::ChunkMessage::default());
        assert_eq!(nothing, Err(MessageError::Empty));
    }

    #[test]
    fn the_first_message_needs_a_port_and_a_set_of_the_right_length() {
        let begin = |port, held: &[u8]| v1::BeginChunks {
            port,
            held: held.to_vec(),
            fetching: vec![9],
            ..v1::BeginChunks::default()
        };
        for port in [0, 65_536, u32::MAX] {
            assert_eq!(read_beginning(CHUNKS, &begin(port, &[0; 2])), Err(MessageError::Port));
        }
        let long = read_beginning(CHUNKS, &begin(1, &[0; 1000])).unwrap_err();
        assert!(long.to_string().starts_with("begin.held: "), "{long}");
        let good = read_beginning(CHUNKS, &begin(8470, &[1, 2])).unwrap();
        assert_eq!(good.held.iter().collect::<Vec<_>>(), [Chunk(0), Chunk(9)]);
        assert_eq!((good.port, good.fetching), (8470, vec![Chunk(9)]));
    }

    #[test]
    fn numbers_and_texts_are_bounded() {
        let claim = Wire::Claim(v1::ClaimChunk {
            wanted: u32::MAX,
            held: vec![0; 2],
            stuck: Vec::new(),
        });
        let Ok(Message::Claim { wanted, .. }) = read(CHUNKS, v1::ChunkMessage { message: Some(claim) }) else {
            panic!("it is a claim");
        };
        assert_eq!(wanted, WANTED_MAX);
        let wrong = Wire::Wrong(v1::WrongChunk {
            node: "nodes/n1".into(),
            reason: "x\n".repeat(10_000),
        });
        let Ok(Message::Wrong { node, reason }) = read(CHUNKS, v1::ChunkMessage { message: Some(wrong) }) else {
            panic!("it is a report");
        };
        assert_eq!(node.as_str(), "n1");
        assert!(reason.len() <= SENTENCE_MAX && !reason.contains('\n'), "{reason:?}");
    }
}
