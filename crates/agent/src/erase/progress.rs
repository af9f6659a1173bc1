//! Combines the progress of drives that are erased at the same time into one job's progress.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::drives::DriveFacts;
use crate::jobs::control::{JobControl, StopReason};

#[derive(Clone, Debug, Default)]
struct Row {
    step: String,
    done: u64,
    total: u64,
}

/// One row per drive.
#[derive(Debug)]
pub struct CombinedProgress<'a> {
    control: &'a JobControl,
    rows: Mutex<BTreeMap<String, Row>>,
}

impl<'a> CombinedProgress<'a> {
    /// The progress of the drives with these names.
    pub fn new<'n>(control: &'a JobControl, names: impl Iterator<Item = &'n str>) -> Self {
        let rows = names.map(|name| (name.to_owned(), Row::default())).collect();
        Self {
            control,
            rows: Mutex::new(rows),
        }
    }

    /// The row of a drive.
    pub fn progress(&'a self, facts: &DriveFacts, control: &'a JobControl) -> DriveProgress<'a> {
        DriveProgress {
            combined: self,
            name: facts.drive.name.clone(),
            control,
        }
    }

    fn set(&self, name: &str, change: impl FnOnce(&mut Row)) {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        change(rows.entry(name.to_owned()).or_default());
        let text =
            |(name, row): (&String, &Row)| format!("{name}: {}", if row.step.is_empty() { "waits" } else { &row.step });
        let step = format!(
            "erase {}",
            rows.iter().take(16).map(text).collect::<Vec<_>>().join(", ")
        );
        let sum = |value: fn(&Row) -> u64| rows.values().map(value).fold(0, u64::saturating_add);
        let (done, total) = (sum(|row| row.done), sum(|row| row.total));
        drop(rows);
        self.control.report_total(step, done, total);
    }
}

/// The row of one drive.
#[derive(Debug)]
pub struct DriveProgress<'a> {
    combined: &'a CombinedProgress<'a>,
    name: String,
    control: &'a JobControl,
}

impl DriveProgress<'_> {
    /// Starts a step of `total` bytes; 0 if the step has no measure.
    pub fn step(&self, step: impl Into<String>, total: u64) {
        self.combined.set(&self.name, |row| {
            *row = Row {
                step: step.into(),
                done: 0,
                total,
            }
        });
    }

    /// Reports bytes of the step done since the last call.
    pub fn advance(&self, bytes: u64) {
        self.combined
            .set(&self.name, |row| row.done = row.done.saturating_add(bytes));
    }

    /// Returns the control of the job.
    pub fn control(&self) -> &JobControl {
        self.control
    }

    /// Call this between two pieces of work.
    ///
    /// # Errors
    /// The job must end.
    pub fn check(&self) -> Result<(), StopReason> {
        self.control.check()
    }
}
