//! The ground of the control plane, `rackwrightd`: its settings, its state, and what every feature needs, such as time,
//! errors of calls, BMCs, keys, rights, the audit and metrics. The ground knows no feature.

// Tests may read clocks and files, and wait for tasks.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod agents;
pub mod api_error;
pub mod audit;
pub mod bmc;
pub mod bmc_state;
pub mod clock;
pub mod config;
pub mod core;
pub mod deployment_keys;
pub mod features;
pub mod firmware_files;
pub mod hall;
pub mod intent;
pub mod invite;
pub mod keys;
pub mod local_user;
pub mod login_provider;
pub mod measured_boot;
pub mod metrics;
pub mod open;
pub mod parts;
pub mod polling;
pub mod rights;
pub mod share;
pub mod site_uploads;
pub mod space;
pub mod start;
pub mod stored;
pub mod telemetry;
pub mod testing;
pub mod text;
pub mod tls;
pub mod uploads;
pub mod user_data;
pub mod waits;
pub mod watch_status;
