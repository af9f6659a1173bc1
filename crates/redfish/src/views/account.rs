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

    /// What it asks of passwords, and when it locks an account.
    pub fn policy(&self) -> AccountPolicy {
        // 0 is how some say that there is no bound.
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

/// What a BMC asks of passwords, and when it locks an account (DSP8010, `AccountService`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountPolicy {
    /// Shortest password, in characters.
    pub min_length: Option<u64>,
    /// Longest password, in characters.
    pub max_length: Option<u64>,
    /// Refused logins that lock an account; 0: none does.
    pub lockout_threshold: Option<u64>,
    /// How long it is locked, in seconds; 0: until somebody unlocks it.
    pub lockout_s: Option<u64>,
    /// When refused logins are forgotten, in seconds after the last.
    pub counter_reset_s: Option<u64>,
    /// What accounts can be for; empty where that is not told.
    pub account_types: Vec<String>,
}

impl Account {
    /// `UserName`; none in an empty slot.
    pub fn user(&self) -> Option<String> {
        self.0.text(&["UserName"])
    }

    /// The id of its role; of its link where there is no property.
    pub fn role(&self) -> Option<String> {
        let linked = || {
            let link = self.0.link(&["Links", "Role"])?;
            Some(crate::address::last_segment(&link).to_owned())
        };
        self.0.text(&["RoleId"]).or_else(linked)
    }

    /// `Enabled`; BMCs that do not tell have it enabled.
    pub fn is_enabled(&self) -> bool {
        self.0.flag(&["Enabled"]).unwrap_or(true)
    }

    /// `Locked`.
    pub fn is_locked(&self) -> bool {
        self.0.flag(&["Locked"]).unwrap_or(false)
    }

    /// Whether nothing but a change of its password is allowed.
    pub fn must_change(&self) -> bool {
        self.0.flag(&["PasswordChangeRequired"]).unwrap_or(false)
    }

    /// What it is for; empty where that is not told.
    pub fn types(&self) -> Vec<String> {
        self.0.texts(&["AccountTypes"])
    }

    /// The number of a fixed slot; none where its id is no number.
    pub fn slot(&self) -> Option<u32> {
        self.0.id().parse().ok()
    }
}

impl Role {
    /// Its id, by which accounts name it.
    pub fn role(&self) -> String {
        self.0.text(&["RoleId"]).unwrap_or_else(|| self.0.id())
    }

    /// What it may do, in the standard's words.
    pub fn privileges(&self) -> Vec<String> {
        self.0.texts(&["AssignedPrivileges"])
    }
}
