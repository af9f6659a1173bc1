//! The program as operators run it: the real binary as a process, against a fake control plane over real TLS.
//!
//! Its output is compared with recorded scripts in `tests/golden`; `UPDATE_GOLDEN=1` records them anew.

#![allow(clippy::disallowed_methods)] // a test may read clocks, and wait for what it started

// Helpers outside test functions fail a test the same way.
#![allow(clippy::unwrap_used)]

mod apply;
mod authority;
mod bmc;
mod cluster;
mod clusters;
mod cut;
mod discover;
mod errors;
mod events;
mod fake;
mod fake_bmc;
mod fake_clusters;
mod fake_discovery;
mod fake_images;
mod fake_metering;
mod fake_nodes;
mod fake_power;
mod fake_sessions;
mod fake_settings;
mod fixtures;
mod formats;
mod golden;
mod images;
mod import;
mod login;
mod nodes;
mod packaging;
mod power;
mod program;
mod selection;
mod settings;
mod site;
mod site_server;
mod terminal;
mod usage;
mod watch;
