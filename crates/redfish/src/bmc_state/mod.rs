//! What somebody with root on the machine can leave on its BMC in band, and removing it.
//!
//! The reading is strict, other than an inventory: a list of which one entry cannot be read proves nothing, so its part counts
//! as unread. Where the BMC can expand collections, each costs one request.

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
    /// Directories whose accounts may log in: LDAP and the like.
    Directories,
    /// SSH keys and certificates of our own account.
    Keys,
    /// Event subscriptions.
    Subscriptions,
    /// Open sessions.
    Sessions,
    /// Media in virtual drives.
    Media,
    /// The boot override.
    BootOverride,
    /// Redfish host interfaces.
    HostInterfaces,
    /// KCS: IPMI from the machine.
    Kcs,
}

/// How the reading of a part ended.
#[derive(Debug, Clone, PartialEq)]
pub enum StateListed {
    /// Everything in the part.
    Whole(Vec<StateItem>),
    /// The BMC has no such part: it links none, or answers 404.
    NotOffered,
    /// Why it could not be read.
    Unread(String),
}

/// One thing in a part.
#[derive(Debug, Clone, PartialEq)]
pub struct StateItem {
    /// The part.
    pub part: StatePart,
    /// User name, destination, or id.
    pub name: String,
    /// More about it, without secrets.
    pub detail: String,
    /// The resource.
    pub path: String,
    /// The user of a session.
    pub user: String,
    /// Usable now.
    pub is_open: bool,
    remedy: Remedy,
}

/// How a thing is removed.
#[derive(Debug, Clone, PartialEq)]
enum Remedy {
    /// An account, in the vendor's way.
    Account,
    /// DELETE of the resource.
    Delete,
    /// PATCH of the resource.
    Write(Value),
    /// Ejecting the medium.
    Eject,
    /// Clearing the boot override.
    ClearBoot,
    /// No way is known.
    None,
}

/// One reading of a BMC.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BmcState {
    /// Each part that was asked for.
    pub parts: Vec<(StatePart, StateListed)>,
    /// The persistent boot order, as the BMC writes it.
    pub boot_order: Vec<String>,
    /// What decides what the machine starts, where that was asked for.
    pub uefi: Option<UefiState>,
}

/// What is to be read.
#[derive(Debug, Clone, Copy)]
pub struct StateScope<'a> {
    /// The user name of our own account: keys are read of this one only.
    pub own: &'a str,
    /// Host interfaces and KCS too.
    pub in_band: bool,
    /// Boot options and Secure Boot too.
    pub uefi: bool,
}

/// A way to remove an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountRemoval {
    /// DELETE.
    Delete,
    /// An empty user name, where accounts are fixed slots.
    Blank,
    /// `Enabled` false, where accounts stay for ever.
    Disable,
}

/// Where KCS is opened and closed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InBandSwitch {
    /// The resource below the manager; empty for the manager itself.
    pub resource: String,
    /// Names that lead to the property.
    pub property: Vec<String>,
    /// Values at which root on the machine cannot administer the BMC. The first one of the type that the BMC uses is written.
    pub closed: Vec<Value>,
}
