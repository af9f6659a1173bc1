//! Compressed requests. Some clients of Connect compress each request by default.

use std::io::Read as _;

use bytes::Bytes;
use flate2::bufread::GzDecoder;
use tonic::Status;

/// The name in headers.
pub(crate) const NAME: &str = "gzip";

/// Why a message cannot be decompressed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It has more bytes than are allowed.
    TooLong,
    Damaged,
}

impl Fault {
    /// The error of the call; `too_long` is the one of a message with too many bytes.
    pub(crate) fn status(self, too_long: Status) -> Status {
        match self {
            Self::TooLong => too_long,
            Self::Damaged => Status::invalid_argument("the request is not complete gzip, and nothing may follow it"),
        }
    }
}

/// Decompresses a message of at most `limit` bytes; memory never holds more, however small the compressed form is. Clients
/// may send an empty message uncompressed.
pub(crate) fn decompressed(compressed: &[u8], limit: usize) -> Result<Bytes, Fault> {
    if compressed.is_empty() {
        return Ok(Bytes::new());
    }
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut decoder = GzDecoder::new(compressed);
    let mut message = Vec::new();
    let read = decoder.by_ref().take(most).read_to_end(&mut message);
    if message.len() > limit {
        return Err(Fault::TooLong);
    }
    match read {
        Ok(_) if decoder.into_inner().is_empty() => Ok(message.into()),
        _ => Err(Fault::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(message: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(message).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_message_is_decompressed_up_to_its_limit() {
        assert_eq!(decompressed(&compressed(b"abc"), 3), Ok(Bytes::from_static(b"abc")));
        assert_eq!(decompressed(&compressed(b"abcd"), 3), Err(Fault::TooLong));
        assert_eq!(decompressed(&compressed(b""), 0), Ok(Bytes::new()));
        assert_eq!(decompressed(b"", 0), Ok(Bytes::new()));
        // A hundred megabytes in a hundred kilobytes.
        assert_eq!(
            decompressed(&compressed(&vec![0; 100 << 20]), 4096),
            Err(Fault::TooLong)
        );
    }

    #[test]
    fn what_is_not_one_complete_gzip_is_refused() {
        let whole = compressed(b"a message");
        for length in 1..whole.len() {
            assert_eq!(
                decompressed(&whole[..length], 100),
                Err(Fault::Damaged),
                "{length} bytes"
            );
        }
        let mut damaged = whole.clone();
        let checksum = damaged.len() - 6;
        damaged[checksum] ^= 1;
        assert_eq!(decompressed(&damaged, 100), Err(Fault::Damaged));
        assert_eq!(decompressed(&[&whole[..], b"more"].concat(), 100), Err(Fault::Damaged));
        assert_eq!(decompressed(b"{}", 100), Err(Fault::Damaged));
    }
}
