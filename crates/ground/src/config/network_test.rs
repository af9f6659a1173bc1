//! The settings block `network_test`.

use std::path::PathBuf;

use serde::Deserialize;

/// The default name of the program, which is in the same folder as this one.
const PROGRAM: &str = "rackwright-traffic";

/// How the network between the nodes of a cluster is tested.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether tests are made. Default: if the program is found.
    enabled: Option<bool>,
    /// The traffic program, linked statically, for the architecture of the nodes.
    program: Option<PathBuf>,
    /// Sending time of each direction of a pair, in seconds.
    pub seconds: u32,
    /// Connections or queue pairs on each lane of a pair.
    pub streams: u32,
    /// Whether nodes use RDMA if their adapters and systems support it. Otherwise TCP.
    pub rdma: bool,
    /// The program's port on the nodes; 0: any free port.
    pub port: u16,
    /// Pairs measured at once in a round.
    pub at_once: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: None,
            program: None,
            seconds: 2,
            streams: 4,
            rdma: true,
            port: 0,
            at_once: 256,
        }
    }
}

impl Settings {
    /// Adds each fault of the settings to `faults`.
    pub fn check(&self, faults: &mut Vec<String>) {
        if let Some(path) = &self.program
            && !path.is_file()
        {
            faults.push(format!("network_test.program: {} is not a file", path.display()));
        } else if self.enabled == Some(true) && self.file().is_err() {
            faults.push("network_test.program: is required; `make traffic` builds the program".into());
        }
        for (field, value, most) in [
            ("seconds", u64::from(self.seconds), 60),
            ("streams", u64::from(self.streams), 16),
            ("at_once", self.at_once as u64, 4096),
        ] {
            if value == 0 || value > most {
                faults.push(format!("network_test.{field}: must lie between 1 and {most}"));
            }
        }
    }

    /// The program's file.
    ///
    /// # Errors
    /// Why no test is made.
    pub fn file(&self) -> Result<PathBuf, String> {
        if self.enabled == Some(false) {
            return Err("network_test.enabled is false".into());
        }
        if let Some(path) = &self.program {
            return Ok(path.clone());
        }
        let sibling = std::env::current_exe()
            .ok()
            .and_then(|program| Some(program.parent()?.join(PROGRAM)));
        let sibling = sibling.filter(|path| path.is_file());
        sibling.ok_or_else(|| format!("the folder of rackwrightd has no {PROGRAM}; set network_test.program"))
    }
}
