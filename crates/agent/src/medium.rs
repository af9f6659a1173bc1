//! The boot secret from the machine's BMC, on a medium in its virtual drive. The agent finds it in an optical or removable
//! drive, keeps it in memory, and proves it to the control plane without sending it over the network.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rackwright_api::v1::Challenge;
use rackwright_tpm::medium::{PLACE, SECRET, SECTOR, Session, secret};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretBox};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};

use crate::host::Host;
use crate::root::SysRoot;
use crate::text;

/// Time limit for finding the medium: a virtual drive takes seconds to appear, and more seconds to load a medium. Shorter
/// than the control plane's wait for the answer.
const MEDIUM_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two searches. Without udev's polling the kernel does not announce a medium.
const RETRY_PERIOD: Duration = Duration::from_millis(500);
/// Maximum number of drives searched; a BMC has a few.
const MAX_DRIVES: usize = 16;

/// The secret of the current boot.
pub type BootSecret = SecretBox<[u8; SECRET]>;

/// Searches once for the medium in the drives that a BMC can fill.
///
/// # Errors
/// The medium was not found. The text lists the drives and their content.
pub fn find_secret(root: &SysRoot) -> Result<BootSecret, String> {
    let mut names: Vec<String> = std::fs::read_dir(root.sys.join("block"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("sr") || is_removable(root, name))
        .collect();
    names.sort_unstable();
    names.truncate(MAX_DRIVES);
    let mut seen = Vec::new();
    for name in &names {
        match read(&root.dev.join(name)) {
            Ok(Some(secret)) => return Ok(secret),
            Ok(None) => seen.push(format!("{name} has another medium")),
            Err(error) => seen.push(format!("{name}: {error}")),
        }
    }
    Err(match seen.as_slice() {
        [] => "the agent finds no optical and no removable drive".to_owned(),
        seen => format!("no drive has the medium ({})", seen.join(", ")),
    })
}

fn is_removable(root: &SysRoot, name: &str) -> bool {
    let number = text::number::<u8>(&root.sys.join("block").join(name).join("removable"));
    number == Some(1)
}

fn read(drive: &Path) -> std::io::Result<Option<BootSecret>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_CLOEXEC | nix::libc::O_NOFOLLOW)
        .open(drive)?;
    let mut sector = Zeroizing::new([0; SECTOR]);
    file.read_exact_at(&mut *sector, PLACE)?;
    Ok(secret(&*sector).map(|found| SecretBox::new(Box::new(found))))
}

/// Keeps the secret for all streams of this agent.
#[derive(Default)]
pub struct BootSecretStore(Mutex<Option<Arc<BootSecret>>>);

impl BootSecretStore {
    /// Returns the proof for a challenge that this machine has the secret. Waits for the medium if necessary.
    ///
    /// # Errors
    /// The medium was not found; the text is for the operator.
    pub async fn prove(
        &self,
        host: &Arc<dyn Host>,
        challenge: &Challenge,
        key_sha256: &str,
    ) -> Result<Vec<u8>, String> {
        let stored = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let secret = match stored {
            Some(secret) => secret,
            None => {
                let found = Arc::new(found(host).await?);
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&found));
                found
            }
        };
        let session = Session {
            nonce: &challenge.nonce,
            node: &challenge.node,
            generation: challenge.claim_generation,
            boot: &challenge.boot,
            key_sha256,
        };
        Ok(session.prove(secret.expose_secret()))
    }
}

async fn found(host: &Arc<dyn Host>) -> Result<BootSecret, String> {
    let deadline = Instant::now() + MEDIUM_TIMEOUT;
    loop {
        let host = Arc::clone(host);
        let reading = spawn_blocking(move || host.boot_secret());
        let result = match timeout_at(deadline, reading).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => return Err(format!("the agent failed: {error}")),
            Err(_) => return Err(format!("a drive did not answer within {} s", MEDIUM_TIMEOUT.as_secs())),
        };
        match result {
            Ok(secret) => return Ok(secret),
            Err(why) if Instant::now() + RETRY_PERIOD >= deadline => return Err(why),
            Err(_) => sleep(RETRY_PERIOD).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackwright_tpm::medium::image;

    fn drive(root: &SysRoot, name: &str, removable: &str, content: &[u8]) {
        let folder = root.sys.join("block").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(&root.dev).unwrap();
        std::fs::write(folder.join("removable"), removable).unwrap();
        std::fs::write(root.dev.join(name), content).unwrap();
    }

    #[test]
    fn the_medium_is_found_among_optical_and_removable_drives_only() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::below(dir.path());
        let secret_of = |root: &SysRoot| find_secret(root).map(|secret| *secret.expose_secret());
        assert!(secret_of(&root).unwrap_err().contains("finds no optical"));
        drive(&root, "nvme0n1", "0\n", &image(&[1; SECRET]));
        drive(&root, "sda", "1\n", &[0; 64 << 10]);
        drive(&root, "sr0", "1\n", b"short");
        let why = secret_of(&root).unwrap_err();
        assert!(why.contains("sda has another medium") && why.contains("sr0: "), "{why}");
        drive(&root, "sr1", "0\n", &image(&[7; SECRET]));
        assert_eq!(secret_of(&root), Ok([7; SECRET]));
    }
}
