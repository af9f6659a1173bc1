//! GUID partition tables (UEFI specification 2.10, chapter 5): reads tables that may be hostile, and fits an image's table
//! to the disk it was written to.
//!
//! An image's table describes a disk of the image's size. [`Gpt::fit`] moves the backup to the end of the real disk, grows
//! the last partition, and reserves space for the seed after it. Entries, GUIDs and boot code stay the same.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use thiserror::Error;

use super::crc::crc32;
use super::{Source, field, le32, le64};

const SIGNATURE: &[u8; 8] = b"EFI PART";
const REVISION: u32 = 0x0001_0000;
const HEADER_BYTES: usize = 92;
/// The specification requires room for at least 128 entries. A table with more than this limit is refused.
const MAX_ENTRIES: u32 = 1024;
const MAX_ENTRY_BYTES: u32 = 4096;
/// Partitions added by the agent are aligned to this many bytes.
const ALIGNMENT_BYTES: u64 = 1 << 20;
const NAME_UNITS: usize = 36;

/// A GUID in on-disk byte order: the first three fields are little endian.
pub type Guid = [u8; 16];

/// EFI system partition, C12A7328-F81F-11D2-BA4B-00A0C93EC93B.
pub const TYPE_ESP: Guid = [
    0x28, 0x73, 0x2A, 0xC1, 0x1F, 0xF8, 0xD2, 0x11, 0xBA, 0x4B, 0x00, 0xA0, 0xC9, 0x3E, 0xC9, 0x3B,
];
/// Microsoft basic data, EBD0A0A2-B9E5-4433-87C0-68B6B72699C7.
pub const TYPE_BASIC_DATA: Guid = [
    0xA2, 0xA0, 0xD0, 0xEB, 0xE5, 0xB9, 0x33, 0x44, 0x87, 0xC0, 0x68, 0xB6, 0xB7, 0x26, 0x99, 0xC7,
];
/// BIOS boot partition, 21686148-6449-6E6F-744E-656564454649.
pub const TYPE_BIOS_BOOT: Guid = [
    0x48, 0x61, 0x68, 0x21, 0x49, 0x64, 0x6F, 0x6E, 0x74, 0x4E, 0x65, 0x65, 0x64, 0x45, 0x46, 0x49,
];

/// Why a partition table cannot be used.
#[derive(Debug, Error)]
pub enum GptError {
    /// The disk has no GPT, or the agent cannot use this GPT.
    #[error(
        "no valid GUID partition table at block 1 ({sector_bytes}-byte blocks): {why}; the image must have a GPT for \
         the drive's block size"
    )]
    Unsupported {
        /// Logical block size of the drive in bytes.
        sector_bytes: u64,
        /// The fault that was found.
        why: &'static str,
    },
    /// The disk has too little space for the image and its seed.
    #[error("disk of {disk_bytes} bytes is too small: the image's partitions and the seed need {needed_bytes} bytes")]
    TooSmall {
        /// Size of the disk in bytes.
        disk_bytes: u64,
        /// Required size in bytes.
        needed_bytes: u64,
    },
    /// The table has no unused entry for the seed partition.
    #[error("the image's partition table has no unused entry for the seed partition")]
    Full,
    /// Reading or writing failed.
    #[error("partition table: {0}")]
    Io(#[from] io::Error),
}

/// A used entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Number of the entry, from 1.
    pub number: u32,
    /// Type of the partition.
    pub type_guid: Guid,
    /// The partition's own GUID.
    pub guid: Guid,
    /// First block.
    pub first: u64,
    /// Last block, inclusive.
    pub last: u64,
    /// Name of the partition; invalid UTF-16 is replaced.
    pub name: String,
}

/// A verified table.
#[derive(Clone, Debug)]
pub struct Gpt {
    sector_bytes: u64,
    header: Vec<u8>,
    entry_bytes: usize,
    entries: Vec<u8>,
}

impl Gpt {
    /// Reads and verifies the primary table.
    ///
    /// # Errors
    /// [`GptError::Unsupported`] if there is no consistent table, [`GptError::Io`] if reading fails.
    pub fn read(source: &dyn Source, sector_bytes: u64) -> Result<Self, GptError> {
        let unsupported = |why| GptError::Unsupported { sector_bytes, why };
        let mut header = vec![0; usize::try_from(sector_bytes).unwrap_or(512).clamp(512, 65_536)];
        source.fill(&mut header, sector_bytes)?;
        if &field::<8>(&header, 0) != SIGNATURE {
            return Err(unsupported("the signature is missing"));
        }
        let header_bytes = le32(&header, 12) as usize;
        if le32(&header, 8) != REVISION || header_bytes < HEADER_BYTES || header_bytes > header.len() {
            return Err(unsupported("the revision or the header size is invalid"));
        }
        header.truncate(header_bytes);
        if header_crc(&header) != le32(&header, 16) {
            return Err(unsupported("the header's checksum is wrong"));
        }
        let (count, entry_bytes) = (le32(&header, 80), le32(&header, 84));
        if !(1..=MAX_ENTRIES).contains(&count)
            || !(128..=MAX_ENTRY_BYTES).contains(&entry_bytes)
            || !entry_bytes.is_multiple_of(8)
        {
            return Err(unsupported("the number or the size of the entries is out of bounds"));
        }
        let entries_at = le64(&header, 72)
            .checked_mul(sector_bytes)
            .filter(|_| le64(&header, 24) == 1);
        let entries_at = entries_at.ok_or(unsupported("the block addresses in the header are out of bounds"))?;
        let mut entries = vec![0; (count * entry_bytes) as usize];
        source.fill(&mut entries, entries_at)?;
        if crc32(&entries) != le32(&header, 88) {
            return Err(unsupported("the entries' checksum is wrong"));
        }
        let gpt = Self {
            sector_bytes,
            header,
            entry_bytes: entry_bytes as usize,
            entries,
        };
        if gpt
            .partitions()
            .any(|p| p.first > p.last || p.last >= u64::MAX / sector_bytes)
        {
            return Err(unsupported("a partition ends before it begins"));
        }
        Ok(gpt)
    }

    /// The used entries in table order.
    pub fn partitions(&self) -> impl Iterator<Item = Partition> + '_ {
        self.entries
            .chunks_exact(self.entry_bytes)
            .enumerate()
            .filter_map(|(index, entry)| {
                let type_guid: Guid = field(entry, 0);
                (type_guid != [0; 16]).then(|| Partition {
                    number: index as u32 + 1,
                    type_guid,
                    guid: field(entry, 16),
                    first: le64(entry, 32),
                    last: le64(entry, 40),
                    name: name_of(entry),
                })
            })
    }

    /// Byte offset and length of a partition.
    pub fn extent(&self, partition: &Partition) -> (u64, u64) {
        let blocks = (partition.last - partition.first).saturating_add(1);
        (
            partition.first.saturating_mul(self.sector_bytes),
            blocks.saturating_mul(self.sector_bytes),
        )
    }

    /// Size in bytes of the smallest disk that holds the unchanged partitions and a seed of `seed_bytes`.
    fn needed_bytes(&self, seed_bytes: u64) -> u64 {
        let last = self.partitions().map(|p| p.last).max().unwrap_or(0);
        let end =
            (last.saturating_add(1).saturating_mul(self.sector_bytes)).div_ceil(ALIGNMENT_BYTES) * ALIGNMENT_BYTES;
        end.saturating_add(seed_bytes).saturating_add(ALIGNMENT_BYTES)
    }

    /// Fits the table to a disk of `disk_bytes`. The backup moves to the end, and a seed partition of `seed_bytes` named
    /// `seed_name` becomes the last partition. The former last partition grows up to the seed, unless it is an EFI system
    /// or BIOS boot partition, which never grows. Returns the seed partition.
    ///
    /// # Errors
    /// [`GptError::TooSmall`], [`GptError::Full`]. The table is then unchanged.
    pub fn fit(
        &mut self,
        disk_bytes: u64,
        seed_bytes: u64,
        seed_guid: Guid,
        seed_name: &str,
    ) -> Result<Partition, GptError> {
        let too_small = || GptError::TooSmall {
            disk_bytes,
            needed_bytes: self.needed_bytes(seed_bytes),
        };
        let blocks = disk_bytes / self.sector_bytes;
        let array_blocks = (self.entries.len() as u64).div_ceil(self.sector_bytes);
        let last_usable = blocks.checked_sub(array_blocks + 2).ok_or_else(too_small)?;
        let seed_start = ((last_usable + 1) * self.sector_bytes)
            .checked_sub(seed_bytes)
            .ok_or_else(too_small)?;
        let seed_start = seed_start / ALIGNMENT_BYTES * ALIGNMENT_BYTES / self.sector_bytes;
        let seed_last = seed_start + seed_bytes / self.sector_bytes - 1;
        let last_partition = self.partitions().max_by_key(|p| p.last);
        if last_partition.as_ref().map_or(le64(&self.header, 40), |p| p.last + 1) > seed_start {
            return Err(too_small());
        }
        let free = self
            .entries
            .chunks_exact(self.entry_bytes)
            .position(|entry| entry[..16] == [0; 16])
            .ok_or(GptError::Full)?;
        if let Some(grown) = last_partition.filter(|p| ![TYPE_ESP, TYPE_BIOS_BOOT].contains(&p.type_guid)) {
            let at = (grown.number as usize - 1) * self.entry_bytes;
            self.entries[at + 40..at + 48].copy_from_slice(&(seed_start - 1).to_le_bytes());
        }
        let entry = &mut self.entries[free * self.entry_bytes..][..self.entry_bytes];
        entry.fill(0);
        entry[..16].copy_from_slice(&TYPE_BASIC_DATA);
        entry[16..32].copy_from_slice(&seed_guid);
        entry[32..40].copy_from_slice(&seed_start.to_le_bytes());
        entry[40..48].copy_from_slice(&seed_last.to_le_bytes());
        for (index, unit) in seed_name.encode_utf16().take(NAME_UNITS).enumerate() {
            entry[56 + index * 2..58 + index * 2].copy_from_slice(&unit.to_le_bytes());
        }
        self.header[32..40].copy_from_slice(&(blocks - 1).to_le_bytes());
        self.header[48..56].copy_from_slice(&last_usable.to_le_bytes());
        let number = free as u32 + 1;
        let name = seed_name.to_owned();
        Ok(Partition {
            number,
            type_guid: TYPE_BASIC_DATA,
            guid: seed_guid,
            first: seed_start,
            last: seed_last,
            name,
        })
    }

    /// Writes the backup, then the primary table, then the size in the protective MBR. The caller syncs.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn write(&self, disk: &File) -> io::Result<()> {
        let (primary_array, backup) = (le64(&self.header, 72), le64(&self.header, 32));
        let array_blocks = (self.entries.len() as u64).div_ceil(self.sector_bytes);
        let backup_array = backup - array_blocks;
        let at = |block: u64| block * self.sector_bytes;
        let mut array = self.entries.clone();
        array.resize((array_blocks * self.sector_bytes) as usize, 0);
        disk.write_all_at(&array, at(backup_array))?;
        disk.write_all_at(&self.header_block(backup, 1, backup_array), at(backup))?;
        disk.write_all_at(&self.entries, at(primary_array))?;
        disk.write_all_at(&self.header_block(1, backup, primary_array), at(1))?;
        self.write_protective_mbr(disk, backup)
    }

    /// Creates a header for the given position, padded to a block.
    fn header_block(&self, own: u64, other: u64, array: u64) -> Vec<u8> {
        let mut block = self.header.clone();
        block[24..32].copy_from_slice(&own.to_le_bytes());
        block[32..40].copy_from_slice(&other.to_le_bytes());
        block[72..80].copy_from_slice(&array.to_le_bytes());
        block[88..92].copy_from_slice(&crc32(&self.entries).to_le_bytes());
        let crc = header_crc(&block);
        block[16..20].copy_from_slice(&crc.to_le_bytes());
        block.resize(self.sector_bytes as usize, 0);
        block
    }

    /// Sets the length of the protective entry (type 0xEE). Boot code and the entries of a hybrid table stay the same.
    fn write_protective_mbr(&self, disk: &File, last_block: u64) -> io::Result<()> {
        let mut mbr = [0; 512];
        disk.read_exact_at(&mut mbr, 0)?;
        for at in (446..510).step_by(16) {
            if mbr[at + 4] == 0xEE && le32(&mbr, at + 8) == 1 {
                let blocks = u32::try_from(last_block).unwrap_or(u32::MAX);
                mbr[at + 12..at + 16].copy_from_slice(&blocks.to_le_bytes());
                return disk.write_all_at(&mbr, 0);
            }
        }
        Ok(())
    }
}

fn header_crc(header: &[u8]) -> u32 {
    let mut header = header.to_vec();
    header[16..20].fill(0);
    crc32(&header)
}

fn name_of(entry: &[u8]) -> String {
    let units = entry
        .get(56..128)
        .unwrap_or_default()
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    String::from_utf16_lossy(&units)
}

/// Returns a random GUID (RFC 9562, version 4) in on-disk byte order.
///
/// # Errors
/// The kernel returns no random bytes.
pub fn random_guid() -> io::Result<Guid> {
    let mut guid = [0; 16];
    crate::random::fill(&mut guid)?;
    guid[7] = guid[7] & 0x0F | 0x40;
    guid[8] = guid[8] & 0x3F | 0x80;
    Ok(guid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECTOR: u64 = 512;
    const IMAGE_BLOCKS: u64 = 8192;

    /// A table as in an image: partitions (first, last, type) and 128 entries.
    fn table(parts: &[(u64, u64, Guid)]) -> Vec<u8> {
        let mut disk = vec![0; (IMAGE_BLOCKS * SECTOR) as usize];
        let mut entries = vec![0; 128 * 128];
        for (index, (first, last, kind)) in parts.iter().enumerate() {
            let entry = &mut entries[index * 128..][..128];
            entry[..16].copy_from_slice(kind);
            entry[16..32].fill(index as u8 + 1);
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
        }
        let mut header = vec![0; HEADER_BYTES];
        header[..8].copy_from_slice(SIGNATURE);
        header[8..12].copy_from_slice(&REVISION.to_le_bytes());
        header[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        for (at, value) in [
            (24, 1),
            (32, IMAGE_BLOCKS - 1),
            (40, 34),
            (48, IMAGE_BLOCKS - 34),
            (72, 2),
        ] {
            header[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        header[80..84].copy_from_slice(&128_u32.to_le_bytes());
        header[84..88].copy_from_slice(&128_u32.to_le_bytes());
        header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
        let crc = header_crc(&header);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        disk[512..512 + HEADER_BYTES].copy_from_slice(&header);
        disk[1024..1024 + entries.len()].copy_from_slice(&entries);
        disk
    }

    const LINUX: Guid = [0xAF; 16];

    #[test]
    fn the_last_partition_grows_if_its_type_may() {
        for (kind, grows) in [(LINUX, true), (TYPE_ESP, false), (TYPE_BIOS_BOOT, false)] {
            let mut gpt = Gpt::read(&table(&[(2048, 4095, LINUX), (4096, 6000, kind)]), SECTOR).unwrap();
            let seed = gpt.fit(1 << 30, 32 << 20, [9; 16], "CIDATA").unwrap();
            let parts: Vec<Partition> = gpt.partitions().collect();
            assert_eq!(parts.len(), 3);
            assert_eq!(parts[0].last, 4095, "the first partition stays");
            assert_eq!(parts[1].last, if grows { seed.first - 1 } else { 6000 });
            assert_eq!(parts[2], seed);
            assert_eq!((seed.first * SECTOR % ALIGNMENT_BYTES, seed.number), (0, 3));
            assert!(seed.last < (1 << 30) / SECTOR - 33);
        }
    }

    #[test]
    fn too_small_and_full_change_nothing() {
        let disk = table(&[(2048, 8000, LINUX)]);
        let gpt = Gpt::read(&disk, SECTOR).unwrap();
        for size in [0, 4 << 20, 36 << 20] {
            let mut tried = gpt.clone();
            let error = tried.fit(size, 32 << 20, [9; 16], "CIDATA").unwrap_err();
            let GptError::TooSmall { needed_bytes, .. } = error else {
                panic!("{error}")
            };
            assert_eq!(tried.entries, gpt.entries);
            tried.fit(needed_bytes, 32 << 20, [9; 16], "CIDATA").unwrap();
        }
        let full: Vec<(u64, u64, Guid)> = (0..128).map(|index| (2048 + index, 2048 + index, LINUX)).collect();
        let mut gpt = Gpt::read(&table(&full), SECTOR).unwrap();
        assert!(matches!(
            gpt.fit(1 << 30, 32 << 20, [9; 16], "CIDATA"),
            Err(GptError::Full)
        ));
    }

    #[test]
    fn damage_is_reported() {
        let good = table(&[(2048, 4095, LINUX)]);
        for (at, what) in [
            (512, "signature"),
            (520, "revision"),
            (560, "header's checksum"),
            (1030, "entries' checksum"),
        ] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let error = Gpt::read(&bad, SECTOR).unwrap_err().to_string();
            assert!(error.contains(what), "{at}: {error}");
        }
    }

    proptest! {
        /// Any table, also one with corrected checksums, is either refused or consistent.
        #[test]
        fn hostile_tables_are_survived(changes in proptest::collection::vec((0_usize..800, any::<u8>()), 1..20), size in 0_u64..1 << 41) {
            let mut disk = table(&[(2048, 4095, LINUX)]);
            for (at, value) in changes {
                disk[512 + at] = value;
            }
            let count = le32(&disk, 592).min(1024) as usize * le32(&disk, 596).min(4096) as usize;
            if let Some(entries) = disk.get(1024..1024 + count) {
                let crc = crc32(entries);
                disk[600..604].copy_from_slice(&crc.to_le_bytes());
            }
            let header = le32(&disk, 524).clamp(92, 512) as usize;
            let crc = header_crc(&disk[512..512 + header]);
            disk[528..532].copy_from_slice(&crc.to_le_bytes());
            if let Ok(mut gpt) = Gpt::read(&disk, SECTOR) {
                for partition in gpt.partitions() {
                    let _ = gpt.extent(&partition);
                }
                if let Ok(seed) = gpt.fit(size, 32 << 20, [9; 16], "CIDATA") {
                    prop_assert!((seed.last + 1) * SECTOR <= size);
                }
            }
        }
    }
}
