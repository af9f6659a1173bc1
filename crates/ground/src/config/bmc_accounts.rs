//! The settings for BMC accounts.

use rackwright_lifecycle::AccountRules;
use serde::Deserialize;

/// Upper limit of `rotate_days`: ten years.
const LONGEST_DAYS: u32 = 3650;
/// Upper limit of `at_once`: file descriptors and patience of a process.
const AT_ONCE_MAX: usize = 512;
/// The longest name that every kind of BMC accepts: IPMI's 16 bytes.
const NAME_MAX: usize = 16;

/// What happens to the enrolled account after the site's own account is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormerAccount {
    /// It is disabled.
    #[default]
    Disable,
    /// It stays as it is.
    Keep,
}

/// The settings block `bmc_accounts`. Without it, a password changes only when an operator asks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The name of the site's own account. `None`: the enrolled account gets a new password.
    pub username: Option<String>,
    /// What happens to the former account, if the site has its own.
    pub former_account: FormerAccount,
    /// Longest time between changes, in days; 0: no limit.
    pub rotate_days: u32,
    /// Whether the password changes whenever a node is reclaimed.
    pub at_reclaim: bool,
    /// BMC password changes at once in one process.
    pub at_once: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            username: None,
            former_account: FormerAccount::default(),
            rotate_days: 90,
            at_reclaim: true,
            at_once: 32,
        }
    }
}

impl Settings {
    /// Adds each fault of the settings to `faults`.
    pub fn check(&self, faults: &mut Vec<String>) {
        let mut fault = |field: &str, what: String| faults.push(format!("bmc_accounts.{field}: {what}"));
        if self.rotate_days > LONGEST_DAYS {
            fault("rotate_days", format!("must be 0 (never) to {LONGEST_DAYS}"));
        }
        if !(1..=AT_ONCE_MAX).contains(&self.at_once) {
            fault("at_once", format!("must be 1 to {AT_ONCE_MAX}"));
        }
        let is_name = |name: &String| {
            (1..=NAME_MAX).contains(&name.len())
                && name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        };
        if self.username.as_ref().is_some_and(|name| !is_name(name)) {
            let what =
                format!("must be a letter, then letters, digits, - and _, at most {NAME_MAX}: all BMCs accept this");
            fault("username", what);
        }
    }

    /// The rules that decide when a password is due.
    #[must_use]
    pub fn rules(&self) -> AccountRules {
        AccountRules {
            is_ours: true,
            every_us: i64::from(self.rotate_days) * 86_400 * 1_000_000,
            at_reclaim: self.at_reclaim,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_some_bmc_refuses_are_refused() {
        for (name, is_good) in [
            ("rackwright", true),
            ("a", true),
            ("", false),
            ("1st", false),
            ("rack wright", false),
            ("rackwright-service", false),
        ] {
            let settings = Settings {
                username: Some(name.into()),
                ..Settings::default()
            };
            let mut faults = Vec::new();
            settings.check(&mut faults);
            assert_eq!(faults.is_empty(), is_good, "{name}: {faults:?}");
        }
    }
}
