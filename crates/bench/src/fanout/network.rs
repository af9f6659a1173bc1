//! The network of a case: a bridge for the spine, a bridge for each rack, and hosts in namespaces of their own. Every link
//! is a veth pair that is shaped at both ends.
//!
//! ```text
//! origin ═══╗                      ╔═══ agent
//!           spine ═══ uplink ═══ leaf ═══ agent
//! control ══╝                      ╚═══ cache
//! ```
//!
//! The bridges are in the namespace of this process.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use serde::Deserialize;

/// Bytes that may leave a link at once.
const BURST: u64 = 32 << 10;
/// Least bytes that wait at a link.
const QUEUE: u64 = 128 << 10;
/// Longest packet in bytes, as in the network of a hall.
const MTU: u32 = 9000;
/// A faster link has a queue of this time.
const QUEUE_MS: u64 = 50;

/// A network namespace. It lasts as long as this value and the processes in it.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    fn new() -> io::Result<Self> {
        in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(Self(File::open("/proc/thread-self/ns/net")?))
        })
    }

    /// Does `work` in the namespace. Sockets and processes that it makes stay there.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        in_thread(|| {
            setns(&self.0, CloneFlags::CLONE_NEWNET)?;
            work()
        })
    }

    /// A name for `ip`.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// A namespace belongs to a thread, so the work has a thread of its own.
fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let done = thread::Builder::new().spawn_scoped(scope, work)?.join();
        done.unwrap_or_else(|_| Err(io::Error::other("the work in a namespace panicked")))
    })
}

/// A machine with one card.
#[derive(Debug)]
pub struct Host {
    pub namespace: Namespace,
    pub address: Ipv4Addr,
    /// The bridge's end of its link.
    port: String,
}

/// What a network consists of. Rates are in bits per second.
#[derive(Debug, Clone)]
pub struct Layout {
    pub racks: u32,
    /// Agents in all racks. Agent N is in rack N modulo `racks`.
    pub agents: u32,
    /// The rate of every agent, cache and origin, in each direction.
    pub cap: u64,
    /// The rate of each leaf's link to the spine. `None`: not limited.
    pub uplink: Option<u64>,
    /// Agents at a quarter of the rate.
    pub slow: Vec<u32>,
    /// Whether each rack has a machine for a cache.
    pub has_caches: bool,
}

#[derive(Debug)]
pub struct Network {
    pub origin: Host,
    /// The machine of the control plane. Its link is not limited.
    pub control: Host,
    pub agents: Vec<Host>,
    /// One for each rack, or none.
    pub caches: Vec<Host>,
    /// The spine, then the leaves.
    bridges: Vec<String>,
    /// The leaf's end of each uplink.
    uplinks: Vec<String>,
}

/// Bytes that crossed a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crossed {
    /// Towards the host, or towards the leaf.
    pub down: u64,
    pub up: u64,
}

impl Crossed {
    pub fn since(self, before: Self) -> Self {
        Self {
            down: self.down.saturating_sub(before.down),
            up: self.up.saturating_sub(before.up),
        }
    }
}

fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn mac(address: Ipv4Addr) -> String {
    let [_, _, rack, host] = address.octets();
    format!("02:77:00:00:{rack:02x}:{host:02x}")
}

fn shaper(device: &str, rate: u64) -> String {
    let limit = BURST + QUEUE.max(rate / 8 * QUEUE_MS / 1000);
    format!("qdisc add dev {device} root tbf rate {rate}bit burst {BURST} limit {limit}\n")
}

impl Network {
    pub fn new(layout: &Layout) -> io::Result<Self> {
        let bridges: Vec<String> = (0..=layout.racks).map(|_| format!("br{}", next())).collect();
        let mut links = String::new();
        for bridge in &bridges {
            links += &format!("link add {bridge} mtu {MTU} type bridge mcast_snooping 0\n");
            links += &format!("link set {bridge} addrgenmode none up\n");
        }
        let mut shapers = String::new();
        let mut uplinks = Vec::new();
        for leaf in &bridges[1..] {
            let (up, down) = (format!("up{}", next()), format!("dn{}", next()));
            links += &format!("link add {up} mtu {MTU} type veth peer name {down} mtu {MTU}\n");
            links += &format!("link set {up} addrgenmode none master {leaf} up\n");
            links += &format!("link set {down} addrgenmode none master {} up\n", bridges[0]);
            if let Some(rate) = layout.uplink {
                shapers += &shaper(&up, rate);
                shapers += &shaper(&down, rate);
            }
            uplinks.push(up);
        }
        let host = |address: [u8; 2]| {
            Ok::<_, io::Error>(Host {
                namespace: Namespace::new()?,
                address: Ipv4Addr::new(10, 77, address[0], address[1]),
                port: format!("h{}", next()),
            })
        };
        let (origin, control) = (host([0, 1])?, host([0, 2])?);
        let caches = if layout.has_caches { layout.racks } else { 0 };
        let caches = (0..caches).map(|rack| host([1, byte(rack + 1)]));
        let caches = caches.collect::<io::Result<Vec<_>>>()?;
        let agents = (0..layout.agents).map(|agent| host([2 + byte(agent / 250), byte(agent % 250 + 1)]));
        let agents = agents.collect::<io::Result<Vec<_>>>()?;
        let network = Self {
            origin,
            control,
            agents,
            caches,
            bridges,
            uplinks,
        };
        let all = network.hosts(layout);
        for (host, bridge, rate) in &all {
            let (port, at) = (&host.port, host.namespace.path());
            links += &format!("link add {port} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {at}\n");
            links += &format!("link set {port} addrgenmode none master {bridge} up\n");
            if let Some(rate) = rate {
                shapers += &shaper(port, *rate);
            }
        }
        batch("ip", &links)?;
        batch("tc", &shapers)?;
        for (host, _, rate) in &all {
            let card = card(host, all.iter().map(|(other, ..)| other.address));
            let shaper = rate.map(|rate| shaper("eth0", rate)).unwrap_or_default();
            host.namespace.enter(|| {
                batch("ip", &card)?;
                batch("tc", &shaper)
            })?;
        }
        drop(all);
        Ok(network)
    }

    /// Each host with its bridge and its rate.
    fn hosts(&self, layout: &Layout) -> Vec<(&Host, &str, Option<u64>)> {
        let spine = &*self.bridges[0];
        let mut hosts = vec![(&self.origin, spine, Some(layout.cap)), (&self.control, spine, None)];
        let leaves = &self.bridges[1..];
        for (cache, leaf) in self.caches.iter().zip(leaves) {
            hosts.push((cache, leaf, Some(layout.cap)));
        }
        for ((agent, number), leaf) in self.agents.iter().zip(0..).zip(leaves.iter().cycle()) {
            let is_slow = layout.slow.contains(&number);
            hosts.push((agent, leaf, Some(layout.cap / if is_slow { 4 } else { 1 })));
        }
        hosts
    }

    /// What has crossed each leaf's uplink so far.
    pub fn uplinks(&self) -> io::Result<Vec<Crossed>> {
        self.uplinks.iter().map(|device| crossed(device)).collect()
    }

    /// What has crossed a host's link so far.
    pub fn of(&self, host: &Host) -> io::Result<Crossed> {
        let Crossed { down, up } = crossed(&host.port)?;
        // The bridge's end sends what the host receives.
        Ok(Crossed { down: up, up: down })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The links of the hosts end with their namespaces, which the kernel removes later.
        let hosts = [&self.origin, &self.control];
        let hosts = hosts.into_iter().chain(&self.agents).chain(&self.caches);
        let ports = hosts.map(|host| &host.port);
        let devices: String = ports
            .chain(&self.uplinks)
            .chain(&self.bridges)
            .map(|device| format!("link del {device}\n"))
            .collect();
        let _ = batch("ip", &devices);
    }
}

fn byte(number: u32) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// The settings of a host's card. The neighbours are permanent: the kernel limits the number of all others, and its limit
/// holds for all namespaces together.
fn card(host: &Host, all: impl Iterator<Item = Ipv4Addr>) -> String {
    let address = host.address;
    let mut lines = format!(
        "link set lo up\nlink set eth0 addrgenmode none address {}\n",
        mac(address)
    );
    lines += &format!("addr add {address}/16 dev eth0\nlink set eth0 up\n");
    for other in all.filter(|other| *other != address) {
        lines += &format!("neigh add {other} lladdr {} dev eth0 nud permanent\n", mac(other));
    }
    lines
}

/// Runs `ip` or `tc` with these lines, in the namespace of this thread.
fn batch(program: &str, lines: &str) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(program);
    command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let missing =
        |error: io::Error| io::Error::new(error.kind(), format!("{program} (Debian package iproute2): {error}"));
    let mut child = command.stdout(Stdio::null()).spawn().map_err(missing)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(lines.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program}: {}", errors.trim())))
}

#[derive(Deserialize)]
struct Device {
    stats64: Counters,
}

#[derive(Deserialize)]
struct Counters {
    rx: Bytes,
    tx: Bytes,
}

#[derive(Deserialize)]
struct Bytes {
    bytes: u64,
}

/// What a device has received and sent. `/sys` shows the devices of another namespace.
fn crossed(device: &str) -> io::Result<Crossed> {
    let output = Command::new("ip")
        .args(["-s", "-j", "link", "show", "dev", device])
        .output()?;
    let devices: Vec<Device> = serde_json::from_slice(&output.stdout)?;
    let device = devices.into_iter().next();
    let Counters { rx, tx } = device.ok_or_else(|| io::Error::other("ip shows no device"))?.stats64;
    Ok(Crossed {
        down: rx.bytes,
        up: tx.bytes,
    })
}
