//! The files behind TFTP paths.

use std::io::Cursor;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::fs::File;
use tokio::io::AsyncRead;

use super::packet::ErrorCode;
use crate::counters::Counters;
use crate::directory::{DirectoryError, Refusal, Stage};
use crate::grub::{COMMON, Claim, node_config};
use crate::mac::Mac;
use crate::service::Shared;
use crate::sessions::FileError;

/// Time limit for issuing and redeeming a token together.
const DIRECTORY_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Source {
    pub(super) content: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) size: u64,
    pub(super) stage: Stage,
    pub(super) mac: Option<Mac>,
}

/// Why no file is sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("no such file")]
    NotFound,
    #[error("{why}")]
    Refused { mac: Option<Mac>, why: String },
    #[error("the file cannot be read on the server")]
    Broken,
}

impl SourceError {
    pub(super) fn count(&self, counters: &Counters) {
        match self {
            Self::NotFound => counters.tftp_not_found_total.increment(),
            Self::Refused { .. } => counters.tftp_refused_total.increment(),
            Self::Broken => counters.tftp_failed_total.increment(),
        }
    }

    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound => ErrorCode::NotFound,
            Self::Refused { .. } => ErrorCode::AccessViolation,
            Self::Broken => ErrorCode::Undefined,
        }
    }
}

/// Finds the source for `path` (normalised).
pub(super) async fn find(shared: &Shared, path: &str, remote: IpAddr) -> Result<Source, SourceError> {
    if let Some(file) = shared.settings.first_stages.get(path) {
        return open(file, Stage::Tftp, None).await;
    }
    let parts: Vec<_> = path.split('/').collect();
    match parts[..] {
        ["grub", "grub.cfg"] => Ok(text(COMMON.into(), None)),
        ["grub", "node", name] => {
            let mac = name
                .strip_suffix(".cfg")
                .and_then(|mac| mac.parse().ok())
                .ok_or(SourceError::NotFound)?;
            Ok(text(grub_config(shared, mac, remote).await?, Some(mac)))
        }
        ["boot", session, name] => match shared.sessions.file(session, name, remote, Instant::now()) {
            Ok((session, file, stage)) => open(&file.path, stage, Some(session.mac)).await,
            Err(FileError::NotFound) => Err(SourceError::NotFound),
            Err(FileError::Foreign(mac)) => Err(SourceError::Refused {
                mac: Some(mac),
                why: "this boot session belongs to another client".to_owned(),
            }),
        },
        _ => Err(SourceError::NotFound),
    }
}

/// See [`crate::grub`].
async fn grub_config(shared: &Shared, mac: Mac, remote: IpAddr) -> Result<Arc<str>, SourceError> {
    let refused = |why: String| SourceError::Refused { mac: Some(mac), why };
    let neighbour = shared.acknowledged.mac_of(remote);
    let binding = match shared.grub.claim(mac, remote, neighbour, Instant::now()) {
        Claim::First(binding) => binding,
        Claim::Repeat(text) => return Ok(text),
        Claim::Refused(why) => return Err(refused(why.to_owned())),
    };
    let redeem = async {
        let token = shared.directory.mint(&binding).await?;
        shared.directory.redeem(&token, mac, remote).await
    };
    let plan = tokio::time::timeout(DIRECTORY_TIMEOUT, redeem)
        .await
        .unwrap_or_else(|_| Err(Refusal::Directory(DirectoryError("no answer within 10 s".to_owned()))))
        .map_err(|why| refused(why.to_string()))?;
    let session = shared
        .sessions
        .open(mac, plan, remote, Instant::now())
        .map_err(|fault| refused(fault.to_string()))?;
    let config: Arc<str> = node_config(&session, &shared.settings).into();
    shared.grub.served(mac, remote, config.clone(), Instant::now());
    shared.record(
        Some(mac),
        Stage::Script,
        format!("grub configuration, session {}…", &session.id[..6]),
        remote,
    );
    Ok(config)
}

fn text(text: Arc<str>, mac: Option<Mac>) -> Source {
    let bytes = text.as_bytes().to_vec();
    Source {
        size: bytes.len() as u64,
        content: Box::new(Cursor::new(bytes)),
        stage: Stage::Tftp,
        mac,
    }
}

async fn open(path: &Path, stage: Stage, mac: Option<Mac>) -> Result<Source, SourceError> {
    let opened = async {
        let file = File::open(path).await?;
        let size = file.metadata().await?.len();
        std::io::Result::Ok((file, size))
    };
    match opened.await {
        Ok((file, size)) => Ok(Source {
            content: Box::new(file),
            size,
            stage,
            mac,
        }),
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "a boot file cannot be read");
            Err(SourceError::Broken)
        }
    }
}
