//! The MAC addresses behind IP addresses, from this server's answers or from the kernel.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;

use crate::mac::Mac;

const CAPACITY: usize = 65_536;

/// The most recently acknowledged addresses. Serves the trace; not a lease database.
#[derive(Debug, Default)]
pub(crate) struct AcknowledgedLeases(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    macs: HashMap<Ipv4Addr, Mac>,
    order: VecDeque<Ipv4Addr>,
}

impl AcknowledgedLeases {
    pub(crate) fn note(&self, address: Ipv4Addr, mac: Mac) {
        let Ok(mut inner) = self.0.lock() else { return };
        if inner.macs.insert(address, mac).is_none() {
            inner.order.push_back(address);
        }
        if inner.order.len() > CAPACITY
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.macs.remove(&oldest);
        }
    }

    /// The addresses in the order of their first acknowledgement.
    pub(crate) fn addresses(&self) -> Vec<Ipv4Addr> {
        let inner = self.0.lock();
        inner
            .map(|inner| inner.order.iter().copied().collect())
            .unwrap_or_default()
    }

    /// The MAC address behind `remote`: from this server's answers, or from the kernel's neighbour table for the local
    /// link.
    pub(crate) fn mac_of(&self, remote: IpAddr) -> Option<Mac> {
        let IpAddr::V4(address) = remote else { return None };
        let acknowledged = self.0.lock().ok().and_then(|inner| inner.macs.get(&address).copied());
        acknowledged.or_else(|| neighbour(&std::fs::read_to_string("/proc/net/arp").ok()?, address))
    }
}

/// Looks up an address in the text of `/proc/net/arp`. Incomplete entries (flags 0x0) do not count.
fn neighbour(table: &str, address: Ipv4Addr) -> Option<Mac> {
    let row = table
        .lines()
        .skip(1)
        .find(|row| row.split_whitespace().next() == Some(address.to_string().as_str()))?;
    let mut fields = row.split_whitespace().skip(2);
    if fields.next()? == "0x0" {
        return None;
    }
    fields.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_neighbour_table_is_read() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     10.77.0.10       0x1         0x2         52:54:00:77:00:0a     *        br0\n\
                     10.77.0.11       0x1         0x0         00:00:00:00:00:00     *        br0\n";
        assert_eq!(
            neighbour(table, Ipv4Addr::new(10, 77, 0, 10)),
            Some(Mac([0x52, 0x54, 0, 0x77, 0, 10]))
        );
        assert_eq!(neighbour(table, Ipv4Addr::new(10, 77, 0, 11)), None);
        assert_eq!(neighbour(table, Ipv4Addr::new(10, 77, 0, 1)), None);
    }

    #[test]
    fn the_last_acknowledged_owner_counts() {
        let seen = AcknowledgedLeases::default();
        let address = Ipv4Addr::new(192, 0, 2, 1);
        seen.note(address, Mac([1; 6]));
        seen.note(address, Mac([2; 6]));
        assert_eq!(seen.mac_of(address.into()), Some(Mac([2; 6])));
        assert_eq!(seen.addresses(), [address]);
    }
}
