//! The NoCloud seed: a small FAT file system labelled `CIDATA` with the files that tell the installed system who it is.
//!
//! It is made in memory and written to its partition, of which only the part in use is written.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor, Write as _};

use thiserror::Error;

/// Size of the seed partition. FAT16 with 4 KiB clusters for both 512-byte and 4096-byte blocks.
pub const SEED_BYTES: u64 = 32 << 20;
/// Label of the file system and of the partition, as cloud-init's NoCloud source looks for it.
pub const SEED_LABEL: &str = "CIDATA";
/// Most content the seed takes.
pub const MAX_CONTENT_BYTES: usize = 16 << 20;
const MAX_FILES: usize = 256;
const MAX_PATH_BYTES: usize = 200;
const CLUSTER_BYTES: u32 = 4096;

/// Why a seed cannot be made. All are permanent: the job itself is wrong.
#[derive(Debug, Error)]
pub enum SeedError {
    /// A path that is empty, absolute, climbs, or has characters FAT does not take.
    #[error(
        "seed file {path:?}: the path must be relative, at most {MAX_PATH_BYTES} bytes, of letters, digits, '.', '_' and '-'"
    )]
    Path {
        /// The path.
        path: String,
    },
    /// More than the partition takes.
    #[error("seed of {files} files and {bytes} bytes: at most {MAX_FILES} files and {MAX_CONTENT_BYTES} bytes fit")]
    TooLarge {
        /// Number of files.
        files: usize,
        /// Their content in bytes.
        bytes: usize,
    },
    /// The file system could not be made; a bug.
    #[error("seed file system: {0}")]
    Io(#[from] io::Error),
}

/// Checks paths and sizes without making anything, so that a wrong job fails before the drive is touched.
///
/// # Errors
/// The first fault.
pub fn check<'a>(files: impl IntoIterator<Item = (&'a String, &'a Vec<u8>)>) -> Result<(), SeedError> {
    let (mut count, mut bytes) = (0, 0_usize);
    for (path, content) in files {
        let part_fine = |part: &str| {
            let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            !part.is_empty() && part.chars().all(fine) && !part.ends_with('.')
        };
        if path.len() > MAX_PATH_BYTES || !path.split('/').all(part_fine) {
            return Err(SeedError::Path { path: path.clone() });
        }
        count += 1;
        bytes = bytes.saturating_add(content.len());
    }
    if count > MAX_FILES || bytes > MAX_CONTENT_BYTES {
        return Err(SeedError::TooLarge { files: count, bytes });
    }
    Ok(())
}

/// The first part of the file system, up to the last byte in use; the rest of the partition is free clusters.
///
/// # Errors
/// As [`check`], or when the file system cannot be made.
pub fn build(files: &BTreeMap<String, Vec<u8>>, sector_bytes: u16, volume_id: u32) -> Result<Vec<u8>, SeedError> {
    check(files)?;
    let mut disk = Cursor::new(vec![0; SEED_BYTES as usize]);
    let options = fatfs::FormatVolumeOptions::new()
        .fat_type(fatfs::FatType::Fat16)
        .bytes_per_sector(sector_bytes)
        .bytes_per_cluster(CLUSTER_BYTES)
        .volume_id(volume_id)
        .volume_label(*b"CIDATA     ");
    fatfs::format_volume(&mut disk, options)?;
    let file_system = fatfs::FileSystem::new(&mut disk, fatfs::FsOptions::new().update_accessed_date(false))?;
    let root = file_system.root_dir();
    for folder in folders(files) {
        root.create_dir(folder)?;
    }
    for (path, content) in files {
        root.create_file(path)?.write_all(content)?;
    }
    drop(root);
    file_system.unmount()?;
    let mut bytes = disk.into_inner();
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    // Clusters need not begin at multiples of their size: one more covers the last one's end.
    bytes.truncate(used.next_multiple_of(CLUSTER_BYTES as usize) + CLUSTER_BYTES as usize);
    Ok(bytes)
}

/// Every folder that the paths need, parents first.
fn folders(files: &BTreeMap<String, Vec<u8>>) -> BTreeSet<&str> {
    files
        .keys()
        .flat_map(|path| path.match_indices('/').map(|(at, _)| &path[..at]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::fat::Fat;

    #[test]
    fn paths_are_checked() {
        for path in ["", "/etc/passwd", "../x", "a//b", "a/", "a b", "ä", "a/.", "dot."] {
            let files = BTreeMap::from([(path.to_owned(), Vec::new())]);
            assert!(matches!(check(&files), Err(SeedError::Path { .. })), "{path:?}");
        }
        let files = BTreeMap::from([("user-data".to_owned(), vec![0; MAX_CONTENT_BYTES + 1])]);
        assert!(matches!(check(&files), Err(SeedError::TooLarge { .. })));
    }

    #[test]
    fn both_block_sizes_read_back() {
        let files = BTreeMap::from([
            ("meta-data".to_owned(), b"instance-id: i-1\n".to_vec()),
            ("rackwright/image".to_owned(), b"generation=3\n".to_vec()),
            ("rackwright/keys/ssh_host_ed25519_key.pub".to_owned(), vec![b'k'; 9000]),
        ]);
        for sector_bytes in [512, 4096] {
            let bytes = build(&files, sector_bytes, 7).unwrap();
            assert!(bytes.len() < 1 << 20, "only the part in use: {}", bytes.len());
            let fat = Fat::open(&bytes).unwrap();
            assert_eq!(fat.label().unwrap().as_deref(), Some(SEED_LABEL));
            assert_eq!(
                fat.read("rackwright/keys", "ssh_host_ed25519_key.pub", 1 << 20)
                    .unwrap()
                    .len(),
                9000
            );
            assert_eq!(fat.read("rackwright", "image", 99).unwrap(), b"generation=3\n");
        }
    }
}
