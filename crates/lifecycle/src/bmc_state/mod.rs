//! Judges the traces that a customer's system can leave on its BMC.
//!
//! Root on a machine reaches its BMC in band (KCS, host interface) as an administrator. So between two customers,
//! everything on the BMC that lets a user in or sends reports must be the control plane's own, or be named by the site.

mod conclude;
#[cfg(test)]
mod tests;
pub mod uefi;
#[cfg(test)]
mod uefi_tests;

use rackwright_pattern::fits_beginning;
use serde::{Deserialize, Serialize};

pub use conclude::{Conclusion, ItemState, conclude};

/// One part of a BMC's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Local accounts.
    Accounts,
    /// Directories of accounts that may log in: LDAP and the like.
    Directories,
    /// SSH keys and certificates of the control plane's account.
    Keys,
    /// Event subscriptions.
    Subscriptions,
    /// Open sessions.
    Sessions,
    /// Media in virtual drives.
    Media,
    BootOverride,
    /// Redfish host interfaces: the network between the machine and its BMC.
    HostInterfaces,
    /// KCS: IPMI from the machine.
    Kcs,
    /// Boot options of the machine's firmware.
    BootOptions,
    /// The persistent order of the boot options.
    BootOrder,
    /// Whether Secure Boot is on, and locked.
    SecureBoot,
    SecureBootKeys,
}

impl Part {
    /// Every part, in the order of cleaning: sessions after the accounts that could open new ones, the boot order after the
    /// options in it, Secure Boot after its keys.
    pub const ALL: [Self; 13] = [
        Self::Accounts,
        Self::Directories,
        Self::Keys,
        Self::HostInterfaces,
        Self::Kcs,
        Self::Subscriptions,
        Self::Media,
        Self::BootOverride,
        Self::BootOptions,
        Self::BootOrder,
        Self::SecureBootKeys,
        Self::SecureBoot,
        Self::Sessions,
    ];

    /// The name of several such things in a sentence.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Accounts => "accounts",
            Self::Directories => "account directories",
            Self::Keys => "keys of our account",
            Self::Subscriptions => "event subscriptions",
            Self::Sessions => "sessions",
            Self::Media => "virtual media",
            Self::BootOverride => "boot override",
            Self::HostInterfaces => "host interfaces",
            Self::Kcs => "KCS access",
            Self::BootOptions => "boot options",
            Self::BootOrder => "boot order",
            Self::SecureBoot => "Secure Boot",
            Self::SecureBootKeys => "Secure Boot keys",
        }
    }

    /// The name of one such thing in a sentence.
    #[must_use]
    pub fn singular(self) -> &'static str {
        match self {
            Self::Accounts => "account",
            Self::Directories => "account directory",
            Self::Keys => "key of our account",
            Self::Subscriptions => "event subscription",
            Self::Sessions => "session",
            Self::Media => "virtual medium",
            Self::BootOverride => "boot override",
            Self::HostInterfaces => "host interface",
            Self::Kcs => "KCS access",
            Self::BootOptions => "boot option",
            Self::BootOrder => "boot order",
            Self::SecureBoot => "Secure Boot",
            Self::SecureBootKeys => "Secure Boot key",
        }
    }

    /// True for parts that the machine's firmware holds: a change may show only after the next start.
    #[must_use]
    pub fn is_of_firmware(self) -> bool {
        matches!(
            self,
            Self::BootOptions | Self::BootOrder | Self::SecureBoot | Self::SecureBootKeys
        )
    }

    /// True for a way from the machine into its BMC.
    fn is_in_band(self) -> bool {
        matches!(self, Self::HostInterfaces | Self::Kcs)
    }

    /// True where a BMC without this part has nothing of it. Every BMC has accounts: a BMC that shows none hides them.
    fn is_absent_where_not_offered(self) -> bool {
        self != Self::Accounts
    }
}

/// One thing in a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The part that contains it.
    pub part: Part,
    /// User name, destination, or id.
    pub name: String,
    /// Role, address or state, for people. Never a secret.
    pub detail: String,
    /// Path of the BMC's resource.
    pub path: String,
    /// The user of a session; empty for everything else.
    pub user: String,
    /// Usable now. A disabled account is not.
    pub is_open: bool,
}

impl Item {
    /// Name and detail, for a sentence.
    #[must_use]
    pub fn description(&self) -> String {
        let detail = if self.detail.is_empty() {
            String::new()
        } else {
            format!(" ({})", self.detail)
        };
        format!("{} \"{}\"{detail}", self.part.singular(), self.name)
    }
}

/// The result of reading a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// Every thing in the part was read.
    Whole(Vec<Item>),
    /// The BMC has no such part, or shows none.
    NotOffered,
    /// The BMC has the part, and reading it failed, with the reason.
    Unread(String),
}

/// One reading of a BMC: the result for each part.
pub type BmcReading = Vec<(Part, Listed)>;

/// The site's rules for BMCs between customers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BmcRules {
    /// The control plane's account.
    pub own: String,
    /// Further accounts that may stay.
    pub keep_accounts: Vec<String>,
    /// Destinations of subscriptions that may stay; a destination that ends in `*` is a prefix.
    pub keep_subscriptions: Vec<String>,
    /// Directories may stay.
    pub keep_directories: bool,
    /// Host interfaces and KCS must be closed.
    pub close_in_band: bool,
    /// An unreadable part does not hold the node back.
    pub allow_unknown: bool,
    /// The machine starts again before the last reading, so a change of its firmware may still wait for that start.
    pub starts_again: bool,
}

/// A reading judged by the site's rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Things that must be removed.
    pub foreign: Vec<Item>,
    /// Accounts that stay because the site names them. Their passwords may have been changed in band.
    pub kept: Vec<Item>,
    /// Parts that may hold foreign things, with the reason of the doubt.
    pub unknown: Vec<Unknown>,
}

/// A part that cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// The part in doubt.
    pub part: Part,
    /// The reason, for people.
    pub why: String,
    /// Another reading may help.
    pub may_pass: bool,
}

/// Judges a reading by the site's rules.
#[must_use]
pub fn judge(reading: &BmcReading, rules: &BmcRules) -> Verdict {
    let mut verdict = Verdict::default();
    for (part, listed) in reading {
        if part.is_in_band() && !rules.close_in_band {
            continue;
        }
        match listed {
            Listed::NotOffered if part.is_absent_where_not_offered() => {}
            Listed::NotOffered => verdict.unknown.push(Unknown {
                part: *part,
                why: "the BMC does not show them".into(),
                may_pass: false,
            }),
            Listed::Unread(why) => verdict.unknown.push(Unknown {
                part: *part,
                why: why.clone(),
                may_pass: true,
            }),
            Listed::Whole(items) if *part == Part::Accounts => judge_accounts(items, rules, &mut verdict),
            Listed::Whole(items) => {
                let foreign = items.iter().filter(|item| item.is_open && !is_kept(item, rules));
                verdict.foreign.extend(foreign.cloned());
            }
        }
    }
    verdict
}

/// An account is foreign unless it is the control plane's, named by the site, or disabled. Where the control plane's own
/// account is ambiguous, no account is foreign and the part is unknown: removing the wrong account would lock the control
/// plane out.
fn judge_accounts(items: &[Item], rules: &BmcRules, verdict: &mut Verdict) {
    let named = |name: &str| items.iter().filter(|item| item.name == name).count();
    let mut unknown = |why: String| {
        verdict.unknown.push(Unknown {
            part: Part::Accounts,
            why,
            may_pass: false,
        });
    };
    // Some BMCs report names in another letter case than they accept.
    let own: Vec<&Item> = match named(&rules.own) {
        0 => {
            let is_own = |item: &&Item| item.name.eq_ignore_ascii_case(&rules.own);
            items.iter().filter(is_own).collect()
        }
        _ => items.iter().filter(|item| item.name == rules.own).collect(),
    };
    let [own] = own.as_slice() else {
        let count = own.len();
        return unknown(match count {
            0 => format!("Rackwright's own account {:?} is not in the list", rules.own),
            _ => format!(
                "{count} accounts have the name {:?} of Rackwright's own account",
                rules.own
            ),
        });
    };
    if let Some(name) = rules.keep_accounts.iter().find(|name| named(name) > 1) {
        return unknown(format!(
            "{} accounts have the name {name:?}, which the settings keep",
            named(name)
        ));
    }
    for item in items.iter().filter(|item| item.is_open && item.path != own.path) {
        if rules.keep_accounts.contains(&item.name) {
            verdict.kept.push(item.clone());
        } else {
            verdict.foreign.push(item.clone());
        }
    }
}

fn is_kept(item: &Item, rules: &BmcRules) -> bool {
    match item.part {
        Part::Directories => rules.keep_directories,
        Part::Subscriptions => rules
            .keep_subscriptions
            .iter()
            .any(|kept| fits_beginning(kept, &item.name)),
        Part::Sessions => item.user.eq_ignore_ascii_case(&rules.own) || rules.keep_accounts.contains(&item.user),
        _ => false,
    }
}
