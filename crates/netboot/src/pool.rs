//! Addresses for machines that are not enrolled, for implementations of [`crate::BootDirectory`].

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::config::Pool;
use crate::mac::Mac;

/// The leases of one pool. They exist in memory only: after a restart a machine gets the same address again if it is still
/// free, because the search starts at a hash of the MAC address.
#[derive(Debug)]
pub struct Leases {
    pool: Pool,
    lease: Duration,
    by_address: HashMap<Ipv4Addr, (Mac, Instant)>,
    by_mac: HashMap<Mac, Ipv4Addr>,
}

impl Leases {
    /// Creates leases of `lease_s` seconds from `pool`.
    pub fn new(pool: Pool, lease_s: u32) -> Self {
        let lease = Duration::from_secs(lease_s.into());
        Self {
            pool,
            lease,
            by_address: HashMap::new(),
            by_mac: HashMap::new(),
        }
    }

    /// Returns the address for `mac` and extends its lease: the current address, or a free or expired one. `None` if all
    /// addresses are leased.
    pub fn lease(&mut self, mac: Mac, now: Instant) -> Option<Ipv4Addr> {
        let address = match self.by_mac.get(&mac) {
            Some(address) => *address,
            None => self.free_address(mac, now)?,
        };
        if let Some((before, _)) = self.by_address.insert(address, (mac, now + self.lease))
            && before != mac
        {
            self.by_mac.remove(&before);
        }
        self.by_mac.insert(mac, address);
        Some(address)
    }

    /// Blocks an address for one lease, after a machine found it in use (DHCPDECLINE).
    pub fn decline(&mut self, mac: Mac, now: Instant) {
        if let Some(address) = self.by_mac.remove(&mac) {
            // Leased to the null address, which no machine has.
            self.by_address.insert(address, (Mac([0; 6]), now + self.lease));
        }
    }

    fn free_address(&self, mac: Mac, now: Instant) -> Option<Ipv4Addr> {
        let first = u32::from(self.pool.first);
        let size = u64::from(u32::from(self.pool.last).checked_sub(first)?) + 1;
        let mut hasher = DefaultHasher::new();
        mac.hash(&mut hasher);
        let start = hasher.finish() % size;
        (0..size)
            .map(|i| Ipv4Addr::from(first + u32::try_from((start + i) % size).unwrap_or(0)))
            .find(|address| self.by_address.get(address).is_none_or(|(_, until)| *until <= now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(n: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, n])
    }

    #[test]
    fn each_client_gets_an_address_until_none_is_left_and_expired_ones_return() {
        let pool = Pool {
            first: Ipv4Addr::new(10, 0, 0, 1),
            last: Ipv4Addr::new(10, 0, 0, 3),
        };
        let mut leases = Leases::new(pool, 60);
        let now = Instant::now();
        let given: Vec<_> = (1..=3).map(|n| leases.lease(mac(n), now).unwrap()).collect();
        let distinct: std::collections::BTreeSet<_> = given.iter().collect();
        assert_eq!(distinct.len(), 3);
        assert_eq!(leases.lease(mac(4), now), None);
        assert_eq!(leases.lease(mac(2), now), Some(given[1]));
        let later = now + Duration::from_secs(60);
        let fourth = leases.lease(mac(4), later).unwrap();
        assert!(given.contains(&fourth));
        leases.decline(mac(4), later);
        assert_ne!(leases.lease(mac(4), later), Some(fourth));
    }
}
