//! Agents that serve each other over real TLS on the loopback interface.

#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods)] // a test may read clocks

mod exchange;
mod liars;
mod limits;
mod rights;
mod spread;
mod support;
