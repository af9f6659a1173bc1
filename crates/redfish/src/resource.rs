//! A resource as the BMC returned it, with access to single properties.

use std::sync::Arc;

use rackwright_redfish_wire::address::last_segment;
use rackwright_redfish_wire::json;
use serde_json::Value;

/// One Redfish resource: JSON value first, typed views on top.
#[derive(Debug, Clone)]
pub struct Resource {
    path: String,
    etag: Option<String>,
    /// Shared, so that clones are cheap.
    body: Arc<Value>,
    /// Size of the received text in bytes; 0 if the resource was not received as text.
    bytes: usize,
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.etag == other.etag && self.body == other.body
    }
}

impl Resource {
    /// A resource at `path` with its body, and the answer's ETag if there was one.
    pub fn new(path: impl Into<String>, etag: Option<String>, body: Value) -> Self {
        Self {
            path: path.into(),
            etag: etag.filter(|etag| is_usable_etag(etag)),
            body: Arc::new(body),
            bytes: 0,
        }
    }

    pub(crate) fn of_bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The link from which it was fetched.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The ETag; an empty one counts as none.
    pub fn etag(&self) -> Option<&str> {
        self.etag.as_deref()
    }

    /// The received JSON.
    pub fn json(&self) -> &Value {
        &self.body
    }

    /// The value at a path of property names; null counts as absent.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        json::at(&self.body, path)
    }

    /// A string; absent if empty or of another type.
    pub fn text(&self, path: &[&str]) -> Option<String> {
        json::text(&self.body, path)
    }

    /// A string with a meaning: "N/A" and similar values count as absent.
    pub fn fact(&self, path: &[&str]) -> Option<String> {
        json::fact(&self.body, path)
    }

    /// A whole number.
    pub fn whole(&self, path: &[&str]) -> Option<u64> {
        json::whole(&self.body, path)
    }

    /// A finite number.
    pub fn number(&self, path: &[&str]) -> Option<f64> {
        json::number(&self.body, path)
    }

    /// The reading of a sensor, bare or in an excerpt.
    pub fn reading(&self, path: &[&str]) -> Option<f64> {
        json::reading(&self.body, path)
    }

    /// A boolean.
    pub fn flag(&self, path: &[&str]) -> Option<bool> {
        json::flag(&self.body, path)
    }

    /// The strings of an array.
    pub fn texts(&self, path: &[&str]) -> Vec<String> {
        json::texts(&self.body, path)
    }

    /// The target of a link.
    pub fn link(&self, path: &[&str]) -> Option<String> {
        json::link(&self.body, path)
    }

    /// The targets of an array of links.
    pub fn links(&self, path: &[&str]) -> Vec<String> {
        json::links(&self.body, path)
    }

    /// `Id`; without it, the last segment of the path.
    pub fn id(&self) -> String {
        self.text(&["Id"])
            .unwrap_or_else(|| last_segment(&self.path).to_owned())
    }
}

fn is_usable_etag(etag: &str) -> bool {
    let bare = etag.trim().trim_start_matches("W/").trim_matches('"');
    !bare.is_empty() && etag.len() <= 256 && etag.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_and_malformed_etags_are_dropped() {
        for (etag, usable) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("12", true),
            ("", false),
            ("\"\"", false),
            ("W/\"\"", false),
            ("a\nb", false),
        ] {
            let resource = Resource::new("/x", Some(etag.to_owned()), json!({}));
            assert_eq!(resource.etag().is_some(), usable, "{etag:?}");
        }
    }
}
