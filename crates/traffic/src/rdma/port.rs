//! Ports of adapters, as listed in `/sys/class/infiniband`: addresses and partitions.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Most entries of a table that are read.
const MOST_ENTRIES: usize = 1024;
/// Most entries that are offered.
const MOST_OFFERED: usize = 32;

/// A port of an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Name of the adapter: `mlx5_0`.
    pub device: String,
    /// Port number, from 1.
    pub number: u8,
    folder: PathBuf,
}

/// An address of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gid {
    /// Index in the port's table.
    pub index: u8,
    pub address: Ipv6Addr,
}

/// A partition of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pkey {
    /// Index in the port's table.
    pub index: u16,
    /// P_Key; the highest bit means full membership.
    pub key: u16,
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} port {}", self.device, self.number)
    }
}

fn read(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The numeric names of a folder's entries, in order.
fn numbers(folder: &Path) -> Vec<u16> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries
        .take(MOST_ENTRIES)
        .filter_map(|e| e.file_name().into_string().ok());
    let mut numbers: Vec<u16> = names.filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

impl Port {
    /// The port of a lane: `mlx5_0`, or `mlx5_0:2` for a port other than the first.
    ///
    /// # Errors
    /// There is no such port.
    pub fn of(lane: &str) -> Result<Self, String> {
        Self::below(Path::new("/sys/class/infiniband"), lane)
    }

    fn below(class: &Path, lane: &str) -> Result<Self, String> {
        let none = || format!("there is no adapter {lane}");
        let (device, number) = lane.split_once(':').unwrap_or((lane, "1"));
        let number = number.parse().map_err(|_| none())?;
        let folder = class.join(device).join("ports").join(format!("{number}"));
        if device.contains('/') || device.starts_with('.') || !folder.is_dir() {
            return Err(none());
        }
        Ok(Self {
            device: device.to_owned(),
            number,
            folder,
        })
    }

    /// The RoCE v2 addresses, the best routable first: IPv4, global IPv6, link-local.
    pub fn gids(&self) -> Vec<Gid> {
        let of = |index: u16| {
            let types = self.folder.join("gid_attrs/types").join(index.to_string());
            read(&types).filter(|kind| kind == "RoCE v2")?;
            let address: Ipv6Addr = read(&self.folder.join("gids").join(index.to_string()))?.parse().ok()?;
            let index = u8::try_from(index).ok()?;
            (!address.is_unspecified()).then_some(Gid { index, address })
        };
        let mut gids: Vec<Gid> = numbers(&self.folder.join("gids")).into_iter().filter_map(of).collect();
        gids.sort_by_key(|gid| Family::of(gid.address));
        gids.truncate(MOST_OFFERED);
        gids
    }

    /// The partitions: full memberships first, the default partition last within each kind.
    pub fn pkeys(&self) -> Vec<Pkey> {
        let of = |index: u16| {
            let text = read(&self.folder.join("pkeys").join(index.to_string()))?;
            let key = u16::from_str_radix(text.trim_start_matches("0x"), 16).ok()?;
            (key & 0x7fff != 0).then_some(Pkey { index, key })
        };
        let mut keys: Vec<Pkey> = numbers(&self.folder.join("pkeys")).into_iter().filter_map(of).collect();
        keys.sort_by_key(|pkey| (pkey.key & 0x8000 == 0, pkey.key & 0x7fff == 0x7fff));
        keys.truncate(MOST_OFFERED);
        keys
    }
}

/// The kinds of addresses that can reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// An IPv4 address mapped to IPv6.
    V4,
    /// A global IPv6 address.
    V6,
    /// A link-local address.
    Link,
}

impl Family {
    /// The kind of an address.
    pub fn of(address: Ipv6Addr) -> Self {
        match address.to_ipv4_mapped() {
            Some(_) => Self::V4,
            None if address.is_unicast_link_local() => Self::Link,
            None => Self::V6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routable_roce_v2_gids_come_first() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("mlx5_0/ports/1");
        let put = |path: &str, text: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (index, gid, kind) in [
            (0, "fe80::1", "IB/RoCE v1"),
            (1, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2"),
            (2, "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1"),
            (3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2"),
            (10, "2001:db8::1", "RoCE v2"),
            (11, "::", "RoCE v2"),
        ] {
            put(&format!("gids/{index}"), &format!("{gid}\n"));
            put(&format!("gid_attrs/types/{index}"), &format!("{kind}\n"));
        }
        for (index, key) in [
            (0, "0xffff"),
            (1, "0x7fff"),
            (2, "0x8012"),
            (3, "0x0000"),
            (4, "0x0013"),
        ] {
            put(&format!("pkeys/{index}"), key);
        }
        let port = Port::below(dir.path(), "mlx5_0").unwrap();
        assert_eq!(port.to_string(), "mlx5_0 port 1");
        let places: Vec<u8> = port.gids().iter().map(|gid| gid.index).collect();
        assert_eq!(places, [3, 10, 1]);
        let keys: Vec<u16> = port.pkeys().iter().map(|pkey| pkey.key).collect();
        assert_eq!(keys, [0x8012, 0xffff, 0x0013, 0x7fff]);
        for lane in ["mlx5_1", "mlx5_0:2", "mlx5_0:x", "../mlx5_0", ""] {
            assert!(Port::below(dir.path(), lane).is_err(), "{lane}");
        }
    }
}
