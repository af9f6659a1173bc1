//! Account resources that some BMCs name after their user: in paths, in links and in their `Id`.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// The members of such a collection are accounts, whatever their type states.
const COLLECTION: &str = "accounts";
/// Below these, a path segment names rights, not a user.
const ROLES: [&str; 2] = ["roles", "privileges"];

/// User names as segments of paths, in lower case.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// Last but one segment of the paths of accounts, beside [`COLLECTION`].
    collections: HashSet<String>,
    /// Stand-ins by last segment.
    members: HashMap<String, String>,
    /// Stand-ins for the recording user's own name: replaced wherever it is a whole segment.
    own: HashMap<String, String>,
}

/// Whether a document, or a part of one, is an account.
pub(super) fn is_account(object: &Map<String, Value>) -> bool {
    let kind = object.get("@odata.type").and_then(Value::as_str).unwrap_or_default();
    kind.trim_start_matches('#').starts_with("ManagerAccount.")
}

/// A segment of a path without the text that follows it: `jdoe` of `jdoe#/Keys`.
fn part(text: &str) -> &str {
    let end = text.find(|c: char| c.is_whitespace() || "#?,;:'\"()<>".contains(c));
    &text[..end.unwrap_or(text.len())]
}

/// A number reveals no name.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Accounts {
    /// Notes where a collection of accounts is; returns the account's own segment of the path.
    pub(super) fn of_path<'a>(&mut self, path: &'a str) -> Option<&'a str> {
        let (rest, last) = path.trim_end_matches('/').rsplit_once('/')?;
        let collection = rest.rsplit('/').next().filter(|name| !name.is_empty())?;
        self.collections.insert(collection.to_ascii_lowercase());
        Some(part(last)).filter(|last| !is_number(last))
    }

    /// The accounts that a link leads to or through.
    pub(super) fn in_link<'a>(&self, link: &'a str) -> Vec<&'a str> {
        let parts: Vec<&str> = link.split('/').collect();
        let pairs = parts.windows(2).filter(|pair| self.is_collection(pair[0]));
        pairs
            .map(|pair| part(pair[1]))
            .filter(|name| !is_number(name))
            .collect()
    }

    fn is_collection(&self, part: &str) -> bool {
        part.eq_ignore_ascii_case(COLLECTION) || self.collections.contains(&part.to_ascii_lowercase())
    }

    /// Sets the replacement for an account's segment of paths.
    pub(super) fn insert(&mut self, name: &str, replacement: String) {
        self.members.insert(name.to_ascii_lowercase(), replacement);
    }

    /// Sets the replacement for the recording user's name.
    pub(super) fn insert_own(&mut self, name: &str, replacement: String) {
        if !is_number(name) {
            self.own.insert(name.to_ascii_lowercase(), replacement);
        }
    }

    /// The replacement for a whole text that names an account.
    pub(super) fn named(&self, text: &str) -> Option<&String> {
        let low = text.trim().to_ascii_lowercase();
        self.members.get(&low).or_else(|| self.own.get(&low))
    }

    /// A text with the names in its paths replaced.
    pub(super) fn replaced(&self, text: &str) -> String {
        let mut before = "";
        let mut parts = Vec::new();
        for (at, whole) in text.split('/').enumerate() {
            let name = part(whole);
            let low = name.to_ascii_lowercase();
            let own = || {
                self.own
                    .get(&low)
                    .filter(|_| !ROLES.iter().any(|role| before.eq_ignore_ascii_case(role)))
            };
            let replacement = match at {
                0 => None,
                _ if self.is_collection(before) => self.named(name),
                _ => own(),
            };
            parts.push(match replacement {
                Some(replacement) => format!("{replacement}{}", &whole[name.len()..]),
                None => whole.to_owned(),
            });
            before = whole;
        }
        parts.join("/")
    }
}
