//! A thin, tolerant Redfish client.
//!
//! [`BmcClient`] talks to one BMC. A resource is a JSON value ([`Resource`]) with typed views ([`views`]), which never
//! fail because of one odd property. The client follows links and never builds them, and everything has a limit. The
//! peculiarities of single BMCs are data in `quirks/` ([`quirks`]); the code knows mechanisms, not vendors. The requests,
//! the login and the errors are those of `rackwright-redfish-wire`.
//!
//! Three rules hold everywhere:
//! - A BMC is identified by its pinned certificate. Another certificate stops the client
//!   ([`RedfishError::CertificateChanged`]).
//! - An accepted change counts only after it reads back: boot overrides, power and media are verified.
//! - Errors, log lines and `Debug` output contain no passwords, tokens or request bodies.

mod ac_cycle;
mod accounts;
mod bios;
mod bmc_state;
mod boot;
mod boot_options;
pub mod capabilities;
mod client;
mod component_integrity;
mod console;
mod event_log;
mod events;
mod firmware;
mod identity;
mod inventory;
mod media;
mod parts;
mod power;
pub mod quirks;
mod readings;
mod resource;
mod secure_boot;
mod settings;
mod survey;
mod task;
pub mod views;

pub use rackwright_redfish_wire::address::BmcAddress;
pub use rackwright_redfish_wire::environment::{Environment, SystemEnvironment};
pub use rackwright_redfish_wire::error::{ErrorKind, Exchange, RedfishError};
pub use rackwright_redfish_wire::etag::EtagRung;
pub use rackwright_redfish_wire::extended::{BmcMessage, BmcMessages};
pub use rackwright_redfish_wire::gate::Gates;
pub use rackwright_redfish_wire::sender::SendError;
pub use rackwright_redfish_wire::session::LoginMethod;
pub use rackwright_redfish_wire::settings::{BODY_RATE, Limits, RetryPolicy};
pub use rackwright_redfish_wire::tls::CertificateFingerprint;

pub use ac_cycle::AcCycleOutcome;
pub use bios::{BiosChange, BiosRules, BiosState};
pub use bmc_state::{
    AccountRemoval, BmcState, InBandSwitch, Shown, StateItem, StateListed, StatePart, StateScope, UefiBootOption,
    UefiKey, UefiKeys, UefiSecureBoot, UefiState,
};
pub use boot::{BootOutcome, BootTarget, Deviation, Persistence};
pub use client::{BmcClient, BmcHints};
pub use component_integrity::{ComponentIntegrity, ReportedMeasurement, SignedMeasurements};
pub use console::{ConsoleOffer, SshConsole, WebConsole, WebLine};
pub use event_log::{ClearPayload, EventLog, LogEntry, LogInfo};
pub use events::EventStream;
pub use firmware::{
    Activation, FirmwareEntry, FirmwareImage, FirmwareState, UpdateLook, UpdateOffer, UpdateProgress, UpdateTicket,
};
pub use identity::{Identity, Machine};
pub use inventory::{BmcInventory, DriveInfo, InventoryGap, MemoryInfo, Nic, ProcessorInfo};
pub use parts::{FirmwareInfo, PartInfo};
pub use power::{PowerChange, PowerGoal};
pub use readings::{
    CduReadings, CircuitReading, ConnectorReading, LeakReading, NodeReadings, OutletReading, PduReadings, SupplyReading,
};
pub use resource::Resource;
pub use secure_boot::{KeysReset, SecureBootCertificate, SecureBootState, pem_fingerprint};
pub use settings::{BmcTarget, Settings};
pub use survey::{ServiceFacts, Survey};
pub use task::{TaskHandle, TaskReport};
pub use views::{
    Account, AccountPolicy, AttributeKind, AttributeRule, BiosValue, BootMode, BootView, Breaker, ConnectorSide,
    LeakState, MacAddress, MediaKind, PowerState, Temperature,
};
