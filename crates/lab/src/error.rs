//! Errors of the lab.

use rackwright_sim_bmc::BmcError;
use std::io;
use std::path::{Path, PathBuf};

/// Why the lab or one of its machines could not carry out a request.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// This machine lacks a requirement of the lab. The text names each one and how to install it.
    #[error("the lab cannot run on this machine:\n{report}\nRun `rackwright-lab doctor` for the whole list.")]
    Missing { report: String },

    /// A file or folder could not be used.
    #[error("lab: could not {what} {}: {source}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    /// A helper program failed.
    #[error("lab: `{command}` failed: {detail}")]
    Command { command: String, detail: String },

    /// The code inside the namespace never ran: the test name given to `run_test` is not the test's name.
    #[error("lab: no test ran inside the namespace: check that `{name}` is the full name of the test")]
    NeverEntered { name: String },

    /// `Lab::start` was called outside a lab namespace, or in one with a running lab.
    #[error("lab: {detail}")]
    Namespace { detail: String },

    /// An invalid configuration value.
    #[error("lab: {field}: {detail}")]
    Config { field: &'static str, detail: String },

    /// A machine's QEMU process could not be started or controlled.
    #[error("machine {machine}: could not {what}: {detail}")]
    Machine {
        machine: String,
        what: &'static str,
        detail: String,
    },

    /// The machine must be off for this (disks cannot be pulled from a running machine).
    #[error("machine {machine} is on: switch it off before you {what}")]
    MachineIsOn { machine: String, what: &'static str },

    /// The time limit of a wait was exceeded.
    #[error("machine {machine}: {what} did not happen within {deadline_s} s; {seen}")]
    Deadline {
        machine: String,
        what: String,
        deadline_s: u64,
        seen: String,
    },

    /// The machine's task has ended: the lab was stopped.
    #[error("machine {machine}: the lab has been stopped")]
    Stopped { machine: String },

    /// A machine's BMC could not start.
    #[error(transparent)]
    Bmc(#[from] BmcError),
}

impl LabError {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { what, path, source }
    }
}
