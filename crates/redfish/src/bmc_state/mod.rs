//! Configuration that root on the machine can leave on its BMC in band, and its removal.
//!
//! Unlike an inventory, this reading is strict: a list with an unreadable entry proves nothing, so its part counts as
//! unread. Where the BMC can expand collections, each collection costs one request.

mod items;
mod read;
mod remove;
mod uefi;

use serde::Deserialize;
use serde_json::Value;

pub use uefi::{Shown, UefiBootOption, UefiKey, UefiKeys, UefiSecureBoot, UefiState};

/// One part of a BMC's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatePart {
    /// Local accounts.
    Accounts,
    /// Directories with accounts that may log in, such as LDAP.
    Directories,
    /// SSH keys and certificates of our own account.
    Keys,
    /// Event subscriptions.
    Subscriptions,
    /// Open sessions.
    Sessions,
    /// Media in virtual drives.
    Media,
    BootOverride,
    /// Redfish host interfaces.
    HostInterfaces,
    /// KCS: IPMI from the machine to the BMC.
    Kcs,
}

/// The result of reading a part.
#[derive(Debug, Clone, PartialEq)]
pub enum StateListed {
    /// Everything in the part.
    Whole(Vec<StateItem>),
    /// The BMC has no such part: there is no link, or the link answers 404.
    NotOffered,
    /// The reason why it could not be read.
    Unread(String),
}

/// One item of a part.
#[derive(Debug, Clone, PartialEq)]
pub struct StateItem {
    pub part: StatePart,
    /// User name, destination or id.
    pub name: String,
    /// Further description, without secrets.
    pub detail: String,
    /// The resource.
    pub path: String,
    /// The user of a session; empty for other items.
    pub user: String,
    /// Usable now.
    pub is_open: bool,
    remedy: Remedy,
}

/// How an item is removed.
#[derive(Debug, Clone, PartialEq)]
enum Remedy {
    /// Removal of an account, by the vendor's method.
    Account,
    /// DELETE of the resource.
    Delete,
    /// PATCH of the resource.
    Write(Value),
    /// Ejecting the medium.
    Eject,
    /// Clearing the boot override.
    ClearBoot,
    /// No method is known.
    None,
}

/// One reading of a BMC.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BmcState {
    /// Each requested part.
    pub parts: Vec<(StatePart, StateListed)>,
    /// The persistent boot order, as the BMC writes it.
    pub boot_order: Vec<String>,
    /// Settings that decide what the machine starts, if they were requested.
    pub uefi: Option<UefiState>,
}

/// The scope of a reading.
#[derive(Debug, Clone, Copy)]
pub struct StateScope<'a> {
    /// The user name of our own account: only its keys are read.
    pub own: &'a str,
    /// Whether to read host interfaces and KCS.
    pub in_band: bool,
    /// Whether to read boot options and Secure Boot.
    pub uefi: bool,
}

/// A method to remove an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountRemoval {
    /// An HTTP `DELETE` of the account.
    Delete,
    /// An empty user name, where accounts are fixed slots.
    Blank,
    /// `Enabled` false, where accounts cannot be deleted.
    Disable,
}

/// The property that opens and closes KCS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InBandSwitch {
    /// The resource below the manager; empty for the manager itself.
    pub resource: String,
    /// Path of names to the property.
    pub property: Vec<String>,
    /// Values with which root on the machine cannot administer the BMC. The first value of the BMC's own type is written.
    pub closed: Vec<Value>,
}
