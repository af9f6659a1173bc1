//! What has to hold before a control plane does anything: it is the only one on its database, and the database is the newest
//! that there is.

pub mod lock;
pub mod other;
pub mod pause;
pub mod restored;

/// How a control plane is started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Start {
    /// It only answers reads until an operator resumes it.
    pub paused: bool,
    /// An operator says that the database comes from a backup.
    pub restored: bool,
}
