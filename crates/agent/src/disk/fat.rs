//! Reads FAT12, FAT16 and FAT32 file systems that may be hostile: a customer's root wrote them, and the agent is the only
//! program on the machine. Every count is limited, no chain is followed for ever, no arithmetic can fail.
//!
//! Format: Microsoft Extensible Firmware Initiative FAT32 File System Specification, 1.03.

use std::io;

use super::{Source, le16, le32};

/// Largest directory in bytes; FAT limits a directory to 2 MiB.
const MAX_DIRECTORY_BYTES: usize = 2 << 20;
const ENTRY_BYTES: usize = 32;
const ATTRIBUTE_DIRECTORY: u8 = 0x10;
const ATTRIBUTE_LABEL: u8 = 0x08;
const ATTRIBUTE_LONG_NAME: u8 = 0x0F;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fat12,
    Fat16,
    Fat32,
}

/// A file or folder in a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The long name, or the short name if there is no long one.
    pub name: String,
    /// Whether it is a folder.
    pub is_folder: bool,
    first_cluster: u32,
    size_bytes: u32,
}

/// A file system with a plausible boot sector.
pub struct Fat<'a> {
    source: &'a dyn Source,
    kind: Kind,
    cluster_bytes: usize,
    clusters: u32,
    table: u64,
    data: u64,
    root: Root,
}

#[derive(Clone, Copy)]
enum Root {
    Fixed { start: u64, bytes: usize },
    Chain(u32),
}

impl<'a> Fat<'a> {
    /// Reads the boot sector.
    ///
    /// # Errors
    /// `InvalidData` if it is not a FAT file system; errors of reading.
    pub fn open(source: &'a dyn Source) -> io::Result<Self> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "no FAT file system");
        let mut head = [0; 512];
        source.fill(&mut head, 0)?;
        let sector = u64::from(le16(&head, 11));
        let per_cluster = u64::from(head[13]);
        let (reserved, tables) = (u64::from(le16(&head, 14)), u64::from(head[16]));
        let root_entries = u64::from(le16(&head, 17));
        let is_plausible = [512, 1024, 2048, 4096].contains(&sector) && per_cluster.is_power_of_two();
        if !is_plausible || head[510..] != [0x55, 0xAA] || reserved == 0 || !(1..=2).contains(&tables) {
            return Err(wrong());
        }
        let either = |small: u16, large: u32| if small == 0 { u64::from(large) } else { u64::from(small) };
        let table_sectors = either(le16(&head, 22), le32(&head, 36));
        let sectors = either(le16(&head, 19), le32(&head, 32));
        let root_sectors = (root_entries * ENTRY_BYTES as u64).div_ceil(sector);
        let root_start = reserved + tables * table_sectors;
        let data_start = root_start + root_sectors;
        let clusters = sectors.checked_sub(data_start).ok_or_else(wrong)? / per_cluster;
        let kind = match clusters {
            0..4085 => Kind::Fat12,
            4085..65_525 => Kind::Fat16,
            65_525..0x0FFF_FFF5 => Kind::Fat32,
            _ => return Err(wrong()),
        };
        let root = match kind {
            Kind::Fat32 => Root::Chain(le32(&head, 44) & 0x0FFF_FFFF),
            _ => Root::Fixed {
                start: root_start * sector,
                bytes: root_entries as usize * ENTRY_BYTES,
            },
        };
        let cluster_bytes = (sector * per_cluster) as usize;
        let (table, data) = (reserved * sector, data_start * sector);
        Ok(Self {
            source,
            kind,
            cluster_bytes,
            clusters: clusters as u32,
            table,
            data,
            root,
        })
    }

    /// The label in the root folder, without trailing blanks.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn label(&self) -> io::Result<Option<String>> {
        let root = self.root_bytes()?;
        let label = root
            .chunks_exact(ENTRY_BYTES)
            .take_while(|entry| entry[0] != 0)
            .find(|entry| entry[0] != 0xE5 && entry[11] & ATTRIBUTE_LONG_NAME == ATTRIBUTE_LABEL);
        Ok(label.map(|entry| String::from_utf8_lossy(&entry[..11]).trim_end().to_owned()))
    }

    /// The entries of a folder. An empty path selects the root.
    ///
    /// # Errors
    /// `NotFound` if the folder does not exist; errors of reading.
    pub fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let mut entries = entries_of(&self.root_bytes()?);
        for part in path.split(['/', '\\']).filter(|part| !part.is_empty()) {
            let found = entries
                .into_iter()
                .find(|entry| entry.is_folder && entry.name.eq_ignore_ascii_case(part));
            let folder = found.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
            entries = entries_of(&self.chain(folder.first_cluster, MAX_DIRECTORY_BYTES)?);
        }
        Ok(entries)
    }

    /// Returns the first `limit` bytes of a file.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist; errors of reading.
    pub fn read(&self, folder: &str, name: &str, limit: usize) -> io::Result<Vec<u8>> {
        let entries = self.list(folder)?;
        let found = entries
            .into_iter()
            .find(|entry| !entry.is_folder && entry.name.eq_ignore_ascii_case(name));
        let file = found.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        let length = (file.size_bytes as usize).min(limit);
        let mut content = self.chain(file.first_cluster, length)?;
        content.truncate(length);
        Ok(content)
    }

    fn root_bytes(&self) -> io::Result<Vec<u8>> {
        match self.root {
            Root::Chain(first) => self.chain(first, MAX_DIRECTORY_BYTES),
            Root::Fixed { start, bytes } => {
                let mut content = vec![0; bytes];
                self.source.fill(&mut content, start)?;
                Ok(content)
            }
        }
    }

    /// Reads a chain of clusters up to the first cluster boundary at or after `limit` bytes.
    fn chain(&self, first: u32, limit: usize) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        let mut cluster = first;
        while content.len() < limit && (2..self.clusters.saturating_add(2)).contains(&cluster) {
            let start = content.len();
            content.resize(start + self.cluster_bytes, 0);
            let offset = self.data + u64::from(cluster - 2) * self.cluster_bytes as u64;
            self.source.fill(&mut content[start..], offset)?;
            cluster = self.next(cluster)?;
        }
        Ok(content)
    }

    fn next(&self, cluster: u32) -> io::Result<u32> {
        let cluster = u64::from(cluster);
        let mut buffer = [0; 4];
        match self.kind {
            Kind::Fat12 => {
                self.source.fill(&mut buffer[..2], self.table + cluster + cluster / 2)?;
                let pair = le32(&buffer, 0);
                Ok(if cluster.is_multiple_of(2) {
                    pair & 0xFFF
                } else {
                    pair >> 4
                })
            }
            Kind::Fat16 => {
                self.source.fill(&mut buffer[..2], self.table + cluster * 2)?;
                Ok(le32(&buffer, 0))
            }
            Kind::Fat32 => {
                self.source.fill(&mut buffer, self.table + cluster * 4)?;
                Ok(le32(&buffer, 0) & 0x0FFF_FFFF)
            }
        }
    }
}

fn entries_of(folder: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut long: Vec<u16> = Vec::new();
    for entry in folder.chunks_exact(ENTRY_BYTES).take_while(|entry| entry[0] != 0) {
        if entry[0] == 0xE5 {
            long.clear();
        } else if entry[11] == ATTRIBUTE_LONG_NAME {
            // The parts of a long name are stored last part first.
            if entry[0] & 0x40 != 0 {
                long.clear();
            }
            let mut part: Vec<u16> = [1..11, 14..26, 28..32]
                .into_iter()
                .flat_map(|range| {
                    entry[range]
                        .chunks_exact(2)
                        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
                })
                .collect();
            part.append(&mut long);
            long = part;
            long.truncate(255 + 13);
        } else if entry[11] & ATTRIBUTE_LABEL == 0 {
            let name = if long.is_empty() {
                short_name(entry)
            } else {
                long_name(&long)
            };
            long.clear();
            let first_cluster = u32::from(le16(entry, 20)) << 16 | u32::from(le16(entry, 26));
            let is_folder = entry[11] & ATTRIBUTE_DIRECTORY != 0;
            entries.push(Entry {
                name,
                is_folder,
                first_cluster,
                size_bytes: le32(entry, 28),
            });
        } else {
            long.clear();
        }
    }
    entries
}

fn long_name(units: &[u16]) -> String {
    let end = units
        .iter()
        .position(|unit| *unit == 0 || *unit == 0xFFFF)
        .unwrap_or(units.len());
    String::from_utf16_lossy(&units[..end])
}

/// Stem and extension. Bits 3 and 4 of byte 12 mark them as lower case.
fn short_name(entry: &[u8]) -> String {
    let text = |range: std::ops::Range<usize>, lower: u8| {
        let text = String::from_utf8_lossy(&entry[range]).trim_end().to_owned();
        if entry[12] & lower == 0 {
            text
        } else {
            text.to_ascii_lowercase()
        }
    };
    let (stem, extension) = (text(0..8, 0x08), text(8..11, 0x10));
    if extension.is_empty() {
        stem
    } else {
        format!("{stem}.{extension}")
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use proptest::prelude::*;

    use super::*;

    impl Source for Vec<u8> {
        fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
            let end = start.checked_add(buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }
    }

    fn made(bytes: usize, kind: fatfs::FatType) -> Vec<u8> {
        let mut disk = Cursor::new(vec![0; bytes]);
        let options = fatfs::FormatVolumeOptions::new()
            .fat_type(kind)
            .bytes_per_cluster(512)
            .volume_label(*b"CIDATA     ");
        fatfs::format_volume(&mut disk, options).unwrap();
        let file_system = fatfs::FileSystem::new(&mut disk, fatfs::FsOptions::new()).unwrap();
        let root = file_system.root_dir();
        root.create_file("user-data")
            .unwrap()
            .write_all(&vec![b'u'; 5000])
            .unwrap();
        let folder = root.create_dir("rackwright").unwrap();
        for index in 0..100 {
            folder
                .create_file(&format!("a rather long name, number {index}"))
                .unwrap();
        }
        folder
            .create_file("image")
            .unwrap()
            .write_all(b"generation=7\n")
            .unwrap();
        drop((folder, root));
        file_system.unmount().unwrap();
        disk.into_inner()
    }

    #[test]
    fn reads_a_file_system_of_another_implementation() {
        for (bytes, kind) in [
            (1 << 20, fatfs::FatType::Fat12),
            (4 << 20, fatfs::FatType::Fat16),
            (40 << 20, fatfs::FatType::Fat32),
        ] {
            let disk = made(bytes, kind);
            let fat = Fat::open(&disk).unwrap();
            assert_eq!(fat.label().unwrap().as_deref(), Some("CIDATA"));
            assert_eq!(
                fat.read("", "USER-DATA", 1 << 20).unwrap(),
                vec![b'u'; 5000],
                "{kind:?}"
            );
            assert_eq!(fat.read("", "user-data", 700).unwrap().len(), 700);
            assert_eq!(fat.read("rackwright", "image", 100).unwrap(), b"generation=7\n");
            assert!(
                fat.list("rackwright")
                    .unwrap()
                    .iter()
                    .any(|e| e.name == "a rather long name, number 77")
            );
            assert_eq!(
                fat.read("rackwright", "none", 100).unwrap_err().kind(),
                io::ErrorKind::NotFound
            );
            assert_eq!(fat.list("nowhere").unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn a_cyclic_chain_ends() {
        let mut disk = made(4 << 20, fatfs::FatType::Fat16);
        // Every cluster but the two reserved ones points at cluster 2, so every chain is a circle.
        for cluster in 2..4000 {
            disk[512 + cluster * 2..512 + cluster * 2 + 2].copy_from_slice(&2_u16.to_le_bytes());
        }
        let fat = Fat::open(&disk).unwrap();
        assert_eq!(fat.chain(2, MAX_DIRECTORY_BYTES).unwrap().len(), MAX_DIRECTORY_BYTES);
        let _ = fat.list("rackwright");
    }

    proptest! {
        #[test]
        fn damage_is_survived(changes in proptest::collection::vec((0_usize..40_000, any::<u8>()), 1..40)) {
            static WHOLE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| made(1 << 20, fatfs::FatType::Fat12));
            let mut disk = WHOLE.clone();
            for (at, value) in changes {
                // Mostly the boot sector, where every byte matters.
                let at = if value.is_multiple_of(2) { at % 64 } else { at };
                disk[at] = value;
            }
            if let Ok(fat) = Fat::open(&disk) {
                let _ = fat.label();
                let _ = fat.list("rackwright");
                let _ = fat.read("rackwright", "image", 4096);
            }
        }
    }
}
