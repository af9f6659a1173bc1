//! The protocol of the two sides: a header from the client, a byte back, then by the mode in the header.
//!
//! | mode | client | server |
//! |---|---|---|
//! | ping | sends bytes, one by one | sends each back |
//! | sink | sends until its time is up, and closes its side | sends bytes and nanoseconds, both as u64 |
//! | source | reads | sends until its time is up, then [`END`] and its retransmissions as u64, and closes |
//! | rdma | negotiates queue pairs with the server (see [`rdma`](crate::rdma)) | the same |

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// First bytes of a header.
const MAGIC: [u8; 4] = *b"RWT1";
/// Bytes of a header: magic, token, mode, milliseconds.
const HEADER: usize = 4 + 16 + 1 + 4;
/// The server's answer to an accepted header.
const ACCEPTED: u8 = b'+';
/// Follows the last block of a source: without it the server broke off.
pub const END: [u8; 8] = *b"RWT1 end";
/// Bytes of [`END`] and a number.
pub const TAIL: usize = 16;
/// Bytes sent with one call.
pub const BLOCK: usize = 256 * 1024;
/// A silent peer is disconnected after this time.
pub const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// The shared secret of both sides.
pub type Token = [u8; 16];

/// The token in this process's environment.
///
/// # Errors
/// The environment has no valid token.
pub fn token() -> Result<Token, String> {
    let text = std::env::var("RACKWRIGHT_TRAFFIC_TOKEN").unwrap_or_default();
    let wrong = || "RACKWRIGHT_TRAFFIC_TOKEN must be 32 hex digits".to_owned();
    if text.len() != 32 || !text.is_ascii() {
        return Err(wrong());
    }
    let mut token = [0; 16];
    for (at, byte) in token.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
    }
    Ok(token)
}

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Measures latency.
    Ping,
    /// The server reads.
    Sink,
    /// The server sends.
    Source,
    /// Queue pairs carry the bytes.
    Rdma,
}

impl Mode {
    const ALL: [(Self, u8); 4] = [
        (Self::Ping, b'p'),
        (Self::Sink, b'i'),
        (Self::Source, b'o'),
        (Self::Rdma, b'r'),
    ];

    fn byte(self) -> u8 {
        Self::ALL
            .iter()
            .find(|(mode, _)| *mode == self)
            .map_or(0, |(_, byte)| *byte)
    }

    fn of(byte: u8) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, other)| *other == byte)
            .map(|(mode, _)| *mode)
    }
}

/// Sends a header and waits for the server's acceptance.
///
/// # Errors
/// The server hung up, as it does after a wrong token.
pub fn send_request(stream: &mut TcpStream, token: &Token, mode: Mode, duration: Duration) -> io::Result<()> {
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(token);
    header.push(mode.byte());
    header.extend_from_slice(&u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).to_be_bytes());
    stream.write_all(&header)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    match answer[0] {
        ACCEPTED => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "another program answers there",
        )),
    }
}

/// Fills the buffer within one time limit, however small the received pieces are. Leaves a read timeout set.
fn read_within(stream: &mut TcpStream, buffer: &mut [u8], limit: Duration) -> io::Result<()> {
    let (begun, mut filled) = (Instant::now(), 0);
    while filled < buffer.len() {
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(())
}

/// Reads a client's header: the mode and the duration, if the token is right. Leaves a read timeout set.
///
/// # Errors
/// The token is wrong, or the header did not arrive within the limit.
pub fn accept_request(stream: &mut TcpStream, token: &Token, limit: Duration) -> io::Result<(Mode, Duration)> {
    let mut header = [0; HEADER];
    read_within(stream, &mut header, limit)?;
    let refused = || io::Error::new(io::ErrorKind::PermissionDenied, "not a client of this test");
    // Compares every byte, so that the time taken reveals nothing about the token.
    let differs = header[4..20].iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
    if header[..4] != MAGIC || differs != 0 {
        return Err(refused());
    }
    let mode = Mode::of(header[20]).ok_or_else(refused)?;
    let ms = u32::from_be_bytes([header[21], header[22], header[23], header[24]]);
    stream.write_all(&[ACCEPTED])?;
    Ok((mode, Duration::from_millis(ms.into())))
}

/// Sends until the time is up.
///
/// # Errors
/// The other side is gone.
pub fn send(stream: &mut TcpStream, duration: Duration) -> io::Result<()> {
    let block = vec![0x5a; BLOCK];
    let begun = Instant::now();
    while begun.elapsed() < duration {
        stream.write_all(&block)?;
    }
    Ok(())
}

/// The bytes read, and the time from the first byte to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Number of bytes.
    pub bytes: u64,
    /// Time from the first byte to the last.
    pub took: Duration,
}

/// Reads until the other side closes; also returns the last [`TAIL`] bytes.
///
/// # Errors
/// The other side is gone, or silent for [`IO_TIMEOUT`].
pub fn drain(stream: &mut TcpStream) -> io::Result<(Taken, [u8; TAIL])> {
    let mut block = vec![0; BLOCK];
    let mut tail = [0; TAIL];
    let (mut bytes, mut first, mut last) = (0, None, Duration::ZERO);
    let begun = Instant::now();
    loop {
        let read = stream.read(&mut block)?;
        if read == 0 {
            break;
        }
        last = begun.elapsed();
        first.get_or_insert(last);
        bytes += read as u64;
        let new = read.min(TAIL);
        tail.rotate_left(new);
        tail[TAIL - new..].copy_from_slice(&block[read - new..read]);
    }
    let took = last.saturating_sub(first.unwrap_or_default());
    Ok((Taken { bytes, took }, tail))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_slow_header_has_one_time_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let dripping = std::thread::spawn(move || {
            let mut sent = 0;
            while sent < HEADER - 1 && client.write_all(b"R").is_ok() {
                sent += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
            sent
        });
        let error = accept_request(&mut stream, &[0; 16], Duration::from_millis(200)).unwrap_err();
        assert!(
            matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
            "{error:?}"
        );
        drop(stream);
        assert!(dripping.join().unwrap() < HEADER - 1, "it was heard to its end");
    }
}
