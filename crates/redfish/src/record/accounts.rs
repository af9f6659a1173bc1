//! Resources of accounts, which some BMCs give the name of their user: in their paths, in links and in their `Id`.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// Whose members are accounts, whatever their type says.
const COLLECTION: &str = "accounts";
/// Below these a word means what one may do, not who.
const ROLES: [&str; 2] = ["roles", "privileges"];

/// Names of users as parts of paths, in lower case.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// Last but one part of the paths of accounts, beside [`COLLECTION`].
    collections: HashSet<String>,
    /// Stand-ins by last part.
    members: HashMap<String, String>,
    /// The same for who made the recording: wherever it is a whole part.
    own: HashMap<String, String>,
}

/// Whether a document, or a part of one, is an account.
pub(super) fn is_account(object: &Map<String, Value>) -> bool {
    let kind = object.get("@odata.type").and_then(Value::as_str).unwrap_or_default();
    kind.trim_start_matches('#').starts_with("ManagerAccount.")
}

/// A part of a path, and what follows it there: `jdoe` of `jdoe#/Keys`.
fn part(text: &str) -> &str {
    let end = text.find(|c: char| c.is_whitespace() || "#?,;:'\"()<>".contains(c));
    &text[..end.unwrap_or(text.len())]
}

/// Numbers tell nobody's name.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Accounts {
    /// Notes where a collection of accounts is; gives the account's own part of the path.
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

    /// What stands for an account's part of paths.
    pub(super) fn insert(&mut self, name: &str, stand_in: String) {
        self.members.insert(name.to_ascii_lowercase(), stand_in);
    }

    /// What stands for the name of who made the recording.
    pub(super) fn insert_own(&mut self, name: &str, stand_in: String) {
        if !is_number(name) {
            self.own.insert(name.to_ascii_lowercase(), stand_in);
        }
    }

    /// The stand-in of a whole text that names an account.
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
            let stand_in = match at {
                0 => None,
                _ if self.is_collection(before) => self.named(name),
                _ => own(),
            };
            parts.push(match stand_in {
                Some(stand_in) => format!("{stand_in}{}", &whole[name.len()..]),
                None => whole.to_owned(),
            });
            before = whole;
        }
        parts.join("/")
    }
}
