//! Configuration: [`NetbootConfig`] as the operator writes it, [`Settings`] after the check.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use serde::Deserialize;

/// The operator's configuration. Unknown fields are refused; [`NetbootConfig::check`] reports all faults at once.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetbootConfig {
    /// This server's address on the boot network: DHCP server identifier, TFTP and HTTP server.
    pub server_ip: Ipv4Addr,
    /// Interface of the boot network. Without it the server answers DHCP on every interface.
    #[serde(default)]
    pub interface: Option<String>,
    pub dhcp: DhcpMode,
    /// Port of the DHCP server. Answers to clients go to the next higher port.
    #[serde(default = "ports::dhcp")]
    pub dhcp_port: u16,
    /// Port of the PXE boot server, proxy mode only.
    #[serde(default = "ports::boot_server")]
    pub boot_server_port: u16,
    /// 0 selects any free port (but firmware uses only 69).
    #[serde(default = "ports::tftp")]
    pub tftp_port: u16,
    /// 0 selects any free port.
    #[serde(default = "ports::http")]
    pub http_port: u16,
    /// The files that firmware may load first, by the names in [`names`]; see [`first_stages_in`].
    pub first_stages: BTreeMap<String, PathBuf>,
    /// Loader for nodes without a loader in their boot intent.
    #[serde(default)]
    pub boot_loader: BootLoader,
    /// Sends IPv6 router advertisements (without a default route) on `interface`, which saves iPXE a wait of 16 s.
    #[serde(default)]
    pub router_advertisements: bool,
    /// Lets machines that belong to no node boot, if the directory allows it too.
    #[serde(default)]
    pub boot_unknown: bool,
    /// The control plane's CA certificate, PEM; the server offers it as `/boot/v1/ca.pem`.
    #[serde(default)]
    pub ca_pem: Option<String>,
    /// Other DHCP servers that may answer (this site's own replicas). They are not reported as rogue.
    #[serde(default)]
    pub other_servers: Vec<Ipv4Addr>,
}

mod ports {
    pub(super) fn dhcp() -> u16 {
        67
    }
    pub(super) fn boot_server() -> u16 {
        4011
    }
    pub(super) fn tftp() -> u16 {
        69
    }
    pub(super) fn http() -> u16 {
        8080
    }
}

/// Source of the machines' addresses.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DhcpMode {
    /// This server assigns addresses.
    Server { subnets: Vec<Subnet> },
    /// Another DHCP server assigns addresses; this server adds the boot file (PXE 2.1 proxyDHCP).
    Proxy,
    /// No DHCP: HTTP and TFTP only.
    Off,
}

/// A served subnet, on the local link or behind a relay agent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subnet {
    pub network: Ipv4Net,
    /// Addresses for machines that belong to no node.
    #[serde(default)]
    pub pool: Option<Pool>,
    #[serde(default)]
    pub router: Option<Ipv4Addr>,
    #[serde(default)]
    pub dns: Vec<Ipv4Addr>,
    /// Lease time in seconds, 60 to 2,592,000 (30 days).
    #[serde(default = "lease_s")]
    pub lease_s: u32,
}

fn lease_s() -> u32 {
    3600
}

/// A range of addresses, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    pub first: Ipv4Addr,
    pub last: Ipv4Addr,
}

/// The program that firmware loads first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootLoader {
    /// iPXE: fast, but needs Secure Boot off (Debian's iPXE is not signed).
    #[default]
    Ipxe,
    /// Debian's signed shim and grub over TFTP, for Secure Boot. BIOS machines get iPXE instead.
    ShimGrub,
}

/// Names of first stages.
pub mod names {
    /// iPXE for BIOS.
    pub const BIOS: &str = "undionly.kpxe";
    /// iPXE for UEFI that uses the firmware's own network driver.
    pub const UEFI_X64: &str = "snponly.efi";
    pub const UEFI_ARM64: &str = "snponly-arm64.efi";
    /// iPXE for UEFI HTTP Boot.
    pub const HTTP_X64: &str = "ipxe.efi";
    pub const HTTP_ARM64: &str = "ipxe-arm64.efi";
    pub const SHIM_X64: &str = "shimx64.efi";
    /// shim requests grub by this name.
    pub const GRUB_X64: &str = "grubx64.efi";
    pub const SHIM_ARM64: &str = "shimaa64.efi";
    pub const GRUB_ARM64: &str = "grubaa64.efi";
}

/// Returns the first stages that exist in `folder` under their usual [`names`].
pub fn first_stages_in(folder: &Path) -> BTreeMap<String, PathBuf> {
    [
        names::BIOS,
        names::UEFI_X64,
        names::UEFI_ARM64,
        names::HTTP_X64,
        names::HTTP_ARM64,
        names::SHIM_X64,
        names::GRUB_X64,
        names::SHIM_ARM64,
        names::GRUB_ARM64,
    ]
    .into_iter()
    .map(|name| (name.to_owned(), folder.join(name)))
    .filter(|(_, path)| path.is_file())
    .collect()
}

/// All faults of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("network boot configuration: {}", .0.join("; "))]
pub struct ConfigFaults(pub Vec<String>);

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Settings(NetbootConfig);

impl std::ops::Deref for Settings {
    type Target = NetbootConfig;

    fn deref(&self) -> &NetbootConfig {
        &self.0
    }
}

impl NetbootConfig {
    /// Checks all fields and reports every fault by its field.
    pub fn check(self) -> Result<Settings, ConfigFaults> {
        let mut faults = Faults::default();
        self.check_addresses(&mut faults);
        self.check_dhcp(&mut faults);
        self.check_files(&mut faults);
        if faults.0.is_empty() {
            Ok(Settings(self))
        } else {
            Err(ConfigFaults(faults.0))
        }
    }

    fn check_addresses(&self, faults: &mut Faults) {
        let ip = self.server_ip;
        if ip.is_unspecified() || ip.is_broadcast() || ip.is_multicast() {
            faults.add("server_ip", format_args!("{ip} is not a unicast address"));
        }
        if let Some(name) = &self.interface
            && !(1..=15).contains(&name.len())
        {
            faults.add(
                "interface",
                format_args!("{name:?}: an interface name has 1 to 15 bytes"),
            );
        }
        if self.router_advertisements && self.interface.is_none() {
            faults.add("router_advertisements", "requires `interface`");
        }
        if self.dhcp_port == 0 || self.dhcp_port == u16::MAX {
            faults.add("dhcp_port", "must be 1 to 65534");
        }
        if self.boot_server_port == 0 {
            faults.add("boot_server_port", "must not be 0");
        }
    }

    fn check_dhcp(&self, faults: &mut Faults) {
        let DhcpMode::Server { subnets } = &self.dhcp else {
            return;
        };
        if subnets.is_empty() {
            faults.add("dhcp.server.subnets", "at least one subnet is required");
        }
        for (i, subnet) in subnets.iter().enumerate() {
            subnet.check(&format!("dhcp.server.subnets[{i}]"), self.server_ip, faults);
            for (j, other) in subnets.iter().enumerate().take(i) {
                if subnet.network.contains(&other.network) || other.network.contains(&subnet.network) {
                    let field = format!("dhcp.server.subnets[{i}].network");
                    faults.add(
                        &field,
                        format_args!("{} overlaps subnets[{j}], {}", subnet.network, other.network),
                    );
                }
            }
        }
    }

    fn check_files(&self, faults: &mut Faults) {
        for (name, path) in &self.first_stages {
            let field = format!("first_stages.{name}");
            if !is_file_name(name) {
                faults.add(
                    &field,
                    "a name has 1 to 64 of A-Z a-z 0-9 . _ - and does not begin with a dot",
                );
            }
            if !path.is_file() {
                faults.add(&field, format_args!("{} is not a file", path.display()));
            }
        }
        if let Some(pem) = &self.ca_pem
            && !(pem.len() <= 65_536 && pem.contains("-----BEGIN CERTIFICATE-----"))
        {
            faults.add("ca_pem", "not a PEM certificate of at most 64 KiB");
        }
    }
}

impl Subnet {
    fn check(&self, field: &str, server_ip: Ipv4Addr, faults: &mut Faults) {
        let network = self.network;
        if network.trunc() != network {
            faults.add(
                &format!("{field}.network"),
                format_args!("{network} has host bits set, did you mean {}?", network.trunc()),
            );
        }
        if network.prefix_len() > 30 {
            faults.add(
                &format!("{field}.network"),
                format_args!("{network} has no room for hosts"),
            );
        }
        if let Some(router) = self.router
            && !self.is_host(router)
        {
            faults.add(
                &format!("{field}.router"),
                format_args!("{router} is not a host address of {network}"),
            );
        }
        if !(60..=2_592_000).contains(&self.lease_s) {
            faults.add(
                &format!("{field}.lease_s"),
                format_args!("{} s is not between 60 and 2592000", self.lease_s),
            );
        }
        let Some(pool) = self.pool else { return };
        let field = format!("{field}.pool");
        if !self.is_host(pool.first) || !self.is_host(pool.last) {
            faults.add(
                &field,
                format_args!("{} to {} are not host addresses of {network}", pool.first, pool.last),
            );
        }
        if pool.first > pool.last {
            faults.add(
                &field,
                format_args!(
                    "the first address {} is after the last address {}",
                    pool.first, pool.last
                ),
            );
        }
        for taken in [Some(server_ip), self.router].into_iter().flatten() {
            if (pool.first..=pool.last).contains(&taken) {
                faults.add(
                    &field,
                    format_args!("contains {taken}, the address of this server or of the router"),
                );
            }
        }
    }

    /// Whether `address` is usable for a host: inside the network, and neither the network nor the broadcast address.
    pub(crate) fn is_host(&self, address: Ipv4Addr) -> bool {
        self.network.contains(&address) && address != self.network.network() && address != self.network.broadcast()
    }
}

impl Settings {
    /// The subnet that contains `address`; `None` in proxy mode.
    pub(crate) fn subnet_of(&self, address: Ipv4Addr) -> Option<&Subnet> {
        match &self.dhcp {
            DhcpMode::Server { subnets } => subnets.iter().find(|subnet| subnet.network.contains(&address)),
            DhcpMode::Proxy | DhcpMode::Off => None,
        }
    }

    /// The port on which DHCP clients listen.
    pub(crate) fn client_port(&self) -> u16 {
        self.dhcp_port + 1
    }

    /// Replaces the HTTP port by the port that is actually bound.
    pub(crate) fn with_http_port(mut self, port: u16) -> Self {
        self.0.http_port = port;
        self
    }

    /// Base URL of the HTTP server for boot programs.
    pub(crate) fn http_base(&self) -> HttpBase {
        HttpBase(SocketAddrV4::new(self.server_ip, self.http_port))
    }
}

/// Formats as `http://ADDRESS:PORT`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HttpBase(SocketAddrV4);

impl fmt::Display for HttpBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

/// Whether TFTP requests and URLs may contain this name.
pub(crate) fn is_file_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed)
}

#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, field: &str, fault: impl fmt::Display) {
        self.0.push(format!("{field}: {fault}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> NetbootConfig {
        NetbootConfig {
            server_ip: Ipv4Addr::new(10, 77, 0, 1),
            interface: Some("br0".to_owned()),
            dhcp: DhcpMode::Server {
                subnets: vec![subnet("10.77.0.0/24")],
            },
            dhcp_port: 67,
            boot_server_port: 4011,
            tftp_port: 69,
            http_port: 8080,
            first_stages: BTreeMap::new(),
            boot_loader: BootLoader::Ipxe,
            router_advertisements: true,
            boot_unknown: false,
            ca_pem: None,
            other_servers: Vec::new(),
        }
    }

    fn subnet(network: &str) -> Subnet {
        Subnet {
            network: network.parse().unwrap(),
            pool: None,
            router: None,
            dns: Vec::new(),
            lease_s: 3600,
        }
    }

    #[test]
    fn a_plain_configuration_is_accepted() {
        assert!(config().check().is_ok());
    }

    #[test]
    fn every_fault_is_named_at_once() {
        let pool = Pool {
            first: Ipv4Addr::new(10, 77, 0, 200),
            last: Ipv4Addr::new(10, 77, 0, 1),
        };
        let malformed = Subnet {
            pool: Some(pool),
            router: Some(Ipv4Addr::new(10, 78, 0, 1)),
            lease_s: 1,
            ..subnet("10.77.0.9/24")
        };
        let faulty = NetbootConfig {
            server_ip: Ipv4Addr::UNSPECIFIED,
            interface: None,
            dhcp: DhcpMode::Server {
                subnets: vec![malformed, subnet("10.0.0.0/8")],
            },
            dhcp_port: 0,
            first_stages: BTreeMap::from([("../x".to_owned(), PathBuf::from("/nonexistent"))]),
            ca_pem: Some("nonsense".to_owned()),
            ..config()
        };
        let ConfigFaults(faults) = faulty.check().unwrap_err();
        for expected in [
            "server_ip: ",
            "router_advertisements: ",
            "dhcp_port: ",
            "subnets[0].network: 10.77.0.9/24 has host bits set, did you mean 10.77.0.0/24?",
            "subnets[0].router: ",
            "subnets[0].lease_s: ",
            "subnets[0].pool: the first address",
            "subnets[1].network: 10.0.0.0/8 overlaps",
            "first_stages.../x: a name",
            "first_stages.../x: /nonexistent is not a file",
            "ca_pem: ",
        ] {
            assert!(
                faults.iter().any(|fault| fault.contains(expected)),
                "{expected} not in {faults:#?}"
            );
        }
    }

    /// The documented example is valid, and a misspelt field is refused.
    #[test]
    fn the_documented_example_is_read() {
        let page = include_str!("../../../docs/netboot.md");
        let example = page.split("```").find_map(|part| part.strip_prefix("yaml\n")).unwrap();
        let config: NetbootConfig = rackwright_yaml::read(example, rackwright_yaml::Quote::Lines).unwrap();
        assert_eq!((config.dhcp_port, config.tftp_port, config.http_port), (67, 69, 8080));
        let ConfigFaults(faults) = config.check().unwrap_err();
        assert!(
            faults.iter().all(|fault| fault.ends_with("is not a file")),
            "{faults:?}"
        );
        let misspelt = example.replace("lease_s", "lease");
        assert!(rackwright_yaml::read::<NetbootConfig>(&misspelt, rackwright_yaml::Quote::Lines).is_err());
        let proxy = "{server_ip: 10.0.0.1, dhcp: proxy, boot_loader: shim-grub, first_stages: {}}";
        let proxy: NetbootConfig = rackwright_yaml::read(proxy, rackwright_yaml::Quote::Lines).unwrap();
        assert!(matches!(proxy.dhcp, DhcpMode::Proxy) && proxy.boot_loader == BootLoader::ShimGrub);
    }

    #[test]
    fn the_pool_may_not_hold_our_own_address() {
        let pool = Pool {
            first: Ipv4Addr::new(10, 77, 0, 1),
            last: Ipv4Addr::new(10, 77, 0, 9),
        };
        let subnets = vec![Subnet {
            pool: Some(pool),
            ..subnet("10.77.0.0/24")
        }];
        let faults = NetbootConfig {
            dhcp: DhcpMode::Server { subnets },
            ..config()
        }
        .check()
        .unwrap_err();
        assert_eq!(
            faults.0,
            ["dhcp.server.subnets[0].pool: contains 10.77.0.1, the address of this server or of the router"]
        );
    }
}
