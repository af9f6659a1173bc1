//! The client against a scripted BMC.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod bmc;
mod boot;
mod events;
mod hostile;
mod inventory;
mod lately;
mod media_and_tasks;
mod power;
mod requests;
mod server;
mod sessions;
mod sparing;
mod tls;
