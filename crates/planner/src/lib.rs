//! Clusters in a site: where they fit, how their cables and network tests look, and the files of a hand-over.
//!
//! Everything here is a function of its arguments. This crate never opens a file or a socket, and never sees a clock,
//! a database or randomness.

pub mod cabling;
mod check;
pub mod hall;
pub mod handover;
pub mod network;
pub mod planner;
mod sets;
pub mod watch;

pub use check::{check, check_also};
