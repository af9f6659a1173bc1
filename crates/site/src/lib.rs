//! The datacenter as a value: what stands where, what feeds and cools it, and which cable goes where.
//!
//! Everything here is a function of its arguments. This crate never opens a file or a socket, and never sees a clock,
//! a database or randomness: the text of a site file and a seed come in, findings and models go out.

pub mod compact;
pub mod file;
pub mod finding;
pub mod firmware;
pub mod generate;
pub mod model;
pub mod power;
pub mod text;
