//! Conditions for the start of a control plane: it is the only one on its database, and the database is the newest one.

pub mod lock;
pub mod other;
pub mod pause;
pub mod restored;

/// How a control plane starts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Start {
    /// It only answers read calls until an operator resumes it.
    pub paused: bool,
    /// An operator declares that the database comes from a backup.
    pub restored: bool,
}
