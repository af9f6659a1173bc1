//! Shared parts of the real-machine tests and the demo: a lab of QEMU machines, a `rackwrightd` beside it, and the CLI.
//!
//! Everything runs inside the lab's network namespace and ends with the namespace.

pub mod bridge_host;
pub mod client;
pub mod customer;
pub mod drive;
pub mod fabric;
pub mod flood;
pub mod hall;
pub mod impostor;
pub mod ipmi;
pub mod keep;
pub mod member;
pub mod neighbour;
pub mod outside;
pub mod plane;
pub mod ports;
pub mod process;
pub mod rogue_dhcp;
pub mod site;
pub mod timing;
pub mod web_console;
pub mod wire;
pub mod witness;
