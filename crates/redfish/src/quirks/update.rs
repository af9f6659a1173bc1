//! The peculiarities of single BMCs in firmware updates.

use std::collections::BTreeMap;

use rackwright_pattern::fits_any_case;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::firmware::Activation;

/// A way in which a BMC accepts firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateMethod {
    /// `MultipartHttpPushUri`.
    Multipart,
    /// `HttpPushUri`.
    Push,
    /// `UpdateService.SimpleUpdate`.
    Simple,
}

/// The target that an update names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateTargets {
    /// The inventory entry.
    Entry,
    /// The parts that the entry runs on; the entry itself if it names none.
    Related,
    /// No target: the file itself identifies the target.
    None,
}

/// How new firmware of an entry is activated.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ActivationRule {
    /// Pattern of the entry's id.
    pub id: String,
    /// The necessary step.
    pub by: Activation,
}

/// How firmware is updated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateProfile {
    /// Ways in the order of trying, if offered.
    pub ways: Vec<UpdateMethod>,
    /// The target that an update names.
    pub targets: UpdateTargets,
    /// Further parameters of every update.
    pub parameters: BTreeMap<String, Value>,
    /// Bodies of the part `OemParameters` of a multipart push, by patterns of the entry's id; the first match counts.
    pub oem_parameters: Vec<(String, Value)>,
    /// Whether the service is claimed by `HttpPushUriTargetsBusy` during an upload.
    pub claim: bool,
    /// Whether `SimpleUpdate` requires credentials for a server without a login.
    pub dummy_credentials: bool,
    /// Whether `SimpleUpdate` requires the address without its scheme.
    pub bare_simple_uri: bool,
    /// Activation steps, by patterns of the entry's id; the first match counts.
    pub activation: Vec<ActivationRule>,
}

impl Default for UpdateProfile {
    fn default() -> Self {
        Self {
            ways: vec![UpdateMethod::Multipart, UpdateMethod::Push, UpdateMethod::Simple],
            targets: UpdateTargets::Entry,
            parameters: BTreeMap::new(),
            oem_parameters: Vec::new(),
            claim: false,
            dummy_credentials: false,
            bare_simple_uri: false,
            activation: Vec::new(),
        }
    }
}

impl UpdateProfile {
    /// The vendor's own parameters for an entry.
    pub fn oem_parameters_for(&self, id: &str) -> Option<&Value> {
        let found = self
            .oem_parameters
            .iter()
            .find(|(pattern, _)| fits_any_case(pattern, id));
        found.map(|(_, value)| value)
    }

    /// The activation step of an entry's new version, if it is known.
    pub fn activation_of(&self, id: &str) -> Option<Activation> {
        let found = self.activation.iter().find(|rule| fits_any_case(&rule.id, id));
        found.map(|rule| rule.by)
    }
}

/// The same fields as in a file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct UpdateOverrides {
    ways: Option<Vec<UpdateMethod>>,
    targets: Option<UpdateTargets>,
    parameters: BTreeMap<String, Value>,
    oem_parameters: Option<Vec<OemParameters>>,
    claim: Option<bool>,
    dummy_credentials: Option<bool>,
    bare_simple_uri: Option<bool>,
    activation: Option<Vec<ActivationRule>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct OemParameters {
    id: String,
    body: Value,
}

impl UpdateOverrides {
    pub(super) fn apply(&self, to: &mut UpdateProfile) {
        fn set<T: Clone>(to: &mut T, from: Option<&T>) {
            if let Some(from) = from {
                to.clone_from(from);
            }
        }
        set(&mut to.ways, self.ways.as_ref());
        set(&mut to.targets, self.targets.as_ref());
        to.parameters.extend(self.parameters.clone());
        if let Some(all) = &self.oem_parameters {
            to.oem_parameters = all.iter().map(|one| (one.id.clone(), one.body.clone())).collect();
        }
        set(&mut to.claim, self.claim.as_ref());
        set(&mut to.dummy_credentials, self.dummy_credentials.as_ref());
        set(&mut to.bare_simple_uri, self.bare_simple_uri.as_ref());
        set(&mut to.activation, self.activation.as_ref());
    }
}
