//! What the site wants of the accounts of its BMCs.

use rackwright_lifecycle::AccountRules;
use serde::Deserialize;

/// Longest time between changes: ten years.
const LONGEST_DAYS: u32 = 3650;
/// Changes at once that a process has file descriptors and patience for.
const AT_ONCE_MAX: usize = 512;
/// The longest name that every kind of BMC takes: IPMI's 16 bytes.
const NAME_MAX: usize = 16;

/// What becomes of the account that a machine was enrolled with once ours is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormerAccount {
    /// It can log in no more.
    #[default]
    Disable,
    /// It stays as it is.
    Keep,
}

/// As written in the configuration file. Where it is left out, no password is changed unless an operator asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// An account of our own of this name; none: the password of the account that the node was enrolled with is changed.
    pub username: Option<String>,
    /// What becomes of the former account, where there is one of our own.
    pub former_account: FormerAccount,
    /// Longest time between changes, in days; 0: never by time.
    pub rotate_days: u32,
    /// Changed whenever a node is taken back.
    pub at_reclaim: bool,
    /// BMCs whose password is changed at once by one process.
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
    /// Says what is wrong, a line each.
    pub(crate) fn check(&self, faults: &mut Vec<String>) {
        let mut fault = |field: &str, what: String| faults.push(format!("bmc_accounts.{field}: {what}"));
        if self.rotate_days > LONGEST_DAYS {
            fault("rotate_days", format!("0 (never) to {LONGEST_DAYS}"));
        }
        if !(1..=AT_ONCE_MAX).contains(&self.at_once) {
            fault("at_once", format!("1 to {AT_ONCE_MAX}"));
        }
        let is_name = |name: &String| {
            (1..=NAME_MAX).contains(&name.len())
                && name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        };
        if self.username.as_ref().is_some_and(|name| !is_name(name)) {
            let what = format!("a letter, then letters, digits, - and _, at most {NAME_MAX}: that every BMC takes");
            fault("username", what);
        }
    }

    /// What decides when a password is due.
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
