//! Keys for partitions: each given to one owner at a time, and to nobody again before every port that had it has been
//! read without it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{PKey, Tables};
use crate::fabric::guid::Guid;

/// Counts readings of tables, so that one begun before a key was released proves nothing about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct ReadingNumber(pub u64);

/// Where a key is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyState {
    /// Somebody's.
    Held {
        /// Whose.
        owner: String,
        /// Ports that have, or may have, the key in their tables.
        ports: BTreeSet<Guid>,
    },
    /// Released; these ports have not been read without it since.
    Draining {
        /// Whose it was.
        owner: String,
        /// Ports that still have, or may have, the key.
        ports: BTreeSet<Guid>,
        /// Readings with a higher number count.
        released_at: ReadingNumber,
    },
}

/// Why a key cannot be given or released.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// First above last, or the default partition's key among them.
    #[error("no range of keys: {first} to {last}; it must lie within 0x0001 to 0x7ffe")]
    BadRange {
        /// First.
        first: PKey,
        /// Last.
        last: PKey,
    },
    /// None is free.
    #[error("all {keys} keys are taken: {held} held, {draining} released but still in the tables of {ports} ports")]
    Exhausted {
        /// How many the range has.
        keys: usize,
        /// Held by somebody.
        held: usize,
        /// Released, not proven.
        draining: usize,
        /// Ports that have not been read without one of those.
        ports: usize,
    },
    /// Nobody has it, or somebody else.
    #[error("{key} is not {owner}'s")]
    NotHeld {
        /// The key.
        key: PKey,
        /// Who asked.
        owner: String,
    },
}

/// The keys of a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPool {
    first: PKey,
    last: PKey,
    /// Given most recently: the search goes on behind it, so that a key rests as long as can be.
    given: Option<PKey>,
    keys: BTreeMap<PKey, KeyState>,
}

impl KeyPool {
    /// All keys from the first to the last, none taken.
    ///
    /// # Errors
    /// That is no range, or the default partition is in it.
    pub fn new(first: PKey, last: PKey) -> Result<Self, PoolError> {
        if first > last || last == PKey::DEFAULT {
            return Err(PoolError::BadRange { first, last });
        }
        Ok(Self {
            first,
            last,
            given: None,
            keys: BTreeMap::new(),
        })
    }

    /// Whether the range has this key. Keys of others are never touched.
    pub fn covers(&self, key: PKey) -> bool {
        (self.first..=self.last).contains(&key)
    }

    /// Keys that are not free.
    pub fn taken(&self) -> &BTreeMap<PKey, KeyState> {
        &self.keys
    }

    /// Gives a key to an owner, for these ports. An owner that has one gets it again, with these ports beside its own.
    ///
    /// # Errors
    /// None is free.
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
            .find(|key| self.covers(*key) && !self.keys.contains_key(key))
            .ok_or_else(|| self.exhausted())?;
        let (owner, ports) = (owner.to_owned(), ports.clone());
        self.keys.insert(key, KeyState::Held { owner, ports });
        self.given = Some(key);
        Ok(key)
    }

    fn exhausted(&self) -> PoolError {
        let draining = self
            .keys
            .values()
            .filter(|state| matches!(state, KeyState::Draining { .. }));
        let ports = draining.clone().map(|state| match state {
            KeyState::Draining { ports, .. } | KeyState::Held { ports, .. } => ports.len(),
        });
        let draining_count = draining.clone().count();
        PoolError::Exhausted {
            keys: usize::from(self.last.number() - self.first.number()) + 1,
            held: self.keys.len() - draining_count,
            draining: draining_count,
            ports: ports.sum(),
        }
    }

    /// Notes that an owner's key is to go into the tables of more ports. Before the subnet manager is told, not after.
    ///
    /// # Errors
    /// The key is not the owner's.
    pub fn add_ports(&mut self, key: PKey, owner: &str, more: &BTreeSet<Guid>) -> Result<(), PoolError> {
        match self.keys.get_mut(&key) {
            Some(KeyState::Held { owner: holder, ports }) if holder == owner => {
                ports.extend(more);
                Ok(())
            }
            _ => Err(self.not_held(key, owner)),
        }
    }

    /// Takes a key back. It is free once every port that had it has been read without it in readings with a higher
    /// number than `now`, which is that of the last reading that has begun.
    ///
    /// # Errors
    /// The key is not the owner's. Releasing it twice is none.
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

    /// Takes note of tables that were read from the ports themselves. Answers with the keys that are free thereby.
    ///
    /// A port that could not be read proves nothing; one that has a key which nobody thought it had is waited for too.
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

    /// Takes a port out of all waiting, because the hardware is gone for good: scrapped, or its adapter replaced.
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
