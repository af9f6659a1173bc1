//! The hand-over gives the machine to the customer.
//!
//! The script removes the provisioning key from every place where login could find it, and from the seed partition; then
//! one more login with the key must be refused. Only such a refusal, by a machine that shows the expected host key, counts
//! as success. So the whole step is idempotent: where the key is gone already, the first login is refused and nothing else
//! happens.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::ssh::{Output, RunLimits, Session, SshError, SshTarget};

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
const PATH_MAX_BYTES: usize = 4096;

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
    #[error(
        "{0:?} cannot be searched for the provisioning key: give an absolute path of at most {PATH_MAX_BYTES} bytes, \
         without quotes and control characters"
    )]
    Path(String),
    /// Too many further files.
    #[error("{0} further files of authorized keys are too many: the image may name at most {EXTRA_FILES_MAX}")]
    TooManyFiles(usize),
    /// The script could not remove the key.
    #[error("the provisioning key could not be removed on {at}: {why}")]
    Removal {
        /// Address and port.
        at: SocketAddr,
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
        at: SocketAddr,
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
    let outcome = outcome_of(&output, at)?;
    session.close().await;
    prove_refused(target, &outcome).await?;
    tracing::info!(%at, files = outcome.removed_from.len(), "the provisioning key is removed and refused");
    Ok(outcome)
}

/// Reads the lines of the script.
fn outcome_of(output: &Output, at: SocketAddr) -> Result<HandOver, HandOverError> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let failed = |why: String| Err(HandOverError::Removal { at, why });
    let mut outcome = HandOver {
        removed_from: Vec::new(),
        seed: SeedScrub::Absent,
    };
    let (mut cause, mut ended) = (None, false);
    for line in stdout.lines().skip_while(|line| line.trim_end() != BEGIN) {
        match line.trim_end().split_once('=') {
            Some(("removed", file)) => outcome.removed_from.push(file.into()),
            Some(("seed", "clean")) => outcome.seed = SeedScrub::Clean,
            Some(("seed", "absent")) => outcome.seed = SeedScrub::Absent,
            // A failure on the seed partition is reported, and does not stop the rest.
            Some(("seed", why)) => {
                let why = why.strip_prefix("failed: ").unwrap_or(why);
                outcome.seed = SeedScrub::Failed(cause.take().unwrap_or(why).into());
            }
            Some(("failed", why)) => cause = Some(why),
            _ => ended |= line.trim_end() == END,
        }
    }
    match (output.status, cause) {
        (0, _) if ended => Ok(outcome),
        (0, _) => failed(with_tail("the output of the script has no last line", output)),
        (_, Some(why)) => failed(why.into()),
        (status, None) => failed(with_tail(&format!("the script ended with status {status}"), output)),
    }
}

/// The fault, and the end of the standard error if there is one.
fn with_tail(fault: &str, output: &Output) -> String {
    match output.stderr_tail().as_str() {
        "" => fault.to_owned(),
        tail => format!("{fault}: {tail}"),
    }
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
        file.starts_with('/') && file.len() <= PATH_MAX_BYTES && !file.chars().any(|c| c.is_control() || c == '\'')
    };
    if let Some(bad) = extra_files.iter().find(|file| !harmless(file)) {
        return Err(HandOverError::Path(bad.chars().take(200).collect()));
    }
    if extra_files.len() > EXTRA_FILES_MAX {
        return Err(HandOverError::TooManyFiles(extra_files.len()));
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
        let many = script("AAAA", &vec!["/a".to_owned(); EXTRA_FILES_MAX + 1]).unwrap_err();
        assert_eq!(
            many.to_string(),
            "65 further files of authorized keys are too many: the image may name at most 64"
        );
        let long = script("AAAA", &[format!("/{}", "x".repeat(5000))]).unwrap_err();
        assert!(long.to_string().contains("at most 4096 bytes"), "{long}");
        let text = script("AAAA", &["/a $(reboot) `b`".into(), "/c".into()]).unwrap();
        assert!(text.starts_with("blob='AAAA'\nextra='/a $(reboot) `b`\n/c'\n"));
    }

    fn read(status: u32, lines: &[&str], stderr: &str) -> Result<HandOver, String> {
        let output = Output {
            status,
            stdout: lines.join("\n").into_bytes(),
            stderr: stderr.into(),
        };
        let at = SocketAddr::from(([10, 0, 0, 7], 22));
        outcome_of(&output, at).map_err(|error| error.to_string())
    }

    #[test]
    fn the_cause_of_a_failed_removal_is_that_of_the_step_that_failed() {
        let seed = [
            "failed=cannot replace /mnt/meta-data",
            "seed=failed: its files cannot be changed",
        ];
        let fault = |why: &str| -> Result<HandOver, String> {
            Err(format!(
                "the provisioning key could not be removed on 10.0.0.7:22: {why}"
            ))
        };
        let login = [BEGIN, seed[0], seed[1], "failed=cannot copy /root/.ssh/authorized_keys"];
        assert_eq!(read(1, &login, ""), fault("cannot copy /root/.ssh/authorized_keys"));
        assert_eq!(
            read(137, &[BEGIN, seed[0], seed[1]], "Killed"),
            fault("the script ended with status 137: Killed")
        );
        assert_eq!(read(137, &[BEGIN], ""), fault("the script ended with status 137"));
        assert_eq!(
            read(0, &[BEGIN], ""),
            fault("the output of the script has no last line")
        );
    }

    #[test]
    fn a_failure_on_the_seed_partition_has_its_cause() {
        let of = |lines: &[&str]| {
            let all: Vec<&str> = [BEGIN].iter().chain(lines).chain(&[END]).copied().collect();
            read(0, &all, "").unwrap().seed
        };
        assert_eq!(
            of(&[
                "failed=cannot replace /mnt/meta-data",
                "seed=failed: its files cannot be changed"
            ]),
            SeedScrub::Failed("cannot replace /mnt/meta-data".to_owned())
        );
        assert_eq!(
            of(&["seed=failed: /dev/sda3 cannot be mounted"]),
            SeedScrub::Failed("/dev/sda3 cannot be mounted".to_owned())
        );
        assert_eq!(of(&["seed=clean"]), SeedScrub::Clean);
    }
}
