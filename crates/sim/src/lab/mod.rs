//! Real machines on one box: a network namespace, a bridge, QEMU processes and their BMCs.
//!
//! A test looks like this:
//!
//! ```no_run
//! use rackwright_sim::lab::{self, Lab, LabConfig, PowerState};
//! use std::time::Duration;
//!
//! #[test]
//! fn machine_is_found_switched_off() {
//!     lab::run_test("machine_is_found_switched_off", async |namespace| {
//!         let lab = Lab::start(&namespace, LabConfig::default()).await.unwrap();
//!         assert_eq!(lab.machine(0).view().power, PowerState::Off);
//!     });
//! }
//! ```

mod accelerator;
mod actor;
mod config;
mod doctor;
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
mod start;
mod state;

pub use crate::bmc::{BootEnabled, BootOverride, BootTarget, PowerState, ResetRefused, ResetType};
pub use accelerator::Accelerator;
pub use config::{Consoles, DiskKind, Firmware, LabConfig, NetworkRom};
pub use doctor::{Check, examine};
pub use enter::{Entered, Namespace, Outcome, Reentry, enter, install_crypto, run_test};
pub use error::LabError;
pub use file::{BmcEntry, DiskEntry, LabFile, MachineEntry};
pub use ipmi::IpmiBmc;
pub use machine::{BmcAccess, Machine, MachineView, Media};
pub use network::{BRIDGE, SERVER_IPV4, SERVER_IPV6};
pub use start::Lab;
