//! Firmware files in the folder that all replicas share. A file's name is its digest.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::digest::{Context, SHA256};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

/// Age after its last write at which an unfinished file counts as abandoned.
const ABANDONED: Duration = Duration::from_secs(86_400);
/// Bytes hashed per read.
const PIECE: usize = 1 << 20;

/// The folder of firmware files.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
}

/// A file that is being written. It is removed on drop, unless it was kept.
pub struct PartialFile {
    path: PathBuf,
    file: File,
    hash: Context,
    bytes: u64,
    is_complete: bool,
}

impl Drop for PartialFile {
    #[expect(
        clippy::disallowed_methods,
        reason = "drop cannot await; a file of an upload that broke off is removed"
    )]
    fn drop(&mut self) {
        if !self.is_complete {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl PartialFile {
    /// Appends bytes to the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn write(&mut self, data: &[u8]) -> std::io::Result<()> {
        self.hash.update(data);
        self.bytes += data.len() as u64;
        self.file.write_all(data).await
    }

    /// The digest of the bytes so far: `sha256:` and 64 hex digits.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("sha256:{}", hex(self.hash.clone()))
    }

    /// Bytes written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Files {
    /// Opens the folder `dir` and creates it if necessary. Removes unfinished files that are more than a day old;
    /// another replica may be writing younger ones.
    ///
    /// # Errors
    /// The folder cannot be made or read.
    #[expect(clippy::disallowed_methods, reason = "called at the start")]
    pub fn open(dir: PathBuf) -> std::io::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        for entry in std::fs::read_dir(&dir)? {
            let entry = entry?;
            let age = entry.metadata().and_then(|m| m.modified()).map(|at| at.elapsed());
            let is_old = matches!(age, Ok(Ok(age)) if age > ABANDONED);
            if is_old && entry.path().extension().is_some_and(|end| end == "part") {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(Self { dir })
    }

    /// Path of the folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of the file with this digest; `None` if the digest is malformed.
    #[must_use]
    pub fn path(&self, digest: &str) -> Option<PathBuf> {
        let digits = digest.strip_prefix("sha256:")?;
        let is_one = digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        is_one.then(|| self.dir.join(digits))
    }

    /// Begins a file. `id` must be unique.
    ///
    /// # Errors
    /// The file cannot be created.
    pub async fn begin(&self, id: &str) -> std::io::Result<PartialFile> {
        let path = self.dir.join(format!("{id}.part"));
        Ok(PartialFile {
            file: File::create_new(&path).await?,
            path,
            hash: Context::new(&SHA256),
            bytes: 0,
            is_complete: false,
        })
    }

    /// Keeps a complete file. Returns its digest.
    ///
    /// # Errors
    /// The file cannot be stored.
    pub async fn keep(&self, mut writing: PartialFile) -> std::io::Result<String> {
        writing.file.flush().await?;
        writing.file.sync_all().await?;
        let digits = hex(writing.hash.clone());
        tokio::fs::rename(&writing.path, self.dir.join(&digits)).await?;
        writing.is_complete = true;
        let dir = File::open(&self.dir).await?;
        dir.sync_all().await?;
        Ok(format!("sha256:{digits}"))
    }

    /// Checks that the file of a digest exists and still has this digest. Returns its path and size.
    ///
    /// # Errors
    /// A sentence: the file is missing, unreadable or damaged.
    pub async fn check(&self, digest: &str) -> Result<(PathBuf, u64), String> {
        let path = self.path(digest).ok_or_else(|| format!("{digest} is not a digest"))?;
        let (hashed, wanted) = (path.clone(), digest.to_owned());
        let done = tokio::task::spawn_blocking(move || digest_of(&hashed)).await;
        match done.map_err(|e| e.to_string())? {
            Ok((found, bytes)) if found == wanted => Ok((path, bytes)),
            Ok(_) => Err(format!(
                "{} is damaged: its digest is different; add the file again",
                path.display()
            )),
            Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
        }
    }

    /// Removes the file of a digest, if it exists.
    pub async fn remove(&self, digest: &str) {
        if let Some(path) = self.path(digest)
            && let Err(error) = tokio::fs::remove_file(&path).await
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "a firmware file could not be removed");
        }
    }
}

fn hex(hash: Context) -> String {
    let digits = |text: String, byte: &u8| format!("{text}{byte:02x}");
    hash.finish().as_ref().iter().fold(String::new(), digits)
}

/// The SHA-256 of a file, in hex, and its length in bytes. It blocks.
///
/// # Errors
/// The file cannot be read.
#[expect(clippy::disallowed_methods, reason = "runs in spawn_blocking")]
pub fn digest_of(path: &Path) -> std::io::Result<(String, u64)> {
    let mut file = std::fs::File::open(path)?;
    let (mut hash, mut buffer, mut bytes) = (Context::new(&SHA256), vec![0; PIECE], 0);
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok((format!("sha256:{}", hex(hash)), bytes));
        }
        hash.update(&buffer[..n]);
        bytes += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_kept_whole_or_not_at_all_and_damage_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path().join("firmware")).unwrap();
        let mut writing = files.begin("a").await.unwrap();
        writing.write(b"abc").await.unwrap();
        let digest = files.keep(writing).await.unwrap();
        // FIPS 180-4, the example with three letters.
        let known = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest, known);
        assert_eq!(files.check(known).await.unwrap().1, 3);
        drop(files.begin("b").await.unwrap());
        for (name, age) in [("old.part", 2), ("young.part", 0), ("old", 2)] {
            let file = std::fs::File::create(files.dir().join(name)).unwrap();
            file.set_modified(std::time::SystemTime::now() - age * ABANDONED)
                .unwrap();
        }
        Files::open(files.dir().to_owned()).unwrap();
        for (name, is_there) in [("old.part", false), ("young.part", true), ("old", true)] {
            assert_eq!(files.dir().join(name).exists(), is_there, "{name}");
            let _ = std::fs::remove_file(files.dir().join(name));
        }
        assert_eq!(std::fs::read_dir(dir.path().join("firmware")).unwrap().count(), 1);
        std::fs::write(files.path(known).unwrap(), "abd").unwrap();
        assert!(files.check(known).await.unwrap_err().contains("damaged"));
        assert!(files.path("sha256:../../etc/passwd").is_none());
        files.remove(known).await;
        assert!(files.check(known).await.unwrap_err().contains("cannot be read"));
    }
}
