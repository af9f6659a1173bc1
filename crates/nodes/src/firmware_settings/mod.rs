//! Firmware settings of machines: the wishes of their SKUs, the readings, and drift.
//!
//! | module | content |
//! |---|---|
//! | `wanted` | the wish for each node, from the present site |
//! | `look` | reads and writes one machine's settings, and compares them with the wish |
//! | `watch` | reads nodes at rest at intervals, and never writes |
//!
//! `lifecycle` decides when settings are written and proven (`decide/settings.rs`); nothing here changes a node's state.

mod look;
mod wanted;
mod watch;

pub use look::{SettingsReading, Written, apply, look};
pub use wanted::{Wanted, WantedCache};
pub use watch::run;

use rackwright_ground::stored::json;
use rackwright_lifecycle::NodeId;
use rackwright_site::model::{SeenSettings, SettingRow, SettingStatus, WantedSettings, compare, is_as_wanted};
use rackwright_store::{SettingsRead, StoreError};

/// The stored form. `is_proof`: it was read after a start that the control plane made.
#[must_use]
pub fn stored(rows: &[SettingRow], is_proof: bool) -> SettingsRead {
    SettingsRead {
        is_proof,
        is_as_wanted: is_as_wanted(rows),
        // The rows hold only text and names, so this cannot fail.
        body: serde_json::to_string(rows).unwrap_or_default(),
    }
}

/// Parses the stored form.
///
/// # Errors
/// The body has another form.
pub fn rows_of(node: &NodeId, body: &str) -> Result<Vec<SettingRow>, StoreError> {
    json("settings of the firmware", node.as_str(), body)
}

/// The present wish with the values of an earlier reading, which may have had another wish. The flag reports whether the
/// setting was read.
#[must_use]
pub fn rejudge(wanted: &WantedSettings, known: &[SettingRow]) -> Vec<(SettingRow, bool)> {
    let restate = |row: SettingRow| {
        let Some(before) = known.iter().find(|known| known.name == row.name) else {
            return (row, false);
        };
        let standing = match before.standing {
            same if before.wanted == row.wanted => same,
            SettingStatus::Missing => SettingStatus::Missing,
            fixed => {
                let next = before.pending.as_ref().or(before.seen.as_ref());
                match (next == Some(&row.wanted), before.pending.is_some()) {
                    (true, true) => SettingStatus::Pending,
                    (true, false) => SettingStatus::AsWanted,
                    (false, _) if fixed == SettingStatus::ReadOnly => SettingStatus::ReadOnly,
                    (false, _) => SettingStatus::Differs,
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
    fn old_readings_are_judged_by_present_settings() {
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
                let now = rejudge(&wanted(value), &known);
                assert_eq!(now, [(compare(&wanted(value), reading).remove(0), true)], "{value}");
            }
        }
        assert!(!rejudge(&wanted("x"), &[])[0].1);
        assert_eq!(
            rows_of(&"n1".into(), &stored(&compare(&wanted("x"), &readings[1]), false).body)
                .unwrap()
                .len(),
            1
        );
        assert!(rows_of(&"n1".into(), "nonsense").is_err());
    }
}
