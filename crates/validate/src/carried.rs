//! Programs that are copied to a machine, run there and are removed again.

use std::sync::Arc;
use std::time::Duration;

/// Candidate folders for a program, best first: some systems mount one or the other `noexec`.
pub(crate) const FOLDERS: [&str; 4] = ["/run", "/dev/shm", "/tmp", "/var/tmp"];
/// Limit for copying a program: some megabytes at some 100 kB/s.
pub(crate) const SEND_LIMIT: Duration = Duration::from_secs(60);
/// Most characters kept of a machine's message.
const MESSAGE_MAX: usize = 200;

/// A program for machines of one architecture.
#[derive(Debug, Clone)]
pub struct CarriedProgram {
    /// Content of its file.
    pub bytes: Arc<[u8]>,
    /// SHA-256 of the content, in hex.
    pub sha256: String,
}

/// The begin of a machine's message, without control characters.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MESSAGE_MAX).collect()
}
