//! A thin, tolerant Redfish client.
//!
//! [`BmcClient`] talks to one BMC. A resource is a JSON value ([`Resource`]) with typed views ([`views`]), which never
//! fail because of one odd property. The client follows links and never builds them, and everything has a limit. The
//! peculiarities of single BMCs are data in `quirks/` ([`quirks`]); the code knows mechanisms, not vendors.
//!
//! Three rules hold everywhere:
//! - A BMC is identified by its pinned certificate. Another certificate stops the client
//!   ([`RedfishError::CertificateChanged`]).
//! - An accepted change counts only after it reads back: boot overrides, power and media are verified.
//! - Errors, log lines and `Debug` output contain no passwords, tokens or request bodies.

mod ac_cycle;
mod accounts;
mod address;
mod bios;
mod bmc_state;
mod boot;
pub mod capabilities;
mod client;
mod component_integrity;
mod console;
mod environment;
mod error;
mod etag;
mod event_log;
mod events;
mod extended;
mod firmware;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod identity;
mod inventory;
mod json;
mod link;
mod media;
mod parts;
mod power;
pub mod quirks;
mod readings;
pub mod record;
mod resource;
mod retry;
mod secure_boot;
mod sender;
mod session;
mod settings;
mod sse;
mod survey;
mod task;
mod tls;
mod transport;
pub mod views;
mod wire;

pub use ac_cycle::AcCycleOutcome;
pub use address::BmcAddress;
pub use bios::{BiosChange, BiosRules, BiosState};
pub use bmc_state::{
    AccountRemoval, BmcState, InBandSwitch, Shown, StateItem, StateListed, StatePart, StateScope, UefiBootOption,
    UefiKey, UefiKeys, UefiSecureBoot, UefiState,
};
pub use boot::{BootOutcome, BootTarget, Deviation, Persistence};
pub use client::{BmcClient, BmcHints};
pub use component_integrity::{ComponentIntegrity, ReportedMeasurement, SignedMeasurements};
pub use console::{ConsoleOffer, SshConsole, WebConsole, WebLine};
pub use environment::{Environment, SystemEnvironment};
pub use error::{ErrorKind, Exchange, RedfishError};
pub use etag::EtagRung;
pub use event_log::{ClearPayload, EventLog, LogEntry, LogInfo};
pub use events::EventStream;
pub use extended::{BmcMessage, BmcMessages};
pub use firmware::{
    Activation, FirmwareEntry, FirmwareImage, FirmwareState, UpdateLook, UpdateOffer, UpdateProgress, UpdateTicket,
};
pub use gate::Gates;
pub use identity::{Identity, Machine};
pub use inventory::{BmcInventory, DriveInfo, InventoryGap, MemoryInfo, Nic, ProcessorInfo};
pub use parts::{FirmwareInfo, PartInfo};
pub use power::{PowerChange, PowerGoal};
pub use readings::{
    CduReadings, CircuitReading, ConnectorReading, LeakReading, NodeReadings, OutletReading, PduReadings, SupplyReading,
};
pub use resource::Resource;
pub use secure_boot::{KeysReset, SecureBootCertificate, SecureBootState, pem_fingerprint};
pub use sender::SendError;
pub use session::LoginMethod;
pub use settings::{BODY_RATE, BmcTarget, Limits, RetryPolicy, Settings};
pub use survey::{ServiceFacts, Survey};
pub use task::{TaskHandle, TaskReport};
pub use tls::CertificateFingerprint;
pub use views::{
    Account, AccountPolicy, AttributeKind, AttributeRule, BiosValue, BootMode, BootView, Breaker, ConnectorSide,
    LeakState, MacAddress, MediaKind, PowerState, Temperature,
};
