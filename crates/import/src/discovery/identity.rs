//! Values that identify a machine, and placeholders that manufacturers leave in boards.

use std::collections::BTreeSet;

/// UUIDs found on more than one board. All-zero and all-one UUIDs are refused by their form. The others are firmware
/// defaults: AMI's sample value `03000200-0400-0500-0006-000700080009`, the same with the byte order of its first
/// fields reversed, and a counting one.
const UUIDS: &[&str] = &[
    "03000200040005000006000700080009",
    "00020003000400050006000700080009",
    "00010203040506070809010b0c0d0e0f",
    "000102030405060708090a0b0c0d0e0f",
    "123456781234567890abcdef12345678",
    "12345678123412341234123456789abc",
    "fefefefefefefefefefefefefefefefe",
];

/// Placeholder serial numbers, in lower case.
const SERIALS: &[&str] = &[
    "to be filled by o.e.m.",
    "to be filled by oem",
    "default string",
    "system serial number",
    "chassis serial number",
    "serial number",
    "not specified",
    "not available",
    "not applicable",
    "unspecified",
    "unknown",
    "none",
    "null",
    "n/a",
    "na",
    "empty",
    "oem",
    "o.e.m.",
    "invalid",
    "123456789",
    "0123456789",
    "1234567890",
    "empty serial",
];

/// Ethernet addresses of a BMC's link to its own host that some manufacturers use on every board.
const MACS: &[&str] = &["b0:3a:f2:b6:05:9f"];

/// A UUID as 32 lower-case digits. `None`: a placeholder or not a UUID.
#[must_use]
pub fn plausible_uuid(text: &str) -> Option<String> {
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    let digits = digits.to_ascii_lowercase();
    let is_uuid = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let first = digits.bytes().next()?;
    let is_even = digits.bytes().all(|b| b == first);
    (is_uuid && !is_even && !UUIDS.contains(&digits.as_str())).then_some(digits)
}

/// A serial number in lower case. `None`: a placeholder.
#[must_use]
pub fn plausible_serial(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let first = text.chars().next()?;
    // Such as "0000000", "........", "xxxxxxx".
    let is_even = text.chars().all(|c| c == first);
    (text.len() >= 3 && text.len() <= 128 && !is_even && !SERIALS.contains(&text.as_str())).then_some(text)
}

/// A MAC address in lower case with colons. `None`: a placeholder, or an address chosen by software (the locally
/// administered bit is set).
#[must_use]
pub fn plausible_mac(text: &str) -> Option<String> {
    let digits: String = text.trim().chars().filter(|c| !matches!(c, ':' | '-' | '.')).collect();
    let digits = digits.to_ascii_lowercase();
    if digits.len() != 12 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let first = u8::from_str_radix(digits.get(..2)?, 16).ok()?;
    let pairs: Vec<&str> = (0..6).filter_map(|i| digits.get(2 * i..2 * i + 2)).collect();
    let mac = pairs.join(":");
    let is_even = pairs.iter().all(|pair| *pair == pairs[0]);
    (first & 0b11 == 0 && !is_even && !MACS.contains(&mac.as_str())).then_some(mac)
}

/// The plausible identifiers of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(super) struct Evidence {
    pub(super) uuid: Option<String>,
    pub(super) serial: Option<String>,
    /// The manufacturer in lower case. Empty: unknown.
    pub(super) maker: String,
    pub(super) macs: BTreeSet<String>,
    /// UUID of the Redfish service.
    pub(super) service: Option<String>,
}

/// The relation between two pieces of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// Both come from one machine.
    Same,
    /// They identify the same machine but contradict each other.
    Clash,
    /// As far as known, they come from two machines.
    Different,
}

/// Whether two known values are equal. `None`: one of them is unknown.
fn compare<T: PartialEq>(a: Option<&T>, b: Option<&T>) -> Option<bool> {
    Some(a? == b?)
}

impl Evidence {
    pub(super) fn is_empty(&self) -> bool {
        self.uuid.is_none() && self.serial.is_none() && self.macs.is_empty() && self.service.is_none()
    }

    /// Keys for grouping. Evidence of the same machine shares at least one key.
    pub(super) fn keys(&self) -> Vec<String> {
        let uuid = self.uuid.iter().map(|uuid| format!("u {uuid}"));
        let serial = self.serial.iter().map(|serial| format!("s {serial}"));
        let service = self.service.iter().map(|service| format!("r {service}"));
        let macs = self.macs.iter().map(|mac| format!("m {mac}"));
        uuid.chain(serial).chain(service).chain(macs).collect()
    }

    /// Compares two pieces of evidence. The system's UUID takes precedence, then serial number and manufacturer, then
    /// MAC addresses and the service's UUID.
    pub(super) fn relation(&self, other: &Self) -> Relation {
        let same_maker = self.maker.is_empty() || other.maker.is_empty() || self.maker == other.maker;
        let serials = compare(self.serial.as_ref(), other.serial.as_ref()).map(|is_same| is_same && same_maker);
        let have_macs = !self.macs.is_empty() && !other.macs.is_empty();
        let macs = have_macs.then(|| !self.macs.is_disjoint(&other.macs));
        let services = compare(self.service.as_ref(), other.service.as_ref());
        match compare(self.uuid.as_ref(), other.uuid.as_ref()) {
            Some(false) => Relation::Different,
            Some(true) if serials == Some(false) || macs == Some(false) => Relation::Clash,
            Some(true) => Relation::Same,
            None => match (serials, macs, services) {
                (Some(false), _, _) => Relation::Different,
                (Some(true), Some(false), _) => Relation::Clash,
                (Some(true), _, _) | (None, Some(true), _) | (None, None, Some(true)) => Relation::Same,
                _ => Relation::Different,
            },
        }
    }

    /// Like [`Self::relation`], for a machine that answers at the other's known address. There a new network adapter
    /// does not mean another machine.
    pub(super) fn relation_in_place(&self, other: &Self) -> Relation {
        let without = |evidence: &Self| Self {
            macs: BTreeSet::new(),
            ..evidence.clone()
        };
        match self.relation(other) {
            Relation::Clash => without(self).relation(&without(other)),
            relation => relation,
        }
    }
}
