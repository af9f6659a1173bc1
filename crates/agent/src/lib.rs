//! Rackwright's agent: the only program on a machine that is booted over the network. It reports the machine's inventory,
//! writes images to its drives, and erases them with proof.
//!
//! - [`init`] is PID 1: mounts, modules, network, and supervision of the agent proper.
//! - [`agent`] registers with the control plane and keeps a stream to it ([`session`]); [`identity`] holds the pinned CA
//!   and the certificate.
//! - [`jobs`] runs jobs, one at a time, under the rules of the [`ledger`]: no operation runs twice, and jobs of an older
//!   claim generation never run.
//! - [`sharing`] serves the chunks of an image to other agents that write it, and asks them.
//! - [`disk`] and [`efi`] complete a written image: partition table, seed, boot entry. [`erase`] erases [`drives`].
//! - [`inventory`] reads sysfs and procfs.
//!
//! The agent never resolves names (it is linked statically), never waits without bound, never runs a job without a ledger,
//! and never reports an erase that it did not read back. Only [`mod@ioctl`] contains `unsafe` code. The agent reaches the
//! machine through the traits of [`machine::Machine`], which the simulator and the tests replace.
//!
//! `docs/agent.md` describes it for operators.

// A test may read clocks and files, and wait for the processes it started.
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
pub mod sharing;
pub mod text;
pub mod tpm;
