//! The lab's folder of sockets, disks and logs, and the removal of folders that killed labs left behind.
//!
//! Each lab has a folder `<temp>/rackwright-lab-<uid>/<pid>-<n>/` with a file `lock`, which the process outside the
//! namespace keeps locked (`flock`) while it lives. A folder with a free lock has no owner any more.

use super::LabError;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const LOCK: &str = "lock";

/// A lab's folder; dropping it removes the folder.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Removes the folders of dead labs and creates a new one.
    pub(crate) fn create() -> Result<Self, LabError> {
        let parent = std::env::temp_dir().join(format!("rackwright-lab-{}", nix::unistd::getuid()));
        private_dir(&parent)?;
        // This lock is held to create and to sweep folders, so that no folder is seen before its own lock is taken.
        let guard = lock_file(&parent.join(".lock"))?;
        guard.lock().map_err(LabError::file("lock", &parent))?;
        sweep(&parent)?;
        let path = new_dir(&parent)?;
        let lock_path = path.join(LOCK);
        let mut lock = lock_file(&lock_path)?;
        lock.lock().map_err(LabError::file("lock", &lock_path))?;
        writeln!(lock, "{}", std::process::id()).map_err(LabError::file("write", &lock_path))?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "could not remove the lab's folder");
        }
    }
}

/// Creates the folder for one user's labs, or checks that the existing one belongs to this user alone and is not a link.
fn private_dir(path: &Path) -> Result<(), LabError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(LabError::file("create", path)(error)),
    }
    let meta = fs::symlink_metadata(path).map_err(LabError::file("read", path))?;
    let ours = meta.is_dir() && meta.uid() == nix::unistd::getuid().as_raw() && meta.mode() & 0o022 == 0;
    if ours {
        return Ok(());
    }
    let fault = io::Error::other("it is not a folder that only this user can write to; remove it or set TMPDIR");
    Err(LabError::file("use", path)(fault))
}

fn new_dir(parent: &Path) -> Result<PathBuf, LabError> {
    let mut n = 0;
    loop {
        let path = parent.join(format!("{}-{n}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < 1000 => n += 1,
            Err(error) => return Err(LabError::file("create", &path)(error)),
        }
    }
}

fn lock_file(path: &Path) -> Result<File, LabError> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(LabError::file("open", path))
}

/// Removes every lab folder in `parent` with a free lock.
fn sweep(parent: &Path) -> Result<(), LabError> {
    for entry in fs::read_dir(parent).map_err(LabError::file("list", parent))? {
        let path = entry.map_err(LabError::file("list", parent))?.path();
        if !path.is_dir() {
            continue;
        }
        let lock_path = path.join(LOCK);
        let lock = lock_file(&lock_path)?;
        match lock.try_lock() {
            Ok(()) => {
                tracing::info!(path = %path.display(), "removing the folder of a lab that has ended");
                fs::remove_dir_all(&path).map_err(LabError::file("remove", &path))?;
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(LabError::file("lock", &lock_path)(error)),
        }
    }
    Ok(())
}

/// Takes the lock of a folder that the user chose for the machines' files, so that no two labs share it.
pub(crate) fn claim(dir: &Path) -> Result<File, LabError> {
    fs::create_dir_all(dir).map_err(LabError::file("create", dir))?;
    let path = dir.join(LOCK);
    let lock = lock_file(&path)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(LabError::file("use", dir)(io::Error::other(
            "another lab is using this folder",
        ))),
        Err(TryLockError::Error(error)) => Err(LabError::file("lock", &path)(error)),
    }
}
