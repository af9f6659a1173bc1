//! The tasks of one BMC: at most one runs, and the last few are kept after their end.

use rackwright_sim_bmc::{Progress, ResetType, Task, now_s};

/// Number of tasks that a BMC keeps.
const REMEMBERED: usize = 8;

/// The tasks, oldest first.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    last: u64,
    /// Whether the running task never ends.
    stuck: bool,
    kept: Vec<Task>,
}

impl Tasks {
    /// Begins a task; returns its number. A stuck task runs until another task replaces it.
    pub(super) fn begin(&mut self, reset: ResetType, stuck: bool) -> u64 {
        self.last += 1;
        self.stuck = stuck;
        if self.kept.len() >= REMEMBERED {
            self.kept.remove(0);
        }
        self.kept.push(Task {
            number: self.last,
            name: format!("Reset: {}", reset.as_str()),
            progress: Progress::Running,
            started_s: now_s(),
            ended_s: None,
        });
        self.last
    }

    /// Ends the running task successfully, unless it is stuck.
    pub(super) fn settle(&mut self) {
        if !self.stuck {
            self.end(Progress::Completed);
        }
    }

    /// Ends the running task as failed.
    pub(super) fn fail(&mut self) {
        self.end(Progress::Failed);
    }

    fn end(&mut self, progress: Progress) {
        for task in self.kept.iter_mut().filter(|task| task.progress == Progress::Running) {
            task.progress = progress;
            task.ended_s = Some(now_s());
        }
    }

    /// Deletes a task that has ended; `false` if there is none.
    pub(super) fn forget(&mut self, number: u64) -> bool {
        let before = self.kept.len();
        self.kept
            .retain(|task| task.number != number || task.progress == Progress::Running);
        self.kept.len() < before
    }

    pub(super) fn list(&self) -> Vec<Task> {
        self.kept.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_tasks_are_kept_and_a_running_one_always() {
        let mut tasks = Tasks::default();
        for _ in 0..20 {
            tasks.begin(ResetType::On, false);
            tasks.settle();
        }
        let running = tasks.begin(ResetType::ForceOff, true);
        assert_eq!(running, 21);
        let numbers: Vec<u64> = tasks.list().iter().map(|task| task.number).collect();
        assert_eq!(numbers, (14..=21).collect::<Vec<_>>());
        tasks.settle();
        assert!(!tasks.forget(running) && !tasks.forget(1) && tasks.forget(14));
        tasks.fail();
        assert!(tasks.forget(running));
    }
}
