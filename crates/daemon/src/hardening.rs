//! Protects the daemon's secrets from other users of its computer: no core dump, and files for their owner alone.

#![expect(clippy::disallowed_methods, reason = "called at the start")]

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::{Mode, umask};
use rackwright_ground::config::Config;
use rackwright_store::Database;

/// The mode bits that grant access to the group and to others.
const OTHERS: u32 = 0o077;

/// Hardens this process and its children: their files are for their owner alone, whatever the umask was, and no core dump
/// holds keys. From then on, only root may trace this process or read its memory.
///
/// # Errors
/// The kernel refused.
pub fn harden() -> io::Result<()> {
    umask(Mode::from_bits_truncate(OTHERS));
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    prctl::set_dumpable(false)?;
    Ok(())
}

/// Removes the access of the group and of others from files that an older version or another umask left open: the database,
/// and the folders below the shared one. Returns the changed paths.
///
/// # Errors
/// A mode cannot be read or set.
pub fn close_files(config: &Config) -> io::Result<Vec<PathBuf>> {
    let mut closed = Vec::new();
    if let Database::File(file) = &config.database {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut path = file.clone().into_os_string();
            path.push(suffix);
            close(Path::new(&path), &mut closed)?;
        }
    }
    let shared = &config.shared_dir;
    // The millions of chunks need no change: their folder is the only way to them.
    close(&shared.join("images"), &mut closed)?;
    for folder in ["uploads", "firmware", "consoles"] {
        close_all(&shared.join(folder), &mut closed)?;
    }
    Ok(closed)
}

/// Closes a folder and everything below it.
fn close_all(path: &Path, closed: &mut Vec<PathBuf>) -> io::Result<()> {
    close(path, closed)?;
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            close_all(&entry.path(), closed)?;
        } else {
            close(&entry.path(), closed)?;
        }
    }
    Ok(())
}

/// Closes one file or folder of this user. Skips links and paths that are already gone. The operator put files of other
/// users there.
fn close(path: &Path, closed: &mut Vec<PathBuf>) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mode = metadata.mode() & 0o7777;
    if metadata.is_symlink() || mode & OTHERS == 0 || metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS))?;
    closed.push(path.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::getrlimit;
    use rackwright_ground::testing;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_hardened_process_dumps_no_core_and_makes_files_for_its_owner_alone() {
        harden().unwrap();
        assert!(!prctl::get_dumpable().unwrap());
        assert_eq!(getrlimit(Resource::RLIMIT_CORE).unwrap(), (0, 0));
        let dir = tempfile::tempdir().unwrap();
        let (folder, file) = (dir.path().join("folder"), dir.path().join("file"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "secret").unwrap();
        assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn files_that_others_can_read_are_closed_once() {
        let dir = tempfile::tempdir().unwrap();
        let config = testing::config(dir.path(), "");
        let data = dir.path().join("data");
        let Database::File(database) = &config.database else {
            panic!("a file is the default");
        };
        let log = data.join("rackwright.db-wal");
        let recording = config.shared_dir.join("consoles/uid-1/boot-1.log");
        let chunk = config.shared_dir.join("images/chunks/ab");
        for path in [database, &log, &recording, &chunk] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "secret").unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }
        let outside = dir.path().join("outside");
        fs::write(&outside, "not ours").unwrap();
        fs::set_permissions(&outside, Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&outside, config.shared_dir.join("consoles/link")).unwrap();

        let closed = close_files(&config).unwrap();
        for path in [database, &log, &recording] {
            assert_eq!(mode(path), 0o600, "{}", path.display());
            assert!(closed.contains(path), "{closed:?}");
        }
        assert_eq!(mode(&config.shared_dir.join("images")) & OTHERS, 0);
        assert_eq!(mode(&chunk), 0o644, "its folder keeps others out");
        assert_eq!(mode(&outside), 0o644, "a link is not followed");
        assert_eq!(close_files(&config).unwrap(), [""; 0].map(PathBuf::from));
    }
}
