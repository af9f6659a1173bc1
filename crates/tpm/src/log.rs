//! The firmware's event log in the TCG's crypto-agile format: the extensions of each PCR. The log is trusted only if
//! its replay gives the quoted values.

use crate::pcr::{COUNT, Values};
use crate::sha256;

/// Maximum length of a log, in bytes. A longer log is refused.
pub const LOG_MAX: usize = 1 << 20;
/// Maximum number of events. A log with more is refused.
const EVENTS_MAX: usize = 16_384;
const ALGORITHMS_MAX: usize = 8;
const DIGEST_MAX: usize = 64;
const SHA1: usize = 20;
const SHA256: u16 = 0x000b;
const EV_NO_ACTION: u32 = 3;
const SIGNATURE: &[u8] = b"Spec ID Event03\0";
const LOCALITY: &[u8] = b"StartupLocality\0";

/// One measurement: an event that extends a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The extended register.
    pub pcr: u8,
    /// The event type, as numbered by the specification.
    pub kind: u32,
    /// The SHA-256 digest that extends the register.
    pub digest: [u8; 32],
    /// The measured data or a description of it.
    pub data: &'a [u8],
}

/// Why a log cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The log is too large.
    #[error("the event log is larger than {LOG_MAX} bytes or has more than {EVENTS_MAX} events")]
    TooLarge,
    /// The log is malformed.
    #[error("the event log is malformed at byte {0}")]
    Malformed(usize),
    /// The log has digests of other banks only.
    #[error("the event log has no SHA-256 digests")]
    NoSha256,
}

/// A parsed log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log<'a> {
    /// The measurements, in order.
    pub events: Vec<Event<'a>>,
    /// The locality that started the TPM. The initial value of PCR 0 ends with this byte.
    locality: u8,
}

/// A little-endian reader. All other TPM structures are big-endian.
struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], LogError> {
        let end = self.at.checked_add(count).ok_or(LogError::Malformed(self.at))?;
        let bytes = self.all.get(self.at..end).ok_or(LogError::Malformed(self.at))?;
        self.at = end;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16, LogError> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, LogError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn sized(&mut self) -> Result<&'a [u8], LogError> {
        let at = self.at;
        let length = usize::try_from(self.u32()?).map_err(|_| LogError::Malformed(at))?;
        self.take(length)
    }
}

/// Reads the banks of a log: the algorithm and the length of a digest in bytes.
fn banks(bytes: &mut Bytes<'_>) -> Result<Vec<(u16, usize)>, LogError> {
    let (pcr, kind) = (bytes.u32()?, bytes.u32()?);
    bytes.take(SHA1)?;
    let at = bytes.at;
    let mut spec = Bytes {
        all: bytes.sized()?,
        at: 0,
    };
    let malformed = |_| LogError::Malformed(at);
    if pcr != 0 || kind != EV_NO_ACTION || spec.take(SIGNATURE.len()) != Ok(SIGNATURE) {
        return Err(LogError::Malformed(at));
    }
    // Skips the platform class, the versions and the size of an integer.
    spec.take(8).map_err(malformed)?;
    let count = spec.u32().map_err(malformed)? as usize;
    if count == 0 || count > ALGORITHMS_MAX {
        return Err(LogError::Malformed(at));
    }
    let mut banks = Vec::with_capacity(count);
    for _ in 0..count {
        let (algorithm, size) = (spec.u16().map_err(malformed)?, spec.u16().map_err(malformed)?);
        if usize::from(size) > DIGEST_MAX || (algorithm == SHA256 && size != 32) {
            return Err(LogError::Malformed(at));
        }
        banks.push((algorithm, usize::from(size)));
    }
    if !banks.iter().any(|(algorithm, _)| *algorithm == SHA256) {
        return Err(LogError::NoSha256);
    }
    Ok(banks)
}

impl<'a> Log<'a> {
    /// Reads a log in the crypto-agile format.
    ///
    /// # Errors
    /// The bytes are not a log with SHA-256 digests, or they are too large.
    pub fn parse(log: &'a [u8]) -> Result<Self, LogError> {
        if log.len() > LOG_MAX {
            return Err(LogError::TooLarge);
        }
        let mut bytes = Bytes { all: log, at: 0 };
        let banks = banks(&mut bytes)?;
        let mut parsed = Self {
            events: Vec::new(),
            locality: 0,
        };
        while bytes.at < log.len() {
            let at = bytes.at;
            if parsed.events.len() >= EVENTS_MAX {
                return Err(LogError::TooLarge);
            }
            let event = event(&mut bytes, &banks)?;
            if event.kind != EV_NO_ACTION {
                parsed.events.push(event);
            } else if let Some([locality]) = event.data.strip_prefix(LOCALITY) {
                // This event gives the initial value of PCR 0, so it must come before all extensions.
                if !parsed.events.is_empty() || *locality > 4 {
                    return Err(LogError::Malformed(at));
                }
                parsed.locality = *locality;
            }
        }
        Ok(parsed)
    }

    /// The registers' values after these events. Registers without an event are omitted.
    #[must_use]
    pub fn replay(&self) -> Values {
        let mut values = Values::new();
        for event in &self.events {
            let mut first = [0; 32];
            if event.pcr == 0 {
                first[31] = self.locality;
            }
            let value = values.entry(event.pcr).or_insert(first);
            *value = sha256(&[&*value, &event.digest]);
        }
        values
    }

    /// The first of the registers 0 to 7 with a value other than in the replay.
    #[must_use]
    pub fn differs(&self, values: &Values) -> Option<u8> {
        let replayed = self.replay();
        let firmware = values.iter().filter(|(pcr, _)| **pcr < 8);
        let differs = |(pcr, value): &(&u8, &[u8; 32])| {
            let replayed = replayed.get(pcr).copied();
            replayed.unwrap_or_default() != **value
        };
        firmware.filter(differs).map(|(pcr, _)| *pcr).next()
    }
}

fn event<'a>(bytes: &mut Bytes<'a>, banks: &[(u16, usize)]) -> Result<Event<'a>, LogError> {
    let at = bytes.at;
    let malformed = LogError::Malformed(at);
    let pcr = u8::try_from(bytes.u32()?).map_err(|_| malformed)?;
    let kind = bytes.u32()?;
    let count = bytes.u32()? as usize;
    if count > banks.len() || pcr >= COUNT {
        return Err(malformed);
    }
    let mut digest = None;
    for _ in 0..count {
        let algorithm = bytes.u16()?;
        let (_, size) = banks.iter().find(|(of, _)| *of == algorithm).ok_or(malformed)?;
        let value = bytes.take(*size)?;
        if algorithm == SHA256 {
            digest = value.try_into().ok();
        }
    }
    let data = bytes.sized()?;
    let digest = match digest {
        Some(digest) => digest,
        None if kind == EV_NO_ACTION => [0; 32],
        None => return Err(malformed),
    };
    Ok(Event {
        pcr,
        kind,
        digest,
        data,
    })
}

/// Writes a log of the SHA-256 bank, for simulated machines.
#[must_use]
pub fn write(events: &[Event<'_>]) -> Vec<u8> {
    let mut spec = SIGNATURE.to_vec();
    spec.extend([0, 0, 0, 0, 0, 2, 0, 2, 1, 0, 0, 0]);
    spec.extend(SHA256.to_le_bytes());
    spec.extend([32, 0, 0]);
    let mut log = Vec::new();
    let put = |log: &mut Vec<u8>, number: u32| log.extend(number.to_le_bytes());
    let sized = |log: &mut Vec<u8>, data: &[u8]| {
        log.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
        log.extend_from_slice(data);
    };
    put(&mut log, 0);
    put(&mut log, EV_NO_ACTION);
    log.extend([0; SHA1]);
    sized(&mut log, &spec);
    for event in events {
        put(&mut log, event.pcr.into());
        put(&mut log, event.kind);
        put(&mut log, 1);
        log.extend(SHA256.to_le_bytes());
        log.extend(event.digest);
        sized(&mut log, event.data);
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(pcr: u8, data: &[u8]) -> Event<'_> {
        Event {
            pcr,
            kind: 0x0d,
            digest: sha256(&[data]),
            data,
        }
    }

    #[test]
    fn a_log_replays_to_the_values_that_it_was_extended_to() {
        let events = [event(0, b"firmware"), event(4, b"loader"), event(4, b"kernel")];
        let bytes = write(&events);
        let log = Log::parse(&bytes).unwrap();
        assert_eq!(log.events, events);
        let extend = |value: [u8; 32], data: &[u8]| sha256(&[&value, &sha256(&[data])]);
        let mut values = Values::from([
            (0, extend([0; 32], b"firmware")),
            (2, [0; 32]),
            (4, extend(extend([0; 32], b"loader"), b"kernel")),
        ]);
        assert_eq!(log.differs(&values), None);
        values.insert(4, [1; 32]);
        assert_eq!(log.differs(&values), Some(4));
    }

    #[test]
    fn the_locality_is_the_first_value_of_pcr_0() {
        let mut locality = LOCALITY.to_vec();
        locality.push(3);
        let start = Event {
            pcr: 0,
            kind: EV_NO_ACTION,
            digest: [0; 32],
            data: &locality,
        };
        let bytes = write(&[start, event(0, b"x")]);
        let mut first = [0; 32];
        first[31] = 3;
        let value = sha256(&[&first, &sha256(&[b"x"])]);
        assert_eq!(Log::parse(&bytes).unwrap().replay(), Values::from([(0, value)]));
        let late = write(&[event(0, b"x"), start]);
        assert!(Log::parse(&late).is_err());
    }
}
