//! What the real-machine tests and the demo share: a lab of QEMU machines, a `rackwrightd` beside it, and the CLI.
//!
//! Everything runs inside the lab's network namespace and ends with it.

pub mod client;
pub mod fabric;
pub mod ipmi;
pub mod neighbour;
pub mod plane;
pub mod ports;
pub mod process;
pub mod site;
pub mod timing;
pub mod wire;
pub mod witness;
