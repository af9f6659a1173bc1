//! A simulated datacenter for trying and testing Rackwright.
//!
//! * [`fleet`]: thousands of simulated machines in one process.
//! * [`facility`]: power and cooling equipment.
//! * [`switch`], [`netconf`]: Ethernet switches with ports that can be set.
//! * [`mockup`]: a recorded BMC, read-only.
//!
//! The machines' BMCs are of the crate `sim-bmc`.

// Tests may read clocks and files, and may wait for tasks that they started.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod facility;
pub mod fleet;
pub mod mockup;
pub mod netconf;
pub mod switch;

pub use rackwright_sim_bmc::{BmcError, install_crypto};
