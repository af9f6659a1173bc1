//! The identity of a machine.

use rackwright_redfish_wire::error::RedfishError;
use serde::Serialize;

use crate::client::BmcClient;

use crate::views::{MacAddress, Manager, PowerState, System};

/// The facts by which a BMC distinguishes its machine from all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Maker of the BMC's software; maker of the machine if the root names none.
    pub vendor: Option<String>,
    /// Product name of the Redfish service.
    pub product: Option<String>,
    /// Maker of the machine.
    pub manufacturer: Option<String>,
    /// Model of the machine.
    pub model: Option<String>,
    /// The serial number on the machine's label.
    pub serial: Option<String>,
    /// Stock-keeping unit.
    pub sku: Option<String>,
    /// SMBIOS UUID in lower case.
    pub uuid: Option<String>,
    /// Host name, if the operating system has reported it to the BMC.
    pub host_name: Option<String>,
    pub bios_version: Option<String>,
    /// BMC firmware version.
    pub bmc_firmware: Option<String>,
    pub bmc_model: Option<String>,
    /// Redfish version that the service claims.
    pub redfish_version: Option<String>,
    /// Link of the system.
    pub system_path: String,
    /// Link of the manager, if there is one.
    pub manager_path: Option<String>,
    /// Names of the quirk files that apply.
    pub profiles: Vec<String>,
}

/// The facts that a caller needs before an operation on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The machine's identity.
    pub identity: Identity,
    /// The machine's power state.
    pub power: PowerState,
    /// All its Ethernet addresses, those of the system's own interfaces first.
    pub macs: Vec<MacAddress>,
}

impl BmcClient {
    /// Reads the identity of the machine. An unreadable manager costs only its own fields.
    ///
    /// # Errors
    /// Those of [`system`](Self::system).
    pub async fn identity(&self) -> Result<Identity, RedfishError> {
        let system = self.system().await?;
        self.identity_of(&system).await
    }

    /// Reads the identity of the machine, its power state and its Ethernet addresses, with one reading of the system.
    ///
    /// # Errors
    /// Those of [`identity`](Self::identity) and [`macs`](Self::macs).
    pub async fn machine(&self) -> Result<Machine, RedfishError> {
        let system = self.system().await?;
        Ok(Machine {
            identity: self.identity_of(&system).await?,
            power: system.power_state(),
            macs: self.macs_of(&system).await?,
        })
    }

    async fn identity_of(&self, system: &System) -> Result<Identity, RedfishError> {
        let root = self.service_root().await?;
        let (manager_path, manager) = self.manager_of(system).await?;
        let profile = self.profile_of(system, manager.as_ref()).await?;
        let manager = manager.map(Manager::from);
        let serial = if profile.serial_is_sku {
            system.sku().or_else(|| system.serial())
        } else {
            system.serial()
        };
        Ok(Identity {
            vendor: root.vendor().or_else(|| system.manufacturer()),
            product: root.product(),
            manufacturer: system.manufacturer(),
            model: system.model(),
            serial,
            sku: system.sku(),
            uuid: system.uuid(),
            host_name: system.host_name(),
            bios_version: system.bios_version(),
            bmc_firmware: manager.as_ref().and_then(Manager::firmware_version),
            bmc_model: manager.as_ref().and_then(Manager::model),
            redfish_version: root.redfish_version(),
            system_path: system.path().to_owned(),
            manager_path,
            profiles: profile.names.clone(),
        })
    }
}
