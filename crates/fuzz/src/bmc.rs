//! Views, event streams, links, logs and recordings of the BMC client.

use rackwright_redfish::{BmcAddress, LogEntry};
use rackwright_redfish_record::Recording;
use rackwright_redfish_wire::fuzzing;
use serde_json::Value;

use crate::view_values;

/// A password that must not survive scrubbing.
const SECRET: &str = "hunter2-hunter2";

/// Views return only values of the resource, and ignore unknown and null properties.
pub(crate) fn views(bytes: &[u8]) {
    let Some(value) = fuzzing::body(bytes) else { return };
    let values = view_values::all(&value);
    view_values::assert_invents_nothing(&value, &values);
    let Value::Object(object) = &value else { return };
    let mut known_only = object.clone();
    known_only.retain(|_, value| !value.is_null());
    let differs = "a property that is null counts as absent";
    assert_eq!(view_values::all(&Value::Object(known_only)), values, "{differs}");
    let mut with_more = object.clone();
    let unknown = fuzzing::body(br#"{"Members": [{"@odata.id": "/x"}], "Reading": 7}"#).unwrap_or_default();
    if with_more.insert("ZzUnknown".to_owned(), unknown).is_none() {
        assert_eq!(
            view_values::all(&Value::Object(with_more)),
            values,
            "an unknown property changes nothing"
        );
    }
}

/// A stream reads the same wherever the network cuts it, and the kept data is bounded by the received data.
pub(crate) fn events(bytes: &[u8]) {
    let whole = fuzzing::events(&[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(fuzzing::events(&single), whole, "cut into bytes");
    let pieces: Vec<&[u8]> = bytes.chunks(7).collect();
    assert_eq!(fuzzing::events(&pieces), whole, "cut into pieces");
    for (id, data) in whole.into_iter().flatten() {
        // An invalid byte becomes a character of three.
        assert!(data.len() <= 3 * bytes.len());
        assert!(
            id.is_none_or(|id| id.bytes().all(|byte| (0x20..0x7f).contains(&byte))),
            "an id must be fit for a header"
        );
    }
}

/// A link that is followed leads to the BMC, and to the same place when it is followed again.
pub(crate) fn links(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (link, address) = text.split_once('\n').unwrap_or((&text, "https://10.0.0.1:8443/rack1"));
    let Ok(bmc) = BmcAddress::parse(address) else { return };
    let shown = bmc.to_string();
    let host = shown.split('/').nth(2).unwrap_or_default();
    assert!(!host.contains('@'), "an address never shows a user: {shown}");
    let again = BmcAddress::parse(&shown).map(|one| one.to_string());
    assert_eq!(
        again.ok().as_deref(),
        Some(shown.as_str()),
        "an address that is shown can be given"
    );
    if let Some(url) = fuzzing::resolve(address, link) {
        assert!(url.starts_with(&shown), "{url} is not below {shown}");
        assert_eq!(fuzzing::resolve(address, &url).as_deref(), Some(url.as_str()));
    }
}

/// A value that is known to be secret is in no recording, whatever surrounds it.
pub(crate) fn scrubbing(bytes: &[u8]) {
    let Some(value) = fuzzing::body(bytes) else { return };
    let mut recording = Recording::default();
    for path in ["/redfish/v1", "/redfish/v1/Systems/1"] {
        recording.resources.insert(path.to_owned(), value.clone());
    }
    let scrubbed = recording.clone().scrubbed(&[SECRET.to_owned()], "admin");
    let kept: Vec<&String> = scrubbed.resources.keys().collect();
    assert_eq!(kept.len(), recording.resources.len(), "a resource was lost");
    for body in scrubbed.resources.values() {
        let text = body.to_string().to_ascii_lowercase();
        assert!(!text.contains(SECRET), "the password is still there: {text:.200}");
    }
    for (folder, _) in scrubbed.folders() {
        assert!(!folder.split('/').any(|part| part == ".."), "{folder} leads out");
    }
}

/// An entry of a log is one line of bounded length in each field, whatever the BMC wrote.
pub(crate) fn logs(bytes: &[u8]) {
    let Some(value) = fuzzing::body(bytes) else { return };
    let Some(entry) = LogEntry::of("SEL", &value) else {
        return;
    };
    let texts = [&entry.created, &entry.severity, &entry.message_id];
    let texts = texts.into_iter().flatten().chain([&entry.id, &entry.message]);
    for text in texts {
        assert!(text.chars().count() <= 1000, "a text of {} bytes", text.len());
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
}
