//! Which addresses of a pool are free.
//!
//! The database decides, because replicas share it; this is what one replica remembers of it, so that a hall that boots at once
//! does not read all addresses for each machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rackwright_lifecycle::Timestamp;
use rackwright_store::{Store, StoreError};

/// Pools by their first and last address.
#[derive(Debug, Default)]
pub struct Addresses {
    pools: Mutex<BTreeMap<(Ipv4Addr, Ipv4Addr), Pool>>,
}

/// What is known of a pool. What is marked as taken may be free by now, not the other way round, but for what other
/// replicas gave out: the database refuses that.
#[derive(Debug)]
struct Pool {
    taken: BTreeSet<Ipv4Addr>,
    /// No address before this one is free.
    next: u32,
}

impl Pool {
    fn take(&mut self, last: Ipv4Addr) -> Option<Ipv4Addr> {
        let free = (self.next..=u32::from(last))
            .map(Ipv4Addr::from)
            .find(|a| !self.taken.contains(a))?;
        self.next = u32::from(free);
        self.taken.insert(free);
        Some(free)
    }

    fn put_back(&mut self, address: Ipv4Addr) {
        self.taken.remove(&address);
        self.next = self.next.min(u32::from(address));
    }
}

impl Addresses {
    /// Gives a MAC address the lowest address from `first` to `last` that is free. None: all are taken.
    ///
    /// # Errors
    /// The database failed; nothing was given.
    pub async fn give(
        &self,
        store: &Store,
        mac: &str,
        (first, last): (Ipv4Addr, Ipv4Addr),
        now: Timestamp,
    ) -> Result<Option<Ipv4Addr>, StoreError> {
        let pool = (first, last);
        let mut is_read = false;
        loop {
            let free = self.pools().get_mut(&pool).and_then(|known| known.take(last));
            let Some(free) = free else {
                if is_read {
                    return Ok(None);
                }
                is_read = true;
                self.read(store, pool).await?;
                continue;
            };
            match write(store, mac, free, now).await {
                Ok(()) => return Ok(Some(free)),
                // Another replica has given it.
                Err(StoreError::Exists { .. }) => {}
                Err(error) => {
                    if let Some(known) = self.pools().get_mut(&pool) {
                        known.put_back(free);
                    }
                    return Err(error);
                }
            }
        }
    }

    async fn read(&self, store: &Store, pool: (Ipv4Addr, Ipv4Addr)) -> Result<(), StoreError> {
        let all = store.addresses().await?;
        let of_pool = |address: &Ipv4Addr| (pool.0..=pool.1).contains(address);
        let taken = all
            .iter()
            .filter_map(|(_, address)| address.parse().ok())
            .filter(of_pool);
        let known = Pool {
            taken: taken.collect(),
            next: u32::from(pool.0),
        };
        self.pools().insert(pool, known);
        Ok(())
    }

    fn pools(&self) -> MutexGuard<'_, BTreeMap<(Ipv4Addr, Ipv4Addr), Pool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write(store: &Store, mac: &str, address: Ipv4Addr, now: Timestamp) -> Result<(), StoreError> {
    let mut tx = store.write().await?;
    tx.give_address(mac, &address.to_string(), now).await?;
    tx.commit().await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::task::JoinSet;

    use super::*;
    use crate::{clock, testing};

    const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 10);
    const LAST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 13);

    async fn give(addresses: &Addresses, store: &Store, mac: &str) -> Option<u8> {
        let given = addresses.give(store, mac, (FIRST, LAST), clock::now()).await.unwrap();
        given.map(|address| address.octets()[3])
    }

    #[tokio::test]
    async fn the_lowest_free_one_is_given_until_none_is_left() {
        let store = &testing::core().await.store;
        let ours = Addresses::default();
        let mut tx = store.write().await.unwrap();
        tx.give_address("before", "10.0.0.11", clock::now()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(give(&ours, store, "m1").await, Some(10));
        assert_eq!(give(&ours, store, "m2").await, Some(12));
        assert_eq!(give(&ours, store, "m3").await, Some(13));
        assert_eq!(give(&ours, store, "m4").await, None);
        // A machine that was given another address leaves its own to others.
        let mut tx = store.write().await.unwrap();
        tx.give_address("m2", "10.0.9.9", clock::now()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(give(&ours, store, "m4").await, Some(12));
    }

    #[tokio::test]
    async fn what_another_replica_gave_is_not_given_again() {
        let store = &testing::core().await.store;
        let (ours, theirs) = (Addresses::default(), Addresses::default());
        assert_eq!(give(&ours, store, "m1").await, Some(10));
        assert_eq!(give(&theirs, store, "m2").await, Some(11));
        assert_eq!(give(&ours, store, "m3").await, Some(12));
    }

    #[tokio::test]
    async fn machines_that_ask_at_once_get_one_each() {
        let store = testing::core().await.store.clone();
        let ours = Arc::new(Addresses::default());
        let mut asking = JoinSet::new();
        for n in 0..4 {
            let (store, ours) = (store.clone(), ours.clone());
            asking.spawn(async move { give(&ours, &store, &format!("m{n}")).await });
        }
        let mut given = asking.join_all().await;
        given.sort_unstable();
        assert_eq!(given, [Some(10), Some(11), Some(12), Some(13)]);
    }
}
