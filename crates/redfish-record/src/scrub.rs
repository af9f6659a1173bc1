//! Replaces everything that identifies a machine or its site or is secret. The same value gets the same replacement
//! everywhere, in links and paths too, so references stay valid.

use std::collections::{BTreeMap, HashMap};

use rackwright_redfish_wire::json;
use serde_json::{Map, Value};

use crate::accounts::{Accounts, is_account};
use crate::shapes::{self, Shape};

/// The replacement for a secret.
const GONE: &str = "scrubbed";
/// Shorter values are replaced only where they are the whole text.
const LEAST_CHARS: usize = 6;

/// Shorter known values are ignored: no BMC accepts such a password.
const LEAST_KNOWN: usize = 4;

/// Parts of property names with secret texts; each text is removed without a replacement.
const SECRETS: [&str; 15] = [
    "password",
    "passphrase",
    "passwd",
    "token",
    "secret",
    "community",
    "privatekey",
    "licensekey",
    "licensestring",
    "licensefile",
    "certificatestring",
    "encryptionkey",
    "authenticationkey",
    "sshkey",
    "keystring",
];
/// Parts of names that begin like a secret's name but describe a rule with a number: `MinPasswordLength`.
const RULES: [&str; 15] = [
    "length",
    "expir",
    "count",
    "days",
    "age",
    "history",
    "attempts",
    "minimum",
    "maximum",
    "interval",
    "seconds",
    "timeout",
    "lockout",
    "threshold",
    "duration",
];
/// Parts of property names with texts that name one thing or place; each text gets its own replacement.
const NAMES: [&str; 25] = [
    "serialnumber",
    "servicetag",
    "assettag",
    "expressservicecode",
    "hostname",
    "fqdn",
    "domainname",
    "uuid",
    "guid",
    "wwn",
    "wwpn",
    "durablename",
    "macaddress",
    "username",
    "emailaddress",
    "nodeid",
    "serviceidentification",
    "identificationnumber",
    "entitlementid",
    "datacenter",
    "rackname",
    "roomname",
    "aisle",
    "systemlocation",
    "serverlocation",
];
/// Whole property names of that kind.
const NAMES_EXACT: [&str; 7] = ["sku", "serial", "sn", "location", "ppin", "eui64", "nguid"];
/// Property names below which every text is removed: people, places, messages of log entries.
const DROPPED_BELOW: [&str; 8] = [
    "postaladdress",
    "contacts",
    "placement",
    "subject",
    "issuer",
    "messageargs",
    "rawcommands",
    "licensor",
];

enum Treatment {
    Keep,
    Name,
    Secret,
    DropBelow,
}

/// Learns the values to replace, and replaces them.
#[derive(Debug, Default)]
pub struct Scrubber {
    /// Stand-ins by the lower-case value.
    replacements: HashMap<String, String>,
    /// Stand-ins for values that have another meaning in other properties: user names, short serial numbers.
    in_place: HashMap<String, String>,
    /// By canonical form, so that one address in several spellings has one replacement.
    shapes: BTreeMap<(Shape, String), usize>,
    /// Values that are also replaced inside longer texts, longest first.
    inside: Vec<String>,
    /// Values without replacements, in lower case.
    secrets: Vec<String>,
    accounts: Accounts,
}

impl Scrubber {
    /// A scrubber with some known values. They are replaced everywhere, in any letter case. The user name may be a common
    /// word, so it is replaced only where it is a whole segment of a path, and in properties that name users.
    pub fn new(known: &[String], user: &str) -> Self {
        let mut scrubber = Self::default();
        let known = known
            .iter()
            .map(|value| value.trim())
            .filter(|value| value.len() >= LEAST_KNOWN);
        scrubber.secrets = known.map(str::to_ascii_lowercase).collect();
        scrubber.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        if let Some(replacement) = scrubber.user(user) {
            scrubber.accounts.insert_own(user.trim(), replacement);
        }
        scrubber
    }

    /// The replacement for a user name; none if the name identifies no person.
    fn user(&mut self, name: &str) -> Option<String> {
        self.learn_text("username", name.trim());
        let key = name.trim().to_ascii_lowercase();
        self.in_place.get(&key).or_else(|| self.replacements.get(&key)).cloned()
    }

    /// Learns the account names in a path.
    pub fn learn_path(&mut self, path: &str) {
        for name in self.accounts.in_link(path) {
            if let Some(replacement) = self.user(name) {
                self.accounts.insert(name, replacement);
            }
        }
    }

    /// Learns the names in this document.
    pub fn learn(&mut self, body: &Value) {
        self.learn_in("", body);
        self.inside.sort_by_key(|value| std::cmp::Reverse(value.len()));
        self.inside.dedup();
    }

    fn learn_in(&mut self, name: &str, value: &Value) {
        match value {
            Value::Object(object) => {
                let path = object
                    .get("@odata.id")
                    .and_then(Value::as_str)
                    .filter(|_| is_account(object));
                let account = path.and_then(|path| self.accounts.of_path(path));
                if let Some((account, replacement)) = account.and_then(|account| Some((account, self.user(account)?))) {
                    self.accounts.insert(account, replacement);
                }
                object.iter().for_each(|(name, value)| self.learn_in(name, value));
            }
            Value::Array(list) => list.iter().for_each(|value| self.learn_in(name, value)),
            Value::String(link) if name == "@odata.id" => self.learn_path(link),
            Value::String(text) if matches!(treatment_of(name), Treatment::Name) => self.learn_text(name, text.trim()),
            _ => {}
        }
    }

    fn learn_text(&mut self, name: &str, text: &str) {
        let key = text.to_ascii_lowercase();
        let says_nothing = json::fact(&Value::String(text.to_owned()), &[]).is_none()
            || key.bytes().all(|byte| !byte.is_ascii_alphanumeric() || byte == b'0');
        if says_nothing || self.replacements.contains_key(&key) || self.in_place.contains_key(&key) {
            return;
        }
        if let Some(shape) = shapes::shape(text) {
            let replacement = self.shaped(shape, text);
            // Links and boot paths contain addresses without separators.
            if matches!(shape, Shape::Mac | Shape::Wide | Shape::Uuid) {
                let bare = |text: &str| text.replace([':', '-'], "");
                self.replacements.insert(bare(&key), bare(&replacement));
                self.inside.push(bare(&key));
                self.inside.push(key.clone());
            }
            self.replacements.insert(key, replacement);
            return;
        }
        // The length is kept: some views depend on it, for example for a UUID without separators.
        let count = self.replacements.len() + self.in_place.len() + 1;
        let is_hex = key.len() >= 12 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        let replacement = match is_hex {
            true => format!("5c{count:0width$x}", width = key.len() - 2),
            false => format!("scrubbed-{count:04}"),
        };
        let name = name.to_ascii_lowercase();
        let is_common = ["username", "location", "domainname"]
            .iter()
            .any(|part| name.contains(part));
        // A word without a digit or a dot, such as `Disabled`, has other meanings elsewhere.
        let is_identifier = key.bytes().any(|byte| byte.is_ascii_digit()) || (key.contains('.') && !key.contains(' '));
        if is_common || !is_identifier || key.len() < LEAST_CHARS {
            self.in_place.insert(key, replacement);
        } else {
            self.inside.push(key.clone());
            self.replacements.insert(key, replacement);
        }
    }

    /// A replacement of the same shape, case and separators.
    fn shaped(&mut self, shape: Shape, text: &str) -> String {
        let key = (shape, text.to_ascii_lowercase().replace('-', ":"));
        let next = self.shapes.len() + 1;
        let number = *self.shapes.entry(key).or_insert(next);
        let bytes = |count: usize| {
            let all = (number as u64).to_be_bytes();
            let mut bytes = vec![0_u8; count];
            bytes[count - 4..].copy_from_slice(&all[4..]);
            // Locally administered, which real addresses hardly are, and easy to recognise.
            (bytes[0], bytes[1]) = (0x02, 0x5c);
            bytes
        };
        let replacement = match shape {
            Shape::V4 => format!("192.0.2.{}", number % 254 + 1),
            Shape::V6 => format!("2001:db8::{number:x}"),
            Shape::Uuid => format!("5c5c5c5c-0000-4000-8000-{number:012x}"),
            Shape::Mac | Shape::Wide => {
                let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
                let bytes = bytes(digits / 2);
                let separator = if text.contains('-') { "-" } else { ":" };
                let size = text.split(['-', ':']).next().map_or(2, str::len) / 2;
                bytes
                    .chunks(size.max(1))
                    .map(hex::encode)
                    .collect::<Vec<_>>()
                    .join(separator)
            }
        };
        let is_upper = text.bytes().any(|byte| byte.is_ascii_uppercase());
        if is_upper {
            replacement.to_ascii_uppercase()
        } else {
            replacement
        }
    }

    /// Replaces everything in a document.
    pub fn scrub(&mut self, body: Value) -> Value {
        self.value("", body)
    }

    fn value(&mut self, name: &str, value: Value) -> Value {
        match (treatment_of(name), value) {
            (Treatment::DropBelow, value) => drop_values(value),
            (Treatment::Secret, Value::String(text)) if !text.is_empty() => Value::String(GONE.to_owned()),
            (Treatment::Secret, Value::Number(_)) if !is_rule(name) => Value::from(0),
            (Treatment::Name, Value::Number(_)) => Value::from(0),
            (_, Value::String(text)) => Value::String(self.property(name, &text)),
            (_, Value::Array(list)) => list.into_iter().map(|one| self.value(name, one)).collect(),
            (_, Value::Object(object)) => {
                let is_entry = object
                    .get("@odata.type")
                    .and_then(Value::as_str)
                    .is_some_and(|kind| kind.contains(".LogEntry"));
                let is_account = is_account(&object);
                let scrubbed = object.into_iter().map(|(name, value)| {
                    let account = value.as_str().and_then(|text| self.accounts.named(text)).cloned();
                    let value = match (is_entry, name.as_str(), account) {
                        (true, "Message" | "Description" | "AdditionalDataURI", _) => drop_values(value),
                        (_, "Id" | "Name" | "Description", Some(account)) if is_account => Value::String(account),
                        _ => self.value(&name, value),
                    };
                    (self.text(&name), value)
                });
                Value::Object(scrubbed.collect::<Map<_, _>>())
            }
            (_, other) => other,
        }
    }

    fn property(&mut self, name: &str, text: &str) -> String {
        let key = text.trim().to_ascii_lowercase();
        let in_place = matches!(treatment_of(name), Treatment::Name)
            .then(|| self.in_place.get(&key))
            .flatten();
        if let Some(replacement) = in_place.or_else(|| self.replacements.get(&key)) {
            return replacement.clone();
        }
        // Four numbers with dots are a version here, not an address.
        let low = name.to_ascii_lowercase();
        if low.contains("version") || low.contains("revision") {
            return self.without_known(text);
        }
        self.text(text)
    }

    /// Replaces everything in a text.
    pub fn text(&mut self, text: &str) -> String {
        if text.contains("-----BEGIN") {
            return GONE.to_owned();
        }
        let text = self.accounts.replaced(text);
        let mut out = String::with_capacity(text.len());
        let mut from = 0;
        for (begin, end, shape) in shapes::find(&text) {
            out.push_str(&text[from..begin]);
            out.push_str(&self.shaped(shape, &text[begin..end]));
            from = end;
        }
        out.push_str(&text[from..]);
        self.without_known(&out)
    }

    /// Replaces known values inside of a text.
    fn without_known(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = without(&text, secret);
        }
        let mut low = text.to_ascii_lowercase();
        for value in &self.inside {
            if value.len() > low.len() {
                continue;
            }
            while let Some(at) = low.find(value.as_str()) {
                let Some(replacement) = self.replacements.get(value) else {
                    break;
                };
                text.replace_range(at..at + value.len(), replacement);
                low = text.to_ascii_lowercase();
                if replacement.to_ascii_lowercase().contains(value.as_str()) {
                    break;
                }
            }
        }
        text
    }
}

/// A text without a value, which is given in lower case.
fn without(text: &str, value: &str) -> String {
    let low = text.to_ascii_lowercase();
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    for (at, _) in low.match_indices(value) {
        out.push_str(&text[from..at]);
        out.push_str(GONE);
        from = at + value.len();
    }
    out.push_str(&text[from..]);
    out
}

fn is_rule(name: &str) -> bool {
    let low = name.to_ascii_lowercase();
    RULES.iter().any(|part| low.contains(part))
}

/// Removes every text below.
fn drop_values(value: Value) -> Value {
    match value {
        Value::String(text) if text.is_empty() => Value::String(text),
        Value::String(_) => Value::String(GONE.to_owned()),
        Value::Array(list) => list.into_iter().map(drop_values).collect(),
        Value::Object(object) => Value::Object(
            object
                .into_iter()
                .map(|(name, value)| (name, drop_values(value)))
                .collect(),
        ),
        other => other,
    }
}

fn treatment_of(name: &str) -> Treatment {
    // Annotations such as lists of allowed values state possibilities, not facts.
    if name.is_empty() || name.contains('@') {
        return Treatment::Keep;
    }
    let low: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let low = low.to_ascii_lowercase();
    if DROPPED_BELOW.contains(&low.as_str()) {
        Treatment::DropBelow
    } else if SECRETS.iter().any(|part| low.contains(part)) {
        Treatment::Secret
    } else if NAMES_EXACT.contains(&low.as_str()) || NAMES.iter().any(|part| low.contains(part)) {
        Treatment::Name
    } else {
        Treatment::Keep
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scrub(body: Value, known: &[&str]) -> (Scrubber, Value) {
        let known: Vec<String> = known.iter().map(|value| (*value).to_owned()).collect();
        let mut scrubber = Scrubber::new(&known, "");
        scrubber.learn(&body);
        let scrubbed = scrubber.scrub(body);
        (scrubber, scrubbed)
    }

    #[test]
    fn nothing_of_the_origin_remains_and_references_still_match() {
        let origin = json!({
            "@odata.id": "/redfish/v1/Systems/S889914X", "SerialNumber": "S889914X", "SKU": "TAG7777", "Model": "Big Box",
            "UUID": "6173ECEC-6EF5-11EE-834A-0A8FC3A58A71", "HostName": "gpu-17.example.net", "AssetTag": "A-99812",
            "Name": "Disk of S889914X in gpu-17.example.net", "FirmwareVersion": "1.30.20.10",
            "Members": [{"@odata.id": "/redfish/v1/Systems/S889914X/B83FD2D7F74A"}],
            "MACAddress": "b8:3f:d2:d7:f7:4a", "Boot": "MAC(B83FD2D7F74A,0x1)/IPv4(10.77.3.4)", "WWN": "50:01:43:80:12:34:56:78",
            "SNMP": {"CommunityString": "public7", "Password": "hunter2222"}, "PasswordLength": 8, "PostalAddress": {"Street": "Elm Row 9"},
            "Certificate": "-----BEGIN CERTIFICATE-----\nabc", "Gateway": "10.77.3.1", "Note": "log in with topsecret at 10.77.3.4",
            "PasswordPolicy@Redfish.AllowableValues": ["Strict"], "LicenseKey": "AAAA-BBBB", "Location": "Hall Seven",
            "UserName": "operator9", "Empty": "", "SerialNumber2": null,
            "DUID": "00:01:00:01:28:59:b9:b2:b8:3f:d2:d7:f7:4a", "Placement": {"Row": "North", "RackOffset": 4}
        });
        let (mut scrubber, scrubbed) = scrub(origin, &["topsecret"]);
        let text = scrubbed.to_string().to_ascii_lowercase();
        for secret in [
            "s889914x",
            "tag7777",
            "6173ecec",
            "gpu-17",
            "a-99812",
            "d2d7f74a",
            "b8:3f",
            "10.77.3",
            "50:01:43",
            "public7",
            "hunter2222",
            "elm row",
            "begin cert",
            "topsecret",
            "aaaa-bbbb",
            "hall seven",
            "operator9",
            "north",
        ] {
            assert!(!text.contains(secret), "{secret} in {scrubbed:#}");
        }
        let mac = scrubbed["MACAddress"].as_str().unwrap().replace(':', "");
        let link = scrubbed["Members"][0]["@odata.id"].as_str().unwrap();
        let own = scrubbed["@odata.id"].as_str().unwrap();
        assert!(link.starts_with(own) && link.ends_with(&mac), "{own} {link} {mac}");
        assert_eq!(scrubber.text("/redfish/v1/Systems/S889914X"), own);
        assert_eq!(
            (&scrubbed["Model"], &scrubbed["FirmwareVersion"]),
            (&json!("Big Box"), &json!("1.30.20.10"))
        );
        assert_eq!(
            (&scrubbed["PasswordLength"], &scrubbed["SerialNumber2"]),
            (&json!(8), &json!(null))
        );
        assert_eq!(scrubbed["PasswordPolicy@Redfish.AllowableValues"], json!(["Strict"]));
        assert_eq!(scrubbed["Placement"]["RackOffset"], 4);
    }

    #[test]
    fn different_values_stay_different() {
        let (_, scrubbed) = scrub(
            json!({"a": {"SerialNumber": "AAAAAA1"}, "b": {"SerialNumber": "AAAAAA2"}, "c": {"SerialNumber": "AAAAAA1"},
                   "m": {"MACAddress": "02:11:22:33:44:55"}, "n": {"MACAddress": "02-11-22-33-44-55"}, "o": {"SerialNumber": "N/A"},
                   "q": {"AssetTagProtection": "Disabled", "State": "Disabled"}, "p": {"SerialNumber": "1", "Id": "1", "UserName": "Administrator", "RoleId": "Administrator"}}),
            &[],
        );
        assert_ne!(scrubbed["a"], scrubbed["b"]);
        assert_eq!(scrubbed["a"], scrubbed["c"]);
        let mac = |name: &str| scrubbed[name]["MACAddress"].as_str().unwrap().replace('-', ":");
        assert_eq!(mac("m"), mac("n"));
        assert_eq!(scrubbed["o"]["SerialNumber"], "N/A");
        assert_eq!(
            (&scrubbed["p"]["Id"], &scrubbed["p"]["RoleId"]),
            (&json!("1"), &json!("Administrator"))
        );
        assert_eq!(scrubbed["q"]["State"], "Disabled");
        assert!(scrubbed["p"]["SerialNumber"] != "1" && scrubbed["p"]["UserName"] != "Administrator");
    }

    #[test]
    fn names_of_accounts_get_replacements_that_fit_in_links_and_paths() {
        let account = |name: &str, user: &str| {
            json!({"@odata.id": format!("/redfish/v1/AccountService/Accounts/{name}"), "@odata.type": "#ManagerAccount.v1_8_0.ManagerAccount",
                   "Id": name, "Name": name, "UserName": user, "RoleId": "Administrator",
                   "Keys": {"@odata.id": format!("/redfish/v1/AccountService/Accounts/{name}/Keys")}})
        };
        let body = json!({
            "Members": [account("jdoe42", "jdoe42"), account("3", "mary"), account("Admin", "Admin")],
            "Other": {"@odata.id": "/redfish/v1/AccountService/Accounts/unread"},
            "Users": {"@odata.id": "/oem/Users/ann", "@odata.type": "#ManagerAccount.v1_0_0.ManagerAccount", "Id": "ann"},
            "Role": {"@odata.id": "/redfish/v1/AccountService/Roles/Admin"}, "Own": "/redfish/v1/Things/admin", "State": "Admin"
        });
        let mut scrubber = Scrubber::new(&[], "admin");
        scrubber.learn(&body);
        let scrubbed = scrubber.scrub(body);
        let text = scrubbed.to_string();
        for name in ["jdoe42", "mary", "unread", "ann\"", "Accounts/Admin", "Things/admin"] {
            assert!(!text.contains(name), "{name} in {scrubbed:#}");
        }
        let first = &scrubbed["Members"][0];
        let id = first["Id"].as_str().unwrap();
        let own = format!("/redfish/v1/AccountService/Accounts/{id}");
        assert_eq!(
            (first["@odata.id"].as_str().unwrap(), &first["UserName"]),
            (own.as_str(), &json!(id))
        );
        assert_eq!(first["Keys"]["@odata.id"], format!("{own}/Keys"));
        assert_eq!(
            scrubber.text("/redfish/v1/AccountService/Accounts/JDoe42/Keys"),
            format!("{own}/Keys")
        );
        assert_eq!(scrubbed["Members"][1]["Id"], "3", "a number is no user's name");
        // A role is not a name.
        assert_eq!(scrubbed["Role"]["@odata.id"], "/redfish/v1/AccountService/Roles/Admin");
        assert_eq!(
            (&first["RoleId"], &scrubbed["State"]),
            (&json!("Administrator"), &json!("Admin"))
        );
    }

    #[test]
    fn keys_numbers_and_known_values_of_any_letter_case_are_secrets_too() {
        let (mut scrubber, scrubbed) = scrub(
            json!({"KeyString": "ssh-ed25519 AAAAC3", "Oem": {"Password": 123456, "PinToken": 77}, "MinPasswordLength": 8,
                   "PasswordExpirationDays": 90, "Note": "at BMC-Mars.Example.net or bmc-mars.example.net."}),
            &["bmc-mars.example.NET"],
        );
        let expected = json!({"KeyString": GONE, "Oem": {"Password": 0, "PinToken": 0}, "MinPasswordLength": 8,
                              "PasswordExpirationDays": 90, "Note": "at scrubbed or scrubbed."});
        assert_eq!(scrubbed, expected);
        assert_eq!(scrubber.text("scrubbed BMC-MARS.example.net"), "scrubbed scrubbed");
    }

    #[test]
    fn texts_of_log_entries_are_removed() {
        let (_, scrubbed) = scrub(
            json!({"@odata.type": "#LogEntry.v1_5_0.LogEntry", "Id": "1", "Message": "ann logged in", "MessageArgs": ["ann"],
                   "MessageId": "Base.1.0.Ok"}),
            &[],
        );
        assert!(!scrubbed.to_string().contains("ann"), "{scrubbed}");
        assert_eq!(scrubbed["MessageId"], "Base.1.0.Ok");
    }
}
