//! The installed firmware and the ways to update it.

use rackwright_redfish_wire::error::RedfishError;
use serde::{Deserialize, Serialize};

use crate::client::BmcClient;
use crate::resource::Resource;
use crate::views::Action;

/// One piece of firmware.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareEntry {
    /// Link of the inventory entry; link of the system or the manager if the BMC has no inventory.
    pub path: String,
    pub id: String,
    /// Name; empty if there is none.
    pub name: String,
    /// Version as the BMC writes it; empty if there is none.
    pub version: String,
    /// `SoftwareId`; empty if there is none.
    pub software_id: String,
    /// Whether it can be updated through the BMC; none if the BMC does not report it.
    pub updateable: Option<bool>,
    /// Links of the parts that it runs on.
    pub related: Vec<String>,
}

/// The ways in which a BMC accepts firmware.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateOffer {
    /// `MultipartHttpPushUri`.
    pub multipart: Option<String>,
    /// `HttpPushUri`.
    pub push: Option<String>,
    /// Target of `UpdateService.SimpleUpdate`.
    pub simple: Option<String>,
    /// Values that `SimpleUpdate` allows as `TransferProtocol`; empty if there is no list.
    pub protocols: Vec<String>,
    /// `MaxImageSizeBytes`.
    pub max_bytes: Option<u64>,
    /// The listed values of `OperationApplyTime`.
    pub apply_times: Vec<String>,
}

impl UpdateOffer {
    /// Whether the BMC offers no way to update.
    pub fn is_empty(&self) -> bool {
        self.multipart.is_none() && self.push.is_none() && self.simple.is_none()
    }

    pub(crate) fn of(service: &Resource) -> Self {
        if service.flag(&["ServiceEnabled"]) == Some(false) {
            return Self::default();
        }
        let simple = Action::find(service, "UpdateService.SimpleUpdate");
        Self {
            multipart: service.text(&["MultipartHttpPushUri"]),
            push: service.text(&["HttpPushUri"]),
            protocols: simple
                .as_ref()
                .map(|action| action.allowable("TransferProtocol"))
                .unwrap_or_default(),
            apply_times: apply_times(service),
            simple: simple.map(|action| action.target),
            max_bytes: service.whole(&["MaxImageSizeBytes"]).filter(|most| *most > 0),
        }
    }
}

/// The standard lists the apply times beside the push URI, some BMCs beside the action.
fn apply_times(service: &Resource) -> Vec<String> {
    const SUPPORT: &str = "@Redfish.OperationApplyTimeSupport";
    let pushed = service.texts(&[&format!("MultipartHttpPushUri{SUPPORT}"), "SupportedValues"]);
    if !pushed.is_empty() {
        return pushed;
    }
    service.texts(&["Actions", "#UpdateService.SimpleUpdate", SUPPORT, "SupportedValues"])
}

/// The firmware of a machine as its BMC reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareState {
    /// The installed firmware, in the BMC's order.
    pub entries: Vec<FirmwareEntry>,
    /// Entries that could not be read: link and reason.
    pub gaps: Vec<(String, String)>,
    /// Ways to update.
    pub offer: UpdateOffer,
}

impl BmcClient {
    pub(crate) async fn update_service(&self) -> Result<Resource, RedfishError> {
        let root = self.service_root().await?;
        let Some(link) = root.update_service() else {
            return Err(RedfishError::NotOffered {
                bmc: self.address(),
                what: "an update of firmware".to_owned(),
                offered: "no UpdateService".to_owned(),
            });
        };
        self.get(&link).await
    }

    /// Reads the installed firmware and the ways to update it. If the BMC has no inventory, the system's BIOS and the
    /// manager's firmware take its place.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) for the service itself. An unreadable entry is a gap.
    pub async fn firmware(&self) -> Result<FirmwareState, RedfishError> {
        let mut state = FirmwareState::default();
        let service = match self.update_service().await {
            Ok(service) => Some(service),
            Err(failure) if failure.is_fatal_for_walk() => return Err(failure),
            Err(RedfishError::NotOffered { .. }) => None,
            Err(failure) if failure.status() == Some(404) => None,
            Err(failure) => return Err(failure),
        };
        if let Some(service) = &service {
            state.offer = UpdateOffer::of(service);
            self.add_listed(service, &mut state).await?;
        }
        if state.entries.is_empty() && state.gaps.is_empty() {
            state.entries = self.firmware_of_parts().await?;
        }
        Ok(state)
    }

    async fn add_listed(&self, service: &Resource, state: &mut FirmwareState) -> Result<(), RedfishError> {
        let Some(list) = service.link(&["FirmwareInventory"]) else {
            return Ok(());
        };
        let links = match self.member_links(&list).await {
            Ok(links) => links,
            Err(failure) if failure.is_fatal_for_walk() => return Err(failure),
            Err(failure) if failure.status() == Some(404) => return Ok(()),
            Err(failure) => {
                state.gaps.push((list, failure.to_string()));
                return Ok(());
            }
        };
        for (link, outcome) in self.get_each(&links).await {
            match outcome {
                Ok(resource) => state.entries.push(entry(&resource)),
                Err(failure) if failure.is_fatal_for_walk() => return Err(failure),
                Err(failure) => state.gaps.push((link, failure.to_string())),
            }
        }
        Ok(())
    }

    async fn firmware_of_parts(&self) -> Result<Vec<FirmwareEntry>, RedfishError> {
        let system = self.system().await?;
        let mut entries = Vec::new();
        let mut add = |path: &str, id: &str, version: Option<String>| {
            entries.extend(version.map(|version| FirmwareEntry {
                path: path.to_owned(),
                id: id.to_owned(),
                version,
                ..FirmwareEntry::default()
            }));
        };
        add(system.path(), "BIOS", system.resource().fact(&["BiosVersion"]));
        let (link, manager) = self.manager_of(&system).await?;
        if let (Some(link), Some(manager)) = (link, manager) {
            add(&link, "BMC", manager.fact(&["FirmwareVersion"]));
        }
        Ok(entries)
    }

    /// Reads one entry again.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub async fn firmware_entry(&self, path: &str) -> Result<FirmwareEntry, RedfishError> {
        let resource = self.get(path).await?;
        let mut read = entry(&resource);
        for name in ["BiosVersion", "FirmwareVersion"] {
            if read.version.is_empty() {
                read.version = resource.fact(&[name]).unwrap_or_default();
            }
        }
        Ok(read)
    }
}

fn entry(resource: &Resource) -> FirmwareEntry {
    FirmwareEntry {
        path: resource.path().to_owned(),
        id: resource.id(),
        name: resource.fact(&["Name"]).unwrap_or_default(),
        version: resource.fact(&["Version"]).unwrap_or_default(),
        software_id: resource.fact(&["SoftwareId"]).unwrap_or_default(),
        updateable: resource.flag(&["Updateable"]),
        related: resource.links(&["RelatedItem"]),
    }
}
