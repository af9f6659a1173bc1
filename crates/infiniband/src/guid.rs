//! The 64-bit identifiers of InfiniBand devices and ports.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The EUI-64 of a device, a port or a system. Zero means "none" on the wire, so zero is invalid here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Guid(NonZeroU64);

impl Guid {
    /// The GUID with this number. `None` for zero.
    pub fn new(raw: u64) -> Option<Self> {
        NonZeroU64::new(raw).map(Self)
    }

    /// The number of the GUID. Never zero.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}

/// The text is not a GUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a GUID: write 1 to 16 hexadecimal digits, not all zero, with or without 0x in front")]
pub struct BadGuid(String);

impl FromStr for Guid {
    type Err = BadGuid;

    /// Parses `0xa088c20300000000`, `a088c20300000000` and `a088:c203:0000:0000`.
    fn from_str(text: &str) -> Result<Self, BadGuid> {
        let bad = || BadGuid(text.chars().take(40).collect());
        let digits = text
            .strip_prefix("0x")
            .or_else(|| text.strip_prefix("0X"))
            .unwrap_or(text);
        let grouped =
            digits.split(':').all(|group| group.len() == 4) || digits.split(':').all(|group| group.len() == 2);
        if digits.contains(':') && !grouped {
            return Err(bad());
        }
        let digits: String = digits.chars().filter(|c| *c != ':').take(17).collect();
        if digits.is_empty() || digits.len() > 16 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad());
        }
        u64::from_str_radix(&digits, 16)
            .ok()
            .and_then(Self::new)
            .ok_or_else(bad)
    }
}

impl TryFrom<String> for Guid {
    type Error = BadGuid;

    fn try_from(text: String) -> Result<Self, BadGuid> {
        text.parse()
    }
}

impl From<Guid> for String {
    fn from(guid: Guid) -> Self {
        guid.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_are_read_in_the_forms_that_tools_print() {
        let guid = Guid::new(0xa088_c203_0000_0001);
        for text in [
            "0xa088c20300000001",
            "A088C20300000001",
            "a088:c203:0000:0001",
            "a0:88:c2:03:00:00:00:01",
        ] {
            assert_eq!(text.parse().ok(), guid, "{text}");
        }
        assert_eq!("0x1".parse::<Guid>().map(Guid::get), Ok(1));
        for text in [
            "",
            "0x",
            "0",
            "0x0000",
            "12345678901234567",
            "0x+1",
            "xyz",
            "a:b",
            "1::2",
            "0x0x1",
        ] {
            assert!(text.parse::<Guid>().is_err(), "{text}");
        }
    }
}
