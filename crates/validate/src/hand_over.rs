//! The hand-over gives the machine to the customer.
//!
//! The script removes the provisioning key from every place where login could find it, and from the seed partition; then
//! one more login with the key must be refused. Only such a refusal, by a machine that shows the expected host key, counts
//! as success. So the whole step is idempotent: where the key is gone already, the first login is refused and nothing else
//! happens.

use std::time::Duration;

use tokio::time::Instant;

use crate::ssh::{RunLimits, Session, SshError, SshTarget};

const SCRIPT: &str = include_str!("hand_over.sh");
const BEGIN: &str = "begin=rackwright-hand-over-1";
const END: &str = "end=rackwright-hand-over-1";
const LIMITS: RunLimits = RunLimits {
    timeout: Duration::from_secs(120),
    output_max_bytes: 64 * 1024,
};
/// Longest time for which the machine may be unreachable during the proof.
const PROOF_LIMIT: Duration = Duration::from_secs(60);
const PROOF_POLL: Duration = Duration::from_millis(250);
const EXTRA_FILES_MAX: usize = 64;

/// The result of a hand-over. Its existence proves that the key was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    /// Files from which the key was removed, those on the seed partition as `seed:PATH`; empty: the key was gone before.
    pub removed_from: Vec<String>,
    /// The state of the key in the seed.
    pub seed: SeedScrub,
}

/// The state of the key on the seed partition. The key there opens nothing by itself, but a second run of a seed reader
/// would install it again. So the private half must be deleted after the hand-over in any case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeedScrub {
    /// The key is not there (any more).
    Clean,
    /// There is no seed partition.
    Absent,
    /// The partition could not be changed, with the reason.
    Failed(String),
    /// Not examined: the key was refused before.
    NotChecked,
}

/// Why the machine was not handed over. The hand-over may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    /// The connection or the command failed.
    #[error(transparent)]
    Ssh(#[from] SshError),
    /// A path that cannot be passed to a shell safely.
    #[error("{0:?} cannot be searched for the provisioning key: give an absolute path without quotes and line breaks")]
    Path(String),
    /// The script could not remove the key.
    #[error("the provisioning key could not be removed on {at}: {why}")]
    Removal {
        /// Address and port.
        at: std::net::SocketAddr,
        /// The script's message.
        why: String,
    },
    /// The key was removed and is still accepted: there is another copy of it.
    #[error(
        "{at} still accepts the provisioning key after its removal from {removed}; find and remove the other copy of \
         the key"
    )]
    StillAccepted {
        /// Address and port.
        at: std::net::SocketAddr,
        /// The changed files, or "nowhere".
        removed: String,
    },
}

/// Logs in and hands the machine over; `extra_files` are further places of authorized keys in its image.
pub async fn hand_over(target: &SshTarget, extra_files: &[String]) -> Result<HandOver, HandOverError> {
    match Session::connect(target).await {
        Ok(session) => hand_over_in(session, target, extra_files).await,
        Err(SshError::AuthRefused { .. }) => Ok(HandOver {
            removed_from: Vec::new(),
            seed: SeedScrub::NotChecked,
        }),
        Err(error) => Err(error.into()),
    }
}

/// As [`hand_over`], through an open session, which it closes.
pub async fn hand_over_in(
    session: Session,
    target: &SshTarget,
    extra_files: &[String],
) -> Result<HandOver, HandOverError> {
    let script = script(&target.login_key_blob()?, extra_files)?;
    let at = session.at();
    let output = session.run(&script, LIMITS).await?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let failed = |why: String| HandOverError::Removal { at, why };
    let mut outcome = HandOver {
        removed_from: Vec::new(),
        seed: SeedScrub::Absent,
    };
    let mut ended = false;
    for line in stdout.lines().skip_while(|line| line.trim_end() != BEGIN) {
        match line.trim_end().split_once('=') {
            Some(("removed", file)) => outcome.removed_from.push(file.into()),
            Some(("seed", "clean")) => outcome.seed = SeedScrub::Clean,
            Some(("seed", "absent")) => outcome.seed = SeedScrub::Absent,
            Some(("seed", why)) => outcome.seed = SeedScrub::Failed(why.into()),
            // A failure on the seed partition is reported, and does not stop the rest.
            Some(("failed", why)) if output.status != 0 => return Err(failed(why.into())),
            _ => ended |= line.trim_end() == END,
        }
    }
    if output.status != 0 || !ended {
        return Err(failed(format!(
            "the script ended with status {}: {}",
            output.status,
            output.stderr_tail()
        )));
    }
    session.close().await;
    prove_refused(target, &outcome).await?;
    tracing::info!(%at, files = outcome.removed_from.len(), "the provisioning key is removed and refused");
    Ok(outcome)
}

/// A fresh login that must be refused by the expected machine.
async fn prove_refused(target: &SshTarget, outcome: &HandOver) -> Result<(), HandOverError> {
    let deadline = Instant::now() + PROOF_LIMIT;
    loop {
        match Session::connect(target).await {
            Err(SshError::AuthRefused { .. }) => return Ok(()),
            Ok(session) => {
                let at = session.at();
                session.close().await;
                let files = outcome.removed_from.join(", ");
                let removed = if files.is_empty() { "nowhere".into() } else { files };
                return Err(HandOverError::StillAccepted { at, removed });
            }
            Err(error @ SshError::HostKeyMismatch { .. }) => return Err(error.into()),
            Err(error) if !error.is_retryable() || Instant::now() >= deadline => return Err(error.into()),
            Err(_) => tokio::time::sleep(PROOF_POLL).await,
        }
    }
}

fn script(blob: &str, extra_files: &[String]) -> Result<String, HandOverError> {
    let harmless = |file: &&String| {
        file.starts_with('/') && file.len() <= 4096 && !file.chars().any(|c| c.is_control() || c == '\'')
    };
    if let Some(bad) = extra_files.iter().find(|file| !harmless(file)) {
        return Err(HandOverError::Path(bad.chars().take(200).collect()));
    }
    if extra_files.len() > EXTRA_FILES_MAX {
        return Err(HandOverError::Path(format!("{} files", extra_files.len())));
    }
    // Base64 and checked paths: they cannot end a single-quoted string.
    Ok(format!("blob='{blob}'\nextra='{}'\n{SCRIPT}", extra_files.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_cannot_carry_commands() {
        for path in [
            "relative",
            "/a'; reboot; '",
            "/a\nb",
            "/a\0",
            &format!("/{}", "x".repeat(5000)),
        ] {
            assert!(
                matches!(script("AAAA", &[path.into()]), Err(HandOverError::Path(_))),
                "{path:?}"
            );
        }
        assert!(script("AAAA", &vec!["/a".to_owned(); EXTRA_FILES_MAX + 1]).is_err());
        let text = script("AAAA", &["/a $(reboot) `b`".into(), "/c".into()]).unwrap();
        assert!(text.starts_with("blob='AAAA'\nextra='/a $(reboot) `b`\n/c'\n"));
    }
}
