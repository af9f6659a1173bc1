//! How far an update is. A BMC that takes new firmware for itself goes away in its middle, comes back without the task and
//! sometimes with an older session; its certificate must be the one that is pinned.

use serde::{Deserialize, Serialize};

use super::UpdateTicket;
use crate::client::BmcClient;
use crate::error::{ErrorKind, RedfishError};
use crate::extended::BmcMessages;
use crate::task::TaskLook;

/// How far an update is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateProgress {
    /// The task's state in the BMC's words.
    pub state: String,
    /// Percent, where it is told.
    pub percent: Option<u64>,
}

/// What one look at an update saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdateLook {
    /// It goes on.
    Running(UpdateProgress),
    /// It ended well, as far as the task goes.
    Done(BmcMessages),
    /// It ended badly.
    Failed {
        /// The state in the BMC's words.
        state: String,
        /// What it said.
        messages: BmcMessages,
    },
    /// The BMC knows nothing of it any more, or never gave a task: the version tells.
    Forgotten,
    /// The BMC does not answer, which is expected while it restarts.
    Away(String),
}

impl BmcClient {
    /// Looks once at an update that was started, by this process or another.
    ///
    /// # Errors
    /// Those that no waiting mends: another certificate, refused credentials, a ticket that leads elsewhere.
    pub async fn look_at_update(&self, ticket: &UpdateTicket) -> Result<UpdateLook, RedfishError> {
        for place in &ticket.places {
            let url = self.bmc().resolve(None, place)?;
            match self.look_at_task(&url).await {
                Ok(TaskLook::Running { seen, percent, .. }) => {
                    return Ok(UpdateLook::Running(UpdateProgress { state: seen, percent }));
                }
                Ok(TaskLook::Done(report)) => return Ok(UpdateLook::Done(report.messages)),
                Ok(TaskLook::Gone) => {}
                Err(RedfishError::TaskFailed { state, detail, .. }) => {
                    return Ok(UpdateLook::Failed {
                        state,
                        messages: detail,
                    });
                }
                Err(failure) if failure.kind() == ErrorKind::Retryable => {
                    return Ok(UpdateLook::Away(failure.to_string()));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(UpdateLook::Forgotten)
    }

    /// The tasks that the BMC lists now, by their links: one that is there afterwards and was not there before belongs to
    /// what was sent between.
    ///
    /// # Errors
    /// Those of [`get`](Self::get); a BMC without a task service has none.
    pub async fn task_links(&self) -> Result<Vec<String>, RedfishError> {
        let root = self.service_root().await?;
        let Some(service) = root.resource().link(&["Tasks"]) else {
            return Ok(Vec::new());
        };
        let service = match self.get(&service).await {
            Ok(service) => service,
            Err(failure) if failure.status() == Some(404) => return Ok(Vec::new()),
            Err(failure) => return Err(failure),
        };
        match service.link(&["Tasks"]) {
            Some(tasks) => self.member_links(&tasks).await,
            None => Ok(Vec::new()),
        }
    }
}
