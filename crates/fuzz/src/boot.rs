//! Packets of the boot network.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::OnceLock;

use rackwright_agent::net::lldp as agent_lldp;
use rackwright_netboot::dhcp::{self, Decision, Port, Request};
use rackwright_netboot::{
    BootIntent, BootLoader, DhcpMode, Lookup, NetbootConfig, OneTimeToken, Pool, Settings, Subnet, fuzzing,
};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const NODE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
const FREE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 200);
/// Largest UDP payload of an Ethernet frame with 1500 bytes.
const FRAME: usize = 1472;

fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let stages = ["snponly.efi", "ipxe.efi", "undionly.kpxe", "shimx64.efi", "grubx64.efi"];
        let first_stages: BTreeMap<_, _> = stages.iter().map(|name| ((*name).to_owned(), file.clone())).collect();
        let network = "10.77.0.0/24".parse();
        let subnet = Subnet {
            network: network.unwrap_or_default(),
            pool: Some(Pool {
                first: FREE,
                last: FREE,
            }),
            router: Some(SERVER),
            dns: vec![SERVER],
            lease_s: 3600,
        };
        let config = NetbootConfig {
            server_ip: SERVER,
            interface: None,
            dhcp: DhcpMode::Server { subnets: vec![subnet] },
            dhcp_port: 67,
            boot_server_port: 4011,
            tftp_port: 69,
            http_port: 8080,
            first_stages,
            boot_loader: BootLoader::Ipxe,
            router_advertisements: false,
            boot_unknown: true,
            ca_pem: None,
            other_servers: Vec::new(),
        };
        match config.check() {
            Ok(settings) => settings,
            Err(faults) => panic!("the settings of this test are wrong: {faults:?}"),
        }
    })
}

/// The answers that the directory of nodes may give about a client.
fn lookups() -> [Lookup; 4] {
    let known = |boot| Lookup::Known {
        address: Some(NODE),
        hostname: Some("n1".to_owned()),
        boot,
    };
    [
        known(BootIntent::Disk),
        known(BootIntent::Network { loader: None }),
        Lookup::Unknown {
            boot_allowed: true,
            address: Some(FREE),
        },
        Lookup::Unknown {
            boot_allowed: false,
            address: None,
        },
    ]
}

/// An answer repeats the client's transaction and hardware address, is a server's message, fits into a frame, and has the
/// boot token only where one is due. A server's message is never taken for a client's.
pub(crate) fn dhcp(packet: &[u8]) {
    let settings = settings();
    let token = OneTimeToken::new("0123456789abcdef".repeat(4));
    let from = SocketAddrV4::new(NODE, 68);
    for port in [Port::Server, Port::BootServer] {
        let Ok(request) = Request::parse(packet, port, settings) else {
            continue;
        };
        assert!(!fuzzing::is_of_dhcp_server(packet), "a server's message is a client's");
        for lookup in lookups() {
            let Decision::Answer(answer) = dhcp::decide(&request, &lookup, settings) else {
                continue;
            };
            let due = token.as_ref().filter(|_| answer.needs_token());
            let reply = match dhcp::reply(&request, &answer, due, from, settings) {
                Ok(reply) => reply.bytes,
                Err(error) => panic!("{answer:?} cannot be written: {error}"),
            };
            assert!(reply.len() <= FRAME, "an answer of {} bytes", reply.len());
            assert_eq!(reply[0], 2, "an answer is a BOOTREPLY");
            assert_eq!(reply[4..8], packet[4..8], "another transaction");
            assert_eq!(reply[28..34], packet[28..34], "another client");
            assert!(fuzzing::is_of_dhcp_server(&reply), "the answer cannot be read");
            if let Lookup::Known {
                boot: BootIntent::Disk, ..
            } = lookup
            {
                assert!(due.is_none(), "a node that boots from its disk gets a token");
            }
        }
    }
}

/// A file that is served lies below the folder, and blocks and windows are within what was promised.
pub(crate) fn tftp(packet: &[u8]) {
    let Some((path, block, window)) = fuzzing::tftp_request(packet) else {
        return;
    };
    assert!(
        !path.starts_with('/') && !path.is_empty() && path.len() <= 255,
        "{path:?}"
    );
    assert!(!path.split('/').any(|part| part.starts_with('.')), "{path:?} leads out");
    assert!(
        (8..=1468).contains(&block) && (1..=32).contains(&window),
        "{block}, {window}"
    );
}

/// The sender of an ARP packet stands in the packet, and claims an address.
pub(crate) fn arp(bytes: &[u8]) {
    if let Some((address, mac)) = fuzzing::arp_sender(bytes) {
        assert!(!address.is_unspecified());
        assert_eq!([&mac.0[..], &address.octets()[..]].concat(), bytes[8..18]);
    }
}

/// An LLDP message of a switch is read the same each time, and the texts in the result are short and printable.
pub(crate) fn lldp(bytes: &[u8]) {
    let Some(neighbour) = agent_lldp::parse(bytes) else {
        return;
    };
    for text in [
        &neighbour.chassis_id,
        &neighbour.port_id,
        &neighbour.port_description,
        &neighbour.system_name,
    ] {
        assert!(text.len() <= agent_lldp::TEXT_MAX, "{} octets", text.len());
        assert!(text.bytes().all(|octet| (b' '..=b'~').contains(&octet)), "{text:?}");
    }
    assert_eq!(agent_lldp::parse(bytes), Some(neighbour));
}
