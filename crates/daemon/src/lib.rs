//! The control plane's process: starts and supervises all parts, serves images, tidies up, and backs up a site.
//!
//! This crate is the one place that knows the features (`rackwright-control`) and the API (`rackwright-grpc`) together.

// Tests may read clocks and files, and wait for tasks.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod backup;
pub mod daemon;
pub mod hardening;
pub mod housekeeping;
pub mod image_http;
pub mod web_certificate;
