//! Replies per second of the pure DHCP path on one thread: parse, decide, encode, for the four messages of a network boot.
//!
//! `cargo run --release -p rackwright-netboot --example reply_rate` prints one line of JSON. The measurement covers this
//! crate's cost per packet, without the sockets and the directory.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use rackwright_netboot::config::names;
use rackwright_netboot::dhcp::{Decision, Port, Request, decide, reply};
use rackwright_netboot::{BootIntent, BootLoader, DhcpMode, Lookup, NetbootConfig, OneTimeToken, Settings, Subnet};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);

fn settings() -> Result<Settings, Box<dyn std::error::Error>> {
    let network = "10.77.0.0/24".parse()?;
    let subnet = Subnet {
        network,
        pool: None,
        router: Some(SERVER),
        dns: vec![SERVER],
        lease_s: 3600,
    };
    // Any file is enough, because it is not read here.
    let file = std::env::current_exe()?;
    let config = NetbootConfig {
        server_ip: SERVER,
        interface: None,
        dhcp: DhcpMode::Server { subnets: vec![subnet] },
        dhcp_port: 67,
        boot_server_port: 4011,
        tftp_port: 69,
        http_port: 8080,
        first_stages: BTreeMap::from([(names::UEFI_X64.to_owned(), file)]),
        boot_loader: BootLoader::Ipxe,
        router_advertisements: false,
        boot_unknown: false,
        ca_pem: None,
        other_servers: Vec::new(),
    };
    Ok(config.check()?)
}

fn packet(kind: u8, user_class: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 240];
    packet[..4].copy_from_slice(&[1, 1, 6, 0]);
    packet[28..34].copy_from_slice(&[0x52, 0x54, 0, 0x77, 0, 1]);
    packet[236..].copy_from_slice(&[99, 130, 83, 99]);
    packet.extend([53, 1, kind, 57, 2, 5, 192, 93, 2, 0, 7, 94, 3, 1, 3, 16]);
    packet.extend([60, 32]);
    packet.extend(b"PXEClient:Arch:00007:UNDI:003016");
    packet.extend([97, 17, 0]);
    packet.extend([7; 16]);
    packet.extend([55, 12, 1, 3, 6, 12, 15, 17, 43, 60, 66, 67, 128, 175]);
    if !user_class.is_empty() {
        packet.extend([77, user_class.len() as u8]);
        packet.extend(user_class);
    }
    packet.push(255);
    packet
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings = settings()?;
    let packets = [packet(1, b""), packet(3, b""), packet(1, b"iPXE"), packet(3, b"iPXE")];
    let boot = BootIntent::Network { loader: None };
    let lookup = Lookup::Known {
        address: Some(Ipv4Addr::new(10, 77, 0, 10)),
        hostname: Some("gpu-001".into()),
        boot,
    };
    let token = OneTimeToken::new(format!("rw1_{}", "0".repeat(64))).ok_or("no token")?;
    let (mut replies, mut bytes) = (0u64, 0usize);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        for _ in 0..250 {
            for packet in &packets {
                let request = Request::parse(black_box(packet), Port::Server, &settings)?;
                let Decision::Answer(answer) = decide(&request, &lookup, &settings) else {
                    return Err("ignored".into());
                };
                let sent = reply(
                    &request,
                    &answer,
                    answer.needs_token().then_some(&token),
                    FROM,
                    &settings,
                )?;
                bytes += black_box(sent).bytes.len();
                replies += 1;
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let rate = replies as f64 / seconds;
    println!(
        "{{\"replies\": {replies}, \"seconds\": {seconds:.2}, \"replies_per_s\": {rate:.0}, \"us_per_reply\": {:.2}, \"bytes_per_reply\": {}}}",
        1e6 / rate,
        bytes as u64 / replies
    );
    Ok(())
}
