//! TFTP packets.

use std::collections::HashSet;
use std::time::Duration;

use crate::counters::Counters;

/// Largest block in an Ethernet frame of 1500 bytes without fragments: 1500 - 20 (IP) - 8 (UDP) - 4 (TFTP).
const LARGEST_BLOCK: u16 = 1468;
const SMALLEST_BLOCK: u16 = 8;
const DEFAULT_BLOCK: u16 = 512;
/// Blocks in flight; more would overrun the small receive buffers of boot ROMs.
const LARGEST_WINDOW: u16 = 32;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
const LONGEST_TIMEOUT_S: u64 = 10;

/// Error codes of RFC 1350 and 2347.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorCode {
    Undefined = 0,
    NotFound = 1,
    AccessViolation = 2,
    IllegalOperation = 4,
}

/// A request for a file, with the granted options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadRequest {
    /// Without leading slashes; `\` is replaced by `/`.
    pub(super) path: String,
    pub(super) block_size: u16,
    pub(super) window: u16,
    pub(super) timeout: Duration,
    /// The granted options in the order of the request, with this server's values; `tsize` has no value yet.
    pub(super) granted: Vec<Granted>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Granted {
    BlockSize(u16),
    TransferSize,
    TimeoutS(u64),
    WindowSize(u16),
}

/// Why a packet on the well-known port is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("not a TFTP request")]
    Malformed,
    #[error("this server is read-only")]
    Write,
    #[error("only octet mode is served")]
    Mode,
    #[error("stray packet")]
    Stray,
}

impl Fault {
    pub(super) fn count(&self, counters: &Counters) {
        match self {
            Self::Malformed | Self::Stray => counters.tftp_malformed_total.increment(),
            Self::Write | Self::Mode => counters.tftp_refused_total.increment(),
        }
    }

    /// Malformed and stray packets get no answer: the source may be forged, or the packet may itself be an error.
    pub(super) fn answer(&self) -> Option<ErrorCode> {
        match self {
            Self::Malformed | Self::Stray => None,
            Self::Write => Some(ErrorCode::AccessViolation),
            Self::Mode => Some(ErrorCode::IllegalOperation),
        }
    }
}

impl ReadRequest {
    pub(super) fn parse(packet: &[u8]) -> Result<Self, Fault> {
        let [0, operation, rest @ ..] = packet else {
            return Err(Fault::Malformed);
        };
        match operation {
            1 => {}
            2 => return Err(Fault::Write),
            3..=6 => return Err(Fault::Stray),
            _ => return Err(Fault::Malformed),
        }
        let rest = rest.strip_suffix(&[0]).ok_or(Fault::Malformed)?;
        let mut strings = rest.split(|b| *b == 0).map(std::str::from_utf8);
        let mut next = || strings.next().transpose().map_err(|_| Fault::Malformed);
        let path = clean_path(next()?.ok_or(Fault::Malformed)?).ok_or(Fault::Malformed)?;
        if !next()?.ok_or(Fault::Malformed)?.eq_ignore_ascii_case("octet") {
            return Err(Fault::Mode);
        }
        let mut request = Self {
            path,
            block_size: DEFAULT_BLOCK,
            window: 1,
            timeout: DEFAULT_TIMEOUT,
            granted: Vec::new(),
        };
        let mut seen = HashSet::new();
        while let (Some(name), Some(value)) = (next()?, next()?) {
            let name = name.to_ascii_lowercase();
            // An option may occur only once (RFC 2347); the first one counts and is the one acknowledged.
            if !seen.contains(&name) {
                request.negotiate(&name, value);
                seen.insert(name);
            }
        }
        Ok(request)
    }

    /// An unknown or refused option is left out of the acknowledgement (RFC 2347).
    fn negotiate(&mut self, name: &str, value: &str) {
        let Ok(value) = value.parse::<u64>() else { return };
        match name {
            "blksize" if value >= SMALLEST_BLOCK.into() => {
                self.block_size = u16::try_from(value).unwrap_or(u16::MAX).min(LARGEST_BLOCK);
                self.granted.push(Granted::BlockSize(self.block_size));
            }
            "tsize" => self.granted.push(Granted::TransferSize),
            "timeout" if (1..=255).contains(&value) => {
                self.timeout = Duration::from_secs(value.min(LONGEST_TIMEOUT_S));
                // The value must not change (RFC 2349), so a longer timeout is acknowledged but not honoured.
                self.granted.push(Granted::TimeoutS(value));
            }
            "windowsize" if value >= 1 => {
                self.window = u16::try_from(value).unwrap_or(u16::MAX).min(LARGEST_WINDOW);
                self.granted.push(Granted::WindowSize(self.window));
            }
            _ => {}
        }
    }

    /// The option acknowledgement, if any option was granted.
    pub(super) fn acknowledgement(&self, size: u64) -> Option<Vec<u8>> {
        if self.granted.is_empty() {
            return None;
        }
        let mut packet = vec![0, 6];
        for granted in &self.granted {
            let (name, value) = match granted {
                Granted::BlockSize(value) => ("blksize", u64::from(*value)),
                Granted::TransferSize => ("tsize", size),
                Granted::TimeoutS(value) => ("timeout", *value),
                Granted::WindowSize(value) => ("windowsize", u64::from(*value)),
            };
            packet.extend_from_slice(name.as_bytes());
            packet.push(0);
            packet.extend_from_slice(value.to_string().as_bytes());
            packet.push(0);
        }
        Some(packet)
    }
}

/// Normalises a path: `\a\\b`, `//a/b` and `a/b` are the same. At most 255 printable characters, no empty or dotted parts.
fn clean_path(path: &str) -> Option<String> {
    if path.len() > 255 || !path.bytes().all(|b| b.is_ascii_graphic()) {
        return None;
    }
    let parts: Vec<_> = path.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    (!parts.is_empty() && parts.iter().all(|part| !part.starts_with('.'))).then(|| parts.join("/"))
}

/// A client's packet during a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientPacket {
    Ack(u16),
    Error(u16),
    Other,
}

pub(super) fn from_client(packet: &[u8]) -> ClientPacket {
    match packet {
        [0, 4, high, low, ..] => ClientPacket::Ack(u16::from_be_bytes([*high, *low])),
        [0, 5, high, low, ..] => ClientPacket::Error(u16::from_be_bytes([*high, *low])),
        _ => ClientPacket::Other,
    }
}

pub(super) fn error_packet(code: ErrorCode, text: &str) -> Vec<u8> {
    let mut packet = vec![0, 5, 0, code as u8];
    packet.extend(text.bytes().filter(u8::is_ascii).take(200));
    packet.push(0);
    packet
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(strings: &[&str]) -> Result<ReadRequest, Fault> {
        let mut packet = vec![0, 1];
        for string in strings {
            packet.extend_from_slice(string.as_bytes());
            packet.push(0);
        }
        ReadRequest::parse(&packet)
    }

    #[test]
    fn options_are_granted_within_limits() {
        let request = parse(&[
            "//snponly.efi",
            "OCTET",
            "tsize",
            "0",
            "blksize",
            "9000",
            "windowsize",
            "64",
            "BLKSIZE",
            "512",
            "x",
            "1",
        ])
        .unwrap();
        assert_eq!(request.path, "snponly.efi");
        assert_eq!((request.block_size, request.window), (1468, 32));
        let expected: &[u8] = b"\x00\x06tsize\x007777\x00blksize\x001468\x00windowsize\x0032\x00";
        assert_eq!(request.acknowledgement(7777).unwrap(), expected);
        let plain = parse(&["a", "octet", "blksize", "7", "timeout", "0", "windowsize", "-1"]).unwrap();
        assert_eq!(plain.acknowledgement(1), None);
        assert_eq!((plain.block_size, plain.window), (512, 1));
    }

    #[test]
    fn only_plain_read_requests_are_accepted() {
        assert_eq!(ReadRequest::parse(b"\0\x02a\0octet\0"), Err(Fault::Write));
        assert_eq!(ReadRequest::parse(b"\0\x04\0\x01"), Err(Fault::Stray));
        assert_eq!(parse(&["a", "netascii"]), Err(Fault::Mode));
        for path in ["", "/", "../etc/passwd", "a/../../b", "a/.hidden", "a b", "é"] {
            assert_eq!(parse(&[path, "octet"]), Err(Fault::Malformed), "{path}");
        }
        assert_eq!(ReadRequest::parse(b"\0\x01a\0octet"), Err(Fault::Malformed));
        assert_eq!(
            parse(&["\\efi\\boot\\grubx64.efi", "octet"]).unwrap().path,
            "efi/boot/grubx64.efi"
        );
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = ReadRequest::parse(&packet);
            let _ = from_client(&packet);
        }

        #[test]
        fn random_requests_stay_within_limits(path in "\\PC{0,40}", name in "(blksize|windowsize|timeout|tsize)", value in "[0-9]{0,25}") {
            if let Ok(request) = parse(&[&path, "octet", &name, &value]) {
                prop_assert!((8..=1468).contains(&request.block_size));
                prop_assert!((1..=32).contains(&request.window));
                prop_assert!(request.path.split('/').all(|part| !part.is_empty() && !part.starts_with('.')));
            }
        }
    }
}
