//! The nodes of the control plane, `rackwrightd`: their boots, agents, BMCs, consoles, firmware and ports, and the runner,
//! which performs the decisions about them.
//!
//! Calls of the API, in `rackwright-grpc`, write intent. `rackwright-lifecycle` decides, and the runner performs the
//! decisions. Observations are stored as readings. No transaction and no lock is held during a wait for the network.

// Tests may read clocks and files, and wait for tasks.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod agent_boot;
pub mod agent_session;
pub mod attestation;
pub mod bmc_secret;
pub mod bmc_work;
pub mod boot;
pub mod console;
pub mod credentials;
pub mod drives;
pub mod effect_result;
pub mod ethernet;
pub mod firmware;
pub mod firmware_settings;
pub mod golden_firmware;
pub mod perform;
pub mod replicas;
pub mod runner;
pub mod start_rooms;
pub mod testing;
