//! A thin, tolerant Redfish client.
//!
//! [`BmcClient`] talks to one BMC: JSON value first ([`Resource`]), typed views ([`views`]) that never fail because one
//! property is odd, links followed and never built, everything bounded. What single BMCs need done differently is
//! data in `quirks/` ([`quirks`]); the code knows mechanisms, never vendors.
//!
//! Three things hold everywhere:
//! - A BMC is known by its pinned certificate. Another one stops the client ([`RedfishError::CertificateChanged`]).
//! - What a BMC accepted counts for nothing until it reads back: boot overrides, power and media are verified.
//! - Passwords, tokens and request bodies are in no error, log line or `Debug` output.

mod address;
mod boot;
mod client;
mod environment;
mod error;
mod etag;
mod events;
mod extended;
mod identity;
mod inventory;
mod json;
mod media;
mod power;
pub mod quirks;
mod resource;
mod retry;
mod session;
mod settings;
mod sse;
mod task;
mod tls;
mod transport;
pub mod views;
mod wire;

pub use address::BmcAddress;
pub use boot::{BootOutcome, BootTarget, Deviation, Persistence};
pub use client::{BmcClient, Shortcut};
pub use environment::{Environment, SystemEnvironment};
pub use error::{ErrorKind, Exchange, RedfishError};
pub use etag::EtagRung;
pub use events::EventStream;
pub use extended::{BmcMessage, BmcMessages};
pub use identity::{Identity, Machine};
pub use inventory::{BmcInventory, DriveInfo, InventoryGap, MemoryInfo, Nic, ProcessorInfo};
pub use power::{PowerChange, PowerGoal};
pub use resource::Resource;
pub use settings::{BmcTarget, Limits, RetryPolicy, Settings};
pub use task::{TaskHandle, TaskReport};
pub use tls::CertificateFingerprint;
pub use views::{BootMode, BootView, MacAddress, MediaKind, PowerState};
