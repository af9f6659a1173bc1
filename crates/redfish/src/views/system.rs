//! The system resource: the machine and its power state.

use std::fmt;

use serde::Serialize;

use super::action::Action;
use super::boot::BootView;
use super::view;

/// The value of `PowerState`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum PowerState {
    /// The machine is powered on.
    On,
    /// The machine is off.
    Off,
    /// Between off and on.
    PoweringOn,
    /// Between on and off.
    PoweringOff,
    /// Any other value (`Paused`, `Reset`), or "null" if there is none.
    Unknown(String),
}

impl PowerState {
    pub(crate) fn read(text: Option<String>) -> Self {
        match text {
            None => Self::Unknown("null".to_owned()),
            Some(text) => match text.to_ascii_lowercase().as_str() {
                "on" => Self::On,
                "off" => Self::Off,
                "poweringon" => Self::PoweringOn,
                "poweringoff" => Self::PoweringOff,
                _ => Self::Unknown(text.chars().take(40).collect()),
            },
        }
    }
}

impl fmt::Display for PowerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On => f.write_str("On"),
            Self::Off => f.write_str("Off"),
            Self::PoweringOn => f.write_str("PoweringOn"),
            Self::PoweringOff => f.write_str("PoweringOff"),
            Self::Unknown(text) => write!(f, "unknown ({text})"),
        }
    }
}

view!(
    /// A machine (`#ComputerSystem`).
    System
);

impl System {
    pub fn id(&self) -> String {
        self.0.id()
    }

    pub fn manufacturer(&self) -> Option<String> {
        self.0.fact(&["Manufacturer"])
    }

    pub fn model(&self) -> Option<String> {
        self.0.fact(&["Model"])
    }

    /// `SerialNumber`.
    pub fn serial(&self) -> Option<String> {
        self.0.fact(&["SerialNumber"])
    }

    /// `SKU`; the service tag on Dell machines.
    pub fn sku(&self) -> Option<String> {
        self.0.fact(&["SKU"])
    }

    /// `UUID` in lower case; none if it is not a UUID or all zeros.
    pub fn uuid(&self) -> Option<String> {
        let text = self.0.fact(&["UUID"])?.to_ascii_lowercase();
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let is_uuid = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_uuid && digits.bytes().any(|byte| byte != b'0')).then(|| {
            [
                &digits[..8],
                &digits[8..12],
                &digits[12..16],
                &digits[16..20],
                &digits[20..],
            ]
            .join("-")
        })
    }

    pub fn bios_version(&self) -> Option<String> {
        self.0.fact(&["BiosVersion"])
    }

    pub fn host_name(&self) -> Option<String> {
        self.0.fact(&["HostName"])
    }

    pub fn power_state(&self) -> PowerState {
        PowerState::read(self.0.text(&["PowerState"]))
    }

    /// `BootProgress.LastState`: the host's progress in booting.
    pub fn boot_progress(&self) -> Option<String> {
        self.0.fact(&["BootProgress", "LastState"])
    }

    /// `ProcessorSummary.Count`.
    pub fn processor_count(&self) -> Option<u64> {
        self.0.whole(&["ProcessorSummary", "Count"])
    }

    /// `MemorySummary.TotalSystemMemoryGiB`.
    pub fn memory_gib(&self) -> Option<u64> {
        self.0.whole(&["MemorySummary", "TotalSystemMemoryGiB"])
    }

    /// The boot override and order.
    pub fn boot(&self) -> BootView {
        BootView::read(&self.0)
    }

    /// The reset action.
    pub fn reset(&self) -> Option<Action> {
        Action::find(&self.0, "ComputerSystem.Reset")
    }

    /// Link to the settings object, which holds changes for the next boot.
    pub fn settings(&self) -> Option<String> {
        self.0.link(&["@Redfish.Settings", "SettingsObject"])
    }

    /// Links to the managers.
    pub fn managed_by(&self) -> Vec<String> {
        let links = self.0.links(&["Links", "ManagedBy"]);
        if links.is_empty() {
            self.0.links(&["ManagedBy"])
        } else {
            links
        }
    }

    /// Links to the chassis of the machine.
    pub fn chassis(&self) -> Vec<String> {
        self.0.links(&["Links", "Chassis"])
    }

    /// Link to the processors.
    pub fn processors(&self) -> Option<String> {
        self.0.link(&["Processors"])
    }

    /// Link to the memory modules.
    pub fn memory(&self) -> Option<String> {
        self.0.link(&["Memory"])
    }

    /// Link to the storage subsystems.
    pub fn storage(&self) -> Option<String> {
        self.0.link(&["Storage"])
    }

    /// Link to the older simple storage.
    pub fn simple_storage(&self) -> Option<String> {
        self.0.link(&["SimpleStorage"])
    }

    /// Link to the Ethernet interfaces.
    pub fn ethernet_interfaces(&self) -> Option<String> {
        self.0.link(&["EthernetInterfaces"])
    }

    /// Link to the network interfaces, which link the adapters.
    pub fn network_interfaces(&self) -> Option<String> {
        self.0.link(&["NetworkInterfaces"])
    }

    /// Link to the virtual media of newer BMCs.
    pub fn virtual_media(&self) -> Option<String> {
        self.0.link(&["VirtualMedia"])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Resource;

    fn system(body: serde_json::Value) -> System {
        Resource::new("/redfish/v1/Systems/1/", None, body).into()
    }

    #[test]
    fn malformed_systems_stay_readable() {
        let malformed = system(json!({
            "Id": 1, "UUID": "STATIC:3:0", "SerialNumber": "N/A", "Manufacturer": null, "Model": " X ",
            "PowerState": null, "Boot": [], "Actions": null, "Links": {"ManagedBy": null}, "Memory": "/m",
            "ProcessorSummary": 3
        }));
        assert_eq!(
            (malformed.id().as_str(), malformed.uuid(), malformed.serial()),
            ("1", None, None)
        );
        assert_eq!(malformed.model().as_deref(), Some("X"));
        assert_eq!(malformed.power_state(), PowerState::Unknown("null".to_owned()));
        assert_eq!(malformed.memory().as_deref(), Some("/m"));
        assert!(malformed.reset().is_none() && malformed.managed_by().is_empty() && malformed.boot().target.is_none());
    }

    #[test]
    fn uuids_are_normalised() {
        for (given, read) in [
            (
                "6173ECEC-6EF5-11EE-834A-0A8FC3A58A71",
                Some("6173ecec-6ef5-11ee-834a-0a8fc3a58a71"),
            ),
            (
                "6173ececf6ef511ee834a0a8fc3a58a7",
                Some("6173ecec-f6ef-511e-e834-a0a8fc3a58a7"),
            ),
            ("00000000-0000-0000-0000-000000000000", None),
            ("", None),
            ("äöüäöüäöüäöüäöüäöüäöüäöüäöüäöüäöü", None),
        ] {
            assert_eq!(system(json!({"UUID": given})).uuid().as_deref(), read, "{given}");
        }
    }

    #[test]
    fn power_states() {
        for (text, state) in [
            ("On", PowerState::On),
            ("off", PowerState::Off),
            ("PoweringOn", PowerState::PoweringOn),
            ("PoweringOff", PowerState::PoweringOff),
            ("Paused", PowerState::Unknown("Paused".to_owned())),
        ] {
            assert_eq!(system(json!({"PowerState": text})).power_state(), state);
        }
    }
}
