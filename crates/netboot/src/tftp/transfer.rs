//! One transfer: blocks in a sliding window, repeated until the client acknowledges them.

use std::collections::VecDeque;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use super::packet::{ClientPacket, ErrorCode, ReadRequest, error_packet, from_client};

/// Number of times that the same packets are sent before the client counts as gone.
const ATTEMPTS: u32 = 6;

/// How a transfer failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("the client aborted the transfer (error code {code})")]
    ByClient { code: u16 },
    #[error("the client stopped answering")]
    Silent,
    #[error("the time limit was exceeded")]
    TooSlow,
    #[error("reading the file failed: {0}")]
    Read(io::Error),
    #[error("network error: {0}")]
    Network(io::Error),
}

/// Progress of a transfer.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) acknowledged: u64,
    pub(super) block_size: u16,
    pub(super) window: u16,
}

/// Blocks that are read but not acknowledged yet. Block numbers wrap at 65,536, as clients expect.
struct Window<R> {
    content: R,
    block_size: usize,
    room: usize,
    /// Number of the first block in `blocks`.
    first: u16,
    blocks: VecDeque<Vec<u8>>,
    read_all: bool,
}

impl<R: AsyncRead + Unpin> Window<R> {
    async fn fill(&mut self) -> io::Result<()> {
        while !self.read_all && self.blocks.len() < self.room {
            let number = self.first.wrapping_add(self.blocks.len() as u16);
            let [high, low] = number.to_be_bytes();
            let mut packet = Vec::with_capacity(4 + self.block_size);
            packet.extend([0, 3, high, low]);
            let read = (&mut self.content)
                .take(self.block_size as u64)
                .read_to_end(&mut packet)
                .await?;
            // A block that is not full (possibly empty) is the last one.
            self.read_all = read < self.block_size;
            self.blocks.push_back(packet);
        }
        Ok(())
    }

    /// Drops the blocks up to `number` and returns their payload bytes; `None` for a number outside the window.
    fn acknowledge(&mut self, number: u16) -> Option<u64> {
        let count = usize::from(number.wrapping_sub(self.first)) + 1;
        if count > self.blocks.len() {
            return None;
        }
        let bytes = self.blocks.drain(..count).map(|packet| packet.len() as u64 - 4).sum();
        self.first = number.wrapping_add(1);
        Some(bytes)
    }
}

/// Sends `content` to the connected client of `socket`.
pub(super) async fn send(
    socket: &UdpSocket,
    request: &ReadRequest,
    content: impl AsyncRead + Unpin,
    size: u64,
    progress: &mut Progress,
) -> Result<(), Fault> {
    progress.block_size = request.block_size;
    progress.window = request.window;
    if let Some(acknowledgement) = request.acknowledgement(size) {
        // The client confirms with an acknowledgement of block 0.
        exchange(
            socket,
            request,
            &|i| (i == 0).then_some(acknowledgement.as_slice()),
            |number| number == 0,
        )
        .await?;
    }
    let mut window = Window {
        content,
        block_size: request.block_size.into(),
        room: request.window.into(),
        first: 1,
        blocks: VecDeque::new(),
        read_all: false,
    };
    loop {
        if let Err(error) = window.fill().await {
            let _ = socket
                .send(&error_packet(
                    ErrorCode::Undefined,
                    "the file cannot be read on the server",
                ))
                .await;
            return Err(Fault::Read(error));
        }
        if window.blocks.is_empty() {
            return Ok(());
        }
        let (first, sent) = (window.first, window.blocks.len());
        let blocks = &window.blocks;
        let is_new = |number: u16| usize::from(number.wrapping_sub(first)) < sent;
        let number = exchange(socket, request, &|i| blocks.get(i).map(Vec::as_slice), is_new).await?;
        progress.acknowledged += window.acknowledge(number).unwrap_or(0);
    }
}

/// Sends packets until an awaited acknowledgement arrives. Other acknowledgements are late and are ignored without a
/// retransmission: otherwise a delayed packet would double all later ones (RFC 1123, 4.2.3.1).
async fn exchange<'p>(
    socket: &UdpSocket,
    request: &ReadRequest,
    packets: &(dyn Fn(usize) -> Option<&'p [u8]> + Sync),
    awaited: impl Fn(u16) -> bool + Sync,
) -> Result<u16, Fault> {
    let mut buffer = [0; 516];
    for _ in 0..ATTEMPTS {
        let mut i = 0;
        while let Some(packet) = packets(i) {
            socket.send(packet).await.map_err(Fault::Network)?;
            i += 1;
        }
        let until = Instant::now() + request.timeout;
        while let Ok(received) = timeout_at(until, socket.recv(&mut buffer)).await {
            match from_client(&buffer[..received.map_err(Fault::Network)?]) {
                ClientPacket::Ack(number) if awaited(number) => return Ok(number),
                ClientPacket::Error(code) => return Err(Fault::ByClient { code }),
                ClientPacket::Ack(_) | ClientPacket::Other => {}
            }
        }
    }
    Err(Fault::Silent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_window_slides_and_wraps() {
        let mut window = Window {
            content: &[7u8; 20][..],
            block_size: 8,
            room: 2,
            first: 65_535,
            blocks: VecDeque::new(),
            read_all: false,
        };
        window.fill().await.unwrap();
        assert_eq!(
            window
                .blocks
                .iter()
                .map(|packet| packet[2..4].to_vec())
                .collect::<Vec<_>>(),
            [[255, 255], [0, 0]]
        );
        assert_eq!(window.acknowledge(65_534), None);
        assert_eq!(window.acknowledge(1), None);
        assert_eq!(window.acknowledge(65_535), Some(8));
        window.fill().await.unwrap();
        assert_eq!(window.acknowledge(1), Some(12));
        window.fill().await.unwrap();
        assert!(window.blocks.is_empty());
    }

    #[tokio::test]
    async fn a_file_of_whole_blocks_ends_with_an_empty_one() {
        let mut window = Window {
            content: &[7u8; 16][..],
            block_size: 8,
            room: 9,
            first: 1,
            blocks: VecDeque::new(),
            read_all: false,
        };
        window.fill().await.unwrap();
        assert_eq!(window.blocks.len(), 3);
        assert_eq!(window.blocks[2], [0, 3, 0, 3]);
    }
}
