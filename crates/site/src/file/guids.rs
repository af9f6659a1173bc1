//! GUIDs of several devices: the first with a step, or one for each device.

use rackwright_yaml::{Tree, Value};

use super::fields::Fields;
use super::names::shown;

/// The remedy for a text that is not a GUID.
const FIX: &str =
    "write 0x and 16 hexadecimal digits; for several devices a list of GUIDs, or one with a step such as +0x100";

/// The GUIDs of the devices of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Guids {
    /// The GUID of the first device, and the amount more for each next device.
    Steps { base: u64, step: u64 },
    /// The GUID of each device.
    Each(Vec<u64>),
}

impl Guids {
    /// Reads `0xa088c20300000001`, `0xa088c20300000001+0x100` for several devices, or a list with a GUID for each. `None`:
    /// this is not possible, which has a finding.
    pub(super) fn read(fields: &mut Fields<'_, '_>, field: &str, tree: &Tree, items: usize) -> Option<Self> {
        let text = match &tree.value {
            Value::Text(text) => text,
            Value::List(trees) => return Self::list(fields, field, trees, items),
            Value::Broken => return None,
            Value::Null | Value::Map(_) => {
                fields.error(field, "this must be a GUID", FIX);
                return None;
            }
        };
        match steps(text) {
            Some(Self::Steps { step: 0, .. }) if items > 1 => {
                fields.error(field, "several devices have the same GUID", "add a step: 0x...+0x100");
                None
            }
            Some(guids) => Some(guids),
            None => {
                fields.error(field, format!("`{}` is not a GUID", shown(text)), FIX);
                None
            }
        }
    }

    fn list(fields: &mut Fields<'_, '_>, field: &str, trees: &[Tree], items: usize) -> Option<Self> {
        let mut guids = Vec::with_capacity(trees.len());
        for tree in trees {
            let text: &str = match &tree.value {
                Value::Text(text) => text,
                _ => "",
            };
            let Some(guid) = parse_guid(text) else {
                fields.error(field, format!("`{}` is not a GUID", shown(text)), FIX);
                return None;
            };
            guids.push(guid);
        }
        if items > 0 && guids.len() != items {
            let what = format!("{} GUIDs are listed for {items} devices", guids.len());
            fields.error(field, what, "list one GUID for each device");
            return None;
        }
        Some(Self::Each(guids))
    }

    /// The GUID of a device. `None`: it exceeds 64 bits, or there is none.
    pub(super) fn of(&self, device: usize) -> Option<u64> {
        match self {
            Self::Steps { base, step } => step.checked_mul(device as u64)?.checked_add(*base),
            Self::Each(guids) => guids.get(device).copied(),
        }
    }
}

fn steps(text: &str) -> Option<Guids> {
    let (base, step) = match text.split_once('+') {
        Some((base, step)) => (base, parse_guid(step)?),
        None => (text, 0),
    };
    let base = parse_guid(base)?;
    Some(Guids::Steps { base, step })
}

/// Parses `0x` and up to 16 hexadecimal digits. Zero is invalid.
fn parse_guid(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    let good = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|guid| good && *guid != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_have_steps_or_are_listed() {
        let guids = steps("0xa0+0x10").unwrap();
        assert_eq!([guids.of(0), guids.of(3)], [Some(0xa0), Some(0xd0)]);
        assert_eq!(steps("0xa0").unwrap().of(0), Some(0xa0));
        let last = steps("0xffffffffffffffff+0x1").unwrap();
        assert_eq!([last.of(0), last.of(1)], [Some(u64::MAX), None]);
        let each = Guids::Each(vec![7, 9]);
        assert_eq!([each.of(0), each.of(1), each.of(2)], [Some(7), Some(9), None]);
        for wrong in [
            "",
            "a0",
            "0x",
            "0x0",
            "0x+1",
            "0xa0+",
            "0xa0+0x0",
            "0xa0+10",
            "0x+a0",
            "0x1ffffffffffffffff",
        ] {
            assert_eq!(steps(wrong), None, "{wrong}");
        }
    }
}
