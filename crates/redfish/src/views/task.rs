//! Tasks of a BMC, and jobs of vendors.

use rackwright_redfish_wire::extended::BmcMessages;
use serde::Serialize;
use serde_json::json;

use super::view;

/// The meaning of a task's state for a waiting caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum TaskPhase {
    /// Not ended.
    Running,
    /// Ended successfully.
    Done,
    /// Ended otherwise: cancelled, failed, or completed with errors.
    Failed,
}

view!(
    /// A task or a vendor's job (`#Task`).
    Task
);

impl Task {
    /// Whether the resource is a task: a monitor may also answer with the result.
    pub fn is_task(&self) -> bool {
        self.state().is_some()
    }

    /// `TaskState`, or `JobState` of Dell's jobs.
    pub fn state(&self) -> Option<String> {
        self.0.text(&["TaskState"]).or_else(|| self.0.text(&["JobState"]))
    }

    /// `PercentComplete`.
    pub fn percent(&self) -> Option<u64> {
        self.0.whole(&["PercentComplete"])
    }

    /// The meaning of the state. An unknown state counts as running: the caller's wait has a time limit.
    pub fn phase(&self) -> TaskPhase {
        let critical = self
            .0
            .text(&["TaskStatus"])
            .is_some_and(|status| status.eq_ignore_ascii_case("critical"));
        match self.state().unwrap_or_default().to_ascii_lowercase().as_str() {
            "completed" | "ok" if !critical => TaskPhase::Done,
            "completed" | "ok" | "killed" | "exception" | "cancelled" | "failed" | "completedwitherrors" => {
                TaskPhase::Failed
            }
            _ => TaskPhase::Running,
        }
    }

    /// The BMC's messages about the task. Dell's jobs have one message, with its id beside it.
    pub fn messages(&self) -> BmcMessages {
        let messages = BmcMessages::from_json(self.0.json());
        match self.0.text(&["Message"]) {
            Some(text) if messages.0.is_empty() => {
                let one = json!({"Message": text, "MessageId": self.0.text(&["MessageId"])});
                BmcMessages::from_json(&json!({"Messages": [one]}))
            }
            _ => messages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Resource;

    #[test]
    fn phases() {
        for (body, phase) in [
            (json!({"TaskState": "New"}), TaskPhase::Running),
            (json!({"TaskState": "Pending"}), TaskPhase::Running),
            (json!({"TaskState": "Completed", "TaskStatus": "OK"}), TaskPhase::Done),
            (
                json!({"TaskState": "Completed", "TaskStatus": "Critical"}),
                TaskPhase::Failed,
            ),
            (json!({"TaskState": "Exception"}), TaskPhase::Failed),
            (json!({"JobState": "CompletedWithErrors"}), TaskPhase::Failed),
        ] {
            assert_eq!(
                Task::from(Resource::new("/t", None, body.clone())).phase(),
                phase,
                "{body}"
            );
        }
    }
}
