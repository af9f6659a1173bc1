//! The firmware's registers, and names for the events measured into them.
//!
//! | PCR | what |
//! |---|---|
//! | 0 | the firmware's code |
//! | 1 | the firmware's configuration: often boot order, serial numbers and times of the one machine |
//! | 2 | the code of option ROMs |
//! | 3 | the configuration of option ROMs |
//! | 7 | the Secure Boot policy: SecureBoot, PK, KEK, db, dbx, and the certificates that the boot programs were verified by |
//!
//! Source: TCG "PC Client Platform Firmware Profile Specification", the sections on PCR usage and on event types.

use crate::log::Event;
use crate::sha256;

/// The registers of the firmware itself, without those of the programs it starts.
pub const REGISTERS: [u8; 5] = [0, 1, 2, 3, 7];

/// Maximum length of a text from an event, in characters.
const TEXT_MAX: usize = 64;
/// GUID, length of the name in UTF-16 units, and length of the content.
const VARIABLE_HEAD: usize = 16 + 8 + 8;

/// The purpose of a register.
#[must_use]
pub fn purpose(pcr: u8) -> &'static str {
    match pcr {
        0 => "firmware code",
        1 => "firmware configuration",
        2 => "option ROM code",
        3 => "option ROM configuration",
        7 => "Secure Boot policy",
        _ => "not a firmware register",
    }
}

/// A name for an event. Only the digest of an event is proven. If the text is not the measured data, the name reports
/// that.
#[must_use]
pub fn name(event: &Event<'_>) -> String {
    let proof = if sha256(&[event.data]) == event.digest {
        ""
    } else {
        " (not proven)"
    };
    match event.kind {
        0x01 => format!("code {}{proof}", text(event.data)),
        0x04 => "separator".to_owned(),
        0x05 | 0x8000_0007 => format!("action {}{proof}", text(event.data)),
        0x07 => "CRTM contents".to_owned(),
        0x08 => format!("firmware version {}{proof}", text(event.data)),
        0x0a => "configuration flags".to_owned(),
        0x8000_0001 => format!("variable {}{proof}", variable(event.data)),
        0x8000_0002 | 0x8000_000c => format!("boot variable {}{proof}", variable(event.data)),
        0x8000_0003..=0x8000_0005 => "EFI program or driver".to_owned(),
        0x8000_0008 | 0x8000_000a => "firmware volume".to_owned(),
        0x8000_0009 | 0x8000_000b => "table".to_owned(),
        0x8000_00e0 => format!("certificate of {}{proof}", variable(event.data)),
        0x8000_00e1 | 0x8000_00e2 => "device firmware".to_owned(),
        kind => format!("measurement of kind {kind:#x}"),
    }
}

/// Quotes ASCII or UTF-16 text.
fn text(data: &[u8]) -> String {
    let is_wide = data.len() >= 2 && data.len().is_multiple_of(2) && data[1] == 0;
    if is_wide {
        wide(data)
    } else {
        quoted(data.iter().map(|byte| char::from(*byte)))
    }
}

fn wide(data: &[u8]) -> String {
    let units = data.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    quoted(char::decode_utf16(units).map(|c| c.unwrap_or('?')))
}

fn quoted(text: impl Iterator<Item = char>) -> String {
    let until_zero = text.take_while(|c| *c != '\0').take(TEXT_MAX);
    let plain = until_zero.map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' });
    format!("\"{}\"", plain.collect::<String>().replace('"', "'"))
}

/// The variable's name in a UEFI_VARIABLE_DATA.
fn variable(data: &[u8]) -> String {
    let units = data.get(16..24).and_then(|length| length.try_into().ok());
    let units = units.map_or(0, u64::from_le_bytes);
    let bytes = usize::try_from(units).ok().and_then(|units| units.checked_mul(2));
    let end = bytes.and_then(|bytes| bytes.checked_add(VARIABLE_HEAD));
    match end.and_then(|end| data.get(VARIABLE_HEAD..end)) {
        Some(name) if !name.is_empty() => wide(name),
        _ => "without a name".to_owned(),
    }
}

/// A UEFI_VARIABLE_DATA with a GUID of zeros, for simulated machines.
#[must_use]
pub fn write_variable(name: &str, content: &[u8]) -> Vec<u8> {
    let units: Vec<u16> = name.encode_utf16().collect();
    let mut data = vec![0; 16];
    data.extend((units.len() as u64).to_le_bytes());
    data.extend((content.len() as u64).to_le_bytes());
    data.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    data.extend_from_slice(content);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u32, data: &[u8]) -> Event<'_> {
        Event {
            pcr: 7,
            kind,
            digest: sha256(&[data]),
            data,
        }
    }

    #[test]
    fn an_event_is_named_by_what_was_measured() {
        let db = write_variable("db", b"a certificate");
        assert_eq!(name(&event(0x8000_0001, &db)), "variable \"db\"");
        assert_eq!(name(&event(0x8000_00e0, &db)), "certificate of \"db\"");
        assert_eq!(name(&event(0x08, b"U59\0")), "firmware version \"U59\"");
        assert_eq!(name(&event(0x08, b"1\0.\x007\0\0\0")), "firmware version \"1.7\"");
        assert_eq!(name(&event(0xdead, b"")), "measurement of kind 0xdead");
        let false_event = Event {
            digest: [7; 32],
            ..event(0x08, b"2.0")
        };
        assert_eq!(name(&false_event), "firmware version \"2.0\" (not proven)");
    }

    #[test]
    fn hostile_events_have_short_plain_names() {
        let mut long = write_variable("db", b"");
        long[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        for data in [&long[..], b"", &[0xff; 4096], b"\x1b[31m\"\n", &long[..20]] {
            for kind in [0x01, 0x05, 0x08, 0x8000_0001, 0x8000_0002, 0x8000_00e0, u32::MAX] {
                let name = name(&event(kind, data));
                assert!(name.len() < 128 && !name.chars().any(char::is_control), "{name:?}");
            }
        }
    }
}
