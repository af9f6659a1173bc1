//! Partitions: who may talk to whom, as the subnet manager is told and as the ports' own tables say.
//!
//! A cluster gets a partition of its own with full membership for its ports and nobody else. In the default partition,
//! which every port needs for management, ports are limited members: limited members do not hear each other. Only the
//! subnet manager's port and named management ports are full members of it.

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
pub use pool::{KeyPool, KeyState, PoolError, ReadingNumber};
pub use table::{Difference, DifferenceKind, PortTable, Tables, compare};

/// The low 15 bits of a P_Key: which partition. Zero is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct PKey(u16);

impl PKey {
    /// The default partition, in which every port is.
    pub const DEFAULT: Self = Self(0x7fff);

    /// The key with this number; none for 0 and for numbers of more than 15 bits.
    pub fn new(number: u16) -> Option<Self> {
        (1..=0x7fff).contains(&number).then_some(Self(number))
    }

    /// The number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// As it stands in a port's table: the top bit says full membership.
    pub fn entry(self, membership: Membership) -> u16 {
        match membership {
            Membership::Full => self.0 | 0x8000,
            Membership::Limited => self.0,
        }
    }

    /// The key and the membership of a table's entry; none for an empty entry.
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

/// What is wrong with a P_Key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no P_Key: 0x0001 to 0x7fff")]
pub struct BadPKey(String);

impl FromStr for PKey {
    type Err = BadPKey;

    /// Reads `0x7fff`; what is written in decimal is refused, because some tools take it for hexadecimal.
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

/// What a port may do in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Membership {
    /// Talk to full members only.
    Limited,
    /// Talk to all members.
    Full,
}

impl Membership {
    /// As the subnet manager's file has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Limited => "limited",
            Self::Full => "full",
        }
    }
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its name, for logs: letters, digits, `-`, `_` and `.`, at most 32, a letter first.
    pub name: String,
    /// Its key.
    pub key: PKey,
    /// Whether it stands first in its ports' tables, where NCCL and others look unless told otherwise.
    pub first: bool,
    /// Port GUIDs of its members.
    pub members: BTreeMap<Guid, Membership>,
}

impl Partition {
    /// A cluster's partition: full membership for its ports, first in their tables.
    pub fn of_cluster(name: impl Into<String>, key: PKey, ports: impl IntoIterator<Item = Guid>) -> Self {
        Self {
            name: name.into(),
            key,
            first: true,
            members: ports.into_iter().map(|port| (port, Membership::Full)).collect(),
        }
    }
}

/// All partitions of a fabric.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Partitions {
    /// Ports that are full members of the default partition, beside the subnet manager's own.
    pub management: BTreeSet<Guid>,
    /// All others, by key.
    pub partitions: BTreeMap<PKey, Partition>,
}

/// Why partitions cannot be told to a subnet manager.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// A name that its file cannot hold.
    #[error("partition {key}: the name {name:?} must be 1 to 32 letters, digits, '-', '_' or '.', a letter first")]
    BadName {
        /// The partition.
        key: PKey,
        /// Its name.
        name: String,
    },
    /// A name that means the default partition.
    #[error("partition {key}: {name:?} is the name of the default partition")]
    DefaultName {
        /// The partition.
        key: PKey,
        /// Its name.
        name: String,
    },
    /// The key of the default partition.
    #[error("partition {name:?}: {} is the key of the default partition", PKey::DEFAULT)]
    DefaultKey {
        /// Its name.
        name: String,
    },
    /// The key under which it is listed is not its own.
    #[error("partition {name:?} is listed under {listed} and has key {key}")]
    OtherKey {
        /// Its name.
        name: String,
        /// Where it is listed.
        listed: PKey,
        /// Its key.
        key: PKey,
    },
    /// Nobody is in it.
    #[error("partition {key} ({name:?}) has no members")]
    Empty {
        /// The partition.
        key: PKey,
        /// Its name.
        name: String,
    },
    /// Two partitions want to be first in one table.
    #[error("port {port} cannot have both {one} and {other} first in its table")]
    TwoFirst {
        /// The port.
        port: Guid,
        /// One partition.
        one: PKey,
        /// The other.
        other: PKey,
    },
}

impl Partitions {
    /// Whether a subnet manager can be told of these.
    ///
    /// # Errors
    /// The first thing that is in the way.
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

    /// The text of OpenSM's `partitions.conf`. Read again by [`parse`] it gives these partitions.
    ///
    /// # Errors
    /// See [`Partitions::check`].
    pub fn render(&self) -> Result<String, PartitionError> {
        self.check()?;
        Ok(conf::render(self))
    }

    /// What a port should have in its table.
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

    /// Keys by port, so that many ports can be asked for.
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
