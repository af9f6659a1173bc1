//! Memory modules, from the SMBIOS table (DMTF DSP0134 3.7, 7.18: type 17).

use rackwright_api::v1::MemoryModule;

use crate::disk::{le16, le32};
use crate::root::SysRoot;
use crate::text;

const MEMORY_DEVICE: u8 = 17;
const END_OF_TABLE: u8 = 127;
const SIZE_UNKNOWN: u16 = 0xFFFF;
const SIZE_EXTENDED: u16 = 0x7FFF;
const SIZE_IN_KILOBYTES: u16 = 0x8000;
const SPEED_EXTENDED: u16 = 0xFFFF;

/// The modules in the populated slots.
pub fn memory_modules(root: &SysRoot) -> Vec<MemoryModule> {
    let table = text::bytes(&root.sys.join("firmware/dmi/tables/DMI")).unwrap_or_default();
    structures(&table)
        .filter(|(kind, ..)| *kind == MEMORY_DEVICE)
        .filter_map(|(_, data, strings)| module(data, &strings))
        .collect()
}

/// Type, formatted part and strings of each structure. Ends at an incomplete structure.
fn structures(table: &[u8]) -> impl Iterator<Item = (u8, &[u8], Vec<String>)> {
    let mut rest = table;
    std::iter::from_fn(move || {
        let (kind, length) = (*rest.first()?, usize::from(*rest.get(1)?));
        if kind == END_OF_TABLE || length < 4 {
            return None;
        }
        let data = rest.get(..length)?;
        let area = rest.get(length..)?;
        let end = area.windows(2).position(|pair| pair == [0, 0])?;
        let strings = area[..end]
            .split(|byte| *byte == 0)
            .map(|text| String::from_utf8_lossy(text).trim().to_owned());
        rest = area.get(end + 2..)?;
        Some((kind, data, strings.collect()))
    })
}

fn module(data: &[u8], strings: &[String]) -> Option<MemoryModule> {
    let text = |at: usize| {
        let number = usize::from(*data.get(at).unwrap_or(&0));
        number
            .checked_sub(1)
            .and_then(|index| strings.get(index))
            .cloned()
            .unwrap_or_default()
    };
    let mib = 1_u64 << 20;
    let size_bytes = match le16(data, 0x0C) {
        0 | SIZE_UNKNOWN => return None,
        SIZE_EXTENDED => u64::from(le32(data, 0x1C) & 0x7FFF_FFFF) * mib,
        size if size & SIZE_IN_KILOBYTES != 0 => u64::from(size & !SIZE_IN_KILOBYTES) * 1024,
        size => u64::from(size) * mib,
    };
    let speed = |short: usize, long: usize| match le16(data, short) {
        SPEED_EXTENDED => le32(data, long) & 0x7FFF_FFFF,
        speed => u32::from(speed),
    };
    // The configured speed if present (SMBIOS 2.7 and later), otherwise the module's own speed.
    let speed_mts = Some(speed(0x20, 0x58))
        .filter(|speed| *speed > 0)
        .unwrap_or_else(|| speed(0x15, 0x54));
    let (locator, bank) = (text(0x10), text(0x11));
    Some(MemoryModule {
        slot: if locator.is_empty() { bank } else { locator },
        size_bytes,
        manufacturer: text(0x17),
        part_number: text(0x1A),
        serial_number: text(0x18),
        speed_mts,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn device(size: u16, extended: u32, speed: u16) -> Vec<u8> {
        let mut data = vec![0; 0x5C];
        (data[0], data[1]) = (MEMORY_DEVICE, 0x5C);
        data[0x0C..0x0E].copy_from_slice(&size.to_le_bytes());
        (data[0x10], data[0x11], data[0x17], data[0x18], data[0x1A]) = (1, 2, 3, 4, 5);
        data[0x15..0x17].copy_from_slice(&4800_u16.to_le_bytes());
        data[0x1C..0x20].copy_from_slice(&extended.to_le_bytes());
        data[0x20..0x22].copy_from_slice(&speed.to_le_bytes());
        data[0x58..0x5C].copy_from_slice(&8800_u32.to_le_bytes());
        data.extend_from_slice(b"DIMM_A1\0BANK 0\0Samsung\0S-1234\0M321R8GA0BB0 \0\0");
        data
    }

    #[test]
    fn sizes_speeds_and_strings() {
        let read = |table: &[u8]| {
            structures(table)
                .filter_map(|(_, data, strings)| module(data, &strings))
                .collect::<Vec<_>>()
        };
        let table = [
            vec![0, 4, 0, 0, b'x', 0, 0],
            device(SIZE_EXTENDED, 65_536, 4800),
            device(0, 0, 0),
            device(16_384, 0, 0),
            device(SIZE_IN_KILOBYTES | 512, 0, SPEED_EXTENDED),
            vec![END_OF_TABLE, 4, 0, 0, 0, 0],
        ]
        .concat();
        let modules = read(&table);
        let sizes: Vec<u64> = modules.iter().map(|m| m.size_bytes).collect();
        assert_eq!(sizes, [64 << 30, 16 << 30, 512 << 10]);
        assert_eq!(
            modules.iter().map(|m| m.speed_mts).collect::<Vec<_>>(),
            [4800, 4800, 8800]
        );
        let first = &modules[0];
        assert_eq!(
            (first.slot.as_str(), first.manufacturer.as_str()),
            ("DIMM_A1", "Samsung")
        );
        assert_eq!(
            (first.part_number.as_str(), first.serial_number.as_str()),
            ("M321R8GA0BB0", "S-1234")
        );
    }

    proptest! {
        #[test]
        fn any_table_is_survived(table in proptest::collection::vec(any::<u8>(), 0..400)) {
            for (_, data, strings) in structures(&table) {
                let _ = module(data, &strings);
            }
        }
    }
}
