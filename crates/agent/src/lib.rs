//! Rackwright's agent: the only program that runs on a machine booted over the network. It takes stock of the machine,
//! writes images to its drives, and erases them with proof.
//!
//! - [`init`] is PID 1: mounts, modules, network, and looks after the agent proper.
//! - [`agent`] registers with the control plane and keeps a stream to it ([`session`]); [`identity`] holds the pinned CA and
//!   the certificate.
//! - [`jobs`] takes jobs, one at a time, under the rules of the [`ledger`]: no operation runs twice, none of an older claim
//!   generation runs at all.
//! - [`disk`] and [`efi`] finish a written image: partition table, seed, boot entry. [`erase`] erases [`drives`].
//! - [`inventory`] reads sysfs and procfs.
//!
//! What it never does: resolve names (it is linked statically), wait without bound, take a job without a ledger, call an
//! erase done that it did not read back. `unsafe` is in [`mod@ioctl`] alone. The machine is reached through the
//! traits of [`machine::Machine`], which the simulator and the tests replace.
//!
//! `docs/agent.md` tells operators what to expect of it.

// A test may read clocks and files, and wait for what it started.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod agent;
pub mod clock;
pub mod cmdline;
pub mod console;
pub mod disk;
pub mod drives;
pub mod efi;
pub mod erase;
pub mod host;
pub mod identity;
pub mod init;
pub mod inventory;
pub mod ioctl;
pub mod jobs;
pub mod ledger;
pub mod machine;
pub mod medium;
pub mod modules;
pub mod net;
pub mod random;
pub mod root;
pub mod session;
pub mod text;
pub mod tpm;
