//! Recognises texts by their shape alone: addresses, UUIDs, world-wide names.

use std::net::{Ipv4Addr, Ipv6Addr};

/// An identifier of one machine or one place in a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Shape {
    Mac,
    /// More bytes: world-wide names, EUI-64, port GUIDs, DHCP identifiers.
    Wide,
    Uuid,
    V4,
    V6,
}

/// The parts of a text that have a shape, with begin and end; they do not overlap.
pub(super) fn find(text: &str) -> Vec<(usize, usize, Shape)> {
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'-' | b'.');
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !is_part(bytes[at]) {
            at += 1;
            continue;
        }
        let length = bytes[at..].iter().take_while(|byte| is_part(**byte)).count();
        let end = at + length;
        // A letter on either side means a word, not an address.
        let joined = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let joined_before = joined(at.checked_sub(1).and_then(|before| bytes.get(before)));
        let joined_after = joined(bytes.get(end));
        if !joined_before {
            let whole = (!joined_after).then(|| piece(text, at, end)).flatten();
            match whole {
                Some(whole) => found.push(whole),
                None => range(text, at, end, joined_after, &mut found),
            }
        }
        at = end;
    }
    found
}

/// The shaped part between two positions, without punctuation at its ends and without a port.
fn piece(text: &str, at: usize, end: usize) -> Option<(usize, usize, Shape)> {
    let trimmed = text[at..end].trim_end_matches(['.', '-']);
    let trimmed = if shape(trimmed).is_none() {
        trimmed.trim_matches(':')
    } else {
        trimmed
    };
    let from = at + text[at..end].find(trimmed).unwrap_or(0);
    if let Some(shape) = shape(trimmed) {
        return Some((from, from + trimmed.len(), shape));
    }
    // An address with a port.
    let (host, _) = trimmed.split_once(':')?;
    (shape(host) == Some(Shape::V4)).then_some((from, from + host.len(), Shape::V4))
}

/// `10.0.0.1-10.0.0.9`, `10.0.0.1-bmc`: addresses between hyphens, if the text begins with one. After a word the text is
/// more likely a version.
fn range(text: &str, at: usize, end: usize, joined_after: bool, found: &mut Vec<(usize, usize, Shape)>) {
    let mut from = at;
    for part in text[at..end].split('-') {
        let to = from + part.len();
        let is_cut = joined_after && to == end;
        match piece(text, from, to).filter(|_| !is_cut) {
            Some(piece) => found.push(piece),
            None if from == at => return,
            None => {}
        }
        from = to + 1;
    }
}

/// The shape of a whole text.
pub(super) fn shape(text: &str) -> Option<Shape> {
    for separator in [':', '-'] {
        let pairs: Vec<&str> = text.split(separator).collect();
        let are_pairs = pairs
            .iter()
            .all(|pair| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit()));
        match pairs.len() {
            6 if are_pairs => return Some(Shape::Mac),
            7..=32 if are_pairs => return Some(Shape::Wide),
            _ => {}
        }
    }
    let quads: Vec<&str> = text.split(':').collect();
    let are_quads = quads
        .iter()
        .all(|quad| quad.len() == 4 && quad.bytes().all(|b| b.is_ascii_hexdigit()));
    if quads.len() == 4 && are_quads {
        return Some(Shape::Wide);
    }
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    if groups == [8, 4, 4, 4, 12] && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        return Some(Shape::Uuid);
    }
    // The parser refuses leading zeros, which occur in firmware versions.
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        let is_reserved = address.is_unspecified() || address.is_loopback() || address.octets()[0] == 255;
        return (!is_reserved).then_some(Shape::V4);
    }
    match text.parse::<Ipv6Addr>() {
        Ok(address) if !address.is_unspecified() && !address.is_loopback() => Some(Shape::V6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_distinguished_from_words_and_versions() {
        for (text, expected) in [
            ("b8:3f:d2:d7:f7:4a", vec![("b8:3f:d2:d7:f7:4a", Shape::Mac)]),
            ("at B8-3F-D2-D7-F7-4A.", vec![("B8-3F-D2-D7-F7-4A", Shape::Mac)]),
            (
                "NVMe(0x1,60-33-01-21-9A-38-25-00)",
                vec![("60-33-01-21-9A-38-25-00", Shape::Wide)],
            ),
            ("b8ce:f603:00ae:de3a", vec![("b8ce:f603:00ae:de3a", Shape::Wide)]),
            (
                "id 6173ECEC-6EF5-11EE-834A-0A8FC3A58A71",
                vec![("6173ECEC-6EF5-11EE-834A-0A8FC3A58A71", Shape::Uuid)],
            ),
            ("https://10.1.2.3:443/x", vec![("10.1.2.3", Shape::V4)]),
            (
                "fe80::1 and 10.0.0.9",
                vec![("fe80::1", Shape::V6), ("10.0.0.9", Shape::V4)],
            ),
            (
                "10.0.0.1-10.0.0.9",
                vec![("10.0.0.1", Shape::V4), ("10.0.0.9", Shape::V4)],
            ),
            (
                "at 10.1.2.3-bmc, 10.1.2.4-ops",
                vec![("10.1.2.3", Shape::V4), ("10.1.2.4", Shape::V4)],
            ),
            (
                "fe80::1-fe80::ff",
                vec![("fe80::1", Shape::V6), ("fe80::ff", Shape::V6)],
            ),
            ("10.1.2.3x firmware-1.2.3.4 Current-108-22.31.13.70__x", vec![]),
            ("6.00.30.00", vec![]),
            ("255.255.255.0 127.0.0.1 0.0.0.0 :: ::1", vec![]),
            ("2024-01-02T03:04:05Z 12:30 face: a:b", vec![]),
            ("äöü", vec![]),
        ] {
            let found: Vec<(&str, Shape)> = find(text)
                .into_iter()
                .map(|(a, b, shape)| (&text[a..b], shape))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
