//! Errors that NVIDIA's drivers write into the kernel's log: XID of a GPU, SXID of an NVLink switch.

use std::collections::BTreeMap;
use std::fmt;

use crate::component::Kind;
use crate::table::{TableError, named, rows};

const FILE: &str = "data/nvidia-errors.txt";
const TEXT: &str = include_str!("../data/nvidia-errors.txt");

/// What an error means for its component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Needs no action.
    Notice,
    /// A program's own fault is the usual cause.
    Application,
    /// The component works, but needs the remedy.
    Degraded,
    /// The component is unusable until the remedy.
    Fatal,
}

impl Severity {
    /// All severities.
    pub const ALL: [Self; 4] = [Self::Notice, Self::Application, Self::Degraded, Self::Fatal];

    /// Whether one event is evidence against the component.
    #[must_use]
    pub fn is_fault(self) -> bool {
        matches!(self, Self::Degraded | Self::Fatal)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Notice => "notice",
            Self::Application => "application",
            Self::Degraded => "degraded",
            Self::Fatal => "fatal",
        })
    }
}

/// The action that ends an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remedy {
    /// No action is needed.
    None,
    /// Start the program again.
    RestartApplication,
    /// Reset the GPU, or restart the system.
    ResetGpu,
    /// Restart the system.
    Reboot,
    /// Switch the node off and on.
    PowerCycle,
    /// Install another driver or firmware.
    UpdateSoftware,
    /// A person must look: cables, seating, cooling, diagnostics.
    Inspect,
    /// Replace the component.
    Replace,
}

impl Remedy {
    /// All remedies.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::RestartApplication,
        Self::ResetGpu,
        Self::Reboot,
        Self::PowerCycle,
        Self::UpdateSoftware,
        Self::Inspect,
        Self::Replace,
    ];

    /// An instruction for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "nothing is to be done",
            Self::RestartApplication => "start the program again",
            Self::ResetGpu => "reset the GPU or restart the system",
            Self::Reboot => "restart the system",
            Self::PowerCycle => "switch the node off and on",
            Self::UpdateSoftware => "install another version of driver or firmware",
            Self::Inspect => "inspect the component, its seating and its cables",
            Self::Replace => "replace the component",
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::RestartApplication => "restart-application",
            Self::ResetGpu => "reset-gpu",
            Self::Reboot => "reboot",
            Self::PowerCycle => "power-cycle",
            Self::UpdateSoftware => "update-software",
            Self::Inspect => "inspect",
            Self::Replace => "replace",
        })
    }
}

/// The numbering that an error code belongs to. An XID and an SXID with the same number are different errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum List {
    /// Errors of GPUs.
    Xid,
    /// Errors of NVLink switches.
    Sxid,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xid => "xid",
            Self::Sxid => "sxid",
        })
    }
}

/// An error of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownError {
    /// Kind of the component.
    pub kind: Kind,
    /// What the error means for the component.
    pub severity: Severity,
    /// The action that ends the error.
    pub remedy: Remedy,
    /// The meaning, for people.
    pub meaning: String,
}

/// All known errors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorCatalogue {
    by_code: BTreeMap<(List, u32), KnownError>,
}

impl ErrorCatalogue {
    /// The embedded catalogue.
    ///
    /// # Errors
    /// A fault of the file, which the tests exclude.
    pub fn embedded() -> Result<Self, TableError> {
        Self::parse(FILE, TEXT)
    }

    /// Reads a catalogue; `file` is only for messages.
    ///
    /// # Errors
    /// The first fault, with its line.
    pub fn parse(file: &str, text: &str) -> Result<Self, TableError> {
        let mut by_code = BTreeMap::new();
        for row in rows(file, text) {
            let [list, code, kind, severity, remedy, meaning] = row.exactly()?;
            let list = named(&row, "list", &[List::Xid, List::Sxid], list)?;
            let code: u32 = code
                .parse()
                .map_err(|_| row.wrong(format!("the code {code:?} is not a number")))?;
            let error = KnownError {
                kind: named(&row, "kind of component", &Kind::ALL, kind)?,
                severity: named(&row, "severity", &Severity::ALL, severity)?,
                remedy: named(&row, "remedy", &Remedy::ALL, remedy)?,
                meaning: meaning.to_owned(),
            };
            if by_code.insert((list, code), error).is_some() {
                return Err(row.wrong(format!("{list} {code} is there twice")));
            }
        }
        Ok(Self { by_code })
    }

    /// The error of a code. `None`: unknown.
    #[must_use]
    pub fn get(&self, list: List, code: u32) -> Option<&KnownError> {
        self.by_code.get(&(list, code))
    }

    /// All errors, in the order of lists and codes.
    pub fn all(&self) -> impl Iterator<Item = (List, u32, &KnownError)> {
        self.by_code.iter().map(|((list, code), error)| (*list, *code, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_catalogue_is_sound() {
        let catalogue = ErrorCatalogue::embedded().unwrap();
        for (list, code, error) in catalogue.all() {
            assert!(!error.meaning.is_empty(), "{list} {code}");
            // A fatal error needs an action on the component, and only a fault has such an action.
            let acts = !matches!(error.remedy, Remedy::None | Remedy::RestartApplication);
            assert!(acts || error.severity != Severity::Fatal, "{list} {code}");
            assert!(!acts || error.severity.is_fault(), "{list} {code}");
        }
        let of = |list, code| {
            catalogue
                .get(list, code)
                .map(|error| (error.kind, error.severity, error.remedy))
        };
        assert_eq!(
            of(List::Xid, 79),
            Some((Kind::Gpu, Severity::Fatal, Remedy::PowerCycle))
        );
        assert_eq!(
            of(List::Xid, 64),
            Some((Kind::GpuMemory, Severity::Fatal, Remedy::Replace))
        );
        assert_eq!(
            of(List::Xid, 31).map(|(_, severity, _)| severity),
            Some(Severity::Application)
        );
        assert_eq!(of(List::Sxid, 20034).map(|(kind, ..)| kind), Some(Kind::NvLink));
        assert_eq!(of(List::Sxid, 79), None);
    }

    #[test]
    fn a_fault_is_reported_with_its_line() {
        for (row, words) in [
            ("xid | 79 | gpu | fatal | power-cycle", "5 fields instead of 6"),
            ("xxid | 79 | gpu | fatal | power-cycle | x", "no list \"xxid\""),
            ("xid | many | gpu | fatal | power-cycle | x", "not a number"),
            (
                "xid | 79 | tpu | fatal | power-cycle | x",
                "no kind of component \"tpu\"",
            ),
            ("xid | 79 | gpu | grave | power-cycle | x", "no severity \"grave\""),
            ("xid | 79 | gpu | fatal | pray | x", "no remedy \"pray\""),
        ] {
            let error = ErrorCatalogue::parse("f", &format!("# note\n\n{row}\n")).unwrap_err();
            assert!(error.to_string().starts_with("f line 3: "), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        let row = "xid | 79 | gpu | fatal | reboot | x\n";
        assert!(
            ErrorCatalogue::parse("f", &format!("{row}{row}"))
                .unwrap_err()
                .to_string()
                .contains("twice")
        );
    }
}
