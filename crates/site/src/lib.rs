//! The datacenter as a value: what stands where, what feeds and cools it, which cable goes where, and where a cluster fits.
//!
//! Everything here is a function of its arguments. This crate never opens a file or a socket, and never sees a clock,
//! a database or randomness: the text of a site file, the dump of a fabric and a seed come in, findings, models and
//! placements go out.

pub mod discovery;
pub mod fabric;
pub mod file;
pub mod finding;
pub mod firmware;
pub mod generate;
pub mod hall;
pub mod handover;
pub mod import;
pub mod model;
pub mod network;
pub mod placement;
pub mod planner;
pub mod power;
mod text;
pub mod watch;
