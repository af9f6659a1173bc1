//! The conversation with one BMC: HTTP requests over connections with a pinned certificate, a login, and a limit for
//! everything that a BMC can send.
//!
//! [`wire::Wire`] sends a request and repeats it by a policy, and [`session::Login`] proves the client's identity. All
//! clients of one BMC share a gate ([`gate::Gates`]). Answers are JSON values ([`json`]); their meaning is the subject of
//! `rackwright-redfish`.

pub mod address;
pub mod environment;
pub mod error;
pub mod etag;
pub mod extended;
#[doc(hidden)]
pub mod fuzzing;
pub mod gate;
pub mod json;
mod link;
pub mod retry;
pub mod sender;
pub mod session;
pub mod settings;
pub mod sse;
pub mod tls;
pub mod transport;
pub mod upload;
pub mod wire;
