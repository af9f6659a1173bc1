//! The gRPC API as its clients use it: the real daemon, mutual TLS, the generated stubs, and machines that stay off.

#![allow(clippy::disallowed_methods)] // a test may read clocks, and wait for what it started

#[path = "api/access.rs"]
mod access;
#[path = "api/apply.rs"]
mod apply;
#[path = "api/client.rs"]
mod client;
#[path = "api/connect.rs"]
mod connect;
#[path = "api/failures.rs"]
mod failures;
#[path = "api/following.rs"]
mod following;
#[path = "api/images.rs"]
mod images;
#[path = "api/machines.rs"]
mod machines;
#[path = "api/mutations.rs"]
mod mutations;
#[path = "api/reading.rs"]
mod reading;
#[path = "api/secrets.rs"]
mod secrets;
#[path = "api/wire.rs"]
mod wire;
