//! Settings of machines' firmware: what their SKUs want, what was read, and what became otherwise by itself.
//!
//! | module | what |
//! |---|---|
//! | `wanted` | which node wants what, by the site that holds now |
//! | `look` | one machine's settings read beside what is wanted, and written |
//! | `watch` | nodes at rest read again and again, never written |
//! | `settings` | how often |
//!
//! When they are written and what proves them is `lifecycle`'s (`decide/settings.rs`); nothing here moves a node.

mod look;
mod settings;
mod wanted;
mod watch;

pub use look::{Look, Written, apply, look};
pub use settings::Settings;
#[cfg(test)]
pub use wanted::Wanted;
pub use wanted::Wishes;
pub use watch::run;

use rackwright_site::model::{SeenSettings, SettingRow, Standing, WantedSettings, compare, is_as_wanted};
use rackwright_store::{SettingsRead, StoreError};

use crate::stored::json;

/// As it is stored. `is_proof`: it was read after a start that the control plane made.
#[must_use]
pub fn stored(rows: &[SettingRow], is_proof: bool) -> SettingsRead {
    SettingsRead {
        is_proof,
        is_as_wanted: is_as_wanted(rows),
        // Text and names alone: it can always be written.
        body: serde_json::to_string(rows).unwrap_or_default(),
    }
}

/// As it was stored.
///
/// # Errors
/// The body is something else.
pub fn rows_of(node: &str, body: &str) -> Result<Vec<SettingRow>, StoreError> {
    json("settings of the firmware", node, body)
}

/// What is wanted now beside what was read before, when something else may have been wanted; and whether it was read.
#[must_use]
pub fn restated(wanted: &WantedSettings, known: &[SettingRow]) -> Vec<(SettingRow, bool)> {
    let restate = |row: SettingRow| {
        let Some(before) = known.iter().find(|known| known.name == row.name) else {
            return (row, false);
        };
        let standing = match before.standing {
            same if before.wanted == row.wanted => same,
            Standing::Missing => Standing::Missing,
            fixed => {
                let next = before.pending.as_ref().or(before.seen.as_ref());
                match (next == Some(&row.wanted), before.pending.is_some()) {
                    (true, true) => Standing::Pending,
                    (true, false) => Standing::AsWanted,
                    (false, _) if fixed == Standing::ReadOnly => Standing::ReadOnly,
                    (false, _) => Standing::Differs,
                }
            }
        };
        let now = SettingRow {
            wanted: row.wanted,
            standing,
            ..before.clone()
        };
        (now, true)
    };
    let nothing = compare(wanted, &SeenSettings::default());
    nothing.into_iter().map(restate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_for_another_wish_is_judged_by_the_present_one() {
        let wanted = |value: &str| WantedSettings {
            bios: [("A".into(), value.into())].into(),
            ..WantedSettings::default()
        };
        let seen = |current: &str, pending: Option<&str>| SeenSettings {
            current: [("A".to_owned(), current.to_owned())].into(),
            pending: pending
                .map(|value| ("A".to_owned(), value.to_owned()))
                .into_iter()
                .collect(),
            ..SeenSettings::default()
        };
        let readings = [seen("x", None), seen("x", Some("y"))];
        for reading in &readings {
            let known = compare(&wanted("x"), reading);
            for value in ["x", "y", "z"] {
                let now = restated(&wanted(value), &known);
                assert_eq!(now, [(compare(&wanted(value), reading).remove(0), true)], "{value}");
            }
        }
        assert!(!restated(&wanted("x"), &[])[0].1);
        assert_eq!(
            rows_of("n1", &stored(&compare(&wanted("x"), &readings[1]), false).body)
                .unwrap()
                .len(),
            1
        );
        assert!(rows_of("n1", "nonsense").is_err());
    }
}
