//! Brings up the NIC from which the machine booted.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use super::NetError;
use super::dhcp::{self, Lease};
use super::netlink::Netlink;
use crate::cmdline::{Addressing, Mac};
use crate::root::SysRoot;
use crate::text;

/// Time limit for the NIC to appear.
const APPEAR_TIME: Duration = Duration::from_secs(60);
/// Time limit for the NIC's link; some switches and drivers need half a minute.
const LINK_TIME: Duration = Duration::from_secs(60);
/// Time limit for a DHCP lease.
const LEASE_TIME: Duration = Duration::from_secs(120);
/// `ARPHRD_ETHER`.
const ETHERNET: u32 = 1;

/// The network after bring-up.
#[derive(Debug)]
pub struct ActiveNic {
    /// Name of the interface.
    pub nic: String,
    /// Ethernet address of the interface.
    pub mac: Mac,
    /// Address, prefix and gateway of the interface.
    pub addressing: Addressing,
    /// The lease, if the address came from DHCP.
    pub lease: Option<Lease>,
}

/// Waits for the NIC and its link, and sets its address. Without `mac`, uses the first NIC with a link. Without
/// `addressing`, gets an address by DHCP.
///
/// # Errors
/// No NIC or no lease came in time, or the kernel refused a change.
pub fn bring_up(root: &SysRoot, mac: Option<Mac>, addressing: Option<Addressing>) -> Result<ActiveNic, NetError> {
    let listener = Netlink::listen().map_err(NetError::io("netlink"))?;
    let mut netlink = Netlink::open().map_err(NetError::io("netlink"))?;
    let (nic, mac) = wait_for_nic(root, &listener, &mut netlink, mac)?;
    let index = index(root, &nic);
    let (addressing, lease) = match addressing {
        Some(addressing) => (addressing, None),
        None => {
            let lease = dhcp::obtain(&nic, mac, None, Instant::now() + LEASE_TIME)?;
            (lease.addressing, Some(lease))
        }
    };
    let Addressing {
        address,
        prefix,
        gateway,
    } = addressing;
    netlink
        .add_address(index, address, prefix)
        .map_err(NetError::io(format!("setting address {address}/{prefix} on {nic}")))?;
    if let Some(gateway) = gateway {
        netlink
            .set_default_route(index, gateway)
            .map_err(NetError::io(format!("setting the default route via {gateway}")))?;
    }
    Ok(ActiveNic {
        nic,
        mac,
        addressing,
        lease,
    })
}

/// Sets up the wanted NIC (or all NICs) as they appear. Returns the first one with a link, or after the time limit the first
/// one that is up.
fn wait_for_nic(
    root: &SysRoot,
    listener: &Netlink,
    netlink: &mut Netlink,
    wanted: Option<Mac>,
) -> Result<(String, Mac), NetError> {
    let begun = Instant::now();
    let mut set_up_nics: BTreeMap<String, Mac> = BTreeMap::new();
    let mut deadline = begun + APPEAR_TIME;
    loop {
        for (name, mac) in ethernet(root)
            .into_iter()
            .filter(|(_, mac)| wanted.is_none_or(|wanted| wanted == *mac))
        {
            if let Entry::Vacant(entry) = set_up_nics.entry(name) {
                netlink
                    .set_up(index(root, entry.key()))
                    .map_err(NetError::io(format!("setting {} up", entry.key())))?;
                entry.insert(mac);
                deadline = Instant::now() + LINK_TIME;
            }
        }
        let has_link =
            |name: &String| text::number::<u8>(&root.sys.join("class/net").join(name).join("carrier")) == Some(1);
        if let Some((name, mac)) = set_up_nics.iter().find(|(name, _)| has_link(name)) {
            return Ok((name.clone(), *mac));
        }
        let has_event = listener.wait(deadline).map_err(NetError::io("netlink"))?;
        if !has_event && Instant::now() >= deadline {
            break;
        }
    }
    // A NIC that reports no link may work nevertheless.
    set_up_nics.into_iter().next().ok_or_else(|| {
        let present: Vec<String> = ethernet(root)
            .into_iter()
            .map(|(name, mac)| format!("{name} ({mac})"))
            .collect();
        let present = if present.is_empty() {
            "none".to_owned()
        } else {
            present.join(", ")
        };
        let wanted = wanted.map_or_else(|| "of type Ethernet".to_owned(), |mac| format!("with address {mac}"));
        NetError::NoNic {
            wanted,
            waited: begun.elapsed(),
            present,
        }
    })
}

/// Ethernet interfaces with a hardware device: names and MAC addresses.
pub(super) fn ethernet(root: &SysRoot) -> Vec<(String, Mac)> {
    let folder = root.sys.join("class/net");
    let nic = |name: String| {
        let nic = folder.join(&name);
        let is_ethernet = text::number(&nic.join("type")) == Some(ETHERNET) && nic.join("device").exists();
        let mac = text::trimmed(&nic.join("address"))?.parse().ok()?;
        is_ethernet.then_some((name, mac))
    };
    text::names(&folder).into_iter().filter_map(nic).collect()
}

/// The kernel's number of an interface; 0 if the interface does not exist.
pub(super) fn index(root: &SysRoot, name: &str) -> u32 {
    text::number(&root.sys.join("class/net").join(name).join("ifindex")).unwrap_or(0)
}
