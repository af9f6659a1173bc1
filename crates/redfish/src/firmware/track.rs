//! The progress of an update. During an update of its own firmware, a BMC goes away and comes back without the task and
//! sometimes with an older session; its certificate must still be the pinned one.

use rackwright_redfish_wire::error::{ErrorKind, RedfishError};
use rackwright_redfish_wire::extended::BmcMessages;
use serde::{Deserialize, Serialize};

use super::UpdateTicket;
use crate::client::BmcClient;
use crate::task::TaskLook;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateProgress {
    /// The task's state, in the BMC's terms.
    pub state: String,
    /// Percent; none if the BMC does not report it.
    pub percent: Option<u64>,
}

/// The result of one poll of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdateLook {
    /// The update continues.
    Running(UpdateProgress),
    /// The task ended successfully.
    Done(BmcMessages),
    /// The task failed.
    Failed {
        /// The final state, in the BMC's terms.
        state: String,
        /// The BMC's messages.
        messages: BmcMessages,
    },
    /// The BMC no longer knows the task, or never gave one: the version decides.
    Forgotten,
    /// The BMC does not answer, which is expected while it restarts.
    Away(String),
}

impl BmcClient {
    /// Polls once an update that this or another process started.
    ///
    /// # Errors
    /// Errors that waiting cannot cure: another certificate, refused credentials, a ticket with a foreign link.
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

    /// The links of the tasks that the BMC lists now. A task that is new in a later list belongs to a request sent in
    /// between.
    ///
    /// # Errors
    /// Those of [`get`](Self::get). A BMC without a task service has no tasks.
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
