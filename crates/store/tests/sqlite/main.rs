//! The conformance suite on SQLite, and the tests that need a file.

#![allow(clippy::unwrap_used)]

#[path = "../conformance/mod.rs"]
mod conformance;
mod crash;
mod database;
mod file;
mod group;
