//! The control plane's keys on disk.
//!
//! ```text
//! DATA/keys/                 0700
//!   authority.pem            0600  the CA's certificate and its key; see `authority_files` for later ones
//!   sealing-0001.key         0600  32 bytes; the highest number seals, all of them open
//!   signing.key              0600  32 bytes, the Ed25519 seed that signs erase certificates; see `rotation` for later ones
//! DATA/keys.lock             0600  held while keys are made
//! ```
//!
//! The set is created in a directory of another name. Every file and the directory are synced, then the directory is
//! renamed: after a crash there are either all keys or none. A missing file in an existing set is an error and is never
//! recreated: a new key in its place would leave sealed secrets unreadable and clients without trust. Key files that the
//! group or others can read are refused.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use secrecy::zeroize::Zeroizing;

use crate::authorities::Authorities;
use crate::authority::{Authority, CertificateError};
use crate::authority_files::{self, authority_name, authority_pem};
use crate::rng::{Rng, RngError, random};
use crate::rotation;
use crate::seal::{SealError, Sealer, SealingKey};
use crate::signer::{CertificateSigner, SignatureError};
use crate::tls::TlsError;

pub(crate) const SET: &str = "keys";
const LOCK: &str = "keys.lock";
pub(crate) const NEW_SET_PREFIX: &str = ".keys-new-";
pub(crate) const NEW_KEY_PREFIX: &str = ".new-";
pub(crate) const SIGNING: &str = "signing.key";
const SEALING_PREFIX: &str = "sealing-";
const SEALING_SUFFIX: &str = ".key";
const FILE_MAX_BYTES: u64 = 64 * 1024;

/// Why the keys cannot be used. Permanent, except [`KeyFileError::Io`] and [`KeyFileError::Rng`].
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// A file system call failed.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// The failed action.
        what: &'static str,
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Other users can read a key.
    #[error("{} can be read by other users (mode {mode:04o}); make it private: chmod {wanted:o} {}", path.display(), path.display())]
    Exposed {
        /// File or directory with the wrong mode.
        path: PathBuf,
        mode: u32,
        /// The required mode.
        wanted: u32,
    },
    /// There are no keys yet, and the call may not create any.
    #[error(
        "{} does not exist, so this data directory has no keys yet; start rackwrightd once, or correct the data directory",
        .0.display()
    )]
    NoSet(PathBuf),
    /// A key of the set is missing.
    #[error("{} is missing from an existing set of keys; restore it from the backup (a new key cannot replace it)", .0.display())]
    Missing(PathBuf),
    /// A key file has invalid content.
    #[error("{} is not a key file: {what}", path.display())]
    Malformed {
        /// The invalid file.
        path: PathBuf,
        /// The fault in it.
        what: &'static str,
    },
    /// The CA in the set cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The set already has two authorities.
    #[error("a rotation of the authority is under way; `rackwrightd rotate-keys ca --finish` ends it")]
    AuthorityRotates,
    /// The authorities in the set cannot check client certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The sealing keys in the set cannot be used.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The signing key in the set cannot be used.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// No random bytes. Retryable.
    #[error(transparent)]
    Rng(#[from] RngError),
}

/// The control plane's keys, ready for use.
pub struct KeyFiles {
    /// Issues certificates.
    pub authority: Authorities,
    rng: Arc<dyn Rng>,
    /// Seals secrets.
    pub sealer: Sealer,
    /// Signs erase certificates.
    pub signer: CertificateSigner,
    /// Whether this call created the set: the first start of a site.
    pub created: bool,
}

impl fmt::Debug for KeyFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFiles")
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

impl KeyFiles {
    /// Loads the keys in `data_dir`, or creates them at the first start. `subject` names a new CA and is otherwise unused;
    /// an empty `subject` creates no keys.
    pub fn load_or_create(
        data_dir: &Path,
        subject: &str,
        now: SystemTime,
        rng: Arc<dyn Rng>,
    ) -> Result<Self, KeyFileError> {
        private_directory(data_dir)?;
        let set = data_dir.join(SET);
        let _lock = lock(data_dir)?;
        let created = !exists(&set)?;
        if created && subject.is_empty() {
            return Err(KeyFileError::NoSet(set));
        }
        if created {
            create_set(data_dir, subject, now, &rng, &mut |_| Ok(()))?;
        }
        remove_unfinished(data_dir)?;
        Self::load(&set, rng, created)
    }

    /// Loads keys that were added to the set meanwhile. Returns a text for each new key.
    pub fn refresh(&self, data_dir: &Path) -> Result<Vec<String>, KeyFileError> {
        let set = data_dir.join(SET);
        let _lock = lock(data_dir)?;
        let mut new = Vec::new();
        let known = self.sealer.key_ids();
        let keys = sealing_keys(&set)?;
        new.extend(
            keys.iter()
                .map(SealingKey::id)
                .filter(|id| !known.contains(id))
                .map(|id| format!("sealing key {id}")),
        );
        self.sealer.add_keys(&keys)?;
        let signer = rotation::load_signer(&set)?;
        let key = hex::encode(signer.public_key());
        if self.signer.replace(signer) {
            new.push(format!("signing key {key}"));
        }
        let authorities = authority_files::load_authorities(&set, &self.rng)?;
        new.extend(self.authority.replace(authorities)?);
        Ok(new)
    }

    pub(crate) fn load(set: &Path, rng: Arc<dyn Rng>, created: bool) -> Result<Self, KeyFileError> {
        check_private(&fs::metadata(set).map_err(io_error("read", set))?, set, 0o700)?;
        authority_files::remove_retired(set)?;
        let authority = authority_files::load_authorities(set, &rng)?;
        let sealer = Sealer::new(&sealing_keys(set)?, rng.clone())?;
        rotation::retire_signing_keys(set)?;
        let signer = rotation::load_signer(set)?;
        Ok(Self {
            authority,
            rng,
            sealer,
            signer,
            created,
        })
    }
}

/// Creates the whole set. Calls `after` with the name of each completed step; tests use it to simulate a crash.
fn create_set(
    data_dir: &Path,
    subject: &str,
    now: SystemTime,
    rng: &Arc<dyn Rng>,
    after: &mut dyn FnMut(&'static str) -> Result<(), KeyFileError>,
) -> Result<(), KeyFileError> {
    let new = data_dir.join(format!("{NEW_SET_PREFIX}{}", hex::encode(random::<8>(rng.as_ref())?)));
    DirBuilder::new()
        .mode(0o700)
        .create(&new)
        .map_err(io_error("create", &new))?;
    after("directory")?;
    let authority = Authority::create(subject, now, rng.clone())?;
    write_private(&new.join(authority_name(1)), authority_pem(&authority).as_bytes())?;
    after("authority")?;
    write_private(&new.join(sealing_name(1)), SealingKey::generate(rng.as_ref())?.expose())?;
    after("sealing")?;
    write_private(&new.join(SIGNING), &*CertificateSigner::generate(rng.as_ref())?.seed())?;
    after("signing")?;
    sync_directory(&new)?;
    after("synced")?;
    let set = data_dir.join(SET);
    fs::rename(&new, &set).map_err(io_error("rename to", &set))?;
    after("renamed")?;
    sync_directory(data_dir)
}

/// Removes unfinished sets and keys after a crash. The caller holds the lock, so no other process is creating any.
fn remove_unfinished(data_dir: &Path) -> Result<(), KeyFileError> {
    let set = data_dir.join(SET);
    for entry in fs::read_dir(&set).map_err(io_error("list", &set))? {
        let path = entry.map_err(io_error("list", &set))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(NEW_KEY_PREFIX) {
            fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
    }
    for entry in fs::read_dir(data_dir).map_err(io_error("list", data_dir))? {
        let entry = entry.map_err(io_error("list", data_dir))?;
        if entry.file_name().to_string_lossy().starts_with(NEW_SET_PREFIX) {
            let path = entry.path();
            fs::remove_dir_all(&path).map_err(io_error("remove", &path))?;
        }
    }
    Ok(())
}

/// The sealing keys of the set, newest first.
fn sealing_keys(set: &Path) -> Result<Vec<SealingKey>, KeyFileError> {
    let files = sealing_files(set)?;
    if files.is_empty() {
        return Err(KeyFileError::Missing(set.join(sealing_name(1))));
    }
    let keys = files.iter();
    keys.map(|(_, path)| Ok(SealingKey::from_bytes(*read_key(path)?)))
        .collect()
}

/// The files of the sealing keys of the set, newest first.
pub(crate) fn sealing_files(set: &Path) -> Result<Vec<(u32, PathBuf)>, KeyFileError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(set).map_err(io_error("list", set))? {
        let entry = entry.map_err(io_error("list", set))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let Some(number) = name
            .strip_prefix(SEALING_PREFIX)
            .and_then(|n| n.strip_suffix(SEALING_SUFFIX))
        else {
            continue;
        };
        let number = number.parse().map_err(|_| KeyFileError::Malformed {
            path: entry.path(),
            what: "its name has no number",
        })?;
        files.push((number, entry.path()));
    }
    files.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    Ok(files)
}

pub(crate) fn sealing_name(number: u32) -> String {
    format!("{SEALING_PREFIX}{number:04}{SEALING_SUFFIX}")
}

pub(crate) fn read_key(path: &Path) -> Result<Zeroizing<[u8; 32]>, KeyFileError> {
    let bytes = read_private(path)?;
    let key = <[u8; 32]>::try_from(bytes.as_slice());
    key.map(Zeroizing::new).map_err(|_| KeyFileError::Malformed {
        path: path.into(),
        what: "it is not 32 bytes",
    })
}

/// Reads a file that only its owner can read. The mode check uses the opened file.
pub(crate) fn read_private(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(KeyFileError::Missing(path.into())),
        other => other.map_err(io_error("open", path))?,
    };
    let metadata = file.metadata().map_err(io_error("read", path))?;
    check_private(&metadata, path, 0o600)?;
    if !metadata.is_file() || metadata.len() > FILE_MAX_BYTES {
        return Err(KeyFileError::Malformed {
            path: path.into(),
            what: "it is not a regular file of at most 64 KiB",
        });
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(metadata.len() as usize + 1));
    file.take(FILE_MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(io_error("read", path))?;
    Ok(bytes)
}

/// Creates a new file and syncs it to disk. Fails if the file exists.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(io_error("create", path))?;
    file.write_all(bytes).map_err(io_error("write", path))?;
    file.sync_all().map_err(io_error("sync", path))
}

fn check_private(metadata: &fs::Metadata, path: &Path, wanted: u32) -> Result<(), KeyFileError> {
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 == 0 {
        Ok(())
    } else {
        Err(KeyFileError::Exposed {
            path: path.into(),
            mode,
            wanted,
        })
    }
}

/// Creates the data directory if it does not exist. An existing one may be shared; the keys below it may not.
pub(crate) fn private_directory(path: &Path) -> Result<(), KeyFileError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(io_error("create", path))
}

pub(crate) fn lock(data_dir: &Path) -> Result<File, KeyFileError> {
    let path = data_dir.join(LOCK);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(io_error("open", &path))?;
    file.lock().map_err(io_error("lock", &path))?;
    Ok(file)
}

fn exists(path: &Path) -> Result<bool, KeyFileError> {
    path.try_exists().map_err(io_error("look for", path))
}

pub(crate) fn sync_directory(path: &Path) -> Result<(), KeyFileError> {
    File::open(path)
        .and_then(|d| d.sync_all())
        .map_err(io_error("sync", path))
}

pub(crate) fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyFileError {
    let path = path.to_owned();
    move |source| KeyFileError::Io { what, path, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, UNIX_EPOCH};

    use secrecy::{ExposeSecret as _, SecretString};

    use super::*;
    use crate::SystemRng;

    const AUTHORITY: &str = "authority.pem";

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_790_000_000)
    }

    fn rng() -> Arc<dyn Rng> {
        Arc::new(SystemRng)
    }

    fn open(dir: &Path) -> Result<KeyFiles, KeyFileError> {
        KeyFiles::load_or_create(dir, "Rackwright test", now(), rng())
    }

    #[test]
    fn the_second_start_finds_the_same_keys() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("var/data");
        let first = open(&data).unwrap();
        let second = open(&data).unwrap();
        assert!(first.created && !second.created);
        assert_eq!(first.authority.ca_sha256(), second.authority.ca_sha256());
        assert_eq!(first.signer.public_key(), second.signer.public_key());
        let blob = first.sealer.seal(&SecretString::from("x".to_owned()), "p").unwrap();
        assert_eq!(second.sealer.open(&blob, "p").unwrap().expose_secret(), "x");
        for name in [AUTHORITY, SIGNING, "sealing-0001.key"] {
            let mode = fs::metadata(data.join(SET).join(name)).unwrap().mode();
            assert_eq!(mode & 0o7777, 0o600, "{name}");
        }
    }

    #[test]
    fn a_call_that_may_not_create_keys_reports_missing_keys() {
        let dir = tempfile::tempdir().unwrap();
        let load = || KeyFiles::load_or_create(dir.path(), "", now(), rng());
        let error = load().unwrap_err();
        assert!(
            matches!(&error, KeyFileError::NoSet(path) if *path == dir.path().join(SET)),
            "{error}"
        );
        assert!(!error.to_string().contains("backup"), "{error}");
        open(dir.path()).unwrap();
        assert!(!load().unwrap().created);
    }

    #[test]
    fn a_crash_at_any_step_leaves_all_or_nothing() {
        for stop in ["directory", "authority", "sealing", "signing", "synced", "renamed"] {
            let dir = tempfile::tempdir().unwrap();
            let mut seen = false;
            let crashed = create_set(dir.path(), "Rackwright test", now(), &rng(), &mut |step| {
                seen |= step == stop;
                if step == stop {
                    Err(KeyFileError::Rng(RngError))
                } else {
                    Ok(())
                }
            });
            assert!(seen && crashed.is_err(), "{stop} was never reached");
            let keys = open(dir.path()).unwrap();
            assert_eq!(keys.created, stop != "renamed", "{stop}");
            let names: Vec<_> = fs::read_dir(dir.path())
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            assert_eq!(names.len(), 2, "{stop} left {names:?}");
            assert_eq!(
                open(dir.path()).unwrap().authority.ca_sha256(),
                keys.authority.ca_sha256()
            );
        }
    }

    #[test]
    fn concurrent_first_starts_agree() {
        let dir = tempfile::tempdir().unwrap();
        let hashes: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| open(dir.path()).unwrap().authority.ca_sha256()))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(hashes.windows(2).all(|w| w[0] == w[1]), "{hashes:?}");
    }

    #[test]
    fn keys_that_others_can_read_are_refused() {
        for (name, mode) in [
            (AUTHORITY, 0o640),
            (SIGNING, 0o604),
            ("sealing-0001.key", 0o644),
            ("", 0o750),
        ] {
            let dir = tempfile::tempdir().unwrap();
            open(dir.path()).unwrap();
            let path = dir.path().join(SET).join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = open(dir.path()).unwrap_err();
            assert!(matches!(error, KeyFileError::Exposed { .. }), "{error}");
            assert!(error.to_string().contains("chmod"), "{error}");
        }
    }

    #[test]
    fn a_missing_key_is_never_replaced() {
        for name in [AUTHORITY, SIGNING, "sealing-0001.key"] {
            let dir = tempfile::tempdir().unwrap();
            open(dir.path()).unwrap();
            let path = dir.path().join(SET).join(name);
            fs::remove_file(&path).unwrap();
            assert!(
                matches!(open(dir.path()), Err(KeyFileError::Missing(p)) if p == path),
                "{name}"
            );
            assert!(!path.exists());
        }
    }

    #[test]
    fn damaged_keys_are_refused() {
        for (name, content) in [
            (SIGNING, &b"short"[..]),
            ("sealing-0001.key", &[0; 33]),
            ("sealing-x.key", &[0; 32]),
            (AUTHORITY, b"nothing"),
            (AUTHORITY, b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            open(dir.path()).unwrap();
            let path = dir.path().join(SET).join(name);
            let _ = fs::remove_file(&path);
            write_private(&path, content).unwrap();
            assert!(open(dir.path()).is_err(), "{name}");
        }
    }

    #[test]
    fn another_sites_ca_key_is_refused() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        open(one.path()).unwrap();
        open(two.path()).unwrap();
        let read = |dir: &Path| fs::read_to_string(dir.join(SET).join(AUTHORITY)).unwrap();
        let (first, second) = (read(one.path()), read(two.path()));
        let split = |text: &str| text.find("-----BEGIN PRIVATE").unwrap();
        let mixed = format!("{}{}", &first[..split(&first)], &second[split(&second)..]);
        fs::write(one.path().join(SET).join(AUTHORITY), mixed).unwrap();
        let error = open(one.path()).unwrap_err();
        assert!(
            error.to_string().contains("does not belong to its certificate"),
            "{error}"
        );
    }
}
