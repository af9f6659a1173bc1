//! BIOS settings: the BIOS resource, its attribute registry, Secure Boot.

use std::collections::BTreeMap;
use std::fmt;

use rackwright_redfish_wire::json;
use serde::Serialize;
use serde_json::Value;

use super::action::Action;
use super::view;

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
    /// The values of an enumeration that have a display name, each with it.
    #[serde(skip)]
    pub names: Vec<(String, String)>,
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
        let (mut words, mut names) = (Vec::<String>::new(), Vec::new());
        if let Some(Value::Array(values)) = json::at(entry, &["Value"]) {
            let both = |value: &Value| {
                let shown = json::text(value, &["ValueDisplayName"])?;
                Some((json::text(value, &["ValueName"])?, shown))
            };
            names.extend(values.iter().filter_map(both));
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
            names,
            least: whole("LowerBound"),
            most: whole("UpperBound"),
            shortest: json::whole(entry, &["MinLength"]),
            longest: json::whole(entry, &["MaxLength"]),
            display_name: json::fact(entry, &["DisplayName"]),
        };
        Some((name, rule))
    }

    /// The value that a text names: the value with this display name, else the text itself. A text that is a value's own
    /// name names that value, whatever the display names of others are.
    fn value_of<'a>(&'a self, text: &'a str) -> &'a str {
        if self.names.iter().any(|(value, _)| value == text) {
            return text;
        }
        let named = self.names.iter().find(|(_, shown)| shown == text);
        named.map_or(text, |(value, _)| value.as_str())
    }

    /// Whether two texts name the same value: they are equal, or one is the display name of the other.
    pub fn is_same(&self, one: &str, other: &str) -> bool {
        self.value_of(one) == self.value_of(other)
    }

    /// The value that a text names, in the BMC's own spelling: its display name where the BMC shows `seen` so, else its
    /// name.
    pub fn spelled<'a>(&'a self, text: &'a str, seen: Option<&str>) -> &'a str {
        let value = self.value_of(text);
        let shows_display_names = seen.is_some_and(|seen| self.value_of(seen) != seen);
        let named = self.names.iter().find(|(name, _)| name == value);
        named
            .filter(|_| shows_display_names)
            .map_or(value, |(_, shown)| shown.as_str())
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
    fn malformed_attributes_are_left_out_and_the_rest_is_read() {
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
    fn values_fit_or_are_refused_with_a_reason() {
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
            let refusal = rules[name].fit(bad).unwrap_err();
            assert!(refusal.contains(words), "{name}: {refusal}");
        }
        assert!(rules["X"].read_only);
    }

    #[test]
    fn a_value_and_its_display_name_are_the_same_value() {
        let value = |name: &str, shown: &str| json!({"ValueName": name, "ValueDisplayName": shown});
        let entry = json!({"AttributeName": "E", "Type": "Enumeration", "Value": [
            value("1", "On"), value("0", "Off"), value("2", "1"), {"ValueName": "3"}
        ]});
        let (_, rule) = AttributeRule::read(&entry).unwrap();
        for (one, other, is_same) in [
            ("On", "1", true),
            ("0", "Off", true),
            ("3", "3", true),
            ("On", "Off", false),
            ("On", "0", false),
            // The name of a value goes before the display name of another one.
            ("1", "2", false),
            ("unknown", "1", false),
        ] {
            assert_eq!(rule.is_same(one, other), is_same, "{one} {other}");
            assert_eq!(rule.is_same(other, one), is_same, "{other} {one}");
        }
        for (text, seen, spelled) in [
            ("Off", Some("1"), "0"),
            ("0", Some("On"), "Off"),
            ("Off", Some("On"), "Off"),
            ("Off", None, "0"),
            ("3", Some("On"), "3"),
        ] {
            assert_eq!(rule.spelled(text, seen), spelled, "{text} {seen:?}");
        }
    }
}
