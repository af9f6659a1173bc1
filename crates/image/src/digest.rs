//! Digests as names. Each kind has its own type, so that the compiler keeps them apart.

use std::fmt;
use std::str::FromStr;

/// The text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct DigestParseError {
    text: String,
    expected: &'static str,
}

fn parse_hex(text: &str, whole: &str, expected: &'static str) -> Result<[u8; 32], DigestParseError> {
    let fail = || DigestParseError {
        text: whole.chars().take(80).collect(),
        expected,
    };
    if text.len() != 64 || text.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(fail());
    }
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).map_err(|_| fail())?;
    Ok(bytes)
}

/// BLAKE3 of a chunk's uncompressed bytes; the name of the chunk. Formatted as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkDigest(pub [u8; 32]);

impl ChunkDigest {
    /// Returns the digest of `data`.
    pub fn of(data: &[u8]) -> Self {
        Self(*blake3::hash(data).as_bytes())
    }
}

impl fmt::Display for ChunkDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ChunkDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChunkDigest({self})")
    }
}

impl FromStr for ChunkDigest {
    type Err = DigestParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_hex(text, text, "a chunk digest (64 lower-case hex digits)").map(Self)
    }
}

/// BLAKE3 of an index's bytes; the name of an image version. Formatted as `b3-` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageDigest(pub [u8; 32]);

impl ImageDigest {
    /// Returns the digest of an encoded index.
    pub fn of(index: &[u8]) -> Self {
        Self(*blake3::hash(index).as_bytes())
    }
}

impl fmt::Display for ImageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b3-{}", hex::encode(self.0))
    }
}

impl fmt::Debug for ImageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageDigest({self})")
    }
}

impl FromStr for ImageDigest {
    type Err = DigestParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "an image digest (\"b3-\" and 64 lower-case hex digits)";
        let digits = text.strip_prefix("b3-").unwrap_or("");
        parse_hex(digits, text, EXPECTED).map(Self)
    }
}

/// SHA-256 of an imported file. Formatted as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256(pub [u8; 32]);

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256({self})")
    }
}

impl FromStr for Sha256 {
    type Err = DigestParseError;

    /// Accepts upper-case digits too, because some tools print them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_hex(&text.to_ascii_lowercase(), text, "a SHA-256 digest (64 hex digits)").map(Self)
    }
}

/// Whether all bytes of `data` are zero. Stops at the first KiB with another byte.
pub fn is_zero(data: &[u8]) -> bool {
    data.chunks(1024)
        .all(|part| part.iter().fold(0u8, |seen, byte| seen | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_have_one_spelling() {
        let chunk = ChunkDigest::of(b"abc");
        assert_eq!(chunk.to_string().parse::<ChunkDigest>(), Ok(chunk));
        assert!(chunk.to_string().to_uppercase().parse::<ChunkDigest>().is_err());
        let image = ImageDigest::of(b"abc");
        assert_eq!(image.to_string().parse::<ImageDigest>(), Ok(image));
        for wrong in [
            "",
            "b3-",
            "b3-00",
            "../etc/passwd",
            &image.to_string()[3..],
            &format!("{image}0"),
        ] {
            assert!(wrong.parse::<ImageDigest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_set_bit_anywhere_is_not_zero() {
        let mut data = vec![0u8; 5000];
        assert!(is_zero(&data));
        for at in [0, 1023, 1024, 4999] {
            data[at] = 0x80;
            assert!(!is_zero(&data));
            data[at] = 0;
        }
    }
}
