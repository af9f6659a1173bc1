//! The watch for hosts with the server's address, on a real link: a pair of Ethernet interfaces in network namespaces.
//!
//! The test runs itself again in its own namespace; everything in the namespace ends with the test.

#![allow(clippy::disallowed_methods)] // a test may read clocks and wait for the processes it started
#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

#[path = "common/mod.rs"]
mod common;

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::MemoryDirectory;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use rackwright_netboot::connections::{Connections, Limits};
use rackwright_netboot::{BootLoader, DhcpMode, Mac, Netboot, NetbootConfig, Stage};
use tokio_util::sync::CancellationToken;

const INSIDE: &str = "RACKWRIGHT_INSIDE_NAMESPACES";
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 1);
/// No host has this address, so a host that sends to it uses ARP.
const UNUSED: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 99);
const HONEST: Mac = Mac([2, 0, 0, 0, 0, 8]);
const IMPOSTOR: Mac = Mac([2, 0, 0, 0, 0, 9]);
const LIMIT: Duration = Duration::from_secs(30);

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.expect("ip (Debian package iproute2) runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {words}");
}

/// A host on the boot network that sends ARP requests until the sender is dropped.
fn plug_in(interface: &'static str, mac: Mac, address: Ipv4Addr) -> mpsc::Sender<()> {
    let (ready, thread) = mpsc::channel();
    let (plugged_in, link) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        ready.send(gettid()).expect("the test waits");
        link.recv().expect("the test plugs the host in");
        ip(&format!("link set nic address {mac}"));
        ip(&format!("addr add {address}/24 dev nic"));
        ip("link set nic up");
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
        // Each datagram makes the kernel send ARP requests again, because no host answers.
        while ended.recv_timeout(Duration::from_millis(100)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _: Result<usize, _> = socket.send_to(b"?", (UNUSED, 9));
        }
    });
    let thread = thread.recv().expect("the host starts");
    ip(&format!("link add {interface} type veth peer name nic netns {thread}"));
    ip(&format!("link set {interface} master boot"));
    ip(&format!("link set {interface} up"));
    plugged_in.send(()).expect("the host waits");
    end
}

async fn a_second_host_takes_the_servers_address() {
    ip("link set lo up");
    ip("link add boot type bridge");
    ip(&format!("addr add {SERVER}/24 dev boot"));
    ip("link set boot up");
    let none = || PathBuf::from("/dev/null");
    let directory = Arc::new(MemoryDirectory::new(HashMap::new(), none(), none(), ""));
    let config = NetbootConfig {
        server_ip: SERVER,
        interface: Some("boot".to_owned()),
        dhcp: DhcpMode::Off,
        dhcp_port: 67,
        boot_server_port: 4011,
        tftp_port: 0,
        http_port: 0,
        first_stages: BTreeMap::new(),
        boot_loader: BootLoader::Ipxe,
        router_advertisements: false,
        boot_unknown: false,
        ca_pem: None,
        other_servers: Vec::new(),
    };
    let connections = Connections::of_boot_http(&Limits::default());
    let netboot = Netboot::bind(config, directory.clone(), connections).await.unwrap();
    let counters = netboot.counters();
    let cancel = CancellationToken::new();
    let running = tokio::spawn(netboot.run(cancel.clone()));
    let honest = plug_in("p1", HONEST, Ipv4Addr::new(10, 9, 9, 2));
    // The server sends ARP requests itself. Its own packets are not a conflict.
    let own = UdpSocket::bind((SERVER, 0)).unwrap();
    own.send_to(b"?", (UNUSED, 9)).unwrap();
    let impostor = plug_in("p2", IMPOSTOR, SERVER);
    let seen = directory.wait_for_stage(IMPOSTOR, Stage::AddressConflict, LIMIT).await;
    let words = "the host 02:00:00:00:00:09 uses this server's address 10.9.9.1";
    assert!(seen.detail.starts_with(words), "{}", seen.detail);
    assert!(directory.stages(HONEST).is_empty(), "{}", directory.trace());
    assert_eq!(counters.snapshot()["address_conflict_total"], 1);
    drop((honest, impostor));
    cancel.cancel();
    running.await.unwrap().unwrap();
}

#[test]
fn a_host_that_uses_the_servers_address_is_reported() {
    let name = "a_host_that_uses_the_servers_address_is_reported";
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        return runtime.unwrap().block_on(a_second_host_takes_the_servers_address());
    }
    let status = Command::new("unshare")
        .args(["--map-root-user", "--net"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .status();
    assert!(status.expect("unshare (Debian package util-linux) runs").success());
}
