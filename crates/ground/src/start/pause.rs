//! A control plane that only answers read calls until an operator resumes it.

use tokio::sync::{Mutex, watch};

use super::lock::{Lock, LockError};
use super::other::{self, OtherError};
use crate::api_error::ApiError;
use crate::core::Core;

/// The state of a process's pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Paused,
    /// An operator has ended it. Calls are refused until the process has begun its work.
    Ending,
    Working,
}

/// Whether this process is paused. A pause ends once and does not come back.
#[derive(Debug)]
pub struct Pause {
    state: watch::Sender<State>,
    lock: Mutex<Option<Lock>>,
}

/// Why a pause cannot end.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// Another daemon has this database, or its original.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Another daemon serves this site.
    #[error(transparent)]
    Other(#[from] OtherError),
}

impl From<ResumeError> for ApiError {
    fn from(error: ResumeError) -> Self {
        match error {
            ResumeError::Other(OtherError::Store(error)) => error.into(),
            ResumeError::Other(OtherError::Random(error)) => Self::Internal(error.to_string()),
            ResumeError::Lock(_) | ResumeError::Other(OtherError::Other { .. }) => Self::precondition(
                "control",
                error.to_string(),
                "stop the other rackwrightd, then resume this one again",
            ),
        }
    }
}

impl Pause {
    /// The pause of a process at its start, with its right to the database.
    #[must_use]
    pub fn new(is_on: bool, lock: Option<Lock>) -> Self {
        Self {
            state: watch::Sender::new(if is_on { State::Paused } else { State::Working }),
            lock: Mutex::new(lock),
        }
    }

    /// True while this process refuses all calls except reads.
    #[must_use]
    pub fn is_on(&self) -> bool {
        *self.state.borrow() != State::Working
    }

    /// Ends the pause, unless another daemon serves this site from another database. Returns false if there was no pause.
    ///
    /// # Errors
    /// There is another daemon.
    pub async fn end(&self, core: &Core) -> Result<bool, ResumeError> {
        let mut lock = self.lock.lock().await;
        if *self.state.borrow() != State::Paused {
            return Ok(false);
        }
        if let Some(lock) = lock.as_mut() {
            lock.claim_name()?;
        }
        other::ask(&core.config, &core.keys, &core.store, core.rng.as_ref()).await?;
        self.state.send_replace(State::Ending);
        Ok(true)
    }

    /// Waits until an operator ends the pause.
    pub async fn ending(&self) {
        let mut changes = self.state.subscribe();
        // The sender lives as long as `self`.
        let _ = changes.wait_for(|state| *state != State::Paused).await;
    }

    /// Called when the process has begun its work.
    pub fn lift(&self) {
        self.state.send_replace(State::Working);
    }
}
