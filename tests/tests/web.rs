//! The web console as browsers and programs use it: the real daemon, TLS, and curl or Chromium as clients.

#![allow(clippy::disallowed_methods)] // a test may read clocks, and wait for what it started

#[path = "web/browser.rs"]
mod browser;
#[path = "web/cluster.rs"]
mod cluster;
#[path = "web/curl.rs"]
mod curl;
#[path = "web/devices.rs"]
mod devices;
#[path = "web/foreign.rs"]
mod foreign;
#[path = "web/forms.rs"]
mod forms;
#[path = "web/kept.rs"]
mod kept;
#[path = "web/provider.rs"]
mod provider;
