//! The account service of a BMC, its accounts and roles.

use rackwright_redfish_wire::address::last_segment;

use super::view;

view!(
    /// The account service (`#AccountService`).
    AccountService
);

view!(
    /// One account (`#ManagerAccount`).
    Account
);

view!(
    /// One role (`#Role`).
    Role
);

impl AccountService {
    /// Link to the accounts.
    pub fn accounts(&self) -> Option<String> {
        self.0.link(&["Accounts"])
    }

    /// Link to the roles.
    pub fn roles(&self) -> Option<String> {
        self.0.link(&["Roles"])
    }

    /// The BMC's rules for passwords and for locking an account.
    pub fn policy(&self) -> AccountPolicy {
        // Some BMCs use 0 for "no limit".
        let bound = |name: &str| self.0.whole(&[name]).filter(|length| (1..=1024).contains(length));
        AccountPolicy {
            min_length: bound("MinPasswordLength"),
            max_length: bound("MaxPasswordLength"),
            lockout_threshold: self.0.whole(&["AccountLockoutThreshold"]),
            lockout_s: self.0.whole(&["AccountLockoutDuration"]),
            counter_reset_s: self.0.whole(&["AccountLockoutCounterResetAfter"]),
            account_types: self.0.texts(&["SupportedAccountTypes"]),
        }
    }
}

/// A BMC's rules for passwords and for locking an account (DSP8010, `AccountService`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountPolicy {
    /// Shortest password, in characters.
    pub min_length: Option<u64>,
    /// Longest password, in characters.
    pub max_length: Option<u64>,
    /// Refused logins that lock an account; 0: accounts are never locked.
    pub lockout_threshold: Option<u64>,
    /// Duration of the lock, in seconds; 0: until an administrator unlocks the account.
    pub lockout_s: Option<u64>,
    /// Time after the last refused login until the counter is reset, in seconds.
    pub counter_reset_s: Option<u64>,
    /// Possible account types; empty if the BMC does not report them.
    pub account_types: Vec<String>,
}

impl Account {
    /// `UserName`; none in an empty slot.
    pub fn user(&self) -> Option<String> {
        self.0.text(&["UserName"])
    }

    /// The id of the account's role, from the property or else from the link.
    pub fn role(&self) -> Option<String> {
        let linked = || {
            let link = self.0.link(&["Links", "Role"])?;
            Some(last_segment(&link).to_owned())
        };
        self.0.text(&["RoleId"]).or_else(linked)
    }

    /// `Enabled`; true if the BMC does not report it.
    pub fn is_enabled(&self) -> bool {
        self.0.flag(&["Enabled"]).unwrap_or(true)
    }

    /// `Locked`.
    pub fn is_locked(&self) -> bool {
        self.0.flag(&["Locked"]).unwrap_or(false)
    }

    /// Whether the account may only change its password.
    pub fn must_change(&self) -> bool {
        self.0.flag(&["PasswordChangeRequired"]).unwrap_or(false)
    }

    /// The account's types; empty if the BMC does not report them.
    pub fn types(&self) -> Vec<String> {
        self.0.texts(&["AccountTypes"])
    }

    /// The number of a fixed slot; none if the id is not a number.
    pub fn slot(&self) -> Option<u32> {
        self.0.id().parse().ok()
    }
}

impl Role {
    /// The role's id, by which accounts refer to it.
    pub fn role(&self) -> String {
        self.0.text(&["RoleId"]).unwrap_or_else(|| self.0.id())
    }

    /// The role's privileges, as the standard names them.
    pub fn privileges(&self) -> Vec<String> {
        self.0.texts(&["AssignedPrivileges"])
    }
}
