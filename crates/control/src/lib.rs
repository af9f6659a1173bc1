//! The control plane, `rackwrightd`: gRPC in front, the runner behind, and the boot services beside.
//!
//! Calls write intent. `rackwright-lifecycle` decides, and the runner performs the decisions. Observations are stored as
//! readings. No transaction and no lock is held during a wait for the network.

// Tests may read clocks and files, and wait for tasks.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod agent_boot;
pub mod agent_session;
pub mod agents;
pub mod api_error;
pub mod attestation;
pub mod audit;
pub mod backup;
pub mod bmc;
pub mod bmc_secret;
pub mod bmc_state;
mod bmc_work;
pub mod boot;
pub mod clock;
pub mod clusters;
pub mod config;
pub mod console;
pub mod core;
pub mod credentials;
pub mod daemon;
pub mod deployment_keys;
pub mod discovery;
pub mod drives;
pub mod ethernet;
pub mod facility;
pub mod firmware;
pub mod firmware_settings;
pub mod golden_firmware;
pub mod grpc;
pub mod hall;
pub mod hardening;
pub mod housekeeping;
pub mod image_http;
pub mod intent;
pub mod invite;
pub mod keys;
pub mod local_user;
pub mod measured_boot;
pub mod metrics;
pub mod parts;
pub mod perform;
mod polling;
pub mod replicas;
pub mod rights;
pub mod runner;
mod share;
#[cfg(test)]
mod simulation;
pub mod site_uploads;
pub mod space;
pub mod start;
pub mod stored;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod text;
pub mod tls;
pub mod uploads;
pub mod user_data;
pub mod waits;
pub mod watch_power;
