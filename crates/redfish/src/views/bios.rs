//! BIOS settings: the BIOS resource, its attribute registry, Secure Boot.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::action::Action;
use super::view;
use crate::json;

/// Most attributes of a BIOS that are read; the largest recorded has 687.
const ATTRIBUTES_MAX: usize = 8192;
/// Longest stored value of an attribute, in characters; the longest recorded has some 5,000.
const VALUE_MAX: usize = 16 << 10;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum BiosValue {
    /// A boolean.
    Flag(bool),
    /// A whole number.
    Number(i64),
    /// Text, including the value of an enumeration.
    Text(String),
}

impl BiosValue {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(flag) => Some(Self::Flag(*flag)),
            Value::Number(number) => Some(match number.as_i64() {
                Some(whole) => Self::Number(whole),
                None => Self::Text(number.to_string()),
            }),
            Value::String(text) => Some(Self::Text(text.chars().take(VALUE_MAX).collect())),
            // Some BMCs show an empty text as null; no other value reads as null.
            Value::Null => Some(Self::Text(String::new())),
            Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// The value as JSON.
    pub(crate) fn json(&self) -> Value {
        match self {
            Self::Flag(flag) => Value::Bool(*flag),
            Self::Number(number) => Value::from(*number),
            Self::Text(text) => Value::String(text.clone()),
        }
    }
}

/// The form for comparison and display: `true`, `115200`, `Enabled`.
impl fmt::Display for BiosValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => flag.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

view!(
    /// BIOS settings (`#Bios`), in force or pending.
    Bios
);

impl Bios {
    /// `Attributes`; empty if there are none. Values other than text, number and boolean are left out.
    pub fn attributes(&self) -> BTreeMap<String, BiosValue> {
        let Some(Value::Object(attributes)) = self.0.at(&["Attributes"]) else {
            return BTreeMap::new();
        };
        let plain = attributes
            .iter()
            .filter(|(name, _)| !name.contains('@'))
            .filter_map(|(name, value)| Some((name.clone(), BiosValue::read(value)?)));
        plain.take(ATTRIBUTES_MAX).collect()
    }

    /// Link to the object that accepts changes.
    pub fn settings_object(&self) -> Option<String> {
        self.0.link(&["@Redfish.Settings", "SettingsObject"])
    }

    /// `SupportedApplyTimes`: when changes can apply; empty if the BMC offers no choice.
    pub fn apply_times(&self) -> Vec<String> {
        self.0.texts(&["@Redfish.Settings", "SupportedApplyTimes"])
    }

    /// Name of the registry that describes the attributes.
    pub fn registry(&self) -> Option<String> {
        self.0.fact(&["AttributeRegistry"])
    }

    /// The action that resets every attribute to its default.
    pub fn reset(&self) -> Option<Action> {
        Action::find(&self.0, "Bios.ResetBios")
    }

    /// The action that changes a BIOS password.
    pub fn change_password(&self) -> Option<Action> {
        Action::find(&self.0, "Bios.ChangePassword")
    }
}

/// The type of an attribute's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttributeKind {
    /// One of a list of values.
    Enumeration,
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A boolean.
    Boolean,
    /// A password, which is set by a separate action.
    Password,
    /// The registry does not state the type.
    Unknown,
}

/// A registry's rule for one attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttributeRule {
    /// Type of the value.
    pub kind: AttributeKind,
    /// Whether it cannot be changed: `ReadOnly` or `Immutable`.
    pub read_only: bool,
    /// The values of an enumeration. Some BMCs show and accept the display name in place of the value; then both are
    /// listed here.
    pub words: Vec<String>,
    /// Smallest number.
    pub least: Option<i64>,
    /// Largest number.
    pub most: Option<i64>,
    /// Shortest text, in characters.
    pub shortest: Option<u64>,
    /// Longest text, in characters.
    pub longest: Option<u64>,
    /// The name for people.
    pub display_name: Option<String>,
}

impl AttributeRule {
    fn read(entry: &Value) -> Option<(String, Self)> {
        let name = json::text(entry, &["AttributeName"])?;
        let kind = match json::text(entry, &["Type"]).as_deref() {
            Some("Enumeration") => AttributeKind::Enumeration,
            Some("String") => AttributeKind::String,
            Some("Integer") => AttributeKind::Integer,
            Some("Boolean") => AttributeKind::Boolean,
            Some("Password") => AttributeKind::Password,
            _ => AttributeKind::Unknown,
        };
        let mut words: Vec<String> = Vec::new();
        if let Some(Value::Array(values)) = json::at(entry, &["Value"]) {
            for property in ["ValueName", "ValueDisplayName"] {
                for word in values.iter().filter_map(|value| json::text(value, &[property])) {
                    if !words.contains(&word) {
                        words.push(word);
                    }
                }
            }
        }
        let flag = |name| json::flag(entry, &[name]) == Some(true);
        let whole = |name| json::at(entry, &[name]).and_then(Value::as_i64);
        let rule = Self {
            kind,
            read_only: flag("ReadOnly") || flag("Immutable"),
            words,
            least: whole("LowerBound"),
            most: whole("UpperBound"),
            shortest: json::whole(entry, &["MinLength"]),
            longest: json::whole(entry, &["MaxLength"]),
            display_name: json::fact(entry, &["DisplayName"]),
        };
        Some((name, rule))
    }

    /// `value` in the attribute's type, or the fault as a text that continues "it ...".
    ///
    /// # Errors
    /// The value has the wrong type or is out of range.
    pub fn fit(&self, value: &str) -> Result<BiosValue, String> {
        let text = || BiosValue::Text(value.to_owned());
        match self.kind {
            AttributeKind::Password => Err("is a password; settings cannot contain passwords".to_owned()),
            AttributeKind::Unknown => Ok(text()),
            AttributeKind::Boolean => match value {
                "true" => Ok(BiosValue::Flag(true)),
                "false" => Ok(BiosValue::Flag(false)),
                _ => Err("takes true or false".to_owned()),
            },
            AttributeKind::Integer => {
                let (least, most) = (self.least.unwrap_or(i64::MIN), self.most.unwrap_or(i64::MAX));
                match value.parse::<i64>() {
                    Ok(number) if (least..=most).contains(&number) => Ok(BiosValue::Number(number)),
                    _ => Err(format!("takes a whole number from {least} to {most}")),
                }
            }
            // Without a list of values in the registry, an enumeration accepts any value.
            AttributeKind::Enumeration if self.words.is_empty() || self.words.iter().any(|word| word == value) => {
                Ok(text())
            }
            AttributeKind::Enumeration => Err(format!("takes one of {}", self.words.join(", "))),
            AttributeKind::String => {
                let length = value.chars().count() as u64;
                let (shortest, longest) = (self.shortest.unwrap_or(0), self.longest.unwrap_or(u64::MAX));
                if (shortest..=longest).contains(&length) {
                    Ok(text())
                } else {
                    Err(format!("takes text of {shortest} to {longest} characters"))
                }
            }
        }
    }
}

view!(
    /// The registry of attributes (`#AttributeRegistry`).
    AttributeRegistry
);

impl AttributeRegistry {
    /// The rules by attribute name.
    pub fn rules(&self) -> BTreeMap<String, AttributeRule> {
        let entries = match self.0.at(&["RegistryEntries", "Attributes"]) {
            Some(Value::Array(entries)) => entries.as_slice(),
            _ => &[],
        };
        let rules = entries.iter().filter_map(AttributeRule::read);
        rules.take(ATTRIBUTES_MAX).collect()
    }
}

view!(
    /// UEFI Secure Boot (`#SecureBoot`).
    SecureBoot
);

impl SecureBoot {
    /// `SecureBootEnable`: whether it applies from the next start.
    pub fn is_enabled(&self) -> Option<bool> {
        self.0.flag(&["SecureBootEnable"])
    }

    /// `SecureBootCurrentBoot`: whether it applied to the last start.
    pub fn is_in_force(&self) -> Option<bool> {
        match self.0.text(&["SecureBootCurrentBoot"])?.to_ascii_lowercase().as_str() {
            "enabled" => Some(true),
            "disabled" => Some(false),
            _ => None,
        }
    }

    /// `SecureBootMode`: `SetupMode` (no platform key), `UserMode`, `AuditMode`, `DeployedMode`.
    pub fn mode(&self) -> Option<String> {
        self.0.fact(&["SecureBootMode"])
    }

    /// The action that resets or deletes keys.
    pub fn reset_keys(&self) -> Option<Action> {
        Action::find(&self.0, "SecureBoot.ResetKeys")
    }

    /// Link to the key databases.
    pub fn databases(&self) -> Option<String> {
        self.0.link(&["SecureBootDatabases"])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Resource;

    #[test]
    fn odd_attributes_are_left_out_and_the_rest_is_read() {
        let bios: Bios = Resource::new(
            "/b",
            None,
            json!({"Attributes": {
                "A": "x", "B": 3, "C": true, "D": null, "E": {"x": 1}, "F": [1], "G@odata.type": "s", "H": 1.5
            }}),
        )
        .into();
        let read: Vec<String> = bios.attributes().iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(read, ["A=x", "B=3", "C=true", "D=", "H=1.5"]);
        let none: Bios = Resource::new("/b", None, json!({"Attributes": 7})).into();
        assert!(none.attributes().is_empty() && none.registry().is_none());
    }

    #[test]
    fn values_fit_or_are_refused_in_words() {
        let registry: AttributeRegistry = Resource::new(
            "/r",
            None,
            json!({"RegistryEntries": {"Attributes": [
                {"AttributeName": "E", "Type": "Enumeration", "Value": [
                    {"ValueName": "1", "ValueDisplayName": "On"}, {"ValueName": "0", "ValueDisplayName": "Off"}]},
                {"AttributeName": "I", "Type": "Integer", "LowerBound": -1, "UpperBound": 5},
                {"AttributeName": "B", "Type": "Boolean"},
                {"AttributeName": "S", "Type": "String", "MinLength": 1, "MaxLength": 3},
                {"AttributeName": "P", "Type": "Password"},
                {"AttributeName": "X", "Type": 9, "ReadOnly": true},
                {"Type": "String"}, 4
            ]}}),
        )
        .into();
        let rules = registry.rules();
        assert_eq!(rules.len(), 6);
        for (name, good) in [
            ("E", "1"),
            ("E", "Off"),
            ("I", "-1"),
            ("B", "true"),
            ("S", "äöü"),
            ("X", ""),
        ] {
            rules[name].fit(good).unwrap();
        }
        assert_eq!(rules["I"].fit("5"), Ok(BiosValue::Number(5)));
        for (name, bad, words) in [
            ("E", "on", "1, 0, On, Off"),
            ("I", "6", "from -1 to 5"),
            ("I", "five", "whole number"),
            ("B", "yes", "true or false"),
            ("S", "long", "1 to 3"),
            ("P", "secret", "password"),
        ] {
            let told = rules[name].fit(bad).unwrap_err();
            assert!(told.contains(words), "{name}: {told}");
        }
        assert!(rules["X"].read_only);
    }
}
