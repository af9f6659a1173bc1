//! Free addresses of pools. They are read once and then remembered, because thousands of machines ask within the same
//! second, and each full read would cost more with every machine.
//!
//! The database decides. If another replica has given an address that is free here, the next one is tried.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rackwright_ground::{clock, stored};
use rackwright_netboot::Pool;
use rackwright_store::{Store, StoreError};

/// A pool without free addresses is read again after this time: a failed change may have held an address.
const REREAD_AFTER: Duration = Duration::from_secs(10);

/// The known given addresses.
#[derive(Debug, Default)]
pub(super) struct Pools {
    known: Mutex<Option<Known>>,
    /// Held during the read, so that only one of many waiting calls reads.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Known {
    taken: BTreeSet<Ipv4Addr>,
    /// By the first address of a pool: no address below this one is free.
    searched: BTreeMap<Ipv4Addr, u32>,
    read_at: Instant,
}

impl Pools {
    /// Gives a machine the first free address of a pool. `None`: the pool has none.
    ///
    /// # Errors
    /// The database failed, or a given address does not parse: it could be given twice.
    pub(super) async fn give(&self, store: &Store, mac: &str, pool: Pool) -> Result<Option<Ipv4Addr>, StoreError> {
        loop {
            let Some(free) = self.take(pool) else {
                if self.is_fresh() {
                    return Ok(None);
                }
                self.read(store).await?;
                continue;
            };
            let mut tx = store.write().await?;
            match tx.assign_address(mac, &free.to_string(), clock::now()).await {
                Ok(()) => {
                    tx.commit().await?;
                    return Ok(Some(free));
                }
                Err(StoreError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fresh(&self) -> bool {
        self.known()
            .as_ref()
            .is_some_and(|known| known.read_at.elapsed() < REREAD_AFTER)
    }

    async fn read(&self, store: &Store) -> Result<(), StoreError> {
        let _reading = self.reading.lock().await;
        if self.is_fresh() {
            return Ok(());
        }
        let given = store.addresses().await?;
        let given = given.iter();
        let taken = given.map(|(mac, address)| stored::parsed("address of machine", mac, address));
        let taken = taken.collect::<Result<_, _>>()?;
        *self.known() = Some(Known {
            taken,
            searched: BTreeMap::new(),
            read_at: Instant::now(),
        });
        Ok(())
    }

    /// Takes the first free address of a pool.
    fn take(&self, pool: Pool) -> Option<Ipv4Addr> {
        let mut known = self.known();
        let Known { taken, searched, .. } = known.as_mut()?;
        let from = searched.entry(pool.first).or_insert(u32::from(pool.first));
        let mut ahead = (*from..=u32::from(pool.last)).map(Ipv4Addr::from);
        let free = ahead.find(|address| taken.insert(*address))?;
        *from = u32::from(free);
        Some(free)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::task::JoinSet;

    use super::*;

    const MACHINES: usize = 300;

    fn pool(last: [u8; 4]) -> Pool {
        Pool {
            first: [10, 0, 0, 0].into(),
            last: last.into(),
        }
    }

    fn mac(number: usize) -> String {
        format!("02:00:00:00:{:02x}:{:02x}", number / 256, number % 256)
    }

    #[tokio::test]
    async fn machines_that_ask_at_once_get_one_address_each_from_any_replica() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Store::open(&dir.path().join("rackwright.db")).await.expect("it opens");
        let replicas = [Arc::new(Pools::default()), Arc::new(Pools::default())];
        let mut requests = JoinSet::new();
        for number in 0..MACHINES {
            let (replica, store) = (Arc::clone(&replicas[number % 2]), store.clone());
            requests.spawn(async move { replica.give(&store, &mac(number), pool([10, 0, 1, 255])).await });
        }
        let given = requests.join_all().await.into_iter();
        let given: BTreeSet<Ipv4Addr> = given.flat_map(|given| given.expect("the database works")).collect();
        assert_eq!(given.len(), MACHINES);
        let stored = store.addresses().await.expect("they can be read").into_iter();
        let stored: BTreeSet<Ipv4Addr> = stored.filter_map(|(_, address)| address.parse().ok()).collect();
        assert_eq!(stored, given);
        for replica in replicas {
            let more = replica.give(&store, &mac(MACHINES), pool([10, 0, 0, 99])).await;
            assert_eq!(more.expect("the database works"), None, "a pool without a free address");
        }
        // A damaged row might hold any address.
        let mut tx = store.write().await.expect("it can be written");
        tx.assign_address("02:00:00:00:ff:ff", "10.0.1", clock::now())
            .await
            .expect("it is stored");
        tx.commit().await.expect("it is stored");
        let refused = Pools::default().give(&store, &mac(MACHINES), pool([10, 0, 9, 9])).await;
        assert_eq!(
            refused.map_err(|error| error.to_string()),
            Err("address of machine \"02:00:00:00:ff:ff\" cannot be read back".to_owned())
        );
    }
}
