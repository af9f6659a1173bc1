//! File formats of images.

use std::fmt;
use std::str::FromStr;

/// Packing of a disk's bytes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// The bytes of the disk, unpacked.
    Raw,
    /// One or more zstd frames over the raw bytes.
    Zstd,
    /// One or more gzip members over the raw bytes.
    Gzip,
    /// One or more xz streams over the raw bytes.
    Xz,
    /// QEMU copy-on-write, version 2 or 3.
    Qcow2,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 5] = [Format::Raw, Format::Zstd, Format::Gzip, Format::Xz, Format::Qcow2];

    /// Detects the format from the first bytes of a file (eight are enough). A file without a known magic number is raw.
    pub fn detect(start: &[u8]) -> Format {
        // RFC 8878 3.1.1 (and skippable frames, 3.1.2), RFC 1952 2.3.1, xz-file-format 2.1.1.1, QEMU docs/interop/qcow2.txt.
        match start {
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Format::Zstd,
            [0x1f, 0x8b, 0x08, ..] => Format::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Format::Xz,
            [b'Q', b'F', b'I', 0xfb, ..] => Format::Qcow2,
            _ => Format::Raw,
        }
    }

    /// Name of the format in APIs and indexes.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Zstd => "zstd",
            Format::Gzip => "gzip",
            Format::Xz => "xz",
            Format::Qcow2 => "qcow2",
        }
    }

    /// Number of the format in an index.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Format::Raw => 0,
            Format::Zstd => 1,
            Format::Gzip => 2,
            Format::Xz => 3,
            Format::Qcow2 => 4,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.number() == number)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown image format {0:?}: give raw, zstd, gzip, xz or qcow2")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Format::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| UnknownFormat(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_round_trip() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
            assert_eq!(Format::from_number(format.number()), Some(format));
        }
        assert_eq!(Format::from_number(5), None);
        assert!("iso".parse::<Format>().is_err());
    }

    #[test]
    fn too_few_bytes_are_raw() {
        assert_eq!(Format::detect(b""), Format::Raw);
        assert_eq!(Format::detect(b"QF"), Format::Raw);
        assert_eq!(Format::detect(b"QFI\xfb"), Format::Qcow2);
    }
}
