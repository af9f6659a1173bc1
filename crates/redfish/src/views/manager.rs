//! The manager resource: the BMC itself.

use super::view;

view!(
    /// A BMC (`#Manager`).
    Manager
);

impl Manager {
    pub fn id(&self) -> String {
        self.0.id()
    }

    pub fn model(&self) -> Option<String> {
        self.0.fact(&["Model"])
    }

    pub fn firmware_version(&self) -> Option<String> {
        self.0.fact(&["FirmwareVersion"])
    }

    /// Link to the virtual media of older BMCs.
    pub fn virtual_media(&self) -> Option<String> {
        self.0.link(&["VirtualMedia"])
    }
}
