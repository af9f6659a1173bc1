//! The conformance suite on a PostgreSQL server of its own, and the tests that need a server.

#![allow(clippy::unwrap_used)]

mod backup;
#[path = "../conformance/mod.rs"]
mod conformance;
mod database;
mod hints;
mod server;
