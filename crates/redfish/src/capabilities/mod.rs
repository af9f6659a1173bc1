//! Capabilities of a BMC for deployments, assessed by what the BMC shows. Nothing is changed for the assessment.
//!
//! [`BmcClient::probe`](crate::BmcClient::probe) reads resources ([`Observed`]); [`assess`] is separate from the reading,
//! so it can be tested against recorded services.

mod assess;
mod boot;
mod observe;
mod services;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use assess::assess;
pub use observe::{Observed, Reading, error_summary};

use crate::quirks::Equipment;

macro_rules! capabilities {
    ($($(#[$doc:meta])* $name:ident = $title:literal,)*) => {
        /// One thing that a BMC can offer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Capability {
            $($(#[$doc])* $name,)*
        }

        impl Capability {
            /// All capabilities, in the order of tables.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The title in tables.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }
        }
    };
}

capabilities! {
    /// The machine can be powered on.
    PowerOn = "power on",
    /// The machine can be powered off at once.
    PowerOff = "power off",
    /// The operating system can be asked to shut down.
    PowerGracefulOff = "orderly power off",
    /// The machine can be restarted by one request.
    PowerRestart = "restart",
    /// All power can be cut, standby power included.
    AcCycle = "AC power cycle",
    /// Boot from the network by PXE.
    BootPxe = "boot target: PXE",
    /// Boot from the network by UEFI HTTP Boot.
    BootHttp = "boot target: UEFI HTTP",
    /// An address for UEFI HTTP Boot can be set.
    BootHttpUri = "HTTP boot URI",
    /// Boot from the disk.
    BootDisk = "boot target: disk",
    /// Boot from a CD.
    BootCd = "boot target: CD",
    /// An override for one boot.
    BootOnce = "boot override once",
    /// An override that stays.
    BootContinuous = "boot override continuous",
    /// UEFI or legacy can be chosen.
    BootMode = "boot mode",
    /// A virtual CD drive that accepts an image.
    MediaCd = "virtual media: CD",
    /// A virtual USB stick that accepts an image.
    MediaUsb = "virtual media: USB stick",
    /// BIOS attributes can be read and set.
    Bios = "BIOS settings",
    /// Secure Boot can be read and set.
    SecureBoot = "Secure Boot",
    /// Accounts can be read and made.
    Accounts = "accounts",
    /// Requests can use a session in place of user name and password.
    Sessions = "sessions",
    /// Server-sent events.
    Sse = "events (SSE)",
    /// Firmware by a multipart upload.
    UpdateMultipart = "update: multipart",
    /// Firmware by an upload to a push URI.
    UpdatePush = "update: push URI",
    /// Firmware that the BMC fetches itself.
    UpdateSimple = "update: SimpleUpdate",
    /// A serial console.
    Console = "serial console",
    /// The entries of an event log can be read.
    EventLog = "event log",
    /// A chassis reports readings of sensors.
    Sensors = "sensors",
    /// At least one Ethernet address of the machine is known.
    Macs = "Ethernet addresses",
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

/// The state of a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Available, in a form that this program can use.
    Pass,
    /// The BMC does not offer it.
    NotOffered,
    /// The BMC reports it, but a required resource cannot be read or used.
    Fail,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::NotOffered => "not offered",
            Self::Fail => "fail",
        })
    }
}

/// The assessment of one capability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The assessed capability.
    pub capability: Capability,
    /// Its state.
    pub outcome: Outcome,
    /// The evidence, or the reason for a failure.
    pub detail: String,
    /// The profiles' note about it on this platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The facts that the BMC reports about itself and its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Detected {
    /// Maker of the BMC's software.
    pub vendor: Option<String>,
    /// Product name of the Redfish service.
    pub product: Option<String>,
    /// Redfish version that the service claims.
    pub redfish_version: Option<String>,
    /// The kind of equipment that the BMC manages.
    pub equipment: Equipment,
    /// Maker of the machine.
    pub manufacturer: Option<String>,
    /// Model of the machine.
    pub model: Option<String>,
    /// Link of the system.
    pub system: Option<String>,
    pub bmc_model: Option<String>,
    /// Firmware version of the BMC.
    pub bmc_firmware: Option<String>,
    pub bios_version: Option<String>,
}

/// The complete result of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was detected.
    pub detected: Detected,
    /// Names of the quirk files that apply; a later one wins.
    pub profiles: Vec<String>,
    /// One finding for each of [`Capability::ALL`], in that order.
    pub findings: Vec<Finding>,
    /// Requirements of a network deployment that are missing; empty if there are none.
    pub missing_for_deploy: Vec<String>,
}

impl Report {
    /// The finding about one capability.
    pub fn finding(&self, capability: Capability) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.capability == capability)
    }

    /// Whether this capability is available.
    pub fn passes(&self, capability: Capability) -> bool {
        self.finding(capability)
            .is_some_and(|finding| finding.outcome == Outcome::Pass)
    }
}

/// A verdict without its capability.
type Verdict = (Outcome, String);

fn pass(detail: impl Into<String>) -> Verdict {
    (Outcome::Pass, detail.into())
}

fn not_offered(detail: impl Into<String>) -> Verdict {
    (Outcome::NotOffered, detail.into())
}

fn fail(detail: impl Into<String>) -> Verdict {
    (Outcome::Fail, detail.into())
}
