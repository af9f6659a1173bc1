//! Areas of drives that the kernel does not show: detached NVMe namespaces and hidden capacity of ATA drives.

use std::path::Path;
use std::time::Duration;

use rackwright_api::v1::EraseMethod;

/// Time limit for the kernel to show an opened area.
const SHOW_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// A hidden area of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenArea {
    /// Description of the drive.
    pub drive: String,
    /// The controllers of the drive, in the form of [`super::DriveFacts::controller`].
    pub controllers: Vec<String>,
    /// Description of the area, with its size.
    pub what: String,
    /// Why the area is still hidden. `None`: it was opened, and the listed drives include it.
    pub closed: Option<String>,
    /// The methods that erase the area while it is hidden.
    pub reached_by: &'static [EraseMethod],
}

impl HiddenArea {
    /// Whether the area is still hidden and `method` does not reach it.
    pub fn is_missed_by(&self, method: EraseMethod) -> bool {
        self.closed.is_some() && !self.reached_by.contains(&method)
    }

    /// The evidence about the area after `method` has erased its drive.
    pub fn evidence(&self, method: EraseMethod) -> String {
        match &self.closed {
            None => format!("{}: opened", self.what),
            Some(_) => format!("{}: erased by {}", self.what, super::method_name(method)),
        }
    }

    /// The failure text of an erase that does not reach the area.
    pub fn failure(&self) -> String {
        let why = self.closed.as_deref().unwrap_or("the area was opened");
        format!("{} of {}: {why}", self.what, self.drive)
    }
}

/// Waits until the kernel shows an opened area. Returns false after the time limit.
pub fn wait_until_shown(is_shown: impl Fn() -> bool) -> bool {
    let began = std::time::Instant::now();
    while !is_shown() {
        if began.elapsed() > SHOW_TIMEOUT {
            return false;
        }
        // The kernel announces new block devices by uevents, but PID 1 does not listen to them.
        #[expect(clippy::disallowed_methods, reason = "an erase has a thread of its own")]
        std::thread::sleep(POLL);
    }
    true
}

/// The path without symbolic links, as text.
pub fn canonical_path(path: &Path) -> String {
    std::fs::canonicalize(path)
        .unwrap_or_else(|_| path.to_owned())
        .to_string_lossy()
        .into_owned()
}

/// The hidden areas of the drives at a controller.
pub fn of_controller<'a>(hidden: &'a [HiddenArea], controller: &str) -> Vec<&'a HiddenArea> {
    let of_controller = |area: &&HiddenArea| area.controllers.iter().any(|own| own == controller);
    hidden.iter().filter(of_controller).collect()
}
