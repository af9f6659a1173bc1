//! The program as operators run it: the real binary as a process, against a fake control plane over real TLS.
//!
//! What it prints is compared with recorded scripts in `tests/golden`; `UPDATE_GOLDEN=1` records them anew.

// Helpers outside test functions fail a test the same way.
#![allow(clippy::unwrap_used)]

mod apply;
mod authority;
mod cluster;
mod clusters;
mod cut;
mod errors;
mod events;
mod fake;
mod fake_clusters;
mod fake_images;
mod fake_metering;
mod fake_nodes;
mod fixtures;
mod golden;
mod images;
mod import;
mod login;
mod nodes;
mod program;
mod site;
mod site_server;
mod terminal;
mod usage;
mod watch;
