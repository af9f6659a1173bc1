//! Actions of resources: their targets, and the values that their parameters allow.

use rackwright_redfish_wire::json;
use serde_json::Value;

use super::view;
use crate::resource::Resource;

/// An action that a resource offers.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// The URI for the POST.
    pub target: String,
    /// Link to the description of its parameters.
    pub info: Option<String>,
    body: Value,
}

impl Action {
    /// Finds an action by its name without `#`, among the standard's actions and then among the vendor's own. Some
    /// BMCs list those below `Oem` of the resource instead of below `Oem` of its actions.
    pub fn find(resource: &Resource, name: &str) -> Option<Self> {
        let object = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
        let standard = object(resource.at(&["Actions"]));
        let oem = object(standard.get("Oem"));
        let vendors = oem.values().map(|vendor| object(Some(vendor)));
        let outer_oem = object(resource.at(&["Oem"]));
        let outer_oem = outer_oem.values().map(|vendor| object(vendor.get("Actions")));
        let mut places = vec![standard, oem.clone()];
        places.extend(vendors.chain(outer_oem));
        let mut named = places.iter().flatten().filter(|(key, _)| is_named(key, name));
        named.find_map(|(_, body)| {
            let target = json::text(body, &["target"])?;
            Some(Self {
                target,
                info: json::link(body, &["@Redfish.ActionInfo"]),
                body: body.clone(),
            })
        })
    }

    /// The values that the action itself allows for a parameter; empty if it has no list.
    pub fn allowable(&self, parameter: &str) -> Vec<String> {
        json::texts(&self.body, &[&format!("{parameter}@Redfish.AllowableValues")])
    }
}

view!(
    /// The description of an action's parameters (`#ActionInfo`).
    ActionInfo
);

impl ActionInfo {
    /// The values allowed for a parameter; empty if there is no list.
    pub fn allowable(&self, parameter: &str) -> Vec<String> {
        let Some(Value::Array(parameters)) = self.0.at(&["Parameters"]) else {
            return Vec::new();
        };
        let named = parameters
            .iter()
            .find(|one| json::text(one, &["Name"]).as_deref() == Some(parameter));
        named
            .map(|one| json::texts(one, &["AllowableValues"]))
            .unwrap_or_default()
    }
}

/// Keys are `#VirtualMedia.EjectMedia`, sometimes without `#`, or have a vendor's form: `#SmcVirtualMedia.EjectMedia`
/// and `#OemManager.v1_4_0.OemManager#OemManager.Reset`.
fn is_named(key: &str, name: &str) -> bool {
    let key = key.rsplit('#').next().unwrap_or(key);
    match (key.split_once('.'), name.split_once('.')) {
        (Some((schema, verb)), Some((wanted_schema, wanted_verb))) => {
            verb == wanted_verb && (schema == wanted_schema || schema.ends_with(wanted_schema))
        }
        _ => key == name,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn actions_are_found_in_every_place() {
        let find = |actions: Value, name| {
            let resource = Resource::new("/x", None, json!({"Actions": actions}));
            Action::find(&resource, name).map(|action| action.target)
        };
        let eject = "VirtualMedia.EjectMedia";
        assert_eq!(
            find(json!({"#VirtualMedia.EjectMedia": {"target": "/a"}}), eject).as_deref(),
            Some("/a")
        );
        assert_eq!(
            find(json!({"VirtualMedia.EjectMedia": {"target": "/a"}}), eject).as_deref(),
            Some("/a")
        );
        let oem = json!({"Oem": {"#SmcVirtualMedia.EjectMedia": {"target": "/b"}}});
        assert_eq!(find(oem, eject).as_deref(), Some("/b"));
        let vendor = json!({"Oem": {"Acme": {"#VirtualMedia.EjectMedia": {"target": "/c"}}}});
        assert_eq!(find(vendor, eject).as_deref(), Some("/c"));
        assert_eq!(
            find(json!({"#VirtualMedia.InsertMedia": {"target": "/a"}}), eject),
            None
        );
        assert_eq!(find(json!({"#VirtualMedia.EjectMedia": {"target": null}}), eject), None);
        assert_eq!(find(json!([]), eject), None);
        let oem_actions = json!({"Oem": {"Acme": {"Actions": {"#AcmeSystem.Reset": {"target": "/d"}}}, "Other": 7}});
        let resource = Resource::new("/x", None, oem_actions);
        let target = Action::find(&resource, "AcmeSystem.Reset").map(|action| action.target);
        assert_eq!(target.as_deref(), Some("/d"));
    }
}
