use std::fmt;

use serde::Serialize;

use crate::resource::Resource;

/// How the firmware boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum BootMode {
    /// UEFI.
    Uefi,
    /// BIOS, or UEFI's compatibility support module.
    Legacy,
}

impl BootMode {
    /// As Redfish spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uefi => "UEFI",
            Self::Legacy => "Legacy",
        }
    }
}

impl fmt::Display for BootMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The `Boot` property of a system or of its settings object, in the BMC's own words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BootView {
    /// `BootSourceOverrideTarget`.
    pub target: Option<String>,
    /// `BootSourceOverrideEnabled`.
    pub enabled: Option<String>,
    /// `BootSourceOverrideMode`.
    pub mode: Option<String>,
    /// `HttpBootUri`.
    pub http_boot_uri: Option<String>,
    /// Whether there is an `HttpBootUri` at all, be it null.
    pub knows_http_boot_uri: bool,
    /// Whether there is a `BootSourceOverrideMode` at all, be it null.
    pub knows_mode: bool,
    /// Targets that the BMC lists; empty where it does not say.
    pub allowed_targets: Vec<String>,
    /// Values for `BootSourceOverrideEnabled` that the BMC lists; empty where it does not say.
    pub allowed_enabled: Vec<String>,
    /// Modes that the BMC lists; empty where it does not say.
    pub allowed_modes: Vec<String>,
    /// `BootOrder`.
    pub order: Vec<String>,
    /// Whether an override can be written here: the settings object of some BMCs holds only the order.
    pub holds_override: bool,
}

impl BootView {
    pub(crate) fn read(resource: &Resource) -> Self {
        let text = |name| resource.text(&["Boot", name]);
        let listed = |name: &str| resource.texts(&["Boot", &format!("{name}@Redfish.AllowableValues")]);
        let has = |name: &str| {
            resource
                .at(&["Boot"])
                .and_then(serde_json::Value::as_object)
                .is_some_and(|boot| boot.contains_key(name))
        };
        Self {
            target: text("BootSourceOverrideTarget"),
            enabled: text("BootSourceOverrideEnabled"),
            mode: text("BootSourceOverrideMode"),
            http_boot_uri: resource.fact(&["Boot", "HttpBootUri"]),
            knows_http_boot_uri: has("HttpBootUri"),
            knows_mode: has("BootSourceOverrideMode"),
            allowed_targets: listed("BootSourceOverrideTarget"),
            allowed_enabled: listed("BootSourceOverrideEnabled"),
            allowed_modes: listed("BootSourceOverrideMode"),
            order: resource.texts(&["Boot", "BootOrder"]),
            holds_override: has("BootSourceOverrideTarget") || has("BootSourceOverrideEnabled"),
        }
    }

    /// Takes over what this view does not list from another one of the same machine.
    pub(crate) fn completed_by(mut self, other: &Self) -> Self {
        for (mine, theirs) in [
            (&mut self.allowed_targets, &other.allowed_targets),
            (&mut self.allowed_enabled, &other.allowed_enabled),
            (&mut self.allowed_modes, &other.allowed_modes),
        ] {
            if mine.is_empty() {
                mine.clone_from(theirs);
            }
        }
        self
    }
}
