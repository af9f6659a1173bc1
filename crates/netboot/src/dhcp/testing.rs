//! Settings and packets for the tests of this crate.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::config::{BootLoader, DhcpMode, NetbootConfig, Settings, Subnet, names};
use crate::mac::Mac;

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(crate) const CLIENT: Mac = Mac([0x52, 0x54, 0, 0x77, 0, 1]);

/// Server mode with a local subnet and one behind a relay. All first stages exist (as this very source file).
pub(crate) fn settings() -> Settings {
    config().check().unwrap()
}

pub(crate) fn config() -> NetbootConfig {
    let subnet = |network: &str, router| Subnet {
        network: network.parse().unwrap(),
        pool: None,
        router: Some(router),
        dns: vec![Ipv4Addr::new(192, 0, 2, 53)],
        lease_s: 3600,
    };
    let subnets = vec![
        subnet("10.77.0.0/24", SERVER),
        subnet("10.78.0.0/24", Ipv4Addr::new(10, 78, 0, 254)),
    ];
    let stages = [
        names::BIOS,
        names::UEFI_X64,
        names::UEFI_ARM64,
        names::HTTP_X64,
        names::HTTP_ARM64,
        names::SHIM_X64,
        names::GRUB_X64,
    ];
    NetbootConfig {
        server_ip: SERVER,
        interface: None,
        dhcp: DhcpMode::Server { subnets },
        dhcp_port: 67,
        boot_server_port: 4011,
        tftp_port: 69,
        http_port: 8080,
        first_stages: stages
            .iter()
            .map(|name| ((*name).to_owned(), file!().into()))
            .map(absolute)
            .collect::<BTreeMap<_, _>>(),
        boot_loader: BootLoader::Ipxe,
        router_advertisements: false,
        boot_unknown: true,
        ca_pem: None,
        other_servers: Vec::new(),
    }
}

fn absolute((name, _): (String, std::path::PathBuf)) -> (String, std::path::PathBuf) {
    (
        name,
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"),
    )
}

/// A client's packet, built byte by byte without the encoder under test.
#[derive(Clone)]
pub(crate) struct Packet {
    header: Vec<u8>,
    options: Vec<u8>,
}

impl Packet {
    /// A message of type `kind` (option 53) from [`CLIENT`].
    pub(crate) fn new(kind: u8) -> Self {
        let mut header = vec![0; 240];
        header[..4].copy_from_slice(&[1, 1, 6, 0]);
        header[4..8].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
        header[28..34].copy_from_slice(&CLIENT.0);
        header[236..].copy_from_slice(&[99, 130, 83, 99]);
        Self {
            header,
            options: Vec::new(),
        }
        .option(53, &[kind])
    }

    pub(crate) fn option(mut self, code: u8, data: &[u8]) -> Self {
        self.options.extend([code, u8::try_from(data.len()).unwrap()]);
        self.options.extend(data);
        self
    }

    /// Overwrites bytes of the header.
    pub(crate) fn at(mut self, offset: usize, data: &[u8]) -> Self {
        self.header[offset..offset + data.len()].copy_from_slice(data);
        self
    }

    pub(crate) fn ciaddr(self, address: [u8; 4]) -> Self {
        self.at(12, &address)
    }

    pub(crate) fn giaddr(self, address: [u8; 4]) -> Self {
        self.at(24, &address)
    }

    /// Adds the options of PXE firmware of this architecture.
    pub(crate) fn pxe(self, architecture: u16) -> Self {
        let class: &[u8] = if matches!(architecture, 16 | 19) {
            b"HTTPClient:Arch"
        } else {
            b"PXEClient:Arch"
        };
        self.option(60, class).option(93, &architecture.to_be_bytes())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = [&self.header[..], &self.options].concat();
        bytes.push(255);
        bytes
    }
}
