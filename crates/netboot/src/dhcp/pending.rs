//! Limits the DHCP messages in progress, in total and for each hardware address.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::mac::Mac;

/// Messages in progress at once. Further messages are dropped, because clients repeat them.
const MAX_PENDING: usize = 1024;
/// Messages of one hardware address in progress at once. A client waits for an answer before its next message.
const MAX_CLIENT_PENDING: usize = 4;

/// The messages in progress, counted by hardware address.
#[derive(Debug, Default)]
pub(super) struct Pending(Mutex<HashMap<Mac, usize>>);

/// A message in progress. Ends when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    pending: Arc<Pending>,
    mac: Mac,
}

impl Pending {
    /// Admits a message of `mac`. `None` if too many are in progress.
    pub(super) fn admit(self: &Arc<Self>, mac: Mac) -> Option<Permit> {
        let mut by_mac = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = by_mac.get(&mac).copied().unwrap_or(0);
        if own >= MAX_CLIENT_PENDING || by_mac.values().sum::<usize>() >= MAX_PENDING {
            return None;
        }
        by_mac.insert(mac, own + 1);
        Some(Permit {
            pending: self.clone(),
            mac,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut by_mac = self.pending.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = by_mac.get_mut(&self.mac) {
            *own -= 1;
            if *own == 0 {
                by_mac.remove(&self.mac);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(n: usize) -> Mac {
        let n = u16::try_from(n).unwrap().to_be_bytes();
        Mac([2, 0, 0, 0, n[0], n[1]])
    }

    #[test]
    fn one_client_takes_few_places_and_all_together_take_a_limited_number() {
        let pending = Arc::new(Pending::default());
        let mut own: Vec<_> = (0..MAX_CLIENT_PENDING)
            .map(|_| pending.admit(mac(0)).unwrap())
            .collect();
        assert!(pending.admit(mac(0)).is_none());
        let others: Vec<_> = (1..).map_while(|n| pending.admit(mac(n))).collect();
        assert_eq!(others.len(), MAX_PENDING - MAX_CLIENT_PENDING);
        // A message that ends frees its place.
        own.pop();
        assert!(pending.admit(mac(1)).is_some());
        drop((own, others));
        assert!(pending.0.lock().unwrap().is_empty(), "ended clients are forgotten");
    }
}
