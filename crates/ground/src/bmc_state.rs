//! What may stay on BMCs between customers: the settings, and their effect on a node.

use rackwright_lifecycle::BmcPolicy;
use rackwright_lifecycle::bmc_state::uefi::Baseline;
use rackwright_lifecycle::bmc_state::{BmcRules, ItemState, Part};
use rackwright_store::{BmcStateRow, NodeRecord};
use serde::Deserialize;

use crate::config::bmc_accounts::{self, FormerAccount};

/// Nodes with this label become available even if their BMCs do not show everything.
const ALLOW_LABEL: (&str, &str) = ("rackwright.bmc-state", "unknown-allowed");
/// The longest name of an account, destination or boot option.
const NAME_MAX: usize = 256;
/// Most names in a list.
const NAMES_MAX: usize = 64;

/// What the daemon does about foreign entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Foreign {
    /// Removes them between customers. A node goes to quarantine if its BMC keeps them.
    #[default]
    Remove,
    /// Only reports them.
    Report,
}

/// What the daemon does about the ways from the machine into its BMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InBand {
    /// Leaves them as they are.
    #[default]
    Leave,
    /// Closes host interfaces and KCS where the BMC can.
    Close,
}

/// What the daemon does about boot options and Secure Boot that differ from the inspection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uefi {
    /// Restores them.
    #[default]
    Restore,
    /// Does not read them.
    Leave,
}

/// What happens to a node if its BMC does not show everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// It goes to quarantine when it is released.
    #[default]
    Refuse,
    /// It passes, and is shown as not proven.
    Allow,
}

/// The settings block `bmc_state`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// What the daemon does about foreign entries.
    pub foreign: Foreign,
    /// Accounts that stay beside the account of this site.
    pub keep_accounts: Vec<String>,
    /// Destinations of event subscriptions that stay. A trailing `*` makes the text a prefix.
    pub keep_subscriptions: Vec<String>,
    /// Account directories (LDAP and the like) stay.
    pub keep_directories: bool,
    /// What the daemon does about the ways from the machine into its BMC.
    pub in_band: InBand,
    /// What the daemon does about boot options and Secure Boot.
    pub uefi: Uefi,
    /// Names of boot options that stay beside those of the inspection. A trailing `*` makes the text a prefix.
    pub keep_boot_options: Vec<String>,
    /// What happens to a node if its BMC does not show everything.
    pub unknown: Unknown,
}

impl Settings {
    /// Adds each fault of the settings to `faults`.
    pub(crate) fn check(&self, accounts: Option<&bmc_accounts::Settings>, faults: &mut Vec<String>) {
        for (field, names) in [
            ("keep_accounts", &self.keep_accounts),
            ("keep_subscriptions", &self.keep_subscriptions),
            ("keep_boot_options", &self.keep_boot_options),
        ] {
            if names.len() > NAMES_MAX {
                faults.push(format!("bmc_state.{field}: at most {NAMES_MAX} names"));
            }
            let is_faulty = |name: &&String| name.trim().is_empty() || name.len() > NAME_MAX;
            if names.iter().any(|name| is_faulty(&name)) {
                faults.push(format!(
                    "bmc_state.{field}: each name must have 1 to {NAME_MAX} characters"
                ));
            }
        }
        let keeps_former = accounts
            .is_some_and(|accounts| accounts.username.is_some() && accounts.former_account == FormerAccount::Keep);
        if keeps_former && self.foreign == Foreign::Remove && self.keep_accounts.is_empty() {
            faults.push(
                "bmc_state.keep_accounts: must name the accounts that bmc_accounts.former_account keeps; at a release every \
                 other account is removed"
                    .into(),
            );
        }
    }

    /// The instruction for the decisions.
    #[must_use]
    pub fn policy(&self) -> BmcPolicy {
        match self.foreign {
            Foreign::Remove => BmcPolicy::Clean,
            Foreign::Report => BmcPolicy::Report,
        }
    }

    /// The wanted state of one node's BMC.
    #[must_use]
    pub fn rules(&self, record: &NodeRecord) -> BmcRules {
        let label = record.labels.get(ALLOW_LABEL.0);
        BmcRules {
            own: record.spec.bmc_username.clone(),
            keep_accounts: self.keep_accounts.clone(),
            keep_subscriptions: self.keep_subscriptions.clone(),
            keep_directories: self.keep_directories,
            close_in_band: self.in_band == InBand::Close,
            allow_unknown: self.unknown == Unknown::Allow || label.is_some_and(|value| value == ALLOW_LABEL.1),
            starts_again: false,
        }
    }
}

/// The baseline of a node's boot options and Secure Boot, in one sentence.
#[must_use]
pub fn describe_baseline(baseline: &Baseline) -> String {
    let mut description = format!("compared with the reading of {}", baseline.read_at.date());
    if baseline.is_late {
        description.push_str(", which was not taken at an inspection: a customer may have changed the settings before");
    }
    let not_shown: Vec<&str> = baseline.not_shown().into_iter().map(Part::plural).collect();
    if !not_shown.is_empty() {
        description.push_str(&format!(". Not shown by the BMC: {}", not_shown.join(", ")));
    }
    description
}

/// A stored reading in one sentence.
#[must_use]
pub fn description(row: &BmcStateRow) -> String {
    let of = |held: ItemState| {
        let lines = row.lines.iter().filter(move |line| line.held == held);
        lines.map(|line| line.words.as_str()).collect::<Vec<_>>().join("; ")
    };
    let mut parts = Vec::new();
    for (held, intro) in [
        (ItemState::Foreign, "foreign and still present"),
        (ItemState::Unknown, "unknown"),
        (ItemState::Waiting, "waits for the next start"),
        (ItemState::Removed, "removed"),
        (ItemState::Kept, "kept by the settings"),
    ] {
        let words = of(held);
        if !words.is_empty() {
            parts.push(format!("{intro}: {words}"));
        }
    }
    if parts.is_empty() {
        parts.push("nothing foreign".to_owned());
    }
    if let (Some(at), false) = (row.proven_at, row.proven_at == Some(row.read_at)) {
        parts.push(format!("last proven clean on {}", at.date()));
    } else if row.proven_at.is_some() {
        parts.push("proven".to_owned());
    }
    parts.join(". ")
}

#[cfg(test)]
mod tests {
    use rackwright_lifecycle::Timestamp;
    use rackwright_store::BmcStateLine;

    use super::*;

    fn faults(settings: &Settings, accounts: Option<&bmc_accounts::Settings>) -> Vec<String> {
        let mut faults = Vec::new();
        settings.check(accounts, &mut faults);
        faults
    }

    #[test]
    fn faulty_settings_are_named() {
        let settings = Settings {
            keep_accounts: vec![String::new()],
            keep_subscriptions: vec!["x".repeat(300)],
            ..Settings::default()
        };
        let found = faults(&settings, None);
        assert!(
            found[0].contains("keep_accounts") && found[1].contains("keep_subscriptions"),
            "{found:?}"
        );
        let accounts = bmc_accounts::Settings {
            username: Some("ours".into()),
            former_account: FormerAccount::Keep,
            ..bmc_accounts::Settings::default()
        };
        let found = faults(&Settings::default(), Some(&accounts));
        assert!(found.len() == 1 && found[0].contains("former_account"), "{found:?}");
        for settings in [
            Settings {
                keep_accounts: vec!["root".into()],
                ..Settings::default()
            },
            Settings {
                foreign: Foreign::Report,
                ..Settings::default()
            },
        ] {
            assert!(faults(&settings, Some(&accounts)).is_empty());
        }
    }

    #[test]
    fn baseline_description_names_missing_parts() {
        let mut baseline = Baseline::default();
        let description = describe_baseline(&baseline);
        assert!(
            description.contains("Not shown by the BMC: boot options, boot order") && !description.contains("customer"),
            "{description}"
        );
        baseline.is_late = true;
        assert!(describe_baseline(&baseline).contains("not taken at an inspection"));
    }

    #[test]
    fn description_lists_worst_findings_first() {
        let line = |held, words: &str| BmcStateLine {
            held,
            part: Part::Accounts,
            words: words.into(),
        };
        let mut row = BmcStateRow {
            read_at: Timestamp(2),
            proven_at: Some(Timestamp(2)),
            ..BmcStateRow::default()
        };
        assert_eq!(description(&row), "nothing foreign. proven");
        row.lines = vec![
            line(ItemState::Removed, "account \"a\""),
            line(ItemState::Foreign, "account \"b\""),
        ];
        row.proven_at = None;
        assert_eq!(
            description(&row),
            "foreign and still present: account \"b\". removed: account \"a\""
        );
    }
}
