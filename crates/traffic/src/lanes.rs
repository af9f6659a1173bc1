//! The fabric adapters through which this machine can be reached: by TCP where their network interfaces (IPoIB, RoCE) have
//! link-local addresses, which need no configuration; by RDMA also without addresses.
//!
//! Read from `/sys/class/infiniband` (Documentation/ABI/stable/sysfs-class-infiniband of the kernel) and
//! `/proc/net/if_inet6`.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use crate::rdma;
use crate::report::Lane;

/// The adapters of this machine, by name.
pub fn found() -> Vec<Lane> {
    let mut lanes = all();
    lanes.retain(|lane| lane.address.is_some() || rdma::usable(&lane.name).is_ok());
    lanes
}

fn all() -> Vec<Lane> {
    let addresses = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    below(Path::new("/sys/class"), &addresses)
}

/// The name of the adapter with this address.
pub fn at(address: IpAddr) -> Option<String> {
    let mut lanes = all().into_iter();
    let lane = lanes.find(|lane| lane.address.is_some_and(|own| IpAddr::V6(own) == address));
    lane.map(|lane| lane.name)
}

/// Whether this machine has any RDMA device.
#[cfg(target_feature = "crt-static")]
pub fn any_present() -> bool {
    !names(Path::new("/sys/class/infiniband")).is_empty()
}

/// The index of a network interface.
pub fn index(interface: &str) -> Option<u32> {
    read(&Path::new("/sys/class/net").join(interface).join("ifindex"))?
        .parse()
        .ok()
}

fn read(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

fn below(class: &Path, addresses: &str) -> Vec<Lane> {
    let mut lanes = Vec::new();
    for device in names(&class.join("infiniband")) {
        let folder = class.join("infiniband").join(&device);
        for port in names(&folder.join("ports")) {
            lanes.extend(lane(&folder, &device, &port, addresses));
        }
    }
    lanes
}

/// The lane of a port; none: the port is down.
fn lane(folder: &Path, device: &str, port: &str, addresses: &str) -> Option<Lane> {
    let here = folder.join("ports").join(port);
    if !read(&here.join("state"))?.contains("ACTIVE") {
        return None;
    }
    let guid: String = read(&here.join("gids/0"))?.split(':').skip(4).collect();
    let interface = interface(folder, &here, port);
    Some(Lane {
        name: if port == "1" {
            device.to_owned()
        } else {
            format!("{device}:{port}")
        },
        guid: format!("0x{guid}"),
        address: interface.as_deref().and_then(|name| link_local(addresses, name)),
        interface,
    })
}

/// The network interface of a port. For RoCE it is listed with the GID; for IPoIB it is the device's interface with the
/// port's number.
fn interface(folder: &Path, here: &Path, port: &str) -> Option<String> {
    if let Some(name) = read(&here.join("gid_attrs/ndevs/0")).filter(|name| !name.is_empty()) {
        return Some(name);
    }
    let nets = folder.join("device/net");
    let number = port.parse::<u32>().ok()?.checked_sub(1)?;
    names(&nets).into_iter().find(|name| {
        let place = read(&nets.join(name).join("dev_port"));
        place.and_then(|place| place.parse::<u32>().ok()) == Some(number)
    })
}

/// The link-local address (scope 0x20) of an interface, from the kernel's list.
fn link_local(addresses: &str, interface: &str) -> Option<Ipv6Addr> {
    addresses.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, _, "20", _, name] = words[..] else {
            return None;
        };
        (name == interface).then(|| u128::from_str_radix(address, 16).ok().map(Ipv6Addr::from))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn active_adapters_are_lanes_by_tcp_where_they_have_an_address() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (device, state) in [("mlx5_0", "4: ACTIVE"), ("mlx5_1", "1: DOWN"), ("mlx5_2", "4: ACTIVE")] {
            let ports = format!("infiniband/{device}/ports/1");
            put(root, &format!("{ports}/state"), &format!("{state}\n"));
            put(
                root,
                &format!("{ports}/gids/0"),
                "fe80:0000:0000:0000:a088:c203:0012:3400\n",
            );
            let net = format!("infiniband/{device}/device/net/ib{}", &device[5..]);
            put(root, &format!("{net}/dev_port"), "0\n");
        }
        // RoCE: the interface of the GID.
        put(root, "infiniband/rocep1/ports/2/state", "4: ACTIVE");
        put(
            root,
            "infiniband/rocep1/ports/2/gids/0",
            "fe80:0000:0000:0000:0202:03ff:fe04:0506",
        );
        put(root, "infiniband/rocep1/ports/2/gid_attrs/ndevs/0", "eth1\n");
        let addresses = "fe80000000000000a088c20300123400 05 40 20 80      ib0\n\
                         00000000000000000000000000000001 01 80 10 80       lo\n\
                         fe80000000000000020203fffe040506 03 40 20 80     eth1\n";
        let found = below(root, addresses);
        let names: Vec<&str> = found.iter().map(|lane| lane.name.as_str()).collect();
        // mlx5_1 is down, and the interface of mlx5_2 has no address.
        assert_eq!(names, ["mlx5_0", "mlx5_2", "rocep1:2"]);
        assert_eq!(found[1].address, None);
        assert_eq!(found[0].guid, "0xa088c20300123400");
        assert_eq!(found[0].address, "fe80::a088:c203:12:3400".parse().ok());
        assert_eq!(
            (found[2].interface.as_deref(), found[0].interface.as_deref()),
            (Some("eth1"), Some("ib0"))
        );
    }
}
