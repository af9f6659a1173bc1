//! The features of the control plane, `rackwrightd`, that work on many nodes at once: clusters, discovery, power and
//! cooling, and the watch over nodes at rest.
//!
//! Calls of the API, in `rackwright-grpc`, write intent. No transaction and no lock is held during a wait for the network.

// Tests may read clocks and files, and wait for tasks.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod clusters;
pub mod discovery;
pub mod facility;
pub mod testing;
pub mod watch_power;
