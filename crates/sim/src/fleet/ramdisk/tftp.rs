//! TFTP as firmware uses it: reads one file, with options for its size, larger blocks and a window of blocks (RFC 1350,
//! 2347 to 2349, 7440). The data is discarded.

use crate::fleet::faults::Lost;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;
use tokio::net::UdpSocket;

/// Firmware's time-out for a packet, and its number of attempts.
const WAIT: Duration = Duration::from_secs(1);
const TRIES: u32 = 6;
/// UEFI firmware's requests: blocks that fill an Ethernet frame, in a window.
const BLOCK_BYTES: u16 = 1468;
const WINDOW: u16 = 16;
/// Block size without options (RFC 1350).
const PLAIN_BLOCK_BYTES: u16 = 512;

/// Operation codes.
const READ: u8 = 1;
const DATA: u8 = 3;
const ACKNOWLEDGE: u8 = 4;
const ERROR: u8 = 5;
const OPTIONS: u8 = 6;

/// Called for each packet of this direction: whether it is lost.
pub(super) type Loss<'a> = &'a (dyn Fn(Lost) -> bool + Sync);

/// Reads a file from the machine's own address; returns its length in bytes.
///
/// # Errors
/// A short text for people.
pub(super) async fn read(server: SocketAddrV4, file: &str, from: Ipv4Addr, loss: Loss<'_>) -> Result<u64, String> {
    let socket = UdpSocket::bind((from, 0)).await;
    let socket = socket.map_err(|error| format!("the machine's address {from} cannot be used: {error}"))?;
    let mut transfer = Transfer::new(file);
    // The first answer comes from the transfer's own port.
    let mut peer = SocketAddr::V4(server);
    let mut packet = vec![0; usize::from(BLOCK_BYTES) + 4];
    let mut silences = 0;
    let mut send = Some(transfer.last.clone());
    loop {
        if let Some(bytes) = send.take().filter(|_| !loss(Lost::Request)) {
            let sent = socket.send_to(&bytes, peer).await;
            sent.map_err(|error| error.to_string())?;
        }
        let received = tokio::time::timeout(WAIT, socket.recv_from(&mut packet)).await;
        let (length, sender) = match received {
            Ok(received) => received.map_err(|error: io::Error| error.to_string())?,
            Err(_) if silences + 1 == TRIES => return Err(format!("no answer to {TRIES} packets")),
            Err(_) => {
                silences += 1;
                send = Some(transfer.last.clone());
                continue;
            }
        };
        let is_peer = sender.ip() == peer.ip() && (peer.port() == server.port() || sender == peer);
        if !is_peer || loss(Lost::Answer) {
            continue;
        }
        (peer, silences) = (sender, 0);
        match transfer.take(&packet[..length])? {
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

/// The next step after a packet.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait,
    Send,
    End,
}

/// A transfer, without its socket and its clock.
struct Transfer {
    /// The last packet sent, for repetitions.
    last: Vec<u8>,
    block_bytes: u16,
    window: u16,
    /// The size that the server announced.
    size: Option<u64>,
    received: u64,
    /// The last block received in order, and the number of blocks since the last acknowledgement.
    block: u16,
    unacknowledged: u16,
}

impl Transfer {
    fn new(file: &str) -> Self {
        let mut request = vec![0, READ];
        let (block, window) = (BLOCK_BYTES.to_string(), WINDOW.to_string());
        for text in [file, "octet", "tsize", "0", "blksize", &block, "windowsize", &window] {
            request.extend_from_slice(text.as_bytes());
            request.push(0);
        }
        Self {
            last: request,
            block_bytes: PLAIN_BLOCK_BYTES,
            window: 1,
            size: None,
            received: 0,
            block: 0,
            unacknowledged: 0,
        }
    }

    fn take(&mut self, packet: &[u8]) -> Result<Next, String> {
        match packet {
            [0, OPTIONS, options @ ..] if self.received == 0 => {
                self.agree(options);
                Ok(self.acknowledge())
            }
            [0, DATA, high, low, data @ ..] => Ok(self.data(u16::from_be_bytes([*high, *low]), data)),
            [0, ERROR, _, code, words @ ..] => {
                let words = String::from_utf8_lossy(words);
                Err(format!("error {code}, {}", words.trim_end_matches('\0')))
            }
            _ => Ok(Next::Wait),
        }
    }

    /// Adopts the options that the server grants; unnamed options keep their defaults.
    fn agree(&mut self, options: &[u8]) {
        let mut texts = options.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            match &*name {
                "tsize" => self.size = value.parse().ok(),
                "blksize" => self.block_bytes = value.parse().unwrap_or(self.block_bytes),
                "windowsize" => self.window = value.parse().unwrap_or(self.window),
                _ => {}
            }
        }
    }

    fn data(&mut self, number: u16, data: &[u8]) -> Next {
        if number != self.block.wrapping_add(1) {
            // A block is missing or came twice: the server must continue after the last block received in order.
            return if number == self.block {
                Next::Wait
            } else {
                self.acknowledge()
            };
        }
        self.block = number;
        self.received += data.len() as u64;
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

    fn acknowledge(&mut self) -> Next {
        let [high, low] = self.block.to_be_bytes();
        self.last = vec![0, ACKNOWLEDGE, high, low];
        self.unacknowledged = 0;
        Next::Send
    }

    fn length(&self) -> Result<u64, String> {
        match self.size {
            Some(size) if size != self.received => Err(format!("received {} bytes, expected {size}", self.received)),
            _ => Ok(self.received),
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
        assert_eq!(transfer.take(granted), Ok(Next::Send));
        assert_eq!(transfer.last, [0, ACKNOWLEDGE, 0, 0]);
        assert_eq!(transfer.take(&data(1, 100)), Ok(Next::Wait));
        assert_eq!(transfer.take(&data(3, 100)), Ok(Next::Send), "the second is missing");
        assert_eq!(transfer.last, [0, ACKNOWLEDGE, 0, 1]);
        for (number, next) in [(2, Next::Wait), (2, Next::Wait), (3, Next::Send)] {
            assert_eq!(transfer.take(&data(number, 100)), Ok(next));
        }
        assert_eq!(transfer.take(&data(4, 0)), Ok(Next::End));
        assert_eq!(transfer.length(), Ok(300));
        transfer.size = Some(301);
        assert!(transfer.length().is_err());
    }

    #[test]
    fn a_server_without_options_sends_plain_blocks_and_errors_are_told() {
        let mut transfer = Transfer::new("x");
        assert_eq!(transfer.take(&data(1, 512)), Ok(Next::Send));
        assert_eq!(transfer.take(&data(2, 511)), Ok(Next::End));
        assert_eq!(transfer.length(), Ok(1023));
        assert_eq!(Transfer::new("x").take(&[9, 9]), Ok(Next::Wait));
        let refused = Transfer::new("x").take(b"\0\x05\0\x01no such file\0");
        assert_eq!(refused, Err("error 1, no such file".to_owned()));
    }
}
