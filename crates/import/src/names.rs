//! Converts names of other systems into unique names for a site file.

use std::collections::BTreeMap;

/// Maximum length of a name in a site file, in characters.
const MAX_NAME: usize = 63;

/// Converts a name: letters, digits and `-_.:` stay, every other character becomes `-`. Empty if no valid character is
/// left.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let good = c.is_ascii_alphanumeric() || "-_.:".contains(c);
        if good && (!out.is_empty() || c.is_ascii_alphanumeric()) {
            out.push(c);
        } else if !good && !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
        if out.len() == MAX_NAME {
            break;
        }
    }
    out.trim_end_matches(['-', ':']).to_owned()
}

/// A name in the form of NetBox's slugs, for comparison: `GPU Server` equals `gpu-server`.
pub(super) fn slug(text: &str) -> String {
    clean(text).to_ascii_lowercase().replace(['_', '.', ':'], "-")
}

/// The names in use, without duplicates.
#[derive(Debug, Default)]
pub(super) struct Namer {
    /// Each name with the last number appended to it.
    taken: BTreeMap<String, u32>,
}

impl Namer {
    /// The wanted name if it is free, otherwise the first free alternative, otherwise a name with a number.
    pub(super) fn unique_name(&mut self, wanted: &str, others: &[&str]) -> String {
        let names = std::iter::once(&wanted).chain(others).map(|name| clean(name));
        let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
        if let Some(free) = names.iter().find(|name| !self.taken.contains_key(*name)) {
            self.taken.insert(free.clone(), 1);
            return free.clone();
        }
        let base = names.last().map_or("unnamed", String::as_str);
        let base: String = base.chars().take(MAX_NAME - 11).collect();
        let mut number = self.taken.get(&base).copied().unwrap_or(0);
        let name = loop {
            number = number.saturating_add(1);
            let name = match number {
                1 => base.clone(),
                _ => format!("{base}-{number}"),
            };
            if !self.taken.contains_key(&name) || number == u32::MAX {
                break name;
            }
        };
        self.taken.insert(base, number);
        self.taken.entry(name.clone()).or_insert(1);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_those_of_a_site_file() {
        for (text, wanted) in [
            ("gpu-001", "gpu-001"),
            ("Hall 1 / Row A", "Hall-1-Row-A"),
            ("_x", "x"),
            ("ünïcode", "n-code"),
            ("a:", "a"),
            ("-", ""),
        ] {
            assert_eq!(clean(text), wanted, "{text}");
        }
        assert_eq!(clean(&"x".repeat(100)).len(), MAX_NAME);
        assert_eq!(slug("GPU Server"), "gpu-server");
    }

    #[test]
    fn each_name_is_given_once() {
        let mut namer = Namer::default();
        assert_eq!(namer.unique_name("r1", &["hall-r1"]), "r1");
        assert_eq!(namer.unique_name("r1", &["hall-r1"]), "hall-r1");
        assert_eq!(namer.unique_name("r1", &["hall-r1"]), "hall-r1-2");
        assert_eq!(namer.unique_name("hall-r1-2", &[]), "hall-r1-2-2");
        assert_eq!(namer.unique_name("r1", &["hall-r1"]), "hall-r1-3");
        assert_eq!(
            (namer.unique_name("", &[]), namer.unique_name("?", &[])),
            ("unnamed".into(), "unnamed-2".into())
        );
    }
}
