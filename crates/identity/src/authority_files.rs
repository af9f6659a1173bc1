//! The files of the site's certificate authorities, in the key folder (the set).
//!
//! ```text
//! DATA/keys/
//!   authority.pem            0600  certificate and key of the first authority
//!   authority-0002.pem       0600  certificate and key of the next authority; during a rotation both files exist
//!   authority-0001.crt       0600  certificate of a retired authority: no longer trusted, and its key is removed
//! ```
//!
//! A rotation begins when the file of the next authority is complete, synced and renamed to its final name. A rotation ends
//! with two steps: the certificate of the former authority is written, and the file with its key is removed. If a crash
//! comes between the two steps, the next start removes the file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretString};

use crate::authorities::Authorities;
use crate::authority::{Authority, SUBJECT_MAX, sha256_of_pem};
use crate::key_files::{KeyFileError, KeyFiles, SET, io_error, lock, read_private, sync_directory};
use crate::rng::Rng;
use crate::rotation::write_key_file;

const FIRST: &str = "authority.pem";
const PREFIX: &str = "authority-";
const PRIVATE_SUFFIX: &str = ".pem";
const RETIRED_SUFFIX: &str = ".crt";

/// Name of the file with certificate and key.
pub(crate) fn authority_name(number: u32) -> String {
    match number {
        1 => FIRST.to_owned(),
        number => format!("{PREFIX}{number:04}{PRIVATE_SUFFIX}"),
    }
}

/// Name of the file with only the certificate.
fn retired_name(number: u32) -> String {
    format!("{PREFIX}{number:04}{RETIRED_SUFFIX}")
}

/// Certificate and key in PEM.
pub(crate) fn authority_pem(authority: &Authority) -> Zeroizing<String> {
    let key = authority.key_pem();
    Zeroizing::new(format!("{}{}", authority.ca_pem(), key.expose_secret()))
}

/// The authorities in the key folder.
struct AuthoritySet {
    /// Authorities with a key, in the order of their numbers: one, or two during a rotation.
    live: Vec<(u32, Arc<Authority>)>,
    /// Retired authorities in the order of their numbers, each with the SHA-256 of its certificate.
    retired: Vec<(u32, String)>,
}

/// Returns the numbers of the authorities with a key and of the retired authorities, both ascending.
fn numbers(set: &Path) -> Result<(Vec<u32>, Vec<u32>), KeyFileError> {
    let (mut private, mut retired) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(set).map_err(io_error("list", set))? {
        let entry = entry.map_err(io_error("list", set))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name == FIRST {
            private.push(1);
        }
        let Some(rest) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let (list, digits) = match (rest.strip_suffix(PRIVATE_SUFFIX), rest.strip_suffix(RETIRED_SUFFIX)) {
            (Some(digits), _) => (&mut private, digits),
            (_, Some(digits)) => (&mut retired, digits),
            _ => continue,
        };
        let number = digits.parse().ok().filter(|number| *number > 0);
        list.push(number.ok_or_else(|| KeyFileError::Malformed {
            path: entry.path(),
            what: "its name has no number",
        })?);
    }
    private.sort_unstable();
    retired.sort_unstable();
    Ok((private, retired))
}

/// Loads the authorities of the set. An error if a file is missing, or if more than two authorities have a key.
fn find(set: &Path, rng: &Arc<dyn Rng>) -> Result<AuthoritySet, KeyFileError> {
    let (private, retired) = numbers(set)?;
    let last_retired = retired.last().copied().unwrap_or(0);
    // An authority with both files is retired: its certificate is written before its key is removed.
    let live: Vec<u32> = private.into_iter().filter(|number| *number > last_retired).collect();
    let first = live.first().copied().unwrap_or(last_retired + 1);
    for number in 1..first {
        // The numbers before the first authority with a key must all be retired.
        if !retired.contains(&number) {
            return Err(KeyFileError::Missing(set.join(match number {
                1 if retired.is_empty() => authority_name(1),
                number => retired_name(number),
            })));
        }
    }
    if live.first() != Some(&(last_retired + 1)) {
        return Err(KeyFileError::Missing(set.join(authority_name(last_retired + 1))));
    }
    if let Some(more) = live.get(2) {
        return Err(KeyFileError::Malformed {
            path: set.join(authority_name(*more)),
            what: "there are two older authorities, and a rotation has at most two authorities",
        });
    }
    let load = |number: &u32| {
        Ok((
            *number,
            Arc::new(load(&set.join(authority_name(*number)), rng.clone())?),
        ))
    };
    let hash = |number: &u32| {
        let path = set.join(retired_name(*number));
        let bytes = read_private(&path)?;
        let hash = std::str::from_utf8(&bytes).ok().and_then(sha256_of_pem);
        let what = "it is not a certificate";
        Ok((*number, hash.ok_or(KeyFileError::Malformed { path, what })?))
    };
    Ok(AuthoritySet {
        live: live.iter().map(load).collect::<Result<_, KeyFileError>>()?,
        retired: retired.iter().map(hash).collect::<Result<_, KeyFileError>>()?,
    })
}

fn load(path: &Path, rng: Arc<dyn Rng>) -> Result<Authority, KeyFileError> {
    let malformed = |what| KeyFileError::Malformed {
        path: path.into(),
        what,
    };
    let bytes = read_private(path)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| malformed("it is not text"))?;
    let key_start = text
        .find("-----BEGIN PRIVATE KEY-----")
        .ok_or_else(|| malformed("it has no private key"))?;
    let (certificate, key) = text.split_at(key_start);
    Ok(Authority::load(certificate, &SecretString::from(key.to_owned()), rng)?)
}

/// Loads the authorities of the set for use.
pub(crate) fn load_authorities(set: &Path, rng: &Arc<dyn Rng>) -> Result<Authorities, KeyFileError> {
    let AuthoritySet { live, retired } = find(set, rng)?;
    let mut live = live.into_iter().map(|(_, authority)| authority);
    let current = live.next();
    let current = current.ok_or_else(|| KeyFileError::Missing(set.join(authority_name(1))))?;
    let retired = retired.into_iter().map(|(_, hash)| hash).collect();
    Ok(Authorities::new(current, live.next(), retired)?)
}

/// Removes the keys of retired authorities: at the end of a rotation, and after a crash that interrupted this end.
pub(crate) fn remove_retired(set: &Path) -> Result<(), KeyFileError> {
    let (private, retired) = numbers(set)?;
    for number in private.iter().filter(|number| retired.contains(number)) {
        let path = set.join(authority_name(*number));
        fs::remove_file(&path).map_err(io_error("remove", &path))?;
        sync_directory(set)?;
    }
    Ok(())
}

impl KeyFiles {
    /// Adds the next authority to an existing set. Returns its file and the SHA-256 of its certificate.
    pub fn rotate_authority(
        data_dir: &Path,
        subject: &str,
        now: SystemTime,
        rng: Arc<dyn Rng>,
    ) -> Result<(PathBuf, String), KeyFileError> {
        let set = data_dir.join(SET);
        let _lock = lock(data_dir)?;
        remove_retired(&set)?;
        let found = find(&set, &rng)?;
        let [(number, _)] = found.live.as_slice() else {
            return Err(KeyFileError::AuthorityRotates);
        };
        // The number in the subject distinguishes the authorities for people.
        let number = number + 1;
        let suffix = format!(" {number}");
        let subject = &subject[..subject.floor_char_boundary(SUBJECT_MAX - suffix.len())];
        let authority = Authority::create(&format!("{subject}{suffix}"), now, rng.clone())?;
        let target = set.join(authority_name(number));
        write_key_file(&set, &target, authority_pem(&authority).as_bytes(), rng.as_ref())?;
        Ok((target, authority.ca_sha256()))
    }

    /// Retires every authority before the one with the certificate hash `keep`. The certificates stay, and the keys are
    /// removed permanently. Returns the number of authorities that were retired: 0 if `keep` itself is retired or not in the
    /// set.
    pub fn retire_authorities(data_dir: &Path, keep: &str, rng: Arc<dyn Rng>) -> Result<usize, KeyFileError> {
        let set = data_dir.join(SET);
        let _lock = lock(data_dir)?;
        remove_retired(&set)?;
        let found = find(&set, &rng)?;
        let kept = found.live.iter().position(|(_, one)| one.ca_sha256() == keep);
        let former = &found.live[..kept.unwrap_or(0)];
        for (number, authority) in former {
            let target = set.join(retired_name(*number));
            write_key_file(&set, &target, authority.ca_pem().as_bytes(), rng.as_ref())?;
        }
        remove_retired(&set)?;
        Ok(former.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::key_files::write_private;
    use crate::{ClientIdentity, ClientKey, SystemRng};

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_790_000_000)
    }

    fn rng() -> Arc<dyn Rng> {
        Arc::new(SystemRng)
    }

    fn open(dir: &Path) -> Result<KeyFiles, KeyFileError> {
        KeyFiles::load_or_create(dir, "Rackwright test", now(), rng())
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir.join(SET)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("authority")).collect();
        names.sort();
        names
    }

    fn rotate(dir: &Path) -> Result<(PathBuf, String), KeyFileError> {
        KeyFiles::rotate_authority(dir, "Rackwright test", now(), rng())
    }

    fn retire(dir: &Path, keep: &str) -> usize {
        KeyFiles::retire_authorities(dir, keep, rng()).unwrap()
    }

    #[test]
    fn the_longest_name_of_a_site_has_a_next_authority() {
        let dir = tempfile::tempdir().unwrap();
        // 63 bytes of the 64 that a subject may have.
        let subject = format!("Rackwright {}", "ä".repeat(26));
        KeyFiles::load_or_create(dir.path(), &subject, now(), rng()).unwrap();
        KeyFiles::rotate_authority(dir.path(), &subject, now(), rng()).unwrap();
    }

    #[test]
    fn the_next_authority_replaces_the_first_and_the_site_id_stays() {
        let dir = tempfile::tempdir().unwrap();
        let running = open(dir.path()).unwrap();
        let first = running.authority.ca_sha256();
        assert_eq!(running.authority.site_id(), first);
        let (path, second) = rotate(dir.path()).unwrap();
        assert!(path.ends_with("keys/authority-0002.pem"));
        assert!(matches!(rotate(dir.path()), Err(KeyFileError::AuthorityRotates)));

        // A running process loads the next authority, but uses it only after `use_issuer`.
        assert_eq!(running.refresh(dir.path()).unwrap().len(), 1);
        assert!(running.refresh(dir.path()).unwrap().is_empty());
        let authority = &running.authority;
        assert_eq!(authority.trusted(), [first.clone(), second.clone()]);
        assert_eq!(authority.announced(), std::slice::from_ref(&first));
        assert_eq!(authority.issues_with(), first);
        assert!(authority.use_issuer(&second) && !authority.use_issuer(&second));
        assert!(!authority.use_issuer(&first));
        assert_eq!(
            (authority.issues_with(), authority.ca_sha256()),
            (second.clone(), first.clone())
        );
        assert_eq!(authority.announced().len(), 2);
        assert_eq!(authority.ca_pem().matches("BEGIN CERTIFICATE").count(), 2);

        assert_eq!(retire(dir.path(), &first), 0, "nothing comes before the first");
        assert_eq!(retire(dir.path(), "sha256:00"), 0);
        assert_eq!(retire(dir.path(), &second), 1);
        assert_eq!(names(dir.path()), ["authority-0001.crt", "authority-0002.pem"]);
        let crt = fs::read_to_string(dir.path().join(SET).join("authority-0001.crt")).unwrap();
        assert!(!crt.contains("PRIVATE"));
        running.refresh(dir.path()).unwrap();
        for keys in [&running, &open(dir.path()).unwrap()] {
            assert_eq!(keys.authority.trusted(), std::slice::from_ref(&second));
            assert_eq!(keys.authority.site_id(), first);
            assert_eq!(keys.authority.next(), None);
            assert!(keys.authority.has_authority(&first) && keys.authority.has_authority(&second));
        }
        // A second rotation.
        let (path, third) = rotate(dir.path()).unwrap();
        assert!(path.ends_with("keys/authority-0003.pem"));
        assert_eq!(retire(dir.path(), &third), 1);
        let last = open(dir.path()).unwrap();
        assert_eq!((last.authority.site_id(), last.authority.ca_sha256()), (first, third));
    }

    #[test]
    fn the_issuer_of_a_certificate_is_the_authority_that_signed_it() {
        let dir = tempfile::tempdir().unwrap();
        let before = open(dir.path()).unwrap();
        rotate(dir.path()).unwrap();
        let keys = open(dir.path()).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
        let key = ClientKey::of_request(&csr.pem().unwrap()).unwrap();
        let ann = ClientIdentity::member("ann", 1).unwrap();
        let issue = |keys: &KeyFiles| {
            let issued = keys.authority.issue_client(&key, &ann, now(), Duration::from_secs(60));
            let issued = issued.unwrap();
            (
                pem::parse(issued.certificate_pem).unwrap().into_contents(),
                issued.authority,
            )
        };
        let (old, by_old) = issue(&before);
        assert_eq!(keys.authority.issuer_of(&old), Some(by_old.clone()));
        let next = keys.authority.next().unwrap();
        keys.authority.use_issuer(&next);
        let (new, by_new) = issue(&keys);
        assert_eq!(
            (keys.authority.issuer_of(&new), by_new),
            (Some(next.clone()), next.clone())
        );
        assert_eq!(before.authority.issuer_of(&new), None);
        retire(dir.path(), &next);
        keys.refresh(dir.path()).unwrap();
        assert_eq!(keys.authority.issuer_of(&old), None);
        assert_eq!(keys.authority.issuer_of(b"nothing"), None);
    }

    #[test]
    fn an_interrupted_retirement_is_completed() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).unwrap();
        let set = dir.path().join(SET);
        let first = fs::read(set.join(FIRST)).unwrap();
        let (_, second) = rotate(dir.path()).unwrap();
        retire(dir.path(), &second);
        // A crash after the certificate is written and before the key is removed.
        write_private(&set.join(FIRST), &first).unwrap();
        assert_eq!(open(dir.path()).unwrap().authority.trusted(), [second]);
        assert_eq!(names(dir.path()), ["authority-0001.crt", "authority-0002.pem"]);
    }

    #[test]
    fn a_missing_authority_is_named_and_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).unwrap();
        let set = dir.path().join(SET);
        let missing = |name: &str| {
            let error = open(dir.path()).unwrap_err();
            assert!(
                matches!(&error, KeyFileError::Missing(path) if path.ends_with(name)),
                "{error}"
            );
        };
        let (_, second) = rotate(dir.path()).unwrap();
        let first = fs::read(set.join(FIRST)).unwrap();
        fs::remove_file(set.join(FIRST)).unwrap();
        missing(FIRST);
        write_private(&set.join(FIRST), &first).unwrap();
        retire(dir.path(), &second);
        fs::remove_file(set.join("authority-0002.pem")).unwrap();
        missing("authority-0002.pem");
    }
}
