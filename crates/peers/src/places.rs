//! The limits of connections. An address without a ticket so far and an agent with one are counted apart, so that strangers
//! do not take the places of agents.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits of connections at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlaceLimits {
    /// Connections without a ticket so far: in all, and from one address.
    pub(crate) strangers: (usize, usize),
    /// Connections with a ticket: in all, and of one node.
    pub(crate) agents: (usize, usize),
}

/// Counts connections.
#[derive(Debug)]
pub(crate) struct Places {
    limits: PlaceLimits,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    strangers: Group<IpAddr>,
    agents: Group<String>,
}

#[derive(Debug)]
struct Group<K> {
    all: usize,
    each: HashMap<K, usize>,
}

impl<K> Default for Group<K> {
    fn default() -> Self {
        Self {
            all: 0,
            each: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq> Group<K> {
    fn enter(&mut self, key: K, (most, most_each): (usize, usize)) -> bool {
        let here = self.each.get(&key).copied().unwrap_or(0);
        if self.all >= most || here >= most_each {
            return false;
        }
        self.each.insert(key, here + 1);
        self.all += 1;
        true
    }

    fn leave(&mut self, key: &K) {
        self.all = self.all.saturating_sub(1);
        match self.each.get_mut(key) {
            Some(here) if *here > 1 => *here -= 1,
            _ => _ = self.each.remove(key),
        }
    }
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    holder: Holder,
}

#[derive(Debug, Clone)]
enum Holder {
    Stranger(IpAddr),
    Agent(String),
}

impl Places {
    pub(crate) fn new(limits: PlaceLimits) -> Arc<Self> {
        let counts = Mutex::default();
        Arc::new(Self { limits, counts })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection. `None`: there is none.
    pub(crate) fn stranger(self: &Arc<Self>, from: IpAddr) -> Option<Place> {
        let entered = self.counts().strangers.enter(from, self.limits.strangers);
        entered.then(|| Place {
            places: self.clone(),
            holder: Holder::Stranger(from),
        })
    }

    /// Connections with a ticket.
    pub(crate) fn agents(&self) -> usize {
        self.counts().agents.all
    }
}

impl Place {
    /// The connection showed a ticket of this node: it takes a place among those of agents. `None`: there is none.
    pub(crate) fn known(self, node: &str) -> Option<Self> {
        let (limits, places) = (self.places.limits.agents, self.places.clone());
        let entered = places.counts().agents.enter(node.to_owned(), limits);
        entered.then(|| Self {
            places,
            holder: Holder::Agent(node.to_owned()),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.places.counts();
        match &self.holder {
            Holder::Stranger(from) => counts.strangers.leave(from),
            Holder::Agent(node) => counts.agents.leave(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_by_address_by_node_and_in_all_and_come_free_again() {
        let places = Places::new(PlaceLimits {
            strangers: (3, 2),
            agents: (2, 1),
        });
        let (a, b): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let first = places.stranger(a).unwrap();
        let second = places.stranger(a).unwrap();
        assert!(places.stranger(a).is_none(), "two from one address");
        let third = places.stranger(b).unwrap();
        assert!(places.stranger(b).is_none(), "three in all");
        let first = first.known("gpu-001").unwrap();
        let fourth = places.stranger(a).unwrap();
        assert!(second.known("gpu-001").is_none(), "one of a node");
        let second = third.known("gpu-002").unwrap();
        assert!(fourth.known("gpu-003").is_none(), "two in all");
        assert_eq!(places.agents(), 2);
        drop((first, second));
        assert_eq!(places.agents(), 0);
        let counts = places.counts();
        assert_eq!((counts.strangers.all, counts.strangers.each.len()), (0, 0));
        assert_eq!((counts.agents.all, counts.agents.each.len()), (0, 0));
    }
}
