//! Work that a BMC continues after its answer.

use std::time::Duration;

use rackwright_redfish_wire::address::BmcAddress;
use rackwright_redfish_wire::environment::Poll;
use rackwright_redfish_wire::error::{ErrorKind, RedfishError};
use rackwright_redfish_wire::extended::BmcMessages;
use rackwright_redfish_wire::json;
use rackwright_redfish_wire::transport::Reply;
use url::Url;

use crate::client::BmcClient;
use crate::resource::Resource;
use crate::views::{Task, TaskPhase};

/// Work in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskHandle {
    /// The task itself, then its monitor: iLO expects requests to the task, other BMCs drop one of the two early.
    places: Vec<Url>,
    retry_after: Option<Duration>,
}

/// The end of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskReport {
    /// `TaskState`; none if the BMC forgot the task before it reported the end, which counts as success.
    pub state: Option<String>,
    /// The BMC's messages.
    pub messages: BmcMessages,
}

/// The result of one poll of a task.
pub(crate) enum TaskLook {
    Running {
        seen: String,
        percent: Option<u64>,
        retry_after: Option<Duration>,
    },
    Done(TaskReport),
    Gone,
}

impl TaskHandle {
    /// The task of an answer: 202 with a Location or a task as its body, or a job's Location with 200 or 201.
    /// A 202 with neither has no task and counts as done.
    pub(crate) fn of(reply: &Reply, bmc: &BmcAddress) -> Option<Self> {
        let body = reply
            .json()
            .and_then(|body| json::text(body, &["@odata.id"]))
            .filter(|link| names_work(link));
        let location = reply
            .location
            .clone()
            .filter(|link| reply.status.as_u16() == 202 || names_work(link));
        let mut places: Vec<Url> = Vec::new();
        for link in body.iter().chain(&location) {
            if let Ok(url) = bmc.resolve_location(link)
                && !places.contains(&url)
            {
                places.push(url);
            }
        }
        (!places.is_empty()).then_some(Self {
            places,
            retry_after: reply.retry_after,
        })
    }

    /// Work that another request began, from its [`places`](Self::places).
    pub(crate) fn at(places: &[String], bmc: &BmcAddress) -> Result<Self, RedfishError> {
        let places: Result<Vec<Url>, RedfishError> = places.iter().map(|place| bmc.resolve(None, place)).collect();
        Ok(Self {
            places: places?,
            retry_after: None,
        })
    }

    /// The places to poll, as paths on the BMC.
    pub(crate) fn places(&self) -> Vec<String> {
        let path = |place: &Url| place[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
        self.places.iter().map(path).collect()
    }
}

fn names_work(link: &str) -> bool {
    let link = link.to_ascii_lowercase();
    ["/tasks/", "/taskmonitors/", "/taskmonitor/", "/jobs/"]
        .iter()
        .any(|part| link.contains(part))
}

impl BmcClient {
    /// Waits until a task has ended.
    ///
    /// # Errors
    /// [`RedfishError::TaskFailed`] if the task failed, [`RedfishError::WaitedTooLong`] if it did not end.
    pub async fn wait_task(&self, task: &TaskHandle, timeout: Duration) -> Result<TaskReport, RedfishError> {
        let settings = self.settings();
        let mut poll = Poll::new(&*settings.environment, settings.poll_first, settings.poll_cap, timeout);
        let mut places = task.places.iter();
        let Some(mut place) = places.next() else {
            return Ok(TaskReport {
                state: None,
                messages: BmcMessages::default(),
            });
        };
        let mut requested_pause = task.retry_after;
        let mut last;
        loop {
            match self.look_at_task(place).await {
                Ok(TaskLook::Done(report)) => return Ok(report),
                Ok(TaskLook::Running { seen, retry_after, .. }) => (last, requested_pause) = (seen, retry_after),
                Ok(TaskLook::Gone) => match places.next() {
                    Some(next) => {
                        place = next;
                        continue;
                    }
                    None => {
                        return Ok(TaskReport {
                            state: None,
                            messages: BmcMessages::default(),
                        });
                    }
                },
                Err(failure) if failure.kind() == ErrorKind::Retryable => last = failure.to_string(),
                Err(failure) => return Err(failure),
            }
            if !poll.pause(requested_pause).await {
                return Err(RedfishError::WaitedTooLong {
                    bmc: self.address(),
                    what: format!("the end of task {}", place.path()),
                    waited_s: poll.elapsed().as_secs(),
                    last,
                });
            }
        }
    }

    /// Waits for the task of an answer, if the answer has a task.
    pub(crate) async fn finish(&self, reply: &Reply, timeout: Duration) -> Result<(), RedfishError> {
        match TaskHandle::of(reply, self.bmc()) {
            Some(task) => self.wait_task(&task, timeout).await.map(drop),
            None => Ok(()),
        }
    }

    pub(crate) async fn look_at_task(&self, place: &Url) -> Result<TaskLook, RedfishError> {
        let failed = |state: String, detail| RedfishError::TaskFailed {
            bmc: self.address(),
            path: place.path().to_owned(),
            state,
            detail,
        };
        let reply = match self.get_reply(place.clone()).await {
            Ok(reply) => reply,
            Err(failure) if matches!(failure.status(), Some(404 | 410)) => return Ok(TaskLook::Gone),
            // After the end of the work, a monitor returns the status of the work itself.
            Err(RedfishError::Status {
                status: status @ 400..=499,
                detail,
                ..
            }) if !matches!(status, 408 | 425 | 429) => {
                return Err(failed(format!("HTTP {status}"), detail));
            }
            Err(failure) => return Err(failure),
        };
        let task = reply
            .json()
            .map(|body| Task::from(Resource::new(place.path(), None, body.clone())));
        match task.filter(Task::is_task) {
            Some(task) => {
                let state = task.state().unwrap_or_default();
                Ok(match task.phase() {
                    TaskPhase::Done => TaskLook::Done(TaskReport {
                        state: Some(state),
                        messages: task.messages(),
                    }),
                    TaskPhase::Failed => return Err(failed(state, task.messages())),
                    TaskPhase::Running => {
                        let percent = task.percent();
                        let progress = percent.map(|percent| format!(" {percent} %")).unwrap_or_default();
                        TaskLook::Running {
                            seen: format!("{state}{progress}"),
                            percent,
                            retry_after: reply.retry_after,
                        }
                    }
                })
            }
            None if reply.status.as_u16() == 202 => Ok(TaskLook::Running {
                seen: "HTTP 202".to_owned(),
                percent: None,
                retry_after: reply.retry_after,
            }),
            None => Ok(TaskLook::Done(TaskReport {
                state: Some("Completed".to_owned()),
                messages: reply.messages(),
            })),
        }
    }
}
