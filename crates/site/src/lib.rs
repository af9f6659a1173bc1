//! The datacenter as a value: positions, power, cooling, cables, and the placement of clusters.
//!
//! Every function depends only on its arguments. This crate never opens a file or a socket and never uses a clock, a
//! database or randomness. The input is the text of a site file, the dump of a fabric or a seed. The output is
//! findings, models and placements.

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
