//! Settings of the firmware that a class of nodes wants, and how a machine stands to them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// What a class of nodes wants of its machines' firmware.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WantedSettings {
    /// BIOS attributes by name, as the BMC spells them; values as text: `Enabled`, `115200`, `true`.
    pub bios: BTreeMap<Box<str>, Box<str>>,
    /// Whether Secure Boot counts; nothing where it is left as it is.
    pub secure_boot: Option<bool>,
    /// Certificates that the databases of Secure Boot hold, among others.
    pub keys: Vec<WantedKey>,
}

/// A certificate that a database of Secure Boot holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WantedKey {
    /// `PK`, `KEK`, `db`, `dbx`.
    pub database: Box<str>,
    /// Its SHA-256 as 64 lower-case hexadecimal digits; empty where only the certificate is given.
    pub sha256: Box<str>,
    /// The certificate as PEM, to be added where it is missing.
    pub pem: Option<Box<str>>,
}

impl WantedSettings {
    /// Nothing is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bios.is_empty() && self.secure_boot.is_none() && self.keys.is_empty()
    }

    /// The same with the SHA-256 of each certificate that is given without one; this crate counts none.
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

/// What was read of a machine's firmware.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenSettings {
    /// BIOS attributes in force.
    pub current: BTreeMap<String, String>,
    /// Those that become another at the next start.
    pub pending: BTreeMap<String, String>,
    /// Attributes that the BMC cannot change.
    pub read_only: BTreeSet<String>,
    /// Secure Boot; none where the BMC does not offer it.
    pub secure_boot: Option<SeenSecureBoot>,
    /// Database and SHA-256 of each certificate; none where the BMC does not list them.
    pub keys: Option<BTreeSet<(String, String)>>,
}

/// What was read of Secure Boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeenSecureBoot {
    /// From the next start on, if that is told.
    pub enabled: Option<bool>,
    /// For the last start, if that is told.
    pub in_force: Option<bool>,
}

/// How one wanted setting stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// In force, and nothing waits that would change it.
    AsWanted,
    /// It becomes so at the next start.
    Pending,
    /// It is otherwise, or becomes otherwise at the next start.
    Differs,
    /// It is otherwise, and the BMC cannot change it.
    ReadOnly,
    /// The machine has no such setting, or its BMC does not tell.
    Missing,
}

impl Standing {
    /// As it is stored and shown.
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

/// One wanted setting beside what was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingRow {
    /// `bios/Attribute`, `secure-boot` or `secure-boot/db/SHA-256`.
    pub name: String,
    /// What is wanted.
    pub wanted: String,
    /// What is in force; none where it is not told.
    pub seen: Option<String>,
    /// What it becomes at the next start, if that is another.
    pub pending: Option<String>,
    /// How it stands.
    pub standing: Standing,
}

/// The wanted settings in order, each beside what was read.
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
        (Some(pending), _) if pending == wanted && current != Some(pending) => Standing::Pending,
        (Some(pending), _) if pending != wanted => Standing::Differs,
        (_, Some(current)) if current == wanted => Standing::AsWanted,
        (_, Some(_)) if seen.read_only.contains(name) => Standing::ReadOnly,
        (_, Some(_)) => Standing::Differs,
        (_, None) => Standing::Missing,
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
        (None, None) | (None, _) | (_, None) => Standing::Missing,
        (Some(next), _) if next != wanted => Standing::Differs,
        (Some(_), Some(now)) if now != wanted => Standing::Pending,
        _ => Standing::AsWanted,
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
        None => Standing::Missing,
        Some(seen) if seen.contains(&name) => Standing::AsWanted,
        Some(_) => Standing::Differs,
    };
    let is_there = standing == Standing::AsWanted;
    SettingRow {
        name: format!("secure-boot/{}/{}", wanted.database, wanted.sha256),
        wanted: "present".to_owned(),
        seen: seen.map(|_| if is_there { "present" } else { "absent" }.to_owned()),
        pending: None,
        standing,
    }
}

/// Whether all is in force as wanted.
#[must_use]
pub fn is_as_wanted(rows: &[SettingRow]) -> bool {
    rows.iter().all(|row| row.standing == Standing::AsWanted)
}

/// Settings that a sentence names; of the others it says how many.
const TOLD: usize = 3;

/// What is not as wanted, in words; empty where all is.
#[must_use]
pub fn told(rows: &[SettingRow]) -> String {
    let stray: Vec<&SettingRow> = rows.iter().filter(|row| row.standing != Standing::AsWanted).collect();
    let mut words: Vec<String> = stray.iter().take(TOLD).map(|row| one(row)).collect();
    if stray.len() > TOLD {
        words.push(format!("and {} more", stray.len() - TOLD));
    }
    words.join("; ")
}

fn one(row: &SettingRow) -> String {
    let (name, wanted) = (&row.name, &row.wanted);
    let seen = row
        .seen
        .as_ref()
        .map_or_else(|| "not told".to_owned(), |seen| format!("{seen:?}"));
    let next = row
        .pending
        .as_ref()
        .map(|next| format!(" (at the next start {next:?})"));
    let why = match row.standing {
        Standing::ReadOnly => ", which its BMC cannot change",
        Standing::Missing => ", because this machine does not offer it",
        _ => "",
    };
    format!(
        "{name} is wanted {wanted:?} and is {seen}{}{why}",
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
        /// What is as wanted stays so at the next start; what is pending becomes so; the rest does not.
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
                    Standing::AsWanted => prop_assert!(is && becomes),
                    Standing::Pending => prop_assert!(!is && becomes),
                    Standing::Differs => prop_assert!(!becomes),
                    Standing::ReadOnly => prop_assert!(!becomes && locked.contains(name)),
                    Standing::Missing => prop_assert!(!becomes && !current.contains_key(name)),
                }
            }
            // After that start the same comparison finds everything that was pending in force.
            let after = compare(&wanted_of(&wanted), &SeenSettings { current: next, ..Default::default() });
            for (before, after) in rows.iter().zip(&after) {
                let good = matches!(before.standing, Standing::AsWanted | Standing::Pending);
                prop_assert_eq!(good, after.standing == Standing::AsWanted);
            }
            prop_assert_eq!(told(&rows).is_empty(), is_as_wanted(&rows));
        }

        #[test]
        fn secure_boot_counts_when_the_last_start_had_it(wanted: bool, enabled: Option<bool>, in_force: Option<bool>) {
            let wish = WantedSettings { secure_boot: Some(wanted), ..Default::default() };
            let seen = SeenSettings { secure_boot: Some(SeenSecureBoot { enabled, in_force }), ..Default::default() };
            let rows = compare(&wish, &seen);
            let known = enabled.or(in_force).is_some();
            let is = enabled.unwrap_or(wanted) == wanted && in_force.unwrap_or(wanted) == wanted && known;
            prop_assert_eq!(rows[0].standing == Standing::AsWanted, is);
            prop_assert_eq!(rows[0].standing == Standing::Missing, !known);
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
        use Standing::{AsWanted, Differs, Missing};
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
            told(&compare(&wanted, &seen)),
            "bios/Sriov is wanted \"Enabled\" and is \"Disabled\"; secure-boot is wanted \"enabled\" and is not told, because \
             this machine does not offer it"
        );
    }
}
