//! Rotation of a site's keys: later keys and their files.
//!
//! ```text
//! DATA/keys/
//!   sealing-0002.key         0600  32 bytes; seals when every replica has it, and opens beside the older ones
//!   signing-0002.key         0600  the seed, 32 bytes, and the former key's signature over the new public key, 64 bytes
//!   signing-0001.pub         0600  text: the public half of a retired key, and the signature of its predecessor
//! ```
//!
//! A rotation is one rename of a complete, synced file. A retired signing key leaves its public half, which is written
//! before the private half is removed, so that the site's certificates by that key stay verifiable. The next start
//! completes a rotation that a crash interrupted.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use secrecy::zeroize::Zeroizing;

use crate::key_files::{
    KeyFileError, KeyFiles, NEW_KEY_PREFIX, SET, SIGNING, io_error, lock, read_key, read_private, sealing_files,
    sealing_name, sync_directory, write_private,
};
use crate::rng::{Rng, random};
use crate::seal::SealingKey;
use crate::signer::{CertificateSigner, SigningKey};

const SEED_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;
const SIGNING_PREFIX: &str = "signing-";
const PRIVATE_SUFFIX: &str = ".key";
const PUBLIC_SUFFIX: &str = ".pub";

impl KeyFiles {
    /// Adds a sealing key to an existing set. Returns its file and its id. Older keys still open the secrets that they
    /// sealed, and stay until [`OldSealingKeys::remove`].
    pub fn rotate_sealing_key(data_dir: &Path, rng: &dyn Rng) -> Result<(PathBuf, String), KeyFileError> {
        let set = data_dir.join(SET);
        let _lock = lock(data_dir)?;
        let newest = sealing_files(&set)?.first().map(|(number, _)| *number);
        let newest = newest.ok_or_else(|| KeyFileError::Missing(set.join(sealing_name(1))))?;
        let key = SealingKey::generate(rng)?;
        let target = set.join(sealing_name(newest + 1));
        write_key_file(&set, &target, key.expose(), rng)?;
        Ok((target, key.id()))
    }

    /// Adds a signing key to an existing set. The present key signs the new one and is then retired. Returns the new key's
    /// file and the new key.
    pub fn rotate_signing_key(data_dir: &Path, rng: &dyn Rng) -> Result<(PathBuf, SigningKey), KeyFileError> {
        let set = data_dir.join(SET);
        let _lock = lock(data_dir)?;
        let (next, key) = load_signer(&set)?.successor(rng)?;
        let bytes = Zeroizing::new([&next.seed()[..], &key.signature].concat());
        let target = set.join(private_name(key.number));
        write_key_file(&set, &target, &bytes, rng)?;
        retire_signing_keys(&set)?;
        Ok((target, key))
    }
}

/// All sealing keys but the newest. While this value exists, no other process adds or removes keys.
#[derive(Debug)]
pub struct OldSealingKeys {
    _lock: fs::File,
    set: PathBuf,
    newest: String,
    old: Vec<PathBuf>,
}

impl OldSealingKeys {
    /// Finds the old keys of an existing set.
    pub fn of(data_dir: &Path) -> Result<Self, KeyFileError> {
        let set = data_dir.join(SET);
        let lock = lock(data_dir)?;
        let mut files = sealing_files(&set)?.into_iter().map(|(_, path)| path);
        let newest = files.next();
        let newest = newest.ok_or_else(|| KeyFileError::Missing(set.join(sealing_name(1))))?;
        Ok(Self {
            _lock: lock,
            newest: SealingKey::from_bytes(*read_key(&newest)?).id(),
            old: files.collect(),
            set,
        })
    }

    /// The id of the newest key.
    #[must_use]
    pub fn newest(&self) -> &str {
        &self.newest
    }

    /// The files of the older keys.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.old
    }

    /// Removes the older keys for good. Secrets that they sealed never open again.
    pub fn remove(self) -> Result<(), KeyFileError> {
        for path in &self.old {
            fs::remove_file(path).map_err(io_error("remove", path))?;
        }
        sync_directory(&self.set)
    }
}

/// Creates a file of the set with one rename.
pub(crate) fn write_key_file(set: &Path, target: &Path, bytes: &[u8], rng: &dyn Rng) -> Result<(), KeyFileError> {
    let temporary = set.join(format!("{NEW_KEY_PREFIX}{}", hex::encode(random::<8>(rng)?)));
    write_private(&temporary, bytes)?;
    match_owner(set, &temporary)?;
    fs::rename(&temporary, target).map_err(io_error("rename to", target))?;
    sync_directory(set)
}

/// Gives a file that root creates to the user that the daemon runs as; otherwise the daemon could not read it.
fn match_owner(set: &Path, file: &Path) -> Result<(), KeyFileError> {
    let (wanted, made) = (fs::metadata(set), fs::metadata(file));
    let (wanted, made) = (
        wanted.map_err(io_error("read", set))?,
        made.map_err(io_error("read", file))?,
    );
    if wanted.uid() == made.uid() {
        return Ok(());
    }
    chown(file, Some(wanted.uid()), Some(wanted.gid())).map_err(io_error("give to the folder's owner", file))
}

fn private_name(number: u32) -> String {
    match number {
        1 => SIGNING.to_owned(),
        number => format!("{SIGNING_PREFIX}{number:04}{PRIVATE_SUFFIX}"),
    }
}

fn public_name(number: u32) -> String {
    format!("{SIGNING_PREFIX}{number:04}{PUBLIC_SUFFIX}")
}

/// Returns the numbers of the signing keys with a private half in the set and of those with a public file, both ascending.
fn signing_numbers(set: &Path) -> Result<(Vec<u32>, Vec<u32>), KeyFileError> {
    let (mut private, mut public) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(set).map_err(io_error("list", set))? {
        let entry = entry.map_err(io_error("list", set))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name == SIGNING {
            private.push(1);
        }
        let Some(rest) = name.strip_prefix(SIGNING_PREFIX) else {
            continue;
        };
        let (list, digits) = match (rest.strip_suffix(PRIVATE_SUFFIX), rest.strip_suffix(PUBLIC_SUFFIX)) {
            (Some(digits), _) => (&mut private, digits),
            (_, Some(digits)) => (&mut public, digits),
            _ => continue,
        };
        let number = digits.parse().ok().filter(|number| *number > 0);
        list.push(number.ok_or_else(|| malformed(&entry.path(), "its name has no number"))?);
    }
    private.sort_unstable();
    public.sort_unstable();
    Ok((private, public))
}

fn malformed(path: &Path, what: &'static str) -> KeyFileError {
    KeyFileError::Malformed {
        path: path.into(),
        what,
    }
}

/// Loads the signing key of the set and the chain that leads to it.
pub(crate) fn load_signer(set: &Path) -> Result<CertificateSigner, KeyFileError> {
    let (private, public) = signing_numbers(set)?;
    let retired = public.last().copied().unwrap_or(0);
    let current = private.last().copied().filter(|number| *number > retired);
    let current = current.ok_or_else(|| KeyFileError::Missing(set.join(private_name(retired + 1))))?;
    let mut keys = Vec::new();
    for number in 1..current {
        keys.push(match public.contains(&number) {
            true => read_public(set, number, keys.last())?,
            false if private.contains(&number) => read_private_key(set, number)?.1,
            false => return Err(KeyFileError::Missing(set.join(public_name(number)))),
        });
    }
    let (signer, key) = read_private_key(set, current)?;
    keys.push(key);
    let path = set.join(private_name(current));
    let signer = signer.with_chain(keys);
    signer.map_err(|_| malformed(&path, "an earlier key has not signed its successor"))
}

fn read_private_key(set: &Path, number: u32) -> Result<(CertificateSigner, SigningKey), KeyFileError> {
    let path = set.join(private_name(number));
    let bytes = read_private(&path)?;
    let (seed, signature) = bytes
        .split_first_chunk::<SEED_BYTES>()
        .ok_or_else(|| malformed(&path, "it is not 32 bytes"))?;
    match (number, signature.len()) {
        (1, 0) | (2.., SIGNATURE_BYTES) => {}
        (1, _) => return Err(malformed(&path, "it is not 32 bytes")),
        _ => return Err(malformed(&path, "it is not 96 bytes")),
    }
    let signer = CertificateSigner::from_seed(*seed)?;
    let key = SigningKey {
        number,
        public_key: signer.public_key(),
        signature: signature.to_vec(),
    };
    Ok((signer, key))
}

/// The text of a public file: the statement that the previous key signed, and its signature.
fn public_text(key: &SigningKey, previous: Option<&SigningKey>) -> String {
    let previous = previous.map_or([0; SEED_BYTES], |previous| previous.public_key);
    format!(
        "{}signature={}\n",
        key.statement(&previous),
        hex::encode(&key.signature)
    )
}

fn read_public(set: &Path, number: u32, previous: Option<&SigningKey>) -> Result<SigningKey, KeyFileError> {
    let path = set.join(public_name(number));
    let bytes = read_private(&path)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| malformed(&path, "it is not text"))?;
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default()
    };
    let mut public_key = [0; SEED_BYTES];
    hex::decode_to_slice(value("public_key="), &mut public_key)
        .map_err(|_| malformed(&path, "it contains no public key"))?;
    let signature =
        hex::decode(value("signature=")).map_err(|_| malformed(&path, "its signature is not in hex digits"))?;
    let key = SigningKey {
        number,
        public_key,
        signature,
    };
    match public_text(&key, previous) == text {
        true => Ok(key),
        false => Err(malformed(&path, "its content was changed")),
    }
}

/// Stores the public halves of signing keys that have a successor, and removes their private halves.
pub(crate) fn retire_signing_keys(set: &Path) -> Result<(), KeyFileError> {
    let (private, public) = signing_numbers(set)?;
    let Some((_, older)) = private.split_last().filter(|(_, older)| !older.is_empty()) else {
        return Ok(());
    };
    let keys = load_signer(set)?.keys();
    for (place, key) in keys.iter().enumerate() {
        if !older.contains(&key.number) {
            continue;
        }
        if !public.contains(&key.number) {
            let target = set.join(public_name(key.number));
            let text = public_text(key, place.checked_sub(1).and_then(|place| keys.get(place)));
            let temporary = set.join(format!("{NEW_KEY_PREFIX}{}", public_name(key.number)));
            let _ = fs::remove_file(&temporary);
            write_private(&temporary, text.as_bytes())?;
            match_owner(set, &temporary)?;
            fs::rename(&temporary, &target).map_err(io_error("rename to", &target))?;
            sync_directory(set)?;
        }
        let path = set.join(private_name(key.number));
        fs::remove_file(&path).map_err(io_error("remove", &path))?;
    }
    sync_directory(set)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use secrecy::{ExposeSecret as _, SecretString};

    use super::*;
    use crate::SystemRng;

    fn open(dir: &Path) -> Result<KeyFiles, KeyFileError> {
        let now = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        KeyFiles::load_or_create(dir, "Rackwright test", now, Arc::new(SystemRng))
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir.join(SET)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_sealing_key_seals_and_the_old_one_opens_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let previous = open(dir.path()).unwrap();
        let blob = previous.sealer.seal(&SecretString::from("x".to_owned()), "p").unwrap();
        let (path, id) = KeyFiles::rotate_sealing_key(dir.path(), &SystemRng).unwrap();
        assert!(path.ends_with("keys/sealing-0002.key"));
        let after = open(dir.path()).unwrap();
        assert_eq!(after.sealer.seals_with(), id);
        assert!(after.sealer.needs_reseal(&blob));
        assert_eq!(after.sealer.open(&blob, "p").unwrap().expose_secret(), "x");

        // A running process loads the new key.
        assert_eq!(previous.refresh(dir.path()).unwrap(), [format!("sealing key {id}")]);
        assert_eq!(previous.refresh(dir.path()).unwrap(), [""; 0]);
        assert!(previous.sealer.seals_with() != id && previous.sealer.use_sealing_key(&id));

        let old = OldSealingKeys::of(dir.path()).unwrap();
        assert_eq!((old.newest(), old.files().len()), (id.as_str(), 1));
        old.remove().unwrap();
        assert!(OldSealingKeys::of(dir.path()).unwrap().files().is_empty());
        let last = open(dir.path()).unwrap();
        assert!(last.sealer.open(&blob, "p").is_err());
    }

    #[test]
    fn a_new_signing_key_follows_from_the_first_one_and_the_old_private_half_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let running = open(dir.path()).unwrap();
        let first = running.signer.public_key();
        for _ in 0..3 {
            KeyFiles::rotate_signing_key(dir.path(), &SystemRng).unwrap();
        }
        assert_eq!(
            names(dir.path()),
            [
                "authority.pem",
                "sealing-0001.key",
                "signing-0001.pub",
                "signing-0002.pub",
                "signing-0003.pub",
                "signing-0004.key"
            ]
        );
        let after = open(dir.path()).unwrap();
        let keys = after.signer.keys();
        assert_eq!((keys.len(), keys[0].public_key), (4, first));
        SigningKey::check_chain(&keys).unwrap();
        assert_eq!(running.refresh(dir.path()).unwrap().len(), 1);
        assert_eq!(running.signer.keys(), keys);
    }

    #[test]
    fn a_rotation_that_a_crash_cut_short_is_finished_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).unwrap();
        let set = dir.path().join(SET);
        let older = fs::read(set.join(SIGNING)).unwrap();
        KeyFiles::rotate_signing_key(dir.path(), &SystemRng).unwrap();
        let public = fs::read(set.join("signing-0001.pub")).unwrap();
        let keys = open(dir.path()).unwrap().signer.keys();
        // The private half still exists, with and without the public file.
        for with_public in [true, false] {
            write_private(&set.join(SIGNING), &older).unwrap();
            if !with_public {
                fs::remove_file(set.join("signing-0001.pub")).unwrap();
            }
            assert_eq!(open(dir.path()).unwrap().signer.keys(), keys);
            assert!(!set.join(SIGNING).exists());
            assert_eq!(fs::read(set.join("signing-0001.pub")).unwrap(), public);
        }
    }

    #[test]
    fn a_chain_with_a_gap_or_another_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).unwrap();
        let set = dir.path().join(SET);
        let first = fs::read(set.join(SIGNING)).unwrap();
        KeyFiles::rotate_signing_key(dir.path(), &SystemRng).unwrap();
        let second = fs::read(set.join("signing-0002.key")).unwrap();
        let public = fs::read(set.join("signing-0001.pub")).unwrap();
        let put = |name: &str, bytes: &[u8]| {
            let _ = fs::remove_file(set.join(name));
            write_private(&set.join(name), bytes).unwrap();
        };

        // The newest private key is missing: the previous key does not take its place.
        fs::remove_file(set.join("signing-0002.key")).unwrap();
        assert!(matches!(open(dir.path()), Err(KeyFileError::Missing(path)) if path.ends_with("signing-0002.key")));
        put(SIGNING, &first);
        assert!(matches!(open(dir.path()), Err(KeyFileError::Missing(path)) if path.ends_with("signing-0002.key")));
        fs::remove_file(set.join(SIGNING)).unwrap();

        // Another key in its place, not signed by the first one.
        let mut other = second.clone();
        other[0] ^= 1;
        put("signing-0002.key", &other);
        assert!(open(dir.path()).is_err());
        put("signing-0002.key", &second);
        assert!(open(dir.path()).is_ok());

        // A different first key.
        let stranger = CertificateSigner::from_seed([7; 32]).unwrap().keys();
        put("signing-0001.pub", public_text(&stranger[0], None).as_bytes());
        assert!(open(dir.path()).is_err());
        fs::remove_file(set.join("signing-0001.pub")).unwrap();
        assert!(matches!(open(dir.path()), Err(KeyFileError::Missing(path)) if path.ends_with("signing-0001.pub")));
        put("signing-0001.pub", &public);
        assert!(open(dir.path()).is_ok());
    }
}
