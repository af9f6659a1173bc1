//! Machines for trying and testing Rackwright.
//!
//! * [`lab`]: a few real QEMU machines, each behind its own BMC, on a bridge inside a private network namespace. It
//!   enters the namespace, starts the machines and gives tests their handles and fault switches. No part of it listens
//!   outside the namespace or outlives it: see [`lab::enter`].
//! * [`fleet`]: thousands of simulated machines in one process.
//! * [`switch`]: an Ethernet switch with ports that can be set.
//! * [`mockup`]: a recorded BMC, read-only.
//! * [`bmc`] is the Redfish service of both. It shares no models with the Redfish client that is tested against it.

// Tests may read clocks and files, and may wait for tasks that they started.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod bmc;
pub mod facility;
pub mod fleet;
pub mod lab;
pub mod mockup;
mod random;
pub mod switch;
