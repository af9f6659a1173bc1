//! Machines to try Rackwright on.
//!
//! * [`lab`]: a few real QEMU machines, each behind a BMC of its own, on a bridge inside a private network namespace. It
//!   enters the namespace, starts the machines and gives tests their handles and fault switches. Nothing of it listens
//!   outside the namespace, and nothing outlives it: see [`lab::enter`].
//! * [`fleet`]: thousands of simulated machines in one process.
//! * [`switch`]: an Ethernet switch whose ports can be set.
//! * [`mockup`]: a recorded BMC, read-only.
//! * [`bmc`] is the Redfish service of both. It shares no models with the Redfish client that is tested against it.

// A test may read clocks and files, and wait for what it started.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod bmc;
pub mod facility;
pub mod fleet;
pub mod lab;
pub mod mockup;
mod random;
pub mod switch;
