//! The settings block `hardware_probe`.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

/// Longest deadline: the validation of a node has to end too.
const DEADLINE_MAX_S: u32 = 300;

/// How the hardware of installed systems is read.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The probe, linked statically, for the architecture of the nodes. `None`: hardware is not read.
    program: Option<PathBuf>,
    /// A section that needs longer hangs, in seconds.
    deadline_s: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            program: None,
            deadline_s: 20,
        }
    }
}

impl Settings {
    /// Adds each fault of the settings to `faults`.
    pub fn check(&self, faults: &mut Vec<String>) {
        if let Some(path) = self.program.as_ref().filter(|path| !path.is_file()) {
            let message = "is not a file; `make probe` builds the program";
            faults.push(format!("hardware_probe.program: {} {message}", path.display()));
        }
        if !(1..=DEADLINE_MAX_S).contains(&self.deadline_s) {
            faults.push(format!(
                "hardware_probe.deadline_s: must lie between 1 and {DEADLINE_MAX_S}"
            ));
        }
    }

    /// The program's file.
    ///
    /// # Errors
    /// Why hardware is not read.
    pub fn file(&self) -> Result<PathBuf, String> {
        let why = "hardware_probe.program is not set, so the hardware was not read";
        self.program.clone().ok_or_else(|| why.to_owned())
    }

    /// A section of the probe that needs longer hangs.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_secs(self.deadline_s.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named_and_without_a_program_nothing_is_read() {
        let settings = Settings {
            program: Some("/no/such/probe".into()),
            deadline_s: 0,
        };
        let mut faults = Vec::new();
        settings.check(&mut faults);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(
            faults[0].contains("hardware_probe.program: /no/such/probe is not a file"),
            "{faults:?}"
        );
        assert!(faults[1].contains("between 1 and 300"), "{faults:?}");
        let mut faults = Vec::new();
        Settings::default().check(&mut faults);
        assert!(faults.is_empty(), "{faults:?}");
        assert!(Settings::default().file().unwrap_err().contains("is not set"));
    }
}
