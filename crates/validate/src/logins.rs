//! Open logins, kept between the steps of a deployment: from the first answer of the installed system over its validation
//! to the hand-over. These steps mostly follow each other at once.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::carried::CarriedProgram;
use crate::hand_over::{HandOver, HandOverError, hand_over, hand_over_in};
use crate::hardware::{HardwareReading, read_hardware};
use crate::probe::{Probe, ProbeError, ProbeOptions, probe};
use crate::ssh::{Session, SshError, SshTarget, wait_reachable};

/// An unused login is closed after this time.
const KEEP_FOR: Duration = Duration::from_secs(15);
/// Interval between checks for unused logins.
const SWEEP_PAUSE: Duration = Duration::from_secs(5);
/// Most logins kept; a further deployment logs in again.
const LOGINS_MAX: usize = 512;

/// The deployment for which a login was made; the login is valid for no other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Deployment {
    /// Id of the node.
    pub node: String,
    /// Claim generation of the node.
    pub generation: u64,
    /// Number of the deployment under that claim.
    pub number: u32,
}

/// A reading of a machine by an open login.
type Reading<'s, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 's>>;

#[derive(Debug)]
struct KeptLogin {
    since: Instant,
    session: Session,
}

/// The open logins, one for each deployment.
#[derive(Debug, Default)]
pub struct Logins {
    kept: Mutex<HashMap<Deployment, KeptLogin>>,
}

impl Logins {
    fn kept(&self) -> MutexGuard<'_, HashMap<Deployment, KeptLogin>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, deployment: &Deployment) -> Option<Session> {
        let kept = self.kept().remove(deployment)?;
        (kept.since.elapsed() < KEEP_FOR && !kept.session.is_closed()).then_some(kept.session)
    }

    /// Keeps a login for the next step.
    pub async fn keep(&self, deployment: Deployment, session: Session) {
        let since = Instant::now();
        let new = KeptLogin { since, session };
        let over = {
            let mut kept = self.kept();
            if kept.len() < LOGINS_MAX || kept.contains_key(&deployment) {
                kept.insert(deployment, new)
            } else {
                Some(new)
            }
        };
        if let Some(over) = over {
            over.session.close().await;
        }
    }

    /// Reads the machine by the login of the former step, or by a new one until `deadline`, and keeps the login.
    ///
    /// # Errors
    /// Those of [`wait_reachable`] and [`probe`]; a broken kept login is no error.
    pub async fn probe(
        &self,
        deployment: &Deployment,
        target: &SshTarget,
        options: ProbeOptions,
        deadline: Instant,
    ) -> Result<Probe, ProbeError> {
        self.with_login(deployment, target, deadline, |session| {
            Box::pin(probe(session, options))
        })
        .await
    }

    /// Reads the machine's hardware by the login of the former step, or by a new one until `until`, and keeps the login.
    /// `deadline` is the limit of each section.
    ///
    /// # Errors
    /// Those of [`wait_reachable`] and [`read_hardware`]; a broken kept login is no error.
    pub async fn hardware(
        &self,
        deployment: &Deployment,
        target: &SshTarget,
        program: &CarriedProgram,
        deadline: Duration,
        until: Instant,
    ) -> Result<HardwareReading, SshError> {
        let id = format!("{}-{}", deployment.generation, deployment.number);
        self.with_login(deployment, target, until, |session| {
            let (program, id) = (program.clone(), id.clone());
            Box::pin(async move { read_hardware(session, &program, &id, deadline).await })
        })
        .await
    }

    /// Reads something by the login of the former step. If that fails, reads it by a new login. Keeps the login.
    async fn with_login<T, E>(
        &self,
        deployment: &Deployment,
        target: &SshTarget,
        until: Instant,
        read: impl for<'s> Fn(&'s Session) -> Reading<'s, T, E> + Send + Sync,
    ) -> Result<T, E>
    where
        E: From<SshError> + fmt::Display,
    {
        if let Some(session) = self.take(deployment) {
            match read(&session).await {
                Ok(found) => {
                    self.keep(deployment.clone(), session).await;
                    return Ok(found);
                }
                Err(error) => {
                    tracing::info!(%error, "the login of the previous step no longer works; a new login follows")
                }
            }
        }
        let session = wait_reachable(target, until, &CancellationToken::new()).await?;
        match read(&session).await {
            Ok(found) => {
                self.keep(deployment.clone(), session).await;
                Ok(found)
            }
            Err(error) => {
                session.close().await;
                Err(error)
            }
        }
    }

    /// Hands the machine over by the login of the former step, or by a new one, and keeps no login.
    ///
    /// # Errors
    /// Those of [`hand_over`].
    pub async fn hand_over(
        &self,
        deployment: &Deployment,
        target: &SshTarget,
        extra_files: &[String],
    ) -> Result<HandOver, HandOverError> {
        if let Some(session) = self.take(deployment) {
            match hand_over_in(session, target, extra_files).await {
                Err(HandOverError::Ssh(error)) if error.is_retryable() => {
                    tracing::info!(%error, "the login of the previous step no longer works; a new login follows");
                }
                ended => return ended,
            }
        }
        hand_over(target, extra_files).await
    }

    /// Closes unused logins until `stop` is cancelled, then all logins.
    pub async fn tidy(&self, stop: CancellationToken) {
        let mut is_end = false;
        while !is_end {
            tokio::select! {
                () = stop.cancelled() => is_end = true,
                () = tokio::time::sleep(SWEEP_PAUSE) => {}
            }
            let is_over = |kept: &KeptLogin| is_end || kept.since.elapsed() >= KEEP_FOR;
            let over: Vec<_> = self.kept().extract_if(|_, kept| is_over(kept)).collect();
            for (_, kept) in over {
                kept.session.close().await;
            }
        }
    }
}
