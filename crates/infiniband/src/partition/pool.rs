//! Keys for partitions. A key has one owner at a time. It is not given again until every port that had it has been read
//! without it.

use std::collections::{BTreeMap, BTreeSet};

use super::{PKey, Tables};
use crate::guid::Guid;

/// Numbers the readings of tables. A reading that began before the release of a key proves nothing about the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ReadingNumber(pub u64);

/// The state of a key in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyState {
    /// An owner holds the key.
    Held {
        owner: String,
        /// Ports that may have the key in their tables.
        ports: BTreeSet<Guid>,
    },
    /// The key is released, but these ports have not been read without it since.
    Draining {
        /// The last owner.
        owner: String,
        /// Ports that may still have the key.
        ports: BTreeSet<Guid>,
        /// Only readings with a higher number count.
        released_at: ReadingNumber,
    },
}

/// A key in use with ports that are not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherKey {
    /// An owner holds the key.
    Held,
    /// The key is released.
    Draining {
        /// Number of ports that may still have the key.
        ports: usize,
    },
}

/// Why a key cannot be given or released.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The first key is above the last, or the range includes the default partition's key.
    #[error("{first} to {last} is not a range of keys: it must lie within 0x0001 to 0x7ffe")]
    BadRange {
        /// The first key.
        first: PKey,
        /// The last key.
        last: PKey,
    },
    /// No key is free.
    #[error("all {keys} keys are taken: {held} held, {draining} released but still in the tables of {ports} ports")]
    Exhausted {
        /// Number of keys in the range.
        keys: usize,
        /// Number of held keys.
        held: usize,
        /// Number of released keys that are not proven free.
        draining: usize,
        /// Number of ports that have not been read without one of the released keys.
        ports: usize,
    },
    /// The key is free, or another owner holds it.
    #[error("key {key} is not held by {owner}")]
    NotHeld {
        key: PKey,
        /// The requesting owner.
        owner: String,
    },
}

/// The keys of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPool {
    first: PKey,
    last: PKey,
    /// The key given most recently. The search continues after it, so that a released key rests as long as possible.
    given: Option<PKey>,
    keys: BTreeMap<PKey, KeyState>,
    /// Keys that are not free either. Nothing here changes them.
    others: BTreeMap<PKey, OtherKey>,
}

impl KeyPool {
    /// A pool of all keys from the first to the last, all free.
    ///
    /// # Errors
    /// The range is empty or includes the default partition.
    pub fn new(first: PKey, last: PKey) -> Result<Self, PoolError> {
        if first > last || last == PKey::DEFAULT {
            return Err(PoolError::BadRange { first, last });
        }
        Ok(Self {
            first,
            last,
            given: None,
            keys: BTreeMap::new(),
            others: BTreeMap::new(),
        })
    }

    /// A pool in a stored state. A change of some keys needs only these as `keys`; `others` are the rest of the keys in use.
    ///
    /// # Errors
    /// The range is empty or includes the default partition.
    pub fn restore(
        (first, last): (PKey, PKey),
        given: Option<PKey>,
        keys: BTreeMap<PKey, KeyState>,
        others: BTreeMap<PKey, OtherKey>,
    ) -> Result<Self, PoolError> {
        Ok(Self {
            given,
            keys,
            others,
            ..Self::new(first, last)?
        })
    }

    /// The key given most recently.
    pub fn given(&self) -> Option<PKey> {
        self.given
    }

    /// Whether the key is in the range. The pool never changes other keys.
    pub fn covers(&self, key: PKey) -> bool {
        (self.first..=self.last).contains(&key)
    }

    /// The loaded keys that are not free.
    pub fn taken(&self) -> &BTreeMap<PKey, KeyState> {
        &self.keys
    }

    /// Gives a key to an owner for these ports. An owner that already holds a key gets the same key, and the ports are
    /// added.
    ///
    /// # Errors
    /// No key is free.
    pub fn allocate(&mut self, owner: &str, ports: &BTreeSet<Guid>) -> Result<PKey, PoolError> {
        for (key, state) in &mut self.keys {
            if let KeyState::Held {
                owner: holder,
                ports: had,
            } = state
                && holder == owner
            {
                had.extend(ports);
                return Ok(*key);
            }
        }
        let start = self.given.map_or(self.first.number(), |key| key.number() + 1);
        let (first, last) = (self.first.number(), self.last.number());
        let key = (start..=last)
            .chain(first..=last)
            .filter_map(PKey::new)
            .find(|key| self.covers(*key) && !self.keys.contains_key(key) && !self.others.contains_key(key))
            .ok_or_else(|| self.exhausted())?;
        let (owner, ports) = (owner.to_owned(), ports.clone());
        self.keys.insert(key, KeyState::Held { owner, ports });
        self.given = Some(key);
        Ok(key)
    }

    fn exhausted(&self) -> PoolError {
        let loaded = self.keys.values().map(|state| match state {
            KeyState::Held { .. } => OtherKey::Held,
            KeyState::Draining { ports, .. } => OtherKey::Draining { ports: ports.len() },
        });
        let (mut held, mut draining, mut left) = (0, 0, 0);
        for key in loaded.chain(self.others.values().copied()) {
            match key {
                OtherKey::Held => held += 1,
                OtherKey::Draining { ports } => {
                    draining += 1;
                    left += ports;
                }
            }
        }
        PoolError::Exhausted {
            keys: usize::from(self.last.number() - self.first.number()) + 1,
            held,
            draining,
            ports: left,
        }
    }

    /// Records that an owner's key will be in the tables of more ports. Call this before the change of the subnet
    /// manager's file.
    ///
    /// # Errors
    /// The owner does not hold the key.
    pub fn add_ports(&mut self, key: PKey, owner: &str, more: &BTreeSet<Guid>) -> Result<(), PoolError> {
        match self.keys.get_mut(&key) {
            Some(KeyState::Held { owner: holder, ports }) if holder == owner => {
                ports.extend(more);
                Ok(())
            }
            _ => Err(self.not_held(key, owner)),
        }
    }

    /// Releases a key. The key becomes free once every port that had it has been read without it in readings with a
    /// number above `now`. `now` is the number of the last reading that has begun.
    ///
    /// # Errors
    /// The owner does not hold the key. Releasing a key twice is not an error.
    pub fn release(&mut self, key: PKey, owner: &str, now: ReadingNumber) -> Result<(), PoolError> {
        let state = match self.keys.get(&key) {
            Some(KeyState::Held { owner: holder, ports }) if holder == owner => KeyState::Draining {
                owner: owner.to_owned(),
                ports: ports.clone(),
                released_at: now,
            },
            Some(KeyState::Draining { owner: holder, .. }) if holder == owner => return Ok(()),
            _ => return Err(self.not_held(key, owner)),
        };
        self.keys.insert(key, state);
        self.free_drained();
        Ok(())
    }

    fn not_held(&self, key: PKey, owner: &str) -> PoolError {
        PoolError::NotHeld {
            key,
            owner: owner.to_owned(),
        }
    }

    /// Processes tables that were read from the ports themselves. Returns the keys that became free.
    ///
    /// An unread port proves nothing. A port with an unexpected key must also be read without it.
    pub fn observe(&mut self, number: ReadingNumber, tables: &Tables) -> Vec<PKey> {
        let mut has: BTreeMap<PKey, BTreeSet<Guid>> = BTreeMap::new();
        for (port, table) in &tables.read {
            for (key, _) in table.iter().filter_map(|entry| PKey::of_entry(*entry)) {
                has.entry(key).or_default().insert(*port);
            }
        }
        let nobody = BTreeSet::new();
        for (key, state) in &mut self.keys {
            let holders = has.get(key).unwrap_or(&nobody);
            match state {
                KeyState::Held { ports, .. } => ports.extend(holders),
                KeyState::Draining { ports, released_at, .. } if number > *released_at => {
                    ports.retain(|port| holders.contains(port) || !tables.read.contains_key(port));
                    ports.extend(holders);
                }
                KeyState::Draining { ports, .. } => ports.extend(holders),
            }
        }
        self.free_drained()
    }

    /// Removes a port from all states, because its hardware is gone: the node is scrapped or its adapter is replaced.
    /// Returns the keys that became free.
    pub fn scrap(&mut self, port: Guid) -> Vec<PKey> {
        for state in self.keys.values_mut() {
            match state {
                KeyState::Held { ports, .. } | KeyState::Draining { ports, .. } => ports.remove(&port),
            };
        }
        self.free_drained()
    }

    fn free_drained(&mut self) -> Vec<PKey> {
        let drained = |state: &KeyState| matches!(state, KeyState::Draining { ports, .. } if ports.is_empty());
        let free: Vec<PKey> = self
            .keys
            .iter()
            .filter(|(_, state)| drained(state))
            .map(|(key, _)| *key)
            .collect();
        self.keys.retain(|_, state| !drained(state));
        free
    }
}
