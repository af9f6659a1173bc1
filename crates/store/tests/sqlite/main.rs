//! The conformance suite on SQLite, and what only a file can show.

#![allow(clippy::unwrap_used)]

#[path = "../conformance/mod.rs"]
mod conformance;
mod crash;
mod database;
mod file;
mod group;
