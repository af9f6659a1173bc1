//! Checks the protection of the fabric itself: keys that prevent other hosts from acting as subnet manager, and a
//! closed default partition.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Membership, PKey, Tables};
use crate::guid::Guid;

/// Maximum number of ports that a line names.
const MAX_NAMED: usize = 5;

/// The checked protections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthItem {
    /// A random M_Key, so that no host can set ports.
    MKey,
    /// M_Key protection level 2: hosts cannot read the key either.
    MKeyProtection,
    /// A random SM_Key, so that no host can become subnet manager.
    SmKey,
    /// A random SA_Key, so that no host gets trusted answers.
    SaKey,
    /// Switches drop packets of partitions that the port is not in.
    Enforcement,
    /// Hosts are limited members of the default partition.
    DefaultPartition,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthState {
    /// The protection is in place.
    Holds,
    /// The protection is missing.
    Fails,
    /// The state could not be determined.
    Unknown,
}

/// One row of the health page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HealthCheck {
    /// The checked protection.
    pub item: HealthItem,
    /// The result.
    pub state: HealthState,
    /// A description with the remedy. Never contains a key.
    pub text: String,
}

/// The configuration of OpenSM (`opensm.conf`; `opensm -c FILE` writes one with all defaults). Keys are not stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManagerOptions {
    m_key: KeyStrength,
    sm_key: KeyStrength,
    sa_key: KeyStrength,
    m_key_protection: u8,
    enforcement_off: bool,
}

/// The strength of a key. The key itself is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum KeyStrength {
    /// 0 or 1, which are public.
    #[default]
    WellKnown,
    /// Any other value.
    Own,
}

impl ManagerOptions {
    /// Reads `opensm.conf`: an option and its value per line. Missing options have OpenSM's defaults.
    pub fn parse(text: &str) -> Self {
        let mut options = Self::default();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let (Some(word), Some(value)) = (words.next(), words.next()) else {
                continue;
            };
            match word {
                "m_key" => options.m_key = strength(value),
                "sm_key" => options.sm_key = strength(value),
                "sa_key" => options.sa_key = strength(value),
                "m_key_protection_level" => options.m_key_protection = value.parse().unwrap_or(0),
                "no_partition_enforcement" => options.enforcement_off |= value.eq_ignore_ascii_case("true"),
                "part_enforce" => options.enforcement_off |= value.eq_ignore_ascii_case("off"),
                _ => {}
            }
        }
        options
    }
}

fn strength(value: &str) -> KeyStrength {
    let number = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    };
    match number {
        None | Some(0 | 1) => KeyStrength::WellKnown,
        Some(_) => KeyStrength::Own,
    }
}

/// All rows of the health page. `options` is `None` if they could not be read. `managers` and `management` may be full
/// members of the default partition.
pub fn health(options: Option<&ManagerOptions>, managers: &BTreeSet<Guid>, tables: &Tables) -> Vec<HealthCheck> {
    let mut checks = vec![
        key_check(HealthItem::MKey, "m_key", options.map(|options| options.m_key)),
        protection(options),
        key_check(HealthItem::SmKey, "sm_key", options.map(|options| options.sm_key)),
        key_check(HealthItem::SaKey, "sa_key", options.map(|options| options.sa_key)),
    ];
    checks.push(match options.map(|options| options.enforcement_off) {
        Some(false) => line(
            HealthItem::Enforcement,
            HealthState::Holds,
            "switches enforce partitions",
        ),
        Some(true) => line(
            HealthItem::Enforcement,
            HealthState::Fails,
            "switches do not enforce partitions: set part_enforce to both",
        ),
        None => unknown(HealthItem::Enforcement),
    });
    checks.push(default_partition(managers, tables));
    checks
}

fn line(item: HealthItem, state: HealthState, text: impl Into<String>) -> HealthCheck {
    let text = text.into();
    HealthCheck { item, state, text }
}

fn unknown(item: HealthItem) -> HealthCheck {
    line(
        item,
        HealthState::Unknown,
        "the subnet manager's options could not be read",
    )
}

fn key_check(item: HealthItem, word: &str, key: Option<KeyStrength>) -> HealthCheck {
    match key {
        Some(KeyStrength::Own) => line(item, HealthState::Holds, format!("{word} is set")),
        Some(KeyStrength::WellKnown) => {
            let text = format!("{word} is a well-known default: set a random key on every subnet manager");
            line(item, HealthState::Fails, text)
        }
        None => unknown(item),
    }
}

fn protection(options: Option<&ManagerOptions>) -> HealthCheck {
    let item = HealthItem::MKeyProtection;
    match options.map(|options| options.m_key_protection) {
        Some(2..) => line(item, HealthState::Holds, "m_key_protection_level is 2 or more"),
        Some(level) => {
            let text = format!("m_key_protection_level is {level}: hosts can read the M_Key; set 2");
            line(item, HealthState::Fails, text)
        }
        None => unknown(item),
    }
}

fn default_partition(managers: &BTreeSet<Guid>, tables: &Tables) -> HealthCheck {
    let item = HealthItem::DefaultPartition;
    let full = PKey::DEFAULT.entry(Membership::Full);
    let open: BTreeMap<&Guid, ()> = tables
        .read
        .iter()
        .filter(|(port, table)| table.contains(&full) && !managers.contains(port))
        .map(|(port, _)| (port, ()))
        .collect();
    if !open.is_empty() {
        let mut named: Vec<String> = open.keys().take(MAX_NAMED).map(ToString::to_string).collect();
        if open.len() > MAX_NAMED {
            named.push(format!("and {} more", open.len() - MAX_NAMED));
        }
        let text = format!(
            "{} of {} ports are full members of the default partition and can communicate with each other: {}",
            open.len(),
            tables.read.len(),
            named.join(", ")
        );
        return line(item, HealthState::Fails, text);
    }
    if tables.read.is_empty() || !tables.unread.is_empty() {
        let text = format!("{} tables were not read", tables.unread.len());
        return line(item, HealthState::Unknown, text);
    }
    let text = format!(
        "of {} ports, only those of subnet managers are full members",
        tables.read.len()
    );
    line(item, HealthState::Holds, text)
}
