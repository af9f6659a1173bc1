//! Real machines on one box: a network namespace, a bridge, QEMU processes and their BMCs.
//!
//! [`enter()`] enters the namespace. [`Lab`] starts the machines and gives tests their handles and fault switches. No part
//! of a lab listens outside the namespace or outlives it. A program that wants a way in makes it with [`enter_with()`].
//!
//! A test looks like this:
//!
//! ```no_run
//! use rackwright_lab::{Lab, LabConfig, PowerState};
//! use std::time::Duration;
//!
//! #[test]
//! fn machine_is_found_switched_off() {
//!     rackwright_lab::run_test("machine_is_found_switched_off", async |namespace| {
//!         let lab = Lab::start(&namespace, LabConfig::default()).await.unwrap();
//!         assert_eq!(lab.machine(0).view().power, PowerState::Off);
//!     });
//! }
//! ```

// Tests may read clocks and files, and may wait for tasks that they started.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod accelerator;
mod actor;
mod config;
mod enter;
mod error;
mod file;
mod host;
mod ipmi;
mod machine;
mod media;
mod network;
mod nvram;
mod process;
mod qemu;
mod qmp;
mod requirements;
mod start;
mod state;

pub use accelerator::Accelerator;
pub use config::{Consoles, DiskKind, Firmware, LabConfig, NetworkRom};
pub use enter::{Entered, Namespace, Outcome, Reentry, enter, enter_with, run_test};
pub use error::LabError;
pub use file::{BmcEntry, DiskEntry, LabFile, MachineEntry};
pub use ipmi::IpmiBmc;
pub use machine::{BmcAccess, Machine, MachineView, Media};
pub use network::{BRIDGE, SERVER_IPV4, SERVER_IPV6};
pub use rackwright_sim_bmc::{
    BmcError, BootEnabled, BootOverride, BootTarget, PowerState, ResetRefused, ResetType, install_crypto,
};
pub use requirements::{Check, examine};
pub use start::Lab;
