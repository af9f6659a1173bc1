//! The certificate of the web console from the files of the settings, which are read again when they change.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rackwright_identity::ServerCertificate;
use tokio_util::sync::CancellationToken;

/// Interval of the checks of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A certificate and the files that it comes from.
#[derive(Debug)]
pub struct FromFiles {
    chain_file: PathBuf,
    key_file: PathBuf,
    /// Digests of the files' last content, also of one that cannot be used.
    seen: [blake3::Hash; 2],
    certificate: Arc<ServerCertificate>,
}

impl FromFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or the two are no certificate with its key.
    pub async fn read(chain_file: PathBuf, key_file: PathBuf) -> Result<Self, Failure> {
        let (chain, key) = content(&chain_file, &key_file).await?;
        Ok(Self {
            chain_file,
            key_file,
            seen: [blake3::hash(&chain), blake3::hash(&key)],
            certificate: ServerCertificate::of_pem(&chain, &key)?,
        })
    }

    /// The certificate, which is replaced while connections are open.
    pub fn certificate(&self) -> Arc<ServerCertificate> {
        self.certificate.clone()
    }

    /// Checks the files every [`POLL_INTERVAL`], until `stop`.
    pub async fn follow(mut self, stop: CancellationToken) {
        let mut last_fault = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            let fault = match self.look().await {
                Ok(false) => continue,
                Ok(true) => None,
                Err(error) => Some(error.to_string()),
            };
            match &fault {
                None => tracing::info!("the web console presents the certificate of the changed files"),
                // A fault that lasts is logged once.
                Some(error) if fault != last_fault => tracing::error!(
                    %error,
                    "the changed files web.certificate and web.key cannot be used; the web console keeps its certificate"
                ),
                Some(_) => {}
            }
            last_fault = fault;
        }
    }

    /// Presents the certificate of the files if they have changed. Returns whether they have.
    ///
    /// # Errors
    /// Those of [`FromFiles::read`]. The certificate then stays as it was.
    async fn look(&mut self) -> Result<bool, Failure> {
        let (chain, key) = content(&self.chain_file, &self.key_file).await?;
        let found = [blake3::hash(&chain), blake3::hash(&key)];
        if std::mem::replace(&mut self.seen, found) == found {
            return Ok(false);
        }
        self.certificate.replace_by_pem(&chain, &key)?;
        Ok(true)
    }
}

async fn content(chain_file: &PathBuf, key_file: &PathBuf) -> Result<(Vec<u8>, Vec<u8>), Failure> {
    let read = async |path: &PathBuf| {
        let content = tokio::fs::read(path).await;
        content.map_err(|error| Failure::from(format!("{}: {error}", path.display())))
    };
    Ok((read(chain_file).await?, read(key_file).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (String, String, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed(["rack.example".to_owned()]).expect("a certificate");
        (
            made.cert.pem(),
            made.signing_key.serialize_pem(),
            made.cert.der().to_vec(),
        )
    }

    fn presented(files: &FromFiles) -> Vec<u8> {
        files.certificate().leaf().expect("a certificate").to_vec()
    }

    #[tokio::test]
    async fn changed_files_are_presented_once_they_fit_together() {
        let folder = tempfile::tempdir().expect("a folder");
        let (chain, key) = (folder.path().join("web.pem"), folder.path().join("web.key"));
        let (old, new) = (pair(), pair());
        let write = |path: &PathBuf, text: &str| std::fs::write(path, text).expect("a file");
        write(&chain, &old.0);
        write(&key, &old.1);
        let mut files = FromFiles::read(chain.clone(), key.clone()).await.expect("a pair");
        assert!(!files.look().await.expect("the same files"));
        assert_eq!(presented(&files), old.2);

        // A tool writes one file after the other.
        write(&chain, &new.0);
        assert!(files.look().await.is_err(), "the key is of the former certificate");
        assert_eq!(presented(&files), old.2);
        assert!(!files.look().await.expect("the same files"), "reported once");
        write(&key, &new.1);
        assert!(files.look().await.expect("a pair"));
        assert_eq!(presented(&files), new.2);

        std::fs::remove_file(&key).expect("a file");
        let error = files.look().await.expect_err("no file").to_string();
        assert!(error.contains("web.key"), "{error}");
        write(&key, "no key");
        assert!(files.look().await.is_err());
        assert_eq!(presented(&files), new.2);
        let refused = FromFiles::read(chain, key).await;
        assert!(refused.is_err(), "at the start");
    }

    #[tokio::test(start_paused = true)]
    async fn the_files_are_looked_at_until_the_stop() {
        let folder = tempfile::tempdir().expect("a folder");
        let (chain, key) = (folder.path().join("web.pem"), folder.path().join("web.key"));
        let (old, new) = (pair(), pair());
        std::fs::write(&chain, &old.0).expect("a file");
        std::fs::write(&key, &old.1).expect("a file");
        let files = FromFiles::read(chain.clone(), key.clone()).await.expect("a pair");
        let (certificate, stop) = (files.certificate(), CancellationToken::new());
        let following = tokio::spawn(files.follow(stop.clone()));
        std::fs::write(&chain, &new.0).expect("a file");
        std::fs::write(&key, &new.1).expect("a file");
        while certificate.leaf().expect("a certificate").to_vec() != new.2 {
            tokio::time::advance(POLL_INTERVAL).await;
            tokio::task::yield_now().await;
        }
        stop.cancel();
        following.await.expect("it ends");
    }
}
