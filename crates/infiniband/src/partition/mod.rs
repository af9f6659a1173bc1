//! Partitions: which ports may communicate, in the subnet manager's configuration and in the tables of the ports.
//!
//! Each cluster has a partition in which exactly its ports are full members. Every port needs the default partition for
//! management, and is a limited member there: limited members cannot reach each other. Only the subnet manager's port
//! and named management ports are full members of the default partition.

mod conf;
mod health;
mod pool;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::guid::Guid;

pub use conf::{ConfError, MAX_LINE_BYTES, parse};
pub use health::{HealthCheck, HealthItem, HealthState, ManagerOptions, health};
pub use pool::{KeyPool, KeyState, OtherKey, PoolError, ReadingNumber};
pub use table::{Difference, DifferenceKind, PortTable, Tables, compare};

/// The low 15 bits of a P_Key, which identify the partition. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct PKey(u16);

impl PKey {
    /// The default partition. Every port is a member.
    pub const DEFAULT: Self = Self(0x7fff);

    /// The key with this number. `None` for 0 and for numbers above 15 bits.
    pub fn new(number: u16) -> Option<Self> {
        (1..=0x7fff).contains(&number).then_some(Self(number))
    }

    /// The number, 0x0001 to 0x7fff.
    pub fn number(self) -> u16 {
        self.0
    }

    /// The entry in a port's table. The top bit marks full membership.
    pub fn entry(self, membership: Membership) -> u16 {
        match membership {
            Membership::Full => self.0 | 0x8000,
            Membership::Limited => self.0,
        }
    }

    /// The key and the membership of a table entry. `None` for an empty entry.
    pub fn of_entry(entry: u16) -> Option<(Self, Membership)> {
        let membership = if entry & 0x8000 == 0 {
            Membership::Limited
        } else {
            Membership::Full
        };
        Self::new(entry & 0x7fff).map(|key| (key, membership))
    }
}

impl fmt::Display for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}

/// The text is not a P_Key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a P_Key: write 0x0001 to 0x7fff")]
pub struct BadPKey(String);

impl FromStr for PKey {
    type Err = BadPKey;

    /// Parses `0x7fff`. Decimal numbers are refused, because some tools read them as hexadecimal.
    fn from_str(text: &str) -> Result<Self, BadPKey> {
        let digits = text
            .strip_prefix("0x")
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let number = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        number
            .and_then(Self::new)
            .ok_or_else(|| BadPKey(text.chars().take(40).collect()))
    }
}

impl TryFrom<u16> for PKey {
    type Error = BadPKey;

    fn try_from(number: u16) -> Result<Self, BadPKey> {
        Self::new(number).ok_or_else(|| BadPKey(format!("{number:#06x}")))
    }
}

impl From<PKey> for u16 {
    fn from(key: PKey) -> Self {
        key.0
    }
}

/// The membership of a port in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Membership {
    /// May communicate with full members only.
    Limited,
    /// May communicate with all members.
    Full,
}

impl Membership {
    /// The keyword in the subnet manager's file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Limited => "limited",
            Self::Full => "full",
        }
    }
}

/// A partition key, and the ports that are its members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// The name for logs: at most 32 letters, digits, `-`, `_` and `.`, with a letter first.
    pub name: String,
    /// The partition's key.
    pub key: PKey,
    /// Whether the key comes first in the tables of the ports. NCCL and other programs use the first key by default.
    pub first: bool,
    /// The members, by port GUID.
    pub members: BTreeMap<Guid, Membership>,
}

impl Partition {
    /// A cluster's partition. Its ports are full members, and its key comes first in their tables.
    pub fn of_cluster(name: impl Into<String>, key: PKey, ports: impl IntoIterator<Item = Guid>) -> Self {
        Self {
            name: name.into(),
            key,
            first: true,
            members: ports.into_iter().map(|port| (port, Membership::Full)).collect(),
        }
    }
}

/// All partitions of a fabric, or of several fabrics.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Partitions {
    /// Full members of the default partition, in addition to the subnet manager's port.
    pub management: BTreeSet<Guid>,
    /// All other partitions, by key.
    pub partitions: BTreeMap<PKey, Partition>,
    /// With several fabrics: the name of the fabric that a port is cabled to. A port without a name may be in any fabric.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fabric_of: BTreeMap<Guid, Box<str>>,
}

/// Why partitions cannot be written for a subnet manager.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// The file cannot hold this name.
    #[error("partition {key}: the name {name:?} must be 1 to 32 letters, digits, '-', '_' or '.', a letter first")]
    BadName {
        /// The partition.
        key: PKey,
        /// The partition's name.
        name: String,
    },
    /// The name means the default partition.
    #[error("partition {key}: {name:?} is the name of the default partition")]
    DefaultName {
        /// The partition.
        key: PKey,
        /// The partition's name.
        name: String,
    },
    /// The key is that of the default partition.
    #[error("partition {name:?}: {} is the key of the default partition", PKey::DEFAULT)]
    DefaultKey {
        /// The partition's name.
        name: String,
    },
    /// The partition is listed under another key.
    #[error("partition {name:?} is listed under {listed}, but has key {key}")]
    OtherKey {
        /// The partition's name.
        name: String,
        /// The key in the list.
        listed: PKey,
        /// The partition's own key.
        key: PKey,
    },
    /// The partition has no members.
    #[error("partition {key} ({name:?}) has no members")]
    Empty {
        /// The partition.
        key: PKey,
        /// The partition's name.
        name: String,
    },
    /// Two partitions must both come first in one table.
    #[error("port {port} cannot have both {one} and {other} first in its table")]
    TwoFirst {
        port: Guid,
        /// One partition.
        one: PKey,
        /// The other partition.
        other: PKey,
    },
}

impl Partitions {
    /// The ports of all partitions but the default one. A port of several partitions comes several times.
    pub fn members(&self) -> impl Iterator<Item = Guid> {
        self.partitions
            .values()
            .flat_map(|partition| partition.members.keys())
            .copied()
    }

    /// The partitions of one of several fabrics, without the ports that are cabled to another fabric.
    #[must_use]
    pub fn in_fabric(&self, name: &str) -> Self {
        let is_here = |port: &Guid| self.fabric_of.get(port).is_none_or(|fabric| **fabric == *name);
        let mut own = self.clone();
        own.fabric_of = BTreeMap::new();
        own.management.retain(is_here);
        own.partitions.retain(|_, partition| {
            partition.members.retain(|port, _| is_here(port));
            !partition.members.is_empty()
        });
        own
    }

    /// Checks whether a subnet manager can use these partitions.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), PartitionError> {
        let mut first: BTreeMap<Guid, PKey> = BTreeMap::new();
        for (listed, partition) in &self.partitions {
            let (key, name) = (partition.key, partition.name.clone());
            if !conf::is_name(&name) {
                return Err(PartitionError::BadName { key, name });
            }
            if name.eq_ignore_ascii_case("default") {
                return Err(PartitionError::DefaultName { key, name });
            }
            if key == PKey::DEFAULT {
                return Err(PartitionError::DefaultKey { name });
            }
            if key != *listed {
                let listed = *listed;
                return Err(PartitionError::OtherKey { name, listed, key });
            }
            if partition.members.is_empty() {
                return Err(PartitionError::Empty { key, name });
            }
            for port in partition.members.keys().filter(|_| partition.first) {
                if let Some(other) = first.insert(*port, key) {
                    let (port, one) = (*port, key);
                    return Err(PartitionError::TwoFirst { port, one, other });
                }
            }
        }
        Ok(())
    }

    /// The text of OpenSM's `partitions.conf`. [`parse`] reads these partitions from it.
    ///
    /// # Errors
    /// Those of [`Partitions::check`].
    pub fn render(&self) -> Result<String, PartitionError> {
        self.check()?;
        Ok(conf::render(self))
    }

    /// The wanted table of a port.
    pub fn wanted(&self, port: Guid, is_manager: bool) -> BTreeMap<PKey, Membership> {
        let in_default = if is_manager || self.management.contains(&port) {
            Membership::Full
        } else {
            Membership::Limited
        };
        let own = self
            .partitions
            .values()
            .filter_map(|p| Some((p.key, *p.members.get(&port)?)));
        own.chain([(PKey::DEFAULT, in_default)]).collect()
    }

    /// The wanted keys by port, for many lookups.
    pub fn by_port(&self) -> BTreeMap<Guid, BTreeMap<PKey, Membership>> {
        let mut ports: BTreeMap<Guid, BTreeMap<PKey, Membership>> = BTreeMap::new();
        for partition in self.partitions.values() {
            for (port, membership) in &partition.members {
                ports.entry(*port).or_default().insert(partition.key, *membership);
            }
        }
        ports
    }
}
