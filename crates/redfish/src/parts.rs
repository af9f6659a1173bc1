//! The other parts of a machine: firmware, power supplies, fans, sensors, and the parts on boards that are listed as
//! separate systems.

use rackwright_pattern::fits_any_case;
use rackwright_redfish_wire::address;
use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::json;
use serde::Serialize;
use serde_json::Value;

use crate::inventory::Walk;
use crate::resource::Resource;
use crate::views::System;

/// One piece of firmware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FirmwareInfo {
    /// Link.
    pub path: String,
    pub id: String,
    pub name: Option<String>,
    /// Version as the BMC writes it.
    pub version: Option<String>,
    /// Whether it can be updated through the BMC; none if the BMC does not report it.
    pub updateable: Option<bool>,
}

/// A power supply or a fan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartInfo {
    /// Link; with a fragment if the part is inside another resource.
    pub path: String,
    /// Id; the name if there is no id.
    pub id: String,
    /// Maker.
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
}

/// The parts of all chassis.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) power_supplies: Vec<PartInfo>,
    pub(crate) fans: Vec<PartInfo>,
    pub(crate) sensors: Vec<String>,
}

impl Walk<'_> {
    /// The boards that are listed as systems beside `system`, by the name patterns of the profile.
    pub(crate) async fn side_systems(&mut self, system: &System) -> Result<Vec<System>, RedfishError> {
        let patterns = self.client.profile().await?.side_systems.clone();
        if patterns.is_empty() {
            return Ok(Vec::new());
        }
        let all = self.client.service_root().await?.systems();
        let mut links = self.member_links(all).await?;
        links.retain(|link| {
            let id = address::last_segment(link);
            !address::same_resource(link, system.path()) && patterns.iter().any(|one| fits_any_case(one, id))
        });
        let boards = self.get_all(&links).await?;
        Ok(boards.into_iter().map(System::from).collect())
    }

    /// All firmware and software that the update service lists.
    pub(crate) async fn firmware(&mut self) -> Result<Vec<FirmwareInfo>, RedfishError> {
        let Some(service) = self.client.service_root().await?.update_service() else {
            return Ok(Vec::new());
        };
        let service = self.get_all(&[service]).await?;
        let mut links = Vec::new();
        for list in ["FirmwareInventory", "SoftwareInventory"] {
            let list = service.first().and_then(|service| service.link(&[list]));
            links.extend(self.member_links(list).await?);
        }
        let entries = self.get_all(&links).await?;
        let read = entries.iter().map(|entry| FirmwareInfo {
            path: entry.path().to_owned(),
            id: entry.id(),
            name: entry.fact(&["Name"]),
            version: entry.fact(&["Version"]),
            updateable: entry.flag(&["Updateable"]),
        });
        Ok(read.collect())
    }

    /// Power supplies, fans and sensors of all chassis that the BMC lists.
    pub(crate) async fn parts(&mut self) -> Result<Parts, RedfishError> {
        let chassis = self.client.service_root().await?.chassis();
        let mut parts = Parts::default();
        for one in self.members(chassis).await? {
            let supplies = self
                .of_chassis(&one, ["PowerSubsystem", "PowerSupplies"], ["Power", "PowerSupplies"])
                .await?;
            let fans = self
                .of_chassis(&one, ["ThermalSubsystem", "Fans"], ["Thermal", "Fans"])
                .await?;
            add(&mut parts.power_supplies, supplies);
            add(&mut parts.fans, fans);
            for sensor in self.member_links(one.link(&["Sensors"])).await? {
                if !parts.sensors.iter().any(|known| address::same_resource(known, &sensor)) {
                    parts.sensors.push(sensor);
                }
            }
        }
        Ok(parts)
    }

    /// The parts in the newer collection; without one, the parts that the older resource lists inline.
    async fn of_chassis(
        &mut self,
        chassis: &Resource,
        newer: [&str; 2],
        older: [&str; 2],
    ) -> Result<Vec<PartInfo>, RedfishError> {
        let subsystem: Vec<String> = chassis.link(&[newer[0]]).into_iter().collect();
        if let Some(subsystem) = self.get_all(&subsystem).await?.first() {
            let members = self.members(subsystem.link(&[newer[1]])).await?;
            let found = members.iter().filter(|one| is_present(one.json()));
            let found: Vec<PartInfo> = found.map(|one| part(one.json(), one.path(), &one.id())).collect();
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let holder: Vec<String> = chassis.link(&[older[0]]).into_iter().collect();
        let mut found = Vec::new();
        for holder in self.get_all(&holder).await? {
            let listed = holder
                .at(&[older[1]])
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            for (index, one) in listed
                .iter()
                .enumerate()
                .filter(|(_, one)| one.is_object() && is_present(one))
            {
                let inline = format!("{}#/{}/{index}", holder.path(), older[1]);
                let path = json::link(one, &["@odata.id"])
                    .filter(|path| path.contains('#'))
                    .unwrap_or(inline);
                let id = json::text(one, &["MemberId"]).unwrap_or_else(|| index.to_string());
                found.push(part(one, &path, &id));
            }
        }
        Ok(found)
    }
}

/// Adds parts without repetition: several chassis may share one resource of parts.
fn add(all: &mut Vec<PartInfo>, found: Vec<PartInfo>) {
    for one in found {
        if !all.iter().any(|known| address::same_resource(&known.path, &one.path)) {
            all.push(one);
        }
    }
}

fn part(value: &Value, path: &str, id: &str) -> PartInfo {
    PartInfo {
        path: path.to_owned(),
        id: id.to_owned(),
        manufacturer: json::fact(value, &["Manufacturer"]),
        model: json::fact(value, &["Model"]),
        serial: json::fact(value, &["SerialNumber"]),
    }
}

fn is_present(value: &Value) -> bool {
    json::text(value, &["Status", "State"]).is_none_or(|state| !state.eq_ignore_ascii_case("absent"))
}
