//! The NoCloud seed: a small FAT file system labelled `CIDATA` with the files that configure the installed system.
//!
//! It is written once and never changed, so the clusters simply follow each other: boot sector, two tables, root folder,
//! then each folder before its content. Only the part in use is generated. Names are long names with a generated short
//! alias. Format: Microsoft FAT32 File System Specification, 1.03 (which includes FAT16).

use std::collections::BTreeMap;

use thiserror::Error;

/// Size of the seed partition in bytes. Fits FAT16 with 4 KiB clusters for 512-byte and 4096-byte blocks.
pub const SEED_BYTES: u64 = 32 << 20;
/// Label of the file system and of the partition. cloud-init's NoCloud source searches for it.
pub const SEED_LABEL: &str = "CIDATA";
/// Maximum content of the seed in bytes.
pub const MAX_CONTENT_BYTES: usize = 16 << 20;
const MAX_FILES: usize = 256;
const MAX_PATH_BYTES: usize = 200;
const CLUSTER: usize = 4096;
/// Slightly less than the clusters of the partition.
const MAX_CLUSTERS: usize = 8100;
const ENTRY: usize = 32;
const ROOT_ENTRIES: usize = 512;
const LABEL_ENTRY: &[u8; 11] = b"CIDATA     ";
const UNITS_PER_ENTRY: usize = 13;
const FIRST_CLUSTER: u16 = 2;
const END_OF_CHAIN: u16 = 0xFFFF;
const ATTRIBUTE_LABEL: u8 = 0x08;
const ATTRIBUTE_FOLDER: u8 = 0x10;
const ATTRIBUTE_FILE: u8 = 0x20;
const ATTRIBUTE_LONG_NAME: u8 = 0x0F;
/// 1 January 1980, the earliest FAT date: the agent's clock may be wrong.
const DATE: u16 = 1 << 5 | 1;

/// Why a seed cannot be created. All are permanent: the job itself is invalid.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SeedError {
    /// The path is empty, absolute, contains `..`, or has characters that FAT does not allow.
    #[error(
        "seed file {path:?}: the path must be relative, at most {MAX_PATH_BYTES} bytes, of letters, digits, '.', '_' and '-'"
    )]
    Path {
        /// The path in the job.
        path: String,
    },
    /// FAT cannot distinguish two paths, or a path is both a file and a folder.
    #[error("seed file {path:?}: another path differs only in upper and lower case, or uses this path as a folder")]
    Conflict {
        /// The path in the job.
        path: String,
    },
    /// The content exceeds the partition.
    #[error(
        "the seed has {files} files and {bytes} bytes: the limits are {MAX_FILES} files, {MAX_CONTENT_BYTES} bytes, \
         and {ROOT_ENTRIES} entries in the root folder"
    )]
    TooLarge {
        /// Number of files.
        files: usize,
        /// Size of their content in bytes.
        bytes: usize,
    },
}

/// Checks paths and sizes, so that an invalid job fails before the drive is touched.
///
/// # Errors
/// The first fault.
pub fn check(files: &BTreeMap<String, Vec<u8>>) -> Result<(), SeedError> {
    let part_fine = |part: &str| {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        !part.is_empty() && part.chars().all(fine) && !part.ends_with('.')
    };
    let mut names: BTreeMap<String, (&str, bool)> = BTreeMap::new();
    for path in files.keys() {
        if path.len() > MAX_PATH_BYTES || !path.split('/').all(part_fine) {
            return Err(SeedError::Path { path: path.clone() });
        }
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let (name, is_folder) = (&path[..end], end < path.len());
            let known = names.insert(name.to_ascii_lowercase(), (name, is_folder));
            if known.is_some_and(|known| known != (name, is_folder) || !is_folder) {
                return Err(SeedError::Conflict { path: path.clone() });
            }
        }
    }
    let (count, bytes) = (files.len(), files.values().map(Vec::len).fold(0, usize::saturating_add));
    let root = Folder::of(files);
    if count > MAX_FILES
        || bytes > MAX_CONTENT_BYTES
        || root.entries() + 1 > ROOT_ENTRIES
        || root.clusters() > MAX_CLUSTERS
    {
        return Err(SeedError::TooLarge { files: count, bytes });
    }
    Ok(())
}

/// Builds the file system up to its last used cluster; the rest of the partition is free clusters.
///
/// # Errors
/// Same as [`check`].
pub fn build(files: &BTreeMap<String, Vec<u8>>, sector_bytes: u16, volume_id: u32) -> Result<Vec<u8>, SeedError> {
    check(files)?;
    let geometry = Geometry::of(usize::from(sector_bytes));
    let mut clusters = Clusters::default();
    let mut root = volume_label();
    for (index, (name, node)) in Folder::of(files).0.iter().enumerate() {
        root.extend(clusters.add(name, node, index, 0));
    }
    let mut disk = geometry.boot_sector(volume_id);
    let table = clusters.table();
    for copy in 0..2 {
        disk.resize((geometry.reserved + copy * geometry.table) * geometry.sector, 0);
        disk.extend_from_slice(&table);
    }
    disk.resize((geometry.reserved + 2 * geometry.table) * geometry.sector, 0);
    disk.extend(root);
    disk.resize(geometry.data() * geometry.sector, 0);
    disk.extend(clusters.data);
    Ok(disk)
}

enum Node<'a> {
    File(&'a [u8]),
    Folder(Folder<'a>),
}

#[derive(Default)]
struct Folder<'a>(BTreeMap<&'a str, Node<'a>>);

impl<'a> Folder<'a> {
    fn of(files: &'a BTreeMap<String, Vec<u8>>) -> Self {
        let mut root = Self::default();
        for (path, content) in files {
            root.insert(path, content);
        }
        root
    }

    /// Ignores a path through a file; [`check`] refuses such a path.
    fn insert(&mut self, path: &'a str, content: &'a [u8]) {
        let Some((name, below)) = path.split_once('/') else {
            self.0.insert(path, Node::File(content));
            return;
        };
        let node = self.0.entry(name).or_insert_with(|| Node::Folder(Self::default()));
        if let Node::Folder(folder) = node {
            folder.insert(below, content);
        }
    }

    /// Clusters of the folder's content, without the folder's own clusters.
    fn clusters(&self) -> usize {
        let one = |node: &Node<'_>| match node {
            Node::File(content) => content.len().div_ceil(CLUSTER),
            Node::Folder(folder) => ((folder.entries() + 2) * ENTRY).div_ceil(CLUSTER) + folder.clusters(),
        };
        self.0.values().map(one).sum()
    }

    /// Number of directory entries for the folder's content.
    fn entries(&self) -> usize {
        self.0.keys().map(|name| name.len().div_ceil(UNITS_PER_ENTRY) + 1).sum()
    }
}

/// The data area and its entries in the table.
#[derive(Default)]
struct Clusters {
    data: Vec<u8>,
    next: Vec<u16>,
}

impl Clusters {
    /// Adds a file or folder with its content. Returns the entries for its parent folder. `parent` is the parent's first
    /// cluster (0: the root).
    fn add(&mut self, name: &str, node: &Node<'_>, index: usize, parent: u16) -> Vec<u8> {
        match node {
            Node::File(content) => {
                let first = if content.is_empty() {
                    0
                } else {
                    self.reserve(content.len())
                };
                self.put(first, content);
                entries(name, index, ATTRIBUTE_FILE, first, content.len() as u32)
            }
            Node::Folder(folder) => {
                let first = self.reserve((folder.entries() + 2) * ENTRY);
                let mut content = entry(b".          ", ATTRIBUTE_FOLDER, first, 0);
                content.extend(entry(b"..         ", ATTRIBUTE_FOLDER, parent, 0));
                for (index, (name, node)) in folder.0.iter().enumerate() {
                    content.extend(self.add(name, node, index, first));
                }
                self.put(first, &content);
                entries(name, index, ATTRIBUTE_FOLDER, first, 0)
            }
        }
    }

    /// Reserves a chain for this many bytes. [`check`] keeps the total within the partition.
    fn reserve(&mut self, bytes: usize) -> u16 {
        let first = FIRST_CLUSTER + self.next.len() as u16;
        let count = bytes.div_ceil(CLUSTER).max(1);
        for index in 1..count {
            self.next.push(first + index as u16);
        }
        self.next.push(END_OF_CHAIN);
        self.data.resize(self.next.len() * CLUSTER, 0);
        first
    }

    fn put(&mut self, first: u16, content: &[u8]) {
        if let Some(start) = first
            .checked_sub(FIRST_CLUSTER)
            .map(|cluster| usize::from(cluster) * CLUSTER)
        {
            self.data[start..start + content.len()].copy_from_slice(content);
        }
    }

    /// The encoded table: medium, clean-shutdown marks, then the chains.
    fn table(&self) -> Vec<u8> {
        [0xFFF8, END_OF_CHAIN]
            .iter()
            .chain(&self.next)
            .flat_map(|next| next.to_le_bytes())
            .collect()
    }
}

/// Layout in sectors.
struct Geometry {
    sector: usize,
    reserved: usize,
    table: usize,
    root: usize,
}

impl Geometry {
    fn of(sector: usize) -> Self {
        let table = ((SEED_BYTES as usize / CLUSTER + usize::from(FIRST_CLUSTER)) * 2).div_ceil(sector);
        let root = ROOT_ENTRIES * ENTRY / sector;
        // Clusters start at multiples of their size; the reserved area fills the gap.
        let data = (1 + 2 * table + root).next_multiple_of(CLUSTER / sector);
        Self {
            sector,
            reserved: data - 2 * table - root,
            table,
            root,
        }
    }

    fn data(&self) -> usize {
        self.reserved + 2 * self.table + self.root
    }

    fn boot_sector(&self, volume_id: u32) -> Vec<u8> {
        let sectors = SEED_BYTES as usize / self.sector;
        let mut boot = vec![0; 512];
        let mut put = |at: usize, bytes: &[u8]| boot[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[0xEB, 0x3C, 0x90]);
        put(3, b"MSWIN4.1");
        put(11, &(self.sector as u16).to_le_bytes());
        put(13, &[(CLUSTER / self.sector) as u8]);
        put(14, &(self.reserved as u16).to_le_bytes());
        put(16, &[2]);
        put(17, &(ROOT_ENTRIES as u16).to_le_bytes());
        match u16::try_from(sectors) {
            Ok(small) => put(19, &small.to_le_bytes()),
            Err(_) => put(32, &(sectors as u32).to_le_bytes()),
        }
        put(21, &[0xF8]);
        put(22, &(self.table as u16).to_le_bytes());
        // A dummy geometry: unused since disks are addressed by block.
        put(24, &32_u16.to_le_bytes());
        put(26, &64_u16.to_le_bytes());
        put(36, &[0x80, 0, 0x29]);
        put(39, &volume_id.to_le_bytes());
        put(43, LABEL_ENTRY);
        put(54, b"FAT16   ");
        put(510, &[0x55, 0xAA]);
        boot
    }
}

fn volume_label() -> Vec<u8> {
    entry(LABEL_ENTRY, ATTRIBUTE_LABEL, 0, 0)
}

fn entry(short: &[u8; 11], attributes: u8, first: u16, size: u32) -> Vec<u8> {
    let mut entry = vec![0; ENTRY];
    entry[..11].copy_from_slice(short);
    entry[11] = attributes;
    for at in [16, 18, 24] {
        entry[at..at + 2].copy_from_slice(&DATE.to_le_bytes());
    }
    entry[26..28].copy_from_slice(&first.to_le_bytes());
    entry[28..32].copy_from_slice(&size.to_le_bytes());
    entry
}

/// The directory entries of a name: the parts of the long name, last part first, and the short name.
fn entries(name: &str, index: usize, attributes: u8, first: u16, size: u32) -> Vec<u8> {
    let short = short_name(name, index);
    let checksum = short
        .iter()
        .fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
    let units: Vec<u16> = name.encode_utf16().collect();
    let parts: Vec<&[u16]> = units.chunks(UNITS_PER_ENTRY).collect();
    let mut bytes = Vec::new();
    for (number, part) in parts.iter().enumerate().rev() {
        let mut long = vec![0; ENTRY];
        let last = if number + 1 == parts.len() { 0x40 } else { 0 };
        (long[0], long[11], long[13]) = ((number as u8 + 1) | last, ATTRIBUTE_LONG_NAME, checksum);
        // A zero ends the name if it does not fill the part; the rest is all ones.
        let mut filled = part.iter().copied().chain([0]).chain(std::iter::repeat(0xFFFF));
        for at in (1..11).chain(14..26).chain(28..32).step_by(2) {
            long[at..at + 2].copy_from_slice(&filled.next().unwrap_or(0xFFFF).to_le_bytes());
        }
        bytes.extend(long);
    }
    bytes.extend(entry(&short, attributes, first, size));
    bytes
}

/// Up to four letters of the name, and the number of the entry in its folder.
fn short_name(name: &str, index: usize) -> [u8; 11] {
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).take(4).collect();
    let text = format!("{}~{}", letters.to_ascii_uppercase(), index + 1);
    let mut short = [b' '; 11];
    for (slot, byte) in short.iter_mut().take(8).zip(text.bytes()) {
        *slot = byte;
    }
    short
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::disk::fat::Fat;

    fn files(list: &[(&str, usize)]) -> BTreeMap<String, Vec<u8>> {
        list.iter()
            .map(|(path, size)| ((*path).to_owned(), vec![b'x'; *size]))
            .collect()
    }

    #[test]
    fn paths_are_checked() {
        for path in ["", "/etc/passwd", "../x", "a//b", "a/", "a b", "ä", "a/.", "dot."] {
            assert_eq!(check(&files(&[(path, 0)])), Err(SeedError::Path { path: path.into() }));
        }
        for (one, other) in [("a", "A"), ("a", "a/b"), ("x/a", "X/b"), ("f/a-b", "f/a-B")] {
            assert!(
                matches!(check(&files(&[(one, 0), (other, 0)])), Err(SeedError::Conflict { .. })),
                "{one} {other}"
            );
        }
        assert_eq!(check(&files(&[("a/b", 1), ("a/c", 1), ("d", 1)])), Ok(()));
        assert!(matches!(
            check(&files(&[("user-data", MAX_CONTENT_BYTES + 1)])),
            Err(SeedError::TooLarge { .. })
        ));
        let many: BTreeMap<String, Vec<u8>> = (0..250)
            .map(|index| (format!("a-name-of-some-length-{index}"), vec![]))
            .collect();
        assert!(
            matches!(check(&many), Err(SeedError::TooLarge { .. })),
            "the root folder is full"
        );
    }

    #[test]
    fn a_written_seed_reads_back_by_both_readers() {
        let mut files = files(&[
            ("meta-data", 17),
            ("empty", 0),
            ("rackwright/image", 4096),
            ("rackwright/keys/ssh_host_ed25519_key.pub", 9000),
        ]);
        for index in 0..200 {
            files.insert(
                format!("many/name-of-more-than-thirteen-letters-{index}"),
                format!("{index}").into_bytes(),
            );
        }
        for sector_bytes in [512, 4096] {
            let mut bytes = build(&files, sector_bytes, 7).unwrap();
            assert!(bytes.len() < 2 << 20, "only the part in use: {}", bytes.len());
            let fat = Fat::open(&bytes).unwrap();
            assert_eq!(fat.label().unwrap().as_deref(), Some(SEED_LABEL));
            for (path, content) in &files {
                let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
                assert_eq!(&fat.read(folder, name, 1 << 20).unwrap(), content, "{path}");
            }
            bytes.resize(SEED_BYTES as usize, 0);
            let other = fatfs::FileSystem::new(std::io::Cursor::new(bytes), fatfs::FsOptions::new()).unwrap();
            assert_eq!(
                (other.volume_label().as_str(), other.fat_type()),
                (SEED_LABEL, fatfs::FatType::Fat16)
            );
            for (path, content) in &files {
                let mut read = Vec::new();
                std::io::Read::read_to_end(&mut other.root_dir().open_file(path).unwrap(), &mut read).unwrap();
                assert_eq!(&read, content, "{path}");
            }
        }
    }

    #[test]
    fn aliases_differ_within_a_folder() {
        let aliases: BTreeSet<[u8; 11]> = (0..MAX_FILES).map(|index| short_name("user-data", index)).collect();
        assert_eq!(aliases.len(), MAX_FILES);
        assert_eq!(&short_name("user-data", 255), b"USER~256   ");
    }
}
