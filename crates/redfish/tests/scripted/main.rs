//! The client against a scripted BMC.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod abuse;
mod accounts;
mod bmc;
mod bmc_state;
mod boot;
mod ciphers;
mod events;
mod firmware;
mod for_polling;
mod gate;
mod hostile;
mod inventory;
mod kcs;
mod logs;
mod media_and_tasks;
mod power;
mod readings;
mod recent;
mod requests;
mod server;
mod sessions;
mod settings;
mod slow;
mod survey;
mod tls;
mod uefi;
mod web_console;
