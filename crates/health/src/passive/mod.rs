//! The passive checks of a node: facts that were read without a load, and the components that they speak against.

mod drives;
mod gpus;
mod log;
mod pcie;
mod ports;
mod readiness;

use crate::component::Component;
use crate::errors::{ErrorCatalogue, Remedy, Severity};
use crate::facts::Facts;
use crate::rated::Figures;
use crate::table::TableError;

pub use log::{LogEvent, log_event};
pub use pcie::{Device, Role};

/// The ids of all passive checks, in the order of a report.
pub const PASSIVE_CHECKS: [&str; 16] = [
    "pcie-links",
    "pcie-errors",
    "kernel-log",
    "memory-errors",
    "nvme-health",
    "infiniband-ports",
    "gpu-presence",
    "gpu-memory",
    "gpu-clocks",
    "gpu-nvlink",
    "readiness-iommu",
    "readiness-acs",
    "readiness-read-request",
    "readiness-memlock",
    "readiness-governor",
    "readiness-numa",
];

/// Evidence against a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub component: Component,
    /// Severity for the component.
    pub severity: Severity,
    /// The remedy, for people.
    pub remedy: String,
    /// The evidence, for people.
    pub words: String,
}

impl Fault {
    /// A fault with one of the common remedies.
    #[must_use]
    pub fn new(component: Component, severity: Severity, remedy: Remedy, words: impl Into<String>) -> Self {
        Self {
            component,
            severity,
            remedy: remedy.words().to_owned(),
            words: words.into(),
        }
    }
}

/// The state of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The values were read, and speak against no component.
    Passed,
    /// At least one component is at fault.
    Failed,
    /// The machine has nothing to check; the reason.
    NotApplicable(String),
    /// A value that is needed could not be read; the reason.
    NotProven(String),
}

/// The result of a passive check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// One of [`PASSIVE_CHECKS`].
    pub check: &'static str,
    pub state: State,
    /// The measured values, with units.
    pub measured: String,
    /// The wanted values, with units.
    pub threshold: String,
    /// Where the threshold comes from.
    pub source: String,
    /// The components at fault.
    pub faults: Vec<Fault>,
}

impl Finding {
    fn of(check: &'static str, measured: String, threshold: &str, source: &str, faults: Vec<Fault>) -> Self {
        Self {
            check,
            state: if faults.is_empty() {
                State::Passed
            } else {
                State::Failed
            },
            measured,
            threshold: threshold.to_owned(),
            source: source.to_owned(),
            faults,
        }
    }

    fn without(check: &'static str, state: State, measured: impl Into<String>) -> Self {
        Self {
            check,
            state,
            measured: measured.into(),
            threshold: String::new(),
            source: String::new(),
            faults: Vec::new(),
        }
    }

    /// True for the checks of settings, which a profile may only report.
    #[must_use]
    pub fn is_readiness(&self) -> bool {
        self.check.starts_with("readiness-")
    }

    /// The faults for people: component, evidence, remedy.
    #[must_use]
    pub fn detail(&self) -> String {
        let fault = |fault: &Fault| format!("{}: {} ({})", fault.component, fault.words, fault.remedy);
        self.faults.iter().map(fault).collect::<Vec<_>>().join("; ")
    }
}

/// The data of the rules.
#[derive(Debug, Clone)]
pub struct Rules {
    figures: Figures,
    errors: ErrorCatalogue,
}

impl Rules {
    /// The embedded data.
    ///
    /// # Errors
    /// A fault of a file, which the tests exclude.
    pub fn embedded() -> Result<Self, TableError> {
        Ok(Self {
            figures: Figures::embedded()?,
            errors: ErrorCatalogue::embedded()?,
        })
    }

    /// Runs every passive check, in the order of [`PASSIVE_CHECKS`].
    #[must_use]
    pub fn judge(&self, facts: &Facts) -> Vec<Finding> {
        let devices = pcie::devices(facts);
        let mut findings = vec![
            pcie::links(facts, &devices),
            pcie::errors(facts, &devices),
            log::judge(facts, &self.errors),
            drives::memory(facts),
            drives::nvme(facts),
            ports::judge(facts),
        ];
        findings.extend(gpus::judge(facts, &devices, &self.figures));
        findings.extend(readiness::judge(facts, &devices));
        findings
    }
}

/// The result of a section that could not be read. `None`: it was.
fn unread(facts: &Facts, section: &str, check: &'static str) -> Option<Finding> {
    let why = facts.missing(section)?;
    Some(Finding::without(check, State::NotProven(why), "not read"))
}

fn plural(count: usize, noun: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{end}")
}
