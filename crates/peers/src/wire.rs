//! The bytes between two agents, inside TLS. Numbers are little-endian. Every length is fixed, or bounded before it is
//! believed.
//!
//! Each connection begins with a hello, then carries one request after the other:
//!
//! | message | bytes |
//! |---|---|
//! | hello | flags (1; bit 0: the asking agent is of another rack), length of the ticket (2), ticket, signature (64) |
//! | its answer | 0: welcome; otherwise the reason of a refusal, and the connection ends (1) |
//! | request of a chunk | 1 (1), number of the chunk (4) |
//! | look | 2 (1), requests that wait at the asking agent (4), set of the chunks that it holds |
//! | answer | kind (1), requests that wait (1), set of the chunks held; for a frame also its length (4) and its bytes |
//!
//! A set of chunks has one bit for each chunk with data in the image's index, lowest bit first. Both ends have that index.

use std::io;

use rackwright_fanout::{Bits, Chunk, LONGEST_TICKET, Refusal};
use rackwright_image::codec::MAX_FRAME_BYTES;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::ticket::{SIGNATURE_BYTES, SignedTicket, TicketRefusal};

/// The asking agent is of another rack.
const OUTSIDE: u8 = 1;

/// Why a message was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The connection ended or broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The other end does not keep to the protocol. TLS proves that nothing between the two changed its bytes.
    #[error("{0}")]
    Protocol(String),
}

/// The first message of the agent that asks.
pub(crate) struct Hello {
    pub(crate) ticket: SignedTicket,
    pub(crate) is_outside: bool,
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let text = self.ticket.text();
        let mut bytes = vec![if self.is_outside { OUTSIDE } else { 0 }];
        // A ticket has at most 1 KiB.
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text);
        bytes.extend_from_slice(self.ticket.signature());
        bytes
    }

    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Self, WireError> {
        let flags = stream.read_u8().await?;
        if flags & !OUTSIDE != 0 {
            return Err(WireError::Protocol(format!("unknown flags {flags:#x} in a hello")));
        }
        let length = usize::from(stream.read_u16_le().await?);
        if length > LONGEST_TICKET {
            return Err(WireError::Protocol(format!("a ticket of {length} bytes")));
        }
        let mut text = vec![0; length];
        stream.read_exact(&mut text).await?;
        let mut signature = [0; SIGNATURE_BYTES];
        stream.read_exact(&mut signature).await?;
        let ticket = SignedTicket::new(text, signature).map_err(|error| WireError::Protocol(error.to_string()))?;
        let is_outside = flags & OUTSIDE != 0;
        Ok(Self { ticket, is_outside })
    }
}

/// The asked agent's decision on a hello or, later, on its ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Welcome {
    Yes,
    Refused(TicketRefusal),
    /// There is no room for another connection.
    Full,
}

impl Welcome {
    const ALL: [(Self, u8); 9] = [
        (Self::Yes, 0),
        (Self::Refused(TicketRefusal::Unsigned), 1),
        (Self::Refused(TicketRefusal::Refused(Refusal::OtherHolder)), 2),
        (Self::Refused(TicketRefusal::Refused(Refusal::OtherImage)), 3),
        (Self::Refused(TicketRefusal::Refused(Refusal::OtherCustomer)), 4),
        (Self::Refused(TicketRefusal::Refused(Refusal::NotYet)), 5),
        (Self::Refused(TicketRefusal::Refused(Refusal::Ended)), 6),
        (Self::Refused(TicketRefusal::Refused(Refusal::TooLong)), 7),
        (Self::Full, 8),
    ];

    /// The byte of this decision. A test shows that the table has each value.
    pub(crate) fn byte(self) -> u8 {
        let known = Self::ALL.iter().find(|(welcome, _)| *welcome == self);
        known.map_or(u8::MAX, |(_, byte)| *byte)
    }

    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Self, WireError> {
        let found = stream.read_u8().await?;
        let known = Self::ALL.iter().find(|(_, byte)| *byte == found);
        let unknown = || WireError::Protocol(format!("the unknown answer {found} to a hello"));
        known.map(|(welcome, _)| *welcome).ok_or_else(unknown)
    }
}

const REQUEST_CHUNK: u8 = 1;
const REQUEST_LOOK: u8 = 2;

/// A request of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// The frame of a chunk.
    Chunk(Chunk),
    /// The chunks that the other agent holds. The set has the chunks that the asking agent holds; the number is the count
    /// of requests that wait at the asking agent.
    Look(Bits, u8),
}

impl Request {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, number, held) = match self {
            Self::Chunk(chunk) => (REQUEST_CHUNK, chunk.0, Vec::new()),
            Self::Look(held, load) => (REQUEST_LOOK, u32::from(*load), held.to_bytes()),
        };
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&held);
        bytes
    }

    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin), chunks: u32) -> Result<Self, WireError> {
        let kind = stream.read_u8().await?;
        let number = stream.read_u32_le().await?;
        match (kind, u8::try_from(number)) {
            (REQUEST_CHUNK, _) => Ok(Self::Chunk(Chunk(number))),
            (REQUEST_LOOK, Ok(load)) => Ok(Self::Look(read_bits(stream, chunks).await?, load)),
            _ => Err(WireError::Protocol(format!("the unknown request {kind} with {number}"))),
        }
    }
}

/// The kind of an answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// The frame follows.
    Frame,
    /// The chunk is not in memory.
    NotHeld,
    /// There is no room for the request now.
    Busy,
    /// The answer to a look.
    Holdings,
    /// The ticket has ended.
    Ended,
}

impl AnswerKind {
    const ALL: [Self; 5] = [Self::Frame, Self::NotHeld, Self::Busy, Self::Holdings, Self::Ended];
}

/// An answer; `frame` is there if and only if `kind` is [`AnswerKind::Frame`].
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) kind: AnswerKind,
    pub(crate) load: u8,
    pub(crate) held: Bits,
    pub(crate) frame: Option<Vec<u8>>,
}

impl Reply {
    /// Writes an answer. The frame is written from where it lies.
    pub(crate) async fn write(
        stream: &mut (impl AsyncWrite + Unpin),
        kind: AnswerKind,
        (held, load): (&Bits, u8),
        frame: Option<&[u8]>,
    ) -> io::Result<()> {
        let mut head = vec![kind as u8, load];
        head.extend_from_slice(&held.to_bytes());
        if let Some(frame) = frame {
            // A verified frame is shorter than 5 MiB.
            head.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        }
        stream.write_all(&head).await?;
        if let Some(frame) = frame {
            stream.write_all(frame).await?;
        }
        stream.flush().await
    }

    /// Reads an answer of an agent with the same image, which has this number of chunks with data.
    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin), chunks: u32) -> Result<Self, WireError> {
        let found = stream.read_u8().await?;
        let known = AnswerKind::ALL.into_iter().find(|kind| *kind as u8 == found);
        let kind = known.ok_or_else(|| WireError::Protocol(format!("the unknown answer {found}")))?;
        let load = stream.read_u8().await?;
        let held = read_bits(stream, chunks).await?;
        let frame = match kind {
            AnswerKind::Frame => Some(read_frame(stream).await?),
            _ => None,
        };
        Ok(Self {
            kind,
            load,
            held,
            frame,
        })
    }
}

async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, WireError> {
    let length = stream.read_u32_le().await? as usize;
    if length > MAX_FRAME_BYTES {
        return Err(WireError::Protocol(format!(
            "a frame of {length} bytes; the longest possible one has {MAX_FRAME_BYTES}"
        )));
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn read_bits(stream: &mut (impl AsyncRead + Unpin), chunks: u32) -> Result<Bits, WireError> {
    let mut bytes = vec![0; chunks.div_ceil(8) as usize];
    stream.read_exact(&mut bytes).await?;
    Bits::from_bytes(chunks, &bytes).map_err(|error| WireError::Protocol(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_round_trip() {
        let ticket = SignedTicket::new(b"a ticket".to_vec(), [3; SIGNATURE_BYTES]).unwrap();
        for is_outside in [false, true] {
            let hello = Hello {
                ticket: ticket.clone(),
                is_outside,
            };
            let read = Hello::read(&mut &hello.encode()[..]).await.unwrap();
            assert_eq!((read.ticket, read.is_outside), (ticket.clone(), is_outside));
        }
        for (welcome, byte) in Welcome::ALL {
            assert_eq!(welcome.byte(), byte);
            assert_eq!(Welcome::read(&mut &[byte][..]).await.unwrap(), welcome);
        }
        let mut held = Bits::new(11);
        held.add(Chunk(10));
        for request in [Request::Chunk(Chunk(7)), Request::Look(held.clone(), 3)] {
            assert_eq!(Request::read(&mut &request.encode()[..], 11).await.unwrap(), request);
        }
        for kind in AnswerKind::ALL {
            let frame = (kind == AnswerKind::Frame).then_some(&b"frame"[..]);
            let mut bytes = Vec::new();
            Reply::write(&mut bytes, kind, (&held, 3), frame).await.unwrap();
            let read = Reply::read(&mut &bytes[..], 11).await.unwrap();
            assert_eq!((read.kind, read.load, &read.held), (kind, 3, &held));
            assert_eq!(read.frame.as_deref(), frame);
        }
    }

    #[tokio::test]
    async fn what_is_no_message_is_refused_before_it_is_read_in_full() {
        let protocol = |result: Result<(), WireError>| match result {
            Err(WireError::Protocol(reason)) => reason,
            other => panic!("{other:?}"),
        };
        // Each has only its first bytes: nothing is read, and no memory is taken, for what those announce.
        let hello = |bytes: &'static [u8]| async move { Hello::read(&mut &bytes[..]).await.map(|_| ()) };
        assert!(protocol(hello(&[2]).await).contains("flags"));
        assert!(protocol(hello(&[0, 1, 4]).await).contains("1025 bytes"));
        let welcome = Welcome::read(&mut &[9][..]).await.map(|_| ());
        assert!(protocol(welcome).contains('9'));
        let request = |bytes: &'static [u8]| async move { Request::read(&mut &bytes[..], 4).await.map(|_| ()) };
        assert!(protocol(request(&[3, 0, 0, 0, 0]).await).contains("request 3"));
        assert!(protocol(request(&[2, 0, 1, 0, 0]).await).contains("request 2 with 256"));
        assert!(protocol(request(&[2, 0, 0, 0, 0, 0x10]).await).contains("behind"));
        let reply = |bytes: &'static [u8]| async move { Reply::read(&mut &bytes[..], 4).await.map(|_| ()) };
        assert!(protocol(reply(&[5]).await).contains("answer 5"));
        assert!(protocol(reply(&[1, 0, 0xff]).await).contains("behind"));
        let longest = MAX_FRAME_BYTES as u32 + 1;
        let mut frame = vec![0, 0, 0xf];
        frame.extend_from_slice(&longest.to_le_bytes());
        let reason = protocol(Reply::read(&mut &frame[..], 4).await.map(|_| ()));
        assert!(reason.contains(&longest.to_string()), "{reason}");
        let cut = Reply::read(&mut &[0, 0, 0xf, 9, 0, 0, 0, 1, 2][..], 4).await;
        assert!(matches!(cut, Err(WireError::Io(_))), "{cut:?}");
    }
}
