//! Ethernet hardware addresses.

use std::fmt;
use std::str::FromStr;

/// A 48-bit Ethernet address. Formatted as six lower-case hex pairs with colons; parsing also accepts `-`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

/// The text is not a MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a MAC address: expected six hex pairs such as 52:54:00:77:00:01")]
pub struct MacError;

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let mut bytes = [0; 6];
        let mut pairs = text.split([':', '-']);
        for byte in &mut bytes {
            let pair = pairs.next().ok_or(MacError)?;
            if pair.len() != 2 || !pair.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(MacError);
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| MacError)?;
        }
        if pairs.next().is_some() {
            return Err(MacError);
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_nonsense_is_refused() {
        let mac: Mac = "52-54-00-AB-00-01".parse().unwrap();
        assert_eq!(mac.to_string(), "52:54:00:ab:00:01");
        for bad in [
            "",
            "52:54:00:77:00",
            "52:54:00:77:00:01:02",
            "52:54:00:77:00:+1",
            "5254.0077.0001",
            "é2:54:00:77:00:01",
        ] {
            assert_eq!(bad.parse::<Mac>(), Err(MacError), "{bad}");
        }
    }
}
