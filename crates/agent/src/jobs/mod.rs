//! Jobs: accepts them, runs them one at a time, and reports them.

pub mod control;
pub mod power;
pub mod runner;
pub mod write;
pub mod writer;

use rackwright_api::v1::JobError;

/// Creates a [`JobError`].
pub fn job_error(code: &str, message: impl Into<String>, retryable: bool) -> JobError {
    JobError {
        code: code.to_owned(),
        message: message.into(),
        retryable,
    }
}
