//! Conformance: what everything above relies on when it keeps something. Only the public API, on a database file of
//! its own for every test.

#![allow(clippy::unwrap_used)]

mod boot;
mod effects;
mod file;
mod filters;
mod images;
mod leases;
mod log;
mod nodes;
mod operations;
mod requests;
mod support;
mod tokens;
