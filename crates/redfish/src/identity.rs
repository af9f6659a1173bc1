//! Who a machine is.

use serde::Serialize;

use crate::client::BmcClient;
use crate::error::RedfishError;

use crate::views::{MacAddress, Manager, PowerState, System};

/// What tells one machine from all others, as far as its BMC knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Maker of the BMC's software, or of the machine where the root does not say.
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
    /// Host name, where the operating system has told the BMC.
    pub host_name: Option<String>,
    /// BIOS version.
    pub bios_version: Option<String>,
    /// BMC firmware version.
    pub bmc_firmware: Option<String>,
    /// BMC model.
    pub bmc_model: Option<String>,
    /// Redfish version that the service claims.
    pub redfish_version: Option<String>,
    /// Link of the system.
    pub system_path: String,
    /// Link of the manager, where there is one.
    pub manager_path: Option<String>,
    /// Quirk files that apply.
    pub profiles: Vec<String>,
}

/// What is asked of a BMC before anything is done with its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Who it is.
    pub identity: Identity,
    /// Its power.
    pub power: PowerState,
    /// All its Ethernet addresses, those of the system's own interfaces first.
    pub macs: Vec<MacAddress>,
}

impl BmcClient {
    /// Reads who the machine is. A manager that cannot be read costs only its own fields.
    ///
    /// # Errors
    /// Those of [`system`](Self::system).
    pub async fn identity(&self) -> Result<Identity, RedfishError> {
        let system = self.system().await?;
        self.identity_of(&system).await
    }

    /// Who the machine is, its power and its Ethernet addresses, by one look at its system.
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
