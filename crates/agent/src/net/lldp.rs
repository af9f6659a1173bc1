//! LLDP: the announcements of a switch on each of its ports (IEEE 802.1AB-2016).
//!
//! A frame is a list of elements: seven bits of type, nine bits of length, and a value (clause 8.4). Chassis ID, Port ID
//! and Time To Live come first, in this order and once each (clause 8.2). Frames are hostile input: any host on the wire
//! can send them.

use std::fmt::Write as _;

/// Stored octets of a text.
pub const TEXT_MAX: usize = 128;

const END: u8 = 0;
const CHASSIS_ID: u8 = 1;
const PORT_ID: u8 = 2;
const TIME_TO_LIVE: u8 = 3;
const PORT_DESCRIPTION: u8 = 4;
const SYSTEM_NAME: u8 = 5;
/// Subtypes with a MAC address as value (tables 8-2 and 8-3).
const CHASSIS_MAC: u8 = 4;
const PORT_MAC: u8 = 3;

/// Content of a frame. Texts are printable ASCII; other characters become `?`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Announcement {
    /// A name, or a MAC address with colons.
    pub chassis_id: String,
    /// A name, or a MAC address with colons.
    pub port_id: String,
    /// Validity in seconds. 0: the sender stops.
    pub ttl_s: u16,
    /// Empty if not present.
    pub port_description: String,
    /// Empty if not present.
    pub system_name: String,
}

/// Returns an element's type and value, and the rest. `None` if the frame ends within the element.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (header, rest) = bytes.split_first_chunk()?;
    let header = u16::from_be_bytes(*header);
    let (value, rest) = rest.split_at_checked(usize::from(header & 0x1ff))?;
    Some((u8::try_from(header >> 9).ok()?, value, rest))
}

/// Parses the data after the Ethernet header. `None` if it is not a valid LLDP frame.
#[must_use]
pub fn parse(frame: &[u8]) -> Option<Announcement> {
    let (CHASSIS_ID, chassis, rest) = element(frame)? else {
        return None;
    };
    let (PORT_ID, port, rest) = element(rest)? else {
        return None;
    };
    let (TIME_TO_LIVE, ttl, mut rest) = element(rest)? else {
        return None;
    };
    let mut announcement = Announcement {
        chassis_id: id(chassis, CHASSIS_MAC)?,
        port_id: id(port, PORT_MAC)?,
        ttl_s: u16::from_be_bytes(*ttl.first_chunk()?),
        ..Announcement::default()
    };
    // A padded frame and a frame without an end element are valid too.
    while !rest.is_empty() {
        let (kind, value, next) = element(rest)?;
        match kind {
            END => break,
            CHASSIS_ID | PORT_ID | TIME_TO_LIVE => return None,
            PORT_DESCRIPTION if announcement.port_description.is_empty() => announcement.port_description = text(value),
            SYSTEM_NAME if announcement.system_name.is_empty() => announcement.system_name = text(value),
            _ => {}
        }
        rest = next;
    }
    Some(announcement)
}

/// Parses a Chassis ID or Port ID: a subtype, then 1 to 255 octets.
fn id(value: &[u8], mac: u8) -> Option<String> {
    let (subtype, value) = value.split_first()?;
    if value.is_empty() {
        return None;
    }
    if *subtype != mac {
        return Some(text(value));
    }
    let mut octets = String::new();
    for (place, octet) in value.iter().take(6).enumerate() {
        let colon = if place > 0 { ":" } else { "" };
        write!(octets, "{colon}{octet:02x}").ok()?;
    }
    Some(octets)
}

fn text(value: &[u8]) -> String {
    let printable = |octet: &u8| match octet {
        b' '..=b'~' => char::from(*octet),
        _ => '?',
    };
    let kept: String = value.iter().take(TEXT_MAX).map(printable).collect();
    kept.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of Open vSwitch 3.1, captured from the wire.
    const OPEN_VSWITCH: &str = "0207046626d9b1f1cc0403057031060200780a0a6574682d6c6561662d310c08612d7377697463680e0400040004fe3200040d0b\
                                0000000000000000000000000000000000000000000000000000000000000000380000006626d9b1f1cc000000000000";

    /// Type and value of an element.
    type Element<'a> = (u8, &'a [u8]);

    fn frame(elements: &[Element<'_>]) -> Vec<u8> {
        let mut frame = Vec::new();
        for (kind, value) in elements {
            frame.extend((u16::from(*kind) << 9 | u16::try_from(value.len()).unwrap()).to_be_bytes());
            frame.extend(*value);
        }
        frame
    }

    #[test]
    fn a_frame_of_a_real_switch_is_read() {
        let announcement = Announcement {
            chassis_id: "66:26:d9:b1:f1:cc".into(),
            port_id: "p1".into(),
            ttl_s: 120,
            port_description: String::new(),
            system_name: "eth-leaf-1".into(),
        };
        let bytes = hex::decode(OPEN_VSWITCH).unwrap();
        assert_eq!(parse(&bytes), Some(announcement));
        for length in 0..18 {
            assert_eq!(parse(&bytes[..length]), None, "cut at {length}");
        }
    }

    #[test]
    fn texts_are_printable_and_short() {
        let long = [b'x'; 255];
        let elements: [(u8, &[u8]); 6] = [
            (1, b"\x07leaf\x1b[31m"),
            (2, b"\x05swp1"),
            (3, &[0, 9, 7]),
            (4, b" \xe2\x80\xaeeno1\n "),
            (5, &long),
            (5, b"another"),
        ];
        let announcement = parse(&frame(&elements)).unwrap();
        assert_eq!(announcement.chassis_id, "leaf?[31m");
        assert_eq!((announcement.port_id.as_str(), announcement.ttl_s), ("swp1", 9));
        assert_eq!(announcement.port_description, "???eno1?");
        assert_eq!(announcement.system_name, "x".repeat(TEXT_MAX));
    }

    #[test]
    fn malformed_frames_are_ignored() {
        let chassis: Element<'_> = (1, b"\x07leaf");
        let port: Element<'_> = (2, b"\x05swp1");
        let ttl: Element<'_> = (3, &[0, 9]);
        assert!(parse(&frame(&[chassis, port, ttl])).is_some());
        assert!(
            parse(&frame(&[chassis, port, ttl, (0, &[]), chassis])).is_some(),
            "padding"
        );
        for elements in [
            &[port, chassis, ttl][..],
            &[chassis, port],
            &[chassis, port, ttl, port],
            &[(1, &[7]), port, ttl],
            &[(1, &[]), port, ttl],
            &[chassis, port, (3, &[9])],
        ] {
            assert_eq!(parse(&frame(elements)), None, "{elements:?}");
        }
        let mut cut = frame(&[chassis, port, ttl, (5, b"leaf")]);
        cut.pop();
        assert_eq!(parse(&cut), None);
    }
}
