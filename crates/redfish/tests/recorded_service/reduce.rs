//! Small recordings from whole ones: with `RACKWRIGHT_MOCKUPS=DIR UPDATE_RECORDINGS=1` each test adds the resources that it
//! needs to `recordings/NAME.json`. A resource of a small recording is a function of the same resource of the whole one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Seek as _, Write as _};

use rackwright_redfish_mockup::{Resources, key};
use serde_json::Value;

use super::recordings;

/// Most entries of a log that a small recording keeps.
const LOG_ENTRIES: usize = 16;
/// What a small recording keeps of a BIOS attribute's rule: the properties that the client reads.
const RULE: [&str; 10] = [
    "AttributeName",
    "DisplayName",
    "Type",
    "Value",
    "ReadOnly",
    "Immutable",
    "LowerBound",
    "UpperBound",
    "MinLength",
    "MaxLength",
];

/// Properties with passwords, hashes of passwords, keys, licence keys or SNMP communities. A small recording has zeros in
/// their place.
const SECRETS: [&str; 14] = [
    "AgentCommunity",
    "CommunityName",
    "EncryptionKey",
    "IPMIKey",
    "LicenseKey",
    "MD5v3Key",
    "Password",
    "SHA1v3Key",
    "SHA256Password",
    "SHA256PasswordSalt",
    "SHA256SetupPassword",
    "SHA256SetupPasswordSalt",
    "SHA256SystemPassword",
    "SHA256SystemPasswordSalt",
];
/// The property of a Lenovo licence that is the licence key, as numbers.
const LICENCE_BYTES: &str = "Bytes";

fn is_entries(path: &str) -> bool {
    path.contains("/logservices/") && path.ends_with("/entries")
}

/// The members of a collection, in lower case.
fn members(body: &Value) -> Vec<String> {
    let members = body["Members"].as_array().into_iter().flatten();
    members
        .filter_map(|member| member["@odata.id"].as_str().map(key))
        .collect()
}

/// A resource as the small recording keeps it.
pub fn reduced(path: &str, body: &Value) -> Value {
    let mut body = body.clone();
    if is_entries(path)
        && let Some(members) = body.get_mut("Members").and_then(Value::as_array_mut)
    {
        let before = members.len();
        members.truncate(LOG_ENTRIES);
        let kept = members.len();
        if body["Members@odata.count"] == before {
            body["Members@odata.count"] = kept.into();
        }
    }
    if let Some(registry) = body.get_mut("RegistryEntries").and_then(Value::as_object_mut) {
        registry.retain(|name, _| name == "Attributes");
        let rules = registry.get_mut("Attributes").and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten().filter_map(Value::as_object_mut) {
            rule.retain(|name, _| RULE.contains(&name.as_str()));
        }
    }
    tidy(&mut body);
    body
}

/// Hides secrets and mail addresses, and removes the links to `$metadata`.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| name != "@odata.context" && name != LICENCE_BYTES);
            for (name, value) in fields {
                // `Users.2.IPMIKey` is an attribute of an iDRAC.
                let last = name.rsplit('.').next().unwrap_or_default();
                match value {
                    Value::String(text) if SECRETS.contains(&last) => *text = "0".repeat(text.len()),
                    Value::String(text) if name == "Email" && text.contains('@') => "mail@example.com".clone_into(text),
                    other => tidy(other),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// One resource on a line, so that a change shows as a line of a difference.
fn text(resources: &Resources) -> String {
    let line = |(path, body): (&String, &Value)| format!("{}: {body}", Value::from(path.as_str()));
    let lines: Vec<String> = resources.iter().map(line).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// The resources of these paths that the whole recording has.
fn small(whole: &Resources, paths: &BTreeSet<String>) -> Resources {
    let kept = |(path, body): (&String, &Value)| (path.clone(), reduced(path, body));
    let mut small: Resources = whole
        .iter()
        .filter(|(path, _)| paths.contains(*path))
        .map(kept)
        .collect();
    let logs = small.iter().filter(|(path, _)| is_entries(path));
    let logs: BTreeMap<String, Vec<String>> = logs.map(|(path, body)| (path.clone(), members(body))).collect();
    small.retain(|path, _| {
        let log = path.rsplit_once('/').and_then(|(log, _)| logs.get(log));
        log.is_none_or(|entries| entries.contains(path))
    });
    small
}

/// Whether this run makes the small recordings.
pub fn is_wanted() -> bool {
    std::env::var_os("UPDATE_RECORDINGS").is_some()
}

/// Adds resources of the whole recording to the small one.
pub fn add(name: &str, whole: &Resources, mut paths: BTreeSet<String>) {
    assert!(
        recordings::whole().is_some(),
        "UPDATE_RECORDINGS makes the small recordings from the whole ones: set RACKWRIGHT_MOCKUPS"
    );
    let mut options = std::fs::File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(recordings::small(name)).unwrap();
    // Tests are separate processes, and several write.
    file.lock().unwrap();
    let mut former = String::new();
    file.read_to_string(&mut former).unwrap();
    if !former.is_empty() {
        let former: Resources = serde_json::from_str(&former).unwrap();
        paths.extend(former.into_keys());
    }
    file.set_len(0).unwrap();
    file.rewind().unwrap();
    file.write_all(text(&small(whole, &paths)).as_bytes()).unwrap();
}

/// The small recording of a machine has nothing that its whole recording does not have.
pub fn check(name: &str, whole: &Resources) {
    let path = recordings::small(name);
    let stored = rackwright_redfish_mockup::read(&path).unwrap();
    let again = small(whole, &stored.keys().cloned().collect());
    let differs = |path: &&String| stored.get(*path) != again.get(*path);
    let differing: Vec<&String> = stored.keys().filter(differs).collect();
    assert!(
        differing.is_empty(),
        "{} differs from the whole recording in {differing:?}; README.md beside it says how to make it again",
        path.display()
    );
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        text(&stored),
        "{}",
        path.display()
    );
}
