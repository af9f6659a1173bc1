//! The firmware settings wanted by a SKU, and their comparison with a machine.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The firmware settings wanted by a SKU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WantedSettings {
    /// BIOS attributes by the BMC's name. Values are text: `Enabled`, `115200`, `true`.
    pub bios: BTreeMap<Box<str>, Box<str>>,
    /// Whether Secure Boot must be enabled. `None`: it stays as it is.
    pub secure_boot: Option<bool>,
    /// Certificates that the Secure Boot databases must contain.
    pub keys: Vec<WantedKey>,
}

/// A certificate that a Secure Boot database must contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WantedKey {
    /// The database: `PK`, `KEK`, `db` or `dbx`.
    pub database: Box<str>,
    /// The certificate's SHA-256, 64 lower-case hexadecimal digits. Empty if only the certificate is given.
    pub sha256: Box<str>,
    /// The certificate in PEM, added if it is missing.
    pub pem: Option<Box<str>>,
}

impl WantedSettings {
    /// Whether no setting is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bios.is_empty() && self.secure_boot.is_none() && self.keys.is_empty()
    }

    /// Adds the SHA-256 of each certificate given without one. The caller computes the hash.
    #[must_use]
    pub fn with_fingerprints(mut self, sha256_of: impl Fn(&str) -> Option<String>) -> Self {
        for key in &mut self.keys {
            if let (true, Some(pem)) = (key.sha256.is_empty(), &key.pem) {
                key.sha256 = sha256_of(pem).unwrap_or_default().into();
            }
        }
        self
    }
}

/// The firmware settings read from a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenSettings {
    /// The BIOS attributes in force.
    pub current: BTreeMap<String, String>,
    /// BIOS attributes that change at the next start.
    pub pending: BTreeMap<String, String>,
    /// Attributes that the BMC cannot change.
    pub read_only: BTreeSet<String>,
    /// The state of Secure Boot. `None`: the BMC does not offer it.
    pub secure_boot: Option<SeenSecureBoot>,
    /// Database and SHA-256 of each certificate. `None`: the BMC does not list them.
    pub keys: Option<BTreeSet<(String, String)>>,
}

/// The state of Secure Boot, as read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeenSecureBoot {
    /// Whether it is enabled from the next start on. `None`: not reported.
    pub enabled: Option<bool>,
    /// Whether it was in force at the last start. `None`: not reported.
    pub in_force: Option<bool>,
}

/// The comparison result of one wanted setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingStatus {
    /// The wanted value is in force, and no pending change affects it.
    AsWanted,
    /// The wanted value takes effect at the next start.
    Pending,
    /// The value differs now or will differ after the next start.
    Differs,
    /// The value differs, and the BMC cannot change it.
    ReadOnly,
    /// The machine has no such setting, or its BMC does not report it.
    Missing,
}

impl SettingStatus {
    /// The name in storage and output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AsWanted => "as-wanted",
            Self::Pending => "pending",
            Self::Differs => "differs",
            Self::ReadOnly => "read-only",
            Self::Missing => "missing",
        }
    }
}

/// One wanted setting with the value read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingRow {
    /// `bios/Attribute`, `secure-boot` or `secure-boot/db/SHA-256`.
    pub name: String,
    /// The wanted value.
    pub wanted: String,
    /// The value in force. `None`: not reported.
    pub seen: Option<String>,
    /// The value after the next start, if it changes.
    pub pending: Option<String>,
    /// The comparison result.
    pub standing: SettingStatus,
}

/// The wanted settings in order, each with the value read.
#[must_use]
pub fn compare(wanted: &WantedSettings, seen: &SeenSettings) -> Vec<SettingRow> {
    let bios = wanted.bios.iter().map(|(name, value)| attribute(name, value, seen));
    let secure_boot = wanted.secure_boot.map(|wanted| secure_boot(wanted, seen.secure_boot));
    let keys = wanted.keys.iter().map(|wanted| key(wanted, seen.keys.as_ref()));
    bios.chain(secure_boot).chain(keys).collect()
}

fn attribute(name: &str, wanted: &str, seen: &SeenSettings) -> SettingRow {
    let (current, pending) = (seen.current.get(name), seen.pending.get(name));
    let standing = match (pending, current) {
        (Some(pending), _) if pending == wanted && current != Some(pending) => SettingStatus::Pending,
        (Some(pending), _) if pending != wanted => SettingStatus::Differs,
        (_, Some(current)) if current == wanted => SettingStatus::AsWanted,
        (_, Some(_)) if seen.read_only.contains(name) => SettingStatus::ReadOnly,
        (_, Some(_)) => SettingStatus::Differs,
        (_, None) => SettingStatus::Missing,
    };
    SettingRow {
        name: format!("bios/{name}"),
        wanted: wanted.to_owned(),
        seen: current.cloned(),
        pending: pending.filter(|pending| current != Some(pending)).cloned(),
        standing,
    }
}

fn word(enabled: bool) -> String {
    if enabled { "enabled" } else { "disabled" }.to_owned()
}

fn secure_boot(wanted: bool, seen: Option<SeenSecureBoot>) -> SettingRow {
    let (enabled, in_force) = seen.map_or((None, None), |seen| (seen.enabled, seen.in_force));
    let standing = match (enabled.or(in_force), in_force.or(enabled)) {
        (None, None) | (None, _) | (_, None) => SettingStatus::Missing,
        (Some(next), _) if next != wanted => SettingStatus::Differs,
        (Some(_), Some(now)) if now != wanted => SettingStatus::Pending,
        _ => SettingStatus::AsWanted,
    };
    let now = in_force.or(enabled);
    SettingRow {
        name: "secure-boot".to_owned(),
        wanted: word(wanted),
        seen: now.map(word),
        pending: enabled.filter(|next| now != Some(*next)).map(word),
        standing,
    }
}

fn key(wanted: &WantedKey, seen: Option<&BTreeSet<(String, String)>>) -> SettingRow {
    let name = (wanted.database.to_string(), wanted.sha256.to_string());
    let standing = match seen {
        None => SettingStatus::Missing,
        Some(seen) if seen.contains(&name) => SettingStatus::AsWanted,
        Some(_) => SettingStatus::Differs,
    };
    let is_there = standing == SettingStatus::AsWanted;
    SettingRow {
        name: format!("secure-boot/{}/{}", wanted.database, wanted.sha256),
        wanted: "present".to_owned(),
        seen: seen.map(|_| if is_there { "present" } else { "absent" }.to_owned()),
        pending: None,
        standing,
    }
}

/// Whether all wanted settings are in force.
#[must_use]
pub fn is_as_wanted(rows: &[SettingRow]) -> bool {
    rows.iter().all(|row| row.standing == SettingStatus::AsWanted)
}

/// Maximum number of settings that a sentence names. The rest are counted.
const MAX_NAMED: usize = 3;

/// Describes the deviating settings. Empty if there are none.
#[must_use]
pub fn description(rows: &[SettingRow]) -> String {
    let stray: Vec<&SettingRow> = rows
        .iter()
        .filter(|row| row.standing != SettingStatus::AsWanted)
        .collect();
    let mut words: Vec<String> = stray.iter().take(MAX_NAMED).map(|row| one(row)).collect();
    if stray.len() > MAX_NAMED {
        words.push(format!("and {} more", stray.len() - MAX_NAMED));
    }
    words.join("; ")
}

fn one(row: &SettingRow) -> String {
    let (name, wanted) = (&row.name, &row.wanted);
    let seen = row
        .seen
        .as_ref()
        .map_or_else(|| "unknown".to_owned(), |seen| format!("{seen:?}"));
    let next = row
        .pending
        .as_ref()
        .map(|next| format!(" ({next:?} after the next start)"));
    let why = match row.standing {
        SettingStatus::ReadOnly => ", and its BMC cannot change it",
        SettingStatus::Missing => ", because this machine does not have this setting",
        _ => "",
    };
    format!(
        "{name} must be {wanted:?} and is {seen}{}{why}",
        next.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn few() -> impl Strategy<Value = BTreeMap<String, String>> {
        proptest::collection::btree_map("[A-D]", "[x-z]", 0..4)
    }

    fn wanted_of(map: &BTreeMap<String, String>) -> WantedSettings {
        WantedSettings {
            bios: map
                .iter()
                .map(|(k, v)| (k.as_str().into(), v.as_str().into()))
                .collect(),
            ..WantedSettings::default()
        }
    }

    proptest! {
        /// At the next start, wanted settings stay in force, pending ones take effect, and the rest still differ.
        #[test]
        fn the_next_start_proves_each_standing(
            wanted in few(), current in few(), pending in few(), locked in proptest::collection::btree_set("[A-D]", 0..3)
        ) {
            let seen = SeenSettings { current: current.clone(), pending: pending.clone(), read_only: locked.clone(), ..Default::default() };
            let rows = compare(&wanted_of(&wanted), &seen);
            prop_assert_eq!(rows.len(), wanted.len());
            let mut next = current.clone();
            next.extend(pending.clone());
            for (row, (name, value)) in rows.iter().zip(&wanted) {
                let becomes = next.get(name) == Some(value);
                let is = current.get(name) == Some(value);
                match row.standing {
                    SettingStatus::AsWanted => prop_assert!(is && becomes),
                    SettingStatus::Pending => prop_assert!(!is && becomes),
                    SettingStatus::Differs => prop_assert!(!becomes),
                    SettingStatus::ReadOnly => prop_assert!(!becomes && locked.contains(name)),
                    SettingStatus::Missing => prop_assert!(!becomes && !current.contains_key(name)),
                }
            }
            // After that start, the same comparison finds every pending setting in force.
            let after = compare(&wanted_of(&wanted), &SeenSettings { current: next, ..Default::default() });
            for (before, after) in rows.iter().zip(&after) {
                let good = matches!(before.standing, SettingStatus::AsWanted | SettingStatus::Pending);
                prop_assert_eq!(good, after.standing == SettingStatus::AsWanted);
            }
            prop_assert_eq!(description(&rows).is_empty(), is_as_wanted(&rows));
        }

        #[test]
        fn secure_boot_counts_when_the_last_start_had_it(wanted: bool, enabled: Option<bool>, in_force: Option<bool>) {
            let wish = WantedSettings { secure_boot: Some(wanted), ..Default::default() };
            let seen = SeenSettings { secure_boot: Some(SeenSecureBoot { enabled, in_force }), ..Default::default() };
            let rows = compare(&wish, &seen);
            let known = enabled.or(in_force).is_some();
            let is = enabled.unwrap_or(wanted) == wanted && in_force.unwrap_or(wanted) == wanted && known;
            prop_assert_eq!(rows[0].standing == SettingStatus::AsWanted, is);
            prop_assert_eq!(rows[0].standing == SettingStatus::Missing, !known);
        }
    }

    #[test]
    fn keys_are_compared_by_database_and_fingerprint() {
        let key = |database: &str, sha256: &str, pem: Option<&str>| WantedKey {
            database: database.into(),
            sha256: sha256.into(),
            pem: pem.map(Into::into),
        };
        let wanted = WantedSettings {
            keys: vec![key("db", "aa", None), key("KEK", "", Some("PEM"))],
            ..Default::default()
        };
        let wanted = wanted.with_fingerprints(|_| Some("bb".to_owned()));
        let keys = |all: &[(&str, &str)]| all.iter().map(|(d, s)| ((*d).to_owned(), (*s).to_owned())).collect();
        let seen = |found| SeenSettings {
            keys: found,
            ..Default::default()
        };
        let standing = |found| {
            compare(&wanted, &seen(found))
                .iter()
                .map(|row| row.standing)
                .collect::<Vec<_>>()
        };
        use SettingStatus::{AsWanted, Differs, Missing};
        assert_eq!(standing(None), [Missing, Missing]);
        assert_eq!(standing(Some(keys(&[("db", "aa"), ("db", "bb")]))), [AsWanted, Differs]);
        assert_eq!(
            standing(Some(keys(&[("db", "aa"), ("KEK", "bb")]))),
            [AsWanted, AsWanted]
        );
    }

    #[test]
    fn the_sentence_names_setting_wanted_and_seen() {
        let wanted = WantedSettings {
            bios: [("Sriov".into(), "Enabled".into())].into(),
            secure_boot: Some(true),
            ..Default::default()
        };
        let seen = SeenSettings {
            current: [("Sriov".to_owned(), "Disabled".to_owned())].into(),
            ..Default::default()
        };
        assert_eq!(
            description(&compare(&wanted, &seen)),
            "bios/Sriov must be \"Enabled\" and is \"Disabled\"; secure-boot must be \"enabled\" and is unknown, \
             because this machine does not have this setting"
        );
    }
}
