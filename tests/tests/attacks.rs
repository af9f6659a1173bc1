//! Attacks against a running `rackwrightd`: each test plays an attacker and fails if the attack succeeds.
//! `docs/security.md` lists the attacks with the name of the test that tries each one. `make test-attacks` runs them all.

#![allow(clippy::disallowed_methods)] // a test may read clocks, and wait for what it started

#[path = "attacks/attestation.rs"]
mod attestation;
#[path = "attacks/audit.rs"]
mod audit;
#[path = "attacks/authority.rs"]
mod authority;
#[path = "attacks/bmc.rs"]
mod bmc;
#[path = "attacks/bmc_secret.rs"]
mod bmc_secret;
#[path = "attacks/certificates.rs"]
mod certificates;
#[path = "attacks/claims.rs"]
mod claims;
#[path = "attacks/components.rs"]
mod components;
#[path = "attacks/device_logins.rs"]
mod device_logins;
#[path = "attacks/drives.rs"]
mod drives;
#[path = "attacks/erase.rs"]
mod erase;
#[path = "attacks/ethernet.rs"]
mod ethernet;
#[path = "attacks/exhaustion.rs"]
mod exhaustion;
#[path = "attacks/firmware.rs"]
mod firmware;
#[path = "attacks/hostile_host.rs"]
mod hostile_host;
#[path = "attacks/impostor.rs"]
mod impostor;
#[path = "attacks/logins.rs"]
mod logins;
#[path = "attacks/machine.rs"]
mod machine;
#[path = "attacks/malformed.rs"]
mod malformed;
#[path = "attacks/matrix.rs"]
mod matrix;
#[path = "attacks/members.rs"]
mod members;
#[path = "attacks/restore.rs"]
mod restore;
#[path = "attacks/secrets.rs"]
mod secrets;
#[path = "attacks/uefi.rs"]
mod uefi;
#[path = "attacks/web.rs"]
mod web;
