//! The newest signed head of the audit, in a file outside the database.

#![expect(
    clippy::disallowed_methods,
    reason = "called in spawn_blocking, at the start and at the end"
)]

use std::io::Write as _;
use std::path::{Path, PathBuf};

use rackwright_identity::{AuditHead, CertificateSigner, is_signed};

/// Name of the file in the data folder.
const FILE: &str = "audit-head";

/// The head file: position, hash, public key and signature in one line.
#[derive(Debug)]
pub struct HeadFile(PathBuf);

impl HeadFile {
    /// The file of a data folder.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self(data_dir.join(FILE))
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The head; `None` if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or its signature is not by a key of the site.
    pub fn read(&self, signer: &CertificateSigner) -> std::io::Result<Option<AuditHead>> {
        let text = match std::fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let keys: Vec<String> = signer.keys().iter().map(|key| hex(&key.public_key)).collect();
        parse(&text, &keys).map(Some).ok_or_else(|| {
            let message = format!(
                "{} does not contain a head of the audit with a signature of this site. Keep a copy of the file for the \
                 investigation, then remove it; missing records at the end of the audit can then not be detected for the \
                 time before",
                self.0.display()
            );
            std::io::Error::new(std::io::ErrorKind::InvalidData, message)
        })
    }

    /// Replaces the file as a whole; after a failure the former file remains.
    ///
    /// # Errors
    /// The file system refused the write.
    pub fn write(&self, head: &AuditHead, signer: &CertificateSigner) -> std::io::Result<()> {
        let (signature, key) = signer.sign_with_key(head.statement().as_bytes());
        let text = format!(
            "{} {} {} {}\n",
            head.position,
            head.hash_hex(),
            hex(&key),
            hex(&signature)
        );
        let new = self.0.with_extension(format!("new-{}", std::process::id()));
        let mut file = std::fs::File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &self.0)?;
        let folder = self.0.parent().unwrap_or(Path::new("."));
        std::fs::File::open(folder)?.sync_all()
    }
}

fn parse(text: &str, keys: &[String]) -> Option<AuditHead> {
    let mut words = text.split_whitespace();
    let (position, hash, key, signature) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let head = AuditHead::from_hex(position.parse().ok()?, hash)?;
    is_signed(&head, keys, key, signature).then_some(head)
}

/// Bytes as hex digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
