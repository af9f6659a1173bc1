//! Atomic replacement of files: a reader sees the former or the new file, even after a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::folder;
use crate::error::FabricError;
use crate::manager::PartitionFile;

/// Most bytes read from a file.
const MAX_BYTES: u64 = 64 << 20;

pub(super) fn failed(doing: &'static str, path: &Path, source: io::Error) -> FabricError {
    let path = path.to_owned();
    FabricError::File { doing, path, source }
}

/// The text of a file; none if there is no such file. Bytes that are not UTF-8 are replaced.
pub(super) fn read(path: &Path) -> Result<Option<String>, FabricError> {
    Ok(inspect(path)?.content.as_deref().map(text))
}

/// The text in these bytes. Bytes that are not UTF-8 are replaced: a damaged file must not stop its repair.
pub(super) fn text(content: &[u8]) -> String {
    String::from_utf8_lossy(content).into_owned()
}

/// The content of a file, and whether other users may change the file.
pub(super) fn inspect(path: &Path) -> Result<PartitionFile, FabricError> {
    match open(path) {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PartitionFile {
            path: path.to_owned(),
            fabric: None,
            content: None,
            is_protected: true,
            owner: String::new(),
        }),
        Err(source) => Err(failed("read", path, source)),
    }
}

fn open(path: &Path) -> io::Result<PartitionFile> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let mut content = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut content)?;
    let (user, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    // The effective user of this process owns its folder in procfs.
    let own = fs::metadata("/proc/self")?.uid();
    Ok(PartitionFile {
        path: path.to_owned(),
        fabric: None,
        content: Some(content),
        is_protected: is_protected((user, mode), own),
        owner: format!("user {user}, mode {mode:04o}"),
    })
}

/// Whether only root and the user `own` may write a file with this owner and these permissions.
fn is_protected((owner, mode): (u32, u32), own: u32) -> bool {
    (owner == 0 || owner == own) && mode & 0o022 == 0
}

/// Writes a file next to the target, flushes it to the disk, and renames it. Only the owner may write the new file.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), FabricError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = path.with_file_name(name);
    let written = remove(&temporary).and_then(|()| write(&temporary, text));
    let written = written.and_then(|()| fs::rename(&temporary, path));
    written
        .and_then(|()| File::open(folder(path))?.sync_all())
        .map_err(|source| failed("write", path, source))
}

/// Removes what a killed process may have left: the new file gets an owner and permissions of its own.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_of_another_user_or_that_others_may_write_is_not_protected() {
        const OWN: u32 = 990;
        for owner in [0, OWN] {
            assert!(is_protected((owner, 0o644), OWN), "{owner}");
            assert!(!is_protected((owner, 0o664), OWN), "{owner}");
            assert!(!is_protected((owner, 0o646), OWN), "{owner}");
        }
        assert!(!is_protected((1000, 0o644), OWN));
        assert!(!is_protected((1000, 0o600), OWN));
    }

    #[test]
    fn any_file_is_read_and_one_that_others_may_write_is_not_protected() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("partitions.conf");
        let missing = inspect(&path).expect("read");
        assert_eq!((missing.content, missing.is_protected), (None, true));
        assert_eq!(read(&path).expect("read"), None);

        fs::write(&path, b"Default \xff\xfe").expect("written");
        assert_eq!(read(&path).expect("read").as_deref(), Some("Default \u{fffd}\u{fffd}"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).expect("permissions");
        let open = inspect(&path).expect("read");
        assert!(
            !open.is_protected && open.owner.ends_with(", mode 0664"),
            "{}",
            open.owner
        );

        // A rest of a killed process does not give its permissions to the new file.
        let rest = folder.path().join("partitions.conf.new");
        fs::write(&rest, "half a").expect("written");
        fs::set_permissions(&rest, fs::Permissions::from_mode(0o666)).expect("permissions");
        replace(&path, "whole").expect("replaced");
        let whole = inspect(&path).expect("read");
        assert_eq!(
            (whole.content.as_deref(), whole.is_protected),
            (Some(b"whole".as_slice()), true)
        );
        assert!(!rest.exists());
    }
}
