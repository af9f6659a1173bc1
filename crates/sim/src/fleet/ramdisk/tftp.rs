//! TFTP as firmware uses it: reads one file, with options for its size, larger blocks and a window of blocks (RFC 1350,
//! RFC 2347 to RFC 2349, RFC 7440). The data is discarded.

use crate::fleet::faults::Lost;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;
use tokio::net::UdpSocket;

/// Firmware's wait for an answer, before it sends its last packet again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Packets in a row without an answer after which firmware gives up.
const MAX_SILENCES: u32 = 6;
/// Block size that firmware requests: an Ethernet frame's 1500 bytes, less 20 for IPv4, 8 for UDP and 4 for TFTP.
const REQUESTED_BLOCK_BYTES: u16 = 1468;
/// Window that firmware requests, in blocks.
const REQUESTED_WINDOW: u16 = 16;
/// Block size without options (RFC 1350).
const DEFAULT_BLOCK_BYTES: u16 = 512;
/// Length of the operation code and the block number before the data of a block.
const DATA_HEADER_BYTES: usize = 4;

// Operation codes (RFC 1350, section 5; RFC 2347 for the answer to options).
const READ: u8 = 1;
const DATA: u8 = 3;
const ACKNOWLEDGE: u8 = 4;
const ERROR: u8 = 5;
const OPTIONS: u8 = 6;

/// Decides for each packet whether the network loses it, by the packet's direction.
pub(super) type Loss<'a> = &'a (dyn Fn(Lost) -> bool + Sync);

/// Reads `file` from `server`, with the machine's address `from`. Returns the length of the file in bytes.
///
/// # Errors
/// A short text for people.
pub(super) async fn read(server: SocketAddrV4, file: &str, from: Ipv4Addr, loss: Loss<'_>) -> Result<u64, String> {
    let socket = UdpSocket::bind((from, 0)).await;
    let socket = socket.map_err(|error| format!("the machine's address {from} cannot be used: {error}"))?;
    let mut transfer = Transfer::new(file);
    // The server's first answer comes from another port, which is the peer's from then on.
    let mut peer = SocketAddr::V4(server);
    let mut packet = vec![0; usize::from(REQUESTED_BLOCK_BYTES) + DATA_HEADER_BYTES];
    let mut silences = 0;
    let mut send = Some(transfer.last.clone());
    loop {
        if let Some(bytes) = send.take().filter(|_| !loss(Lost::Request)) {
            let sent = socket.send_to(&bytes, peer).await;
            sent.map_err(|error| error.to_string())?;
        }
        let received = tokio::time::timeout(ANSWER_TIMEOUT, socket.recv_from(&mut packet)).await;
        let (length, sender) = match received {
            Ok(received) => received.map_err(|error: io::Error| error.to_string())?,
            Err(_) => {
                silences += 1;
                if silences == MAX_SILENCES {
                    return Err(format!("no answer to {MAX_SILENCES} packets"));
                }
                send = Some(transfer.last.clone());
                continue;
            }
        };
        let is_peer = sender.ip() == peer.ip() && (peer.port() == server.port() || sender == peer);
        if !is_peer || loss(Lost::Answer) {
            continue;
        }
        (peer, silences) = (sender, 0);
        match transfer.receive(&packet[..length])? {
            Next::Wait => {}
            Next::Send => send = Some(transfer.last.clone()),
            Next::End => {
                // No answer follows the last acknowledgement.
                let _ = socket.send_to(&transfer.last, peer).await;
                return transfer.length();
            }
        }
    }
}

/// The next step after a received packet.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Wait for another packet.
    Wait,
    /// Send [`Transfer::last`], and wait for another packet.
    Send,
    /// Send [`Transfer::last`]. The file is complete.
    End,
}

/// A transfer, without its socket and its clock.
struct Transfer {
    /// The newest packet to the server. It is sent again when no answer arrives.
    last: Vec<u8>,
    /// Granted size of a block. A shorter block is the last of the file.
    block_bytes: u16,
    /// Granted number of blocks for one acknowledgement.
    window: u16,
    /// The size of the file, if the server announced it.
    announced_bytes: Option<u64>,
    /// Bytes of the file that arrived in order.
    received_bytes: u64,
    /// Number of the last block that arrived in order.
    block: u16,
    /// Blocks that arrived in order since the last acknowledgement.
    unacknowledged: u16,
}

impl Transfer {
    fn new(file: &str) -> Self {
        let mut request = vec![0, READ];
        let (block, window) = (REQUESTED_BLOCK_BYTES.to_string(), REQUESTED_WINDOW.to_string());
        for text in [file, "octet", "tsize", "0", "blksize", &block, "windowsize", &window] {
            request.extend_from_slice(text.as_bytes());
            request.push(0);
        }
        Self {
            last: request,
            block_bytes: DEFAULT_BLOCK_BYTES,
            window: 1,
            announced_bytes: None,
            received_bytes: 0,
            block: 0,
            unacknowledged: 0,
        }
    }

    /// Takes one packet of the server. The error is the server's, as a short text for people.
    fn receive(&mut self, packet: &[u8]) -> Result<Next, String> {
        match packet {
            [0, OPTIONS, options @ ..] if self.received_bytes == 0 => {
                self.adopt_options(options);
                Ok(self.acknowledge())
            }
            [0, DATA, high, low, data @ ..] => Ok(self.receive_block(u16::from_be_bytes([*high, *low]), data)),
            [0, ERROR, _, code, words @ ..] => {
                let words = String::from_utf8_lossy(words);
                Err(format!("error {code}, {}", words.trim_end_matches('\0')))
            }
            _ => Ok(Next::Wait),
        }
    }

    /// Adopts the options that the server grants; the others keep their defaults.
    fn adopt_options(&mut self, options: &[u8]) {
        let mut texts = options.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            match &*name {
                "tsize" => self.announced_bytes = value.parse().ok(),
                "blksize" => self.block_bytes = value.parse().unwrap_or(self.block_bytes),
                "windowsize" => self.window = value.parse().unwrap_or(self.window),
                _ => {}
            }
        }
    }

    fn receive_block(&mut self, number: u16, data: &[u8]) -> Next {
        if number == self.block {
            // The block came twice.
            return Next::Wait;
        }
        if number != self.block.wrapping_add(1) {
            // A block is missing: the server must continue after the last block that arrived in order.
            return self.acknowledge();
        }
        self.block = number;
        self.received_bytes += data.len() as u64;
        self.unacknowledged += 1;
        if data.len() < usize::from(self.block_bytes) {
            self.acknowledge();
            return Next::End;
        }
        if self.unacknowledged < self.window {
            return Next::Wait;
        }
        self.acknowledge()
    }

    /// Prepares the acknowledgement of the last block that arrived in order.
    fn acknowledge(&mut self) -> Next {
        let [high, low] = self.block.to_be_bytes();
        self.last = vec![0, ACKNOWLEDGE, high, low];
        self.unacknowledged = 0;
        Next::Send
    }

    /// The length of the received file; an error if the server announced another size.
    fn length(&self) -> Result<u64, String> {
        let received = self.received_bytes;
        match self.announced_bytes {
            Some(announced) if announced != received => Err(format!("received {received} bytes, expected {announced}")),
            _ => Ok(received),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(number: u16, length: usize) -> Vec<u8> {
        let mut packet = vec![0, DATA];
        packet.extend(number.to_be_bytes());
        packet.resize(4 + length, 7);
        packet
    }

    #[test]
    fn blocks_are_acknowledged_by_the_window_and_a_gap_at_once() {
        let mut transfer = Transfer::new("snponly.efi");
        assert!(
            transfer
                .last
                .starts_with(b"\0\x01snponly.efi\0octet\0tsize\x000\0blksize\x001468\0")
        );
        let granted = b"\0\x06tsize\x00300\0blksize\x00100\0windowsize\x002\0";
        assert_eq!(transfer.receive(granted), Ok(Next::Send));
        assert_eq!(transfer.last, [0, ACKNOWLEDGE, 0, 0]);
        assert_eq!(transfer.receive(&data(1, 100)), Ok(Next::Wait));
        assert_eq!(transfer.receive(&data(3, 100)), Ok(Next::Send), "the second is missing");
        assert_eq!(transfer.last, [0, ACKNOWLEDGE, 0, 1]);
        for (number, next) in [(2, Next::Wait), (2, Next::Wait), (3, Next::Send)] {
            assert_eq!(transfer.receive(&data(number, 100)), Ok(next));
        }
        assert_eq!(transfer.receive(&data(4, 0)), Ok(Next::End));
        assert_eq!(transfer.length(), Ok(300));
        transfer.announced_bytes = Some(301);
        assert!(transfer.length().is_err());
    }

    #[test]
    fn a_server_without_options_sends_plain_blocks_and_errors_are_reported() {
        let mut transfer = Transfer::new("x");
        assert_eq!(transfer.receive(&data(1, 512)), Ok(Next::Send));
        assert_eq!(transfer.receive(&data(2, 511)), Ok(Next::End));
        assert_eq!(transfer.length(), Ok(1023));
        assert_eq!(Transfer::new("x").receive(&[9, 9]), Ok(Next::Wait));
        let refused = Transfer::new("x").receive(b"\0\x05\0\x01no such file\0");
        assert_eq!(refused, Err("error 1, no such file".to_owned()));
    }
}
