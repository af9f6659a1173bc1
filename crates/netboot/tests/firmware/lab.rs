//! A network namespace with a bridge, a tap, and the servers.

use std::collections::HashMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use rackwright_netboot::connections::{Connections, Limits};
use rackwright_netboot::{
    BootIntent, BootLoader, Counters, DhcpMode, Mac, Netboot, NetbootConfig, Subnet, first_stages_in,
};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::common::{Machine, MemoryDirectory};
use crate::payload;

pub const MAC: Mac = Mac([0x52, 0x54, 0, 0x77, 0, 1]);
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 10);
pub const RELAYED_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 10);
const RELAY: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 254);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const INSIDE: &str = "RACKWRIGHT_NETBOOT_TEST_NAMESPACE";

/// Runs `body` in a namespace. Outside a namespace, starts this test again inside one and returns its result.
pub fn in_namespace(name: &str, body: impl Future<Output = ()>) {
    if std::env::var_os(INSIDE).is_none() {
        // One machine at a time, whichever runner starts the tests: they are CPU-bound.
        let lock = File::create(payload::folder().join("one-machine.lock")).unwrap();
        lock.lock().unwrap();
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
        let status = Command::new("unshare")
            .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(
                (!is_root)
                    .then_some(["--user", "--map-root-user"])
                    .into_iter()
                    .flatten(),
            )
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(INSIDE, "1")
            .status()
            .expect("unshare (Debian package util-linux) runs");
        assert!(status.success(), "the test failed in its namespace: see above");
        return;
    }
    tracing_subscriber::fmt()
        .with_env_filter("rackwright_netboot=debug")
        .with_writer(std::io::stderr)
        .init();
    set_up_network();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(body);
}

/// Runs `ip COMMAND` for each of `commands`.
fn ip(commands: &[&str]) {
    for command in commands {
        let status = Command::new("ip")
            .args(command.split(' '))
            .status()
            .expect("ip (Debian package iproute2) runs");
        assert!(status.success(), "ip {command}");
    }
}

fn set_up_network() {
    ip(&[
        "link set lo up",
        "link add br0 type bridge stp_state 0 forward_delay 0",
        "addr add 10.77.0.1/24 dev br0",
        "addr add fd77::1/64 dev br0 nodad",
        "link set br0 up",
        "tuntap add tap0 mode tap",
        "link set tap0 master br0 up",
    ]);
}

/// Sets up a router with a rack behind it: a nested namespace with its own bridge and tap.
fn set_up_relay() {
    // `ip netns` writes names to /run, so the test mounts its own /run.
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "none", "/run"])
        .status()
        .unwrap();
    assert!(mounted.success(), "mount /run");
    ip(&[
        "netns add relay",
        "link add up0 type veth peer name up1 netns relay",
        "link set up0 master br0 up",
        "-n relay link set lo up",
        "-n relay addr add 10.77.0.2/24 dev up1",
        "-n relay link set up1 up",
        "-n relay link add br1 type bridge stp_state 0 forward_delay 0",
        "-n relay addr add 10.78.0.254/24 dev br1",
        "-n relay link set br1 up",
        "-n relay tuntap add tap1 mode tap",
        "-n relay link set tap1 master br1 up",
        "netns exec relay sysctl -qw net.ipv4.ip_forward=1",
        "route add 10.78.0.0/24 via 10.77.0.2",
    ]);
}

pub fn server_mode() -> DhcpMode {
    let network = "10.77.0.0/24".parse().unwrap();
    DhcpMode::Server {
        subnets: vec![Subnet {
            network,
            pool: None,
            router: Some(SERVER),
            dns: vec![SERVER],
            lease_s: 3600,
        }],
    }
}

/// Server mode for the local rack and the rack behind the relay.
pub fn relayed_mode() -> DhcpMode {
    let DhcpMode::Server { mut subnets } = server_mode() else {
        unreachable!()
    };
    let network = "10.78.0.0/24".parse().unwrap();
    subnets.push(Subnet {
        network,
        router: Some(RELAY),
        ..subnets[0].clone()
    });
    DhcpMode::Server { subnets }
}

pub struct Lab {
    pub directory: Arc<MemoryDirectory>,
    pub scratch: TempDir,
    /// The command that enters the namespace of the machine's tap, and the name of that tap.
    pub enter: &'static [&'static str],
    pub tap: &'static str,
    counters: Arc<Counters>,
    began: Instant,
    _stop: DropGuard,
}

impl Lab {
    pub async fn start(dhcp: DhcpMode, boot: BootIntent) -> Self {
        Self::start_with(dhcp, boot, ADDRESS).await
    }

    /// Places the machine in a rack behind a router that relays DHCP (dnsmasq as relay agent).
    pub async fn start_behind_relay(boot: BootIntent) -> (Self, Running) {
        set_up_relay();
        let mut lab = Self::start_with(relayed_mode(), boot, RELAYED_ADDRESS).await;
        lab.enter = &["ip", "netns", "exec", "relay"];
        lab.tap = "tap1";
        let relay = Command::new("ip")
            .args([
                "netns",
                "exec",
                "relay",
                "dnsmasq",
                "--no-daemon",
                "--port=0",
                "--conf-file=/dev/null",
            ])
            .args(["--no-resolv", "--no-hosts", "--log-facility=-", "--log-dhcp"])
            .arg(format!("--dhcp-relay={RELAY},{SERVER}"))
            .arg(format!("--pid-file={}", lab.scratch.path().join("relay.pid").display()))
            .stdin(Stdio::null())
            .spawn()
            .expect("dnsmasq (Debian package dnsmasq-base) runs");
        (lab, Running(relay))
    }

    async fn start_with(dhcp: DhcpMode, boot: BootIntent, address: Ipv4Addr) -> Self {
        let machines = HashMap::from([(
            MAC,
            Machine {
                address: Some(address),
                boot,
            },
        )]);
        let (kernel, initrd) = payload::kernel_and_ramdisk();
        let cmdline = "console=ttyS0 panic=-1 quiet test.marker=yes";
        let directory = Arc::new(MemoryDirectory::new(machines, kernel, initrd, cmdline));
        let config = NetbootConfig {
            server_ip: SERVER,
            interface: Some("br0".to_owned()),
            dhcp,
            dhcp_port: 67,
            boot_server_port: 4011,
            tftp_port: 69,
            http_port: 8080,
            first_stages: first_stages_in(&payload::first_stages()),
            boot_loader: BootLoader::Ipxe,
            router_advertisements: true,
            boot_unknown: false,
            ca_pem: None,
            other_servers: Vec::new(),
        };
        let netboot = Netboot::bind(config, directory.clone(), Connections::of_boot_http(&Limits::default()))
            .await
            .unwrap();
        let counters = netboot.counters();
        let cancel = CancellationToken::new();
        tokio::spawn(netboot.run(cancel.clone()));
        let scratch = TempDir::new().unwrap();
        Self {
            directory,
            scratch,
            enter: &[],
            tap: "tap0",
            counters,
            began: Instant::now(),
            _stop: cancel.drop_guard(),
        }
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.counters.snapshot()[name]
    }

    pub fn print_seconds(&self, path: &str) {
        eprintln!(
            "\n{path}: {:.1} s from power-on to userspace\n{}",
            self.began.elapsed().as_secs_f64(),
            self.directory.trace()
        );
    }

    /// Starts another DHCP server on the bridge, without boot options. It runs in the foreground: as a daemon it would
    /// change its user and group, and the namespace of an ordinary user has only one of each.
    pub fn dnsmasq(&self) -> Running {
        let run = |name: &str| self.scratch.path().join(name).display().to_string();
        let child = Command::new("dnsmasq")
            .args([
                "--no-daemon",
                "--port=0",
                "--interface=br0",
                "--no-ping",
                "--no-resolv",
                "--no-hosts",
            ])
            .args([
                "--conf-file=/dev/null",
                "--log-facility=-",
                "--log-dhcp",
                "--bind-interfaces",
            ])
            .args([
                "--dhcp-range=10.77.0.0,static,255.255.255.0,1h",
                "--dhcp-option=3,10.77.0.254",
            ])
            .arg(format!("--dhcp-host={MAC},{ADDRESS}"))
            .arg(format!("--dhcp-leasefile={}", run("leases")))
            .arg(format!("--pid-file={}", run("dnsmasq.pid")))
            .stdin(Stdio::null())
            .spawn()
            .expect("dnsmasq (Debian package dnsmasq-base) runs");
        Running(child)
    }
}

/// A process that is ended with its owner.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The output folder of this repository's image builder.
pub fn built() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/images")
}
