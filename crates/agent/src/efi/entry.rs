//! `EFI_LOAD_OPTION` (UEFI 2.10, 3.1.3) with a hard drive and a file path node (10.3.5.1 and 10.3.5.4).

use super::Loader;
use crate::disk::{field, le16, le32};

const ACTIVE: u32 = 1;
const MEDIA: u8 = 4;
const HARD_DRIVE: u8 = 1;
const HARD_DRIVE_BYTES: u16 = 42;
const FILE_PATH: u8 = 4;
const FORMAT_GPT: u8 = 2;
const SIGNATURE_GUID: u8 = 2;
const END: [u8; 4] = [0x7F, 0xFF, 4, 0];

/// Builds the value of a `Boot####` variable for the loader.
pub fn load_option(label: &str, loader: &Loader) -> Vec<u8> {
    let path = device_path(loader);
    let mut option = Vec::new();
    option.extend_from_slice(&ACTIVE.to_le_bytes());
    option.extend_from_slice(&(path.len() as u16).to_le_bytes());
    option.extend(utf16(label));
    option.extend(path);
    option
}

fn device_path(loader: &Loader) -> Vec<u8> {
    let partition = &loader.partition;
    let mut path = vec![MEDIA, HARD_DRIVE];
    path.extend_from_slice(&HARD_DRIVE_BYTES.to_le_bytes());
    path.extend_from_slice(&partition.number.to_le_bytes());
    path.extend_from_slice(&partition.first.to_le_bytes());
    path.extend_from_slice(&(partition.last - partition.first + 1).to_le_bytes());
    path.extend_from_slice(&partition.guid);
    path.extend_from_slice(&[FORMAT_GPT, SIGNATURE_GUID]);
    let file = utf16(&loader.path);
    path.extend_from_slice(&[MEDIA, FILE_PATH]);
    path.extend_from_slice(&(4 + file.len() as u16).to_le_bytes());
    path.extend(file);
    path.extend_from_slice(&END);
    path
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// The label of a load option; `None` if the bytes are not a load option.
pub fn label_of(option: &[u8]) -> Option<String> {
    let units = option
        .get(6..)?
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let units: Vec<u16> = units.take_while(|unit| *unit != 0).take(1024).collect();
    String::from_utf16(&units).ok()
}

/// The partition GUID of a load option, if its path starts with a GPT hard drive node.
pub fn partition_of(option: &[u8]) -> Option<[u8; 16]> {
    let label = option.get(6..)?.chunks_exact(2).position(|pair| pair == [0, 0])?;
    let node = option.get(6 + (label + 1) * 2..)?;
    let is_gpt = node.get(..2)? == [MEDIA, HARD_DRIVE]
        && le16(node, 2) == HARD_DRIVE_BYTES
        && node.get(41) == Some(&SIGNATURE_GUID);
    is_gpt.then(|| field(node, 24))
}

/// Whether firmware lists and starts the option.
pub fn is_active(option: &[u8]) -> bool {
    le32(option, 0) & ACTIVE != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::gpt::{Partition, TYPE_ESP};

    /// Encoded by hand from the specification's tables, field by field.
    const KNOWN: &str = concat!(
        "01000000",                     // LOAD_OPTION_ACTIVE
        "5a00",                         // 90 bytes of device path
        "640065006200690061006e000000", // "debian"
        "0401",
        "2a00",                             // hard drive node of 42 bytes
        "02000000",                         // partition 2
        "0008000000000000",                 // from block 2048
        "0000010000000000",                 // 65536 blocks
        "00112233445566778899aabbccddeeff", // its GUID
        "0202",                             // GPT, named by GUID
        "0404",
        "2c00", // file path node of 44 bytes
        "5c00450046004900",
        "5c00640065006200690061006e00",
        "5c007800360034002e0065006600690000",
        "00",
        "7fff0400" // end
    );

    fn loader() -> Loader {
        let guid = [
            0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
        ];
        let partition = Partition {
            number: 2,
            type_guid: TYPE_ESP,
            guid,
            first: 2048,
            last: 67_583,
            name: String::new(),
        };
        Loader {
            partition,
            path: "\\EFI\\debian\\x64.efi".into(),
        }
    }

    #[test]
    fn bytes_are_those_of_the_specification() {
        let option = load_option("debian", &loader());
        assert_eq!(hex::encode(&option), KNOWN);
        assert_eq!(label_of(&option).as_deref(), Some("debian"));
        assert_eq!(partition_of(&option), Some(loader().partition.guid));
        assert!(is_active(&option));
    }

    #[test]
    fn foreign_bytes_are_survived() {
        let option = load_option("x", &loader());
        for length in 0..option.len() {
            let _ = (
                label_of(&option[..length]),
                partition_of(&option[..length]),
                is_active(&option[..length]),
            );
        }
        assert_eq!(partition_of(&[0xFF; 64]), None);
    }
}
