//! The service root: vendor, version, and the links to all other resources.

use super::view;

view!(
    /// The service root (`#ServiceRoot`).
    ServiceRoot
);

impl ServiceRoot {
    pub fn vendor(&self) -> Option<String> {
        self.0.fact(&["Vendor"])
    }

    pub fn product(&self) -> Option<String> {
        self.0.fact(&["Product"])
    }

    pub fn name(&self) -> Option<String> {
        self.0.fact(&["Name"])
    }

    pub fn redfish_version(&self) -> Option<String> {
        self.0.fact(&["RedfishVersion"])
    }

    /// Link to the systems.
    pub fn systems(&self) -> Option<String> {
        self.link("Systems")
    }

    /// Link to the managers.
    pub fn managers(&self) -> Option<String> {
        self.link("Managers")
    }

    /// Link to the chassis.
    pub fn chassis(&self) -> Option<String> {
        self.link("Chassis")
    }

    /// Link to power equipment: rack PDUs, floor PDUs, transfer switches.
    pub fn power_equipment(&self) -> Option<String> {
        self.link("PowerEquipment")
    }

    /// Link to thermal equipment, for example coolant distribution units.
    pub fn thermal_equipment(&self) -> Option<String> {
        self.link("ThermalEquipment")
    }

    /// Link to the sessions. A client opens a session there.
    pub fn sessions(&self) -> Option<String> {
        self.0.link(&["Links", "Sessions"])
    }

    /// Link to the session service.
    pub fn session_service(&self) -> Option<String> {
        self.link("SessionService")
    }

    /// Link to the account service.
    pub fn account_service(&self) -> Option<String> {
        self.link("AccountService")
    }

    /// Link to the task service. The standard's property is `Tasks`.
    pub fn task_service(&self) -> Option<String> {
        self.link("Tasks").or_else(|| self.link("TaskService"))
    }

    /// Link to the event service.
    pub fn event_service(&self) -> Option<String> {
        self.link("EventService")
    }

    /// Link to the update service.
    pub fn update_service(&self) -> Option<String> {
        self.link("UpdateService")
    }

    /// Link to the firmware measurements of components.
    pub fn component_integrity(&self) -> Option<String> {
        self.link("ComponentIntegrity")
    }

    /// Names under `Oem`, at most 16. One Supermicro root names its vendor only there.
    pub fn oem_names(&self) -> Vec<String> {
        let oem = self.0.at(&["Oem"]).and_then(serde_json::Value::as_object);
        oem.map(|names| names.keys().take(16).cloned().collect())
            .unwrap_or_default()
    }

    /// The link with this name. Old roots have the links under `Links`.
    fn link(&self, name: &str) -> Option<String> {
        self.0.link(&[name]).or_else(|| self.0.link(&["Links", name]))
    }
}
