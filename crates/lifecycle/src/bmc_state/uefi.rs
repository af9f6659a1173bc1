//! Compares the boot settings of a machine's firmware with those at its inspection.
//!
//! Root on a machine can put its own boot option first, switch Secure Boot off, or add a key, so that its own program
//! starts on the next customer's machine.

use std::collections::BTreeMap;

use rackwright_pattern::fits_beginning;
use serde::{Deserialize, Serialize};

use super::{BmcReading, Item, Listed, Part};
use crate::time::Timestamp;

/// Prefix of the names of boot options that the agent makes. The agent removes them when it erases the drives.
const AGENT_OPTION_PREFIX: &str = "Rackwright: ";

/// A part of the firmware's boot settings, as a BMC shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shown<T> {
    /// Read in full.
    Known(T),
    /// The BMC does not show the part.
    NotOffered,
    /// Reading failed, with the reason.
    Unread(String),
    /// Never read.
    #[default]
    NotRead,
}

impl<T> Shown<T> {
    /// The value, where it was read.
    #[must_use]
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(it) => Some(it),
            Self::NotOffered | Self::Unread(_) | Self::NotRead => None,
        }
    }

    fn or(self, other: Self) -> Self {
        if self.rank() == 0 { other } else { self }
    }

    /// Order of certainty: known, then not offered, then the rest.
    fn rank(&self) -> u8 {
        match self {
            Self::Known(_) => 2,
            Self::NotOffered => 1,
            Self::Unread(_) | Self::NotRead => 0,
        }
    }
}

/// One boot option.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootOption {
    /// The name in the boot order: `Boot0001`. Firmware may renumber its options.
    pub reference: String,
    /// The name for people.
    pub name: String,
    /// The UEFI device path; empty where the BMC does not show it.
    pub device: String,
    /// Path of the BMC's resource.
    pub path: String,
}

impl BootOption {
    fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.device) == (&other.name, &other.device)
    }

    /// The agent made this option: it starts a file from a partition, which the erase removes.
    fn is_of_the_agent(&self) -> bool {
        self.name.starts_with(AGENT_OPTION_PREFIX) && self.device.contains("HD(")
    }
}

/// The state of Secure Boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecureBoot {
    /// On from the next start; absent where the BMC does not report it.
    pub enabled: Option<bool>,
    /// `SetupMode`, `UserMode`, `AuditMode` or `DeployedMode`.
    pub mode: Option<String>,
}

impl SecureBoot {
    /// In these modes any program can change the keys.
    fn is_unlocked(&self) -> bool {
        matches!(self.mode.as_deref(), Some("SetupMode" | "AuditMode"))
    }
}

/// One key of Secure Boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// `PK`, `KEK` or `db`.
    pub database: String,
    /// The subject of a certificate; the kind of a hash.
    pub name: String,
    /// Unique identity: a digest, else the BMC's description.
    pub identity: String,
    /// Path of the BMC's resource.
    pub path: String,
}

impl Key {
    fn is_same(&self, other: &Self) -> bool {
        (&self.database, &self.identity) == (&other.database, &other.identity)
    }

    fn detail(&self) -> String {
        let identity: String = self.identity.chars().take(80).collect();
        format!("in {}, {identity}", self.database)
    }
}

/// The key databases of Secure Boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Keys that let programs start, or let databases be changed.
    pub entries: Vec<Key>,
    /// The number of entries in the list of revoked programs, where the BMC shows the list.
    pub revoked: Option<u64>,
    /// Path of the BMC's resource of each database, by the database's id.
    pub databases: BTreeMap<String, String>,
}

/// One reading of the boot settings of a machine's firmware.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Uefi {
    /// The boot options.
    pub options: Shown<Vec<BootOption>>,
    /// The persistent boot order: references of boot options.
    pub order: Shown<Vec<String>>,
    /// Whether Secure Boot is on, and its mode.
    pub secure_boot: Shown<SecureBoot>,
    /// The keys of Secure Boot.
    pub keys: Shown<Keys>,
}

/// The reading with which later readings are compared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// When it was read; the latest time where parts were read at different times.
    pub read_at: Timestamp,
    /// A part of it was first read after a customer had had the machine.
    pub is_late: bool,
    /// The boot settings at that time.
    pub seen: Uefi,
}

impl Baseline {
    /// The reading of an inspection replaces the older baseline, except for the parts that could not be read.
    #[must_use]
    pub fn of_inspection(seen: Uefi, at: Timestamp, older: Option<Self>) -> Self {
        let older = older.unwrap_or_default();
        let is_whole = [
            seen.options.rank(),
            seen.order.rank(),
            seen.secure_boot.rank(),
            seen.keys.rank(),
        ];
        let is_whole = !is_whole.contains(&0);
        Self {
            read_at: at,
            is_late: older.is_late && !is_whole,
            seen: Uefi {
                options: seen.options.or(older.seen.options),
                order: seen.order.or(older.seen.order),
                secure_boot: seen.secure_boot.or(older.seen.secure_boot),
                keys: seen.keys.or(older.seen.keys),
            },
        }
    }

    /// Parts that the baseline does not have: the BMC does not show them, or reading them failed.
    #[must_use]
    pub fn not_shown(&self) -> Vec<Part> {
        let known = [
            (Part::BootOptions, self.seen.options.known().is_some()),
            (Part::BootOrder, self.seen.order.known().is_some()),
            (Part::SecureBoot, self.seen.secure_boot.known().is_some()),
            (Part::SecureBootKeys, self.seen.keys.known().is_some()),
        ];
        let missing = known.into_iter().filter(|(_, is_known)| !is_known);
        missing.map(|(part, _)| part).collect()
    }

    /// Adopts the parts that the reading has and the baseline lacks. Returns whether there were any.
    pub fn fill(&mut self, seen: &Uefi, at: Timestamp) -> bool {
        let filled = [
            fill(&mut self.seen.options, &seen.options),
            fill(&mut self.seen.order, &seen.order),
            fill(&mut self.seen.secure_boot, &seen.secure_boot),
            fill(&mut self.seen.keys, &seen.keys),
        ];
        let is_changed = filled.contains(&true);
        if is_changed {
            self.read_at = at;
            self.is_late = true;
        }
        is_changed
    }
}

fn fill<T: Clone>(mine: &mut Shown<T>, seen: &Shown<T>) -> bool {
    let is_new = seen.rank() > mine.rank();
    if is_new {
        mine.clone_from(seen);
    }
    is_new
}

/// The site's rules for boot settings, beside the baseline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UefiRules {
    /// Names of boot options that may stay; a name that ends in `*` is a prefix.
    pub keep_boot_options: Vec<String>,
    /// Whether Secure Boot must be on; overrides the baseline.
    pub secure_boot: Option<bool>,
    /// Databases and digests of keys that may stay.
    pub keys: Vec<(String, String)>,
}

impl UefiRules {
    fn keeps(&self, option: &BootOption) -> bool {
        option.is_of_the_agent()
            || self
                .keep_boot_options
                .iter()
                .any(|kept| fits_beginning(kept, &option.name))
    }

    fn keeps_key(&self, key: &Key) -> bool {
        let digest = key.identity.trim_start_matches("sha256:");
        let is_it = |(database, sha256): &&(String, String)| *database == key.database && sha256 == digest;
        self.keys.iter().any(|wanted| is_it(&wanted))
    }

    fn wants_secure_boot(&self, base: &SecureBoot) -> Option<bool> {
        self.secure_boot.or(base.enabled)
    }
}

/// The differences of a reading from the inspection, for each part.
#[must_use]
pub fn differences(seen: &Uefi, base: &Uefi, rules: &UefiRules) -> BmcReading {
    vec![
        (
            Part::BootOptions,
            listed(&seen.options, &base.options, |seen, base| {
                let is_foreign = |one: &&BootOption| !rules.keeps(one) && !base.iter().any(|other| other.is_same(one));
                seen.iter().filter(is_foreign).map(option_item).collect()
            }),
        ),
        (
            Part::BootOrder,
            listed(&seen.order, &base.order, |order, _| {
                wrong_order(order, seen, base, rules).into_iter().collect()
            }),
        ),
        (
            Part::SecureBoot,
            listed(&seen.secure_boot, &base.secure_boot, |seen, base| {
                secure_boot_items(seen, base, rules)
            }),
        ),
        (
            Part::SecureBootKeys,
            listed(&seen.keys, &base.keys, |seen, base| key_items(seen, base, rules)),
        ),
    ]
}

/// References of the boot options that must stand first, as at the inspection; empty where the baseline has no order.
#[must_use]
pub fn expected_order(seen: &Uefi, base: &Uefi) -> Vec<String> {
    let order = base.order.known().cloned().unwrap_or_default();
    let (Some(now), Some(then)) = (seen.options.known(), base.options.known()) else {
        return order;
    };
    let now_called = |reference: &String| {
        let option = then.iter().find(|one| one.reference == *reference)?;
        let found = now.iter().find(|one| one.is_same(option))?;
        Some(found.reference.clone())
    };
    order.iter().filter_map(now_called).collect()
}

/// Whether Secure Boot must be switched on (true) or off (false); None: it is as wanted.
#[must_use]
pub fn expected_secure_boot(seen: &Uefi, base: &Uefi, rules: &UefiRules) -> Option<bool> {
    let (seen, base) = (seen.secure_boot.known()?, base.secure_boot.known()?);
    rules
        .wants_secure_boot(base)
        .filter(|wanted| seen.enabled != Some(*wanted))
}

fn listed<T>(seen: &Shown<T>, base: &Shown<T>, compare: impl FnOnce(&T, &T) -> Vec<Item>) -> Listed {
    match (seen, base) {
        (Shown::Unread(why), _) => Listed::Unread(why.clone()),
        (Shown::Known(seen), Shown::Known(base)) => Listed::Whole(compare(seen, base)),
        (Shown::NotOffered, Shown::Known(_)) => {
            Listed::Unread("the BMC showed this part at the inspection but does not show it now".into())
        }
        (Shown::Known(_) | Shown::NotOffered | Shown::NotRead, _) => Listed::NotOffered,
    }
}

fn item(part: Part, name: &str, detail: String, path: &str) -> Item {
    Item {
        part,
        name: name.to_owned(),
        detail,
        path: path.to_owned(),
        user: String::new(),
        is_open: true,
    }
}

fn option_item(option: &BootOption) -> Item {
    let detail = match option.device.as_str() {
        "" => option.reference.clone(),
        device => device.chars().take(120).collect(),
    };
    item(Part::BootOptions, &option.name, detail, &option.path)
}

/// The boot order, if it is wrong: the options of the inspection must stand first, in their order. Options that the site
/// keeps may stand anywhere.
fn wrong_order(order: &[String], seen: &Uefi, base: &Uefi, rules: &UefiRules) -> Option<Item> {
    let expected = expected_order(seen, base);
    let options = seen.options.known().map(Vec::as_slice).unwrap_or_default();
    let find = |reference: &String| options.iter().find(|one| one.reference == *reference);
    let is_kept =
        |reference: &String| find(reference).is_some_and(|one| rules.keeps(one) && !expected.contains(reference));
    let counted: Vec<&String> = order.iter().filter(|one| !is_kept(one)).collect();
    if counted.len() >= expected.len() && counted.iter().zip(&expected).all(|(now, then)| *now == then) {
        return None;
    }
    let called = |reference: &String| match find(reference) {
        Some(option) if !option.name.is_empty() => option.name.clone(),
        _ => reference.clone(),
    };
    let names = |list: &[String]| list.iter().take(4).map(called).collect::<Vec<_>>().join(", ");
    let detail = format!("at the inspection: {}", names(&expected));
    Some(item(Part::BootOrder, &names(order), detail, "Boot.BootOrder"))
}

fn secure_boot_items(seen: &SecureBoot, base: &SecureBoot, rules: &UefiRules) -> Vec<Item> {
    let mut items = Vec::new();
    let word = |on: bool| if on { "on" } else { "off" };
    if let Some(wanted) = rules.wants_secure_boot(base)
        && seen.enabled != Some(wanted)
    {
        let now = seen.enabled.map_or("unknown", word);
        let detail = format!("expected: {}", word(wanted));
        items.push(item(Part::SecureBoot, now, detail, "SecureBootEnable"));
    }
    if seen.is_unlocked() && !base.is_unlocked() && base.mode.is_some() {
        let now = seen.mode.as_deref().unwrap_or_default();
        let detail = format!("at the inspection: {}", base.mode.as_deref().unwrap_or_default());
        items.push(item(Part::SecureBoot, now, detail, "SecureBootMode"));
    }
    items
}

fn key_items(seen: &Keys, base: &Keys, rules: &UefiRules) -> Vec<Item> {
    let has = |list: &[Key], key: &Key| list.iter().any(|other| other.is_same(key));
    let foreign = seen
        .entries
        .iter()
        .filter(|key| !has(&base.entries, key) && !rules.keeps_key(key));
    let mut items: Vec<Item> = foreign
        .map(|key| item(Part::SecureBootKeys, &key.name, key.detail(), &key.path))
        .collect();
    let database = |id: &str| seen.databases.get(id).cloned().unwrap_or_default();
    let missing = base.entries.iter().filter(|key| !has(&seen.entries, key));
    items.extend(missing.map(|key| Item {
        // The name of the database: a reset of the database restores the key.
        user: key.database.clone(),
        ..item(
            Part::SecureBootKeys,
            &key.name,
            format!("missing from {}", key.database),
            &database(&key.database),
        )
    }));
    if let Some(then) = base.revoked
        && seen.revoked.is_none_or(|now| now < then)
    {
        let now = seen.revoked.unwrap_or(0);
        items.push(Item {
            user: "dbx".into(),
            ..item(
                Part::SecureBootKeys,
                "dbx",
                format!("{now} revoked programs, {then} at the inspection"),
                &database("dbx"),
            )
        });
    }
    items
}
